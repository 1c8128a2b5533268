//! Jobs at the command line: names, states, logs, outputs, exit codes.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use saggar_store::JobState;
use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, binary, guest};
use serde_json::{Value, json};

/// Returns a command's two output streams and its exit code.
fn run(server: &ServerProcess, arguments: &[&str]) -> (String, String, i32) {
    let output = server.saggar(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

#[test]
fn an_unknown_run_mode_lists_the_valid_modes() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let (_, errors, code) = run(&server, &["run", "--mode", "jupyter", guest("steady").to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(["job", "serve", "notebook"].iter().all(|mode| errors.contains(mode)), "{errors}");
}

#[test]
fn a_job_continues_after_its_client_disconnects() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let steady = guest("steady");
    // The command ends at once; no connection stays open.
    let (name, notes, code) =
        run(&server, &["run", steady.to_str().unwrap(), "--device", "cpu", "--", "--steps", "30"]);
    assert_eq!((name.trim(), code), ("steady-1", 0), "{notes}");
    assert_eq!(server.wait_for_job("steady-1")["state"], "SUCCEEDED");
}

#[test]
fn a_log_line_is_identical_in_the_command_and_the_rest_api() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(12).submit(&server);
    server.wait_for_job(&job);
    let command = server.saggar_ok(&["logs", &job]);
    let rest = server.request("GET", &format!("/api/v1/jobs/{job}/logs"), HttpPayload::Nothing).text;
    assert_eq!(command, rest);
    assert!(command.contains("step 12\n"), "{command}");
    // AB-13: a line can be prefixed with its job.
    let prefixed = server.saggar_ok(&["logs", &job, "--prefix"]);
    let without: Vec<&str> = prefixed.lines().map(|line| line.strip_prefix(&format!("{job}/1 ")).unwrap()).collect();
    assert_eq!(without, command.lines().collect::<Vec<_>>());
}

#[test]
fn output_files_of_a_job_can_be_downloaded() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(2).with_parameter("write", "a/b.bin=70000 c.txt=3").submit(&server);
    let ended = server.wait_for_job(&job);
    let out = home.path().join("out");
    server.saggar_ok(&["output", "get", &job, "-o", out.to_str().unwrap()]);
    assert_eq!(std::fs::read(out.join("a/b.bin")).unwrap(), vec![b'x'; 70_000]);
    assert_eq!(server.saggar_ok(&["output", "tail", &job, "c.txt"]), "xxx");
    assert_eq!(ended["outputs"], json!([{"path": "a/b.bin", "bytes": 70_000}, {"path": "c.txt", "bytes": 3}]));
    for path in ["../x", "/etc/passwd", ".hidden", "a/../../x"] {
        let job = SteadyJob::with_steps(2).with_parameter("write", format!("{path}=1")).submit(&server);
        let refused = server.wait_for_job(&job);
        assert_eq!(refused["state"], "FAILED", "{path}: {refused}");
        assert!(refused["message"].as_str().unwrap().contains(path), "{path}: {refused}");
    }
}

#[test]
fn a_job_reports_its_specification_device_log_and_models() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let spec = SteadyJob::with_steps(6).with_field("seed", 7).with_parameter("model", "report").spec(&server);
    let job = server.post("/api/v1/jobs", &spec)["name"].as_str().unwrap().to_owned();
    server.wait_for_job(&job);
    let status: Value = serde_json::from_str(&server.saggar_ok(&["--json", "status", &job])).unwrap();
    assert_eq!((&status["spec"]["plugin"], &status["spec"]["seed"]), (&spec["plugin"], &json!(7)));
    assert_eq!((&status["device"], &status["published"]), (&json!("cpu"), &json!([{"model": "report", "version": 1}])));
    let log = status["attempts"][0]["log"].as_str().unwrap();
    assert!(server.request("GET", log, HttpPayload::Nothing).text.contains("step 6"));
    // AZ-21: the published model, with the command that deploys it.
    let models = server.wait_for("the version", |server| {
        let listed = server.saggar_ok(&["--json", "output", "ls", &job, "--kind", "model"]);
        let models: Value = serde_json::from_str(&listed).unwrap();
        models[0]["weights"].is_string().then_some(models)
    });
    assert_eq!(models[0]["promote"], "saggar models promote report 1");
    assert!(models[0]["weights"].as_str().is_some_and(|digest| digest.len() == 64), "{models}");
    // AZ-22: one field, raw.
    assert_eq!(server.saggar_ok(&["status", &job, "--field", "spec.seed"]).trim(), "7");
}

