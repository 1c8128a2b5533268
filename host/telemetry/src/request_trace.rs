//! What is observed of one request: its trace context, the phases of its predictions, and its spans.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use crate::span::{AttributeValue, FinishedSpan, SpanKind, SpanStatus};
use crate::trace_context::{SpanId, TraceContext};
use crate::tracer::SpanTracer;

/// The batch in which a prediction was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTimes {
    /// A number that predictions of the same batch share, unique in this process.
    pub number: u64,
    /// The predictions and the items in it.
    pub requests: usize,
    /// The items in it.
    pub items: usize,
    /// When it was taken from the queue.
    pub began: Instant,
    /// When the model was called, and for how long.
    pub compute_began: Instant,
    /// How long the model computed.
    pub compute: Duration,
}

/// The phases of one prediction.
#[derive(Clone, Debug)]
pub struct PredictionTimes {
    /// The model.
    pub model: String,
    /// The version.
    pub version: u64,
    /// The outcome, from a closed set.
    pub outcome: &'static str,
    /// When the body began to be decoded, and how long that took.
    pub decode: Option<(Instant, Duration)>,
    /// The time in the queue, which ended when the batch began.
    pub queue: Duration,
    /// The batch, or `None` if nothing was computed.
    pub batch: Option<BatchTimes>,
    /// When the answer began to be encoded, and how long that took.
    pub encode: Option<(Instant, Duration)>,
}

/// The sums of a request's predictions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestSummary {
    /// The model and version of the last prediction.
    pub model: Option<(String, u64)>,
    /// The number of predictions.
    pub predictions: u32,
    /// Time to decode.
    pub decode: Duration,
    /// Time in the queue.
    pub queue: Duration,
    /// Time in the model.
    pub compute: Duration,
    /// Time to encode.
    pub encode: Duration,
}

/// Observes a request. Clones share the observation.
#[derive(Clone, Debug)]
pub struct RequestTrace {
    inner: Arc<RequestTraceInner>,
}

#[derive(Debug)]
struct RequestTraceInner {
    /// The request's span, or `None` if there is neither a caller's trace nor a tracer.
    context: Option<TraceContext>,
    parent: Option<SpanId>,
    /// Takes the spans, if the trace is recorded.
    tracer: Option<SpanTracer>,
    began: Instant,
    began_at: SystemTime,
    summary: Mutex<RequestSummary>,
}

impl RequestTrace {
    /// Begins to observe a request that arrives now. `parent` is the context that its caller sent.
    pub fn begin(tracer: Option<&SpanTracer>, parent: Option<TraceContext>) -> RequestTrace {
        let context = match (tracer, &parent) {
            (Some(tracer), parent) => Some(tracer.begin(parent.as_ref())),
            (None, Some(parent)) => Some(parent.at_span(SpanId::random())),
            (None, None) => None,
        };
        let is_recorded = context.as_ref().is_some_and(|context| context.is_sampled);
        let inner = RequestTraceInner {
            context,
            parent: parent.map(|parent| parent.span),
            tracer: tracer.filter(|_| is_recorded).cloned(),
            began: Instant::now(),
            began_at: SystemTime::now(),
            summary: Mutex::default(),
        };
        RequestTrace { inner: Arc::new(inner) }
    }

    /// Returns the context of the request's span, for what the request causes.
    pub fn context(&self) -> Option<&TraceContext> {
        self.inner.context.as_ref()
    }

    /// Returns the time since the request arrived.
    pub fn elapsed(&self) -> Duration {
        self.inner.began.elapsed()
    }

    /// Returns the sums of its predictions so far.
    pub fn summary(&self) -> RequestSummary {
        self.inner.summary.lock().clone()
    }

    /// Adds a prediction that has ended.
    pub fn record_prediction(&self, times: &PredictionTimes) {
        let duration = |phase: Option<(Instant, Duration)>| phase.map_or(Duration::ZERO, |(_, time)| time);
        let mut summary = self.inner.summary.lock();
        summary.model = Some((times.model.clone(), times.version));
        summary.predictions += 1;
        summary.decode += duration(times.decode);
        summary.queue += times.queue;
        summary.compute += times.batch.map_or(Duration::ZERO, |batch| batch.compute);
        summary.encode += duration(times.encode);
        drop(summary);
        if let (Some(tracer), Some(context)) = (&self.inner.tracer, &self.inner.context) {
            tracer.record(self.prediction_spans(context, times));
        }
    }

