//! Trainings that exceed a limit: the excess is truncated or dropped and reported, and nothing else fails or waits for
//! it.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob};
use serde_json::{Value, json};

#[test]
fn metric_series_past_the_limit_are_dropped_and_the_training_continues() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    // Each attempt writes the maximum of a training; two attempts exceed the maximum of a job.
    let job = SteadyJob::with_steps(400).with_parameter("series", 200).with_parameter("work", 4).submit(&server);
    server.wait_for_step(&job, 20);
    server.saggar_ok(&["preempt", &job]);
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "SUCCEEDED", "{}", server.saggar_ok(&["logs", &job]));
    assert_eq!(ended["attempts"].as_array().unwrap().len(), 2, "the second one is not tried again and again");
    let log = server.saggar_ok(&["logs", &job]);
    assert_eq!(log.matches("values are not kept: ").count(), 1, "said once");
    let series = server.get(&format!("/api/v1/jobs/{job}/metrics?from=399"))["series"].clone();
    let accuracy = series.as_array().unwrap().iter().find(|one| one["name"] == "accuracy").unwrap();
    assert_eq!(accuracy["points"].as_array().unwrap().last().unwrap()[0], 400, "series that there are go on");
}

#[test]
fn an_error_of_megabytes_is_truncated_and_ends_the_attempt() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let job = SteadyJob::with_steps(3).with_parameter("complaint", 5_000_000).submit(&server);
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("FAILED"), &json!("PLUGIN_ERROR")));
    let message = ended["message"].as_str().unwrap();
    assert!(message.contains("!!!") && message.len() < 20_000, "{} bytes", message.len());
}

#[test]
fn a_failed_checkpoint_save_is_retried_at_the_next_one() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.wait_for_job(&SteadyJob::with_steps(1).submit(&server));
    let used = server.get("/api/v1/quota")["storage_bytes"].as_u64().unwrap();
    drop(server);
    // Enough space for the records and the log of another job, but not for a checkpoint.
    let quota = format!("{}B", used + 2 * 96 * 96 * 4 - 1);
    let server = ServerProcess::start_with(home.path(), &["--storage-quota", &quota]);
    // Slow steps, so that a checkpoint can be requested during them.
    let job = SteadyJob::with_steps(60).with_parameter("spin", 150).submit(&server);
    server.wait_for_step(&job, 2);
    server.request("POST", &format!("/api/v1/jobs/{job}/checkpoint"), HttpPayload::Nothing);
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    let events = server.get(&format!("/api/v1/jobs/{job}/events"));
    let refused = |event: &&Value| event["kind"] == "CHECKPOINT_FAILED";
    let refused: Vec<&Value> = events["events"].as_array().unwrap().iter().filter(refused).collect();
    // One every five steps, and one on request.
    assert!((12..=13).contains(&refused.len()), "{refused:?}");
    assert!(refused[0]["text"].as_str().unwrap().contains("storage"), "{}", refused[0]);
}
