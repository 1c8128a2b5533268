//! `.saggarignore`: files of a folder that a push leaves out.
//!
//! One pattern a line; `#` begins a comment. `*` stands for any letters of a name, `?` for one, `**` for any folders. A
//! pattern with `/` in it is about paths from the folder, another one about names anywhere; one that ends in `/` is about
//! folders. There is no way of taking something back in.

use std::io::ErrorKind;
use std::path::Path;

use crate::exit::{self, Failure};

/// The file.
const FILE: &str = ".saggarignore";

/// What is left out.
#[derive(Debug, Default)]
pub(super) struct Ignored {
    patterns: Vec<Pattern>,
}

#[derive(Debug)]
struct Pattern {
    /// Names and patterns of names, from the folder; or one, of a name anywhere.
    parts: Vec<String>,
    anywhere: bool,
    folders_only: bool,
}

impl Ignored {
    /// What the folder's file says; nothing where there is none.
    pub(super) fn of(folder: &Path) -> Result<Ignored, Failure> {
        let path = folder.join(FILE);
        match std::fs::read_to_string(&path) {
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
            let folders_only = line.ends_with('/');
            let line = line.trim_end_matches('/');
            let anywhere = !line.contains('/');
            let parts = line.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
            patterns.push(Pattern { parts, anywhere, folders_only });
        }
        Ok(Ignored { patterns })
    }

    /// Whether this path, relative to the folder, is left out.
    pub(super) fn has(&self, path: &Path, is_folder: bool) -> bool {
        let names: Vec<String> = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        let matches = |pattern: &Pattern| {
            if pattern.folders_only && !is_folder {
                return false;
            }
            match (pattern.anywhere, names.last()) {
                (true, Some(name)) => pattern.parts.iter().all(|part| is_name(part.as_bytes(), name.as_bytes())),
                _ => is_path(&pattern.parts, &names),
            }
        };
        self.patterns.iter().any(matches)
    }
}

fn is_path(pattern: &[String], names: &[String]) -> bool {
    match (pattern.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "**" => {
            is_path(rest, names) || names.split_first().is_some_and(|(_, names)| is_path(pattern, names))
        }
        (Some((first, rest)), Some((name, names))) => {
            is_name(first.as_bytes(), name.as_bytes()) && is_path(rest, names)
        }
        _ => false,
    }
}

/// Whether a name is as a pattern says. Goes back to the last `*` only, so it takes at most the product of the lengths.
fn is_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut here) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while here < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, here));
                at += 1;
            }
            Some(letter) if *letter == b'?' || *letter == name[here] => (at, here) = (at + 1, here + 1),
            _ => match &mut star {
                Some((after, from)) => {
                    *from += 1;
                    (at, here) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
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
        assert!(Ignored::parse("a\n!b").unwrap_err().message.contains(":2:"));
    }

    #[test]
    fn many_stars_take_no_time() {
        assert!(!is_name("*a".repeat(200).as_bytes(), "a".repeat(199).as_bytes()));
    }
}
