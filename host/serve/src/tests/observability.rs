//! Headers that every response has, probes, and the metrics page.

use std::collections::BTreeSet;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::middleware;
use axum::routing::get;
use saggar_serving::RequestMemoryBudget;
use saggar_serving::limits::REQUEST_MEMORY_BYTES_DEFAULT;
use std::sync::Arc;

use super::fixture::{ServerFixture, TestResponse, image_json};
use crate::access::ListenPolicy;
use crate::request_middleware::{AuthLayer, admit_and_observe};
use crate::request_observer::RequestObserver;
use crate::server;

#[tokio::test]
async fn every_response_has_a_request_id() {
    let fixture = ServerFixture::with_digits_serving().await;
    let ask = |id: Option<String>| {
        let mut request = Request::get("/nowhere");
        if let Some(id) = id {
            request = request.header("x-request-id", id);
        }
        fixture.send(request.body(Body::empty()).unwrap())
    };
    let answer = TestResponse::from_response(ask(Some("mine-7".to_owned())).await).await;
    assert_eq!(answer.header("x-request-id"), "mine-7");
    assert_eq!(answer.error(), (404, "not_found".to_owned(), "no route /nowhere".to_owned()));
    let mut ids = BTreeSet::new();
    for _ in 0..10 {
        ids.insert(TestResponse::from_response(ask(None).await).await.header("x-request-id").to_owned());
    }
    assert_eq!(ids.len(), 10);
    let long = TestResponse::from_response(ask(Some("x".repeat(1000))).await).await;
    assert!(long.header("x-request-id").len() < 100);
    assert!(fixture.get("/healthz").await.headers.contains_key("x-request-id"));
}

#[tokio::test]
async fn routes_are_counted_by_template() {
    let fixture = ServerFixture::with_digits_serving().await;
    for at in 0..20 {
        fixture.get(&format!("/nowhere/{at}")).await;
        fixture.post_json(&format!("/models/none{at}/predict"), "1").await;
        fixture.send(Request::builder().method("BREW").uri("/").body(Body::empty()).unwrap()).await;
    }
    let text = fixture.get("/metrics").await.text();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("saggar_http_requests_total")).collect();
    let expected = [
        r#"saggar_http_requests_total{code="404",method="GET",route="unmatched"} 20"#,
        r#"saggar_http_requests_total{code="404",method="POST",route="/models/{model}/predict"} 20"#,
        r#"saggar_http_requests_total{code="405",method="other",route="/"} 20"#,
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    assert!(expected.iter().all(|line| lines.contains(line)), "{lines:?}");
}

#[tokio::test]
async fn a_panicking_handler_returns_an_error_response() {
    let metrics = Arc::new(saggar_metrics::MetricsRegistry::new());
    let access = Arc::clone(ServerFixture::new().app.access());
    async fn panicking_handler() -> &'static str {
        panic!("with a secret")
    }
    let memory = RequestMemoryBudget::new(REQUEST_MEMORY_BYTES_DEFAULT);
    let (policy, scopes) = (ListenPolicy::IN_PROCESS, Arc::new(server::route_scopes()));
    let observer = RequestObserver::default();
    let entrance =
        AuthLayer { policy, access, scopes, metrics: Arc::clone(&metrics), memory, observer, deprecations: &[] };
    let layer = middleware::from_fn_with_state(entrance, admit_and_observe);
    let router = Router::new().route("/", get(panicking_handler)).layer(layer);
    let request = Request::get("/").body(Body::empty()).unwrap();
    let answer = TestResponse::from_response(tower::ServiceExt::oneshot(router, request).await.unwrap()).await;
    assert_eq!(answer.error(), (500, "internal".to_owned(), "internal error".to_owned()));
    assert!(metrics.render_prometheus().contains(r#"saggar_http_requests_total{code="500",method="GET",route="/"} 1"#));
}

#[tokio::test]
async fn a_wrong_method_lists_the_allowed_ones() {
    let fixture = ServerFixture::with_digits_serving().await;
    let answer = fixture.get("/api/v1/models/digits/load").await;
    let message = "GET is not a method of /api/v1/models/digits/load".to_owned();
    assert_eq!(answer.error(), (405, "method_not_allowed".to_owned(), message));
    assert_eq!(answer.header("allow"), "POST");
}

#[tokio::test]
async fn liveness_and_readiness_probes_report_the_server_state() {
    let fixture = ServerFixture::new();
    for path in ["/healthz", "/livez"] {
        let answer = fixture.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, "ok"));
    }
    assert_eq!(fixture.get("/version").await.text(), r#"{"name":"saggar","version":"0.1.0"}"#);
    assert_eq!(fixture.get("/readyz").await.text(), r#"{"ready":true}"#);
    fixture.publish("digits", "refused", 1);
    fixture.loader.run_once().await;
    let answer = fixture.get("/readyz").await;
    assert_eq!(answer.status, 503);
    let reason = answer.json()["reasons"][0].as_str().unwrap().to_owned();
    assert!(reason.starts_with("model digits does not serve, version 1 is FAILED: BAD_PLUGIN: "), "{reason}");
    fixture.publish("digits", "plugin", 2);
    fixture.loader.run_once().await;
    let answer = fixture.get("/readyz?verbose").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["models"][0]["versions"][1]["state"], "READY");
    fixture.stop.send(true).unwrap();
    assert_eq!(fixture.get("/readyz").await.json()["reasons"][0], "the server is stopping");
}

