//! One prediction from its request to its end: its state, and the events that clients read.
//!
//! It ends once: whatever comes after succeeding, failing or being canceled changes nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use saggar_jobs::logs::timestamp;
use saggar_store::digest::Digest;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::owner::PredictionOwner;
use crate::limits::{PREDICTION_EVENTS_BYTES_MAX, PREDICTION_INPUT_BYTES_MAX};

/// Where a prediction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Starting,
    Processing,
    Succeeded,
    Failed,
    Canceled,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Starting => "starting",
            Status::Processing => "processing",
            Status::Succeeded => "succeeded",
            Status::Failed => "failed",
            Status::Canceled => "canceled",
        }
    }

    pub(super) fn is_over(self) -> bool {
        matches!(self, Status::Succeeded | Status::Failed | Status::Canceled)
    }
}

/// How a prediction ended.
#[derive(Debug)]
pub(super) enum End {
    /// With outputs, as JSON, computed in this time.
    Succeeded(String, Duration),
    /// With this error.
    Failed(String),
    Canceled,
}

/// What a client that reads events is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Start,
    /// A piece of an output, as JSON.
    Output(Arc<str>),
    Metric,
    Completed,
}

/// One prediction.
#[derive(Debug)]
pub(super) struct Prediction {
    pub(super) owner: PredictionOwner,
    pub(super) id: String,
    /// The model that computes it.
    model: String,
    version: u64,
    /// Of what was asked for.
    digest: Option<Digest>,
    /// The input as it was sent, where it is small.
    input: Option<Bytes>,
    created_ms: u64,
    state: Mutex<State>,
    /// How many events there are.
    events: watch::Sender<usize>,
}

#[derive(Debug)]
struct State {
    status: Status,
    started_ms: Option<u64>,
    completed_ms: Option<u64>,
    output: Option<String>,
    error: Option<String>,
    predict_time: Option<Duration>,
    events: Vec<Event>,
    events_bytes: usize,
    task: Option<AbortHandle>,
}

impl Prediction {
    /// A prediction of this owner, by this version of a model.
    pub(super) fn new(
        (owner, id): (PredictionOwner, String),
        (model, version): (String, u64),
        digest: Option<Digest>,
        input: &Bytes,
        now_ms: u64,
    ) -> Prediction {
        // A copy, so that the rest of the request's body is let go.
        let input = (input.len() <= PREDICTION_INPUT_BYTES_MAX).then(|| Bytes::copy_from_slice(input));
        let state = State {
            status: Status::Starting,
            started_ms: None,
            completed_ms: None,
            output: None,
            error: None,
            predict_time: None,
            events: vec![Event::Start],
            events_bytes: 0,
            task: None,
        };
        let state = Mutex::new(state);
        Prediction {
            owner,
            id,
            model,
            version,
            digest,
            input,
            created_ms: now_ms,
            state,
            events: watch::Sender::new(1),
        }
    }

    // A panic while the lock is held leaves the state whole: each change is made at once.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is what was asked for. One whose identifier the server chose is never asked for again.
    pub(super) fn is_of(&self, digest: &Digest) -> bool {
        self.digest.as_ref() == Some(digest)
    }

    pub(super) fn status(&self) -> Status {
        self.state().status
    }

    /// Bytes of it that are kept.
    pub(super) fn bytes(&self) -> usize {
        let state = self.state();
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        size_of::<Prediction>()
            + self.input.as_ref().map_or(0, Bytes::len)
            + text(&state.output)
            + text(&state.error)
            + state.events_bytes
            + state.events.len() * size_of::<Event>()
    }

    /// It is being computed, by `task`, unless somebody canceled it in the meantime.
    pub(super) fn process(&self, task: AbortHandle) {
        let mut state = self.state();
        if state.status.is_over() { task.abort() } else { state.task = Some(task) }
    }

    /// Its turn has come.
    pub(super) fn start(&self, now_ms: u64) {
        let mut state = self.state();
        if !state.status.is_over() {
            state.status = Status::Processing;
            state.started_ms = Some(now_ms);
        }
    }

