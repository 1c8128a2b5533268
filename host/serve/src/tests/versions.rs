//! Loading of versions: whatever happens on disk, the serving version continues to serve.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::body::Body;
use axum::http::Request;
use saggar_serving::limits::UNLOADED_SERIES_MAX;
use serde_json::Value;
use tower::ServiceExt;

use super::fixture::{BLOCK, MODEL_BYTES, ServerFixture, TestResponse, image_json};

/// Returns the mark of the version that answers.
async fn answering_mark(fixture: &ServerFixture) -> i64 {
    let answer = fixture.predict(1).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["mark"].as_i64().unwrap()
}

async fn version_json(fixture: &ServerFixture, version: u64) -> Value {
    let model = fixture.get("/api/v1/models/digits").await.json();
    let versions = model["versions"].as_array().unwrap();
    versions.iter().find(|found| found["version"] == version).cloned().unwrap_or_default()
}

async fn version_state(fixture: &ServerFixture, number: u64) -> String {
    version_json(fixture, number).await["state"].as_str().unwrap_or("none").to_owned()
}

/// Waits until the last request of a version has finished and it is unloaded.
pub(super) async fn wait_until_unloaded(fixture: &ServerFixture, number: u64) {
    while ["DRAINING", "READY"].contains(&version_state(fixture, number).await.as_str()) {
        tokio::task::yield_now().await;
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[tokio::test]
async fn a_newer_version_replaces_and_frees_the_old_one() {
    let fixture = ServerFixture::with_digits_serving().await;
    fixture.publish("digits", "plugin", 2);
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture).await, 2);
    wait_until_unloaded(&fixture, 1).await;
    assert_eq!(fixture.host.alive.load(Ordering::SeqCst), 1);
    assert_eq!(
        (version_state(&fixture, 1).await, version_state(&fixture, 2).await),
        ("UNLOADED".to_owned(), "READY".to_owned())
    );
    fixture.publish("digits", "plugin, but another", 3);
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture).await, 3);
    let held = r#"saggar_device_memory_bytes{device="cpu",owner="models"}"#;
    fixture.metric_becomes(held, Some(MODEL_BYTES as f64)).await;
    for (kind, count) in [("weights", 1.0), ("full", 2.0)] {
        let line = format!("saggar_model_reloads_total{{kind=\"{kind}\",model=\"digits\",reason=\"\",result=\"ok\"}}");
        assert_eq!(fixture.metric(&line).await, Some(count), "{kind}");
    }
    assert_eq!(fixture.metric(r#"saggar_model_state{model="digits",state="READY",version="3"}"#).await, Some(1.0));
    // Another poll changes nothing.
    let tries = fixture.host.load_attempts.load(Ordering::SeqCst);
    fixture.loader.run_once().await;
    assert_eq!(fixture.host.load_attempts.load(Ordering::SeqCst), tries);
}

#[tokio::test]
async fn a_running_request_keeps_its_version_loaded() {
    let fixture = ServerFixture::with_digits_serving().await;
    let request = Request::post("/predict").body(Body::from(image_json(BLOCK))).unwrap();
    let blocked = tokio::spawn(fixture.router.clone().oneshot(request));
    fixture.metric_becomes(r#"saggar_predict_in_flight{model="digits",version="1"}"#, Some(1.0)).await;
    fixture.publish("digits", "plugin", 2);
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture).await, 2);
    assert_eq!(version_state(&fixture, 1).await, "DRAINING");
    assert_eq!(fixture.host.alive.load(Ordering::SeqCst), 2);
    fixture.host.gate.open();
    let answer = TestResponse::from_response(blocked.await.unwrap().unwrap()).await;
    assert_eq!((answer.json()["mark"].as_i64(), answer.header("x-saggar-model")), (Some(1), "digits@1"));
    wait_until_unloaded(&fixture, 1).await;
    assert_eq!(fixture.host.alive.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_refused_version_stays_refused_until_its_files_change() {
    let fixture = ServerFixture::with_digits_serving().await;
    for (number, plugin, reason) in
        [(2, "refused", "BAD_PLUGIN: not a WebAssembly component"), (3, "panics", "PANICKED: ")]
    {
        fixture.publish("digits", plugin, number);
        for _ in 0..3 {
            fixture.loader.run_once().await;
        }
        assert_eq!(answering_mark(&fixture).await, 1);
        let found = version_json(&fixture, number as u64).await;
        assert_eq!(found["state"], "FAILED");
        assert!(found["reason"].as_str().unwrap().starts_with(reason), "{found}");
        assert_eq!(found["plugin"].as_str().map(str::len), Some(64));
    }
    assert_eq!(fixture.host.load_attempts.load(Ordering::SeqCst), 3);
    let line = r#"saggar_model_reloads_total{kind="full",model="digits",reason="BAD_PLUGIN",result="rejected"}"#;
    assert_eq!(fixture.metric(line).await, Some(1.0));
    // The same number with valid files is loaded again, and serves.
    let good = fixture.publish("other", "plugin", 9);
    copy_directory(&fixture.version_dir("other", good), &fixture.version_dir("digits", 3));
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture).await, 9);
    assert_eq!(version_state(&fixture, 3).await, "READY");
}

