//! The stream of a response between the thread that runs a handler and the connection of its client.
//!
//! Pieces wait in a bounded queue; while it is full the plugin blocks, until its deadline. When the client disconnects,
//! the plugin's call is cancelled. A call that fails after the response was started ends the stream with an error, so
//! that the connection is cut and the client does not take the body for complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use saggar_plugin::{CancelToken, HandlerResponse, PluginError, ResponseHead, ResponseSink, SendPieceError};
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::{SendTimeoutError, TrySendError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout_at;

use super::handler_record::HandlerRecord;
use crate::error::ServingError;
use crate::limits::{HANDLER_PIECES_WAITING_MAX, STREAM_END_GRACE};
use crate::live_version::LiveVersion;
use crate::prediction::deadline::PredictionDeadline;
use crate::request_memory::MemoryCharge;

/// What a handler sends before it returns.
#[derive(Debug)]
pub(super) enum StreamedPart {
    /// The head, first and once.
    Head(ResponseHead),
    /// A piece of the body.
    Piece(Bytes),
}

/// What a handler returned.
pub(super) type HandlerResult = Result<Option<HandlerResponse>, PluginError>;

/// The receiving ends of a call.
#[derive(Debug)]
pub(super) struct HandlerChannels {
    pub(super) parts: mpsc::Receiver<StreamedPart>,
    pub(super) result: oneshot::Receiver<HandlerResult>,
    /// Cancels the call if the response is not read to its end.
    pub(super) _cancel: CancelOnDrop,
}

/// Cancels the call when it is dropped.
#[derive(Debug)]
pub(super) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    pub(super) fn new() -> CancelOnDrop {
        CancelOnDrop(Arc::default())
    }

    /// Returns a token that is cancelled once this is dropped.
    pub(super) fn token(&self) -> CancelToken {
        let gone = Arc::clone(&self.0);
        CancelToken::new(move || gone.load(Ordering::Acquire))
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The sending end, on the thread that runs the handler.
#[derive(Debug)]
pub(super) struct QueueSink {
    queue: mpsc::Sender<StreamedPart>,
    runtime: Handle,
}

impl QueueSink {
    /// Creates a sink and its queue. Call it in the runtime that reads the queue.
    pub(super) fn new() -> (QueueSink, mpsc::Receiver<StreamedPart>) {
        let (queue, parts) = mpsc::channel(HANDLER_PIECES_WAITING_MAX);
        (QueueSink { queue, runtime: Handle::current() }, parts)
    }
}

impl ResponseSink for QueueSink {
    fn start(&self, head: ResponseHead) -> Result<(), SendPieceError> {
        // The first part of an empty queue has room.
        self.queue.try_send(StreamedPart::Head(head)).map_err(|_| SendPieceError::Gone)
    }

    fn send(&self, piece: Vec<u8>, until: Instant) -> Result<(), SendPieceError> {
        if piece.is_empty() {
            return if self.queue.is_closed() { Err(SendPieceError::Gone) } else { Ok(()) };
        }
        match self.queue.try_send(StreamedPart::Piece(piece.into())) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(SendPieceError::Gone),
            Err(TrySendError::Full(part)) => {
                let left = until.saturating_duration_since(Instant::now());
                match self.runtime.block_on(self.queue.send_timeout(part, left)) {
                    Ok(()) => Ok(()),
                    Err(SendTimeoutError::Closed(_)) => Err(SendPieceError::Gone),
                    Err(SendTimeoutError::Timeout(_)) => Err(SendPieceError::Late),
                }
            }
        }
    }
}

/// The body of a response that a handler streams. Dropping it cancels the handler.
#[derive(Debug)]
pub struct HandlerStream {
    pub(super) channels: HandlerChannels,
    pub(super) record: HandlerRecord,
    pub(super) deadline: PredictionDeadline,
    pub(super) _charge: MemoryCharge,
    pub(super) is_over: bool,
}

impl HandlerStream {
    /// Returns the next piece, or `None` after the last one.
    ///
    /// # Errors
    /// Returns the error that ended the handler; the body is then incomplete.
    pub async fn next_piece(&mut self) -> Option<Result<Bytes, ServingError>> {
        loop {
            if self.is_over {
                return None;
            }
            // The plugin is interrupted at the deadline, but a call of a device driver is not.
            let latest = self.deadline.until() + STREAM_END_GRACE;
            let result = match timeout_at(latest.into(), self.channels.parts.recv()).await {
                Ok(Some(StreamedPart::Piece(piece))) => return Some(Ok(piece)),
                // The host accepts one head only.
                Ok(Some(StreamedPart::Head(_))) => continue,
                Ok(None) => wait_for_result(&mut self.channels.result).await,
                Err(_) => Err(deadline_error(self.deadline)),
            };
            self.is_over = true;
            self.record.finish(result.as_ref().err());
            return result.err().map(Err);
        }
    }

    /// Returns the version that answers.
    pub fn live_version(&self) -> &Arc<LiveVersion> {
        self.record.live_version()
    }
}

/// Returns the error of a handler that did not end at its deadline.
pub(super) fn deadline_error(deadline: PredictionDeadline) -> ServingError {
    let limit_ms = u64::try_from(deadline.limit().as_millis()).unwrap_or(u64::MAX);
    PluginError::Deadline { during: "handle", limit_ms }.into()
}

/// Waits for what the handler returns.
pub(super) async fn wait_for_result(
    result: &mut oneshot::Receiver<HandlerResult>,
) -> Result<Option<HandlerResponse>, ServingError> {
    match result.await {
        Ok(result) => Ok(result?),
        Err(_) => Err(ServingError::Internal { cause: "the thread of a handler ended without a result".to_owned() }),
    }
}