#[test]
fn jobs_are_filtered_by_experiment() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let of = |experiment: &str| SteadyJob::with_steps(1).with_field("experiment", experiment).submit(&server);
    let jobs = [of("lr"), of("width"), of("lr")];
    jobs.iter().for_each(|job| drop(server.wait_for_job(job)));
    let listed = server.saggar_ok(&["-q", "ps", "-e", "lr"]);
    assert_eq!(listed.lines().collect::<Vec<_>>(), [&jobs[2], &jobs[0]]);
}

#[test]
fn the_exit_code_of_a_waiting_command_is_that_of_its_job() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let steady = guest("steady");
    let wait = |more: &[&str]| {
        let command = ["run", steady.to_str().unwrap(), "--device", "cpu", "--wait"];
        run(&server, &[&command[..], more].concat())
    };
    let (result, notes, code) = wait(&["--", "steps=5"]);
    assert_eq!(code, 0, "{notes}");
    // AB-12, AB-08, AB-18: what was submitted, its progress, and its end.
    assert!(notes.contains("Submitted job steady-1 (") && notes.contains(") to queue default"), "{notes}");
    assert!(result.trim().starts_with("Job steady-1 SUCCEEDED after ") && result.contains("attempts: 1"), "{result}");
    assert_eq!(wait(&["--", "steps=5", "fail_at=2"]).2, 20);
    assert_eq!(wait(&["--max-runtime", "500ms", "--", "steps=1000000"]).2, 22);
    assert_eq!(wait(&["--memory", "16MiB", "--", "steps=5", "memory_mib=32"]).2, 24);
    let long = SteadyJob::with_steps(1_000_000).submit(&server);
    assert_eq!(run(&server, &["wait", &long, "--timeout", "100ms"]).2, 124);
    assert_eq!(run(&server, &["wait", &long, "--for", "running"]).2, 0);
    server.saggar_ok(&["stop", &long]);
    assert_eq!(run(&server, &["wait", &long]).2, 21);
    assert_eq!(run(&server, &["wait", "absent-1"]).2, 3);
    assert_eq!(run(&server, &["run", "--retry", "never", "x.wasm"]).2, 2);
    assert_eq!(run(&server, &["--host", "http://127.0.0.1:9", "ps"]).2, 6);
}

#[test]
fn every_state_transition_has_a_time_and_a_reason() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(100_000).submit(&server);
    server.wait_for_step(&job, 5);
    server.saggar_ok(&["preempt", &job]);
    server.wait_for("the second attempt", |server| (server.job(&job)["attempt"] == 2).then_some(()));
    server.saggar_ok(&["stop", &job]);
    let ended = server.wait_for_job(&job);
    let events = ended["events"].as_array().unwrap();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
    let mut at = 0;
    // In this order, with other events in between.
    for wanted in ["SUBMITTED", "CLAIMED", "RUNNING", "STOPPING", "ATTEMPT_ENDED", "QUEUED", "CLAIMED", "CANCELLED"] {
        at +=
            kinds[at..].iter().position(|kind| *kind == wanted).unwrap_or_else(|| panic!("{wanted} in {kinds:?}")) + 1;
    }
    // Every event except the normal ones has a reason.
    let is_said = |event: &&Value| !event["text"].as_str().unwrap_or_default().is_empty();
    let unsaid = events.iter().filter(|event| !is_said(event)).map(|event| event["kind"].as_str().unwrap());
    assert_eq!(unsaid.collect::<BTreeSet<_>>(), BTreeSet::from(["SUBMITTED", "RUNNING"]), "{events:?}");
    let queued = events.iter().filter(|event| event["kind"] == "QUEUED");
    let queued: Vec<&str> = queued.map(|event| event["text"].as_str().unwrap()).collect();
    assert!(queued.iter().any(|text| text.contains("preempted by a user")), "{queued:?}");
    let times: Vec<u64> = events.iter().map(|event| event["at_ms"].as_u64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    // KF-13: each attempt with its start, end, reason and steps.
    let status = server.saggar_ok(&["status", &job]);
    assert!(status.contains("PREEMPTED") && status.contains("preempted by a user"), "{status}");
    let attempt = &ended["attempts"][0];
    for field in ["started_ms", "ended_ms", "first_step", "last_step"] {
        assert!(attempt[field].is_u64(), "{field}: {attempt}");
    }
    assert_eq!(attempt["device"], "cpu");
}

