//! gRPC on the port of HTTP: calls are HTTP/2 requests, so each method is a route like any other, behind the same
//! connection limits, access control and metrics.
//!
//! A handler returns its response, or an [`ApiError`] like every other handler. The outermost layer turns the error into
//! a status of gRPC ([`status`]). Messages are read within the limits and the memory budget of bodies
//! ([`MessageStream`](crate::request_body::message_stream::MessageStream)). The services are the Open Inference Protocol
//! ([`crate::oip::grpc`]), [`health`] and [`reflection`].
//!
//! Source: gRPC, `PROTOCOL-HTTP2.md`.

pub(crate) mod call_head;
pub(crate) mod call_metrics;
pub(crate) mod health;
pub(crate) mod reflection;
pub(crate) mod response;
pub(crate) mod status;

use axum::extract::{FromRequest, Request};
use prost::Message;

use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::{GRPC_PARSED_RATIO, GRPC_REQUEST_BYTES_MAX};
use call_head::CallHead;

/// The name of the inference service.
pub(crate) const INFERENCE_SERVICE: &str = "inference.GRPCInferenceService";

/// The only message of a call, for methods with small requests.
#[derive(Debug)]
pub(crate) struct GrpcRequest<T>(pub(crate) T);

impl<T: Message + Default> GrpcRequest<T> {
    /// Reads and decodes the message.
    ///
    /// # Errors
    /// Returns the errors of [`CallHead::read`] and of reading a message, and `BodyBroken` if it is not one of this
    /// type.
    pub(crate) async fn read(app: &AppState, request: Request) -> Result<GrpcRequest<T>, ApiError> {
        let (parts, body) = request.into_parts();
        let head = CallHead::read(&parts)?;
        let messages = app.body_reader().messages(&parts, body, head.coding, GRPC_REQUEST_BYTES_MAX);
        let message = messages.read_single().await?;
        let mut parsed = message.new_charge();
        parsed.resize(GRPC_PARSED_RATIO * message.bytes.len() as u64, None).await?;
        let decoded = T::decode(message.bytes.clone());
        let reason = |_| ApiError::BodyBroken { reason: "the message is not a request of this method".to_owned() };
        Ok(GrpcRequest(decoded.map_err(reason)?))
    }
}

impl<T: Message + Default> FromRequest<AppState> for GrpcRequest<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &AppState) -> Result<GrpcRequest<T>, ApiError> {
        GrpcRequest::read(app, request).await
    }
}
