//! Outputs of jobs: the paths under which plugins write files by name. [`crate::job_files`] stores them.
//!
//! Plugins and clients choose the paths, so [`is_output_path`] checks each before it reaches a store.

use saggar_tensor::limits::NAME_BYTES_MAX;

/// The folder of outputs among a job's files.
pub(crate) const OUTPUT_FOLDER: &str = "output";

/// A file that a job wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Its path: names joined by `/`.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Returns whether a path stays in its directory, on every system: names of letters, digits, `.`, `_` and `-`, not
/// beginning with `.`, joined by `/`, of at most [`NAME_BYTES_MAX`] bytes in total.
pub fn is_output_path(path: &str) -> bool {
    let is_name = |name: &str| {
        let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        letters && !name.is_empty() && !name.starts_with('.')
    };
    path.len() <= NAME_BYTES_MAX && path.split('/').all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_in_their_directory() {
        for path in ["target-010.png", "a/b_c/d.txt", "x"] {
            assert!(is_output_path(path), "{path}");
        }
        for path in ["", "/a", "a/", "../a", "a/../b", "a//b", ".hidden", "a/.b", "a b", "a\\b", "ä", "a\0"] {
            assert!(!is_output_path(path), "{path}");
        }
    }
}
