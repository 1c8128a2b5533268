//! Parses prediction requests: the body, and the headers that specify how the client waits.

use std::time::Duration;

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use saggar_serving::{ModelReference, json_text};
use saggar_store::digest::Digest;
use serde_json::Value;

use super::error::PredictionError;
use super::webhook::WebhookEventFilter;
use crate::error::ApiError;
use crate::limits::PREDICTION_WAIT_MAX;
use crate::tensor_json::{JsonSyntaxError, JsonToken, JsonTokenizer};

/// The body `{"input": ..., "model"?, "webhook"?, "webhook_events_filter"?}`. Other keys are ignored.
#[derive(Debug)]
pub(super) struct CogPredictionRequest {
    /// The input as it was sent.
    pub(super) input: Bytes,
    /// The model, if one is named.
    pub(super) model: Option<ModelReference>,
    /// The URL that events are sent to.
    pub(super) webhook: Option<String>,
    /// The events that are sent.
    pub(super) webhook_filter: WebhookEventFilter,
}

impl CogPredictionRequest {
    /// Parses a body.
    ///
    /// # Errors
    /// Returns `Body`, or `Parameter` if the model's name is invalid.
    pub(super) fn parse(body: &Bytes) -> Result<CogPredictionRequest, ApiError> {
        let syntax = |error: JsonSyntaxError| body_error(error.to_string());
        let mut json = JsonTokenizer::new(body);
        if !matches!(json.next_token().map_err(syntax)?, JsonToken::Object) {
            return Err(body_error("expected an object with input").into());
        }
        let mut asked = CogPredictionRequest {
            input: Bytes::new(),
            model: None,
            webhook: None,
            webhook_filter: WebhookEventFilter::default(),
        };
        while let Some(key) = json.next_key().map_err(syntax)? {
            let value = json.skip_value().map_err(syntax)?;
            match key.as_ref() {
                "input" => asked.input = body.slice_ref(value),
                "model" | "version" if value == b"null" => {}
                "model" => asked.model = Some(ModelReference::parse(&parse_string("model", value)?)?),
                "webhook" => {
                    asked.webhook = Some(parse_string("webhook", value)?).filter(|address| !address.is_empty())
                }
                "webhook_events_filter" => asked.webhook_filter = WebhookEventFilter::parse(value)?,
                _ => {}
            }
        }
        if json.peek().is_some() {
            return Err(body_error(format!("more follows the object at offset: {}", json.offset())).into());
        }
        if asked.input.is_empty() {
            return Err(body_error("input: missing").into());
        }
        Ok(asked)
    }

    /// Returns a digest of the computation: equal for the same model and input, whatever their JSON formatting.
    ///
    /// # Errors
    /// Returns `Body` if the input is not JSON.
    pub(super) fn digest(&self) -> Result<Digest, PredictionError> {
        let mut input: Value =
            json_text::parse_json(&self.input).map_err(|reason| body_error(format!("input: {reason}")))?;
        input.sort_all_objects();
        let model = self.model.as_ref().map(|model| format!("{}@{}", model.model, model.version));
        let text = serde_json::to_vec(&(model, input)).expect("JSON has text as keys");
        Ok(Digest::of(&text))
    }
}

fn body_error(reason: impl Into<String>) -> PredictionError {
    PredictionError::Body { reason: reason.into() }
}

fn parse_string(name: &str, value: &[u8]) -> Result<String, PredictionError> {
    if value == b"null" {
        return Ok(String::new());
    }
    serde_json::from_slice(value).map_err(|_| body_error(format!("{name}: expected a string")))
}

/// How a client waits for the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitPreference {
    /// It waits until the prediction has finished.
    UntilFinished,
    /// It waits for at most this time, and then polls.
    UpTo(Duration),
    /// It reads events as they occur, starting after this number.
    Events(usize),
}

