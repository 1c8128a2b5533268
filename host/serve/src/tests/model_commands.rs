//! Model commands: promotion and rollback, aliases, traffic shares, shadows, loading, settings, sleep.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::fixture::{MODEL_BYTES, ServerFixture, TestResponse, image_json};

/// Returns a server with versions 1 to `count` of `digits` on disk, the newest loaded.
async fn with_versions(count: i32) -> ServerFixture {
    let fixture = ServerFixture::new();
    for mark in 1..=count {
        fixture.publish("digits", "plugin", mark);
    }
    fixture.loader.run_once().await;
    fixture
}

async fn ask(fixture: &ServerFixture, method: &str, path: &str, body: Value) -> TestResponse {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    TestResponse::from_response(fixture.send(request.body(body).unwrap()).await).await
}

async fn send_command(fixture: &ServerFixture, method: &str, what: &str, body: Value) -> Value {
    let answer = ask(fixture, method, &format!("/api/v1/models/digits/{what}"), body).await;
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    answer.json()
}

async fn answering_mark(fixture: &ServerFixture, reference: &str) -> Value {
    let answer = fixture.post_json(&format!("/models/{reference}/predict"), &image_json(1)).await;
    if answer.status == 200 { answer.json()["mark"].clone() } else { json!(answer.error().1) }
}

async fn model_json(fixture: &ServerFixture) -> Value {
    fixture.get("/api/v1/models/digits").await.json()
}

#[tokio::test]
async fn a_promoted_version_stays_default_until_a_rollback() {
    let fixture = with_versions(2).await;
    let promoted = send_command(&fixture, "POST", "promote", json!({"version": 1})).await;
    assert_eq!((&promoted["serving"], &promoted["follows_newest"]), (&json!(1), &json!(false)));
    assert_eq!((&promoted["last_swap"]["from"], &promoted["last_swap"]["reason"]), (&json!(2), &json!("PROMOTED")));
    fixture.publish("digits", "plugin", 3);
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture, "digits").await, 1, "a newer version changes nothing");
    let back = send_command(&fixture, "POST", "rollback", Value::Null).await;
    assert_eq!((&back["serving"], &back["last_swap"]["reason"]), (&json!(2), &json!("ROLLED_BACK")));
    let none = ask(&fixture, "POST", "/api/v1/models/digits/rollback", Value::Null).await.error();
    assert_eq!((none.0, none.1.as_str()), (409, "conflict"));
    let newest = send_command(&fixture, "POST", "promote", json!({"version": "newest"})).await;
    assert_eq!((&newest["serving"], &newest["follows_newest"]), (&json!(3), &json!(true)));
    for (body, status) in [(json!({"version": 9}), 404), (json!({"version": "old"}), 400), (json!({}), 400)] {
        assert_eq!(
            ask(&fixture, "POST", "/api/v1/models/digits/promote", body.clone()).await.error().0,
            status,
            "{body}"
        );
    }
    assert_eq!(ask(&fixture, "POST", "/api/v1/models/cats/promote", json!({"version": 1})).await.error().0, 404);
}

#[tokio::test]
async fn model_decisions_survive_a_restart() {
    let fixture = with_versions(2).await;
    send_command(&fixture, "POST", "promote", json!({"version": 1})).await;
    send_command(&fixture, "POST", "load", json!({"version": 2})).await;
    send_command(&fixture, "PUT", "aliases/canary", json!({"version": 2})).await;
    let again = fixture.restarted();
    again.loader.run_once().await;
    assert_eq!(
        (answering_mark(&again, "digits").await, answering_mark(&again, "digits@canary").await),
        (json!(1), json!(2))
    );
}

#[tokio::test]
async fn a_version_that_fails_to_load_is_not_promoted() {
    let fixture = with_versions(1).await;
    fixture.publish("digits", "refused", 2);
    let answer = ask(&fixture, "POST", "/api/v1/models/digits/promote", json!({"version": 2})).await;
    let (status, code, error) = answer.error();
    assert_eq!((status, code.as_str()), (422, "load_failed"));
    assert!(error.contains("BAD_PLUGIN"), "{error}");
    let model = model_json(&fixture).await;
    assert_eq!((&model["serving"], &model["follows_newest"]), (&json!(1), &json!(true)), "the model is unchanged");
}

