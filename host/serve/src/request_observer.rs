//! Observes requests for the access log and for traces, if either is wanted or the client sends a trace context.
//!
//! A request is observed until its response is sent or abandoned, so that the bytes and the status of a stream are known.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Version, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use saggar_telemetry::span::AttributeValue;
use saggar_telemetry::{RequestTrace, SpanStatus, SpanTracer, TraceContext};

use crate::access::Principal;
use crate::access_log::{AccessLine, AccessLog};
use crate::connection::ConnectionActivity;
use crate::grpc::status::GrpcCode;
use crate::limits::ACCESS_FIELD_CHARS_MAX;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// The response header with the server's span, in the form of `traceparent`. Source: W3C Trace Context, Level 2, draft.
const TRACERESPONSE: &str = "traceresponse";

/// The status of a request whose client no longer waits, as in the metric of requests.
const ABANDONED: u16 = 499;

/// What is done with observations. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct RequestObserver {
    /// The access log.
    pub access_log: Option<AccessLog>,
    /// Takes spans for a collector.
    pub tracer: Option<SpanTracer>,
}

/// A request that is observed. Dropping it ends the observation.
pub(crate) struct ObservedRequest {
    trace: RequestTrace,
    line: AccessLine,
    access_log: Option<AccessLog>,
    /// Whether the server failed to answer.
    is_failed: bool,
}

impl RequestObserver {
    /// Begins to observe the request, or returns `None` if nothing needs it.
    pub(crate) fn begin(&self, request: &Request, id: &str, route: &str) -> Option<ObservedRequest> {
        let parent = trace_context(request.headers());
        if self.access_log.is_none() && self.tracer.is_none() && parent.is_none() {
            return None;
        }
        let trace = RequestTrace::begin(self.tracer.as_ref(), parent);
        let headers = request.headers();
        let text =
            |name| headers.get(name).map(|value: &HeaderValue| short(&String::from_utf8_lossy(value.as_bytes())));
        let peer = request.extensions().get::<Arc<ConnectionActivity>>().and_then(|activity| activity.peer());
        let line = AccessLine {
            request_id: id.to_owned(),
            trace_id: trace.context().map(|context| context.trace.to_string()),
            client: peer.map(|peer| peer.to_string()),
            principal: None,
            method: short(request.method().as_str()),
            path: short(request.uri().path()),
            route: route.to_owned(),
            protocol: protocol(request.version()),
            status: ABANDONED,
            grpc_status: None,
            bytes: 0,
            referer: text(header::REFERER),
            user_agent: text(header::USER_AGENT),
        };
        Some(ObservedRequest { trace, line, access_log: self.access_log.clone(), is_failed: false })
    }
}

impl ObservedRequest {
    /// Returns the observation, for the request's extensions.
    pub(crate) fn trace(&self) -> &RequestTrace {
        &self.trace
    }

    /// Sets who asked, as access control found out.
    pub(crate) fn set_principal(&mut self, principal: &Principal) {
        self.line.principal = Some(principal.to_string());
    }

    /// Observes the response until it is sent. Tells the client the span that answered it.
    pub(crate) fn finish(mut self, mut response: Response) -> Response {
        self.line.status = response.status().as_u16();
        self.is_failed = response.status().is_server_error();
        self.set_grpc_status(response.headers());
        let context = self.trace.context().and_then(|context| HeaderValue::from_str(&context.traceparent()).ok());
        if let Some(context) = context {
            response.headers_mut().insert(TRACERESPONSE, context);
        }
        response.map(|body| Body::new(ObservedBody { body, observed: self }))
    }

    fn set_grpc_status(&mut self, headers: &HeaderMap) {
        if let Some(code) = GrpcCode::from_headers(headers) {
            (self.line.grpc_status, self.is_failed) = (Some(code.name()), code.is_server_fault());
        }
    }

    fn span_attributes(&self) -> Vec<(&'static str, AttributeValue)> {
        let line = &self.line;
        let mut attributes = vec![
            ("http.request.method", AttributeValue::from(&*line.method)),
            ("http.route", (&*line.route).into()),
            ("http.response.status_code", u64::from(line.status).into()),
            ("http.response.body.size", line.bytes.into()),
            ("saggar.request_id", (&*line.request_id).into()),
        ];
        if let Some(code) = line.grpc_status {
            attributes.extend([("rpc.system", "grpc".into()), ("rpc.grpc.status", code.into())]);
        }
        attributes
    }
}

impl Drop for ObservedRequest {
    fn drop(&mut self) {
        let line = &self.line;
        let code = || line.grpc_status.map_or_else(|| line.status.to_string(), str::to_owned);
        let status = if self.is_failed { SpanStatus::Error(code()) } else { SpanStatus::Unset };
        self.trace.finish(format!("{} {}", line.method, line.route), self.span_attributes(), status);
        if let Some(log) = &self.access_log {
            log.write(line, &self.trace.summary(), self.trace.elapsed());
        }
    }
}

/// Returns the client's trace context, if it sent a valid one.
fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    // Without the header, nothing is allocated.
    headers.get(TRACEPARENT)?;
    let values = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes);
    TraceContext::parse(values(TRACEPARENT), values(TRACESTATE))
}

fn short(text: &str) -> String {
    text.chars().take(ACCESS_FIELD_CHARS_MAX).collect()
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

/// The body of an observed response.
struct ObservedBody {
    // Dropped first, so that a prediction that streams has ended when the request does.
    body: Body,
    observed: ObservedRequest,
}

impl HttpBody for ObservedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            if let Some(data) = frame.data_ref() {
                self.observed.line.bytes += data.len() as u64;
            } else if let Some(trailers) = frame.trailers_ref() {
                self.observed.set_grpc_status(trailers);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
