//! `saggar plugins worlds`: lists the worlds that a plugin can be built for.

use saggar_plugin::PluginWorld;
use serde::Serialize;

use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// A world as JSON.
#[derive(Serialize)]
struct WorldDocument {
    world: String,
    version: String,
    about: String,
    exports: Vec<String>,
    imports: Vec<String>,
}

pub(super) fn list_worlds(output: CliOutput) -> Result<(), CliError> {
    let worlds = saggar_plugin::plugin_worlds();
    let worlds = worlds.map_err(|error| CliError::new(exit::UNEXPECTED, "unexpected", error.to_string()))?;
    if output.json {
        let document = |PluginWorld { name, version, about, exports, imports }| WorldDocument {
            world: name,
            version,
            about,
            exports,
            imports,
        };
        output.print_json(&worlds.into_iter().map(document).collect::<Vec<_>>());
        return Ok(());
    }
    if output.quiet {
        worlds.iter().for_each(|world| output.print_line(&format!("{}@{}", world.name, world.version)));
        return Ok(());
    }
    let row = |world: &PluginWorld| {
        vec![world.name.clone(), world.version.clone(), world.exports.join(" "), world.imports.join(" ")]
    };
    output.print_table(&["WORLD", "VERSION", "EXPORTS", "IMPORTS"], &worlds.iter().map(row).collect::<Vec<_>>());
    worlds.iter().for_each(|world| output.print_note(&format!("{}: {}", world.name, world.about)));
    Ok(())
}
