//! One request to a handler: it holds a lease of its version, waits for one of the version's places for handlers, and
//! runs the plugin's code on a blocking thread.

use std::sync::Arc;

use saggar_plugin::{HandlerOptions, HandlerRequest, HandlerResponse, ResponseHead};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

use super::handler_record::HandlerRecord;
use super::handler_stream::{
    CancelOnDrop, HandlerChannels, HandlerStream, QueueSink, StreamedPart, deadline_error, wait_for_result,
};
use crate::error::ServingError;
use crate::guest_threads;
use crate::limits::HANDLER_PIECES_WAITING_MAX;
use crate::live_version::{LiveVersion, VersionLease};
use crate::prediction::deadline::PredictionDeadline;
use crate::prediction::prediction_service::PredictionService;
use crate::request_memory::MemoryCharge;

/// Bytes of a stream's queue, which are charged to the client as long as the stream lasts.
const STREAM_BYTES: u64 = (HANDLER_PIECES_WAITING_MAX * saggar_plugin::limits::HANDLER_PIECE_BYTES_MAX) as u64;

/// The response of a handler.
#[derive(Debug)]
pub enum HandlerAnswer {
    /// A whole response, its version, and the memory that it is charged to.
    Whole(HandlerResponse, Arc<LiveVersion>, MemoryCharge),
    /// A response whose body is streamed.
    Streamed(ResponseHead, HandlerStream),
}

impl HandlerAnswer {
    /// Returns the version that answers.
    pub fn live_version(&self) -> &Arc<LiveVersion> {
        match self {
            HandlerAnswer::Whole(_, version, _) => version,
            HandlerAnswer::Streamed(_, stream) => stream.live_version(),
        }
    }
}

/// Answers a request with the handler of a leased version. Dropping the future, or the stream that it returns, cancels
/// the handler. `charge` is charged with the plugin's copy of the body and with the response.
///
/// # Errors
/// Returns `DeadlineQueued`, `MemoryFull`, `MemoryShare`, or the plugin's error.
pub async fn run_handler(
    service: &PredictionService,
    lease: VersionLease,
    deadline: PredictionDeadline,
    request: HandlerRequest,
    mut charge: MemoryCharge,
) -> Result<HandlerAnswer, ServingError> {
    let deadline = deadline.or_default_limit(lease.live_version().policy().deadline);
    let mut record = HandlerRecord::new(Arc::new(lease), Arc::clone(service.shared_metrics()));
    let until = deadline.until();
    let bytes = request.body.len() as u64 + STREAM_BYTES;
    let begun = match charge.resize(bytes, Some(until)).await {
        Ok(()) => begin(&record, deadline, request).await,
        Err(error) => Err(error),
    };
    let mut channels = match begun {
        Ok(channels) => channels,
        Err(error) => {
            service.count_rejection(&error);
            record.finish(Some(&error));
            return Err(error);
        }
    };
    record.live_version().mark_used(service.now_ms());
    let first = timeout_at(until.into(), channels.parts.recv()).await;
    let result = match first {
        Ok(Some(StreamedPart::Head(head))) => {
            let stream = HandlerStream { channels, record, deadline, _charge: charge, is_over: false };
            return Ok(HandlerAnswer::Streamed(head, stream));
        }
        Ok(Some(StreamedPart::Piece(_))) => {
            Err(ServingError::Internal { cause: "a streamed response began without its head".to_owned() })
        }
        Ok(None) => wait_for_result(&mut channels.result).await,
        // The thread can be in a call of a device driver, which is not interrupted.
        Err(_) => Err(deadline_error(deadline)),
    };
    let answer = match result {
        Ok(Some(response)) => charge.resize(response.body.len() as u64, Some(until)).await.map(|()| response),
        Ok(None) => Err(ServingError::Internal { cause: "a handler returned no response".to_owned() }),
        Err(error) => Err(error),
    };
    record.finish(answer.as_ref().err());
    let version = Arc::clone(record.live_version());
    answer.map(|response| HandlerAnswer::Whole(response, version, charge))
}

/// Waits for a place of the version's handlers, and starts the call on a blocking thread.
async fn begin(
    record: &HandlerRecord,
    deadline: PredictionDeadline,
    request: HandlerRequest,
) -> Result<HandlerChannels, ServingError> {
    let until = deadline.until();
    let queued = || ServingError::DeadlineQueued { limit: deadline.limit() };
    let places = Arc::clone(record.live_version().handler_places());
    let place = timeout_at(until.into(), places.acquire_owned()).await.map_err(|_| queued())?;
    let place = place.map_err(|_| ServingError::Internal { cause: "the places of handlers were closed".to_owned() })?;
    let (sink, parts) = QueueSink::new();
    let (reply, result) = tokio::sync::oneshot::channel();
    let cancel = CancelOnDrop::new();
    let token = cancel.token();
    let lease = Arc::clone(record.lease());
    let work = move || {
        let place: OwnedSemaphorePermit = place;
        let options = HandlerOptions { until, limit: deadline.limit(), sink: Arc::new(sink), cancel: token };
        let answer = lease.live_version().predictor().handle(request, &options);
        // The version and the place are free before the client knows the result.
        drop(lease);
        drop(place);
        // The receiver is gone if the client no longer waits.
        let _ = reply.send(answer);
        // Closes the queue, after which the result is read.
        drop(options);
    };
    guest_threads::spawn(&Handle::current(), work);
    Ok(HandlerChannels { parts, result, _cancel: cancel })
}
