//! The status and headers of a plugin's response, checked before the host sends them.

use crate::bindings::http_stream as wit;
use crate::limits::{HANDLER_HEADERS_BYTES_MAX, HANDLER_HEADERS_MAX};

/// Headers that a plugin can set. `wit/http-stream.wit` documents them.
const ACCEPTED_HEADERS: [&str; 13] = [
    "allow",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "etag",
    "expires",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "vary",
];
/// The prefix of names that a plugin can invent, and those among them that have a meaning for hosts, proxies or
/// browsers.
const CUSTOM_PREFIX: &str = "x-";
const RESERVED_PREFIXES: [&str; 4] = ["x-saggar-", "x-accel-", "x-forwarded-", "x-permitted-"];
const RESERVED_HEADERS: [&str; 6] = [
    "x-content-type-options",
    "x-dns-prefetch-control",
    "x-frame-options",
    "x-request-id",
    "x-sendfile",
    "x-xss-protection",
];

/// The head of a plugin's response: a status from 200 to 599, and headers that the host accepts from plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    status: u16,
    headers: Vec<(String, String)>,
}

impl ResponseHead {
    /// Returns the status, from 200 to 599.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the headers, with names in lower case.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Checks a head that a plugin gave. Returns what is wrong with it, and where.
    pub(crate) fn from_wit(given: wit::ResponseHead) -> Result<ResponseHead, RefusedHead> {
        let wit::ResponseHead { status, headers: given } = given;
        if !(200..=599).contains(&status) {
            let expected = "a status from 200 to 599".to_owned();
            return Err(RefusedHead { place: "status".to_owned(), expected, given: status.to_string() });
        }
        let bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
        if given.len() > HANDLER_HEADERS_MAX || bytes > HANDLER_HEADERS_BYTES_MAX {
            let expected = format!("at most {HANDLER_HEADERS_MAX} headers of {HANDLER_HEADERS_BYTES_MAX} bytes in all");
            let given = format!("{} headers of {bytes} bytes", given.len());
            return Err(RefusedHead { place: "headers".to_owned(), expected, given });
        }
        let headers = given.into_iter().map(checked_header).collect::<Result<_, _>>()?;
        Ok(ResponseHead { status, headers })
    }
}

/// Why a head is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedHead {
    /// `status`, `headers`, or a header's name.
    pub(crate) place: String,
    pub(crate) expected: String,
    pub(crate) given: String,
}

fn checked_header((name, value): (String, String)) -> Result<(String, String), RefusedHead> {
    let name = name.to_ascii_lowercase();
    let place = || format!("header {:?}", printable(&name));
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_custom = name.starts_with(CUSTOM_PREFIX)
        && name.bytes().all(token)
        && !RESERVED_HEADERS.contains(&name.as_str())
        && !RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if !is_custom && !ACCEPTED_HEADERS.contains(&name.as_str()) {
        let expected = format!("one of {}, or a name with {CUSTOM_PREFIX}", ACCEPTED_HEADERS.join(", "));
        return Err(RefusedHead { place: place(), expected, given: "a header that plugins cannot set".to_owned() });
    }
    if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        let (expected, given) = ("printable ASCII".to_owned(), format!("{:?}", printable(&value)));
        return Err(RefusedHead { place: place(), expected, given });
    }
    Ok((name, value))
}

/// Returns the beginning of a text for a message.
fn printable(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, headers: &[(&str, &str)]) -> Result<ResponseHead, String> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ResponseHead::from_wit(wit::ResponseHead { status, headers })
            .map_err(|refused| format!("{}: {} / {}", refused.place, refused.expected, refused.given))
    }

    #[test]
    fn usual_heads_are_accepted() {
        let head = check(201, &[("Content-Type", "text/plain; charset=utf-8"), ("X-Trace", "a b")]).unwrap();
        assert_eq!(head.status(), 201);
        assert_eq!(head.headers()[0].0, "content-type");
        for status in [200, 204, 304, 418, 599] {
            check(status, &[]).unwrap();
        }
    }

    #[test]
    fn statuses_and_headers_that_belong_to_the_host_are_refused() {
        for status in [0, 100, 101, 199, 600, u16::MAX] {
            assert!(check(status, &[]).unwrap_err().starts_with("status: "), "{status}");
        }
        for name in [
            "set-cookie",
            "Transfer-Encoding",
            "connection",
            "content-length",
            "host",
            "upgrade",
            "content-security-policy",
            "access-control-allow-origin",
            "X-Saggar-Model",
            "x-request-id",
            "x-frame-options",
            "x-a\r\nset-cookie",
            "x a",
            "",
        ] {
            assert!(check(200, &[(name, "1")]).unwrap_err().contains("plugins cannot set"), "{name}");
        }
        for value in ["a\r\nset-cookie: b", "a\nb", "a\0b", "caf\u{e9}", "\u{7f}"] {
            assert!(check(200, &[("x-a", value)]).unwrap_err().contains("printable ASCII"), "{value:?}");
        }
    }

    #[test]
    fn headers_are_bounded() {
        let many = vec![("x-a", "1"); HANDLER_HEADERS_MAX + 1];
        assert!(check(200, &many).unwrap_err().contains("33 headers"));
        let long = "a".repeat(HANDLER_HEADERS_BYTES_MAX);
        assert!(check(200, &[("x-a", &long)]).unwrap_err().starts_with("headers: "));
    }
}
