//! The state directory of a worker, which only one process uses.

use std::path::Path;

use saggar_store::{StateDir, StateDirLock, StoreError};

use crate::commands::serve::unexpected_error;
use crate::exit::{self, CliError};

/// Maximum workers on one machine whose state directories are in one folder.
const HOMES_MAX: u32 = 1024;

/// A state directory with its lock.
pub(super) struct LockedHome {
    pub(super) home: StateDir,
    pub(super) lock: StateDirLock,
}

/// Opens a state directory.
///
/// # Errors
/// `home_in_use` if another process uses it, or the directory cannot be created.
pub(super) fn open(path: &Path) -> Result<LockedHome, CliError> {
    let home = StateDir::open(path).map_err(unexpected_error)?;
    let lock = home.lock().map_err(|error| match error {
        StoreError::HomeInUse { .. } => CliError::new(exit::CONFLICT, "home_in_use", error.to_string())
            .with_hint("`--home DIR` names another state directory"),
        error => unexpected_error(error),
    })?;
    Ok(LockedHome { home, lock })
}

/// Opens the first state directory of a folder that no other process uses: `worker-0`, `worker-1` and so on. So there are
/// never more of them than workers at the same time.
///
/// # Errors
/// `home_in_use` if processes use all of them, or a directory cannot be created.
pub(super) fn open_free(folder: &Path) -> Result<LockedHome, CliError> {
    for number in 0..HOMES_MAX {
        match open(&folder.join(format!("worker-{number}"))) {
            Err(error) if error.code == "home_in_use" => {}
            opened => return opened,
        }
    }
    let message = format!("{HOMES_MAX} workers use state directories in {} already", folder.display());
    Err(CliError::new(exit::CONFLICT, "home_in_use", message).with_hint("`--homes FOLDER` names another folder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_of_one_machine_have_different_state_directories_and_leave_them_to_later_ones() {
        let folder = tempfile::tempdir().unwrap();
        let name = |home: &LockedHome| home.home.root().file_name().unwrap().to_string_lossy().into_owned();
        let [first, second] = [(); 2].map(|()| open_free(folder.path()).unwrap());
        assert_eq!((name(&first), name(&second)), ("worker-0".to_owned(), "worker-1".to_owned()));
        assert_eq!(open(first.home.root()).err().unwrap().code, "home_in_use");
        drop(first);
        assert_eq!(name(&open_free(folder.path()).unwrap()), "worker-0");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
