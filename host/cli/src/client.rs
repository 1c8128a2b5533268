//! A client of the server's REST interface, for the commands.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use saggar_rest::server::ReadinessDocument;
use saggar_serve::program_version::{OWN_VERSION, ProgramVersion, VERSION_HEADER};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use ureq::http::header::AUTHORIZATION;
use ureq::http::{HeaderValue, Request, Response, StatusCode};
use ureq::middleware::MiddlewareNext;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, SendBody};

use crate::escape;
use crate::exit::{self, CliError};

/// Maximum bytes of a response that is read as a whole.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The body of an error response. Unlike [`ErrorDocument`](saggar_rest::errors::ErrorDocument), it can come from a proxy,
/// and its code can be one that this version does not know.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ForeignError {
    pub(crate) error: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) hint: Option<String>,
}

/// A client of one server.
#[derive(Clone, Debug)]
pub(crate) struct ApiClient {
    agent: Agent,
    host: String,
}

/// The body of a request.
pub(crate) enum RequestBody<'a> {
    Empty,
    /// A serialized document.
    Json(Vec<u8>),
    Bytes {
        content_type: &'a str,
        bytes: &'a [u8],
    },
}

impl RequestBody<'_> {
    /// Returns a body of JSON.
    pub(crate) fn json(document: &impl Serialize) -> RequestBody<'static> {
        RequestBody::Json(serde_json::to_vec(document).expect("documents have text as keys"))
    }
}

