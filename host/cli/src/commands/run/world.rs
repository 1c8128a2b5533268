//! `saggar run --env WORLD`: the component must be of that world.

use std::path::Path;

use saggar_plugin::PluginWorld;

use crate::exit::{self, CliError};

/// The world that `--env` names.
///
/// # Errors
/// `invalid` where there is none of that name and version here, with those that there are.
pub(super) fn find_world(text: &str) -> Result<PluginWorld, CliError> {
    let worlds = saggar_plugin::plugin_worlds();
    let worlds = worlds.map_err(|error| CliError::new(exit::UNEXPECTED, "unexpected", error.to_string()))?;
    let known: Vec<String> = worlds.iter().map(|world| format!("{}@{}", world.name, world.version)).collect();
    worlds.into_iter().find(|world| world.matches_name(text)).ok_or_else(|| {
        CliError::invalid(format!("--env {text}: there is no such world here; there are {}", known.join(", ")))
            .with_hint("`saggar env ls` says what each is for")
    })
}

/// Checks that a component exports what one of the world does, in its version.
///
/// # Errors
/// `invalid` with what it exports and what the world wants.
pub(super) fn check_exports(world: &PluginWorld, component: &Path) -> Result<(), CliError> {
    let wasm = std::fs::read(component)
        .map_err(|error| CliError::new(exit::NOT_FOUND, "no_plugin", format!("{}: {error}", component.display())))?;
    // What is no component at all is refused by the server, with what is wrong with it.
    let Some(exports) = saggar_plugin::component_exports(&wasm) else { return Ok(()) };
    if world.export_names().all(|wanted| exports.contains(&wanted)) {
        return Ok(());
    }
    let wanted: Vec<String> = world.export_names().collect();
    let message = format!(
        "{} exports {}; a plugin of {}@{}, which --env asks for, exports {}",
        component.display(),
        exports.join(", "),
        world.name,
        world.version,
        wanted.join(", ")
    );
    Err(CliError::invalid(message).with_hint("leave --env out, or build the plugin for that world"))
}
