//! Protection against web pages of other sites on listeners that require no key.
//!
//! A browser lets any page send requests to any address, including this machine's. Two headers identify such requests.
//! A page of another site sends its `Origin`, and must not change anything. A page whose host name was made to resolve
//! to this machine (DNS rebinding) is same-site for its browser, but its requests carry that name as `Host`. A local
//! listener accepts only addresses, `localhost` and configured names. `curl`, clients and the console send neither a
//! foreign origin nor a foreign host. Nothing here allocates unless it refuses.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};

use super::access_error::AccessError;
use crate::limits::HOST_BYTES_MAX;

/// The header in which browsers describe the page that sends a request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The host name or address of a request, and the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestHost<'a> {
    /// In brackets if it is an IPv6 address.
    name: &'a str,
    port: &'a str,
}

impl<'a> RequestHost<'a> {
    fn parse(text: &'a str) -> Option<RequestHost<'a>> {
        if text.len() > HOST_BYTES_MAX {
            return None;
        }
        let (name, port) = match text.find(']') {
            Some(end) => (&text[..=end], &text[end + 1..]),
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = if port.is_empty() { port } else { port.strip_prefix(':')? };
        let port_good =
            port.bytes().all(|byte| byte.is_ascii_digit()) && (port.is_empty() || port.parse::<u16>().is_ok());
        let name_good = match name.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']')?.parse::<Ipv6Addr>().is_ok(),
            None => !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
        };
        (name_good && port_good).then_some(RequestHost { name, port })
    }

    /// Returns whether it is an address, which cannot be made to resolve elsewhere.
    fn is_address(&self) -> bool {
        self.name.starts_with('[') || self.name.parse::<Ipv4Addr>().is_ok()
    }

    /// Returns whether it is a name that always refers to this machine.
    fn is_localhost(&self) -> bool {
        let name = self.name.strip_suffix('.').unwrap_or(self.name);
        let end = name.len().saturating_sub("localhost".len());
        let ends = name.as_bytes()[end..].eq_ignore_ascii_case(b"localhost");
        ends && (end == 0 || name.as_bytes()[end - 1] == b'.')
    }

    /// Returns whether it is a loopback address or a localhost name.
    fn is_local(&self) -> bool {
        let inner = self.name.trim_start_matches('[').trim_end_matches(']');
        let loopback = inner.parse().is_ok_and(|ip: std::net::IpAddr| ip.to_canonical().is_loopback());
        loopback || self.is_localhost()
    }
}

/// Returns the value of a header, or an error if there are several.
fn single_header(headers: &HeaderMap, name: impl header::AsHeaderName) -> Result<Option<&HeaderValue>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(()),
    }
}

/// Returns the host of the request, or `None` if it names none, which HTTP/1.0 permits.
fn request_host(request: &Request) -> Result<Option<RequestHost<'_>>, AccessError> {
    let header = single_header(request.headers(), header::HOST).map_err(|()| AccessError::BadHost)?;
    let header = header.map(|value| value.to_str().map_err(|_| AccessError::BadHost)).transpose()?;
    match (request.uri().authority(), header) {
        (Some(authority), Some(header)) if !authority.as_str().eq_ignore_ascii_case(header) => {
            Err(AccessError::BadHost)
        }
        (Some(authority), _) => RequestHost::parse(authority.as_str()).ok_or(AccessError::BadHost).map(Some),
        (None, Some(header)) => RequestHost::parse(header).ok_or(AccessError::BadHost).map(Some),
        (None, None) if request.version() == Version::HTTP_11 => Err(AccessError::BadHost),
        (None, None) => Ok(None),
    }
}

/// Refuses heads that a proxy in front of the server could interpret differently. The parser refuses other such cases,
/// such as two lengths.
pub(super) fn check_head(request: &Request) -> Result<(), AccessError> {
    request_host(request)?;
    match single_header(request.headers(), header::TRANSFER_ENCODING) {
        Ok(None) => Ok(()),
        Ok(Some(coding)) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(AccessError::TransferEncoding),
    }
}

