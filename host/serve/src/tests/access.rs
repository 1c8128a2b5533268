//! Access: the requirements of each route, keys and their limits, and requests from other sites' pages.

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use saggar_store::AccessAction;
use saggar_store::keys::{KeyScope, NewKey};
use tower::ServiceExt;

use super::fixture::{ServerFixture, TestResponse, image_json};
use crate::access::route_scopes::RouteRequirement;
use crate::access::{Exposure, ListenPolicy};
use crate::server;

const GUARDED_POLICY: ListenPolicy = ListenPolicy { exposure: Exposure::Network, requires_key: true };

pub(super) async fn ask(router: &Router, method: &str, path: &str, headers: &[(&str, &str)]) -> TestResponse {
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    if headers.iter().all(|(name, _)| *name != "host") {
        request = request.header("host", "localhost:5000");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = Body::from(if path.contains("predict") { image_json(1) } else { String::new() });
    TestResponse::from_response(router.clone().oneshot(request.body(body).unwrap()).await.unwrap()).await
}

fn create_key(
    fixture: &ServerFixture,
    name: &str,
    scopes: &[KeyScope],
    limits: (Option<&str>, Option<&str>),
) -> String {
    let new = NewKey {
        name: name.to_owned(),
        scopes: scopes.to_vec(),
        projects: None,
        rate: limits.0.map(|rate| rate.parse().unwrap()),
        quota: limits.1.map(|quota| quota.parse().unwrap()),
        max_running_jobs: None,
        gpu_seconds: None,
        expires_ms: None,
    };
    format!("Bearer {}", fixture.home.keys().create(new, fixture.app.now_ms()).unwrap().1)
}

/// Routes that accept every method and distinguish methods themselves.
const ANY_METHOD_ROUTES: [&str; 3] = ["/v1/", "/v1/{*path}", "/V1/{*path}"];

/// Returns the methods of a route, from the response to an unsupported method.
async fn allowed_methods(router: &Router, path: &str) -> Vec<Method> {
    if ANY_METHOD_ROUTES.contains(&path) {
        let of = server::route_methods().filter(|(route, _)| *route == path);
        return of.map(|(_, method)| method).collect();
    }
    let path = path.replace("{*path}", "x").replace(['{', '}'], "");
    let request = Request::builder().method("BREW").uri(&path).body(Body::empty()).unwrap();
    let answer = TestResponse::from_response(router.clone().oneshot(request).await.unwrap()).await;
    assert_eq!(answer.status, 405, "{path}");
    let allow = answer.header("allow").split(',').map(|method| method.trim().parse().unwrap());
    let methods: Vec<Method> = allow.collect();
    assert!(!methods.is_empty(), "{path} allows no method");
    methods
}

#[tokio::test]
async fn every_route_has_a_required_scope() {
    let fixture = ServerFixture::new();
    let needs = server::route_scopes();
    let mut found = 0;
    let mut missing = Vec::new();
    for path in server::route_paths() {
        for method in allowed_methods(&fixture.router, path).await {
            match needs.find(path, &method) {
                None => missing.push(format!("{method} {path}")),
                // `HEAD` is included in `GET`.
                Some(_) => found += usize::from(method != Method::HEAD),
            }
        }
    }
    assert!(missing.is_empty(), "no protocol gives a requirement for {missing:?}");
    let listed: Vec<String> = server::route_methods().map(|(path, method)| format!("{method} {path}")).collect();
    assert_eq!(found, listed.len(), "a route of the table does not exist, or is listed twice: {listed:#?}");
    assert_eq!(
        needs.requirement(Some("/no/such/route"), &Method::GET),
        RouteRequirement::Effect(AccessAction::Administer)
    );
    assert_eq!(
        needs.requirement(Some("/v1/{*path}"), &Method::PUT),
        RouteRequirement::Effect(AccessAction::Administer)
    );
    assert_eq!(
        needs.requirement(None, &Method::POST),
        RouteRequirement::Effect(AccessAction::Predict),
        "a path that the default model may declare"
    );
}

#[tokio::test]
async fn without_a_key_only_probes_and_the_console_page_answer() {
    let fixture = ServerFixture::with_digits_serving().await;
    let router = fixture.app.router_for(GUARDED_POLICY);
    for path in ["/healthz", "/livez", "/readyz", "/version", "/v2/health/live", "/v2/health/ready"] {
        assert_eq!(ask(&router, "GET", path, &[]).await.status, 200, "{path}");
    }
    let needs = server::route_scopes();
    for path in server::route_paths() {
        for method in allowed_methods(&fixture.router, path).await {
            if needs.requirement(Some(path), &method) == RouteRequirement::Nothing || method == Method::HEAD {
                continue;
            }
            let path = path.replace("{*path}", "x").replace(['{', '}'], "");
            let answer = ask(&router, method.as_str(), &path, &[]).await;
            assert_eq!(answer.error().0, 401, "{method} {path}");
            assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"saggar\"");
        }
    }
    assert_eq!(ask(&router, "GET", "/no/such/page", &[]).await.error().0, 401);
    assert_eq!(ask(&router, "GET", "/", &[("accept", "text/html")]).await.status, 200, "the console's page");
    let page = fixture.get("/metrics").await.text();
    let mut predictions = page.lines().filter(|line| line.starts_with("saggar_predict_requests_total{"));
    assert!(predictions.all(|line| line.ends_with(" 0")), "no request reached a model: {page}");
    let missing = fixture.metric(r#"saggar_auth_failures_total{reason="missing"}"#).await;
    assert!(missing.is_some_and(|count| count > 20.0), "{missing:?}");
}

#[tokio::test]
async fn a_key_is_limited_to_its_scopes() {
    let fixture = ServerFixture::with_digits_serving().await;
    let router = fixture.app.router_for(GUARDED_POLICY);
    let predict = create_key(&fixture, "shop", &[KeyScope::Predict], (None, None));
    let with = |key: &str| vec![("authorization".to_owned(), key.to_owned())];
    let send = async |key: &str, method: &str, path: &str| {
        let headers = with(key);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        ask(&router, method, path, &headers).await
    };
    assert_eq!(send(&predict, "POST", "/predict").await.status, 200);
    assert_eq!(send(&predict.replace("Bearer", "bearer"), "POST", "/predict").await.status, 200);
    assert_eq!(send(&predict, "GET", "/api/v1/models").await.status, 200);
    assert_eq!(send(&predict, "GET", "/no/such/page").await.error().0, 404);
    let refused = send(&predict, "GET", "/api/v1/jobs").await;
    let expected = (403, "missing_scope".to_owned(), "the key shop lacks the scope jobs:read".to_owned());
    assert_eq!(refused.error(), expected);
    assert!(refused.header("www-authenticate").ends_with("error=\"insufficient_scope\", scope=\"jobs:read\""));
    assert_eq!(send(&predict, "GET", "/metrics").await.error().0, 403);
    let metrics = create_key(&fixture, "scraper", &[KeyScope::MetricsRead], (None, None));
    assert_eq!(send(&metrics, "GET", "/metrics").await.status, 200);
    assert_eq!(send(&metrics, "POST", "/predict").await.error().0, 403);
    let admin = create_key(&fixture, "boss", &[KeyScope::Admin], (None, None));
    for (method, path) in [("POST", "/predict"), ("GET", "/metrics"), ("GET", "/api/v1/keys"), ("GET", "/api/v1/jobs")]
    {
        assert_eq!(send(&admin, method, path).await.status, 200, "{path}");
    }
    fixture.home.keys().revoke("shop").unwrap();
    fixture.app.access().reload_keys();
    assert_eq!(send(&predict, "POST", "/predict").await.error().1, "unknown_key");
}

#[tokio::test]
async fn invalid_keys_are_refused() {
    let fixture = ServerFixture::with_digits_serving().await;
    let router = fixture.app.router_for(GUARDED_POLICY);
    let good = create_key(&fixture, "shop", &[KeyScope::Predict], (None, None));
    let mut near = good.clone();
    let last = near.pop().unwrap();
    near.push(if last == '0' { '1' } else { '0' });
    for (wrong, code) in [
        (near.as_str(), "unknown_key"),
        (&good[..good.len() - 1], "unknown_key"),
        ("Bearer", "no_key"),
        ("Bearer ", "unknown_key"),
        ("Bearer sgr_00000000_", "unknown_key"),
        ("Basic c2hvcDpzaG9w", "no_key"),
        ("Bearer \u{e9}", "unknown_key"),
        (good.trim_start_matches("Bearer "), "no_key"),
    ] {
        let answer = ask(&router, "POST", "/predict", &[("authorization", wrong)]).await;
        assert_eq!((answer.error().0, answer.error().1.as_str()), (401, code), "{wrong}");
    }
    let twice = [("authorization", good.as_str()), ("authorization", near.as_str())];
    assert_eq!(ask(&router, "POST", "/predict", &twice).await.error().0, 401);
    let elsewhere = [("x-api-key", good.trim_start_matches("Bearer "))];
    assert_eq!(ask(&router, "POST", "/predict", &elsewhere).await.error().0, 401, "one header, not two");
    let path = format!("/predict?key={}", good.trim_start_matches("Bearer "));
    assert_eq!(ask(&router, "POST", &path, &[]).await.error().0, 401);
    let expired = NewKey {
        name: "old".to_owned(),
        scopes: vec![KeyScope::Admin],
        projects: None,
        rate: None,
        quota: None,
        max_running_jobs: None,
        gpu_seconds: None,
        expires_ms: Some(2_000),
    };
    let old = format!("Bearer {}", fixture.home.keys().create(expired, 1_000).unwrap().1);
    let answer = ask(&router, "POST", "/predict", &[("authorization", &old)]).await;
    assert_eq!(answer.error(), (401, "expired_key".to_owned(), "the key old has expired".to_owned()));
}

#[tokio::test]
async fn rate_limits_and_quotas_of_keys_are_enforced() {
    let fixture = ServerFixture::with_digits_serving().await;
    let router = fixture.app.router_for(GUARDED_POLICY);
    let slow = create_key(&fixture, "slow", &[KeyScope::Predict], (Some("2/h"), None));
    let small = create_key(&fixture, "small", &[KeyScope::Predict], (None, Some("3/month")));
    for (key, allowed, code, reason) in [(&slow, 2, "rate_limited", "rate"), (&small, 3, "quota_exceeded", "quota")] {
        for _ in 0..allowed {
            assert_eq!(ask(&router, "POST", "/predict", &[("authorization", key)]).await.status, 200);
        }
        let refused = ask(&router, "POST", "/predict", &[("authorization", key)]).await;
        assert_eq!((refused.error().0, refused.error().1.as_str()), (429, code));
        let seconds: u64 = refused.header("retry-after").parse().unwrap();
        // The rate allows the next request within half an hour; the quota is reset within a month.
        let longest = if reason == "rate" { 1800 } else { 31 * 86_400 };
        assert!((1..=longest).contains(&seconds), "{seconds}");
        let line = format!(r#"saggar_requests_rejected_total{{reason="{reason}"}}"#);
        assert_eq!(fixture.metric(&line).await, Some(1.0));
    }
    let free = ask(&router, "GET", "/healthz", &[("authorization", &slow)]).await;
    assert_eq!(free.status, 200, "requests without a key are not counted");
    // The usage survives a restart, as of when it was last saved.
    fixture.app.access().save_key_usage();
    let parts = fixture.app.parts();
    let again = crate::AccessControl::new(
        fixture.home.keys(),
        fixture.home.key_usage(),
        std::sync::Arc::new(saggar_clock::SystemClock),
        std::sync::Arc::clone(&parts.metrics),
    );
    let used: Vec<u64> =
        again.list_keys().into_iter().filter(|(key, _)| key.name == "small").map(|(_, used)| used).collect();
    assert_eq!(used, [3]);
}

#[tokio::test]
async fn local_listeners_need_no_key_unless_configured() {
    let fixture = ServerFixture::with_digits_serving().await;
    let scrape = [("host", "localhost")];
    for exposure in [Exposure::Loopback, Exposure::UnixSocket] {
        let open = fixture.app.router_for(ListenPolicy { exposure, requires_key: false });
        assert_eq!(ask(&open, "POST", "/predict", &[]).await.status, 200);
        assert_eq!(ask(&open, "GET", "/metrics", &scrape).await.status, 200);
        let guarded = fixture.app.router_for(ListenPolicy { exposure, requires_key: true });
        assert_eq!(ask(&guarded, "POST", "/predict", &[]).await.error().0, 401);
        assert_eq!(ask(&guarded, "GET", "/metrics", &scrape).await.status, 200);
    }
    let insecure = fixture.app.router_for(ListenPolicy { exposure: Exposure::Network, requires_key: false });
    assert_eq!(ask(&insecure, "POST", "/predict", &[("host", "box.example")]).await.status, 200);
}

#[tokio::test]
async fn cross_site_requests_to_an_open_listener_are_refused() {
    let fixture = ServerFixture::with_digits_serving().await;
    let open = fixture.app.router_for(ListenPolicy { exposure: Exposure::Loopback, requires_key: false });
    let rebound = [("host", "evil.example:5000"), ("origin", "http://evil.example:5000")];
    for (method, path) in [("POST", "/predict"), ("GET", "/api/v1/models"), ("GET", "/metrics")] {
        let answer = ask(&open, method, path, &rebound).await;
        assert_eq!((answer.error().0, answer.error().1.as_str()), (403, "foreign_host"), "{method} {path}");
    }
    let page = [("origin", "https://evil.example")];
    let answer = ask(&open, "POST", "/api/v1/jobs", &page).await;
    assert_eq!((answer.error().0, answer.error().1.as_str()), (403, "cross_site"));
    assert_eq!(answer.header("access-control-allow-origin"), "", "the page cannot read the response either");
    let own = [("origin", "http://localhost:5000"), ("sec-fetch-site", "same-origin")];
    assert_eq!(ask(&open, "POST", "/predict", &own).await.status, 200, "the console's own requests");
    let insecure = fixture.app.router_for(ListenPolicy { exposure: Exposure::Network, requires_key: false });
    assert_eq!(ask(&insecure, "POST", "/predict", &page).await.error().0, 403);
    let count = fixture.metric(r#"saggar_requests_rejected_total{reason="cross_site"}"#).await;
    assert_eq!(count, Some(5.0));
}
