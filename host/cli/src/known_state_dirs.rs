//! State directories that this user's servers were started with. The default is `.saggar` in the current directory, so
//! a server that is started elsewhere begins with an empty state; this list lets it name the other directories.
//!
//! The list is a text file with one path per line, the latest first. It is only a hint: if it cannot be read or
//! written, nothing else changes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use saggar_store::regular_file;

/// The default state directory: the default of the option `--home`.
pub(crate) const DEFAULT_STATE_DIR: &str = ".saggar";
/// Maximum number of remembered directories.
const HOMES_MAX: usize = 16;
/// Maximum bytes of the list that are read.
const LIST_BYTES_MAX: u64 = 64 << 10;

/// The list of one user.
#[derive(Clone, Debug)]
pub(crate) struct KnownStateDirs {
    file: Option<PathBuf>,
}

impl KnownStateDirs {
    /// Returns the current user's list, by the XDG Base Directory Specification: in `XDG_STATE_HOME`, or
    /// `~/.local/state`.
    pub(crate) fn for_current_user() -> KnownStateDirs {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
        KnownStateDirs { file: state.map(|state| state.join("saggar/state-directories")) }
    }

    /// Returns the existing directories except `home`, the latest first.
    pub(crate) fn others(&self, home: &Path) -> Vec<PathBuf> {
        let own = home.canonicalize().unwrap_or_else(|_| home.to_owned());
        self.all().into_iter().filter(|other| *other != own).collect()
    }

    fn all(&self) -> Vec<PathBuf> {
        let text = self.file.as_deref().and_then(|file| regular_file::read_to_string(file, LIST_BYTES_MAX).ok());
        let text = text.unwrap_or_default();
        text.lines().map(PathBuf::from).filter(|home| home.is_absolute() && home.is_dir()).collect()
    }

    /// Moves `home` to the front, and removes directories that no longer exist.
    ///
    /// # Errors
    /// Fails if the list cannot be written.
    pub(crate) fn remember(&self, home: &Path) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let home = home.canonicalize()?;
        let mut homes = vec![home.clone()];
        homes.extend(self.others(&home).into_iter().take(HOMES_MAX - 1));
        let lines = homes.iter().filter_map(|home| home.to_str()).filter(|home| !home.contains('\n'));
        let text: String = lines.map(|home| format!("{home}\n")).collect();
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        // Renamed into place, so that concurrent readers find the old list or the new one.
        let new = file.with_extension(format!("new-{}", std::process::id()));
        fs::write(&new, text)?;
        fs::rename(&new, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_state_dirs_are_latest_first_without_missing_ones() {
        let dir = tempfile::tempdir().unwrap();
        let known = KnownStateDirs { file: Some(dir.path().join("list/homes")) };
        let home = |name: &str| {
            let home = dir.path().join(name);
            fs::create_dir_all(&home).unwrap();
            home.canonicalize().unwrap()
        };
        let (a, b, c) = (home("a"), home("b"), home("c"));
        assert_eq!(known.others(&a), Vec::<PathBuf>::new());
        for home in [&a, &b, &c, &a] {
            known.remember(home).unwrap();
        }
        assert_eq!(known.others(&a), [c.clone(), b.clone()]);
        fs::remove_dir(&c).unwrap();
        assert_eq!(known.others(&a), std::slice::from_ref(&b));
        for at in 0..2 * HOMES_MAX {
            known.remember(&home(&format!("more-{at}"))).unwrap();
        }
        assert_eq!(known.all().len(), HOMES_MAX);
        fs::write(dir.path().join("list/homes"), "\n relative\n\0\n").unwrap();
        assert_eq!(known.others(&a), Vec::<PathBuf>::new());
        assert!(KnownStateDirs { file: None }.remember(&a).is_ok());
    }
}
