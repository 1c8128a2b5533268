//! Components built with an older version of the guest library and of the interfaces, beside those of the present one.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, guest, root};
use serde_json::json;

/// Two slots, so that both components run at once.
const TWO_SLOTS: &str = "manifest = 1\n[project]\nname = \"p\"\n[pool.both]\ndevice = \"cpu\"\nslots = 2\n\
                         [queue.default]\npools = [\"both\"]\n";

#[test]
fn components_of_two_versions_of_the_guest_library_run_side_by_side_in_one_queue() {
    let older = std::fs::read(root().join("tests/older-plugins/trainer.wasm")).unwrap();
    let newer = std::fs::read(guest("steady")).unwrap();
    // A function of the interface `job` that the older guest library did not know.
    let imports_shards = |wasm: &[u8]| wasm.windows(6).any(|window| window == b"shards");
    assert!(!imports_shards(&older) && imports_shards(&newer));

    let home = tempfile::tempdir().unwrap();
    let manifest = home.path().join("saggar.toml");
    std::fs::write(&manifest, TWO_SLOTS).unwrap();
    let server = ServerProcess::start_with(home.path(), &["--config", manifest.to_str().unwrap()]);
    let answer = server.request("POST", "/api/v1/plugins", HttpPayload::Bytes("application/wasm", &older));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let older = answer.json()["digest"].clone();
    // The newer one runs until it is stopped, so both hold a slot of the queue at the same time.
    let new_job = SteadyJob::with_steps(1_000_000).submit(&server);
    server.wait_for_step(&new_job, 1);
    let parameters = json!({ "steps": 200, "model": "older" });
    let spec = json!({ "project": "older", "plugin": older, "device": "cpu", "parameters": parameters });
    let old_job = server.post("/api/v1/jobs", &spec)["name"].as_str().unwrap().to_owned();
    let over = server.wait_for_job(&old_job);
    assert_eq!(over["state"], "SUCCEEDED", "{over}");
    let other = server.job(&new_job);
    assert_eq!(other["state"], "RUNNING", "{other}");
    assert_eq!((&over["queue"], &over["attempts"][0]["pool"]), (&other["queue"], &other["pool"]));
    assert_ne!(over["spec"]["plugin"], other["spec"]["plugin"]);
    // It learned what it is meant to learn, and published it.
    assert!(over["metrics"]["loss"].as_f64().unwrap() < 1e-6, "{over}");
    assert_eq!(over["published"], json!([{ "model": "older", "version": 1 }]));
    server.post(&format!("/api/v1/jobs/{new_job}/stop"), &json!({}));
    assert_eq!(server.wait_for_job(&new_job)["state"], "CANCELLED");
}
