//! Records spans if a collector is configured.

use std::time::Duration;

use saggar_metrics::MetricsRegistry;

use crate::sampler::TraceSampler;
use crate::span::FinishedSpan;
use crate::span_exporter::SpanExporter;
use crate::trace_context::{SpanId, TraceContext, TraceId};
use crate::tracing_config::TracingConfig;

/// Decides which traces are recorded, and takes their spans. Clones share the queue.
#[derive(Clone, Debug)]
pub struct SpanTracer {
    sampler: TraceSampler,
    exporter: SpanExporter,
}

impl SpanTracer {
    /// Starts sending spans as `config` says.
    ///
    /// # Errors
    /// Returns the system's error if the thread that sends cannot be started.
    pub fn start(config: TracingConfig, metrics: &MetricsRegistry) -> std::io::Result<SpanTracer> {
        Ok(SpanTracer { sampler: config.sampler, exporter: SpanExporter::start(config, metrics)? })
    }

    /// Returns the context of a new span: in the trace of `parent`, or in a new one.
    pub fn begin(&self, parent: Option<&TraceContext>) -> TraceContext {
        let trace = parent.map_or_else(TraceId::random, |parent| parent.trace);
        let is_sampled = self.sampler.is_sampled(trace, parent);
        let state = parent.map_or_else(String::new, |parent| parent.state.clone());
        TraceContext { trace, span: SpanId::random(), is_sampled, state }
    }

    /// Takes spans of recorded traces. Never waits.
    pub fn record(&self, spans: impl IntoIterator<Item = FinishedSpan>) {
        self.exporter.push(spans);
    }

    /// Sends what waits, and returns when that is done or after `time`.
    pub fn flush(&self, time: Duration) {
        self.exporter.flush(time);
    }
}
