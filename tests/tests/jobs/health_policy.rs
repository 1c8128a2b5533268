//! The host's policy for trainings that compute nothing useful, and what it knows about plugins that can be
//! interrupted.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, guest};
use serde_json::{Value, json};

/// Returns the steps of the existing checkpoints, newest first.
fn steps(server: &ServerProcess, job: &str) -> Vec<u64> {
    server.checkpoints(job).into_iter().map(|(step, _)| step).collect()
}

#[test]
fn a_nan_loss_fails_the_job_and_keeps_older_checkpoints() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let broken = SteadyJob::with_steps(40).with_parameter("nan_at", 23).with_parameter("model", "broken");
    let job = broken.submit(&server);
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("FAILED"), &json!("NON_FINITE")), "{ended}");
    let message = ended["message"].as_str().unwrap();
    assert!(message.contains("`loss` is not a number at step 23"), "{message}");
    assert_eq!(steps(&server, &job), [20, 15, 10]);
    let unpublished = server.request("GET", "/api/v1/models/broken", HttpPayload::Nothing);
    assert_eq!(unpublished.status, 404, "{}", unpublished.text);
    // Its loss is reported as missing, and nothing else is. With `continue`, it succeeds.
    let ended = server.wait_for_job(&broken.with_field("non_finite", "continue").submit(&server));
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    assert_eq!(ended["published"][0]["model"], "broken");
}

#[test]
fn an_infinite_variable_is_neither_saved_nor_published() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    // At the step after the last checkpoint, only publishing would detect it.
    for (at, saved_steps) in [(22, vec![20, 15, 10]), (24, vec![20, 15, 10])] {
        let job =
            SteadyJob::with_steps(24).with_parameter("blow_up_at", at).with_parameter("model", "blown").submit(&server);
        let ended = server.wait_for_job(&job);
        assert_eq!((&ended["state"], &ended["reason"]), (&json!("FAILED"), &json!("NON_FINITE")), "{ended}");
        assert_eq!(steps(&server, &job), saved_steps);
    }
    assert_eq!(server.request("GET", "/api/v1/models/blown", HttpPayload::Nothing).status, 404);
}

#[test]
fn an_infinite_update_is_skipped() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(40)
        .with_parameter("blow_up_at", 22)
        .with_parameter("nan_at", 23)
        .with_field("non_finite", "skip");
    let left_out = server.wait_for_job(&job.with_parameter("model", "sound").submit(&server));
    assert_eq!(left_out["state"], "SUCCEEDED", "{left_out}");
    let log = server.saggar_ok(&["logs", left_out["name"].as_str().unwrap()]);
    assert_eq!(log.matches("`loss` is not a number at step 23: an update with such numbers is skipped").count(), 1);
    // The skipped update has no effect: a training without it ends with the same bits.
    server.wait_for_job(&SteadyJob::with_steps(40).with_parameter("model", "calm").submit(&server));
    assert_eq!(server.weights_digest("sound"), server.weights_digest("calm"));
}

#[test]
fn a_retried_job_rolls_back_to_a_finite_checkpoint() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let again = json!(["non-finite"]);
    let job = SteadyJob::with_steps(40)
        .with_parameter("nan_at", 23)
        .with_field("retry_on", again)
        .with_field("retry", 1)
        .submit(&server);
    let ended = server.wait_for_job(&job);
    // The retry computes the same values and fails with the same reason.
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("FAILED"), &json!("NON_FINITE")), "{ended}");
    assert_eq!(ended["attempts"].as_array().unwrap().len(), 2, "{ended}");
    assert_eq!(ended["attempts"][1]["first_step"], 20, "{ended}");
    assert_eq!(ended["interruptions"], json!({ "non-finite": 1 }));
}

