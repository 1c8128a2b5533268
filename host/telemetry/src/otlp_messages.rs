//! The messages of the OpenTelemetry Protocol for traces, and their form of spans. Only the fields that are sent.
//!
//! Source: opentelemetry-proto 1.x, `opentelemetry/proto/collector/trace/v1/trace_service.proto` and
//! `opentelemetry/proto/trace/v1/trace.proto`. The field numbers are stable.

use std::time::{SystemTime, UNIX_EPOCH};

use prost::{Message, Oneof};

use crate::span::{AttributeValue, FinishedSpan, SpanKind, SpanStatus};

/// The name of the instrumentation.
const SCOPE: &str = "saggar";

#[derive(Clone, PartialEq, Message)]
struct ExportTraceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<OtlpResource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpResource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<OtlpAttribute>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<OtlpScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OtlpSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpAttribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<OtlpValue>,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpValue {
    #[prost(oneof = "OtlpAnyValue", tags = "1, 3")]
    value: Option<OtlpAnyValue>,
}

#[derive(Clone, PartialEq, Oneof)]
enum OtlpAnyValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Whole(i64),
}

#[derive(Clone, PartialEq, Message)]
struct OtlpSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<OtlpAttribute>,
    #[prost(message, optional, tag = "15")]
    status: Option<OtlpStatus>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

/// The flag of a recorded trace.
const FLAG_SAMPLED: u32 = 1;
const STATUS_ERROR: i32 = 2;

/// Returns the body of a request to a collector: the spans of the process with these attributes.
pub(crate) fn encode_request(resource: &[(String, String)], spans: &[FinishedSpan]) -> Vec<u8> {
    let attributes = resource.iter().map(|(key, value)| attribute(key, AttributeValue::from(&**value))).collect();
    let scope = OtlpScope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let scope_spans = ScopeSpans { scope: Some(scope), spans: spans.iter().map(span).collect() };
    let resource = Some(OtlpResource { attributes });
    ExportTraceRequest { resource_spans: vec![ResourceSpans { resource, scope_spans: vec![scope_spans] }] }
        .encode_to_vec()
}

fn span(span: &FinishedSpan) -> OtlpSpan {
    let status = match &span.status {
        SpanStatus::Unset => None,
        SpanStatus::Error(message) => Some(OtlpStatus { message: message.clone(), code: STATUS_ERROR }),
    };
    OtlpSpan {
        trace_id: span.trace.bytes().to_vec(),
        span_id: span.id.bytes().to_vec(),
        trace_state: span.state.clone(),
        parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.bytes().to_vec()),
        name: span.name.clone(),
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Consumer => 5,
        },
        start_time_unix_nano: unix_nanos(span.began),
        end_time_unix_nano: unix_nanos(span.ended),
        attributes: span.attributes.iter().map(|(key, value)| attribute(key, value.clone())).collect(),
        status,
        flags: FLAG_SAMPLED,
    }
}

fn attribute(key: &str, value: AttributeValue) -> OtlpAttribute {
    let value = match value {
        AttributeValue::Text(text) => OtlpAnyValue::Text(text),
        AttributeValue::Whole(number) => OtlpAnyValue::Whole(number),
    };
    OtlpAttribute { key: key.to_owned(), value: Some(OtlpValue { value: Some(value) }) }
}

/// Returns nanoseconds since 1970, or 0 for a clock before.
fn unix_nanos(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