#[tokio::test]
async fn an_incomplete_version_is_not_loaded() {
    let fixture = ServerFixture::with_digits_serving().await;
    fixture.publish("elsewhere", "plugin", 2);
    let (from, to) = (fixture.version_dir("elsewhere", 1), fixture.version_dir("digits", 2));
    fs::create_dir_all(&to).unwrap();
    fixture.loader.run_once().await;
    let weights = fs::read(from.join("weights.safetensors")).unwrap();
    let steps: [(&str, Vec<u8>); 4] = [
        ("manifest.json", fs::read(from.join("manifest.json")).unwrap()),
        ("plugin.wasm", fs::read(from.join("plugin.wasm")).unwrap()),
        ("weights.safetensors", weights[..weights.len() / 2].to_vec()),
        ("weights.safetensors", weights),
    ];
    let last = steps.len() - 1;
    for (step, (name, bytes)) in steps.into_iter().enumerate() {
        let found = version_json(&fixture, 2).await;
        assert_eq!(found["state"], "UNLOADED");
        let reason = found["reason"].as_str().unwrap();
        assert!(reason.starts_with("INCOMPLETE: ") && !reason.contains("/digits/"), "{reason}");
        fs::write(to.join(name), bytes).unwrap();
        fixture.loader.run_once().await;
        assert_eq!(
            fixture.post_json("/models/digits/predict", &image_json(1)).await.json()["mark"],
            if step == last { 2 } else { 1 }
        );
    }
}

#[tokio::test]
async fn damaged_files_are_refused_until_repaired() {
    let fixture = ServerFixture::with_digits_serving().await;
    fixture.publish("digits", "plugin", 2);
    let weights = fixture.version_dir("digits", 2).join("weights.safetensors");
    let good = fs::read(&weights).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(&weights, bad).unwrap();
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture).await, 1);
    let reason = version_json(&fixture, 2).await["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("DAMAGED: weights.safetensors: has SHA-256"), "{reason}");
    fs::remove_file(&weights).unwrap();
    fs::write(&weights, good).unwrap();
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture).await, 2);
}

#[tokio::test]
async fn removing_a_version_falls_back_to_the_previous_one() {
    let fixture = ServerFixture::with_digits_serving().await;
    fixture.publish("digits", "plugin", 2);
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture).await, 2);
    fs::remove_dir_all(fixture.version_dir("digits", 2)).unwrap();
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture).await, 1);
    fs::remove_dir_all(fixture.home.models().join("digits")).unwrap();
    fixture.loader.run_once().await;
    assert_eq!(fixture.predict(1).await.status, 503);
    while fixture.host.alive.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
    while fixture.get("/metrics").await.text().contains("model=\"digits\",state") {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.get("/api/v1/models").await.text(), r#"{"models":[]}"#);
    let text = fixture.get("/metrics").await.text();
    assert!(!text.contains("model=\"digits\""), "{text}");
    assert!(text.contains("saggar_device_memory_bytes{device=\"cpu\",owner=\"models\"} 0\n"), "{text}");
}

#[tokio::test]
async fn a_version_keeps_serving_during_an_incomplete_replacement() {
    let fixture = ServerFixture::with_digits_serving().await;
    fs::remove_file(fixture.version_dir("digits", 1).join("manifest.json")).unwrap();
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture).await, 1);
    assert_eq!(version_state(&fixture, 1).await, "READY");
}

