//! A job from submission to removal: interruptions, limits on time and memory, initialization from other jobs,
//! restarts.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert; figures are shown")]

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, kill_9, worker_processes};
use serde_json::{Value, json};

#[test]
fn three_preemptions_end_bit_identical() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let every = json!({ "steps": 100 });
    // Many more steps than are done before the last preemption, even if the test polls rarely.
    let steps = 4_000;
    let calm = SteadyJob::with_steps(steps)
        .with_field("checkpoint_every", every.clone())
        .with_parameter("model", "calm")
        .submit(&server);
    assert_eq!(server.wait_for_job(&calm)["attempt"], 1);
    let shaken = SteadyJob::with_steps(steps)
        .with_field("checkpoint_every", every)
        .with_parameter("model", "shaken")
        .submit(&server);
    for (step, times) in [(10, 1), (150, 2), (300, 3)] {
        server.wait_for_step(&shaken, step);
        server.saggar_ok(&["preempt", &shaken]);
        server.wait_for("the attempt's end", |server| {
            let attempts = server.job(&shaken)["attempts"].as_array().unwrap().clone();
            let preempted = attempts.iter().filter(|attempt| attempt["state"] == "PREEMPTED").count();
            (preempted == times).then_some(())
        });
    }
    let ended = server.wait_for_job(&shaken);
    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("SUCCEEDED"), &json!(4)), "{ended}");
    assert_eq!(ended["interruptions"], json!({ "preempted": 3 }));
    assert_eq!(ended["wasted_steps"], 0, "a preempted attempt saves its last step");
    assert_eq!(server.weights_digest("calm"), server.weights_digest("shaken"));
}

#[test]
fn retry_limit_5_allows_six_attempts() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(100_000).with_field("retry", 5).submit(&server);
    for attempt in 1..=6 {
        server.wait_for("the attempt", |server| {
            let it = server.job(&job);
            (it["attempt"] == attempt && it["state"] == "RUNNING").then_some(())
        });
        server.wait_for("the worker", |server| worker_processes(server.pid()).first().map(|worker| kill_9(*worker)));
        server.wait_for("its end", |server| {
            let it = server.job(&job);
            (it["attempts"][attempt - 1]["ended_ms"].is_u64()).then_some(())
        });
    }
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("FAILED"), &json!("RETRIES_EXHAUSTED")), "{ended}");
    assert_eq!(ended["attempts"].as_array().unwrap().len(), 6, "the seventh never starts");
    assert_eq!(ended["interruptions"], json!({ "worker-lost": 5 }), "counted by cause");
    let waited = server.saggar(&["wait", &job]);
    assert_eq!(waited.status.code(), Some(23));
}

#[test]
fn a_killed_attempt_loses_less_than_a_checkpoint_interval() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let every = 20;
    let job =
        SteadyJob::with_steps(1_000_000).with_field("checkpoint_every", json!({ "steps": every })).submit(&server);
    for attempt in 1..=3 {
        server.wait_for("some steps", |server| {
            let it = server.job(&job);
            let last = &it["attempts"][attempt - 1];
            let done = last["last_step"].as_u64()?.saturating_sub(last["first_step"].as_u64()?);
            (it["state"] == "RUNNING" && done > 2 * every).then_some(())
        });
        server.wait_for("the worker", |server| worker_processes(server.pid()).first().map(|worker| kill_9(*worker)));
    }
    server.wait_for("the fourth attempt", |server| {
        let it = server.job(&job);
        (it["attempt"] == 4 && it["attempts"][3]["last_step"].as_u64() > Some(0)).then_some(())
    });
    let shaken = server.job(&job);
    let attempts = shaken["attempts"].as_array().unwrap();
    let wasted = |pair: &[Value]| pair[0]["last_step"].as_u64().unwrap() - pair[1]["first_step"].as_u64().unwrap();
    let wasted: Vec<u64> = attempts.windows(2).map(wasted).collect();
    assert!(wasted.len() == 3 && wasted.iter().all(|steps| *steps <= every), "{wasted:?}: {shaken}");
    assert_eq!(shaken["wasted_steps"].as_u64(), Some(wasted.iter().sum()), "{shaken}");
    // A restart also resumes.
    server.saggar_ok(&["stop", &job]);
    let last = server.wait_for_job(&job)["step"].as_u64().unwrap();
    let parameter = format!("steps={}", last + 10);
    let again = server.saggar_ok(&["restart", "--resume", &job, "--", &parameter]);
    let again = server.wait_for_job(again.trim());
    assert_eq!((&again["state"], &again["attempts"][0]["first_step"]), (&json!("SUCCEEDED"), &json!(last)), "{again}");
    assert_eq!(again["wasted_steps"], 0);
}

