//! `.saggarignore`: the files of a folder that a push skips.
//!
//! One pattern per line; `#` begins a comment. `*` matches any characters of a name, `?` one character, `**` any
//! folders. A pattern that contains `/` matches paths from the folder; any other pattern matches names at any depth. A
//! pattern that ends in `/` matches folders only. Patterns that include files again (`!`) are not supported.

use std::io::ErrorKind;
use std::path::Path;

use saggar_project::Glob;

use crate::exit::{self, CliError};

/// The name of the file.
const IGNORE_FILE: &str = ".saggarignore";

/// Maximum size of that file, in bytes.
const IGNORE_FILE_BYTES_MAX: u64 = 1 << 20;

/// The patterns of files to skip.
#[derive(Debug, Default)]
pub(super) struct IgnorePatterns {
    patterns: Vec<IgnorePattern>,
}

#[derive(Debug)]
struct IgnorePattern {
    glob: Glob,
    folders_only: bool,
}

impl IgnorePatterns {
    /// Reads the patterns of a folder's file. They are empty if there is no file.
    pub(super) fn read_from(folder: &Path) -> Result<IgnorePatterns, CliError> {
        let path = folder.join(IGNORE_FILE);
        match saggar_store::regular_file::read_to_string(&path, IGNORE_FILE_BYTES_MAX) {
            Ok(text) => IgnorePatterns::parse(&text),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(IgnorePatterns::default()),
            Err(error) => Err(CliError::new(exit::NOT_FOUND, "unreadable", format!("{}: {error}", path.display()))),
        }
    }

    fn parse(text: &str) -> Result<IgnorePatterns, CliError> {
        let mut patterns = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with('!') {
                let message = format!("{IGNORE_FILE}:{}: `{line}`: a pattern cannot take files back in", at + 1);
                return Err(CliError::invalid(message).with_hint("name what is to be left out, and nothing else"));
            }
            let path: Vec<&str> = line.split('/').filter(|name| !name.is_empty()).collect();
            let glob = match (line.trim_end_matches('/').contains('/'), path.as_slice()) {
                // The folder itself is always pushed.
                (_, []) => continue,
                (false, [name]) => Glob::parse(&format!("**/{name}")),
                (_, path) => Glob::parse(&path.join("/")),
            };
            let glob = glob.map_err(|error| CliError::invalid(format!("{IGNORE_FILE}:{}: {error}", at + 1)))?;
            patterns.push(IgnorePattern { glob, folders_only: line.ends_with('/') });
        }
        Ok(IgnorePatterns { patterns })
    }

    /// Returns whether a path, relative to the folder, is skipped.
    pub(super) fn matches(&self, path: &Path, is_folder: bool) -> bool {
        self.patterns.iter().any(|it| (is_folder || !it.folders_only) && it.glob.matches(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignore_patterns_match_names_and_paths() {
        let has = |text: &str, path: &str, is_folder| {
            IgnorePatterns::parse(text).unwrap().matches(Path::new(path), is_folder)
        };
        for (text, path) in [
            ("*.log", "a.log"),
            ("*.log", "deep/er/a.log"),
            ("# all\n\n  notes.md ", "notes.md"),
            ("/a/*.bin", "a/x.bin"),
            ("a/**/z", "a/b/c/z"),
            ("a/**/z", "a/z"),
            ("**/x", "x"),
            ("?.txt", "a.txt"),
            ("*a*b*", "xxaxxbxx"),
            ("?.txt", "é.txt"),
            ("a//b", "a/b"),
        ] {
            assert!(has(text, path, false), "{text} {path}");
        }
        for (text, path) in [
            ("*.log", "a.logs"),
            ("/a/*.bin", "b/a/x.bin"),
            ("a/*", "a/b/c"),
            ("?.txt", ".txt"),
            ("build/", "build"),
            ("#x", "#x"),
            ("*a*b*", "bbaa"),
            ("", "a"),
        ] {
            assert!(!has(text, path, false), "{text} {path}");
        }
        assert!(has("build/", "deep/build", true));
        assert!(!has("/", "deep", true), "the folder itself is pushed");
        assert!(IgnorePatterns::parse("a\n!b").unwrap_err().message.contains(":2:"));
    }

    #[test]
    fn a_pattern_with_many_stars_matches_quickly() {
        assert!(!IgnorePatterns::parse(&"*a".repeat(200)).unwrap().matches(Path::new(&"a".repeat(199)), false));
    }
}
