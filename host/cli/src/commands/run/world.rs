//! Checks that a component implements a world: that of `saggar run --env WORLD`, or of `world` in the project file.

use saggar_plugin::PluginWorld;

use crate::component_source::ComponentSource;
use crate::exit::{self, CliError};

/// Returns the world that `text`, the value of `option`, names.
///
/// # Errors
/// Returns `invalid`, listing the existing worlds, if no world has that name and version.
pub(super) fn find_world(option: &str, text: &str) -> Result<PluginWorld, CliError> {
    let worlds = saggar_plugin::plugin_worlds();
    let worlds = worlds.map_err(|error| CliError::new(exit::UNEXPECTED, "unexpected", error.to_string()))?;
    let known: Vec<String> = worlds.iter().map(|world| format!("{}@{}", world.name, world.version)).collect();
    worlds.into_iter().find(|world| world.matches_name(text)).ok_or_else(|| {
        CliError::invalid(format!("{option} {text}: unknown world; this host has {}", known.join(", ")))
            .with_hint("`saggar plugins worlds` describes them")
    })
}

/// Checks that a component has the exports of the world, in the same version. `option` asks for it.
///
/// # Errors
/// Returns `invalid` with the component's exports and the world's.
pub(super) fn check_exports(option: &str, world: &PluginWorld, component: &ComponentSource) -> Result<(), CliError> {
    if let ComponentSource::Remote { .. } = component {
        let message = format!("{option} cannot be checked for {component}, which the server fetches");
        return Err(CliError::invalid(message).with_hint(format!("leave {option} out")));
    }
    let wasm = component.read()?;
    // The server rejects a file that is not a component, with the reason.
    let Some(exports) = saggar_plugin::component_exports(&wasm) else { return Ok(()) };
    if world.export_names().all(|wanted| exports.contains(&wanted)) {
        return Ok(());
    }
    let wanted: Vec<String> = world.export_names().collect();
    let message = format!(
        "{component} exports {}; a plugin of {}@{}, which {option} asks for, exports {}",
        exports.join(", "),
        world.name,
        world.version,
        wanted.join(", ")
    );
    Err(CliError::invalid(message).with_hint(format!("leave {option} out, or build the plugin for that world")))
}