#[tokio::test]
async fn aliases_can_only_point_to_ready_versions() {
    let fixture = with_versions(2).await;
    let unready = ask(&fixture, "PUT", "/api/v1/models/digits/aliases/canary", json!({"version": 1})).await.error();
    assert_eq!((unready.0, unready.1.as_str()), (409, "conflict"));
    assert_eq!(answering_mark(&fixture, "digits@1").await, "version_not_serving");
    send_command(&fixture, "POST", "load", json!({"version": 1})).await;
    assert_eq!(
        (answering_mark(&fixture, "digits@1").await, answering_mark(&fixture, "digits").await),
        (json!(1), json!(2))
    );
    let model = send_command(&fixture, "PUT", "aliases/canary", json!({"version": 1})).await;
    assert_eq!(model["aliases"], json!({"canary": 1, "stable": 2}));
    assert_eq!(
        (answering_mark(&fixture, "digits@canary").await, answering_mark(&fixture, "digits@stable").await),
        (json!(1), json!(2))
    );
    let used = ask(&fixture, "POST", "/api/v1/models/digits/unload", json!({"version": 1})).await.error();
    assert_eq!(used.0, 409);
    for bad in ["Canary", "3", "a.b"] {
        let path = format!("/api/v1/models/digits/aliases/{bad}");
        assert_eq!(ask(&fixture, "PUT", &path, json!({"version": 1})).await.error().0, 400, "{bad}");
    }
    send_command(&fixture, "DELETE", "aliases/canary", Value::Null).await;
    assert_eq!(answering_mark(&fixture, "digits@canary").await, "not_found");
    assert_eq!(ask(&fixture, "DELETE", "/api/v1/models/digits/aliases/canary", Value::Null).await.error().0, 404);
    send_command(&fixture, "POST", "unload", json!({"version": 1})).await;
    assert_eq!(fixture.host.alive.load(Ordering::SeqCst), 1, "it is freed before the response");
}

#[tokio::test]
async fn traffic_shares_are_exact() {
    let fixture = with_versions(2).await;
    send_command(&fixture, "POST", "load", json!({"version": 1})).await;
    send_command(&fixture, "PUT", "aliases/canary", json!({"version": 1})).await;
    let model = send_command(&fixture, "PUT", "traffic", json!({"stable": 90, "canary": 10})).await;
    let shares: Vec<_> = model["versions"].as_array().unwrap().iter().map(|it| it["traffic_percent"].clone()).collect();
    assert_eq!(shares, [json!(10), json!(90)]);
    let mut marks: BTreeMap<i64, usize> = BTreeMap::new();
    // Each request draws twice, first to check the model and then to predict, so only every second draw counts.
    for _ in 0..200 {
        *marks.entry(answering_mark(&fixture, "digits").await.as_i64().unwrap()).or_default() += 1;
    }
    assert_eq!(marks, BTreeMap::from([(1, 20), (2, 180)]));
    for (body, status) in [
        (json!({"stable": 90}), 400),
        (json!({"stable": 50, "blue": 50}), 404),
        (json!({"stable": 50, "7": 50}), 404),
        (json!({"stable": -1}), 400),
    ] {
        assert_eq!(
            ask(&fixture, "PUT", "/api/v1/models/digits/traffic", body.clone()).await.error().0,
            status,
            "{body}"
        );
    }
    send_command(&fixture, "PUT", "traffic", json!({})).await;
    assert_eq!(answering_mark(&fixture, "digits").await, 2);
}

/// Counts how many of two hundred default requests each version answers.
async fn answers_by_version(fixture: &ServerFixture) -> BTreeMap<i64, usize> {
    let mut marks = BTreeMap::new();
    for _ in 0..200 {
        *marks.entry(answering_mark(fixture, "digits").await.as_i64().unwrap()).or_default() += 1;
    }
    marks
}