    fn prediction_spans(&self, context: &TraceContext, times: &PredictionTimes) -> Vec<FinishedSpan> {
        let mut spans = Vec::with_capacity(5);
        let model = [
            ("saggar.model", AttributeValue::from(&*times.model)),
            ("saggar.version", AttributeValue::from(times.version)),
        ];
        let mut add = |name: &str, parent: SpanId, began: Instant, time: Duration, attributes| {
            let id = SpanId::random();
            spans.push(FinishedSpan {
                trace: context.trace,
                id,
                parent: Some(parent),
                state: context.state.clone(),
                name: name.to_owned(),
                kind: SpanKind::Internal,
                began: self.wall_clock(began),
                ended: self.wall_clock(began + time),
                attributes,
                status: SpanStatus::Unset,
            });
            id
        };
        if let Some((began, time)) = times.decode {
            add("decode", context.span, began, time, Vec::new());
        }
        if let Some(batch) = times.batch {
            let queued = batch.began.checked_sub(times.queue).unwrap_or(batch.began);
            add("queue", context.span, queued, times.queue, Vec::new());
            let mut attributes = model.to_vec();
            attributes.push(("saggar.batch.number", batch.number.into()));
            attributes.push(("saggar.batch.requests", (batch.requests as u64).into()));
            attributes.push(("saggar.batch.items", (batch.items as u64).into()));
            attributes.push(("saggar.outcome", times.outcome.into()));
            let time = batch.compute_began.saturating_duration_since(batch.began) + batch.compute;
            let parent = add("batch", context.span, batch.began, time, attributes);
            add("compute", parent, batch.compute_began, batch.compute, model.to_vec());
        }
        if let Some((began, time)) = times.encode {
            add("encode", context.span, began, time, Vec::new());
        }
        spans
    }

    /// Ends the request's span, which is called `name`.
    pub fn finish(&self, name: String, attributes: Vec<(&'static str, AttributeValue)>, status: SpanStatus) {
        let (Some(tracer), Some(context)) = (&self.inner.tracer, &self.inner.context) else { return };
        tracer.record([FinishedSpan {
            trace: context.trace,
            id: context.span,
            parent: self.inner.parent,
            state: context.state.clone(),
            name,
            kind: SpanKind::Server,
            began: self.inner.began_at,
            ended: self.wall_clock(Instant::now()),
            attributes,
            status,
        }]);
    }

    /// Returns the wall-clock time of an instant, by the clock at the request's arrival, so that a clock that is set
    /// meanwhile does not tear its spans apart.
    fn wall_clock(&self, at: Instant) -> SystemTime {
        match at.checked_duration_since(self.inner.began) {
            Some(after) => self.inner.began_at + after,
            None => self.inner.began_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_collector_a_trace_is_handed_on_and_none_is_begun() {
        assert_eq!(RequestTrace::begin(None, None).context(), None);
        let parent = TraceContext::from_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        let request = RequestTrace::begin(None, Some(parent.clone()));
        let context = request.context().unwrap();
        assert_eq!((context.trace, context.is_sampled), (parent.trace, true));
        assert_ne!(context.span, parent.span);
    }

    #[test]
    fn the_phases_of_several_predictions_are_added() {
        let request = RequestTrace::begin(None, None);
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let batch = BatchTimes { number: 1, requests: 2, items: 3, began: now, compute_began: now, compute: ms(5) };
        let times = PredictionTimes {
            model: "digits".to_owned(),
            version: 3,
            outcome: "success",
            decode: Some((now, ms(1))),
            queue: ms(2),
            batch: Some(batch),
            encode: None,
        };
        request.record_prediction(&times);
        request.record_prediction(&PredictionTimes { batch: None, ..times });
        let expected = RequestSummary {
            model: Some(("digits".to_owned(), 3)),
            predictions: 2,
            decode: ms(2),
            queue: ms(4),
            compute: ms(5),
            encode: Duration::ZERO,
        };
        assert_eq!(request.summary(), expected);
    }
}
