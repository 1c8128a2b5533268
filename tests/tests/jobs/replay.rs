//! Recorded trainings and their replay, with the real binary.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::PathBuf;

use saggar_tests::{ServerProcess, SteadyJob, kill_9, lenet, worker_processes};
use serde_json::{Value, json};

/// Trains LeNet on the digits, recorded, with a checkpoint every 20 steps. Returns the name of the job.
fn record(server: &ServerProcess, parameters: &[&str]) -> String {
    let plugin = lenet();
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "3", "--record"];
    let checkpoints = ["--checkpoint-every", "20steps", "--checkpoint-keep", "100", "--"];
    server.saggar_ok(&[&run[..], &checkpoints, parameters].concat()).trim().to_owned()
}

/// Replays, and returns the exit code and the report.
fn replay(server: &ServerProcess, arguments: &[&str]) -> (i32, Value) {
    let output = server.saggar(&[&["replay", "--json"], arguments].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{arguments:?}: {text} {output:?}"));
    (output.status.code().unwrap(), report)
}

fn recording(server: &ServerProcess, job: &str, attempt: u32) -> PathBuf {
    let id = server.job(job)["id"].as_str().unwrap().to_owned();
    server.home().join("jobs").join(id).join(format!("attempt-{attempt}.calls"))
}

#[test]
fn a_replay_computes_the_recorded_bits_and_prints_operands() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let job = record(&server, &["epochs=3", "model=seen"]);
    assert_eq!(server.wait_for_job(&job)["state"], "SUCCEEDED");
    let (code, report) = replay(&server, &[&job, "--from-step", "45", "--to", "52", "--print", "loss"]);
    assert_eq!(code, 0, "{report}");
    assert_eq!(
        (&report["start_step"], &report["is_recorded"], &report["different"]),
        (&json!(40), &json!(true), &json!(0))
    );
    assert_eq!(report["unrecorded"], 0, "{report}");
    // Each step is at least one dispatch.
    assert!(report["compared"].as_u64().unwrap() >= 12, "{report}");
    let printed = report["printed"].as_array().unwrap();
    // The validation at the end of an epoch computes the loss too, without an update.
    let updates = printed.iter().filter(|it| it["is_update"] == true);
    let steps: Vec<u64> = updates.map(|it| it["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [45, 46, 47, 48, 49, 50, 51, 52]);
    assert!(printed.iter().all(|it| it["operand"] == "loss" && it["max"].as_f64().unwrap() > 0.0), "{report}");
    // From the first step to the end, everything that the job did is compared, its checkpoints and its model too.
    let (code, whole) = replay(&server, &[&job]);
    assert_eq!((code, &whole["different"], &whole["unrecorded"]), (0, &json!(0), &json!(0)), "{whole}");
    assert_eq!(whole["start_step"], 0);
    let recorded = std::fs::read_to_string(recording(&server, &job, 1)).unwrap();
    assert_eq!(whole["compared"].as_u64().unwrap(), recorded.lines().count() as u64 - 1, "{whole}");
    for call in ["dispatch", "metric", "checkpoint", "publish"] {
        assert!(recorded.contains(&format!("\"call\":\"{call}\"")), "{call}");
    }
    // A replay publishes and stores nothing but its report.
    assert_eq!(server.get("/api/v1/models/seen")["versions"].as_array().unwrap().len(), 1);
    let name = whole["job"].as_str().unwrap();
    assert_eq!(server.checkpoints(name), []);
    let outputs = server.get(&format!("/api/v1/jobs/{name}/output"));
    assert_eq!(outputs["files"].as_array().unwrap().len(), 1, "{outputs}");
}

#[test]
fn a_killed_training_is_replayed_across_its_attempts() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let job = record(&server, &["epochs=30"]);
    server.wait_for_step(&job, 60);
    assert!(kill_9(worker_processes(server.pid())[0]));
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], ended["attempts"].as_array().unwrap().len()), (&json!("SUCCEEDED"), 2), "{ended}");
    let resumed = ended["attempts"][1]["first_step"].as_u64().unwrap();
    assert!(resumed >= 40, "{ended}");
    // The steps before the kill are of the first attempt, those after it of the second.
    let (from, to) = ((resumed - 15).to_string(), (resumed + 15).to_string());
    let (code, report) = replay(&server, &[&job, "--from-step", &from, "--to", &to]);
    assert_eq!((code, &report["different"]), (0, &json!(0)), "{report}");
    assert!(report["compared"].as_u64().unwrap() > 30, "{report}");
}

