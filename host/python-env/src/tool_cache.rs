//! The directory of tools in the user's cache.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What the temporary name of a directory has after its name, before the number of the process that makes it.
const DRAFT_SUFFIX: &str = ".part-";

/// Returns the directory, or `None` if no variable says where the user's cache is.
pub fn directory() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    Some(cache?.join("saggar/tools"))
}

/// Makes a directory with `create` under a temporary name, and moves it to its place when it is complete. Another process
/// can make the same directory at the same time; one of them is used.
///
/// # Errors
/// Those of `create`, and those that `io_error` makes of a path and an error of the file system.
pub fn install_into<E>(
    directory: &Path,
    create: impl FnOnce(&Path) -> Result<(), E>,
    io_error: impl Fn(PathBuf, io::Error) -> E,
) -> Result<(), E> {
    let mut draft = directory.as_os_str().to_owned();
    draft.push(format!("{DRAFT_SUFFIX}{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let _ = fs::remove_dir_all(&draft);
    let made = fs::create_dir_all(&draft).map_err(|source| io_error(draft.clone(), source));
    let moved = made.and_then(|()| create(&draft)).and_then(|()| match fs::rename(&draft, directory) {
        Err(source) if !directory.is_dir() => Err(io_error(directory.to_owned(), source)),
        _ => Ok(()),
    });
    let _ = fs::remove_dir_all(&draft);
    moved
}

/// Removes what processes have left that were killed while they made `directory`. No other process may be making it.
pub(crate) fn remove_drafts(directory: &Path) {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else { return };
    let prefix = format!("{}{DRAFT_SUFFIX}", name.to_string_lossy());
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_appears_only_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("tool-1");
        let entries = || fs::read_dir(dir.path()).unwrap().count();
        let failed = install_into(&target, |_| Err("pip failed".to_owned()), |_, error| error.to_string());
        assert_eq!((failed, entries()), (Err("pip failed".to_owned()), 0));
        let write = |draft: &Path| fs::write(draft.join("a"), "1").map_err(|error| error.to_string());
        install_into(&target, write, |_, error| error.to_string()).unwrap();
        assert_eq!((fs::read_to_string(target.join("a")).unwrap(), entries()), ("1".to_owned(), 1));
        // What a killed process left is removed, and nothing else.
        fs::create_dir(dir.path().join("tool-1.part-1")).unwrap();
        fs::create_dir(dir.path().join("tool-12")).unwrap();
        remove_drafts(&target);
        fs::remove_dir(dir.path().join("tool-12")).unwrap();
        assert_eq!(entries(), 1);
        // Another process was first.
        install_into(&target, write, |_, error| error.to_string()).unwrap();
        assert_eq!(entries(), 1);
    }
}