#[tokio::test]
async fn the_index_serves_json_or_the_console_by_accept_header() {
    let fixture = ServerFixture::with_digits_serving().await;
    let index = fixture.get("/").await.json();
    assert_eq!((&index["name"], &index["models"][0]["name"]), (&"saggar".into(), &"digits".into()));
    assert!(index["routes"].as_array().unwrap().contains(&"/models/{model}/predict".into()));
    let page = get_html(&fixture, None).await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert_eq!((page.header("cache-control"), page.header("vary")), ("no-cache", "accept"));
    assert!(page.header("content-security-policy").starts_with("default-src 'none'; script-src 'self'; "));
    let again = get_html(&fixture, Some(page.header("etag"))).await;
    assert_eq!(again.status, 304);
    assert_eq!((again.text().as_str(), again.header("etag")), ("", page.header("etag")));
    let other = get_html(&fixture, Some("\"0123\"")).await;
    assert_eq!(other.status, 200);
    assert_eq!(other.text(), page.text());
}

async fn get_html(fixture: &ServerFixture, known: Option<&str>) -> TestResponse {
    let request = Request::get("/").header("accept", "text/html,application/xhtml+xml");
    let request = known.into_iter().fold(request, |request, tag| request.header("if-none-match", tag));
    TestResponse::from_response(fixture.send(request.body(Body::empty()).unwrap()).await).await
}

#[tokio::test]
async fn console_assets_are_immutable_in_caches() {
    let fixture = ServerFixture::with_digits_serving().await;
    let page = get_html(&fixture, None).await;
    let path = page.text().split("src=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let script = fixture.get(&path).await;
    assert_eq!(script.status, 200);
    assert_eq!(script.header("content-type"), "text/javascript; charset=utf-8");
    assert_eq!(script.header("cache-control"), "public, max-age=31536000, immutable");
    assert_eq!(script.header("x-content-type-options"), "nosniff");
    let other = path.replace("/console/", "/console/0");
    assert_eq!(fixture.get(&other).await.status, 404);
    assert_eq!(fixture.get(&path.replace("main.js", "..%2f..%2fCargo.toml")).await.status, 404);
}

/// The rules of `promtool check metrics`, as far as they can apply to the page.
#[tokio::test]
async fn the_metrics_page_is_well_formed() {
    let fixture = ServerFixture::with_digits_serving().await;
    fixture.post_json("/predict", &image_json(1)).await;
    fixture.post_json("/predict", "{").await;
    let answer = fixture.get("/metrics").await;
    assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
    let text = answer.text();
    assert!(text.ends_with('\n'));
    let (mut typed, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut family = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap();
            assert!(typed.insert(family), "{family} is described twice");
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(seen.insert(series), "{series} appears twice");
            assert!(series.starts_with(family), "{series} stands under {family}");
        }
    }
    for family in
        ["saggar_build_info", "saggar_predict_phase_seconds", "saggar_model_setups_total", "saggar_cold_start_seconds"]
    {
        assert!(typed.contains(family), "{family}");
    }
}

