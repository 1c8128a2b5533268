//! `grpc.health.v1.Health`, for probes and for clients that choose among servers.
//!
//! The server is `SERVING` under the condition of `GET /readyz`. Its name is empty or that of the inference service.

use axum::extract::{Request, State};
use axum::response::Response;
use futures::stream;
use saggar_serving::shutdown::wait_for_shutdown;
use tokio::sync::watch;
use tokio::time::sleep;

use super::response::{FramedMessage, GrpcResponse, stream_response};
use super::status::GrpcStatus;
use super::{GrpcRequest, INFERENCE_SERVICE};
use crate::access::StreamAuthorization;
use crate::api::event_streams::{EventStreamPermit, StreamHolder};
use crate::api::health::unready_reasons;
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::EVENT_STREAM_POLL;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    /// The answer of `Watch` for a name that is not a service.
    ServiceUnknown = 3,
}

/// Handles `Check`.
pub(crate) async fn check(
    State(app): State<AppState>,
    GrpcRequest(HealthCheckRequest { service }): GrpcRequest<HealthCheckRequest>,
) -> Result<GrpcResponse<HealthCheckResponse>, ApiError> {
    match serving_status(&app, &service) {
        ServingStatus::ServiceUnknown => {
            let hint = format!("the server has the service {INFERENCE_SERVICE}");
            Err(ApiError::NotFound { kind: "service", name: service.chars().take(80).collect(), hint })
        }
        status => Ok(GrpcResponse(HealthCheckResponse { status: status.into() })),
    }
}

/// Handles `Watch`: sends the status, and then each change.
pub(crate) async fn watch(
    State(app): State<AppState>,
    holder: StreamHolder,
    authorization: StreamAuthorization,
    request: Request,
) -> Result<Response, ApiError> {
    let permit = app.event_streams().open(holder)?;
    let GrpcRequest(HealthCheckRequest { service }) = GrpcRequest::read(&app, request).await?;
    let stopping = app.shutdown();
    let watch = HealthWatch { app, service, authorization, stopping, sent: None, _permit: permit };
    Ok(stream_response(stream::try_unfold(watch, HealthWatch::next), None))
}

/// A client that watches a service.
struct HealthWatch {
    app: AppState,
    service: String,
    authorization: StreamAuthorization,
    stopping: watch::Receiver<bool>,
    sent: Option<ServingStatus>,
    _permit: EventStreamPermit,
}

impl HealthWatch {
    /// Waits for a status other than the one that was sent last.
    async fn next(mut self) -> Result<Option<(FramedMessage, HealthWatch)>, GrpcStatus> {
        loop {
            let status = serving_status(&self.app, &self.service);
            if self.sent != Some(status) {
                self.sent = Some(status);
                let message = FramedMessage::from_message(&HealthCheckResponse { status: status.into() });
                return Ok(Some((message, self)));
            }
            if *self.stopping.borrow() {
                return Err(GrpcStatus::from_error(&ApiError::Stopping.body()));
            }
            if !self.authorization.is_still_valid(self.app.now_ms()) {
                return Ok(None);
            }
            tokio::select! {
                () = sleep(EVENT_STREAM_POLL) => {}
                () = wait_for_shutdown(&mut self.stopping) => {}
            }
        }
    }
}

fn serving_status(app: &AppState, service: &str) -> ServingStatus {
    match service {
        "" | INFERENCE_SERVICE if unready_reasons(app).is_empty() => ServingStatus::Serving,
        "" | INFERENCE_SERVICE => ServingStatus::NotServing,
        _ => ServingStatus::ServiceUnknown,
    }
}
