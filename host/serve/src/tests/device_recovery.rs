//! Device loss, and the reloading of models after it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use saggar_serving::DeviceRecovery;
use serde_json::json;

use super::fixture::ServerFixture;

/// Returns a server with two loaded models and one that a user unloaded, with device recovery running.
async fn two_loaded_models() -> ServerFixture {
    let fixture = ServerFixture::new();
    for (mark, name) in ["a", "b", "unloaded"].iter().enumerate() {
        fixture.publish(name, "plugin", mark as i32);
    }
    fixture.loader.run_once().await;
    assert_eq!(fixture.post_json("/api/v1/models/unloaded/unload", "{}").await.status, 200);
    fixture
}

#[tokio::test]
async fn loaded_models_are_reloaded_on_another_device() {
    let fixture = two_loaded_models().await;
    let keeping = tokio::spawn(Arc::clone(fixture.app.lifecycle()).recover_lost_devices(fixture.stop.subscribe()));
    let tries = fixture.host.load_attempts.load(Ordering::SeqCst);
    // The first attempt to renew the device fails.
    fixture.host.renew_failures.store(1, Ordering::SeqCst);
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
    assert_eq!(
        fixture.host.load_attempts.load(Ordering::SeqCst),
        tries + 2,
        "a model that a user unloaded is not reloaded"
    );
    assert_eq!(fixture.metric(r#"saggar_device_lost_total{device="cpu"}"#).await, Some(1.0));
    fixture.stop.send_replace(true);
    assert_eq!(keeping.await.unwrap(), DeviceRecovery::ShuttingDown);
}

#[tokio::test]
async fn recovery_of_a_device_that_stays_lost_ends_as_impossible() {
    let fixture = two_loaded_models().await;
    fixture.host.renew_failures.store(usize::MAX, Ordering::SeqCst);
    fixture.host.lost.store(true, Ordering::SeqCst);
    let lifecycle = Arc::clone(fixture.app.lifecycle());
    assert_eq!(lifecycle.recover_lost_devices(fixture.stop.subscribe()).await, DeviceRecovery::Impossible);
}
