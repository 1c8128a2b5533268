//! Predictions in batches: computed together if possible, separately if one of them fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use futures::future::join_all;
use tower::ServiceExt;

use super::fixture::{BLOCK, REJECT, ServerFixture, TRAP, TestResponse, image_json};
/// Requests predictions for all images concurrently.
async fn predict_concurrently(fixture: &ServerFixture, firsts: &[u8]) -> Vec<TestResponse> {
    let ask = |&first: &u8| async move {
        let request = Request::post("/predict").body(Body::from(image_json(first))).unwrap();
        TestResponse::from_response(fixture.router.clone().oneshot(request).await.unwrap()).await
    };
    join_all(firsts.iter().map(ask)).await
}

async fn metric(fixture: &ServerFixture, name: &str) -> f64 {
    fixture.metric(&format!("{name}{{model=\"digits\",version=\"1\"}}")).await.unwrap_or(0.0)
}

#[tokio::test]
async fn concurrent_requests_are_batched() {
    let fixture = ServerFixture::with_digits_serving().await;
    let answers = predict_concurrently(&fixture, &[1, 2, 3, 4, 5, 6, 7]).await;
    for (first, answer) in (1..).zip(&answers) {
        assert_eq!(answer.json()["sum"], f64::from(first + 2 + 3 + 4), "each request gets its own result");
    }
    assert_eq!(metric(&fixture, "saggar_predict_items_total").await, 7.0);
    let executions = metric(&fixture, "saggar_predict_executions_total").await;
    assert!(executions < 7.0, "{executions} batches");
    assert_eq!(metric(&fixture, "saggar_batch_items_sum").await, 7.0);
    assert_eq!(metric(&fixture, "saggar_predict_queue_length").await, 0.0);
}

/// The runtime has one thread for all connections: it must hand over the requests before the model is called.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stalled_fast_model_does_not_block_other_connections() {
    let fixture = Arc::new(ServerFixture::with_digits_serving().await);
    for _ in 0..50 {
        let asking = Arc::clone(&fixture);
        let answer = tokio::spawn(async move { asking.predict(1).await }).await.unwrap();
        assert_eq!(answer.status, 200);
    }
    // Ends the test if nothing else does.
    let gate = Arc::clone(&fixture.host.gate);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(30));
        gate.open();
    });
    let asking = Arc::clone(&fixture);
    let stalled = tokio::spawn(async move { asking.predict(BLOCK).await });
    let began = Instant::now();
    for _ in 0..20 {
        let asking = Arc::clone(&fixture);
        let health = tokio::spawn(async move { asking.get("/healthz").await }).await.unwrap();
        assert_eq!(health.status, 200);
    }
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    fixture.host.gate.open();
    assert_eq!(stalled.await.unwrap().status, 200);
}

/// A driver that hangs blocks the thread that called it. The request's task must not be on that thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_fast_model_with_a_hung_driver_times_out_at_the_deadline() {
    let fixture = Arc::new(ServerFixture::new());
    fixture.publish("digits", "plugin that calls a driver", 1);
    fixture.loader.run_once().await;
    for _ in 0..50 {
        let asking = Arc::clone(&fixture);
        let answer = tokio::spawn(async move { asking.predict(1).await }).await.unwrap();
        assert_eq!(answer.status, 200);
    }
    // Ends the test if the request is not answered.
    let gate = Arc::clone(&fixture.host.gate);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(30));
        gate.open();
    });
    let request = Request::post("/predict").header("x-saggar-deadline-ms", "200").body(Body::from(image_json(BLOCK)));
    let answer = tokio::spawn(fixture.router.clone().oneshot(request.unwrap())).await.unwrap().unwrap();
    let (status, code, _) = TestResponse::from_response(answer).await.error();
    assert_eq!((status, code.as_str()), (504, "deadline"));
    fixture.host.gate.open();
}