#[test]
fn plugin_errors_are_retried_only_if_requested() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let failing = SteadyJob::with_steps(20).with_parameter("fail_at", 12).with_parameter("fail_until", 3);
    let once = server.wait_for_job(&failing.submit(&server));
    assert_eq!((&once["state"], &once["attempt"]), (&json!("FAILED"), &json!(1)), "{once}");
    let again = failing.with_field("retry_on", json!(["error"])).submit(&server);
    let again = server.wait_for_job(&again);
    assert_eq!((&again["state"], &again["attempt"]), (&json!("SUCCEEDED"), &json!(3)), "{again}");
    assert_eq!(again["interruptions"], json!({ "error": 2 }));
    assert_eq!(again["attempts"][1]["first_step"], 10, "it went on from its checkpoint");
}

#[test]
fn the_log_of_a_killed_attempt_is_complete_after_a_restart() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(100_000).submit(&server);
    server.wait_for_step(&job, 20);
    let worker = worker_processes(server.pid())[0];
    assert!(kill_9(worker));
    server.wait_for("the second attempt", |server| (server.job(&job)["attempt"] == 2).then_some(()));
    let before = server.saggar_ok(&["logs", &job, "--attempt", "1"]);
    // The worker's last output is complete: a line for each step, without a gap, up to the last step that was counted.
    let steps: Vec<u64> = before.lines().filter_map(|line| line.strip_prefix("step ")?.parse().ok()).collect();
    assert_eq!(steps, (1..=steps.len() as u64).collect::<Vec<_>>());
    let counted = server.job(&job)["attempts"][0]["last_step"].as_u64().unwrap();
    // A step is counted before its line is written, so a kill can happen between the two.
    assert!(steps.len() as u64 + 1 >= counted, "{} lines, {counted} steps", steps.len());
    server.kill_and_wait();
    let server = ServerProcess::start(home.path());
    let after = server.saggar_ok(&["logs", &job, "--attempt", "1"]);
    assert!(after.starts_with(&before), "{after}");
    assert!(after.contains("killed by signal 9"), "{after}");
    let stamped = server.saggar_ok(&["logs", &job, "--attempt", "1", "--timestamps", "--tail", "1"]);
    let (stamp, _) = stamped.split_once(' ').unwrap();
    assert!(stamp.ends_with('Z') && stamp.len() == 24, "an ISO 8601 time with milliseconds: {stamped}");
}

#[test]
fn a_job_past_its_memory_limit_fails_alone() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let limit = 32 << 20;
    let job =
        SteadyJob::with_steps(5).with_parameter("memory_mib", 64).with_field("memory_bytes", limit).submit(&server);
    let failed = server.wait_for_job(&job);
    assert_eq!(failed["state"], "FAILED", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("33554432"), "it tells the limit: {failed}");
    assert_eq!(server.saggar(&["wait", &job]).status.code(), Some(24));
    let other =
        SteadyJob::with_steps(5).with_parameter("memory_mib", 16).with_field("memory_bytes", limit).submit(&server);
    assert_eq!(server.wait_for_job(&other)["state"], "SUCCEEDED");
    let job = SteadyJob::with_steps(5).with_field("gpu_memory_bytes", 10_000).submit(&server);
    let failed = server.wait_for_job(&job);
    assert_eq!((&failed["state"], &failed["reason"]), (&json!("FAILED"), &json!("OUT_OF_MEMORY")), "{failed}");
}

