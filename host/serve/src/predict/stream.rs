//! Answers that go out in pieces, as server-sent events: `piece` for what a plugin sends ahead, then `done` with the whole
//! answer, or `error`.
//!
//! The head goes out with the first piece, so a prediction that fails before it is answered with its status like any
//! other. Events wait in a bounded queue: while it is full the plugin waits, until its deadline. Once the client is gone
//! the plugin is told so. Source of the form: WHATWG HTML, server-sent events.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures::StreamExt;
use futures::stream;
use saggar_plugin::{Piece, PieceSink, Undelivered};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendTimeoutError, TrySendError};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::call::{Call, add_warnings};
use super::decode::Inputs;
use super::encode;
use super::text::Pieces;
use crate::error::ApiError;
use crate::limits::PIECES_WAITING_MAX;
use crate::memory::{AnswerCharge, MemoryCharge};
use crate::models::Serving;
use crate::observe::RequestId;

const EVENTS: &str = "text/event-stream";

/// Computes, and answers with events once there is a first one.
///
/// # Errors
/// Whatever goes wrong before it.
pub(super) async fn answer(call: Call, inputs: Inputs, id: RequestId) -> Result<Response, ApiError> {
    let serving = Arc::clone(call.serving());
    let warnings = inputs.warnings.clone();
    let (mut pieces, working) = begin(call, inputs);
    let mut charge_later = None;
    // There are pieces until the work lets go of their queue.
    let body = match pieces.recv().await {
        Some(first) => events(first, pieces, working, id),
        None => {
            let EncodedAnswer { json, charge } = ended(working).await?;
            charge_later = Some(charge);
            Body::from(event("done", &json))
        }
    };
    let mut response = Response::new(body);
    if let Some(charge) = charge_later {
        response.extensions_mut().insert(AnswerCharge::new(charge));
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    serving.about().add_to(headers);
    add_warnings(&warnings, headers);
    Ok(response)
}

/// Computes in a task of its own: pieces as JSON until it is done, and the task.
pub(crate) fn begin(call: Call, inputs: Inputs) -> (mpsc::Receiver<String>, Work) {
    let (queue, pieces) = mpsc::channel(PIECES_WAITING_MAX);
    let sink = Sink {
        serving: Arc::clone(call.serving()),
        items: inputs.items,
        until: call.deadline().until(),
        texts: Mutex::default(),
        queue,
        runtime: Handle::current(),
    };
    // With the set goes its task: where nobody reads the answer any more, nobody computes it either.
    let mut working = JoinSet::new();
    working.spawn(work(call, inputs, Arc::new(sink)));
    (pieces, working)
}

/// What computes; it gives the whole answer as JSON.
pub(crate) type Work = JoinSet<Result<EncodedAnswer, ApiError>>;

/// The whole answer as JSON, and the memory that is charged for it.
#[derive(Debug)]
pub(crate) struct EncodedAnswer {
    pub(crate) json: String,
    charge: MemoryCharge,
}

/// The whole answer.
///
/// # Errors
/// Whatever went wrong.
pub(crate) async fn ended(mut work: Work) -> Result<EncodedAnswer, ApiError> {
    let lost = |cause: String| ApiError::Internal { cause: format!("predicting: {cause}") };
    let ended = work.join_next().await.ok_or_else(|| lost("the task is gone".to_owned()))?;
    ended.map_err(|error| lost(error.to_string()))?
}

/// Every piece as it comes, and the end. Dropping it, as when the client is gone, tells the plugin to give up.
fn events(first: String, mut pieces: mpsc::Receiver<String>, work: Work, id: RequestId) -> Body {
    let later = stream::poll_fn(move |context| pieces.poll_recv(context));
    let pieces = stream::iter([first]).chain(later).map(|json| event("piece", &json));
    // Kept until the stream is dropped: the client may take its time for the last event.
    let kept = Arc::new(Mutex::new(None));
    let charge_of_end = Arc::clone(&kept);
    let end = stream::once(async move {
        match ended(work).await {
            Ok(EncodedAnswer { json, charge }) => {
                *charge_of_end.lock().unwrap_or_else(PoisonError::into_inner) = Some(charge);
                event("done", &json)
            }
            // The head is out already, so the status has nowhere to go.
            Err(error) => event("error", &error.body().json(&id.0)),
        }
    });
    Body::from_stream(pieces.chain(end).map(move |event| {
        let _charge = &kept;
        Ok::<String, Infallible>(event)
    }))
}

/// JSON has no line breaks outside of its strings, and escapes those inside.
fn event(name: &str, json: &str) -> String {
    format!("event: {name}\ndata: {json}\n\n")
}

/// Computes and encodes. Whether the client is still there shows at the next piece, which tells the plugin.
async fn work(call: Call, inputs: Inputs, sink: Arc<Sink>) -> Result<EncodedAnswer, ApiError> {
    let pieces: Arc<dyn PieceSink> = Arc::<Sink>::clone(&sink);
    let mut answer = call.run_with(inputs, Some(pieces)).await?;
    sink.finish().await;
    let json = answer.encode(|answer| encode::json(answer.signature(), &answer.tensors, answer.items))?;
    let charge = answer.charge_of_text(Some(json.len() as u64));
    Ok(EncodedAnswer { json, charge })
}

/// Makes events of pieces, on the thread that predicts.
#[derive(Debug)]
struct Sink {
    serving: Arc<Serving>,
    /// The batch that was asked for, or none for one item.
    items: Option<usize>,
    /// When the answer must be whole.
    until: Instant,
    /// Characters that have not come to their end, by output and item.
    texts: Mutex<BTreeMap<(usize, usize), Pieces>>,
    queue: mpsc::Sender<String>,
    runtime: Handle,
}

impl Sink {
    /// The number of an item as clients see it: none where there is no batch.
    fn item(&self, item: usize) -> Option<usize> {
        self.items.map(|_| item)
    }

    /// Queues an event, and waits for room until then.
    fn send(&self, json: String, until: Instant) -> Result<(), Undelivered> {
        match self.queue.try_send(json) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(Undelivered::Gone),
            Err(TrySendError::Full(json)) => {
                let left = until.saturating_duration_since(Instant::now());
                match self.runtime.block_on(self.queue.send_timeout(json, left)) {
                    Ok(()) => Ok(()),
                    Err(SendTimeoutError::Closed(_)) => Err(Undelivered::Gone),
                    Err(SendTimeoutError::Timeout(_)) => Err(Undelivered::Late),
                }
            }
        }
    }

    /// Sends what is left of texts that ended within a character.
    async fn finish(&self) {
        let texts = std::mem::take(&mut *self.texts.lock().unwrap_or_else(PoisonError::into_inner));
        let outputs = &self.serving.predictor().signature().outputs;
        for ((output, item), mut pieces) in texts {
            let rest = pieces.rest();
            let Some(port) = outputs.get(output).filter(|_| !rest.is_empty()) else { continue };
            let json = encode::text_piece(port, self.item(item), &rest);
            if timeout_at(self.until.into(), self.queue.send(json)).await.is_err() {
                // The whole answer has it too.
                return;
            }
        }
    }
}

impl PieceSink for Sink {
    fn piece(&self, piece: Piece, until: Instant) -> Result<(), Undelivered> {
        if self.queue.is_closed() {
            return Err(Undelivered::Gone);
        }
        let Piece { output, item, shape, bytes } = piece;
        let Some(port) = self.serving.predictor().signature().outputs.get(output) else { return Ok(()) };
        if port.text_bytes().is_none() {
            return self.send(encode::piece(port, self.item(item), &shape, &bytes), until);
        }
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let text = texts.entry((output, item)).or_default().next(&bytes);
        drop(texts);
        if text.is_empty() {
            return Ok(());
        }
        self.send(encode::text_piece(port, self.item(item), &text), until)
    }

    fn is_gone(&self) -> bool {
        self.queue.is_closed()
    }
}
