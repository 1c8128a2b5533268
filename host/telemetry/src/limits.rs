//! Limits of what waits to be written or sent.

use std::time::Duration;

/// Maximum bytes of the lines that wait to be written to one target.
pub const LINE_QUEUE_BYTES_MAX: usize = 4 << 20;
/// The time between two attempts to write to a target that takes nothing at the moment.
pub const LINE_RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Maximum length of a `tracestate` that is handed on. W3C requires at least 512.
pub const TRACESTATE_BYTES_MAX: usize = 512;
/// Maximum number of members of a `tracestate`, by W3C Trace Context.
pub const TRACESTATE_MEMBERS_MAX: usize = 32;
/// Default maximum number of spans that wait to be sent: that of OpenTelemetry's batch processor.
pub const SPAN_QUEUE_DEFAULT: usize = 2048;
/// Maximum number of spans that wait, whatever the environment says.
pub const SPAN_QUEUE_MAX: usize = 65_536;
/// Default maximum number of spans in one request to the collector.
pub const SPAN_BATCH_DEFAULT: usize = 512;
/// Default time between two requests to the collector.
pub const SPAN_DELAY_DEFAULT: Duration = Duration::from_millis(5000);
/// Default maximum time of a request to the collector.
pub const EXPORT_TIME_DEFAULT: Duration = Duration::from_secs(10);
/// Maximum length of an attribute's text.
pub const ATTRIBUTE_BYTES_MAX: usize = 1024;

const _: () = assert!(SPAN_BATCH_DEFAULT <= SPAN_QUEUE_DEFAULT && SPAN_QUEUE_DEFAULT <= SPAN_QUEUE_MAX);