#[test]
fn an_attempt_past_its_time_limit_ends_and_the_job_continues() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(1_000_000)
        .with_field("max_attempt_runtime_seconds", 0.8)
        .with_field("retry", 0)
        .submit(&server);
    server.wait_for("the third attempt", |server| {
        let it = server.job(&job);
        (it["attempt"] == 3 && it["state"] == "RUNNING").then_some(())
    });
    server.saggar_ok(&["stop", &job]);
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "CANCELLED", "{ended}");
    let attempts = ended["attempts"].as_array().unwrap();
    assert!(attempts.len() > 2, "{ended}");
    for pair in attempts.windows(2) {
        assert_eq!(pair[0]["reason"], "MAX_ATTEMPT_RUNTIME");
        assert_eq!(pair[0]["last_step"], pair[1]["first_step"]);
    }
    assert_eq!(ended["interruptions"], json!({}), "it counts for nothing");
}

#[test]
fn a_job_past_its_time_limit_is_checkpointed_and_can_be_resumed() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(1_000_000)
        .with_parameter("write", "a/b.txt=5")
        .with_field("max_runtime_seconds", 1)
        .submit(&server);
    let late = server.wait_for_job(&job);
    assert_eq!((&late["state"], &late["reason"]), (&json!("TIMED_OUT"), &json!("MAX_RUNTIME")), "{late}");
    assert_eq!(server.saggar(&["wait", &job]).status.code(), Some(22));
    let (step, _) = server.checkpoints(&job)[0];
    assert_eq!(Some(step), late["step"].as_u64(), "the final checkpoint is of the last step");
    // FH-33: a restart resumes, and loses nothing.
    let steps = format!("steps={}", step + 50);
    let again = server.saggar_ok(&["restart", &job, "--set", "max_runtime_seconds=null", "--", &steps]);
    let again = server.wait_for_job(again.trim());
    assert_eq!(again["state"], "SUCCEEDED", "{again}");
    assert_eq!(again["attempts"][0]["first_step"], step);
    assert_eq!(again["spec"]["init_from"], format!("job:{job}/checkpoint@{step}"));
    // FH-32: its earlier outputs can be fetched.
    let name = again["name"].as_str().unwrap();
    let out = home.path().join("out");
    server.saggar_ok(&["output", "get", name, "-o", out.to_str().unwrap()]);
    assert_eq!(std::fs::read(out.join("a/b.txt")).unwrap(), b"xxxxx");
}

#[test]
fn outputs_written_before_the_time_limit_are_kept() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(1_000_000)
        .with_parameter("diary", "notes/diary.txt")
        .with_field("max_runtime_seconds", 4);
    let job = job.submit(&server);
    let late = server.wait_for_job(&job);
    assert_eq!(late["state"], "TIMED_OUT", "{late}");
    let done = late["step"].as_u64().unwrap();
    assert!(done >= 50, "some was written: {late}");
    let out = home.path().join("out");
    server.saggar_ok(&["output", "get", &job, "-o", out.to_str().unwrap()]);
    let diary = std::fs::read(out.join("notes/diary.txt")).unwrap();
    assert_eq!(diary.len() as u64, done / 50 * 50, "all that was written before step {done}");
    // The last checkpoint is of the last step, and intact.
    let verified = server.saggar_ok(&["output", "checkpoints", &job, "--verify", "--json"]);
    let verified: Value = serde_json::from_str(&verified).unwrap();
    assert_eq!((&verified[0]["step"], &verified[0]["whole"]), (&json!(done), &json!(true)), "{verified}");
    // A restart of the server removes nothing either.
    server.kill_and_wait();
    let server = ServerProcess::start(home.path());
    let listed = server.saggar_ok(&["output", "ls", &job, "--json"]);
    assert!(listed.contains("notes/diary.txt") && listed.contains(&diary.len().to_string()), "{listed}");
}

