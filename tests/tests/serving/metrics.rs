//! The metrics page in the format that Prometheus reads.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::Write;
use std::process::{Command, Stdio};

use saggar_tests::{HttpPayload, ServerProcess, lenet};
use serde_json::json;

#[test]
fn promtool_accepts_the_metrics_page() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    let plugin = lenet();
    server.saggar_ok(&["run", plugin.to_str().unwrap(), "--data", "digits", "--wait", "--", "epochs=3"]);
    server.wait_for_version("digits", 1);
    let image = json!({ "image": vec![[0; 8]; 8] });
    assert_eq!(server.request("POST", "/predict", HttpPayload::Json(&image)).status, 200);
    assert_eq!(server.request("POST", "/predict", HttpPayload::Json(&json!({ "image": 1 }))).status, 400);
    assert_eq!(server.request("GET", "/no/such/page", HttpPayload::Nothing).status, 404);

    let page = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    for family in [
        "saggar_http_requests_total{",
        "saggar_http_request_seconds_bucket{",
        "saggar_predict_requests_total{",
        "saggar_predict_items_total{",
        "saggar_predict_seconds_bucket{",
        "saggar_model_state{",
        "saggar_model_reloads_total{",
        "saggar_jobs{",
        "saggar_jobs_finished_total{",
        "saggar_job_gpu_seconds_total{",
        "saggar_job_gpu_memory_bytes{",
        "saggar_train_metric{",
        "saggar_train_samples_total{",
        "saggar_device_info{",
        "saggar_build_info{",
    ] {
        assert!(page.contains(family), "{family} is missing from\n{page}");
    }
    let seconds = page.lines().find(|line| line.starts_with("saggar_job_gpu_seconds_total{")).unwrap();
    assert!(seconds.rsplit(' ').next().unwrap().parse::<f64>().unwrap() > 0.0, "{seconds}");
    assert!(!page.contains("/no/such/page"), "a raw path became a label");

    let Ok(mut promtool) = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        println!("SKIP: promtool is not here");
        return;
    };
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}\n{page}", String::from_utf8_lossy(&said));
    assert_eq!(String::from_utf8_lossy(&said), "");
}