/// The documentation's table of states lists all states of this program beside those of AWS Batch.
#[test]
fn the_documentation_maps_every_job_state_to_aws_batch() {
    let page = std::fs::read_to_string(saggar_tests::root().join("host/docs/concepts/jobs.md")).unwrap();
    let (_, table) = page.split_once("| state | meaning | in AWS Batch |\n|---|---|---|\n").unwrap();
    let rows: Vec<Vec<&str>> =
        table.lines().take_while(|line| line.starts_with('|')).map(|line| line.split('|').collect()).collect();
    let column = |at: usize| -> BTreeSet<&str> {
        let words = rows.iter().flat_map(|row| row[at].split(['`', ',', ' '])).filter(|word| word.len() > 3);
        words.filter(|word| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')).collect()
    };
    let own: BTreeSet<&str> = JobState::ALL.iter().map(|state| state.name()).collect();
    assert_eq!(column(1), own);
    let theirs = ["SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING", "SUCCEEDED", "FAILED"];
    assert_eq!(column(3), BTreeSet::from(theirs));
}

#[test]
fn a_closed_output_pipe_does_not_stop_the_command() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    /// Returns a pipe whose reader has closed it.
    fn broken_pipe() -> Stdio {
        std::io::pipe().unwrap().1.into()
    }
    let unread = |arguments: &[&str], output: Stdio| {
        let mut command = Command::new(binary());
        command.args(arguments).env("SAGGAR_HOST", server.url()).stdin(Stdio::null());
        command.stdout(output).stderr(broken_pipe()).status().unwrap().code()
    };
    let steady = guest("steady");
    let run = ["run", steady.to_str().unwrap(), "--device", "cpu", "--", "steps=3", "write=a.txt=3 b.txt=4"];
    assert_eq!(unread(&run, Stdio::null()), Some(0));
    server.wait_for_job("steady-1");
    let second = SteadyJob::with_steps(3).submit(&server);
    server.wait_for_job(&second);
    let out = home.path().join("out");
    assert_eq!(unread(&["output", "get", "steady-1", "-o", out.to_str().unwrap()], broken_pipe()), Some(0));
    assert!(out.join("a.txt").is_file() && out.join("b.txt").is_file(), "every file is fetched");
    assert_eq!(unread(&["rm", "steady-1", &second, "-y"], broken_pipe()), Some(0));
    assert_eq!(server.get("/api/v1/jobs")["jobs"], json!([]), "every job is removed");
    assert_eq!(unread(&["status", "absent-1"], broken_pipe()), Some(3), "a failure keeps its code");
    // A command that prints the beginning of a log does not wait for the job's end.
    let long = SteadyJob::with_steps(1_000_000).submit(&server);
    server.wait_for_step(&long, 5);
    assert_eq!(unread(&["logs", "-f", &long], broken_pipe()), Some(0));
    let again = ["restart", &long, "--from-scratch", "-f"];
    server.saggar_ok(&["stop", &long]);
    server.wait_for_job(&long);
    assert_eq!(unread(&again, broken_pipe()), Some(0));
    let jobs = server.get("/api/v1/jobs")["jobs"].clone();
    assert!(jobs[0]["finished_ms"].is_null(), "it goes on: {}", jobs[0]["state"]);
}

#[test]
fn a_followed_serve_run_ends_when_its_version_serves_or_explains_why_not() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let teller = guest("teller");
    let train = |flags: &[&str]| run(&server, &[&["run", teller.to_str().unwrap(), "--device", "cpu"], flags].concat());
    let serving = || server.get("/api/v1/models/teller")["serving"].clone();
    let (_, notes, code) = train(&["-f"]);
    assert_eq!((serving(), code), (json!(1), 0), "nothing is left to wait for: {notes}");
    assert!(notes.contains("teller@1 serves"), "{notes}");
    let (_, notes, code) = run(&server, &["models", "promote", "teller", "1"]);
    assert!(code == 0 && notes.contains("`saggar models promote teller newest`"), "{notes}");
    let stays = "version 1 stays the default until `saggar models promote teller 2`";
    let (log, notes, code) = train(&["-f"]);
    assert_eq!((serving(), code), (json!(1), 0), "{notes}");
    assert!(log.contains(&format!("teller@2 is stored and not served: {stays}")), "{log}");
    assert!(notes.contains(&format!("teller@2 is stored but does not serve: {stays}")), "{notes}");
    server.wait_for_log("stored, and not served");
    let (table, notes, _) = run(&server, &["models", "ls"]);
    assert!(table.contains(stays) && notes.contains("version 1 was promoted"), "{table}{notes}");
    let (_, errors, code) = train(&["--mode", "serve"]);
    assert!(code == 5 && errors.contains("teller@3 is stored but does not serve: version 1 stays"), "{errors}");
    server.saggar_ok(&["models", "unload", "teller"]);
    let (_, notes, code) = train(&["--wait"]);
    assert!(code == 0 && notes.contains("`saggar models load teller` loads the model"), "{notes}");
}

