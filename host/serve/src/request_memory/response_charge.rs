//! Responses keep their memory charge until the client has read them, so that a client that reads nothing holds only
//! its own share.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use saggar_serving::{MemoryCharge, ServingError};

use crate::error::ApiError;
use crate::limits::ANSWER_UNCHARGED_BYTES_MAX;

/// The charge of a response's body, passed in the response's extensions. It can be taken once.
#[derive(Clone, Debug)]
pub(crate) struct ResponseCharge(Arc<Mutex<Option<MemoryCharge>>>);

impl ResponseCharge {
    /// Wraps `charge`.
    pub(crate) fn new(charge: MemoryCharge) -> ResponseCharge {
        ResponseCharge(Arc::new(Mutex::new(Some(charge))))
    }

    fn take(&self) -> Option<MemoryCharge> {
        self.0.lock().take()
    }
}

/// Charges the response's body: to the charge in its extensions, or else to the one that `empty` creates. A streamed
/// body has no length and is not charged, because its chunks wait in bounded queues.
///
/// # Errors
/// Returns `MemoryFull` if the client already holds too much.
pub(crate) fn charge_response(
    mut response: Response,
    empty: impl FnOnce() -> MemoryCharge,
) -> Result<Response, ApiError> {
    let handed_on = response.extensions_mut().remove::<ResponseCharge>().and_then(|charge| charge.take());
    let Some(bytes) = response.body().size_hint().exact().filter(|&bytes| bytes > ANSWER_UNCHARGED_BYTES_MAX) else {
        return Ok(response);
    };
    let mut charge = handed_on.unwrap_or_else(empty);
    if !charge.try_resize(bytes) {
        return Err(ServingError::MemoryFull.into());
    }
    Ok(response.map(|body| Body::new(ChargedBody { body, _charge: charge })))
}

/// A body that is charged until it is dropped.
struct ChargedBody {
    body: Body,
    _charge: MemoryCharge,
}

impl HttpBody for ChargedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
