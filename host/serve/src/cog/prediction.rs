//! One prediction from its request to its end: its state, and the events that clients read.
//!
//! It ends once: after it has succeeded, failed or been cancelled, nothing changes it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use saggar_jobs::logs::timestamp;
use saggar_rest::predictions::{PredictionDocument, PredictionMetrics};
use saggar_store::digest::Digest;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::owner::PredictionOwner;
use super::prediction_status::{CogPredictionOutcome, CogPredictionStatus};
use super::shared_json::SharedJson;
use super::snapshot::PredictionSnapshot;
use crate::limits::{PREDICTION_EVENTS_BYTES_MAX, PREDICTION_INPUT_BYTES_MAX};

/// A prediction as clients see it. Its input and outputs are stored as text.
pub(super) type CogPredictionDocument = PredictionDocument<SharedJson>;

/// An event that is sent to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CogPredictionEvent {
    Start,
    /// A chunk of an output, as JSON.
    Output(Arc<str>),
    Metric,
    Completed,
}

/// One prediction.
#[derive(Debug)]
pub(super) struct CogPrediction {
    pub(super) owner: PredictionOwner,
    pub(super) id: String,
    /// The name of the model that computes it.
    model: String,
    version: u64,
    /// The digest of the request, or `None` if the server chose the identifier.
    digest: Option<Digest>,
    /// The input as it was sent, if it is small.
    input: Option<SharedJson>,
    created_ms: u64,
    state: Mutex<CogPredictionState>,
    /// The number of events.
    events: watch::Sender<usize>,
}

#[derive(Debug)]
struct CogPredictionState {
    status: CogPredictionStatus,
    started_ms: Option<u64>,
    completed_ms: Option<u64>,
    output: Option<SharedJson>,
    error: Option<String>,
    predict_time: Option<Duration>,
    events: Vec<CogPredictionEvent>,
    events_bytes: usize,
    task: Option<AbortHandle>,
}