#[tokio::test]
async fn promotion_and_rollback_end_a_canary_rollout() {
    let fixture = with_versions(2).await;
    send_command(&fixture, "POST", "promote", json!({"version": 1})).await;
    let canary = async || {
        send_command(&fixture, "POST", "load", json!({"version": 2})).await;
        send_command(&fixture, "PUT", "aliases/canary", json!({"version": 2})).await;
        send_command(&fixture, "PUT", "traffic", json!({"stable": 90, "canary": 10})).await;
    };
    canary().await;
    let promoted = send_command(&fixture, "POST", "promote", json!({"version": 2})).await;
    assert_eq!((&promoted["traffic"], &promoted["aliases"]), (&json!({}), &json!({"stable": 2})));
    assert_eq!(answers_by_version(&fixture).await, BTreeMap::from([(2, 200)]));
    let back = send_command(&fixture, "POST", "rollback", Value::Null).await;
    assert_eq!(back["serving"], 1);
    assert_eq!(answers_by_version(&fixture).await, BTreeMap::from([(1, 200)]));
    canary().await;
    send_command(&fixture, "POST", "promote", json!({"version": 1})).await;
    assert_eq!(answers_by_version(&fixture).await, BTreeMap::from([(1, 200)]), "of the versions that already serve");
    canary().await;
    send_command(&fixture, "PUT", "shadow", json!({"to": "2", "percent": 100})).await;
    let newest = send_command(&fixture, "POST", "promote", json!({"version": "newest"})).await;
    assert_eq!((&newest["serving"], &newest["shadow"]), (&json!(2), &Value::Null));
    assert_eq!(answers_by_version(&fixture).await, BTreeMap::from([(2, 200)]));
    canary().await;
    send_command(&fixture, "POST", "load", json!({"version": 1})).await;
    send_command(&fixture, "PUT", "traffic", json!({"stable": 50, "1": 50})).await;
    let back = send_command(&fixture, "POST", "rollback", Value::Null).await;
    assert_eq!((&back["serving"], answers_by_version(&fixture).await), (&json!(1), BTreeMap::from([(1, 200)])));
    fixture.publish("digits", "refused", 3);
    canary().await;
    let refused = ask(&fixture, "POST", "/api/v1/models/digits/promote", json!({"version": 3})).await.error();
    assert_eq!(refused.0, 422);
    assert_eq!(answers_by_version(&fixture).await, BTreeMap::from([(1, 180), (2, 20)]), "the shares are unchanged");
}

#[tokio::test]
async fn the_default_version_answers_for_an_unloaded_canary() {
    let fixture = with_versions(2).await;
    send_command(&fixture, "POST", "promote", json!({"version": 1})).await;
    send_command(&fixture, "POST", "load", json!({"version": 2})).await;
    send_command(&fixture, "PUT", "traffic", json!({"stable": 90, "2": 10})).await;
    let weights = fixture.version_dir("digits", 2).join("weights.safetensors");
    std::fs::write(weights, "damaged").unwrap();
    let again = fixture.restarted();
    again.loader.run_once().await;
    assert_eq!(answers_by_version(&again).await, BTreeMap::from([(1, 200)]));
}

#[tokio::test]
async fn a_shadow_version_is_compared_but_never_answers() {
    let fixture = with_versions(2).await;
    send_command(&fixture, "POST", "load", json!({"version": 1})).await;
    send_command(&fixture, "PUT", "shadow", json!({"to": "1", "percent": 100})).await;
    assert_eq!(answering_mark(&fixture, "digits").await, 2);
    // The versions have different marks.
    let line = r#"saggar_shadow_requests_total{model="digits",result="different",version="1"}"#;
    fixture.metric_becomes(line, Some(1.0)).await;
    send_command(&fixture, "DELETE", "shadow", Value::Null).await;
    assert_eq!(answering_mark(&fixture, "digits").await, 2);
    assert_eq!(fixture.metric(line).await, Some(1.0));
    assert_eq!(
        ask(&fixture, "PUT", "/api/v1/models/digits/shadow", json!({"to": "1", "percent": 0})).await.error().0,
        400
    );
}

#[tokio::test]
async fn an_unloaded_model_stays_unloaded_and_frees_all_memory() {
    let fixture = with_versions(1).await;
    let held = r#"saggar_device_memory_bytes{device="cpu",owner="models"}"#;
    assert_eq!(fixture.metric(held).await, Some(MODEL_BYTES as f64));
    let model = send_command(&fixture, "POST", "unload", Value::Null).await;
    assert_eq!((&model["state"], &model["serving"]), (&json!("UNLOADED"), &Value::Null));
    assert_eq!(fixture.metric(held).await, Some(0.0), "before the response");
    assert_eq!(fixture.host.alive.load(Ordering::SeqCst), 0);
    assert_eq!(answering_mark(&fixture, "digits").await, "not_ready");
    fixture.loader.run_once().await;
    assert_eq!(
        answering_mark(&fixture, "digits").await,
        "not_ready",
        "a poll does not load a model that a user unloaded"
    );
    assert_eq!(send_command(&fixture, "POST", "load", Value::Null).await["state"], "READY");
    assert_eq!(answering_mark(&fixture, "digits").await, 1);
}

