//! One prediction, whatever protocol asked for it: a place in a version's queue, a turn to compute, an answer with its
//! times. Protocols decode their inputs by its signature and encode its outputs; everything between is here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use saggar_metrics::Metrics;
use saggar_plugin::{PieceSink, Signature};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

use super::decode::{Inputs, Tensor};
use super::outcome::Record;
use super::reference::Reference;
use crate::app::App;
use crate::error::ApiError;
use crate::limits::{DEADLINE_DEFAULT, DEADLINE_MAX};
use crate::models::{Lease, Serving};

/// The header by which a client says how many milliseconds a prediction may take.
const DEADLINE_MS: &str = "x-saggar-deadline-ms";

/// When a prediction must be over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    began: Instant,
    limit: Duration,
}

impl Deadline {
    /// The time that the client gives, or the default, from now on. To be called when the request has arrived.
    ///
    /// # Errors
    /// `Parameter` where the header has no positive number.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Deadline, ApiError> {
        let began = Instant::now();
        let Some(value) = headers.get(DEADLINE_MS) else { return Ok(Deadline { began, limit: DEADLINE_DEFAULT }) };
        let milliseconds = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok()).filter(|&ms| ms > 0);
        let milliseconds = milliseconds.ok_or_else(|| ApiError::Parameter {
            name: "X-Saggar-Deadline-Ms",
            expected: "a whole number of milliseconds above 0",
            got: String::from_utf8_lossy(value.as_bytes()).chars().take(80).collect(),
        })?;
        Ok(Deadline { began, limit: Duration::from_millis(milliseconds).min(DEADLINE_MAX) })
    }
}

/// A prediction that holds a place in its version's queue.
#[derive(Debug)]
pub(crate) struct Call {
    metrics: Arc<Metrics>,
    // Dropped before the lease: once the version is drained, nothing counts for it any more.
    record: Record,
    lease: Arc<Lease>,
    deadline: Deadline,
}

impl Call {
    /// Takes a place for a prediction by the version that `reference` means; none means the default model. To be called
    /// once the body is whole: a slow client must not keep a version from draining.
    ///
    /// # Errors
    /// Where there is no such model or version, it is not ready, or its queue is full.
    pub(crate) async fn begin(app: &App, reference: Option<&Reference>, deadline: Deadline) -> Result<Call, ApiError> {
        let lease = app.models().lease(reference).inspect_err(|error| rejected(app.metrics(), error))?;
        let record = Record::begin(Arc::clone(app.metrics()), lease.serving());
        Ok(Call { metrics: Arc::clone(app.metrics()), record, lease: Arc::new(lease), deadline })
    }

    /// What the version takes and gives.
    pub(crate) fn signature(&self) -> &Signature {
        self.serving().predictor().signature()
    }

    /// The version.
    pub(crate) fn serving(&self) -> &Serving {
        self.lease.serving()
    }

    /// Runs `decode`, which makes inputs of a body, and counts its time and its failure.
    ///
    /// # Errors
    /// Those of `decode`.
    pub(crate) fn decode<T, E: Into<ApiError>>(
        &mut self,
        decode: impl FnOnce(&Signature) -> Result<T, E>,
    ) -> Result<T, ApiError> {
        let began = Instant::now();
        let result = decode(self.signature()).map_err(Into::into);
        self.decoded(began, result)
    }

    /// As [`Call::decode`], for inputs that were decoded since `began`.
    pub(crate) fn decoded<T>(&mut self, began: Instant, result: Result<T, ApiError>) -> Result<T, ApiError> {
        self.record.phase("decode", began.elapsed());
        if result.is_err() {
            self.record.end(&result);
        }
        result
    }

    /// Computes.
    ///
    /// # Errors
    /// `DeadlineQueued`; whatever the plugin does wrong.
    pub(crate) async fn run(self, inputs: Inputs) -> Result<Answer, ApiError> {
        let Call { metrics, mut record, lease, deadline } = self;
        let result = match Turn::wait(&metrics, &lease, inputs, deadline, &record).await {
            Ok(turn) => compute(turn).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &result {
            rejected(&metrics, error);
        }
        record.end(&result);
        let (tensors, items, times) = result?;
        record.phase("compute", times.compute);
        Ok(Answer { tensors, items, times, about: About::of(lease.serving()), deadline, record, lease })
    }

    /// Waits for the turn, for an answer that comes in pieces.
    pub(super) async fn turn(self, inputs: Inputs) -> Result<(Turn, Record), ApiError> {
        let Call { metrics, mut record, lease, deadline } = self;
        match Turn::wait(&metrics, &lease, inputs, deadline, &record).await {
            Ok(turn) => Ok((turn, record)),
            Err(error) => {
                rejected(&metrics, &error);
                let result: Result<(), ApiError> = Err(error);
                record.end(&result);
                result.map(|()| unreachable!("it is an error"))
            }
        }
    }
}

/// Counts a request that was refused before it reached its model.
pub(crate) fn rejected(metrics: &Metrics, error: &ApiError) {
    let reason = match error {
        ApiError::QueueFull { .. } => "queue_full",
        ApiError::DeadlineQueued { .. } => "deadline",
        ApiError::NotReady { .. } | ApiError::NothingReady | ApiError::VersionNotServing { .. } => "not_ready",
        ApiError::TooLarge { .. } => "too_large",
        _ => return,
    };
    metrics.families.requests_rejected.with_label_values(&[reason]).inc();
}

/// How long the parts of a prediction took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) queue: Duration,
    pub(crate) compute: Duration,
}