impl CogPrediction {
    /// Creates a prediction of this owner by this version of a model.
    pub(super) fn new(
        (owner, id): (PredictionOwner, String),
        (model, version): (String, u64),
        digest: Option<Digest>,
        input: &Bytes,
        now_ms: u64,
    ) -> CogPrediction {
        // A copy, so that the rest of the request's body is freed.
        let input = Some(input).filter(|input| input.len() <= PREDICTION_INPUT_BYTES_MAX);
        let input = input.and_then(|input| SharedJson::copy_from_slice(input).ok());
        let state = CogPredictionState {
            status: CogPredictionStatus::Starting,
            started_ms: None,
            completed_ms: None,
            output: None,
            error: None,
            predict_time: None,
            events: vec![CogPredictionEvent::Start],
            events_bytes: 0,
            task: None,
        };
        let state = Mutex::new(state);
        CogPrediction {
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

    /// Creates a prediction that another server computes, as it was recorded.
    pub(super) fn from_snapshot(
        (owner, id): (PredictionOwner, String),
        digest: Option<Digest>,
        snapshot: &PredictionSnapshot,
    ) -> CogPrediction {
        let by = (snapshot.model.clone(), snapshot.version);
        let mut prediction = CogPrediction::new((owner, id), by, digest, &Bytes::new(), snapshot.created_ms);
        prediction.input.clone_from(&snapshot.input);
        if let Some(started_ms) = snapshot.started_ms {
            prediction.mark_started(started_ms);
        }
        if let Some((end, completed_ms)) = snapshot.end() {
            prediction.finish(end, completed_ms);
        }
        prediction
    }

    /// Returns the prediction as other servers see it.
    pub(super) fn snapshot(&self) -> PredictionSnapshot {
        let state = self.lock_state();
        PredictionSnapshot {
            model: self.model.clone(),
            version: self.version,
            status: state.status,
            input: self.input.clone(),
            output: state.output.clone(),
            error: state.error.clone(),
            created_ms: self.created_ms,
            started_ms: state.started_ms,
            completed_ms: state.completed_ms,
            predict_nanos: state.predict_time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    /// Returns the digest of the request, or `None` if the server chose the identifier.
    pub(super) fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    // A panic while the lock is held leaves the state consistent: each change is a single step.
    fn lock_state(&self) -> MutexGuard<'_, CogPredictionState> {
        self.state.lock()
    }

    /// Returns whether the request with this digest is the same. A prediction whose identifier the server chose matches
    /// no request.
    pub(super) fn matches_request(&self, digest: &Digest) -> bool {
        self.digest.as_ref() == Some(digest)
    }

    pub(super) fn status(&self) -> CogPredictionStatus {
        self.lock_state().status
    }

    /// Returns the bytes that it occupies in the store.
    pub(super) fn stored_bytes(&self) -> usize {
        let state = self.lock_state();
        let json = |json: &Option<SharedJson>| json.as_ref().map_or(0, |json| json.as_str().len());
        size_of::<CogPrediction>()
            + json(&self.input)
            + json(&state.output)
            + state.error.as_ref().map_or(0, String::len)
            + state.events_bytes
            + state.events.len() * size_of::<CogPredictionEvent>()
    }

    /// Sets the task that computes it. Aborts the task if the prediction was cancelled in the meantime.
    pub(super) fn set_task(&self, task: AbortHandle) {
        let mut state = self.lock_state();
        if state.status.is_terminal() { task.abort() } else { state.task = Some(task) }
    }

    /// Marks the prediction as started, unless it is marked already.
    pub(super) fn mark_started(&self, now_ms: u64) {
        let mut state = self.lock_state();
        if state.status == CogPredictionStatus::Starting {
            state.status = CogPredictionStatus::Processing;
            state.started_ms = Some(now_ms);
        }
    }

    /// Adds an event with a chunk of an output if there is space. The final output contains it too.
    pub(super) fn push_output_piece(&self, json: &str) {
        let mut state = self.lock_state();
        let bytes = json.len() + size_of::<CogPredictionEvent>();
        if state.status.is_terminal() || state.events_bytes + bytes > PREDICTION_EVENTS_BYTES_MAX {
            return;
        }
        state.events_bytes += bytes;
        state.events.push(CogPredictionEvent::Output(json.into()));
        self.events.send_replace(state.events.len());
    }

    /// Ends the prediction unless it has ended. Returns whether it did.
    pub(super) fn finish(&self, end: CogPredictionOutcome, now_ms: u64) -> bool {
        let mut state = self.lock_state();
        if state.status.is_terminal() {
            return false;
        }
        state.completed_ms = Some(now_ms);
        match end {
            CogPredictionOutcome::Succeeded(output, time) => {
                state.status = CogPredictionStatus::Succeeded;
                state.output = Some(output);
                state.predict_time = Some(time);
                state.events.push(CogPredictionEvent::Metric);
            }
            CogPredictionOutcome::Failed(error) => {
                state.status = CogPredictionStatus::Failed;
                state.error = Some(error);
            }
            CogPredictionOutcome::Canceled => {
                state.status = CogPredictionStatus::Canceled;
                if let Some(task) = state.task.take() {
                    task.abort();
                }
            }
        }
        state.events.push(CogPredictionEvent::Completed);
        self.events.send_replace(state.events.len());
        true
    }

    /// Waits until it has finished.
    pub(super) async fn wait_until_finished(&self) {
        let mut events = self.events.subscribe();
        while !self.status().is_terminal() {
            // The sender lives as long as this prediction, so this never fails.
            let _ = events.changed().await;
        }
    }

    /// Waits for the event of index `at`, starting at 0. Returns `None` after the last.
    pub(super) async fn wait_for_event(&self, at: usize) -> Option<CogPredictionEvent> {
        let mut events = self.events.subscribe();
        loop {
            {
                let state = self.lock_state();
                if let Some(event) = state.events.get(at) {
                    return Some(event.clone());
                }
                if state.status.is_terminal() {
                    return None;
                }
            }
            let _ = events.changed().await;
        }
    }

    /// Returns an event's name and data.
    pub(super) fn event_payload(&self, event: &CogPredictionEvent) -> (&'static str, String) {
        match event {
            CogPredictionEvent::Start => ("start", to_json(&self.initial_document())),
            CogPredictionEvent::Output(piece) => ("output", piece.to_string()),
            CogPredictionEvent::Metric => {
                let time = self.lock_state().predict_time.unwrap_or_default();
                ("metric", to_json(&PredictionMetrics { predict_time: Some(time.as_secs_f64()) }))
            }
            CogPredictionEvent::Completed => ("completed", self.to_json()),
        }
    }

    /// Returns the prediction as JSON.
    pub(super) fn to_json(&self) -> String {
        to_json(&self.document())
    }

    /// Returns the prediction as clients see it.
    pub(super) fn document(&self) -> CogPredictionDocument {
        let state = self.lock_state();
        CogPredictionDocument {
            status: state.status.name().to_owned(),
            output: state.output.clone(),
            error: state.error.clone(),
            started_at: state.started_ms.map(format_time),
            completed_at: state.completed_ms.map(format_time),
            metrics: PredictionMetrics { predict_time: state.predict_time.map(|time| time.as_secs_f64()) },
            ..self.initial_document()
        }
    }

    /// Returns the prediction as clients saw it when it was created.
    fn initial_document(&self) -> CogPredictionDocument {
        CogPredictionDocument {
            id: self.id.clone(),
            model: self.model.clone(),
            version: self.version.to_string(),
            status: CogPredictionStatus::Starting.name().to_owned(),
            input: self.input.clone(),
            output: None,
            error: None,
            logs: String::new(),
            created_at: format_time(self.created_ms),
            started_at: None,
            completed_at: None,
            metrics: PredictionMetrics::default(),
        }
    }
}

fn format_time(ms: u64) -> String {
    timestamp(i64::try_from(ms).unwrap_or(i64::MAX))
}

fn to_json(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("the document has text as keys")
}
