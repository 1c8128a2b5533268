//! Who can reach a notebook: a request with its token, in the address, in `Authorization`, or in the cookie that the page
//! with the token sets. JupyterLab is not reached by others, and checks the token again.

use axum::http::{HeaderMap, HeaderValue, Uri, header};
use saggar_jobs::NotebookAddress;

/// The name of the cookie. It is sent only to the paths of its notebook.
const COOKIE: &str = "saggar-notebook";
/// The parameter of an address.
const PARAMETER: &str = "token";

/// How a request carries the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenCarrier {
    /// In its address: the response sets the cookie.
    Address,
    /// In a header.
    Header,
}

/// Returns how the request carries the notebook's token, or `None` if it does not.
pub(super) fn find_token(uri: &Uri, headers: &HeaderMap, notebook: &NotebookAddress) -> Option<TokenCarrier> {
    let in_address = uri.query().into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split_once('='));
    if in_address.into_iter().any(|(name, value)| name == PARAMETER && notebook.token.matches(value)) {
        return Some(TokenCarrier::Address);
    }
    let is_authorized = has_authorization(headers, notebook);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let has_cookie = cookies.any(|(name, value)| name == COOKIE && notebook.token.matches(value));
    (is_authorized || has_cookie).then_some(TokenCarrier::Header)
}

/// Returns whether `Authorization` has the notebook's token. Another value, such as a key of the server, must not reach
/// the notebook.
pub(super) fn has_authorization(headers: &HeaderMap, notebook: &NotebookAddress) -> bool {
    let Some(value) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) else { return false };
    value.split_once(' ').is_some_and(|(scheme, text)| {
        (scheme.eq_ignore_ascii_case("token") || scheme.eq_ignore_ascii_case("bearer"))
            && notebook.token.matches(text.trim())
    })
}

/// Returns the value of `Set-Cookie` by which the page's further requests carry the token.
pub(super) fn token_cookie(job: &str, notebook: &NotebookAddress) -> Option<HeaderValue> {
    let text = format!("{COOKIE}={}; Path=/notebooks/{job}/; HttpOnly; SameSite=Strict", notebook.token.as_str());
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use saggar_notebook::NotebookToken;

    use super::*;

    fn carrier(uri: &str, headers: &[(header::HeaderName, &str)]) -> Option<TokenCarrier> {
        let notebook = NotebookAddress { socket: "/s".into(), token: NotebookToken::new("ab12".to_owned()) };
        let headers =
            headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect();
        find_token(&uri.parse().unwrap(), &headers, &notebook)
    }

    #[test]
    fn the_token_is_found_in_address_header_and_cookie() {
        assert_eq!(carrier("/notebooks/a-1/lab?token=ab12", &[]), Some(TokenCarrier::Address));
        assert_eq!(carrier("/notebooks/a-1/lab?x=1&token=ab12", &[]), Some(TokenCarrier::Address));
        for value in ["token ab12", "Bearer ab12"] {
            assert_eq!(carrier("/a", &[(header::AUTHORIZATION, value)]), Some(TokenCarrier::Header), "{value}");
        }
        let cookie = "other=1; saggar-notebook=ab12";
        assert_eq!(carrier("/a", &[(header::COOKIE, cookie)]), Some(TokenCarrier::Header));
    }

    #[test]
    fn another_token_is_refused_wherever_it_is() {
        for uri in ["/a", "/a?token=", "/a?token=ab1", "/a?tokens=ab12", "/ab12"] {
            assert_eq!(carrier(uri, &[]), None, "{uri}");
        }
        assert_eq!(carrier("/a", &[(header::AUTHORIZATION, "Bearer sgr_key")]), None);
        assert_eq!(carrier("/a", &[(header::AUTHORIZATION, "ab12")]), None);
        assert_eq!(carrier("/a", &[(header::COOKIE, "saggar-notebook=; x=ab12")]), None);
    }
}
