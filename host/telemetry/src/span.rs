//! Finished spans.

use std::time::SystemTime;

use crate::limits::ATTRIBUTE_BYTES_MAX;
use crate::trace_context::{SpanId, TraceId};

/// The role of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Work within this program.
    Internal,
    /// The answer to a request.
    Server,
    /// Work that a request asked for and that is done after its answer, such as a job.
    Consumer,
}

/// The outcome of a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SpanStatus {
    /// Nothing went wrong here.
    #[default]
    Unset,
    /// It failed, with a short reason.
    Error(String),
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// Text, which is cut to a maximum length.
    Text(String),
    /// A whole number.
    Whole(i64),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> AttributeValue {
        let mut end = text.len().min(ATTRIBUTE_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        AttributeValue::Text(text[..end].to_owned())
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> AttributeValue {
        AttributeValue::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedSpan {
    /// The trace.
    pub trace: TraceId,
    /// The span's ID.
    pub id: SpanId,
    /// The span that caused it, or `None` if it begins the trace.
    pub parent: Option<SpanId>,
    /// The `tracestate` of its trace.
    pub state: String,
    /// The name, from a closed set.
    pub name: String,
    /// The role.
    pub kind: SpanKind,
    /// When it began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// The attributes.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// The outcome.
    pub status: SpanStatus,
}
