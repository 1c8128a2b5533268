//! Versions of this program and their compatibility. A command and a server are compatible if their major versions are
//! equal and their minor versions differ by at most one. Each sends its version with every request or response.

use std::fmt;

/// The response header that contains the server's version.
pub const VERSION_HEADER: &str = "x-saggar-version";

/// This program's version.
pub const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// A version: `1.12.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramVersion {
    major: u64,
    minor: u64,
    patch: u64,
}

impl ProgramVersion {
    /// Parses a version, ignoring what follows a `-` or `+`. Returns `None` if the text is not a version.
    pub fn parse(text: &str) -> Option<ProgramVersion> {
        let numbers = text.split(['-', '+']).next()?;
        let mut numbers = numbers.split('.').map(|number| number.parse().ok());
        let version = ProgramVersion { major: numbers.next()??, minor: numbers.next()??, patch: numbers.next()?? };
        numbers.next().is_none().then_some(version)
    }

    /// Returns this program's version.
    pub fn current() -> ProgramVersion {
        ProgramVersion::parse(OWN_VERSION).expect("cargo takes no other versions")
    }

    /// Returns whether a command of one version and a server of the other are compatible.
    pub fn is_compatible_with(self, other: ProgramVersion) -> bool {
        self.major == other.major && self.minor.abs_diff(other.minor) <= 1
    }
}

impl fmt::Display for ProgramVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_one_minor_apart_are_compatible() {
        let understands = |one: &str, other: &str| {
            let (one, other) = (ProgramVersion::parse(one).unwrap(), ProgramVersion::parse(other).unwrap());
            assert_eq!(one.is_compatible_with(other), other.is_compatible_with(one), "{one} {other}");
            one.is_compatible_with(other)
        };
        assert!(understands("0.1.0", "0.1.0"));
        assert!(understands("0.1.0", "0.2.9"));
        assert!(understands("1.4.0", "1.5.0-rc.1"));
        assert!(!understands("0.1.0", "0.3.0"));
        assert!(!understands("0.1.0", "1.1.0"));
        assert!(!understands("0.1.0", "9.9.0"));
        assert!(ProgramVersion::parse("0.10.0") > ProgramVersion::parse("0.9.0"));
        for bad in ["", "1", "1.2", "1.2.3.4", "a.b.c", "1.2.x", "-1.2.3"] {
            assert_eq!(ProgramVersion::parse(bad), None, "{bad}");
        }
    }
}