#[tokio::test]
async fn max_items_limits_the_batch_size() {
    let fixture = ServerFixture::with_digits_serving().await;
    let path = "/api/v1/models/digits/config";
    let put = Request::put(path).body(Body::from(r#"{"batch": {"max_items": 1}}"#)).unwrap();
    assert_eq!(fixture.send(put).await.status(), 200);
    assert!(predict_concurrently(&fixture, &[1, 2, 3, 4]).await.iter().all(|answer| answer.status == 200));
    assert_eq!(metric(&fixture, "saggar_predict_executions_total").await, 4.0);
    let full = r#"saggar_batches_dispatched_total{model="digits",trigger="full",version="1"}"#;
    assert_eq!(fixture.metric(full).await, Some(4.0));
}

#[tokio::test]
async fn one_poisoned_item_fails_alone() {
    let fixture = ServerFixture::with_digits_serving().await;
    for (poison, status) in [(TRAP, 500), (REJECT, 422)] {
        let answers = predict_concurrently(&fixture, &[poison, 1, 2, 3]).await;
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
        assert_eq!(statuses, [status, 200, 200, 200]);
    }
}

#[tokio::test]
async fn a_disconnected_clients_queued_request_is_cancelled() {
    let fixture = ServerFixture::with_digits_serving().await;
    let put = Request::put("/api/v1/models/digits/config").body(Body::from(r#"{"instances": {"max": 1}}"#)).unwrap();
    assert_eq!(fixture.send(put).await.status(), 200);
    let ask = |first| {
        let request = Request::post("/predict").body(Body::from(image_json(first))).unwrap();
        tokio::spawn(fixture.router.clone().oneshot(request))
    };
    let blocked = ask(BLOCK);
    fixture.metric_becomes(r#"saggar_predict_in_flight{model="digits",version="1"}"#, Some(1.0)).await;
    let waiting = ask(1);
    let queue = r#"saggar_predict_queue_length{model="digits",version="1"}"#;
    fixture.metric_becomes(queue, Some(1.0)).await;
    waiting.abort();
    fixture.metric_becomes(queue, Some(0.0)).await;
    let cancelled = r#"saggar_predict_requests_total{model="digits",outcome="cancelled",version="1"}"#;
    fixture.metric_becomes(cancelled, Some(1.0)).await;
    fixture.host.gate.open();
    assert_eq!(blocked.await.unwrap().unwrap().status(), 200);
    assert_eq!(metric(&fixture, "saggar_predict_executions_total").await, 1.0, "the other was not computed");
}

#[tokio::test]
async fn a_deadline_shorter_than_max_delay_dispatches_the_batch_early() {
    let fixture = ServerFixture::with_digits_serving().await;
    let settings = r#"{"batch": {"max_delay": "10m"}, "queue": {"timeout": "10m"}, "instances": {"max": 2}}"#;
    let put = Request::put("/api/v1/models/digits/config").body(Body::from(settings)).unwrap();
    assert_eq!(fixture.send(put).await.status(), 200);
    let ask = |first, limit: &'static str| {
        let request =
            Request::post("/predict").header("x-saggar-deadline-ms", limit).body(Body::from(image_json(first)));
        tokio::spawn(fixture.router.clone().oneshot(request.unwrap()))
    };
    let blocked = ask(BLOCK, "600000");
    fixture.metric_becomes(r#"saggar_predict_in_flight{model="digits",version="1"}"#, Some(1.0)).await;
    assert_eq!(ask(1, "2000").await.unwrap().unwrap().status(), 200, "alone");

    // A request with less time than the one already waiting dispatches both.
    let patient = ask(1, "600000");
    fixture.metric_becomes(r#"saggar_predict_queue_length{model="digits",version="1"}"#, Some(1.0)).await;
    let hasty = ask(2, "2000");
    assert_eq!([hasty.await.unwrap().unwrap().status(), patient.await.unwrap().unwrap().status()], [200, 200]);
    assert_eq!(metric(&fixture, "saggar_predict_executions_total").await, 2.0, "both in one batch");
    let deadline = r#"saggar_batches_dispatched_total{model="digits",trigger="deadline",version="1"}"#;
    assert_eq!(fixture.metric(deadline).await, Some(2.0));

    // If there is no time to compute it, it is refused at its deadline.
    let late = TestResponse::from_response(ask(1, "1").await.unwrap().unwrap()).await;
    assert!(matches!(late.error().1.as_str(), "deadline_queued" | "deadline"), "{}", late.text());
    fixture.host.gate.open();
    assert_eq!(blocked.await.unwrap().unwrap().status(), 200);
}
