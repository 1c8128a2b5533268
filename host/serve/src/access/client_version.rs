//! Refusal of commands whose version is too far from the server's.

use axum::http::{HeaderMap, Method, header};

use super::access_error::AccessError;
use super::origin_check::is_safe;
use crate::program_version::ProgramVersion;

/// The prefix of the command's user agent, before its version.
const AGENT: &str = "saggar/";

/// Refuses changes by a command of an incompatible version. Read-only requests are answered, and the command detects
/// the difference from [`VERSION_HEADER`](crate::program_version::VERSION_HEADER). Other clients need not send a version.
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
    use crate::program_version::OWN_VERSION;

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
