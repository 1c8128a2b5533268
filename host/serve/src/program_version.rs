//! Versions of this program, and which of them understand each other: a command and a server of one major version whose
//! minor versions differ by at most one. Either tells the other its version with what it sends anyway.

use std::fmt;

use axum::http::{HeaderMap, Method, header};

use crate::access::{AccessError, is_safe};

/// The header of every answer that tells the server's version.
pub const VERSION_HEADER: &str = "x-saggar-version";

/// This program's version.
pub const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the command calls itself, before its version.
const AGENT: &str = "saggar/";

/// A version: `1.12.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramVersion {
    major: u64,
    minor: u64,
    patch: u64,
}

impl ProgramVersion {
    /// Reads a version. What follows a `-` or `+` is not looked at. None where it is no version.
    pub fn parse(text: &str) -> Option<ProgramVersion> {
        let numbers = text.split(['-', '+']).next()?;
        let mut numbers = numbers.split('.').map(|number| number.parse().ok());
        let version = ProgramVersion { major: numbers.next()??, minor: numbers.next()??, patch: numbers.next()?? };
        numbers.next().is_none().then_some(version)
    }

    /// This program's.
    pub fn current() -> ProgramVersion {
        ProgramVersion::parse(OWN_VERSION).expect("cargo takes no other versions")
    }

    /// Whether a command of one version and a server of the other understand each other.
    pub fn is_compatible_with(self, other: ProgramVersion) -> bool {
        self.major == other.major && self.minor.abs_diff(other.minor) <= 1
    }
}

impl fmt::Display for ProgramVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Refuses a command of another time before it changes anything; what only reads is answered, and the command sees by
/// [`VERSION_HEADER`]. Clients that are not our command are not asked for a version.
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
