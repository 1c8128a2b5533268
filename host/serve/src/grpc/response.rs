//! Responses of calls: framed messages, and the status in the trailers after them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use hyper::body::Frame;
use prost::Message;
use saggar_serving::MemoryCharge;

use super::status::{CONTENT_TYPE, GrpcStatus};
use crate::content_encoding::ContentEncoding;
use crate::error::ApiError;
use crate::limits::COMPRESS_BYTES_MIN;
use crate::openapi::described_response::DescribedResponse;
use crate::openapi::operation_response::OperationResponse;
use crate::request_body::message_stream::MESSAGE_PREFIX_BYTES;

/// The header with the encoding of compressed messages.
const ENCODING_HEADER: HeaderName = HeaderName::from_static("grpc-encoding");

/// A message with its prefix, and the charge of its memory.
#[derive(Debug)]
pub(crate) struct FramedMessage {
    pub(crate) bytes: Bytes,
    pub(crate) charge: Option<MemoryCharge>,
}

impl FramedMessage {
    /// Encodes a small message, which is not charged.
    pub(crate) fn from_message(message: &impl Message) -> FramedMessage {
        let length = message.encoded_len();
        let mut bytes = begin_frame(length);
        message.encode(&mut bytes).expect("a vector grows as needed");
        FramedMessage { bytes: bytes.into(), charge: None }
    }

    /// Compresses the message if it is large enough to benefit.
    ///
    /// # Errors
    /// Returns `Internal` if compressing fails.
    pub(crate) async fn compress(self, coding: ContentEncoding) -> Result<FramedMessage, ApiError> {
        if self.bytes.len() < COMPRESS_BYTES_MIN {
            return Ok(self);
        }
        let FramedMessage { mut bytes, charge } = self;
        let compressed = coding.compress_bytes(bytes.split_off(MESSAGE_PREFIX_BYTES)).await?;
        let mut framed = begin_frame(compressed.len());
        framed[0] = 1;
        framed.extend_from_slice(&compressed);
        Ok(FramedMessage { bytes: framed.into(), charge })
    }
}

/// Returns the prefix of a message of `length` bytes, with capacity for the message.
///
/// # Panics
/// If `length` is 4 GiB or more.
pub(crate) fn begin_frame(length: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(MESSAGE_PREFIX_BYTES + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).expect("a message is smaller than 4 GiB"));
    frame
}

/// A response of one small message.
#[derive(Debug)]
pub(crate) struct GrpcResponse<T>(pub(crate) T);

/// The OpenAPI document does not describe gRPC.
impl<T> DescribedResponse for GrpcResponse<T> {
    fn responses() -> Vec<OperationResponse> {
        Vec::new()
    }
}

impl<T: Message> IntoResponse for GrpcResponse<T> {
    fn into_response(self) -> Response {
        unary_response(FramedMessage::from_message(&self.0), None)
    }
}

/// Returns a response of one message. `coding` is the encoding of the message if it is compressed.
pub(crate) fn unary_response(message: FramedMessage, coding: Option<ContentEncoding>) -> Response {
    stream_response(stream::once(async move { Ok(message) }), coding)
}

/// Returns a response of several messages. `coding` is the encoding of those that are compressed. The status is that of
/// the first error, after which nothing is sent.
pub(crate) fn stream_response(
    messages: impl Stream<Item = Result<FramedMessage, GrpcStatus>> + Send + 'static,
    coding: Option<ContentEncoding>,
) -> Response {
    let body = MessageBody { messages: Some(messages.boxed()), charge: None };
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
    if let Some(coding) = coding {
        response.headers_mut().insert(ENCODING_HEADER, HeaderValue::from_static(coding.name()));
    }
    response
}

/// The body of a response.
struct MessageBody {
    /// `None` after the trailers.
    messages: Option<BoxStream<'static, Result<FramedMessage, GrpcStatus>>>,
    /// The charge of the newest message, which is held until the next one is requested.
    charge: Option<MemoryCharge>,
}

impl HttpBody for MessageBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let Some(messages) = &mut this.messages else { return Poll::Ready(None) };
        let status = match ready!(messages.poll_next_unpin(context)) {
            Some(Ok(FramedMessage { bytes, charge })) => {
                this.charge = charge;
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Some(Err(status)) => status,
            None => GrpcStatus::OK,
        };
        this.messages = None;
        let mut trailers = HeaderMap::new();
        status.insert_into(&mut trailers);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.messages.is_none()
    }
}
