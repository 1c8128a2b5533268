//! Tracks the responses of an HTTP/2 connection until the client has received them.
//!
//! In HTTP/2, a client can leave a response unread while its connection stays active: it does not extend the stream's
//! window, but still answers pings. So each response is charged for the time in which part of it waits for the client,
//! and credited for the bytes sent ([`ANSWER_BYTES_PER_SECOND_MIN`]). A response whose debt exceeds the maximum idle
//! time is reset. Bodies are sent in chunks, and each chunk records when it is sent, since the protocol's own queue is
//! part of the path. A response without pending data, such as an idle event stream, is not charged.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::task::AtomicWaker;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::activity::{ConnectionActivity, RunningRequest};
use crate::limits::{ANSWER_BYTES_PER_SECOND_MIN, ANSWER_PIECE_BYTES, HTTP2_STREAMS_MAX};

/// The number of tracked responses at which completed ones are first removed from the list.
const PRUNE_AT_MIN: usize = 2 * HTTP2_STREAMS_MAX as usize;

/// The responses of one connection.
#[derive(Debug)]
pub(super) struct ConnectionResponses {
    list: Mutex<ResponseList>,
}

#[derive(Debug)]
struct ResponseList {
    answers: Vec<Weak<TrackedResponse>>,
    /// The number of responses at which completed ones are next removed.
    prune_at: usize,
}

impl Default for ConnectionResponses {
    fn default() -> ConnectionResponses {
        ConnectionResponses { list: Mutex::new(ResponseList { answers: Vec::new(), prune_at: PRUNE_AT_MIN }) }
    }
}

impl ConnectionResponses {
    /// Tracks the response to a request that starts now.
    pub(super) fn begin(&self, activity: &Arc<ConnectionActivity>) -> Arc<TrackedResponse> {
        let answer = TrackedResponse::begin(activity);
        let mut list = self.list.lock();
        if list.answers.len() >= list.prune_at {
            list.answers.retain(|answer| answer.strong_count() > 0);
            list.prune_at = PRUNE_AT_MIN.max(2 * list.answers.len());
        }
        list.answers.push(Arc::downgrade(&answer));
        answer
    }

    /// Charges every response for `elapsed`, the time since the last call, and resets those whose debt exceeds
    /// `quiet_max`. Returns whether the connection must end, because a reset had no effect on a response that hyper has
    /// already handed over.
    pub(super) fn charge(&self, elapsed: Duration, quiet_max: Duration) -> bool {
        let list = self.list.lock();
        let owed = list.answers.iter().filter_map(Weak::upgrade).map(|answer| {
            let debt = answer.charge(elapsed);
            if debt > quiet_max {
                answer.reset.notify_one();
            }
            debt
        });
        owed.max().is_some_and(|most| most > 2 * quiet_max)
    }
}

/// One response, from its request's head until its last byte is sent.
#[derive(Debug)]
pub(super) struct TrackedResponse {
    _running: RunningRequest,
    /// Whether the body may have data that hyper has not polled for.
    ready: AtomicBool,
    /// The task that polls the body.
    task: AtomicWaker,
    /// The bytes of chunks not yet sent.
    queued_bytes: AtomicUsize,
    /// The bytes of chunks sent since the last charge.
    sent_bytes: AtomicUsize,
    debt: Mutex<Duration>,
    reset: Notify,
}

impl TrackedResponse {
    /// Creates the response to a request that starts now.
    pub(super) fn begin(activity: &Arc<ConnectionActivity>) -> Arc<TrackedResponse> {
        Arc::new(TrackedResponse {
            _running: RunningRequest::begin(activity),
            ready: AtomicBool::new(false),
            task: AtomicWaker::new(),
            queued_bytes: AtomicUsize::new(0),
            sent_bytes: AtomicUsize::new(0),
            debt: Mutex::default(),
            reset: Notify::new(),
        })
    }

