//! File patterns such as `src/**/*.rs`: `*` matches any characters of one name, `?` one character, `**` any number of
//! directories.

use std::path::{Component, Path};

use crate::error::GlobError;

/// A pattern of paths below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: String,
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// `GlobError::Outside` if it is empty, absolute, or contains `..`.
    pub fn parse(text: &str) -> Result<Glob, GlobError> {
        let inside = Path::new(text).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        match inside && !text.is_empty() {
            true => Ok(Glob { text: text.trim_start_matches("./").to_owned() }),
            false => Err(GlobError::Outside { text: text.to_owned() }),
        }
    }

    /// Returns whether the pattern matches `path`, which is relative to the project's directory.
    pub fn matches(&self, path: &Path) -> bool {
        let pattern: Vec<&str> = self.text.split('/').collect();
        let names: Vec<String> = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        path_matches(&pattern, &names)
    }

    /// Returns the directories before the first wildcard, possibly empty. Only this directory must be watched.
    pub fn literal_prefix(&self) -> &Path {
        let plain = self.text.find(['*', '?']).unwrap_or(self.text.len());
        let end = self.text[..plain].rfind('/').unwrap_or(0);
        Path::new(&self.text[..end])
    }

    /// Returns the pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn path_matches(pattern: &[&str], names: &[&str]) -> bool {
    matches_sequence(pattern, names, |part| *part == "**", |part, name| name_matches(part, name))
}

fn name_matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    matches_sequence(&pattern, &name, |part| *part == '*', |part, letter| *part == '?' || part == letter)
}

/// Returns whether a pattern matches a sequence. A star matches any number of names; another part matches one.
///
/// Backtracks only to the last star. The earlier stars have their shortest possible match, and a longer one cannot
/// help.
fn matches_sequence<P, N>(
    pattern: &[P],
    names: &[N],
    is_star: impl Fn(&P) -> bool,
    means: impl Fn(&P, &N) -> bool,
) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < names.len() {
        match pattern.get(p) {
            Some(part) if is_star(part) => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(part) if means(part, &names[n]) => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((after, skipped)) => {
                    star = Some((after, skipped + 1));
                    (p, n) = (after, skipped + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(is_star)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn glob_patterns_match_like_shell_patterns() {
        let matches = |pattern: &str, path: &str| Glob::parse(pattern).unwrap().matches(Path::new(path));
        assert!(matches("src/**/*.rs", "src/lib.rs"));
        assert!(matches("src/**/*.rs", "src/a/b/c.rs"));
        assert!(!matches("src/**/*.rs", "src/lib.rs.swp"));
        assert!(!matches("src/**/*.rs", "target/lib.rs"));
        assert!(matches("Cargo.toml", "Cargo.toml"));
        assert!(!matches("Cargo.toml", "vendor/Cargo.toml"));
        assert!(matches("**", "a/b"));
        assert!(matches("a*b*c?", "aXbYbZcd"));
        assert!(!matches("a*b", "acd"));
        assert!(matches("**/a/**/b/**", "x/a/a/y/b") && matches("a/**", "a") && matches("**/**/a", "a"));
        assert!(!matches("**/a/**/b", "b/a") && !matches("a/**/b", "a/c") && !matches("a", "a/b"));
        assert_eq!(Glob::parse("src/a*/x.rs").unwrap().literal_prefix(), Path::new("src"));
        assert_eq!(Glob::parse("Cargo.toml").unwrap().literal_prefix(), Path::new(""));
        for bad in ["", "/etc/*", "../x", "src/../../x"] {
            assert!(Glob::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn many_stars_do_not_backtrack_exponentially() {
        let path = PathBuf::from("a/".repeat(200));
        for pattern in [format!("{}b", "**/a/".repeat(50)), format!("{}b", "**/".repeat(100))] {
            assert!(!Glob::parse(&pattern).unwrap().matches(&path), "{pattern}");
        }
        assert!(Glob::parse(&format!("{}a", "**/a/".repeat(50))).unwrap().matches(&path));
    }
}
