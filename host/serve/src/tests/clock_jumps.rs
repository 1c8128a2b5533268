//! Clock jumps of an hour back and a day forward: which behavior depends on the time of day, and which does not.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use saggar_clock::ManualClock;
use saggar_serving::limits::IDLE_MODEL_POLL;
use saggar_store::keys::{KeyScope, NewKey};
use serde_json::{Value, json};

use super::access::ask;
use super::fixture::{ServerFixture, TestResponse, image_json};
use super::serving_options::ServingOptions;
use crate::access::{Exposure, ListenPolicy};

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
/// 2026-11-21T12:00:00Z.
const NOON: u64 = 1_795_262_400_000;
/// The times to which the clock jumps, starting from noon.
const JUMPS: [u64; 6] = [NOON - HOUR, NOON + DAY, NOON, NOON - DAY, HOUR, NOON];

/// Returns a server at noon that serves version 1 of `digits`.
async fn serving_at_noon() -> (ServerFixture, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(NOON));
    let options = ServingOptions { clock: Arc::<ManualClock>::clone(&clock), ..ServingOptions::default() };
    let fixture = ServerFixture::with_options(options);
    fixture.publish("digits", "plugin", 1);
    fixture.loader.run_once().await;
    (fixture, clock)
}

#[tokio::test]
async fn clock_jumps_before_the_expiry_do_not_invalidate_a_key() {
    let (fixture, clock) = serving_at_noon().await;
    let new = NewKey {
        name: "short".to_owned(),
        scopes: vec![KeyScope::Predict],
        projects: None,
        rate: Some("1000/s".parse().unwrap()),
        quota: None,
        max_running_jobs: None,
        gpu_seconds: None,
        expires_ms: Some(NOON + 2 * HOUR),
    };
    let key = format!("Bearer {}", fixture.home.keys().create(new, NOON).unwrap().1);
    let router = fixture.app.router_for(ListenPolicy { exposure: Exposure::Network, requires_key: true });
    for now_ms in JUMPS {
        clock.set(now_ms);
        let answer = ask(&router, "POST", "/predict", &[("authorization", &key)]).await;
        if now_ms < NOON + 2 * HOUR {
            assert_eq!(answer.status, 200, "at {now_ms}: {}", answer.text());
        } else {
            assert_eq!((answer.error().0, answer.error().1.as_str()), (401, "expired_key"), "at {now_ms}");
        }
    }
    assert_eq!(fixture.app.access().list_keys().len(), 1, "an expired key stays in the file");
}

#[tokio::test]
async fn a_finished_prediction_stays_available_through_clock_jumps() {
    let (fixture, clock) = serving_at_noon().await;
    let body = json!({ "input": { "image": [[1, 2], [3, 4]] } });
    let request = Request::put("/predictions/mine").header("content-type", "application/json");
    let answer =
        TestResponse::from_response(fixture.send(request.body(Body::from(body.to_string())).unwrap()).await).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["status"]), (200, &json!("succeeded")), "{}", answer.text());
    for now_ms in JUMPS {
        clock.set(now_ms);
        let found = fixture.get("/predictions/mine").await;
        assert_eq!((found.status.as_u16(), found.json()), (200, answer.json()), "at {now_ms}");
    }
}

#[tokio::test]
async fn clock_jumps_do_not_change_when_an_idle_model_sleeps() {
    let (fixture, clock) = serving_at_noon().await;
    let house = tokio::spawn(Arc::clone(fixture.app.lifecycle()).run_residency_loop(fixture.stop.subscribe()));
    let keep = async |time: &str| {
        let body = Body::from(json!({ "keep_alive": time }).to_string());
        let request = Request::put("/api/v1/models/digits/config").header("content-type", "application/json");
        let response = TestResponse::from_response(fixture.send(request.body(body).unwrap()).await).await;
        assert_eq!(response.status, 200, "{}", response.text());
    };
    let model = async || fixture.get("/api/v1/models/digits").await.json();
    keep("10m").await;
    for now_ms in JUMPS {
        clock.set(now_ms);
        assert_eq!(model().await["state"], Value::from("READY"), "at {now_ms}");
        let answer = fixture.post_json("/models/digits/predict", &image_json(1)).await;
        assert_eq!((answer.status.as_u16(), answer.json()["mark"].clone()), (200, json!(1)), "at {now_ms}");
        // Longer than two polls for idle models.
        tokio::time::sleep(2 * IDLE_MODEL_POLL).await;
        let left = model().await["versions"][0]["expires_in_ms"].as_u64().unwrap();
        assert!((300_000..=600_000).contains(&left), "at {now_ms}: {left} ms");
    }
    assert_eq!(fixture.metric(r#"saggar_model_evictions_total{reason="idle"}"#).await, Some(0.0));
    // A keep-alive requested when the clock was a day ahead does not keep the model loaded.
    keep("0s").await;
    while model().await["state"] != "ASLEEP" {
        tokio::task::yield_now().await;
    }
    fixture.stop.send_replace(true);
    house.await.unwrap();
}
