//! Checkpoints and what starts from them: other jobs, exports and model versions.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert; figures are shown")]

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob};
use serde_json::json;

#[test]
fn a_job_starts_from_the_checkpoint_and_step_of_another() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let base = SteadyJob::with_steps(200).submit(&server);
    server.wait_for_job(&base);
    let whole = SteadyJob::with_steps(230).with_parameter("model", "whole").submit(&server);
    server.wait_for_job(&whole);
    let from = format!("job:{base}/checkpoint@200");
    let more = SteadyJob::with_steps(230)
        .with_parameter("model", "more")
        .with_field("init_from", from.as_str())
        .submit(&server);
    let more = server.wait_for_job(&more);
    assert_eq!(more["state"], "SUCCEEDED", "{more}");
    assert_eq!((&more["attempts"][0]["first_step"], &more["step"]), (&json!(200), &json!(230)));
    let log = server.saggar_ok(&["logs", more["name"].as_str().unwrap()]);
    assert_eq!(log.lines().filter(|line| line.starts_with("step ")).count(), 30, "exactly 30 steps: {log}");
    assert_eq!(server.weights_digest("whole"), server.weights_digest("more"));
    // A checkpoint is not deleted while it is read.
    let long = SteadyJob::with_steps(1_000_000).with_field("init_from", from.as_str()).submit(&server);
    let refused = server.request("DELETE", &format!("/api/v1/jobs/{base}"), HttpPayload::Nothing);
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert!(refused.text.contains(&long), "{}", refused.text);
}

#[test]
fn a_checkpoint_that_a_waiting_job_starts_from_is_kept_while_its_own_job_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--jobs", "1"]);
    let base = SteadyJob::with_steps(1_000_000).with_field("checkpoint_keep_last", 1).submit(&server);
    server.wait_for_step(&base, 20);
    server.saggar_ok(&["pause", &base]);
    let paused = server.wait_for("the pause", |server| Some(server.job(&base)).filter(|job| job["paused"] == true));
    let step = paused["step"].as_u64().unwrap();
    // The slot is taken, so the next job waits, and is paused before it begins.
    let other = SteadyJob::with_steps(1_000_000).submit(&server);
    server.wait_for_step(&other, 1);
    let from = format!("job:{base}/checkpoint@{step}");
    let next = SteadyJob::with_steps(step + 3).with_field("init_from", from.as_str()).submit(&server);
    server.saggar_ok(&["pause", &next]);
    server.saggar_ok(&["stop", &other]);
    server.wait_for_job(&other);
    server.saggar_ok(&["resume", &base]);
    server.wait_for_step(&base, step + 30);
    // The newest one, and the one that is waited for. An older one can still be there while a new one is written.
    server.wait_for("two checkpoints", |server| {
        let steps: Vec<u64> = server.checkpoints(&base).into_iter().map(|(step, _)| step).collect();
        assert_eq!(steps.last(), Some(&step), "{steps:?}");
        (steps.len() == 2).then_some(())
    });
    server.saggar_ok(&["stop", &base]);
    server.wait_for_job(&base);
    server.saggar_ok(&["resume", &next]);
    let ended = server.wait_for_job(&next);
    assert_eq!((&ended["state"], &ended["attempts"][0]["first_step"]), (&json!("SUCCEEDED"), &json!(step)), "{ended}");
}

#[test]
fn a_retried_job_resumes_from_its_own_checkpoint_before_its_base() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let base = SteadyJob::with_steps(10).submit(&server);
    server.wait_for_job(&base);
    let job = SteadyJob::with_steps(2_000).with_field("init_from", format!("job:{base}")).submit(&server);
    server.wait_for_step(&job, 60);
    server.saggar_ok(&["preempt", &job]);
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("SUCCEEDED"), &json!(2)), "{ended}");
    assert_eq!(ended["attempts"][0]["first_step"], 10);
    assert!(ended["attempts"][1]["first_step"].as_u64() >= Some(60), "{ended}");
}

#[test]
fn a_training_starts_from_the_weights_of_a_model() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let base = SteadyJob::with_steps(20).with_parameter("model", "base").submit(&server);
    server.wait_for_job(&base);
    server.weights_digest("base");
    let job = SteadyJob::with_steps(5).with_field("init_from", "model:base").submit(&server);
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["step"]), (&json!("SUCCEEDED"), &json!(5)), "{ended}");
    assert_eq!(ended["spec"]["init_from"], "model:base@1", "the version is settled at submission");
    let log = server.saggar_ok(&["logs", &job]);
    assert!(log.contains("starts from model:base@1") && log.contains("took 1 of"), "{log}");
}

#[test]
fn the_best_checkpoint_is_retained() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let best = json!({ "metric": "accuracy", "mode": "min" });
    let job = SteadyJob::with_steps(60)
        .with_field("checkpoint_keep_last", 2)
        .with_field("checkpoint_keep_best", best)
        .submit(&server);
    server.wait_for_job(&job);
    let steps: Vec<u64> = server.checkpoints(&job).into_iter().map(|(step, _)| step).collect();
    // Accuracy grows with the step, and the smallest was requested.
    assert_eq!(steps, [60, 55, 5]);
}