    /// Adds a piece of an output, while there is room: the whole output has it too.
    pub(super) fn piece(&self, json: &str) {
        let mut state = self.state();
        let bytes = json.len() + size_of::<Event>();
        if state.status.is_over() || state.events_bytes + bytes > PREDICTION_EVENTS_BYTES_MAX {
            return;
        }
        state.events_bytes += bytes;
        state.events.push(Event::Output(json.into()));
        self.events.send_replace(state.events.len());
    }

    /// Ends it, unless it is over. Gives whether it was not.
    pub(super) fn end(&self, end: End, now_ms: u64) -> bool {
        let mut state = self.state();
        if state.status.is_over() {
            return false;
        }
        state.completed_ms = Some(now_ms);
        match end {
            End::Succeeded(output, time) => {
                state.status = Status::Succeeded;
                state.output = Some(output);
                state.predict_time = Some(time);
                state.events.push(Event::Metric);
            }
            End::Failed(error) => {
                state.status = Status::Failed;
                state.error = Some(error);
            }
            End::Canceled => {
                state.status = Status::Canceled;
                if let Some(task) = state.task.take() {
                    task.abort();
                }
            }
        }
        state.events.push(Event::Completed);
        self.events.send_replace(state.events.len());
        true
    }

    /// Waits until it is over.
    pub(super) async fn over(&self) {
        let mut events = self.events.subscribe();
        while !self.status().is_over() {
            // The sender lives as long as this prediction does.
            let _ = events.changed().await;
        }
    }

    /// The event of this number, from 0, once it is there; none after the last.
    pub(super) async fn event(&self, at: usize) -> Option<Event> {
        let mut events = self.events.subscribe();
        loop {
            {
                let state = self.state();
                if let Some(event) = state.events.get(at) {
                    return Some(event.clone());
                }
                if state.status.is_over() {
                    return None;
                }
            }
            let _ = events.changed().await;
        }
    }

    /// An event's name and data.
    pub(super) fn told(&self, event: &Event) -> (&'static str, String) {
        match event {
            Event::Start => ("start", self.json_as(Some(Status::Starting))),
            Event::Output(piece) => ("output", piece.to_string()),
            Event::Metric => {
                let time = self.state().predict_time.unwrap_or_default().as_secs_f64();
                ("metric", json!({ "predict_time": time }).to_string())
            }
            Event::Completed => ("completed", self.json()),
        }
    }

    /// It as JSON.
    pub(super) fn json(&self) -> String {
        self.json_as(None)
    }

    /// It as JSON; as it was when it was made, where that is asked for. The input and the output are text already.
    fn json_as(&self, earlier: Option<Status>) -> String {
        let state = self.state();
        let is_earlier = earlier.is_some();
        let time = |ms: Option<u64>| ms.map(|ms| timestamp(i64::try_from(ms).unwrap_or(i64::MAX)));
        let later = |ms: Option<u64>| time(ms.filter(|_| !is_earlier));
        let metrics =
            state.predict_time.filter(|_| !is_earlier).map(|time| json!({ "predict_time": time.as_secs_f64() }));
        let head = json!({
            "id": self.id,
            "model": self.model,
            "version": self.version.to_string(),
            "status": earlier.unwrap_or(state.status).name(),
        });
        let tail = json!({
            "error": state.error.as_ref().filter(|_| !is_earlier),
            "logs": "",
            "created_at": time(Some(self.created_ms)),
            "started_at": later(state.started_ms),
            "completed_at": later(state.completed_ms),
            "metrics": metrics.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
        });
        let (head, tail) = (head.to_string(), tail.to_string());
        let input = self.input.as_ref().map(|input| String::from_utf8_lossy(input));
        let input = input.map(|input| format!("\"input\":{input},")).unwrap_or_default();
        let output = state.output.as_deref().filter(|_| !is_earlier).unwrap_or("null");
        format!("{},{input}\"output\":{output},{}", &head[..head.len() - 1], &tail[1..])
    }
}