#[tokio::test]
async fn an_idle_model_sleeps_and_a_request_wakes_it() {
    let fixture = with_versions(1).await;
    let house = tokio::spawn(Arc::clone(fixture.app.lifecycle()).run_residency_loop(fixture.stop.subscribe()));
    send_command(&fixture, "PUT", "config", json!({"keep_alive": "0s"})).await;
    while model_json(&fixture).await["state"] != "ASLEEP" {
        tokio::task::yield_now().await;
    }
    let held = r#"saggar_device_memory_bytes{device="cpu",owner="models"}"#;
    fixture.metric_becomes(held, Some(0.0)).await;
    assert_eq!(fixture.metric(r#"saggar_model_evictions_total{reason="idle"}"#).await, Some(1.0));
    // The request asks to keep the model loaded, so that it cannot sleep again before the next poll.
    let request = Request::post("/models/digits/predict").header("x-saggar-keep-alive", "forever");
    let answer =
        TestResponse::from_response(fixture.send(request.body(Body::from(image_json(1))).unwrap()).await).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let model = model_json(&fixture).await;
    assert_eq!((&model["state"], &model["config"]["keep_alive"]), (&json!("READY"), &json!("forever")));
    let bad = Request::post("/predict").header("x-saggar-keep-alive", "soon").body(Body::from(image_json(1))).unwrap();
    assert_eq!(TestResponse::from_response(fixture.send(bad).await).await.error().0, 400);
    fixture.stop.send_replace(true);
    house.await.unwrap();
}

#[tokio::test]
async fn under_memory_pressure_the_least_recently_used_model_sleeps() {
    let fixture = ServerFixture::with_model_memory(2 * MODEL_BYTES);
    for (mark, name) in ["a", "b", "c"].iter().enumerate() {
        fixture.publish(name, "plugin", mark as i32);
    }
    std::fs::write(fixture.home.models().join("a/model.json"), r#"{"pin": true}"#).unwrap();
    fixture.loader.run_once().await;
    let states = fixture.get("/api/v1/models").await.json();
    let asleep: Vec<_> = states["models"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["state"] == "ASLEEP")
        .map(|it| it["name"].clone())
        .collect();
    assert_eq!(asleep.len(), 1, "{states}");
    assert_ne!(asleep[0], "a", "it is pinned");
    let line = r#"saggar_model_evictions_total{reason="lru"}"#;
    assert_eq!(fixture.metric(line).await, Some(1.0));
}

#[tokio::test]
async fn model_settings_are_validated_stored_and_applied() {
    let fixture = with_versions(1).await;
    let model =
        send_command(&fixture, "PUT", "config", json!({"queue": {"capacity": 7}, "cache": {"max_bytes": 4096}})).await;
    assert_eq!((&model["config"]["queue"]["capacity"], &model["config"]["batch"]["max_items"]), (&json!(7), &json!(8)));
    let ask_twice = || fixture.post_json("/models/digits/predict", r#"{"image": [[1, 2], [3, 4]]}"#);
    assert_eq!(ask_twice().await.header("x-saggar-cache"), "miss");
    let hit = ask_twice().await;
    assert_eq!((hit.header("x-saggar-cache"), &hit.json()["sum"]), ("hit", &json!(10.0)));
    let line = r#"saggar_cache_requests_total{model="digits",result="hit",version="1"}"#;
    assert_eq!(fixture.metric(line).await, Some(1.0));
    fixture.publish("digits", "plugin", 2);
    fixture.loader.run_once().await;
    let after = ask_twice().await;
    assert_eq!(
        (after.header("x-saggar-cache"), &after.json()["mark"]),
        ("miss", &json!(2)),
        "it is removed with its version"
    );
    let bad = ask(&fixture, "PUT", "/api/v1/models/digits/config", json!({"bach": {}})).await.error();
    assert_eq!(bad.0, 400);
    assert!(bad.2.contains("there is no `bach`"), "{}", bad.2);
    assert_eq!(fixture.get("/api/v1/models/digits/config").await.json()["queue"]["capacity"], 7, "as before");
}

#[tokio::test]
async fn warm_up_samples_run_before_a_version_is_ready() {
    let fixture = ServerFixture::new();
    fixture.publish("digits", "plugin", 1);
    let settings = fixture.home.models().join("digits/model.json");
    std::fs::write(&settings, r#"{"warmup": [{"image": [[200, 2], [3, 4]]}]}"#).unwrap();
    fixture.loader.run_once().await;
    let model = model_json(&fixture).await;
    let reason = model["versions"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("WARMUP: warm-up: sample 0: the plugin trapped"), "{reason}");
    std::fs::write(settings.with_file_name("one.json"), image_json(1)).unwrap();
    std::fs::write(&settings, r#"{"warmup": ["one.json"]}"#).unwrap();
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture, "digits").await, 1);
    assert_eq!(send_command(&fixture, "POST", "warm", Value::Null).await["state"], "READY");
    send_command(&fixture, "PUT", "config", json!({"warmup": ["../1/manifest.json"]})).await;
    assert_eq!(answering_mark(&fixture, "digits").await, 1, "the serving version continues");
    let failed = ask(&fixture, "POST", "/api/v1/models/digits/warm", Value::Null).await.error();
    assert_eq!((failed.0, failed.1.as_str()), (422, "load_failed"));
}
