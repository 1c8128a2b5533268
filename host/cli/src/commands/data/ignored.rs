//! `.saggarignore`: files of a folder that a push leaves out.
//!
//! One pattern a line; `#` begins a comment. `*` stands for any letters of a name, `?` for one, `**` for any folders. A
//! pattern with `/` in it is about paths from the folder, another one about names anywhere; one that ends in `/` is about
//! folders. There is no way of taking something back in.

use std::io::ErrorKind;
use std::path::Path;

use saggar_project::Glob;

use crate::exit::{self, Failure};

/// The file.
const FILE: &str = ".saggarignore";

/// Bytes of that file.
const IGNORED_BYTES_MAX: u64 = 1 << 20;

/// What is left out.
#[derive(Debug, Default)]
pub(super) struct Ignored {
    patterns: Vec<Pattern>,
}

#[derive(Debug)]
struct Pattern {
    glob: Glob,
    folders_only: bool,
}

impl Ignored {
    /// What the folder's file says; nothing where there is none.
    pub(super) fn of(folder: &Path) -> Result<Ignored, Failure> {
        let path = folder.join(FILE);
        match saggar_store::regular_file::read_to_string(&path, IGNORED_BYTES_MAX) {
            Ok(text) => Ignored::parse(&text),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Ignored::default()),
            Err(error) => Err(Failure::new(exit::NOT_FOUND, "unreadable", format!("{}: {error}", path.display()))),
        }
    }

    fn parse(text: &str) -> Result<Ignored, Failure> {
        let mut patterns = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with('!') {
                let message = format!("{FILE}:{}: `{line}`: a pattern cannot take files back in", at + 1);
                return Err(Failure::invalid(message).hint("name what is to be left out, and nothing else"));
            }
            let path: Vec<&str> = line.split('/').filter(|name| !name.is_empty()).collect();
            let glob = match (line.trim_end_matches('/').contains('/'), path.as_slice()) {
                // The folder itself is what is pushed.
                (_, []) => continue,
                (false, [name]) => Glob::parse(&format!("**/{name}")),
                (_, path) => Glob::parse(&path.join("/")),
            };
            let glob = glob.map_err(|error| Failure::invalid(format!("{FILE}:{}: {error}", at + 1)))?;
            patterns.push(Pattern { glob, folders_only: line.ends_with('/') });
        }
        Ok(Ignored { patterns })
    }

    /// Whether this path, relative to the folder, is left out.
    pub(super) fn has(&self, path: &Path, is_folder: bool) -> bool {
        self.patterns.iter().any(|it| (is_folder || !it.folders_only) && it.glob.matches(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let has = |text: &str, path: &str, is_folder| Ignored::parse(text).unwrap().has(Path::new(path), is_folder);
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
        assert!(Ignored::parse("a\n!b").unwrap_err().message.contains(":2:"));
    }

    #[test]
    fn many_stars_take_no_time() {
        assert!(!Ignored::parse(&"*a".repeat(200)).unwrap().has(Path::new(&"a".repeat(199)), false));
    }
}
