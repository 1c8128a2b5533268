//! Limits on running and loaded objects: idle models, instances, slots and queues.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert; figures are shown")]

use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, guest};
use serde_json::{Value, json};

/// Returns the bytes of host memory that models hold.
fn model_memory_bytes(server: &ServerProcess) -> f64 {
    server.metric("saggar_device_memory_bytes{device=\"cpu\",owner=\"models\"}").unwrap_or(0.0)
}

fn configure(server: &ServerProcess, config: &Value) {
    let answer = server.request("PUT", "/api/v1/models/matmul/config", HttpPayload::Json(config));
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[test]
fn an_idle_model_is_evicted_and_a_request_reloads_it() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let baseline = model_memory_bytes(&server);
    // 14 MB of weights.
    server.saggar_ok(&["run", guest("matmul").to_str().unwrap(), "--wait", "--", "depth=3", "width=1024"]);
    server.wait_for_version("matmul", 1);
    let predict =
        || server.request("POST", "/models/matmul/predict", HttpPayload::Json(&json!({ "x": vec![0.5; 784] })));
    let first = predict();
    assert_eq!(first.status, 200, "{}", first.text);
    let awake = model_memory_bytes(&server);
    assert!(awake - baseline > 10e6, "{awake} bytes are held");
    for _ in 0..3 {
        configure(&server, &json!({ "keep_alive": "100ms" }));
        let asleep = server.wait_for("its sleep", |server| {
            let model = server.get("/api/v1/models/matmul");
            (model["state"] == "ASLEEP").then(|| model_memory_bytes(server))
        });
        assert!((asleep - baseline).abs() <= 0.01 * awake, "{baseline} bytes before, {awake} awake, {asleep} asleep");
        configure(&server, &json!({ "keep_alive": "forever" }));
        let again = predict();
        assert_eq!((again.status, &again.text), (200, &first.text), "no error, and the same answer");
        assert!((model_memory_bytes(&server) - awake).abs() <= 0.01 * awake);
    }
}

#[test]
fn a_slot_is_released_as_soon_as_its_job_ends() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let used = || {
        let queues = server.get("/api/v1/queues");
        queues["pools"].as_array().unwrap().iter().map(|pool| pool["used"].as_f64().unwrap()).sum::<f64>()
    };
    let job = SteadyJob::with_steps(1_000_000).submit(&server);
    server.wait_for_step(&job, 1);
    assert_eq!(used(), 1.0);
    server.saggar_ok(&["stop", &job]);
    assert_eq!(server.wait_for_job(&job)["state"], "CANCELLED");
    let ended = Instant::now();
    server.wait_for("the slot", |_| (used() == 0.0).then_some(()));
    println!("free {:?} after the end was reported", ended.elapsed());
    assert!(ended.elapsed() < Duration::from_secs(1), "{:?}", ended.elapsed());
}

#[test]
fn a_queue_runs_at_most_its_limit_of_jobs() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("saggar.toml");
    let text = "manifest = 1\n[project]\nname = \"steady\"\n[pool.wide]\ndevice = \"cpu\"\nslots = 4\n\
                [queue.narrow]\npools = [\"wide\"]\nmax_running_jobs = 2\n[queue.other]\npools = [\"wide\"]\n";
    std::fs::write(&file, text).unwrap();
    let server = ServerProcess::start_with(home.path(), &["--config", file.to_str().unwrap()]);
    let submit = |queue: &str| SteadyJob::with_steps(1_000_000).with_field("queue", queue).submit(&server);
    let narrow = [0, 1, 2].map(|_| submit("narrow"));
    for job in &narrow[..2] {
        server.wait_for_step(job, 1);
    }
    let third = server.job(&narrow[2]);
    assert_eq!((&third["state"], &third["reason"]), (&json!("QUEUED"), &json!("QUOTA_RUNNING_JOBS")), "{third}");
    assert!(third["message"].as_str().unwrap().contains("max_running_jobs"), "it names the limit: {third}");
    // There are free slots, which another queue can use.
    server.wait_for_step(&submit("other"), 1);
    assert_eq!(server.job(&narrow[2])["state"], "QUEUED");
    server.saggar_ok(&["stop", &narrow[0]]);
    server.wait_for_step(&narrow[2], 1);
}
