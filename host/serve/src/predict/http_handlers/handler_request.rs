//! The part of an HTTP request that a plugin's handler sees.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use saggar_plugin::{HandlerMethod, HandlerRequest};

use crate::error::ApiError;
use crate::predict::text_codec::percent_decode;
use crate::request_body::BufferedBody;

/// Headers that a handler sees. `wit/http-handler.wit` documents them. Credentials, cookies and what proxies add are not
/// among them.
const VISIBLE_HEADERS: [HeaderName; 9] = [
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::CONTENT_TYPE,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
    header::USER_AGENT,
];

/// Returns the request as the handler `route` sees it.
///
/// # Errors
/// Returns `Parameter` if the query is not percent-encoded UTF-8.
pub(super) fn handler_request(
    route: usize,
    parameters: Vec<(String, String)>,
    parts: &Parts,
    path: &str,
    body: &BufferedBody,
) -> Result<HandlerRequest, ApiError> {
    Ok(HandlerRequest {
        route,
        method: HandlerMethod::from_name(parts.method.as_str()),
        path: format!("/{path}"),
        parameters,
        query: parse_query(parts.uri.query().unwrap_or_default())?,
        headers: visible_headers(&parts.headers),
        body: body.bytes.to_vec(),
    })
}

/// Returns the names and values of a query. A name without `=` has an empty value.
fn parse_query(query: &str) -> Result<Vec<(String, String)>, ApiError> {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_decode(&spaced).ok_or_else(|| ApiError::Parameter {
            name: "query",
            expected: "percent-encoded UTF-8",
            got: text.chars().take(80).collect(),
        })
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

/// Returns the visible headers in the order of the list. Several values are joined by commas.
fn visible_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let value = |name: &HeaderName| {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        (!values.is_empty()).then(|| (name.as_str().to_owned(), values.join(", ")))
    };
    VISIBLE_HEADERS.iter().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded_in_order() {
        let parsed = parse_query("a=1&b=x+y%26z&&c&a=%C3%A9&d=e=f").unwrap();
        let expected = [("a", "1"), ("b", "x y&z"), ("c", ""), ("a", "\u{e9}"), ("d", "e=f")];
        let expected: Vec<(String, String)> = expected.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        assert_eq!(parsed, expected);
        assert_eq!(parse_query("").unwrap(), []);
        for bad in ["a=%FF", "a=%", "%zz=1"] {
            assert!(parse_query(bad).unwrap_err().to_string().contains("percent-encoded UTF-8"), "{bad}");
        }
    }

    #[test]
    fn credentials_are_not_visible() {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "cookie", "proxy-authorization", "x-forwarded-for", "x-api-key", "host"] {
            headers.insert(name, "secret".parse().unwrap());
        }
        headers.append("accept", "text/html".parse().unwrap());
        headers.append("accept", "text/plain".parse().unwrap());
        assert_eq!(visible_headers(&headers), [("accept".to_owned(), "text/html, text/plain".to_owned())]);
    }
}