/// Refuses a host name that does not refer to this machine and is not in `known`.
pub(super) fn check_host(request: &Request, known: &[String]) -> Result<(), AccessError> {
    match request_host(request)? {
        Some(host) if !host.is_address() && !host.is_localhost() => {
            if known.iter().any(|name| name.eq_ignore_ascii_case(host.name)) {
                return Ok(());
            }
            Err(AccessError::ForeignHost { host: host.name.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Refuses changes requested by a page of another site. Pages that this machine serves are permitted.
pub(super) fn check_origin(request: &Request) -> Result<(), AccessError> {
    if is_safe(request.method()) {
        return Ok(());
    }
    let foreign = |origin: &[u8]| {
        let origin = String::from_utf8_lossy(origin).chars().take(80).collect();
        Err(AccessError::CrossSite { origin })
    };
    match single_header(request.headers(), header::ORIGIN) {
        Ok(Some(origin)) => {
            let bytes = origin.as_bytes();
            if is_own_origin(bytes, request_host(request)?) { Ok(()) } else { foreign(bytes) }
        }
        Ok(None) => match request.headers().get(FETCH_SITE).map(HeaderValue::as_bytes) {
            Some(site @ (b"cross-site" | b"same-site")) => foreign(site),
            _ => Ok(()),
        },
        Err(()) => foreign(b"several"),
    }
}

/// Returns whether a page of this origin comes from the server or from this machine.
fn is_own_origin(origin: &[u8], host: Option<RequestHost<'_>>) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else { return false };
    let rest = origin.strip_prefix("http://").map(|rest| (rest, "80"));
    let Some((rest, default)) = rest.or_else(|| origin.strip_prefix("https://").map(|rest| (rest, "443"))) else {
        return false;
    };
    let Some(page) = RequestHost::parse(rest) else { return false };
    let port = |host: &RequestHost<'_>| host.port.parse::<u16>().ok().or_else(|| default.parse().ok());
    page.is_local() || host.is_some_and(|host| page.name.eq_ignore_ascii_case(host.name) && port(&page) == port(&host))
}

/// Returns whether requests of this method change nothing.
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn host_headers_are_parsed_or_refused() {
        let good = [
            "localhost",
            "LOCALHOST:5000",
            "127.0.0.1:5000",
            "[::1]:5000",
            "[::1]",
            "a_b.example.com:",
            "x",
            "console.localhost.",
        ];
        for host in good {
            assert_eq!(check_head(&request("GET", &[("host", host)])), Ok(()), "{host}");
        }
        let long = "a".repeat(300);
        let bad = [
            "",
            " ",
            ":5000",
            "a b",
            "a,b",
            "user@localhost",
            "localhost/x",
            "a:b",
            "a:99999",
            "a:1:2",
            "[::1",
            "[x]",
            "::1",
            "[::1]5000",
            "a%41",
            "é",
            &long,
        ];
        for host in bad {
            assert_eq!(check_head(&request("GET", &[("host", host)])), Err(AccessError::BadHost), "{host}");
        }
        assert_eq!(check_head(&request("GET", &[])), Err(AccessError::BadHost));
        assert_eq!(check_head(&request("GET", &[("host", "a"), ("host", "a")])), Err(AccessError::BadHost));
        let mut absolute = request("GET", &[("host", "localhost")]);
        *absolute.uri_mut() = "http://evil.example/".parse().unwrap();
        assert_eq!(check_head(&absolute), Err(AccessError::BadHost));
    }

    #[test]
    fn host_names_of_other_machines_are_refused() {
        let known = ["models.example.com".to_owned()];
        for host in ["localhost:1", "a.localhost", "127.0.0.1", "192.168.1.7:5000", "[fe80::1]", "Models.Example.com"] {
            assert_eq!(check_host(&request("GET", &[("host", host)]), &known), Ok(()), "{host}");
        }
        for host in ["evil.example", "notlocalhost", "localhost.evil.example", "127.0.0.1.evil.example", "x"] {
            let foreign = AccessError::ForeignHost { host: host.to_owned() };
            assert_eq!(check_host(&request("GET", &[("host", host)]), &known), Err(foreign), "{host}");
        }
    }

    #[test]
    fn cross_site_requests_may_not_change_anything() {
        let check = |method: &str, headers: &[(&str, &str)]| {
            let mut all = vec![("host", "127.0.0.1:5000")];
            all.extend(headers);
            check_origin(&request(method, &all)).is_ok()
        };
        for origin in ["http://127.0.0.1:5000", "http://localhost:3000", "https://[::1]:8443", "http://app.localhost"] {
            assert!(check("POST", &[("origin", origin)]), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://evil.example",
            "http://evil.example:5000",
            "http://localhost.evil.example",
            "file://",
            "chrome-extension://abcdef",
            "http://127.0.0.1:5000.evil.example",
        ] {
            assert!(!check("POST", &[("origin", origin)]), "{origin}");
            assert!(!check("DELETE", &[("origin", origin)]), "{origin}");
            assert!(check("GET", &[("origin", origin)]), "{origin}");
        }
        assert!(!check("POST", &[("origin", "http://localhost"), ("origin", "http://evil.example")]));
        assert!(check("POST", &[]) && check("POST", &[("sec-fetch-site", "same-origin")]));
        assert!(!check("POST", &[("sec-fetch-site", "cross-site")]));
        let named = |host, origin| check_origin(&request("POST", &[("host", host), ("origin", origin)])).is_ok();
        assert!(named("box.lan:5000", "http://box.lan:5000") && named("box.lan", "https://box.lan:443"));
        assert!(!named("box.lan:5000", "http://box.lan") && !named("box.lan", "http://other.lan"));
    }

    #[test]
    fn requests_with_ambiguous_body_length_are_refused() {
        let check = |values: &[&str]| {
            let mut headers = vec![("host", "a")];
            headers.extend(values.iter().map(|value| ("transfer-encoding", *value)));
            check_head(&request("POST", &headers)).is_ok()
        };
        assert!(check(&[]) && check(&["chunked"]) && check(&["Chunked"]));
        for values in [&["identity, chunked"][..], &["gzip"], &["chunked", "chunked"], &["chunked, chunked"], &["x"]] {
            assert!(!check(values), "{values:?}");
        }
    }
}
