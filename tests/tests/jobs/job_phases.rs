//! Failures of phases after the training are reported separately.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{ServerProcess, guest};
use serde_json::json;

#[test]
fn a_published_model_survives_a_failed_post_training_phase() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let careless = guest("careless");
    let run = ["run", careless.to_str().unwrap(), "--device", "cpu", "--retry", "0", "--", "reads=report.txt"];
    let job = server.saggar_ok(&run).trim().to_owned();
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "FAILED");
    let document = server.get(&format!("/api/v1/jobs/{job}"));
    let phases: Vec<_> = document["phases"].as_array().unwrap().iter().map(|it| (&it["name"], &it["state"])).collect();
    assert_eq!(phases, [(&json!("train"), &json!("SUCCEEDED")), (&json!("post"), &json!("FAILED"))], "{document}");
    assert!(document["message"].as_str().unwrap().contains("no file `report.txt`"), "{document}");
    let status = server.saggar_ok(&["status", &job]);
    assert!(status.contains("phase train") && status.contains("phase post"), "{status}");
    let version = home.path().join("models/careless/1/manifest.json");
    assert!(version.is_file(), "what was published stays");
}
