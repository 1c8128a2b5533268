//! `saggar env ls`: the worlds that a plugin can be of here.

use saggar_plugin::World;
use serde_json::json;

use crate::args::Env;
use crate::exit::{self, Failure};
use crate::output::Output;

pub(crate) fn env(args: &Env, output: Output) -> Result<(), Failure> {
    match args {
        Env::Ls => list(output),
    }
}

fn list(output: Output) -> Result<(), Failure> {
    let worlds = saggar_plugin::worlds();
    let worlds = worlds.map_err(|error| Failure::new(exit::UNEXPECTED, "unexpected", error.to_string()))?;
    if output.json {
        let all = worlds.iter().map(|World { name, version, about, exports, imports }| {
            json!({ "world": name, "version": version, "about": about, "exports": exports, "imports": imports })
        });
        output.json(&all.collect());
        return Ok(());
    }
    if output.quiet {
        worlds.iter().for_each(|world| output.line(&format!("{}@{}", world.name, world.version)));
        return Ok(());
    }
    let row = |world: &World| {
        vec![world.name.clone(), world.version.clone(), world.exports.join(" "), world.imports.join(" ")]
    };
    output.table(&["WORLD", "VERSION", "EXPORTS", "IMPORTS"], &worlds.iter().map(row).collect::<Vec<_>>());
    worlds.iter().for_each(|world| output.note(&format!("{}: {}", world.name, world.about)));
    Ok(())
}
