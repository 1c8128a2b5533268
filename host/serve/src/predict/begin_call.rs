//! The beginning of a prediction over HTTP: the deadline header, the keep-alive header, and the memory for decoding the
//! body.

use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use saggar_metrics::MetricsRegistry;
use saggar_serving::{ModelReference, PredictionCall, PredictionDeadline, RejectionReason, VersionLease};

use super::keep_alive::KeepAliveOverride;
use crate::app::AppState;
use crate::error::ApiError;
use crate::request_body::BufferedBody;
use crate::request_memory::decode_bytes_max;

/// The fewest bytes of a number in JSON: a digit and a separator.
const JSON_NUMBER_BYTES_MIN: usize = 2;

/// The request header with the deadline of a prediction in milliseconds.
const DEADLINE_HEADER: &str = "x-saggar-deadline-ms";

/// Returns the deadline that the client sets, or the default, starting now. Call it when the request has arrived.
///
/// # Errors
/// Returns `Parameter` if the header is not a positive number.
pub(crate) fn read_deadline(headers: &HeaderMap) -> Result<PredictionDeadline, ApiError> {
    let began = Instant::now();
    let Some(value) = headers.get(DEADLINE_HEADER) else { return Ok(PredictionDeadline::default_from(began)) };
    let milliseconds = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok()).filter(|&ms| ms > 0);
    let milliseconds = milliseconds.ok_or_else(|| ApiError::Parameter {
        name: "X-Saggar-Deadline-Ms",
        expected: "a whole number of milliseconds above 0",
        got: String::from_utf8_lossy(value.as_bytes()).chars().take(80).collect(),
    })?;
    Ok(PredictionDeadline::starting_at(began, Duration::from_millis(milliseconds)))
}

/// Leases the version that `reference` refers to, or the default model if `None`, and charges the memory for decoding
/// the body. `keep` is the keep-alive time that the client requests. Call it once the body is complete.
///
/// # Errors
/// Returns the errors of [`PredictionService::lease`](saggar_serving::PredictionService::lease), of
/// [`KeepAliveOverride::apply`], `MemoryFull` or `MemoryShare`.
pub(crate) async fn begin_call(
    app: &AppState,
    reference: Option<&ModelReference>,
    deadline: PredictionDeadline,
    keep: Option<KeepAliveOverride>,
    body: &BufferedBody,
) -> Result<PredictionCall, ApiError> {
    begin_call_of_numbers(app, reference, deadline, keep, body, JSON_NUMBER_BYTES_MIN).await
}

/// Begins like [`begin_call`] for a body in which a number has at least `number_bytes_min` bytes.
///
/// # Errors
/// Returns the errors of [`begin_call`].
pub(crate) async fn begin_call_of_numbers(
    app: &AppState,
    reference: Option<&ModelReference>,
    deadline: PredictionDeadline,
    keep: Option<KeepAliveOverride>,
    body: &BufferedBody,
    number_bytes_min: usize,
) -> Result<PredictionCall, ApiError> {
    let lease = lease_version(app, reference, deadline, keep).await?;
    begin_leased_call(app, lease, deadline, body, number_bytes_min).await
}

/// Leases the version that `reference` refers to, or the default model if `None`. `keep` is the keep-alive time that the
/// client requests. Call it once the body is complete.
///
/// # Errors
/// Returns the errors of [`PredictionService::lease`](saggar_serving::PredictionService::lease) and of
/// [`KeepAliveOverride::apply`].
pub(super) async fn lease_version(
    app: &AppState,
    reference: Option<&ModelReference>,
    deadline: PredictionDeadline,
    keep: Option<KeepAliveOverride>,
) -> Result<VersionLease, ApiError> {
    let lease = app.prediction_service().lease(reference, deadline).await?;
    if let Some(keep) = keep {
        keep.apply(app, &lease.live_version().model).await?;
    }
    Ok(lease)
}

/// Begins a prediction by a leased version, and charges the memory for decoding the body.
///
/// # Errors
/// Returns `MemoryFull` or `MemoryShare`.
async fn begin_leased_call(
    app: &AppState,
    lease: VersionLease,
    deadline: PredictionDeadline,
    body: &BufferedBody,
    number_bytes_min: usize,
) -> Result<PredictionCall, ApiError> {
    let version = lease.live_version();
    let decode_bytes = decode_bytes_max(version.predictor().signature(), &body.bytes, number_bytes_min);
    let (charge, trace) = (body.new_charge(), body.trace.clone());
    Ok(PredictionCall::begin(app.prediction_service(), lease, deadline, charge, decode_bytes, trace).await?)
}

/// Begins like [`begin_call`] by a version that is leased already.
///
/// # Errors
/// Returns `MemoryFull` or `MemoryShare`.
pub(super) async fn begin_call_of_lease(
    app: &AppState,
    lease: VersionLease,
    deadline: PredictionDeadline,
    body: &BufferedBody,
) -> Result<PredictionCall, ApiError> {
    begin_leased_call(app, lease, deadline, body, JSON_NUMBER_BYTES_MIN).await
}

/// Counts a request whose body was refused because of its size or the memory in use.
pub(crate) fn count_body_rejection(metrics: &MetricsRegistry, error: &ApiError) {
    let reason = match error {
        ApiError::TooLarge { .. } => Some(RejectionReason::TooLarge),
        ApiError::Serving(error) => RejectionReason::from_error(error),
        _ => None,
    };
    if let Some(reason) = reason {
        reason.count(metrics);
    }
}
