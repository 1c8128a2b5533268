//! Uses of what is deprecated: each request is compared with the list, its response announces what it used, and the
//! uses are counted.
//!
//! Sources: RFC 9745 (`Deprecation`), RFC 8594 (`Sunset`), RFC 8288 (`Link`).

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use parking_lot::Mutex;
use saggar_metrics::MetricsRegistry;
use saggar_rest::deprecations::{
    DEPRECATIONS, DeprecatedPart, DeprecationDocument, DeprecationListDocument, InterfaceDeprecation,
};
use serde_json::Value;

use crate::app::AppState;

/// The page that explains what to use instead.
const PAGE: &str = "</docs/reference/deprecations>; rel=\"deprecation\"; type=\"text/html\"";
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");

/// What a request uses of the list. A handler gets it from the request's extensions, for what only it can see.
#[derive(Clone, Debug)]
pub(crate) struct DeprecatedUses {
    /// What is deprecated in the operation.
    of_operation: Vec<&'static InterfaceDeprecation>,
    used: Arc<Mutex<Vec<&'static InterfaceDeprecation>>>,
}

impl DeprecatedUses {
    /// Compares a request to `route` with the list. Returns `None` if nothing of the operation is deprecated.
    pub(crate) fn begin(
        list: &'static [InterfaceDeprecation],
        request: &mut Request,
        route: &str,
    ) -> Option<DeprecatedUses> {
        let is_operation = |it: &&InterfaceDeprecation| it.path == route && it.method == request.method().as_str();
        let of_operation: Vec<_> = list.iter().filter(is_operation).collect();
        if of_operation.is_empty() {
            return None;
        }
        let query = request.uri().query().unwrap_or_default();
        let is_used = |it: &&&InterfaceDeprecation| match it.part {
            DeprecatedPart::Operation => true,
            DeprecatedPart::Parameter(name) => {
                let in_query = query.split('&').any(|pair| pair.split('=').next() == Some(name));
                in_query || request.headers().contains_key(name)
            }
            DeprecatedPart::Member { .. } => false,
        };
        let used = of_operation.iter().filter(is_used).copied().collect();
        let uses = DeprecatedUses { of_operation, used: Arc::new(Mutex::new(used)) };
        request.extensions_mut().insert(uses.clone());
        Some(uses)
    }

    /// Records the deprecated members of a body. A body that is no JSON object has none.
    pub(crate) fn record_members(&self, body: &[u8]) {
        let Ok(Value::Object(members)) = serde_json::from_slice(body) else { return };
        let is_used = |it: &&&InterfaceDeprecation| match it.part {
            DeprecatedPart::Member { name, .. } => members.contains_key(name),
            DeprecatedPart::Operation | DeprecatedPart::Parameter(_) => false,
        };
        self.used.lock().extend(self.of_operation.iter().filter(is_used));
    }

    /// Counts the uses and announces them in the response.
    pub(crate) fn finish(self, response: &mut Response, metrics: &MetricsRegistry) {
        let used = self.used.lock();
        for deprecation in &*used {
            metrics.families.deprecated_uses.with_label_values(&[deprecation.name]).inc();
        }
        let Some(since) = used.iter().map(|it| it.since).min() else { return };
        let headers = response.headers_mut();
        if let Ok(date) = HeaderValue::from_str(&format!("@{since}")) {
            headers.insert(DEPRECATION, date);
        }
        let sunset = used.iter().filter_map(|it| it.sunset).min();
        if let Some(date) = sunset.and_then(|seconds| HeaderValue::from_str(&http_date(seconds)).ok()) {
            headers.insert(SUNSET, date);
        }
        headers.append(header::LINK, HeaderValue::from_static(PAGE));
    }
}

/// Returns Unix seconds as a date of HTTP: `Thu, 26 Nov 2026 00:00:00 GMT`.
fn http_date(seconds: i64) -> String {
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    let date = jiff::Timestamp::from_second(seconds).and_then(|time| printer.timestamp_to_rfc9110_string(&time));
    date.unwrap_or_default()
}

/// Handles `GET /api/v1/deprecations`.
pub(crate) async fn list(State(app): State<AppState>) -> Json<DeprecationListDocument> {
    let uses = &app.metrics().families.deprecated_uses;
    let document = |it: &InterfaceDeprecation| DeprecationDocument {
        name: it.name.to_owned(),
        operation: format!("{} {}", it.method, it.path),
        since: it.since,
        sunset: it.sunset,
        replacement: it.replacement.to_owned(),
        uses: uses.with_label_values(&[it.name]).get(),
    };
    Json(DeprecationListDocument { deprecations: DEPRECATIONS.iter().map(document).collect() })
}
