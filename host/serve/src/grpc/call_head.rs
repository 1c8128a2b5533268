//! The headers of a call.

use std::time::{Duration, Instant};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Version, header};
use saggar_serving::PredictionDeadline;

use crate::content_encoding::ContentEncoding;
use crate::error::ApiError;
use crate::predict::begin_call::read_deadline;

const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("grpc-timeout");
const ENCODING_HEADER: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPT_ENCODING_HEADER: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// The most digits of a timeout.
const TIMEOUT_DIGITS_MAX: usize = 8;

/// Returns whether these are the headers of a call, whatever the encoding of its messages.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.as_bytes().strip_prefix(MEDIA_TYPE));
    media_type.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

const MEDIA_TYPE: &[u8] = b"application/grpc";

/// What the headers of a call say about its messages and its deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallHead {
    began: Instant,
    /// The time limit of the call, or `None` without a limit.
    timeout: Option<Duration>,
    /// The deadline of a prediction, if the call is one.
    pub(crate) deadline: PredictionDeadline,
    /// The encoding of compressed messages of the request.
    pub(crate) coding: Option<ContentEncoding>,
    /// The encoding of the response's messages: that of the request if the client accepts it, else none. Clients list
    /// the encodings that they understand whether or not they prefer compressed messages.
    pub(crate) response_coding: Option<ContentEncoding>,
}

impl CallHead {
    /// Reads the headers. Call it when the request has arrived.
    ///
    /// # Errors
    /// Returns `Parameter` without HTTP/2 or with an invalid timeout, `MediaType` for messages other than protocol
    /// buffers, and `Coding` for an unknown encoding.
    pub(crate) fn read(parts: &Parts) -> Result<CallHead, ApiError> {
        let (began, headers) = (Instant::now(), &parts.headers);
        check_media_type(headers)?;
        if parts.version != Version::HTTP_2 {
            let got = format!("{:?}", parts.version);
            return Err(ApiError::Parameter { name: "HTTP version", expected: "HTTP/2, which gRPC needs", got });
        }
        let coding = request_coding(headers)?;
        let timeout = headers.get(TIMEOUT_HEADER).map(|value| parse_timeout(value.as_bytes())).transpose()?;
        let deadline = match timeout {
            Some(timeout) => PredictionDeadline::starting_at(began, timeout),
            None => read_deadline(headers)?,
        };
        let accepts = |coding: &ContentEncoding| {
            let lines = headers.get_all(ACCEPT_ENCODING_HEADER).iter().filter_map(|line| line.to_str().ok());
            lines.flat_map(|line| line.split(',')).any(|name| ContentEncoding::from_name(name) == Some(*coding))
        };
        Ok(CallHead { began, timeout, deadline, coding, response_coding: coding.filter(accepts) })
    }

    /// Returns the time that is left of the call, or `None` without a limit.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.timeout.map(|timeout| timeout.saturating_sub(self.began.elapsed()))
    }
}

fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let media_type = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let media_type = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if [MEDIA_TYPE, b"application/grpc+proto"].contains(&media_type) {
        return Ok(());
    }
    let got = String::from_utf8_lossy(media_type).chars().take(80).collect();
    Err(ApiError::MediaType { got, expected: "application/grpc" })
}

fn request_coding(headers: &HeaderMap) -> Result<Option<ContentEncoding>, ApiError> {
    let Some(value) = headers.get(ENCODING_HEADER) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    match ContentEncoding::from_name(&text) {
        None if text != "identity" => Err(ApiError::Coding { got: text.chars().take(80).collect() }),
        coding => Ok(coding),
    }
}

/// Parses a timeout: digits and a unit. Source: gRPC, `PROTOCOL-HTTP2.md`.
fn parse_timeout(value: &[u8]) -> Result<Duration, ApiError> {
    let refuse = || ApiError::Parameter {
        name: "grpc-timeout",
        expected: "at most 8 digits and a unit of H, M, S, m, u or n",
        got: String::from_utf8_lossy(value).chars().take(40).collect(),
    };
    let (unit, digits) = value.split_last().ok_or_else(refuse)?;
    if digits.is_empty() || digits.len() > TIMEOUT_DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return Err(refuse());
    }
    let number = digits.iter().fold(0, |number: u64, digit| 10 * number + u64::from(digit - b'0'));
    match unit {
        b'H' => Ok(Duration::from_secs(3600 * number)),
        b'M' => Ok(Duration::from_secs(60 * number)),
        b'S' => Ok(Duration::from_secs(number)),
        b'm' => Ok(Duration::from_millis(number)),
        b'u' => Ok(Duration::from_micros(number)),
        b'n' => Ok(Duration::from_nanos(number)),
        _ => Err(refuse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_digits_and_a_unit() {
        let parse = |text: &str| parse_timeout(text.as_bytes()).ok();
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("1H"), Some(Duration::from_secs(3600)));
        assert_eq!(parse("0n"), Some(Duration::ZERO));
        assert_eq!(parse("99999999S"), Some(Duration::from_secs(99_999_999)));
        for bad in ["", "S", "1", "1s", "-1S", "+1S", "123456789m", "1.5S", " 1S"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_call_is_recognized_by_its_content_type() {
        let check = |content_type: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
            (is_grpc(&headers), check_media_type(&headers).is_ok())
        };
        assert_eq!(check("application/grpc"), (true, true));
        assert_eq!(check("application/grpc+proto"), (true, true));
        assert_eq!(check("application/grpc; charset=utf-8"), (true, true));
        assert_eq!(check("application/grpc+json"), (true, false));
        assert_eq!(check("application/grpc-web"), (false, false));
        assert_eq!(check("application/json"), (false, false));
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
