//! The settings of JupyterLab that differ from its own defaults; users can change them in the notebook. It does not ask
//! whether it can fetch news from the internet.

use std::fs;
use std::io;
use std::path::Path;

/// The content of the file, by the names of JupyterLab's plugins.
const OVERRIDES: &str = include_str!("../overrides.json");
/// The name that JupyterLab looks for in its settings directory.
const OVERRIDES_NAME: &str = "overrides.json";

/// Writes the settings into JupyterLab's settings directory.
pub(crate) fn write_lab_settings(directory: &Path) -> io::Result<()> {
    fs::write(directory.join(OVERRIDES_NAME), OVERRIDES)
}
