//! Requests to handlers.

use crate::bindings::http_handler as raw;
use crate::bindings::http_handler::HttpMethod;
use crate::call_site::AtCallSite;
use crate::error::{Error, Result};
use crate::json::Json;
use crate::params::FromJson;

/// A request to a handler.
///
/// ```no_run
/// # use saggar_plugin::*;
/// fn hello<P>(_: &P, request: &HttpRequest) -> Result<String> {
///     let times: u32 = request.query("times").and_then(|text| text.parse().ok()).unwrap_or(1);
///     Ok(format!("Hello, {}! ", request.parameter("name")?).repeat(times.min(100) as usize))
/// }
/// ```
#[derive(Debug, Clone)]
pub struct HttpRequest(pub(crate) raw::HttpRequest);

impl HttpRequest {
    /// Returns the method. A `HEAD` arrives as [`HttpMethod::Get`].
    pub fn method(&self) -> HttpMethod {
        self.0.method
    }

    /// Returns the path below the model's.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Returns the text in the place of `{name}` in the route's path.
    ///
    /// # Errors
    /// Returns `NoSuch` if the route has no such parameter.
    #[track_caller]
    pub fn parameter(&self, name: &str) -> Result<&str> {
        let parameters = &self.0.parameters;
        let found = parameters.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str());
        found
            .ok_or_else(|| Error::NoSuch {
                what: "path parameter",
                name: name.to_owned(),
                known: parameters.iter().map(|(known, _)| known.clone()).collect(),
            })
            .at_caller()
    }

    /// Returns the first value of this name in the query, or `None` if the query has no such name.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.queries(name).next()
    }

    /// Returns every value of this name in the query, in order.
    pub fn queries(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.query.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns a header by its name in lower case, or `None` if the request lacks it or the host does not pass it on.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body.
    pub fn body(&self) -> &[u8] {
        &self.0.body
    }

    /// Returns the body as text.
    ///
    /// # Errors
    /// Returns `Parameter` if it is not UTF-8. The client gets the status 422.
    #[track_caller]
    pub fn text(&self) -> Result<&str> {
        str::from_utf8(&self.0.body)
            .map_err(|error| Error::Parameter {
                name: "body".to_owned(),
                expected: "UTF-8".to_owned(),
                given: format!("a byte {} that is not", error.valid_up_to()),
            })
            .at_caller()
    }

    /// Returns the body as JSON.
    ///
    /// # Errors
    /// Returns `Parameter` if it is not UTF-8, and `Json` if it is not JSON. The client gets the status 422.
    #[track_caller]
    pub fn json(&self) -> Result<Json> {
        Json::parse(self.text()?).at_caller()
    }

    /// Returns a member of the JSON object in the body.
    ///
    /// # Errors
    /// Returns the errors of [`HttpRequest::json`], and `Parameter` if there is no such member or it has another type.
    #[track_caller]
    pub fn field<T: FromJson>(&self, name: &str) -> Result<T> {
        let body = self.json()?;
        let member = match &body {
            Json::Object(members) => members.iter().find(|(known, _)| known == name).map(|(_, value)| value),
            _ => None,
        };
        member
            .and_then(T::from_json)
            .ok_or_else(|| Error::Parameter {
                name: name.to_owned(),
                expected: T::EXPECTED.to_owned(),
                given: member.map_or_else(|| "missing".to_owned(), Json::to_string),
            })
            .at_caller()
    }
}
