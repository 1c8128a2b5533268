//! A device that is lost, and what is brought up anew after that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;

use super::fixture::Fixture;
use crate::models::Revival;

/// Two models that are up and one that a user put down, on a device that is looked after.
async fn models() -> Fixture {
    let fixture = Fixture::new();
    for (mark, name) in ["a", "b", "unloaded"].iter().enumerate() {
        fixture.publish(name, "plugin", mark as i32);
    }
    fixture.loader.look().await;
    assert_eq!(fixture.post_json("/api/v1/models/unloaded/unload", "{}").await.status, 200);
    fixture
}

#[tokio::test]
async fn what_was_up_comes_up_on_another_device() {
    let fixture = models().await;
    let keeping = tokio::spawn(Arc::clone(fixture.app.lifecycle()).keep_device(fixture.stop.subscribe()));
    let tries = fixture.host.tries.load(Ordering::SeqCst);
    // The first try to get another one fails.
    fixture.host.refusals.store(1, Ordering::SeqCst);
    fixture.host.lost.store(true, Ordering::SeqCst);
    for name in ["a", "b"] {
        let model = loop {
            let model = fixture.get(&format!("/api/v1/models/{name}")).await.json();
            let swap = &model["last_swap"];
            if swap["reason"] == "DEVICE" && swap["to"] == 1 {
                break model;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        };
        assert_eq!((&model["state"], &model["serving"]), (&json!("READY"), &json!(1)), "{model}");
    }
    assert_eq!(fixture.host.tries.load(Ordering::SeqCst), tries + 2, "what a user put down stays down");
    assert_eq!(fixture.metric(r#"saggar_gpu_device_lost_total{device="cpu"}"#).await, Some(1.0));
    fixture.stop.send_replace(true);
    assert_eq!(keeping.await.unwrap(), Revival::Over);
}

#[tokio::test]
async fn a_device_that_stays_lost_is_given_up() {
    let fixture = models().await;
    fixture.host.refusals.store(usize::MAX, Ordering::SeqCst);
    fixture.host.lost.store(true, Ordering::SeqCst);
    let lifecycle = Arc::clone(fixture.app.lifecycle());
    assert_eq!(lifecycle.keep_device(fixture.stop.subscribe()).await, Revival::Impossible);
}
