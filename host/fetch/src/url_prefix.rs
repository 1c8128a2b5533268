//! URLs that can be fetched, and their prefixes that an operator allows.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ureq::http::Uri;

use crate::limits::URL_BYTES_MAX;

/// An allowed prefix of URLs, such as `https://example.com/plugins`. It matches URLs whose path continues with a `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlPrefix {
    is_https: bool,
    host: String,
    port: u16,
    path: String,
}

/// The reason why a text is not a URL that can be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlPrefixError(&'static str);

impl UrlPrefixError {
    /// Returns the reason as a sentence.
    pub fn reason(self) -> &'static str {
        self.0
    }
}

impl FromStr for UrlPrefix {
    type Err = UrlPrefixError;

    fn from_str(text: &str) -> Result<UrlPrefix, UrlPrefixError> {
        if text.contains('?') {
            return Err(UrlPrefixError("an allowed address ends before the `?`"));
        }
        UrlPrefix::of_url(text)
    }
}

impl UrlPrefix {
    /// Returns the parts of a URL that are compared with the allowed prefixes.
    ///
    /// # Errors
    /// The reason why it is not a plain URL of `http` or `https`.
    pub fn of_url(text: &str) -> Result<UrlPrefix, UrlPrefixError> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlPrefixError("the address is too long"));
        }
        if text.contains(['\\', '#']) || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(UrlPrefixError("the address contains a character that is not allowed in a URL"));
        }
        let uri: Uri = text.parse().map_err(|_| UrlPrefixError("it is not a valid URL"))?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(UrlPrefixError("expected an address that begins with https:// or http://")),
        };
        let authority = uri.authority().ok_or(UrlPrefixError("the address names no host"))?;
        if authority.as_str().contains('@') {
            return Err(UrlPrefixError("the address must not hold a user or a password"));
        }
        let host = authority.host().to_ascii_lowercase();
        let port = authority.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let path = uri.path().to_owned();
        let lower = path.to_ascii_lowercase();
        // A server could decode these to a path outside of the prefix.
        let climbs = lower.split('/').any(|part| matches!(part, "." | ".."));
        if host.is_empty() || climbs || ["%2e", "%2f", "%5c", "%00"].iter().any(|code| lower.contains(code)) {
            return Err(UrlPrefixError(
                "the address must be plain: no `.`, `..`, or encoded dots and slashes in its path",
            ));
        }
        Ok(UrlPrefix { is_https, host, port, path })
    }

    /// Returns whether a URL continues this prefix.
    pub fn allows(&self, url: &UrlPrefix) -> bool {
        let rest = url.path.strip_prefix(&self.path);
        let within = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || self.path.ends_with('/'));
        self.is_https == url.is_https && self.host == url.host && self.port == url.port && within
    }

    /// Returns whether the host is an address or `localhost`, so that the operator has named the machine itself.
    pub(crate) fn names_an_address(&self) -> bool {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<IpAddr>().is_ok()
    }

    /// Returns scheme, host and port, without path and query, which can contain secrets. A standard port is left out.
    pub fn origin(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        let standard = if self.is_https { 443 } else { 80 };
        if self.port == standard {
            format!("{scheme}://{}", self.host)
        } else {
            format!("{scheme}://{}:{}", self.host, self.port)
        }
    }
}

/// Writes the URL without its query.
impl fmt::Display for UrlPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path)
    }
}

/// Returns the target of a redirect from `url` by the header `location`.
pub(crate) fn redirect_target(url: &UrlPrefix, location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    if let Some(rest) = location.strip_prefix("//") {
        return format!("{}://{rest}", if url.is_https { "https" } else { "http" });
    }
    if location.starts_with('/') {
        return format!("{}{location}", url.origin());
    }
    let folder = url.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{}{folder}/{location}", url.origin())
}

/// Returns the last name in a URL's path, or `None` if it ends in no plain name of a file.
pub fn file_name_of_url(url: &str) -> Option<String> {
    let rest = url.split_once("://")?.1;
    let path = rest.split(['?', '#']).next()?;
    let (_, name) = path.rsplit_once('/')?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+@ ".contains(c);
    (!name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(prefix: &str, url: &str) -> bool {
        let prefix: UrlPrefix = prefix.parse().unwrap();
        UrlPrefix::of_url(url).is_ok_and(|url| prefix.allows(&url))
    }

    #[test]
    fn a_prefix_allows_only_urls_that_continue_it() {
        for url in ["https://a.b/x", "https://A.B:443/x/y.wasm", "https://a.b/x/y?token=1"] {
            assert!(allows("https://a.b/x", url), "{url}");
        }
        for url in [
            "http://a.b/x",
            "https://a.b:444/x",
            "https://a.b/xy",
            "https://a.b/",
            "https://a.b.evil.org/x",
            "https://a.b@evil.org/x",
            "https://evil.org/https://a.b/x",
            "https://a.b/x/../y",
            "https://a.b/x/%2e%2e/y",
            "https://a.b/x/..%2fy",
            "https://a.b\\@evil.org/x",
            "file:///x",
            "//a.b/x",
            "a.b/x",
            "",
        ] {
            assert!(!allows("https://a.b/x", url), "{url}");
        }
        for wrong in ["a.b", "ftp://a.b", "https://a.b/x?y", "https://u:p@a.b", "https:///x"] {
            assert!(wrong.parse::<UrlPrefix>().is_err(), "{wrong}");
        }
        let long = format!("https://a.b/{}", "x".repeat(URL_BYTES_MAX));
        assert!(long.parse::<UrlPrefix>().is_err());
    }

    #[test]
    fn redirects_are_absolute_or_relative() {
        let url = UrlPrefix::of_url("https://a.b:8443/x/y.wasm?z").unwrap();
        for (location, target) in [
            ("http://c.d/e", "http://c.d/e"),
            ("//c.d/e", "https://c.d/e"),
            ("/e", "https://a.b:8443/e"),
            ("e.wasm?f", "https://a.b:8443/x/e.wasm?f"),
        ] {
            assert_eq!(redirect_target(&url, location), target);
        }
        assert_eq!(url.to_string(), "https://a.b:8443/x/y.wasm");
    }

    #[test]
    fn addresses_differ_from_names() {
        for (url, is_address) in
            [("http://127.0.0.1:1", true), ("http://[::1]:1", true), ("http://localhost", true), ("http://a.b", false)]
        {
            assert_eq!(url.parse::<UrlPrefix>().unwrap().names_an_address(), is_address, "{url}");
        }
        assert_eq!(file_name_of_url("https://a.b/c/d.tar.gz?x#y").as_deref(), Some("d.tar.gz"));
        for url in ["https://a.b", "https://a.b/", "https://a.b/..", "https://a.b/.x", "x.npz"] {
            assert_eq!(file_name_of_url(url), None, "{url}");
        }
    }
}
