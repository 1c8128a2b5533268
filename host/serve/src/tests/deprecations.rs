//! Deprecated operations and parameters: headers of responses and counts, with a list of this test.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::middleware;
use axum::routing::get;
use saggar_rest::deprecations::{DEPRECATIONS, DeprecatedPart, InterfaceDeprecation};
use saggar_serving::RequestMemoryBudget;
use saggar_serving::limits::REQUEST_MEMORY_BYTES_DEFAULT;

use super::fixture::{ServerFixture, TestResponse};
use crate::access::ListenPolicy;
use crate::request_middleware::{AuthLayer, admit_and_observe};
use crate::request_observer::RequestObserver;
use crate::server;

const fn deprecation(name: &'static str, path: &'static str, part: DeprecatedPart) -> InterfaceDeprecation {
    let (since, sunset) = (1_795_651_200, Some(1_811_203_200));
    InterfaceDeprecation { name, method: "GET", path, part, since, sunset, replacement: "another" }
}

const LIST: &[InterfaceDeprecation] = &[
    deprecation("operation", "/old", DeprecatedPart::Operation),
    deprecation("parameter", "/livez", DeprecatedPart::Parameter("old")),
    InterfaceDeprecation {
        since: 1_700_000_000,
        sunset: None,
        ..deprecation("header", "/livez", DeprecatedPart::Parameter("x-old"))
    },
];

#[tokio::test]
async fn deprecated_operations_and_parameters_are_announced_and_counted() {
    let metrics = Arc::new(saggar_metrics::MetricsRegistry::new());
    let ask = async |path: &str, headers: &[(&str, &str)]| {
        let access = Arc::clone(ServerFixture::new().app.access());
        let memory = RequestMemoryBudget::new(REQUEST_MEMORY_BYTES_DEFAULT);
        let (policy, scopes) = (ListenPolicy::IN_PROCESS, Arc::new(server::route_scopes()));
        let (observer, metrics) = (RequestObserver::default(), Arc::clone(&metrics));
        let entrance = AuthLayer { policy, access, scopes, metrics, memory, observer, deprecations: LIST };
        let routes = Router::new().route("/livez", get(async || "ok")).route("/old", get(async || "ok"));
        let router = routes.layer(middleware::from_fn_with_state(entrance, admit_and_observe));
        let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
        let request = request.body(Body::empty()).unwrap();
        let answer = TestResponse::from_response(tower::ServiceExt::oneshot(router, request).await.unwrap()).await;
        ["deprecation", "sunset", "link"].map(|name| answer.header(name).to_owned())
    };
    let link = "</docs/reference/deprecations>; rel=\"deprecation\"; type=\"text/html\"";
    let (since, sunset) = ("@1795651200", "Tue, 25 May 2027 00:00:00 GMT");
    assert_eq!(ask("/old", &[]).await, [since, sunset, link]);
    assert_eq!(ask("/livez?a=1&old=2", &[]).await, [since, sunset, link]);
    assert_eq!(ask("/livez?older=2", &[]).await, ["", "", ""]);
    assert_eq!(ask("/livez", &[("X-Old", "1")]).await, ["@1700000000", "", link]);
    // The earliest dates of all that a request uses.
    assert_eq!(ask("/livez?old", &[("X-Old", "1")]).await, ["@1700000000", sunset, link]);
    let page = metrics.render_prometheus();
    for (name, uses) in [("operation", 1), ("parameter", 2), ("header", 2)] {
        assert!(page.contains(&format!("saggar_deprecated_uses_total{{name=\"{name}\"}} {uses}")), "{page}");
    }
}

#[test]
fn each_deprecation_is_of_an_operation_of_this_server() {
    let scopes = server::route_scopes();
    for (at, it) in DEPRECATIONS.iter().enumerate() {
        let method = it.method.parse().unwrap();
        assert!(scopes.find(it.path, &method).is_some(), "{} {}", it.method, it.path);
        assert!(DEPRECATIONS[..at].iter().all(|other| other.name != it.name), "{}", it.name);
        assert!(it.sunset.is_none_or(|sunset| sunset > it.since), "{}", it.name);
    }
}