#[test]
fn outputs_are_listed_as_a_tree() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(100).with_parameter("diary", "notes/may/diary.txt").submit(&server);
    assert_eq!(server.wait_for_job(&job)["state"], "SUCCEEDED");
    let lines = |arguments: &[&str]| {
        let listed = server.saggar_ok(&[&["output", "ls", &job], arguments].concat());
        listed.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<String>>()
    };
    let tree = lines(&[]);
    let names: Vec<&str> = tree.iter().map(|line| line.split("  ").find(|word| !word.is_empty()).unwrap()).collect();
    assert_eq!(names, ["PATH", "notes/", "may/", "diary.txt"], "{tree:?}");
    assert!(tree[3].starts_with("    diary.txt "), "a file is below its folders: {tree:?}");
    assert_eq!(lines(&["/notes", "-q"]), ["notes/may/diary.txt"]);
    assert_eq!(lines(&["notes/may/", "-q"]), ["notes/may/diary.txt"]);
    let refused = server.saggar(&["output", "ls", &job, "/none"]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{errors}");
    assert!(errors.contains(&format!("job {job} wrote nothing below /none")), "{errors}");
}

#[test]
fn a_time_limit_is_renewed_up_to_its_maximum_count() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(1_000_000)
        .with_field("max_runtime_seconds", 1)
        .with_field("auto_extend", 2)
        .submit(&server);
    let late = server.wait_for_job(&job);
    assert_eq!(late["state"], "TIMED_OUT");
    assert!(late["wall_seconds"].as_f64() >= Some(3.0), "{late}");
    let log = server.saggar_ok(&["logs", &job]);
    assert_eq!(log.matches("used up; extension").count(), 2, "{log}");
}

#[test]
fn a_restart_changes_only_the_overridden_parameters() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let first = SteadyJob::with_steps(10).with_field("message", "the first").submit(&server);
    server.wait_for_job(&first);
    let second = server.saggar_ok(&["restart", &first, "--", "--steps", "12"]);
    let second = second.trim();
    assert_eq!(second, "steady-2", "FH-18: jobs of a project are numbered");
    server.wait_for_job(second);
    let diff: Value = serde_json::from_str(&server.saggar_ok(&["--json", "diff", &first, second])).unwrap();
    assert_eq!(diff, json!({ "parameters.steps": [10, 12] }));
    let compared = server.saggar_ok(&["compare", &first, second]);
    assert!(compared.lines().next().unwrap().contains("steps"), "{compared}");
    assert_eq!(server.saggar(&["restart", &first, "--set", "sed=1"]).status.code(), Some(7));
    assert_eq!(server.saggar(&["restart", "absent-1"]).status.code(), Some(3));
    // AZ-17: a job's specification can be submitted again unchanged.
    let spec = server.job(second)["spec"].clone();
    let third = server.post("/api/v1/jobs", &spec);
    assert_eq!(third["spec"], spec);
}

