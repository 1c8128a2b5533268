//! Versions of this program and their compatibility. A command and a server are compatible if their major versions are
//! equal and their minor versions differ by at most one. Each sends its version with every request or response.

use std::fmt;

use axum::http::{HeaderMap, Method, header};

use crate::access::{AccessError, is_safe};

/// The response header that contains the server's version.
pub const VERSION_HEADER: &str = "x-saggar-version";

/// This program's version.
pub const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The prefix of the command's user agent, before its version.
const AGENT: &str = "saggar/";

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

/// Refuses changes by a command of an incompatible version. Read-only requests are answered, and the command detects
/// the difference from [`VERSION_HEADER`]. Other clients need not send a version.
pub(crate) fn check_client_version(method: &Method, headers: &HeaderMap) -> Result<(), AccessError> {
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    let Some(rest) = agent.and_then(|agent| agent.strip_prefix(AGENT)) else { return Ok(()) };
    let client = rest.split_whitespace().next().and_then(ProgramVersion::parse);
    match client {
        Some(client) if !is_safe(method) && !client.is_compatible_with(ProgramVersion::current()) => {
            Err(AccessError::VersionSkew { client, server: ProgramVersion::current() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

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

    #[test]
    fn only_changes_by_an_incompatible_cli_are_refused() {
        let check = |method: Method, agent: &str| {
            let headers = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_str(agent).unwrap())]);
            check_client_version(&method, &headers)
        };
        let own = format!("{AGENT}{OWN_VERSION}");
        let far = ProgramVersion::parse("9.0.0").unwrap();
        let skew = Err(AccessError::VersionSkew { client: far, server: ProgramVersion::current() });
        assert_eq!(check(Method::POST, "saggar/9.0.0"), skew);
        assert_eq!(check(Method::DELETE, "saggar/9.0.0 (of a script)"), skew);
        for (method, agent) in [
            (Method::GET, "saggar/9.0.0"),
            (Method::POST, &own),
            (Method::POST, "curl/9.0.0"),
            (Method::PUT, "saggar/x"),
        ] {
            assert_eq!(check(method, agent), Ok(()), "{agent}");
        }
        assert_eq!(check_client_version(&Method::POST, &HeaderMap::new()), Ok(()));
    }
}