#[test]
fn waiting_for_an_impossible_state_fails_immediately() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let (_, errors, code) = run(&server, &["wait", "steady-1", "--for", "RUNING"]);
    assert_eq!(code, 7);
    assert!(errors.contains("RUNNING"), "{errors}");
    let steady = guest("steady");
    let serve = ["run", steady.to_str().unwrap(), "--device", "cpu", "--mode", "serve", "--", "steps=3"];
    let (_, errors, code) = run(&server, &serve);
    assert_eq!(code, 1);
    assert!(errors.contains("published nothing"), "{errors}");
}

#[test]
fn a_full_disk_makes_the_command_fail() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [&["plugins", "worlds"][..], &["queues"], &["ps", "-a"], &["ps", "-a", "--json"]] {
        let mut command = Command::new(binary());
        command.args(arguments).env("SAGGAR_HOST", server.url()).stdin(Stdio::null()).stdout(full());
        let output = command.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(errors.contains("standard output: No space left"), "{arguments:?}: {errors}");
    }
}

/// Commands to jobs that are missing, and commands that the job or its body refuses, are in the audit log like those
/// that were done.
#[test]
fn refused_commands_to_jobs_are_in_the_audit_log() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(3).submit(&server);
    assert_eq!(server.wait_for_job(&job)["state"], "SUCCEEDED");
    let commands = ["stop", "preempt", "pause", "resume", "annotate"];
    let body = |command: &str| if command == "annotate" { json!({ "note": "x" }) } else { json!({}) };
    for command in commands {
        let path = format!("/api/v1/jobs/absent-9/{command}");
        assert_eq!(server.request("POST", &path, HttpPayload::Json(&body(command))).status, 404, "{command}");
    }
    assert_eq!(server.request("DELETE", "/api/v1/jobs/absent-9", HttpPayload::Nothing).status, 404);
    // The job is over, and a body has an unknown member or too long a tag.
    let pause = format!("/api/v1/jobs/{job}/pause");
    assert_eq!(server.request("POST", &pause, HttpPayload::Json(&json!({ "at_step": 2 }))).status, 409);
    assert_eq!(server.request("POST", &pause, HttpPayload::Json(&json!({ "at": 2 }))).status, 400);
    let annotate = format!("/api/v1/jobs/{job}/annotate");
    let long = json!({ "tags": { "kind": "x".repeat(501) } });
    assert_eq!(server.request("POST", &annotate, HttpPayload::Json(&long)).status, 400);
    assert_eq!(server.request("POST", &annotate, HttpPayload::Json(&json!({ "note": "x" }))).status, 200);
    let log = std::fs::read_to_string(home.path().join("audit.log")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let entries = |action: &str| -> Vec<[String; 3]> {
        let field = |value: &Value| value.as_str().unwrap().to_owned();
        let of_action = lines.iter().filter(|line| line["action"] == action);
        of_action.map(|line| [&line["job"], &line["detail"], &line["result"]].map(field)).collect()
    };
    for command in commands.into_iter().chain(["remove"]) {
        let missing = ["absent-9", "", "not_found"].map(str::to_owned);
        assert_eq!(entries(&format!("job.{command}")).first(), Some(&missing), "{command}");
    }
    let rest = |action: &str| entries(action)[1..].iter().map(|entry| entry.join(" ")).collect::<Vec<_>>();
    assert_eq!(rest("job.pause"), [format!("{job} at step 2 bad_state"), format!("{job}  bad_json")]);
    assert_eq!(rest("job.annotate"), [format!("{job}  bad_spec"), format!("{job}  ok")]);
}
