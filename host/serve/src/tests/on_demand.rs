//! Requests for versions that are stored and not loaded.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::join_all;
use saggar_serving::limits::ON_DEMAND_VERSIONS_MAX;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::fixture::{MODEL_BYTES, ServerFixture, TestResponse, image_json};
use super::serving_options::ServingOptions;

/// Returns a server that loads requested versions, with versions 1 to `count` of `digits`, and the task that loads
/// them.
async fn serving_on_demand(count: i32, models_bytes: u64) -> (ServerFixture, JoinHandle<()>) {
    let options = ServingOptions { models_bytes, loads_on_demand: true, ..ServingOptions::default() };
    let fixture = ServerFixture::with_options(options);
    for mark in 1..=count {
        fixture.publish("digits", "plugin", mark);
    }
    fixture.loader.run_once().await;
    let house = tokio::spawn(Arc::clone(fixture.app.lifecycle()).run_residency_loop(fixture.stop.subscribe()));
    (fixture, house)
}

async fn ask(fixture: &ServerFixture, reference: &str) -> TestResponse {
    fixture.post_json(&format!("/models/{reference}/predict"), &image_json(1)).await
}

async fn answering_mark(fixture: &ServerFixture, reference: &str) -> Value {
    let answer = ask(fixture, reference).await;
    assert_eq!(answer.status, 200, "{reference}: {}", answer.text());
    answer.json()["mark"].clone()
}

/// Returns the loaded versions.
async fn loaded_versions(fixture: &ServerFixture) -> Vec<u64> {
    let model = fixture.get("/api/v1/models/digits").await.json();
    let versions = model["versions"].as_array().unwrap().iter();
    versions.filter(|it| it["state"] == "READY").map(|it| it["version"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_request_for_a_stored_version_loads_it_once() {
    let (fixture, house) = serving_on_demand(3, u64::MAX).await;
    let tries = fixture.host.load_attempts.load(Ordering::SeqCst);
    for answer in join_all((0..8).map(|_| ask(&fixture, "digits@1"))).await {
        assert_eq!((answer.status.as_u16(), answer.json()["mark"].clone()), (200, json!(1)));
    }
    assert_eq!(fixture.host.load_attempts.load(Ordering::SeqCst), tries + 1, "for all of them");
    assert_eq!((answering_mark(&fixture, "digits").await, loaded_versions(&fixture).await), (json!(3), vec![1, 3]));
    fixture.loader.run_once().await;
    assert_eq!(loaded_versions(&fixture).await, [1, 3], "a poll does not unload it");
    let unknown = ask(&fixture, "digits@9").await;
    assert_eq!((unknown.error().0, unknown.error().1.as_str()), (404, "version_not_serving"));
    // A model that a user unloaded is not loaded on demand.
    assert_eq!(fixture.post_json("/api/v1/models/digits/unload", "").await.status, 200);
    let unloaded = ask(&fixture, "digits@2").await;
    assert_eq!(unloaded.status, 404, "{}", unloaded.text());
    assert!(unloaded.json()["hint"].as_str().unwrap().contains("`saggar models load digits 2`"));
    fixture.stop.send_replace(true);
    house.await.unwrap();
}

#[tokio::test]
async fn without_on_demand_loading_the_hint_names_the_load_command() {
    let fixture = ServerFixture::new();
    for mark in 1..=2 {
        fixture.publish("digits", "plugin", mark);
    }
    fixture.loader.run_once().await;
    let refused = ask(&fixture, "digits@1").await;
    assert_eq!((refused.error().0, refused.error().1.as_str()), (404, "version_not_serving"));
    assert!(refused.json()["hint"].as_str().unwrap().contains("`saggar models load digits 1` loads it"));
}

#[tokio::test]
async fn on_demand_versions_are_limited_in_number_and_memory() {
    let most = ON_DEMAND_VERSIONS_MAX as u64;
    let (fixture, house) = serving_on_demand(most as i32 + 3, u64::MAX).await;
    let default = most + 3;
    for version in 1..=most + 1 {
        assert_eq!(answering_mark(&fixture, &format!("digits@{version}")).await, version);
    }
    let left = loaded_versions(&fixture).await;
    assert!(left.len() as u64 == most + 1 && left.ends_with(&[most + 1, default]), "{left:?}");
    fixture.stop.send_replace(true);
    house.await.unwrap();

    let (fixture, house) = serving_on_demand(3, 2 * MODEL_BYTES).await;
    assert_eq!(
        (answering_mark(&fixture, "digits@1").await, answering_mark(&fixture, "digits@2").await),
        (json!(1), json!(2))
    );
    assert_eq!(loaded_versions(&fixture).await, [2, 3], "memory suffices for two only");
    fixture.stop.send_replace(true);
    house.await.unwrap();

    let (fixture, house) = serving_on_demand(2, MODEL_BYTES).await;
    // The residency loop may unload the version before its refusal is recorded. The next request is then refused.
    let mut model = Value::Null;
    for _ in 0..20 {
        let refused = ask(&fixture, "digits@1").await;
        assert_eq!(refused.error().0, 404, "{}", refused.text());
        assert_eq!((loaded_versions(&fixture).await, answering_mark(&fixture, "digits").await), (vec![2], json!(2)));
        model = fixture.get("/api/v1/models/digits").await.json();
        if model["versions"][0]["reason"].as_str().unwrap().starts_with("OUT_OF_MEMORY: ") {
            break;
        }
    }
    assert!(model["versions"][0]["reason"].as_str().unwrap().starts_with("OUT_OF_MEMORY: "), "{model}");
    fixture.stop.send_replace(true);
    house.await.unwrap();
}

#[tokio::test]
async fn a_refused_version_is_not_loaded_again_for_each_request() {
    let (fixture, house) = serving_on_demand(1, u64::MAX).await;
    fixture.publish("digits", "refused", 2);
    fixture.publish("digits", "plugin", 3);
    fixture.loader.run_once().await;
    let tries = fixture.host.load_attempts.load(Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(ask(&fixture, "digits@2").await.error().0, 404);
    }
    assert_eq!(fixture.host.load_attempts.load(Ordering::SeqCst), tries + 1);
    fixture.stop.send_replace(true);
    house.await.unwrap();
}
