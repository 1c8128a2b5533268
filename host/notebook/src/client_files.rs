//! The Python client of the server, as files that a notebook imports.

use std::fs;
use std::io;
use std::path::Path;

use include_dir::{Dir, include_dir};

/// The package `saggar`.
static CLIENT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../clients/python/src/saggar");

/// Writes the package into a directory.
pub(crate) fn write_client(directory: &Path) -> io::Result<()> {
    let package = directory.join("saggar");
    fs::create_dir_all(&package)?;
    for file in CLIENT.files() {
        fs::write(package.join(file.path()), file.contents())?;
    }
    Ok(())
}
