//! `saggar build`: builds a plugin's directory into a component.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::args::BuildArgs;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::plugin_build;
use crate::units;

/// A component as JSON.
#[derive(Serialize)]
struct BuiltComponent<'a> {
    component: &'a Path,
    bytes: u64,
}

pub(crate) fn build(args: &BuildArgs, output: CliOutput) -> Result<(), CliError> {
    let built = build_component(&args.dir, output)?;
    let path = match &args.output {
        None => built,
        Some(to) => {
            let copied = std::fs::copy(&built, to);
            copied.map_err(|error| CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", to.display())))?;
            to.clone()
        }
    };
    let bytes = path.metadata().map_or(0, |data| data.len());
    if output.json {
        output.print_json(&BuiltComponent { component: &path, bytes });
    } else {
        output.print_line(&path.display().to_string());
        output.print_note(&format!("  {}", units::format_bytes(bytes)));
    }
    Ok(())
}

/// Builds the plugin in `dir` and returns the component's path.
pub(crate) fn build_component(dir: &Path, output: CliOutput) -> Result<PathBuf, CliError> {
    output.print_note(&format!("building {}", dir.display()));
    plugin_build::build_plugin(dir, output.json || output.quiet)
        .map_err(|error| CliError::new(exit::INVALID, "build_failed", error.to_string()))
}
