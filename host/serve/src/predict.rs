//! Predictions: from a request to a model and back. A request waits for its turn, computes on a thread that may block,
//! and is answered within its deadline or told that it cannot be: as a whole, or in pieces as they come.

mod content;
pub mod decode;
mod dense;
pub mod encode;
pub mod image;
mod number;
pub(crate) mod outcome;
mod stream;
mod text;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use saggar_metrics::Metrics;
use saggar_plugin::PieceSink;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

use crate::app::App;
use crate::error::ApiError;
use crate::limits::{BODY_BYTES_MAX, DEADLINE_DEFAULT, DEADLINE_MAX};
use crate::models::{Lease, Serving};
use crate::observe::RequestId;
use decode::Inputs;
use outcome::Record;

/// The header by which a client says how many milliseconds a prediction may take.
const DEADLINE_MS: &str = "x-saggar-deadline-ms";

/// `POST /`, `POST /predict`: the default model.
pub(crate) async fn by_default(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    answer(&app, None, request).await
}

/// `POST /models/{model}/predict`, with `name` or `name@version`.
pub(crate) async fn by_name(
    State(app): State<App>,
    Path(model): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    answer(&app, Some(&model), request).await
}

async fn answer(app: &App, reference: Option<&str>, request: Request) -> Result<Response, ApiError> {
    let began = Instant::now();
    let answer = predict(app, reference, request, began).await;
    let reason = match &answer {
        Err(ApiError::QueueFull { .. }) => "queue_full",
        Err(ApiError::DeadlineQueued { .. }) => "deadline",
        Err(ApiError::NotReady { .. } | ApiError::NothingReady | ApiError::VersionNotServing { .. }) => "not_ready",
        Err(ApiError::TooLarge { .. }) => "too_large",
        Ok(_) | Err(_) => return answer,
    };
    app.metrics().families.requests_rejected.with_label_values(&[reason]).inc();
    answer
}

async fn predict(app: &App, reference: Option<&str>, request: Request, began: Instant) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let limit = deadline(&parts.headers)?;
    let streams = stream::is_wanted(&parts.headers);
    let id = parts.extensions.remove::<RequestId>().unwrap_or_default();
    // A model that is not there is said to be so before its input is read.
    app.models().find(reference)?;
    let body = app.bodies().read(&parts.headers, body, BODY_BYTES_MAX).await?;
    // Taken once the body is whole: a slow client must not keep a version from draining.
    let lease = Arc::new(app.models().lease(reference)?);
    // Dropped before the lease: once the version is drained, nothing counts for it any more.
    let mut record = Record::begin(Arc::clone(app.metrics()), lease.serving());
    let about = About::of(lease.serving());
    let decoding = Instant::now();
    let signature = lease.serving().predictor().signature();
    let inputs = content::inputs(signature, &parts.headers, &body).await;
    record.phase("decode", decoding.elapsed());
    drop(body);
    let turn = match inputs {
        Ok(inputs) => Turn::wait(app.metrics(), &lease, inputs, began, limit, &record).await,
        Err(error) => Err(error),
    };
    match turn {
        Ok(turn) if streams => stream::answer(turn, record, about, id).await,
        turn => {
            let result = match turn {
                Ok(turn) => compute(turn, &record).await,
                Err(error) => Err(error),
            };
            record.end(&result);
            let done = result?;
            Ok(about.response(done, began.elapsed()))
        }
    }
}

/// The time the client gives, from the request's arrival on.
fn deadline(headers: &HeaderMap) -> Result<Duration, ApiError> {
    let Some(value) = headers.get(DEADLINE_MS) else { return Ok(DEADLINE_DEFAULT) };
    let milliseconds = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok()).filter(|&ms| ms > 0);
    let milliseconds = milliseconds.ok_or_else(|| ApiError::Parameter {
        name: "X-Saggar-Deadline-Ms",
        expected: "a whole number of milliseconds above 0",
        got: String::from_utf8_lossy(value.as_bytes()).chars().take(80).collect(),
    })?;
    Ok(Duration::from_millis(milliseconds).min(DEADLINE_MAX))
}

/// A prediction that is done.
struct Done {
    json: String,
    queue: Duration,
    compute: Duration,
    encode: Duration,
}

impl Done {
    /// Observes how long its parts took.
    fn record(&self, record: &Record) {
        record.phase("compute", self.compute);
        record.phase("encode", self.encode);
    }
}

/// A prediction whose turn it is to compute. Dropping it gives its permits back.
struct Turn {
    inputs: Inputs,
    /// What is left of the client's time.
    left: Duration,
    /// How long it waited.
    queue: Duration,
    counts: Counts,
    _permit: Option<OwnedSemaphorePermit>,
    /// Dropped last: until then the version is not freed.
    lease: Arc<Lease>,
}

impl Turn {
    async fn wait(
        metrics: &Arc<Metrics>,
        lease: &Arc<Lease>,
        inputs: Inputs,
        began: Instant,
        limit: Duration,
        record: &Record,
    ) -> Result<Turn, ApiError> {
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

    /// Computes and encodes, on this thread. Takes the inputs.
    fn run(&mut self, pieces: Option<Arc<dyn PieceSink>>) -> Result<Done, ApiError> {
        let predictor = self.lease.serving().predictor();
        let items = self.inputs.items;
        let began = Instant::now();
        let outputs = predictor.predict(std::mem::take(&mut self.inputs.tensors), self.left, pieces)?;
        let compute = began.elapsed();
        self.counts.executed(items.unwrap_or(1));
        let began = Instant::now();
        let json = encode::json(predictor.signature(), &outputs, items)?;
        Ok(Done { json, queue: self.queue, compute, encode: began.elapsed() })
    }
}

async fn compute(mut turn: Turn, record: &Record) -> Result<Done, ApiError> {
    // A client that goes away drops this future, not the thread's work, which gives its permits back at its end.
    let work = tokio::task::spawn_blocking(move || turn.run(None));
    let done = work.await.map_err(|error| ApiError::Internal { cause: format!("predicting: {error}") })??;
    done.record(record);
    Ok(done)
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
struct About {
    model: String,
    digest: String,
    device: String,
}

impl About {
    fn of(serving: &Serving) -> About {
        About {
            model: format!("{}@{}", serving.model, serving.version),
            digest: format!("sha256:{}", serving.origin.weights),
            device: serving.device.clone(),
        }
    }

    fn response(self, done: Done, total: Duration) -> Response {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let timing =
            format!("queue;dur={:.3}, compute;dur={:.3}, total;dur={:.3}", ms(done.queue), ms(done.compute), ms(total));
        self.headed("application/json", Some(timing), done.json)
    }

    /// An answer with the headers that say where it comes from.
    fn headed(self, content_type: &'static str, timing: Option<String>, body: impl Into<Body>) -> Response {
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
