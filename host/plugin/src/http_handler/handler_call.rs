//! One request that a plugin answers: what it gets, what it returns, and where streamed pieces go.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_device::CancelToken;

use super::handler_route::HandlerMethod;
use super::response_head::{RefusedHead, ResponseHead};
use crate::bindings::http_handler as wit;
use crate::error::PluginError;
use crate::limits::HANDLER_BODY_BYTES_MAX;
use crate::streaming::reply::SendPieceError;

/// The name of the call in errors.
pub(crate) const HANDLE: &str = "handle";

/// A request to a handler.
#[derive(Clone, Debug, Default)]
pub struct HandlerRequest {
    /// Index of the route in the model's signature.
    pub route: usize,
    /// The method, or `None` for `GET`.
    pub method: Option<HandlerMethod>,
    /// The path below the model's, decoded.
    pub path: String,
    /// The text in the place of each parameter of the path.
    pub parameters: Vec<(String, String)>,
    /// Names and values of the query, decoded.
    pub query: Vec<(String, String)>,
    /// Headers by name in lower case: only those that plugins can see.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl HandlerRequest {
    pub(crate) fn into_wit(self) -> (u32, wit::HttpRequest) {
        let HandlerRequest { route, method, path, parameters, query, headers, body } = self;
        let method = method.unwrap_or(HandlerMethod::Get).to_wit();
        let index = u32::try_from(route).unwrap_or(u32::MAX);
        (index, wit::HttpRequest { method, path, parameters, query, headers, body })
    }
}

/// A whole response of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerResponse {
    /// Its status and headers.
    pub head: ResponseHead,
    /// Its body.
    pub body: Vec<u8>,
}

/// A receiver of a response that a handler streams.
pub trait ResponseSink: Debug + Send + Sync {
    /// Accepts the head. Called at most once, before any piece, from the thread that runs the handler.
    ///
    /// # Errors
    /// `Gone` if the client no longer waits.
    fn start(&self, head: ResponseHead) -> Result<(), SendPieceError>;

    /// Accepts the next piece of the body. It can block, but not past `until`.
    ///
    /// # Errors
    /// `Gone` if the client no longer waits. `Late` if there was no room before `until`.
    fn send(&self, piece: Vec<u8>, until: Instant) -> Result<(), SendPieceError>;
}

/// The limits of a handler's call and the receiver of a streamed response.
#[derive(Clone, Debug)]
pub struct HandlerOptions {
    /// The end of the call's time.
    pub until: Instant,
    /// The time that the request was given in total, for errors.
    pub limit: Duration,
    /// The receiver of a streamed response.
    pub sink: Arc<dyn ResponseSink>,
    /// Cancelled when the client no longer waits.
    pub cancel: CancelToken,
}

/// The streaming state of the call that an instance runs.
pub(crate) struct StreamedResponse {
    pub(crate) sink: Arc<dyn ResponseSink>,
    pub(crate) until: Instant,
    pub(crate) limit: Duration,
    pub(crate) is_started: bool,
}

/// Checks what a handler returned, against whether it has started a stream.
///
/// # Errors
/// `BadResponse`.
pub(crate) fn checked_response(
    given: Option<wit::HttpResponse>,
    is_started: bool,
) -> Result<Option<HandlerResponse>, PluginError> {
    let refuse = |place: &str, expected: String, given: String| PluginError::BadResponse {
        place: place.to_owned(),
        expected,
        given,
    };
    match given {
        None if is_started => Ok(None),
        None => {
            let expected = "a response, or a stream that `http-stream.start` began".to_owned();
            Err(refuse("number", expected, "none".to_owned()))
        }
        Some(_) if is_started => {
            let expected = "none after `http-stream.start`".to_owned();
            Err(refuse("number", expected, "a second response".to_owned()))
        }
        Some(wit::HttpResponse { head, body }) => {
            let head = ResponseHead::from_wit(head)
                .map_err(|RefusedHead { place, expected, given }| refuse(&place, expected, given))?;
            if body.len() > HANDLER_BODY_BYTES_MAX {
                let expected = format!("at most {HANDLER_BODY_BYTES_MAX} bytes; stream a longer one");
                return Err(refuse("body", expected, format!("{} bytes", body.len())));
            }
            Ok(Some(HandlerResponse { head, body }))
        }
    }
}
