//! The outermost layer: assigns an ID to every request, times and counts it, and converts a handler's panic into a
//! response.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use saggar_metrics::MetricsRegistry;
use saggar_rest::deprecations::InterfaceDeprecation;
use saggar_serving::RequestMemoryBudget;
use tracing::Instrument;

use crate::access::route_scopes::RouteScopes;
use crate::access::{AccessControl, ListenPolicy, Principal};
use crate::deprecated_use::DeprecatedUses;
use crate::error::{ApiError, ErrorBody, mlflow_error_json};
use crate::grpc::call_head::is_grpc;
use crate::grpc::call_metrics::CallCount;
use crate::grpc::status::error_response;
use crate::limits::{REFUSED_BYTES_MAX, REQUEST_ID_BYTES_MAX, UNAUTHENTICATED_BYTES_MAX};
use crate::mlflow::is_mlflow_route;
use crate::program_version::{OWN_VERSION, VERSION_HEADER};
use crate::request_body::drain;
use crate::request_id::{REQUEST_ID_HEADER, RequestId};
use crate::request_memory::{charge_for_client, charge_response};
use crate::request_observer::RequestObserver;

/// The route label of requests that match no route.
const UNMATCHED_ROUTE: &str = "unmatched";

/// The state of the outermost layer: the listener's policy, access control, the routes' requirements, metrics and memory
/// budget.
#[derive(Clone, Debug)]
pub(crate) struct AuthLayer {
    pub(crate) policy: ListenPolicy,
    pub(crate) access: Arc<AccessControl>,
    pub(crate) scopes: Arc<RouteScopes>,
    pub(crate) metrics: Arc<MetricsRegistry>,
    pub(crate) memory: RequestMemoryBudget,
    pub(crate) observer: RequestObserver,
    pub(crate) deprecations: &'static [InterfaceDeprecation],
}

/// Admits the request, answers it, and records metrics. A request whose client disconnects before the response counts
/// with code 499.
pub(crate) async fn admit_and_observe(State(entrance): State<AuthLayer>, mut request: Request, next: Next) -> Response {
    let AuthLayer { policy: door, access, scopes, metrics, memory, observer, deprecations } = entrance;
    let id = request_id(&request);
    request.extensions_mut().insert(RequestId(id.clone()));
    let route = request.extensions().get::<MatchedPath>().map_or(UNMATCHED_ROUTE, MatchedPath::as_str).to_owned();
    let method = method_label(request.method());
    let mut observed = observer.begin(&request, &id, &route);
    let trace = observed.as_ref().map(|observed| observed.trace().clone());
    let trace_id =
        trace.as_ref().and_then(|trace| trace.context()).map(|context| tracing::field::display(context.trace));
    let span = tracing::info_span!("request", request_id = %id, method, route, trace_id);
    if let Some(trace) = trace {
        request.extensions_mut().insert(trace);
    }
    let known = (route != UNMATCHED_ROUTE).then_some(&*route);
    let call = is_grpc(request.headers()).then(|| CallCount::begin(&metrics, known));
    let admitted = access.admit(door, |method| scopes.requirement(known, method), &mut request);
    let who = request.extensions().get::<Principal>().cloned();
    if let Some(observed) = observed.as_mut().filter(|_| admitted.is_ok()) {
        observed.set_principal(who.as_ref().unwrap_or(&Principal::Loopback));
    }
    let uses = DeprecatedUses::begin(deprecations, &mut request, &route).filter(|_| admitted.is_ok());
    let mut count = RequestMetricsGuard { metrics, route, method, began: Instant::now(), code: None };
    let answer = match admitted {
        Ok(()) => {
            let request = drain::drain_on_drop(request, REFUSED_BYTES_MAX);
            AssertUnwindSafe(next.run(request)).catch_unwind().instrument(span.clone()).await
        }
        Err(error) => {
            drop(drain::drain_on_drop(request, UNAUTHENTICATED_BYTES_MAX));
            Ok(ApiError::from(error).into_response())
        }
    };
    let response = answer.unwrap_or_else(|panic| {
        let _entered = span.enter();
        ApiError::Internal { cause: format!("handler panicked: {}", panic_message(&*panic)) }.into_response()
    });
    let response = charge_response(response, || charge_for_client(&memory, who.as_ref()))
        .unwrap_or_else(IntoResponse::into_response);
    count.code = Some(response.status().as_u16());
    let response = match call {
        Some(call) => call.finish(call_response(response, count.route != UNMATCHED_ROUTE), &id),
        None => json_error_response(response, &id, is_mlflow_route(&count.route)),
    };
    let mut response = identify_response(response, &id);
    if let Some(uses) = uses {
        uses.finish(&mut response, &count.metrics);
    }
    match observed {
        Some(observed) => observed.finish(response),
        None => response,
    }
}

/// Turns an error into the response to a call of gRPC.
fn call_response(mut response: Response, is_known: bool) -> Response {
    match response.extensions_mut().remove::<ErrorBody>() {
        Some(error) => error_response(response, &error, is_known),
        None => response,
    }
}

/// Counts the request when it is dropped, so that an abandoned request counts too.
struct RequestMetricsGuard {
    metrics: Arc<MetricsRegistry>,
    route: String,
    method: &'static str,
    began: Instant,
    code: Option<u16>,
}

impl Drop for RequestMetricsGuard {
    fn drop(&mut self) {
        let families = &self.metrics.families;
        let code = self.code.unwrap_or(499).to_string();
        families.http_requests.with_label_values(&[&self.route, self.method, &code]).inc();
        let seconds = self.began.elapsed().as_secs_f64();
        families.http_request_duration.with_label_values(&[&self.route]).observe(seconds);
        tracing::debug!(route = self.route, method = self.method, code, seconds, "answered");
    }
}

/// Returns the client's request ID if it is printable, else a new one.
fn request_id(request: &Request) -> String {
    let sent = request.headers().get(REQUEST_ID_HEADER).and_then(|id| id.to_str().ok());
    let usable = |id: &&str| !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX;
    sent.filter(usable).map_or_else(new_request_id, str::to_owned)
}

/// Returns an ID that is unique in this process and very likely beyond: the process's start time and a counter.
fn new_request_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static START: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let start = START.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    });
    format!("{start:x}-{:x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the method as a label from a closed set, so that clients cannot create series.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Serializes the body of an error, which names the request.
fn json_error_response(mut response: Response, id: &str, is_mlflow: bool) -> Response {
    if let Some(body) = response.extensions_mut().remove::<ErrorBody>() {
        let text = if is_mlflow { mlflow_error_json(&body, response.status(), id) } else { body.json(id) };
        *response.body_mut() = Body::from(text);
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    response
}

fn identify_response(mut response: Response, id: &str) -> Response {
    response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(OWN_VERSION));
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID_HEADER, id);
    }
    response
}
