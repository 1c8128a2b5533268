//! `saggar build`: a plugin's directory into a component.

use std::path::{Path, PathBuf};

use saggar_plugin::build::BuildOptions;
use serde_json::json;

use crate::args::Build;
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::units;

pub(crate) fn build(args: &Build, output: Output) -> Result<(), Failure> {
    let built = component(&args.dir, output)?;
    let path = match &args.output {
        None => built,
        Some(to) => {
            let copied = std::fs::copy(&built, to);
            copied.map_err(|error| Failure::new(exit::UNEXPECTED, "write", format!("{}: {error}", to.display())))?;
            to.clone()
        }
    };
    let bytes = path.metadata().map_or(0, |data| data.len());
    if output.json {
        output.json(&json!({ "component": path, "bytes": bytes }));
    } else {
        output.line(&path.display().to_string());
        output.note(&format!("  {}", units::show_bytes(bytes)));
    }
    Ok(())
}

/// Builds the plugin in `dir` and returns the component's path.
pub(crate) fn component(dir: &Path, output: Output) -> Result<PathBuf, Failure> {
    output.note(&format!("building {}", dir.display()));
    let built = saggar_plugin::build::build(dir, &BuildOptions { toolchain: None, quiet: output.json || output.quiet });
    built
        .map(|built| built.component_path)
        .map_err(|error| Failure::new(exit::INVALID, "build_failed", error.to_string()))
}
