//! Monitoring of running jobs: logs, progress, and idle resources.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::process::{Command, Stdio};

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, binary, guest, root};
use serde_json::{Value, json};

#[test]
fn a_log_is_filtered_by_attempt_and_by_time() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(1_000_000).submit(&server);
    server.wait_for_step(&job, 10);
    let refused = server.saggar(&["logs", &job, "-p"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(message.contains("has had one attempt"), "{message}");

    server.saggar_ok(&["preempt", &job]);
    server.wait_for("the second attempt", |server| {
        let it = server.job(&job);
        (it["attempt"] == 2 && it["state"] == "RUNNING").then_some(())
    });
    let previous = server.saggar_ok(&["logs", &job, "--previous"]);
    assert_eq!(previous, server.saggar_ok(&["logs", &job, "--attempt", "1"]));
    assert!(
        previous.contains("step 1\n") && previous.lines().last().unwrap().contains("attempt 1 ended"),
        "{previous}"
    );
    server.saggar_ok(&["stop", &job]);
    server.wait_for_job(&job);

    let whole = server.saggar_ok(&["logs", &job, "--timestamps"]);
    let stamp = |line: &str| line.split_once(' ').unwrap().0.to_owned();
    let middle = stamp(whole.lines().nth(whole.lines().count() / 2).unwrap());
    let young: Vec<&str> = whole.lines().filter(|line| stamp(line) >= middle).collect();
    let since = server.saggar_ok(&["logs", &job, "--timestamps", "--since", &middle]);
    assert_eq!(since.lines().collect::<Vec<_>>(), young);
    assert!(young.len() < whole.lines().count());
    assert_eq!(server.saggar_ok(&["logs", &job, "--timestamps", "--since", "1h"]), whole);
    for bad in ["10", "soon", "10 minutes"] {
        let refused = server.saggar(&["logs", &job, "--since", bad]);
        assert_eq!(refused.status.code(), Some(2), "{bad}");
        let message = String::from_utf8(refused.stderr).unwrap();
        assert!(message.contains("such as 10m"), "{message}");
    }
    let refused = server.request("GET", &format!("/api/v1/jobs/{job}/logs?since=soon"), HttpPayload::Nothing);
    assert_eq!(refused.status, 400, "{}", refused.text);
}

#[test]
fn an_idle_pinned_model_is_listed() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let idle = || -> Value { serde_json::from_str(&server.saggar_ok(&["ps", "--idle", "--json"])).unwrap() };
    let set = |pin: bool| {
        let config = json!({ "pin": pin });
        let answer = server.request("PUT", "/api/v1/models/digits/config", HttpPayload::Json(&config));
        assert_eq!(answer.status, 200, "{}", answer.text);
    };
    set(true);
    let listed = idle();
    assert_eq!((&listed[0]["kind"], &listed[0]["name"]), (&json!("model"), &json!("digits@1")), "{listed}");
    assert_eq!((&listed[0]["pin"], &listed[0]["last_used_ms"]), (&json!(true), &Value::Null), "{listed}");
    assert!(listed[0]["bytes"].as_u64().unwrap() > 0, "{listed}");
    let table = server.saggar_ok(&["ps", "--idle"]);
    assert!(table.contains("never") && table.contains("pinned"), "{table}");
    set(false);
    assert!(server.saggar_ok(&["ps", "--idle"]).contains("keep_alive is forever"));

    // A model that was just used is in use, and one that is down holds nothing.
    server.saggar_ok(&["predict", "digits", "-i", "image=@examples/digits/held-out/7.png"]);
    assert_eq!(idle(), json!([]));
    server.saggar_ok(&["models", "unload", "digits"]);
    assert_eq!(idle(), json!([]));

    let job = SteadyJob::with_steps(1_000_000).submit(&server);
    let it = server.wait_for_step(&job, 5);
    let advanced = it["advanced_ms"].as_u64().unwrap();
    assert!(advanced >= it["started_ms"].as_u64().unwrap(), "{it}");
    assert_eq!(idle(), json!([]), "a job that does steps is not idle");
    server.saggar_ok(&["stop", &job]);
    assert_eq!(server.wait_for_job(&job)["advanced_ms"], Value::Null);
}

/// Steps that take long enough to be visible.
const WATCHED: [&str; 6] = ["--device", "cpu", "--wait", "--", "steps=2000", "work=4"];

#[test]
fn progress_is_lines_in_a_pipe_and_a_bar_at_a_terminal() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let steady = guest("steady");
    let run = [&["run", steady.to_str().unwrap()][..], &WATCHED].concat();

    let piped = server.saggar(&run);
    assert!(piped.status.success(), "{piped:?}");
    let (out, notes) = (String::from_utf8(piped.stdout).unwrap(), String::from_utf8(piped.stderr).unwrap());
    for text in [&out, &notes] {
        assert!(!text.contains(['\r', '\u{1b}']), "a bar in a pipe: {text:?}");
    }
    for state in ["RUNNING", "SUCCEEDED"] {
        let reports = format!("{out}{notes}").lines().filter(|line| line.contains(state)).count();
        assert_eq!(reports, 1, "{state} is reported once: {out}{notes}");
    }
    assert!(notes.contains("steady-1 RUNNING"), "{notes}");

    // The same in a separate terminal, created by `script`.
    let words: Vec<String> = [binary().to_str().unwrap()].iter().chain(&run).map(|word| format!("'{word}'")).collect();
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &words.join(" "), "/dev/null"]).env("SAGGAR_HOST", server.url()).env("TERM", "xterm");
    terminal.current_dir(root()).stdin(Stdio::null());
    let output = match terminal.output() {
        Ok(output) => output,
        Err(error) => {
            println!("SKIP: no program `script` that makes a terminal: {error}");
            return;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("\u{1b}[") && text.contains("steps"), "a bar is drawn: {text:?}");
    assert_eq!(text.matches("steady-2 RUNNING").count(), 1, "{text:?}");
}