impl ApiClient {
    /// Returns a client of the server at `host` that sends `key` with every request. The certificate of an `https`
    /// server must be signed by a public authority, or by a certificate in the file `ca`.
    pub(crate) fn new(host: &str, key: Option<&str>, ca: Option<&Path>) -> Result<ApiClient, CliError> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(5)))
            .user_agent(format!("saggar/{OWN_VERSION}"));
        if let Some(key) = key {
            let bearer = HeaderValue::from_str(&format!("Bearer {}", key.trim()));
            let mut bearer = bearer
                .map_err(|_| CliError::invalid("the key contains characters that an HTTP header cannot carry"))?;
            bearer.set_sensitive(true);
            config = config.middleware(move |mut request: Request<SendBody<'_>>, next: MiddlewareNext<'_>| {
                request.headers_mut().insert(AUTHORIZATION, bearer.clone());
                next.handle(request)
            });
        }
        if let Some(ca) = ca {
            let roots = RootCerts::new_with_certs(&load_certificates(ca)?);
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        Ok(ApiClient { agent: Agent::new_with_config(config.build()), host: host.trim_end_matches('/').to_owned() })
    }

    /// Requests a document of the REST interface.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        let answer = self.agent.get(self.url(path)).header("accept", "application/json").call();
        self.parse_json(answer)
    }

    /// Like [`ApiClient::get`], but fails if the server does not answer within `time`.
    pub(crate) fn get_within<T: DeserializeOwned>(&self, path: &str, time: Duration) -> Result<T, CliError> {
        let request = self.agent.get(self.url(path)).config().timeout_global(Some(time)).build();
        self.parse_json(request.header("accept", "application/json").call())
    }

    /// Requests a text, and fails if the server does not answer within `time`.
    pub(crate) fn get_text_within(&self, path: &str, time: Duration) -> Result<String, CliError> {
        let request = self.agent.get(self.url(path)).config().timeout_global(Some(time)).build();
        let mut answer = self.check_response(request.call())?;
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        text.map_err(|error| self.unreachable_error(&error))
    }

    /// Requests whether the server is ready, and fails if it does not answer within `time`. A server that is not ready
    /// is no error.
    pub(crate) fn readiness(&self, time: Duration) -> Result<ReadinessDocument, CliError> {
        let request = self.agent.get(self.url("/readyz?verbose")).config().timeout_global(Some(time)).build();
        let answer = request.header("accept", "application/json").call();
        match answer {
            Ok(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE => {
                self.check_server_version(&answer)?;
                self.parse_body(answer)
            }
            answer => self.parse_json(answer),
        }
    }

    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, payload: RequestBody<'_>) -> Result<T, CliError> {
        let answer = self.send(self.agent.post(self.url(path)), "application/json", payload);
        self.parse_json(answer)
    }

    /// Like [`ApiClient::post`], with a header.
    pub(crate) fn post_with_header<T: DeserializeOwned>(
        &self,
        path: &str,
        (name, value): (&str, &str),
        payload: RequestBody<'_>,
    ) -> Result<T, CliError> {
        let request = self.agent.post(self.url(path)).header(name, value);
        let answer = self.send(request, "application/json", payload);
        self.parse_json(answer)
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8]) -> Result<(), CliError> {
        let request = self.agent.put(self.url(path)).content_type("application/octet-stream");
        self.check_response(request.send(bytes)).map(drop)
    }

    pub(crate) fn put_json<T: DeserializeOwned>(&self, path: &str, value: &impl Serialize) -> Result<T, CliError> {
        let answer = self.send(self.agent.put(self.url(path)), "application/json", RequestBody::json(value));
        self.parse_json(answer)
    }

    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        let answer = self.agent.delete(self.url(path)).header("accept", "application/json").call();
        self.parse_json(answer)
    }

    /// Requests `path` and returns the response body to be read as it arrives.
    pub(crate) fn get_stream(&self, path: &str) -> Result<impl Read + use<>, CliError> {
        let answer = self.agent.get(self.url(path)).call();
        Ok(self.check_response(answer)?.into_body().into_reader())
    }

    /// Requests server-sent events to be read as they arrive, from the one after the event number `last`.
    pub(crate) fn get_events(&self, path: &str, last: Option<&str>) -> Result<impl Read + use<>, CliError> {
        let mut request = self.agent.get(self.url(path)).header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        Ok(self.check_response(request.call())?.into_body().into_reader())
    }

    /// Requests `path` and returns the announced length in bytes and the body, to be read as it arrives.
    pub(crate) fn download(&self, path: &str) -> Result<(u64, impl Read + use<>), CliError> {
        let answer = self.check_response(self.agent.get(self.url(path)).call())?;
        let length = answer.headers().get(ureq::http::header::CONTENT_LENGTH);
        let bytes = length.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0);
        Ok((bytes, answer.into_body().into_reader()))
    }

    /// Posts a request and returns the response headers and the body as text.
    pub(crate) fn post_for_text(
        &self,
        path: &str,
        payload: RequestBody<'_>,
    ) -> Result<(ureq::http::HeaderMap, String), CliError> {
        let answer = self.send(self.agent.post(self.url(path)), "application/json", payload);
        let mut answer = self.check_response(answer)?;
        let headers = answer.headers().clone();
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        Ok((headers, text.map_err(|error| self.unreachable_error(&error))?))
    }

    /// Posts a request and returns the response headers and the body as server-sent events, to be read as they arrive.
    pub(crate) fn post_for_events(
        &self,
        path: &str,
        payload: RequestBody<'_>,
    ) -> Result<(ureq::http::HeaderMap, impl Read + use<>), CliError> {
        let answer = self.send(self.agent.post(self.url(path)), "text/event-stream", payload);
        let answer = self.check_response(answer)?;
        Ok((answer.headers().clone(), answer.into_body().into_reader()))
    }

    /// Returns the URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.host)
    }

    fn send(
        &self,
        request: ureq::RequestBuilder<ureq::typestate::WithBody>,
        accept: &str,
        payload: RequestBody<'_>,
    ) -> Result<Response<Body>, ureq::Error> {
        let request = request.header("accept", accept);
        match payload {
            RequestBody::Empty => request.send_empty(),
            RequestBody::Json(text) => request.content_type("application/json").send(&text[..]),
            RequestBody::Bytes { content_type, bytes } => request.content_type(content_type).send(bytes),
        }
    }

    fn parse_json<T: DeserializeOwned>(&self, answer: Result<Response<Body>, ureq::Error>) -> Result<T, CliError> {
        let answer = self.check_response(answer)?;
        self.parse_body(answer)
    }

    fn parse_body<T: DeserializeOwned>(&self, mut answer: Response<Body>) -> Result<T, CliError> {
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(|error| self.unreachable_error(&error))?;
        serde_json::from_str(&text).map_err(|error| {
            CliError::new(exit::UNEXPECTED, "bad_answer", format!("{} does not answer as expected: {error}", self.host))
                .with_hint("is that a saggar server?")
        })
    }

    fn check_response(&self, answer: Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, CliError> {
        let mut answer = answer.map_err(|error| self.unreachable_error(&error))?;
        self.check_server_version(&answer)?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let said: ForeignError = answer.body_mut().read_json().unwrap_or_default();
        let text = |text: Option<String>| text.map(|text| escape::escape_foreign_message(&text));
        let message = text(said.error).unwrap_or_else(|| format!("{} answers {status}", self.host));
        let exit = match status {
            StatusCode::NOT_FOUND => exit::NOT_FOUND,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => exit::FORBIDDEN,
            StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS | StatusCode::INSUFFICIENT_STORAGE => exit::CONFLICT,
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY => exit::INVALID,
            _ => exit::UNEXPECTED,
        };
        let code = text(said.code).unwrap_or_else(|| status.as_str().to_owned());
        Err(CliError { exit_code: exit, code, message, hint: text(said.hint).filter(|hint| !hint.is_empty()) })
    }

    /// Checks that the server's version is compatible with this program's. A response without a version, for example
    /// from a proxy, is accepted.
    fn check_server_version(&self, answer: &Response<Body>) -> Result<(), CliError> {
        let said = answer.headers().get(VERSION_HEADER).and_then(|said| ProgramVersion::parse(said.to_str().ok()?));
        let (own, server) = (ProgramVersion::current(), said.unwrap_or(ProgramVersion::current()));
        if own.is_compatible_with(server) {
            return Ok(());
        }
        let message = format!("this command is saggar {own}, and the server at {} is saggar {server}", self.host);
        let older = if own < server { "this command" } else { "the server" };
        let hint = format!(
            "minor versions may differ by one: {older} is the older one; rebuild it from the other's sources with `make build`"
        );
        Err(CliError::new(exit::INVALID, "version_skew", message).with_hint(hint))
    }

    fn unreachable_error(&self, error: &ureq::Error) -> CliError {
        CliError::new(exit::UNREACHABLE, "unreachable", format!("no answer from {}: {error}", self.host))
            .with_hint("start a server with `saggar serve`, or name one with --host or SAGGAR_HOST")
    }
}

/// Percent-encodes `text` as one path segment or query value of a URL (RFC 3986, section 2.1), so that the server
/// receives the exact text and can quote it in an error.
pub(crate) fn encode_path_segment(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~@".contains(&byte);
    let encoded = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encoded).collect()
}

/// Reads the certificates of a PEM file.
fn load_certificates(path: &Path) -> Result<Vec<Certificate<'static>>, CliError> {
    let refuse = |reason: String| CliError::invalid(format!("{}: {reason}", path.display()));
    let pem = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| refuse(error.to_string()))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() { Err(refuse("no certificate in PEM form".to_owned())) } else { Ok(certificates) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_encoded_as_one_path_segment() {
        assert_eq!(encode_path_segment("digits@2.1_b-c~"), "digits@2.1_b-c~");
        assert_eq!(encode_path_segment("di gits/1?a#b%"), "di%20gits%2F1%3Fa%23b%25");
        assert_eq!(encode_path_segment("é"), "%C3%A9");
    }
}
