//! The files of the source tree, for tests that check all of them.

use std::path::{Path, PathBuf};

use crate::root;

/// Returns every file with one of these extensions below these directories of the project. Skips build outputs and hidden
/// directories.
///
/// # Panics
/// A directory cannot be read, or no such file exists.
pub fn source_files(directories: &[&str], extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    directories.iter().for_each(|directory| collect(&root().join(directory), &mut found));
    found.retain(|path| path.extension().is_some_and(|it| extensions.contains(&&*it.to_string_lossy())));
    assert!(!found.is_empty(), "{directories:?} have no files with {extensions:?}");
    found
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory of the project") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().expect("entries have names").to_string_lossy().into_owned();
        if !path.is_dir() {
            found.push(path);
        } else if name != "target" && !name.starts_with('.') {
            collect(&path, found);
        }
    }
}

/// Returns a path from the project's root, for messages.
///
/// # Panics
/// The path is outside the project.
pub fn relative_path(path: &Path) -> String {
    path.strip_prefix(root()).expect("a path of the project").display().to_string()
}