/// The ways in which people and systems replace a version.
#[tokio::test]
async fn every_way_of_replacing_a_version_is_detected() {
    let fixture = ServerFixture::with_digits_serving().await;
    let dir = fixture.version_dir("digits", 1);
    let hidden = fixture.home.root().join("elsewhere");
    let mut wanted = 1;
    let mut stage = |fixture: &ServerFixture| {
        wanted += 1;
        let number = fixture.publish("stage", "plugin", wanted);
        let staged = hidden.join(wanted.to_string());
        copy_directory(&fixture.version_dir("stage", number), &staged);
        (i64::from(wanted), staged)
    };
    // Deleted and made again.
    let (expected, staged) = stage(&fixture);
    fs::remove_dir_all(&dir).unwrap();
    copy_directory(&staged, &dir);
    fixture.loader.run_once().await;
    assert_eq!(fixture.post_json("/models/digits/predict", &image_json(1)).await.json()["mark"], expected);
    // Renamed over.
    let (expected, staged) = stage(&fixture);
    fs::rename(&dir, hidden.join("old")).unwrap();
    fs::rename(staged, &dir).unwrap();
    fixture.loader.run_once().await;
    assert_eq!(fixture.post_json("/models/digits/predict", &image_json(1)).await.json()["mark"], expected);
    // A link instead of a directory, and then another link.
    for _ in 0..2 {
        let (expected, staged) = stage(&fixture);
        if dir.is_symlink() {
            fs::remove_file(&dir).unwrap()
        } else {
            fs::remove_dir_all(&dir).unwrap()
        }
        symlink(&staged, &dir).unwrap();
        fixture.loader.run_once().await;
        assert_eq!(fixture.post_json("/models/digits/predict", &image_json(1)).await.json()["mark"], expected);
    }
    // Files that are links through `..data`, which is swapped, as Kubernetes does it.
    fs::remove_file(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    for file in ["manifest.json", "plugin.wasm", "weights.safetensors"] {
        symlink(Path::new("..data").join(file), dir.join(file)).unwrap();
    }
    for _ in 0..2 {
        let (expected, staged) = stage(&fixture);
        symlink(&staged, dir.join("..tmp")).unwrap();
        fs::rename(dir.join("..tmp"), dir.join("..data")).unwrap();
        fixture.loader.run_once().await;
        assert_eq!(fixture.post_json("/models/digits/predict", &image_json(1)).await.json()["mark"], expected);
    }
}

#[tokio::test]
async fn the_default_model_is_the_one_published_last() {
    let fixture = ServerFixture::with_digits_serving().await;
    fixture.publish("letters", "plugin", 5);
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture).await, 5);
    fixture.publish("digits", "plugin", 7);
    fixture.loader.run_once().await;
    assert_eq!(answering_mark(&fixture).await, 7);
    assert_eq!(fixture.post_json("/models/letters/predict", &image_json(1)).await.json()["mark"], 5);
}

#[tokio::test]
async fn metrics_of_old_versions_are_removed() {
    let fixture = ServerFixture::with_digits_serving().await;
    let last = 3 * UNLOADED_SERIES_MAX as i32;
    for number in 2..=last {
        fixture.publish("digits", "plugin", number);
        fixture.loader.run_once().await;
        assert_eq!(answering_mark(&fixture).await, i64::from(number));
        wait_until_unloaded(&fixture, number as u64 - 1).await;
    }
    let text = fixture.get("/metrics").await.text();
    let series = text.lines().filter(|line| line.starts_with("saggar_predict_items_total{")).count();
    assert_eq!(series, UNLOADED_SERIES_MAX + 1);
    let states = text.lines().filter(|line| line.starts_with("saggar_model_state{")).count();
    assert_eq!(states, 5, "only of the serving version");
}

/// Thirty swaps under continuous requests: no request fails, and each client sees increasing versions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_swaps_under_load_fail_no_request() {
    let fixture = ServerFixture::with_digits_serving().await;
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (router, over) = (fixture.router.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                let (mut asked, mut last) = (0, 0);
                while !over.load(Ordering::SeqCst) {
                    let request = Request::post("/predict").body(Body::from(image_json(1))).unwrap();
                    let answer = TestResponse::from_response(router.clone().oneshot(request).await.unwrap()).await;
                    assert_eq!(answer.status, 200, "{answer:?}");
                    let mark = answer.json()["mark"].as_i64().unwrap();
                    assert!(mark >= last, "version {mark} answered after {last}");
                    (asked, last) = (asked + 1, mark);
                }
                asked
            })
        })
        .collect();
    let began = Instant::now();
    for number in 2..=31 {
        fixture.publish("digits", "plugin", number);
        fixture.loader.run_once().await;
    }
    assert_eq!(answering_mark(&fixture).await, 31);
    over.store(true, Ordering::SeqCst);
    let mut asked = 0;
    for client in clients {
        asked += client.await.unwrap();
    }
    println!("30 swaps in {:?}, {asked} requests", began.elapsed());
    assert!(asked >= 30);
    while fixture.host.alive.load(Ordering::SeqCst) > 1 {
        tokio::task::yield_now().await;
    }
}
