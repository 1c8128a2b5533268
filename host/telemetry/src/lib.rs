//! What a server says about its work: lines that never block their writer, trace contexts, and spans for a collector of
//! OpenTelemetry.
//!
//! Nothing here is a condition of an answer. Lines and spans wait in bounded queues, and threads write and send them. What
//! does not fit, or cannot be written or sent, is dropped and counted. Without a collector no span is made.

pub mod limits;
pub mod line_writer;
mod otlp_messages;
mod repeated_failure;
pub mod request_trace;
pub mod sampler;
pub mod span;
mod span_exporter;
pub mod trace_context;
pub mod tracer;
pub mod tracing_config;

pub use line_writer::{LineTarget, LineWriter};
pub use repeated_failure::RepeatedFailure;
pub use request_trace::{PredictionTimes, RequestSummary, RequestTrace};
pub use span::{FinishedSpan, SpanKind, SpanStatus};
pub use trace_context::{SpanId, TraceContext, TraceId};
pub use tracer::SpanTracer;
pub use tracing_config::TracingConfig;