#[tokio::test]
async fn a_version_is_set_up_once_for_many_requests() {
    let fixture = ServerFixture::with_digits_serving().await;
    for _ in 0..20 {
        assert_eq!(fixture.post_json("/predict", &image_json(1)).await.status, 200);
        fixture.loader.run_once().await;
    }
    fixture.publish("digits", "plugin", 2);
    for _ in 0..20 {
        fixture.loader.run_once().await;
        assert_eq!(fixture.post_json("/predict", &image_json(1)).await.status, 200);
    }
    let text = fixture.get("/metrics").await.text();
    let setups: Vec<&str> = text.lines().filter(|line| line.starts_with("saggar_model_setups_total{")).collect();
    let expected =
        [1, 2].map(|version| format!(r#"saggar_model_setups_total{{model="digits",version="{version}"}} 1"#));
    assert_eq!(setups, expected);
}

/// Returns the metrics page as sent to a client with these headers.
async fn get_metrics(fixture: &ServerFixture, headers: &[(&str, &str)]) -> TestResponse {
    let request = headers.iter().fold(Request::get("/metrics"), |request, (name, value)| request.header(*name, *value));
    TestResponse::from_response(fixture.send(request.body(Body::empty()).unwrap()).await).await
}

#[tokio::test]
async fn openmetrics_is_served_to_clients_that_prefer_it() {
    let fixture = ServerFixture::with_digits_serving().await;
    fixture.post_json("/predict", &image_json(1)).await;
    // The header that Prometheus 2 and 3 send.
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                      text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    for accept in [prometheus, "application/openmetrics-text", "application/openmetrics-text; version=\"1.0.0\""] {
        let answer = get_metrics(&fixture, &[("accept", accept)]).await;
        assert_eq!(answer.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
        assert_eq!(answer.header("vary"), "accept, accept-encoding");
        let text = answer.text();
        assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1, "{accept}: {text}");
        assert!(text.contains("# TYPE saggar_predict_requests counter\n"), "{text}");
        assert!(
            text.contains("\nsaggar_predict_requests_total{model=\"digits\",outcome=\"success\",version=\"1\"} 1\n")
        );
    }
    for accept in
        ["*/*", "text/plain", "application/openmetrics-text;version=2.0.0", "application/openmetrics-text;q=0"]
    {
        let answer = get_metrics(&fixture, &[("accept", accept)]).await;
        assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8", "{accept}");
        assert!(!answer.text().contains("# EOF"), "{accept}");
    }
}

#[tokio::test]
async fn the_metrics_page_is_compressed_for_clients_that_take_gzip() {
    let fixture = ServerFixture::with_digits_serving().await;
    let plain = get_metrics(&fixture, &[]).await;
    assert!(plain.headers.get("content-encoding").is_none());
    let packed =
        get_metrics(&fixture, &[("accept-encoding", "gzip"), ("accept", "application/openmetrics-text")]).await;
    assert_eq!((packed.header("content-encoding"), packed.header("vary")), ("gzip", "accept, accept-encoding"));
    assert!(packed.body.len() * 4 < plain.body.len(), "{} of {} bytes", packed.body.len(), plain.body.len());
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed.body[..]), &mut text).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[tokio::test]
async fn counters_with_known_labels_start_at_zero() {
    let fixture = ServerFixture::new();
    for line in [
        r#"saggar_requests_rejected_total{reason="queue_full"}"#,
        r#"saggar_requests_rejected_total{reason="rate"}"#,
        r#"saggar_auth_failures_total{reason="missing"}"#,
        r#"saggar_model_evictions_total{reason="lru"}"#,
        "saggar_watch_rescans_total",
    ] {
        assert_eq!(fixture.metric(line).await, Some(0.0), "{line}");
    }
    fixture.publish("digits", "plugin", 1);
    fixture.loader.run_once().await;
    for line in [
        r#"saggar_predict_requests_total{model="digits",outcome="success",version="1"}"#,
        r#"saggar_predict_requests_total{model="digits",outcome="host_error",version="1"}"#,
        r#"saggar_batches_dispatched_total{model="digits",trigger="full",version="1"}"#,
    ] {
        assert_eq!(fixture.metric(line).await, Some(0.0), "{line}");
    }
}

/// Every series uses memory in Prometheus, and a server can have thousands of models.
#[tokio::test]
async fn a_model_has_few_metric_series_and_none_after_removal() {
    let fixture = ServerFixture::with_digits_serving().await;
    fixture.predict(1).await;
    fixture.publish("digits", "plugin", 2);
    fixture.loader.run_once().await;
    fixture.predict(1).await;
    std::fs::remove_dir_all(fixture.version_dir("digits", 1)).unwrap();
    fixture.loader.run_once().await;
    let count = |text: &str, label: &str| text.lines().filter(|line| line.contains(label)).count();
    let text = fixture.get("/metrics").await.text();
    let of_version = count(&text, "version=\"2\"");
    assert!((60..=110).contains(&of_version), "{of_version} series of one version: {text}");
    std::fs::remove_dir_all(fixture.home.models().join("digits")).unwrap();
    fixture.loader.run_once().await;
    while count(&fixture.get("/metrics").await.text(), "model=\"digits\"") > 0 {
        tokio::task::yield_now().await;
    }
}