impl WaitPreference {
    /// Reads the preference: `Accept: text/event-stream` for events, with `Last-Event-ID` as the last event read; else
    /// `Prefer: respond-async` and `Prefer: wait=SECONDS`. Source: RFC 7240, and WHATWG HTML for events.
    pub(super) fn from_headers(headers: &HeaderMap) -> WaitPreference {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim();
        if crate::predict::response_format::wants_events(headers) {
            return WaitPreference::Events(text("last-event-id").parse().unwrap_or(0));
        }
        let preferences = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        let preferences: Vec<&str> = preferences.flat_map(|value| value.split([',', ';'])).map(str::trim).collect();
        let wait = preferences.iter().find_map(|preference| {
            let (name, seconds) = preference.split_once('=')?;
            let seconds = seconds.trim().trim_matches('"').parse().ok();
            seconds.filter(|_| name.trim().eq_ignore_ascii_case("wait")).map(Duration::from_secs)
        });
        let asynchronous = preferences.iter().any(|preference| preference.eq_ignore_ascii_case("respond-async"));
        match (wait, asynchronous) {
            (Some(wait), _) => WaitPreference::UpTo(wait.min(PREDICTION_WAIT_MAX)),
            (None, true) => WaitPreference::UpTo(Duration::ZERO),
            (None, false) => WaitPreference::UntilFinished,
        }
    }
}

/// Returns whether the request's content type is JSON or unspecific.
pub(super) fn is_json_content_type(headers: &HeaderMap) -> bool {
    let declared = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let declared = declared.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(declared.as_str(), "" | "application/json" | "text/plain" | "application/x-www-form-urlencoded")
        || declared.ends_with("+json")
}

/// Validates an identifier chosen by a client.
///
/// # Errors
/// Returns `Id`.
pub(super) fn parse_id(text: &str) -> Result<String, PredictionError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || text.len() > 128 || !text.bytes().all(is_allowed) {
        return Err(PredictionError::Id { got: text.chars().take(80).collect() });
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn wait_preferences_are_read_from_headers() {
        let check = |pairs: &[(&'static str, &'static str)], expected: WaitPreference| {
            assert_eq!(WaitPreference::from_headers(&headers(pairs)), expected, "{pairs:?}");
        };
        let seconds = |seconds| WaitPreference::UpTo(Duration::from_secs(seconds));
        check(&[], WaitPreference::UntilFinished);
        check(&[("prefer", "respond-async")], seconds(0));
        check(&[("prefer", "Respond-Async, wait=5")], seconds(5));
        check(&[("prefer", "respond-async"), ("prefer", "wait=\"7\"")], seconds(7));
        check(&[("prefer", "wait=99999999")], WaitPreference::UpTo(PREDICTION_WAIT_MAX));
        check(&[("prefer", "wait=soon, return=minimal")], WaitPreference::UntilFinished);
        check(&[("accept", "text/event-stream"), ("prefer", "respond-async")], WaitPreference::Events(0));
        check(&[("accept", "text/event-stream"), ("last-event-id", "3")], WaitPreference::Events(3));
    }

    #[test]
    fn cog_request_bodies_are_parsed_or_refused() {
        let read = |text: &str| CogPredictionRequest::parse(&Bytes::copy_from_slice(text.as_bytes()));
        let asked = read(r#" {"input": {"x": [1, 2]}, "model": "digits@canary", "more": [1]} "#).unwrap();
        assert_eq!(asked.input, r#"{"x": [1, 2]}"#);
        assert_eq!(asked.model, Some(ModelReference::parse("digits@canary").unwrap()));
        let digest = |text: &str| read(text).unwrap().digest().unwrap();
        assert_eq!(digest(r#"{"input": {"a": 1, "b": 2}}"#), digest(r#"{"input":{"b":2,"a":1},"webhook":null}"#));
        assert_ne!(digest(r#"{"input": 1}"#), digest(r#"{"input": 2}"#));
        assert_ne!(digest(r#"{"input": 1}"#), digest(r#"{"input": 1, "model": "a"}"#));
        for (text, error) in [
            ("", "body: Invalid value. at offset: 0"),
            ("[]", "body: expected an object with input"),
            ("{}", "body: input: missing"),
            (r#"{"input": 1} x"#, "body: more follows the object at offset: 13"),
            (r#"{"input": 1, "model": 7}"#, "body: model: expected a string"),
            (
                r#"{"input": 1, "webhook_events_filter": ["start", "never"]}"#,
                "body: webhook_events_filter: expected a list of start, output, logs and completed",
            ),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), error, "{text}");
        }
        assert!(read(r#"{"input": NaN}"#).unwrap().digest().is_err());
    }

    #[test]
    fn prediction_identifiers_are_checked() {
        for good in ["a", "0", "A-b_c.9", &"x".repeat(128)] {
            assert_eq!(parse_id(good).unwrap(), good);
        }
        for bad in ["", "a b", "a/b", "é", &"x".repeat(129)] {
            assert!(parse_id(bad).is_err(), "{bad}");
        }
    }
}
