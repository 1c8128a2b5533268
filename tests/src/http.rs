//! HTTP requests, made independently of the project's own client.

use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

/// The body of a request.
#[derive(Clone, Copy, Debug)]
pub enum HttpPayload<'a> {
    /// No body.
    Nothing,
    /// JSON.
    Json(&'a Value),
    /// Any content, with its content type.
    Bytes(&'a str, &'a [u8]),
}

/// A response.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// Headers by lower-case name.
    pub headers: Vec<(String, String)>,
    /// The body, if it is text.
    pub text: String,
}

impl HttpResponse {
    /// Returns the body as JSON; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// Returns a header's value, or an empty string.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }
}

/// Makes one request and returns the response of any status.
///
/// # Errors
/// Returns an error if no complete response was received: the connection was refused, interrupted or too slow.
pub fn request(agent: &Agent, method: &str, url: &str, payload: HttpPayload<'_>) -> Result<HttpResponse, ureq::Error> {
    request_as(agent, None, method, url, payload)
}

/// Makes a request as [`request`] does, with a key.
pub(crate) fn request_as(
    agent: &Agent,
    key: Option<&str>,
    method: &str,
    url: &str,
    payload: HttpPayload<'_>,
) -> Result<HttpResponse, ureq::Error> {
    let mut builder = ureq::http::Request::builder().method(method).uri(url);
    if let Some(key) = key {
        builder = builder.header("authorization", format!("Bearer {key}"));
    }
    let mut response = match payload {
        HttpPayload::Nothing => agent.run(builder.body(())?)?,
        HttpPayload::Json(value) => {
            agent.run(builder.header("content-type", "application/json").body(value.to_string())?)?
        }
        HttpPayload::Bytes(kind, bytes) => agent.run(builder.header("content-type", kind).body(bytes)?)?,
    };
    let text = |value: &ureq::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = response.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let status = response.status().as_u16();
    let body = response.body_mut().with_config().limit(1 << 30).read_to_vec()?;
    Ok(HttpResponse { status, headers, text: String::from_utf8_lossy(&body).into_owned() })
}

/// Returns an agent with a time limit of one minute.
pub(crate) fn http_agent() -> Agent {
    let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(Duration::from_secs(60)));
    Agent::new_with_config(config.build())
}
