//! Temporary directories of commands.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::exit::{self, CliError};

/// Maximum number of directory names that are tried.
const TEMP_DIRECTORIES_MAX: u32 = 1000;

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub(crate) struct TempDirectory(PathBuf);

impl TempDirectory {
    /// Creates an empty directory, whose name contains `purpose`.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub(crate) fn create(purpose: &str) -> Result<TempDirectory, CliError> {
        let within = std::env::temp_dir();
        for number in 0..TEMP_DIRECTORIES_MAX {
            // An existing directory belongs to another caller, or to a killed process with the same id.
            let path = within.join(format!("saggar-{purpose}-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(TempDirectory(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", path.display())));
                }
            }
        }
        let message = format!("{} has too many directories saggar-{purpose}-*", within.display());
        Err(CliError::new(exit::UNEXPECTED, "write", message)
            .with_hint("remove them, or name another directory: TMPDIR=DIR"))
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temp_directories_are_distinct_and_removed_on_drop() {
        let [one, other] = [TempDirectory::create("test").unwrap(), TempDirectory::create("test").unwrap()];
        assert_ne!(one.0, other.0);
        let path = one.0.clone();
        assert!(path.is_dir());
        drop(one);
        assert!(!path.exists());
    }
}