#[test]
fn a_replay_names_the_first_operand_that_is_not_a_number() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let job = record(&server, &["epochs=3", "lr=1e12"]);
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("FAILED"), &json!("NON_FINITE")), "{ended}");
    let (code, report) = replay(&server, &[&job]);
    assert_eq!(code, 20, "{report}");
    assert_eq!((&report["different"], &report["failure"]), (&json!(0), &Value::Null), "{report}");
    let found = &report["non_finite"];
    assert!(found["step"].as_u64().unwrap() >= 1, "{report}");
    assert!(!found["found_in"].as_array().unwrap().is_empty() && found["problem"].is_null(), "{report}");
    let first = if found["first_nan"].is_null() { &found["first_infinite"] } else { &found["first_nan"] };
    assert!(first["operator"].is_string() && first["layer"].is_string(), "{report}");
    assert!(!first["inputs"].as_array().unwrap().is_empty(), "{report}");
    // As text, it is explained in words.
    let text = server.saggar(&["replay", &job]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("gives numbers that are not finite, in "), "{text}");
    assert!(text.contains(", layer ") && text.contains("  computed from `"), "{text}");
}

#[test]
fn a_difference_names_its_step_and_its_tensor() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let job = record(&server, &["epochs=3"]);
    server.wait_for_job(&job);
    let path = recording(&server, &job, 1);
    let recorded = std::fs::read_to_string(&path).unwrap();
    // Another loss after the boundary at step 40, as if a bit had been different.
    let changed: Vec<String> = recorded
        .lines()
        .map(|line| {
            let is_changed = line.contains("\"after_step\":40,\"call\":\"dispatch\"") && line.contains("\"loss\":\"");
            match line.find("\"loss\":\"").filter(|_| is_changed) {
                Some(at) => format!("{}\"loss\":\"00{}", &line[..at], &line[at + "\"loss\":\"00".len()..]),
                None => line.to_owned(),
            }
        })
        .collect();
    std::fs::write(&path, changed.join("\n") + "\n").unwrap();
    let (code, report) = replay(&server, &[&job, "--from-step", "41", "--to", "44"]);
    assert_eq!(code, 20, "{report}");
    let difference = &report["first_difference"];
    assert_eq!(difference["step"], 41, "{report}");
    assert!(difference["what"].as_str().unwrap().starts_with("the output `loss` of a dispatch of graph "), "{report}");
    assert!(difference["recorded"].as_str().unwrap().starts_with("00"), "{report}");
    // A line that is no call is an error that names the place.
    std::fs::write(&path, recorded.replacen("\"call\":\"metric\"", "\"call\":\"dance\"", 1)).unwrap();
    let refused = server.saggar(&["replay", &job]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("attempt 1: line ") && text.contains("of the recording: unknown variant `dance`"), "{text}");
}

#[test]
fn what_was_not_recorded_is_replayed_and_what_cannot_be_replayed_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let job = SteadyJob::with_steps(30).submit(&server);
    server.wait_for_job(&job);
    let (code, report) = replay(&server, &[&job, "--to", "7", "--print", "nothing"]);
    assert_eq!((code, &report["is_recorded"], &report["compared"]), (0, &json!(false), &json!(0)), "{report}");
    assert!(report["steps"].as_u64().unwrap() >= 7, "{report}");
    assert_eq!(report["unknown_operands"], json!(["nothing"]));
    assert!(!report["known_operands"].as_array().unwrap().is_empty(), "{report}");
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let output = server.saggar(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text}");
    };
    refused(&["replay", "steady-99"], 3, "steady-99");
    refused(&["replay", &job, "--from-step", "9", "--to", "8"], 7, "to_step: 8 is before from_step, 9");
    refused(&["replay", &job, "--from-step", "0"], 2, "0 is not in 1..");
    refused(&["replay", report["job"].as_str().unwrap()], 5, "only a training can be replayed");
}
