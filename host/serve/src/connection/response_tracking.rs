//! The answers of a connection on their way to its client.
//!
//! HTTP/2 lets a client take nothing of an answer while its connection is as lively as any: it gives a stream no window,
//! and answers pings. So each answer is charged for the time in which something of it waits for the client, and credited
//! for the bytes that were sent ([`ANSWER_BYTES_PER_SECOND_MIN`]). One that owes more than the client may be quiet for is
//! reset. Bodies go out in pieces, and each piece knows when it is sent: the protocol's own queue is a part of the way.
//! An answer that has nothing to say, as a stream of events often does, is charged for nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::task::AtomicWaker;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::sync::Notify;

use super::activity::{ConnectionActivity, RunningRequest};
use crate::limits::{ANSWER_BYTES_PER_SECOND_MIN, ANSWER_PIECE_BYTES, HTTP2_STREAMS_MAX};

/// Answers that are kept before those that are sent are looked for.
const PRUNE_AT_MIN: usize = 2 * HTTP2_STREAMS_MAX as usize;

/// The answers of one connection.
#[derive(Debug)]
pub(super) struct ConnectionResponses {
    list: Mutex<ResponseList>,
}

#[derive(Debug)]
struct ResponseList {
    answers: Vec<Weak<TrackedResponse>>,
    /// How many there are before those that are sent are dropped.
    prune_at: usize,
}

impl Default for ConnectionResponses {
    fn default() -> ConnectionResponses {
        ConnectionResponses { list: Mutex::new(ResponseList { answers: Vec::new(), prune_at: PRUNE_AT_MIN }) }
    }
}

impl ConnectionResponses {
    /// The answer to a request that begins now.
    pub(super) fn begin(&self, activity: &Arc<ConnectionActivity>) -> Arc<TrackedResponse> {
        let answer = TrackedResponse::begin(activity);
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.answers.len() >= list.prune_at {
            list.answers.retain(|answer| answer.strong_count() > 0);
            list.prune_at = PRUNE_AT_MIN.max(2 * list.answers.len());
        }
        list.answers.push(Arc::downgrade(&answer));
        answer
    }

    /// Charges every answer for `elapsed`, the time since the last call, and resets those that owe more than `quiet_max`.
    /// Returns whether the connection has to end: a reset did not help, because the answer is out of hyper's hands.
    pub(super) fn charge(&self, elapsed: Duration, quiet_max: Duration) -> bool {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
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

/// One answer, from its request's head until the last of its bytes is sent.
#[derive(Debug)]
pub(super) struct TrackedResponse {
    _running: RunningRequest,
    /// Whether the body is there, and there may be something in it that nobody has asked for.
    ready: AtomicBool,
    /// Who asks the body.
    task: AtomicWaker,
    /// Bytes of pieces that are not sent.
    queued_bytes: AtomicUsize,
    /// Bytes of pieces that were sent since the last charge.
    sent_bytes: AtomicUsize,
    debt: Mutex<Duration>,
    reset: Notify,
}

impl TrackedResponse {
    /// The answer to a request that begins now.
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

    /// Returns what it owes.
    fn charge(&self, elapsed: Duration) -> Duration {
        let sent = self.sent_bytes.swap(0, Ordering::AcqRel);
        let waits = self.queued_bytes.load(Ordering::Acquire) > 0 || self.ready.load(Ordering::Acquire);
        let mut debt = self.debt.lock().unwrap_or_else(PoisonError::into_inner);
        *debt = if waits { (*debt + elapsed).saturating_sub(time_allowance(sent)) } else { Duration::ZERO };
        *debt
    }
}

/// How long a client may take for so many bytes.
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

/// The body of an answer.
#[derive(Debug)]
pub(super) struct TrackedBody {
    body: Body,
    answer: Arc<TrackedResponse>,
    /// What is left of a frame that was longer than a piece.
    rest: Bytes,
    piece_bytes_max: usize,
}

impl TrackedBody {
    /// One whose pieces are charged for: small ones, so that one that is sent says something.
    pub(super) fn chunked(body: Body, answer: Arc<TrackedResponse>) -> TrackedBody {
        answer.ready.store(true, Ordering::Release);
        TrackedBody { body, answer, rest: Bytes::new(), piece_bytes_max: ANSWER_PIECE_BYTES }
    }

    /// One that only makes its request run until it is sent.
    pub(super) fn unchunked(body: Body, answer: Arc<TrackedResponse>) -> TrackedBody {
        TrackedBody { body, answer, rest: Bytes::new(), piece_bytes_max: usize::MAX }
    }

    fn poll_next_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.piece_bytes_max == usize::MAX {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        self.answer.task.register(context.waker());
        // Before it is asked: what wakes meanwhile is then not forgotten.
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

/// Bytes that say when they are sent: they are dropped then.
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

/// Runs what hyper makes of each request of an HTTP/2 connection, until it is done or its answer is reset: hyper resets a
/// stream whose future is dropped, and drops what is queued of it.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamExecutor {
    /// The answer of the request whose future comes next: hyper calls the service and hands over its future at once.
    next: Arc<Mutex<Option<Arc<TrackedResponse>>>>,
}

impl StreamExecutor {
    /// The future that comes next is this answer's.
    pub(super) fn expect_response(&self, answer: &Arc<TrackedResponse>) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(answer));
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let answer = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
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

    /// What an answer owes after a second more.
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
        assert_eq!(debt_after_a_second(&answer), SECOND, "nobody asks for it");
        let pieces: Vec<Bytes> = std::iter::from_fn(|| next(&mut body)).collect();
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [16 << 10, 16 << 10, 8 << 10]);
        assert_eq!(pieces.concat(), bytes);
        assert!(body.is_end_stream() && body.size_hint().exact() == Some(0));
        drop(body);
        assert_eq!(debt_after_a_second(&answer), 2 * SECOND, "all of it is queued");
        let mut pieces = pieces.into_iter();
        drop(pieces.next());
        assert_eq!(debt_after_a_second(&answer), 2 * SECOND, "a second more, less what a piece is worth");
        drop(pieces);
        assert_eq!(debt_after_a_second(&answer), Duration::ZERO);
    }

    #[test]
    fn an_idle_event_stream_accrues_no_debt() {
        let answers = ConnectionResponses::default();
        let answer = begin(&answers);
        assert_eq!(debt_after_a_second(&answer), Duration::ZERO, "it is computed");
        let (sender, receiver) = mpsc::unbounded::<Result<Bytes, std::io::Error>>();
        let mut body = TrackedBody::chunked(Body::from_stream(receiver), Arc::clone(&answer));
        assert!(next(&mut body).is_none());
        assert_eq!(debt_after_a_second(&answer), Duration::ZERO);
        sender.unbounded_send(Ok(Bytes::from_static(b"news"))).unwrap();
        assert_eq!(debt_after_a_second(&answer), SECOND, "there is news that nobody asks for");
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
        let kept: Vec<_> = (0..10).map(|_| begin(&answers)).collect();
        for _ in 0..10 * PRUNE_AT_MIN {
            begin(&answers);
        }
        assert!(answers.list.lock().unwrap().answers.len() <= PRUNE_AT_MIN);
        drop(kept);
    }
}