#[test]
fn a_secret_reaches_its_plugin_and_nothing_else() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let value = "a \"quoted\" value 4711";
    let answer = server.request("PUT", "/api/v1/secrets/github-token", HttpPayload::Json(&json!({ "value": value })));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let granted = SteadyJob::with_steps(3)
        .with_field("secrets", json!(["github-token"]))
        .with_parameter("secret", "github-token");
    let job = granted.submit(&server);
    assert_eq!(server.wait_for_job(&job)["state"], "SUCCEEDED");
    let log = server.saggar_ok(&["logs", &job]);
    assert!(log.contains("the secret is [secret]"), "{log}");
    let without = SteadyJob::with_steps(3).with_parameter("secret", "github-token").submit(&server);
    let refused = server.wait_for_job(&without);
    assert!(refused["message"].as_str().unwrap().contains("not granted"), "{refused}");
    let outputs = [
        server.saggar_ok(&["--json", "status", &job]),
        server.saggar_ok(&["--json", "secret", "ls"]),
        server.request("GET", "/metrics", HttpPayload::Nothing).text,
        std::fs::read_to_string(home.path().join("server.log")).unwrap(),
    ];
    for text in outputs {
        assert!(!text.contains("4711"), "{text}");
    }
    let absent = SteadyJob::with_steps(3).with_field("secrets", json!(["absent"])).post(&server);
    assert_eq!(absent.status, 404, "{}", absent.text);
    let refused = absent.json();
    assert!(refused["error"].as_str().unwrap().contains("stored: github-token"), "{refused}");
    // A secret that is removed while the job waits is detected when it starts.
    let late = SteadyJob::with_steps(3).with_field("secrets", json!(["github-token"])).spec(&server);
    let busy = SteadyJob::with_steps(1_000_000).submit(&server);
    let late = server.post("/api/v1/jobs", &late)["name"].as_str().unwrap().to_owned();
    assert_eq!(server.request("DELETE", "/api/v1/secrets/github-token", HttpPayload::Nothing).status, 200);
    server.post(&format!("/api/v1/jobs/{busy}/stop"), &Value::Null);
    assert_eq!(server.wait_for_job(&late)["reason"], "NO_SECRET");
}

#[test]
fn a_schedule_submits_jobs_and_skips_overlapping_ones() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    for name in ["digits", "letters"] {
        server.saggar_ok(&["data", "push", "examples/digits", "--name", name]);
    }
    let of = |dataset: &str| {
        let data = json!([{ "dataset": dataset, "mount": "/data" }]);
        SteadyJob::with_steps(1_000_000).with_field("data", data).spec(&server)
    };
    let set_to = |name: &str, cron: &str, spec: &Value| {
        server.request(
            "POST",
            "/api/v1/schedules",
            HttpPayload::Json(&json!({ "name": name, "cron": cron, "spec": spec })),
        )
    };
    let set = |name: &str, cron: &str| set_to(name, cron, &of("digits"));
    for wrong in ["* * *", "61 * * * *", "* * * * * *", "never", "0 0 31 2 *"] {
        let answer = set("wrong", wrong);
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.text);
    }
    let answer = set("often", "* * * * *");
    assert_eq!(answer.status, 201, "{}", answer.text);
    let next = answer.json()["next_ms"].as_u64().unwrap();
    assert_eq!(next % 60_000, 0);
    // Its input is gone at its scheduled time: the run is skipped, and not retried every second.
    assert_eq!(set_to("gone", "* * * * *", &of("letters")).status, 201);
    server.saggar_ok(&["data", "rm", "letters/1", "-y"]);
    let job = server.wait_for("the scheduled job", |server| {
        let jobs = server.get("/api/v1/jobs")["jobs"].clone();
        jobs[0].is_object().then(|| jobs[0].clone())
    });
    assert_eq!(job["spec"]["data"][0]["version"], 1, "what was newest then, for all of its attempts");
    let late_ms = job["created_ms"].as_u64().unwrap() as i64 - next as i64;
    println!("it came {late_ms} ms after its time");
    // The limit for an idle machine is one second.
    assert!((0..2_000).contains(&late_ms), "it came {late_ms} ms after its time");
    let listed = server.get("/api/v1/schedules");
    let often = listed["schedules"].as_array().unwrap().iter().find(|one| one["name"] == "often").unwrap();
    assert_eq!((&often["last_job"], &often["spec"]["data"][0]["version"]), (&job["name"], &Value::Null));
    server.wait_for_log("skipped: the job cannot be submitted");
    // The next scheduled time comes while that job runs.
    server.wait_for_log("skipped: the previous job is not over");
    assert_eq!(server.get("/api/v1/jobs")["jobs"].as_array().unwrap().len(), 1);
    server.saggar_ok(&["schedule", "rm", "often"]);
    assert_eq!(server.saggar(&["schedule", "rm", "often"]).status.code(), Some(3));
}