#[test]
fn a_job_that_leaves_its_device_idle_is_checkpointed_and_stopped() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let wanted = json!({ "min_gpu": 0.9, "window_seconds": 2 });
    let job = SteadyJob::with_steps(100_000)
        .with_parameter("spin", 100)
        .with_field("utilization", wanted.clone())
        .submit(&server);
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("CANCELLED"), &json!("IDLE")), "{ended}");
    assert!(ended["message"].as_str().unwrap().contains("the device was busy for"), "{ended}");
    assert_eq!(steps(&server, &job)[0], ended["step"].as_u64().unwrap(), "its last step is saved");
    assert!(ended["wall_seconds"].as_f64().unwrap() >= 2.0);
    // A job that is busy enough continues. The minimum is low because other processes can occupy the CPU for most of a
    // second.
    let little = json!({ "min_gpu": 0.000_001, "window_seconds": 1 });
    let busy = SteadyJob::with_steps(400).with_parameter("work", 40).with_field("utilization", little).submit(&server);
    assert_eq!(server.wait_for_job(&busy)["state"], "SUCCEEDED");
    let zero =
        SteadyJob::with_steps(1).with_field("utilization", json!({ "min_gpu": 0, "window_seconds": 2 })).post(&server);
    assert!(zero.status == 400 && zero.text.contains("utilization"), "{}", zero.text);
}

#[test]
fn a_plugin_that_passes_the_resume_test_is_marked() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let plugin = guest("steady");
    let run = |arguments: &[&str]| {
        let fixed = ["plugins", "test", plugin.to_str().unwrap(), "--device", "cpu", "--project", "steady"];
        let (flags, parameters) = arguments.split_at(arguments.iter().position(|it| *it == "--").unwrap());
        server.saggar(&[&fixed, flags, parameters].concat())
    };
    let listed = |server: &ServerProcess| server.get("/api/v1/plugins")["plugins"][0]["resume_test"].clone();
    // A job that ends before it can be interrupted proves nothing.
    let short = run(&["--", "steps=1"]);
    assert_eq!(short.status.code(), Some(7), "{short:?}");
    assert_eq!(listed(&server), Value::Null);
    let hinted = ["run", plugin.to_str().unwrap(), "--preemptible", "--device", "cpu", "--", "steps=1"];
    let untested = server.saggar(&hinted);
    assert!(String::from_utf8_lossy(&untested.stderr).contains("saggar plugins test"), "{untested:?}");

    let tested = run(&["--preemptions", "2", "--checkpoint-every", "100steps", "--", "steps=3000", "model=m"]);
    assert_eq!(tested.status.code(), Some(0), "{tested:?}");
    let said = String::from_utf8_lossy(&tested.stdout);
    assert!(said.contains("resumed 2 times") && said.contains("the plugin resumes"), "{said}");
    assert_eq!(listed(&server)["resumes"], 2);
    let table = server.saggar_ok(&["plugins", "ls"]);
    assert!(table.contains("RESUMES") && table.contains("yes (steady-"), "{table}");
    assert!(!String::from_utf8_lossy(&server.saggar(&hinted).stderr).contains("saggar plugins test"));

    // A plugin's claim is not trusted.
    let digest = server.upload(&plugin);
    let (whole, other) = (listed(&server)["whole"].clone(), listed(&server)["interrupted"].clone());
    let few = server.wait_for_job(&SteadyJob::with_steps(5).submit(&server))["name"].clone();
    for (pair, says) in [
        (json!({ "whole": whole, "interrupted": whole }), "both jobs"),
        (json!({ "whole": other, "interrupted": other }), "both jobs"),
        (json!({ "whole": other, "interrupted": whole }), "was interrupted"),
        (json!({ "whole": whole, "interrupted": few }), "never resumed"),
        (json!({ "whole": few, "interrupted": other }), "its specification differs"),
        (json!({ "whole": "steady-999", "interrupted": other }), "steady-999"),
    ] {
        let path = format!("/api/v1/plugins/{digest}/resume-test");
        let refused = server.request("POST", &path, HttpPayload::Json(&pair));
        assert!(matches!(refused.status, 404 | 409) && refused.text.contains(says), "{pair}: {}", refused.text);
    }
}

#[test]
fn a_missing_device_is_refused_with_the_available_ones() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let refused = SteadyJob::with_steps(2).with_field("device", "vulkan:77").post(&server);
    assert_eq!(refused.status, 400, "{}", refused.text);
    let words = "this machine has no vulkan:77; it has: auto, cpu";
    assert!(refused.text.contains(words), "the list of adapters: {}", refused.text);
}