/// What a prediction gave.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The outputs in the signature's order, `[items, item...]`; one item where no batch was asked for.
    pub(crate) tensors: Vec<Tensor>,
    /// The batch that was asked for, or none for one item without a batch.
    pub(crate) items: Option<usize>,
    /// What it took.
    pub(crate) times: Times,
    about: About,
    deadline: Deadline,
    record: Record,
    lease: Arc<Lease>,
}

impl Answer {
    /// What the version takes and gives.
    pub(crate) fn signature(&self) -> &Signature {
        self.lease.serving().predictor().signature()
    }

    /// The version that answered.
    pub(crate) fn serving(&self) -> &Serving {
        self.lease.serving()
    }

    /// Encodes, and answers with the headers that say where it comes from.
    ///
    /// # Errors
    /// Those of `encode`.
    pub(crate) fn respond<B: Into<Body>, E: Into<ApiError>>(
        mut self,
        content_type: &'static str,
        encode: impl FnOnce(&Answer) -> Result<B, E>,
    ) -> Result<Response, ApiError> {
        let began = Instant::now();
        let body = encode(&self).map_err(Into::into);
        self.record.phase("encode", began.elapsed());
        if body.is_err() {
            self.record.end(&body);
        }
        let timing = self.times.header(self.deadline.began.elapsed());
        Ok(self.about.headed(content_type, Some(timing), body?))
    }
}

impl Times {
    fn header(&self, total: Duration) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        format!("queue;dur={:.3}, compute;dur={:.3}, total;dur={:.3}", ms(self.queue), ms(self.compute), ms(total))
    }
}

/// A prediction whose turn it is to compute. Dropping it gives its permits back.
pub(super) struct Turn {
    pub(super) inputs: Inputs,
    /// What is left of the client's time.
    pub(super) left: Duration,
    /// How long it waited.
    pub(super) queue: Duration,
    counts: Counts,
    _permit: Option<OwnedSemaphorePermit>,
    /// Dropped last: until then the version is not freed.
    pub(super) lease: Arc<Lease>,
}

impl Turn {
    async fn wait(
        metrics: &Arc<Metrics>,
        lease: &Arc<Lease>,
        inputs: Inputs,
        deadline: Deadline,
        record: &Record,
    ) -> Result<Turn, ApiError> {
        let Deadline { began, limit } = deadline;
        let queued = Instant::now();
        let until = began + limit;
        let permit = timeout_at(until.into(), lease.turn()).await;
        let permit = permit.map_err(|_| ApiError::DeadlineQueued { limit })?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ApiError::DeadlineQueued { limit });
        }
        let queue = queued.elapsed();
        record.phase("queue", queue);
        let counts = Counts::begin(Arc::clone(metrics), lease.serving());
        Ok(Turn { inputs, left, queue, counts, _permit: permit, lease: Arc::clone(lease) })
    }

    /// Computes on this thread. Takes the inputs.
    pub(super) fn run(
        &mut self,
        pieces: Option<Arc<dyn PieceSink>>,
    ) -> Result<(Vec<Tensor>, Option<usize>, Times), ApiError> {
        let predictor = self.lease.serving().predictor();
        let items = self.inputs.items;
        let began = Instant::now();
        let outputs = predictor.predict(std::mem::take(&mut self.inputs.tensors), self.left, pieces)?;
        let compute = began.elapsed();
        self.counts.executed(items.unwrap_or(1));
        Ok((outputs, items, Times { queue: self.queue, compute }))
    }
}

async fn compute(mut turn: Turn) -> Result<(Vec<Tensor>, Option<usize>, Times), ApiError> {
    // A client that goes away drops this future, not the thread's work, which gives its permits back at its end.
    let work = tokio::task::spawn_blocking(move || turn.run(None));
    work.await.map_err(|error| ApiError::Internal { cause: format!("predicting: {error}") })?
}

/// The gauge of predictions being computed, which goes down when this is dropped.
struct Counts {
    metrics: Arc<Metrics>,
    model: String,
    version: String,
}

impl Counts {
    fn begin(metrics: Arc<Metrics>, serving: &Serving) -> Counts {
        let counts = Counts { metrics, model: serving.model.clone(), version: serving.version.to_string() };
        counts.metrics.families.predict_in_flight.with_label_values(&counts.labels()).inc();
        counts
    }

    fn labels(&self) -> [&str; 2] {
        [&self.model, &self.version]
    }

    fn executed(&self, items: usize) {
        let families = &self.metrics.families;
        families.predict_items.with_label_values(&self.labels()).inc_by(items as u64);
        families.predict_executions.with_label_values(&self.labels()).inc();
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        self.metrics.families.predict_in_flight.with_label_values(&self.labels()).dec();
    }
}

/// Which version answered, for the answer's headers.
#[derive(Debug)]
pub(crate) struct About {
    model: String,
    digest: String,
    device: String,
}

impl About {
    pub(crate) fn of(serving: &Serving) -> About {
        About {
            model: format!("{}@{}", serving.model, serving.version),
            digest: format!("sha256:{}", serving.origin.weights),
            device: serving.device.clone(),
        }
    }

    /// An answer with the headers that say where it comes from.
    pub(crate) fn headed(self, content_type: &'static str, timing: Option<String>, body: impl Into<Body>) -> Response {
        let mut response = Response::new(body.into());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        let values = [
            ("x-saggar-model", Some(self.model)),
            ("x-saggar-digest", Some(self.digest)),
            ("x-saggar-device", Some(self.device)),
            ("server-timing", timing),
        ];
        for (name, value) in values {
            // Names of models and devices are plain text; one that is not is left out.
            if let Some(Ok(value)) = value.as_deref().map(HeaderValue::from_str) {
                headers.insert(name, value);
            }
        }
        response
    }
}