    /// Charges for `elapsed` and returns the debt.
    fn charge(&self, elapsed: Duration) -> Duration {
        let sent = self.sent_bytes.swap(0, Ordering::AcqRel);
        let waits = self.queued_bytes.load(Ordering::Acquire) > 0 || self.ready.load(Ordering::Acquire);
        let mut debt = self.debt.lock();
        *debt = if waits { (*debt + elapsed).saturating_sub(time_allowance(sent)) } else { Duration::ZERO };
        *debt
    }
}

/// Returns how long a client may take for `bytes` bytes.
pub(super) fn time_allowance(bytes: usize) -> Duration {
    Duration::from_secs_f64(bytes as f64 / ANSWER_BYTES_PER_SECOND_MIN as f64)
}

impl Wake for TrackedResponse {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.store(true, Ordering::Release);
        self.task.wake();
    }
}

/// The body of a response.
#[derive(Debug)]
pub(super) struct TrackedBody {
    body: Body,
    answer: Arc<TrackedResponse>,
    /// The rest of a frame that was longer than a chunk.
    rest: Bytes,
    piece_bytes_max: usize,
}

impl TrackedBody {
    /// Wraps a body whose chunks are charged; they are small, so that the sending of each is informative.
    pub(super) fn chunked(body: Body, answer: Arc<TrackedResponse>) -> TrackedBody {
        answer.ready.store(true, Ordering::Release);
        TrackedBody { body, answer, rest: Bytes::new(), piece_bytes_max: ANSWER_PIECE_BYTES }
    }

    /// Wraps a body that only keeps its request running until it is sent.
    pub(super) fn unchunked(body: Body, answer: Arc<TrackedResponse>) -> TrackedBody {
        TrackedBody { body, answer, rest: Bytes::new(), piece_bytes_max: usize::MAX }
    }

    fn poll_next_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.piece_bytes_max == usize::MAX {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        self.answer.task.register(context.waker());
        // Before polling, so that a wake-up during the poll is not lost.
        self.answer.ready.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(&self.answer));
        let polled = Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            self.answer.ready.store(true, Ordering::Release);
        }
        polled
    }

    fn next_chunk(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(self.rest.len().min(self.piece_bytes_max));
        self.answer.queued_bytes.fetch_add(bytes.len(), Ordering::AcqRel);
        Frame::data(Bytes::from_owner(TrackedChunk { bytes, answer: Arc::clone(&self.answer) }))
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.answer.ready.store(false, Ordering::Release);
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(this.next_chunk())));
        }
        match std::task::ready!(this.poll_next_frame(context)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) if !bytes.is_empty() => {
                    this.rest = bytes;
                    Poll::Ready(Some(Ok(this.next_chunk())))
                }
                Ok(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Err(trailers) => Poll::Ready(Some(Ok(trailers))),
            },
            end => Poll::Ready(end),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let mut hint = self.body.size_hint();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// A chunk that records that it was sent when it is dropped.
struct TrackedChunk {
    bytes: Bytes,
    answer: Arc<TrackedResponse>,
}

impl AsRef<[u8]> for TrackedChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for TrackedChunk {
    fn drop(&mut self) {
        self.answer.sent_bytes.fetch_add(self.bytes.len(), Ordering::AcqRel);
        self.answer.queued_bytes.fetch_sub(self.bytes.len(), Ordering::AcqRel);
    }
}

/// An executor of hyper's future for each request of an HTTP/2 connection. It drops the future if the response is
/// reset: hyper then resets the stream and discards what is queued of it.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamExecutor {
    /// The response of the future that comes next: hyper calls the service and submits its future immediately after.
    next: Arc<Mutex<Option<Arc<TrackedResponse>>>>,
}