#[test]
fn a_checkpoint_is_exported_while_its_job_runs() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(1_000_000).submit(&server);
    server.wait_for_step(&job, 20);
    let out = home.path().join("out");
    let out = out.to_str().unwrap();
    let file = server.saggar_ok(&["output", "get", &job, "--checkpoint", "latest", "-o", out]);
    let bytes = std::fs::read(file.trim()).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut names = tensors.names();
    names.sort_unstable();
    assert!(names.contains(&"matrix") && names.contains(&"momentum"), "{names:?}");
    assert_eq!(tensors.tensor("matrix").unwrap().shape(), [96, 96]);
    assert_eq!(server.job(&job)["state"], "RUNNING");
    server.saggar_ok(&["stop", &job]);
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "CANCELLED");
    let (step, digest) = server.checkpoints(&job).swap_remove(0);
    let answer = server.request("GET", &format!("/api/v1/jobs/{job}/checkpoints/{step}"), HttpPayload::Nothing);
    assert_eq!((answer.status, answer.header("x-saggar-digest")), (200, digest.as_str()));
    let verified = server.saggar_ok(&["output", "checkpoints", &job, "--verify"]);
    assert!(verified.contains("whole") && !verified.contains("damaged"), "{verified}");
    for wrong in ["best", "7777777", "newest"] {
        let answer = server.request("GET", &format!("/api/v1/jobs/{job}/checkpoints/{wrong}"), HttpPayload::Nothing);
        assert!(matches!(answer.status, 400 | 404), "{wrong}: {}", answer.text);
    }
    // A flipped byte is detected.
    let id = ended["id"].as_str().unwrap();
    let parts = home.path().join("objects/checkpoints").join(id).join("parts");
    let part = std::fs::read_dir(parts).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    let damaged = server.saggar(&["output", "checkpoints", &job, "--verify"]);
    assert_eq!(damaged.status.code(), Some(7));
}

#[test]
fn a_job_output_is_mounted_by_another_job() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job =
        SteadyJob::with_steps(3).with_parameter("write", "texts/a.txt=7 texts/b.txt=9 note.bin=3").submit(&server);
    server.wait_for_job(&job);
    let reads = |path: &str, project: &str| {
        let data = json!([{ "job": job, "path": path, "mount": "/init" }]);
        let reader = SteadyJob::with_steps(1)
            .with_field("data", data)
            .with_field("project", project)
            .with_parameter("count", "/init");
        server.wait_for_job(&reader.submit(&server))
    };
    let reader = reads("texts", "reader");
    assert_eq!(reader["state"], "SUCCEEDED", "{reader}");
    let log = server.saggar_ok(&["logs", "reader-1"]);
    assert!(log.contains("/init has 2 items"), "{log}");
    // A job that mounts an invalid dataset fails, with the reason.
    let wrong = reads("note.bin", "wrong");
    assert_eq!((&wrong["state"], &wrong["reason"]), (&json!("FAILED"), &json!("BAD_DATASET")), "{wrong}");
    let absent = reads("absent", "absent");
    assert!(absent["message"].as_str().unwrap().contains("absent"), "{absent}");
    // The output of a running job can still change.
    let running = SteadyJob::with_steps(1_000_000).submit(&server);
    let early =
        SteadyJob::with_steps(1).with_field("data", json!([{ "job": running, "mount": "/init" }])).post(&server);
    assert_eq!(early.status, 409, "{}", early.text);
}

#[test]
fn a_checkpoint_is_deployed_as_a_version() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(20)
        .with_field("checkpoint_keep_last", 10)
        .with_parameter("model", "deployed")
        .submit(&server);
    server.wait_for_job(&job);
    let last = server.weights_digest("deployed");
    let deploy = |from: &str| {
        let body = json!({ "from": from });
        server.request("POST", "/api/v1/models/deployed/versions", HttpPayload::Json(&body))
    };
    // The guest has no predictor, so its versions are refused. This test checks that they are created, and from which
    // checkpoint.
    let response = deploy(&format!("job:{job}/checkpoint@10"));
    assert_eq!((response.status, &response.json()["version"]), (201, &json!(2)), "{}", response.text);
    let model = server.get("/api/v1/models/deployed");
    let version = |number: u64| {
        let versions = model["versions"].as_array().unwrap();
        versions.iter().find(|version| version["version"] == number).unwrap().clone()
    };
    assert_ne!(version(2)["weights"], last);
    assert_eq!(version(2)["source_job"], job.as_str());
    // Each has the metrics of the time of its creation.
    let measured = |number: u64| version(number)["metrics"].as_object().unwrap().clone();
    assert!(!measured(1).is_empty() && measured(1).keys().eq(measured(2).keys()), "{model}");
    assert_ne!(measured(1), measured(2), "{model}");
    let same = deploy(&format!("job:{job}"));
    assert_eq!(same.json()["version"], 1, "the last checkpoint is what was published: {}", same.text);
    for (from, status) in
        [("job:absent-1", 404), (&*format!("job:{job}/checkpoint@7"), 404), ("model:deployed", 400), ("x", 400)]
    {
        let refused = deploy(from);
        assert_eq!(refused.status, status, "{from}: {}", refused.text);
    }
}