impl StreamExecutor {
    /// Assigns the next future to this response.
    pub(super) fn expect_response(&self, answer: &Arc<TrackedResponse>) {
        *self.next.lock() = Some(Arc::clone(answer));
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let answer = self.next.lock().take();
        tokio::spawn(async move {
            let Some(answer) = answer else {
                future.await;
                return;
            };
            tokio::select! {
                biased;
                _ = future => {}
                () = answer.reset.notified() => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::channel::mpsc;
    use http_body_util::BodyExt;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    fn begin(answers: &ConnectionResponses) -> Arc<TrackedResponse> {
        answers.begin(&Arc::new(ConnectionActivity::new(None, false)))
    }

    fn next(body: &mut TrackedBody) -> Option<Bytes> {
        let frame = body.frame().now_or_never()?;
        frame.map(|frame| frame.unwrap().into_data().unwrap())
    }

    /// Charges one more second and returns the debt.
    fn debt_after_a_second(answer: &TrackedResponse) -> Duration {
        answer.charge(SECOND)
    }

    #[test]
    fn a_body_is_sent_in_chunks_and_unsent_chunks_accrue_debt() {
        let answers = ConnectionResponses::default();
        let answer = begin(&answers);
        let bytes = Bytes::from(vec![7; 5 * ANSWER_PIECE_BYTES / 2]);
        let mut body = TrackedBody::chunked(Body::from(bytes.clone()), Arc::clone(&answer));
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        assert_eq!(debt_after_a_second(&answer), SECOND, "the body is not polled");
        let pieces: Vec<Bytes> = std::iter::from_fn(|| next(&mut body)).collect();
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [16 << 10, 16 << 10, 8 << 10]);
        assert_eq!(pieces.concat(), bytes);
        assert!(body.is_end_stream() && body.size_hint().exact() == Some(0));
        drop(body);
        assert_eq!(debt_after_a_second(&answer), 2 * SECOND, "all of it is queued");
        let mut pieces = pieces.into_iter();
        drop(pieces.next());
        assert_eq!(debt_after_a_second(&answer), 2 * SECOND, "one more second, less the allowance of one chunk");
        drop(pieces);
        assert_eq!(debt_after_a_second(&answer), Duration::ZERO);
    }

    #[test]
    fn an_idle_event_stream_accrues_no_debt() {
        let answers = ConnectionResponses::default();
        let answer = begin(&answers);
        assert_eq!(debt_after_a_second(&answer), Duration::ZERO, "the body has no data yet");
        let (sender, receiver) = mpsc::unbounded::<Result<Bytes, std::io::Error>>();
        let mut body = TrackedBody::chunked(Body::from_stream(receiver), Arc::clone(&answer));
        assert!(next(&mut body).is_none());
        assert_eq!(debt_after_a_second(&answer), Duration::ZERO);
        sender.unbounded_send(Ok(Bytes::from_static(b"news"))).unwrap();
        assert_eq!(debt_after_a_second(&answer), SECOND, "the body has data and is not polled");
        drop(next(&mut body).unwrap());
        assert!(next(&mut body).is_none());
        assert_eq!(debt_after_a_second(&answer), Duration::ZERO);
    }

    #[test]
    fn a_response_past_its_allowance_is_reset_and_then_its_connection_ends() {
        let answers = ConnectionResponses::default();
        let answer = begin(&answers);
        let body = TrackedBody::chunked(Body::from("text"), Arc::clone(&answer));
        assert!(!answers.charge(MINUTE, MINUTE));
        assert!(answer.reset.notified().now_or_never().is_none());
        assert!(!answers.charge(SECOND, MINUTE));
        assert!(answer.reset.notified().now_or_never().is_some());
        assert!(answers.charge(MINUTE, MINUTE));
        drop((body, answer));
        assert!(!answers.charge(MINUTE, MINUTE));
    }

    #[test]
    fn sent_responses_are_pruned() {
        let answers = ConnectionResponses::default();
        let open_responses: Vec<_> = (0..10).map(|_| begin(&answers)).collect();
        for _ in 0..10 * PRUNE_AT_MIN {
            begin(&answers);
        }
        assert!(answers.list.lock().answers.len() <= PRUNE_AT_MIN);
        drop(open_responses);
    }
}
