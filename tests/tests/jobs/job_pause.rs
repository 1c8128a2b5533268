//! Jobs that pause at a step boundary and continue later.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, kill_9, lenet, worker_processes};
use serde_json::{Value, json};

/// Enough for some seconds of training.
const EPOCHS: u32 = 30;

fn submit(server: &ServerProcess, model: &str) -> String {
    let (plugin, model, epochs) = (lenet(), format!("model={model}"), format!("epochs={EPOCHS}"));
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "3"];
    let every = ["--checkpoint-every", "50steps", "--", &epochs, &model];
    server.saggar_ok(&[&run[..], &every].concat()).trim().to_owned()
}

fn wait_until_paused(server: &ServerProcess, job: &str) -> Value {
    server.wait_for("the pause", |server| {
        let found = server.job(job);
        assert!(!matches!(found["state"].as_str(), Some("SUCCEEDED" | "FAILED" | "CANCELLED")), "{found}");
        found["paused"].as_bool().unwrap().then_some(found)
    })
}

fn boundaries(job: &Value) -> Vec<(u64, u64)> {
    let attempts = job["attempts"].as_array().unwrap().iter();
    attempts.map(|it| (it["first_step"].as_u64().unwrap(), it["last_step"].as_u64().unwrap())).collect()
}

#[test]
fn a_paused_training_ends_with_the_weights_of_an_undisturbed_one_and_repeats_no_step() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    let calm = server.wait_for_job(&submit(&server, "calm"));
    let steps = calm["steps_target"].as_u64().unwrap();

    let job = submit(&server, "paused");
    let path = format!("/api/v1/jobs/{job}");
    let first = steps / 4;
    server.saggar_ok(&["pause", &job, "--at-step", &first.to_string()]);
    let paused = wait_until_paused(&server, &job);
    let at = paused["step"].as_u64().unwrap();
    assert!(at >= first && at < first + 10, "{at} is the first boundary from {first} on");
    assert_eq!((&paused["state"], &paused["reason"]), (&json!("QUEUED"), &json!("PAUSED")), "{paused}");
    assert!(paused["message"].as_str().unwrap().contains(&format!("saggar resume {job}")), "{paused}");
    assert_eq!(paused["position"], Value::Null, "it is not in the queue");
    assert_eq!(server.checkpoints(&job)[0].0, at);

    // It holds no slot: the only one of this server runs another job.
    let other = SteadyJob::with_steps(5).submit(&server);
    assert_eq!(server.wait_for_job(&other)["state"], "SUCCEEDED");

    // An earlier step leaves it paused; a later one is where it pauses next.
    let again = server.post(&format!("{path}/pause"), &json!({"at_step": at}));
    assert_eq!(again["paused"], true);
    let second = steps / 2;
    server.saggar_ok(&["pause", &job, "--at-step", &second.to_string()]);
    let next = wait_until_paused(&server, &job)["step"].as_u64().unwrap();
    assert!(next >= second && next < second + 10, "{next}");

    server.saggar_ok(&["resume", &job]);
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["wasted_steps"]), (&json!("SUCCEEDED"), &json!(0)), "{ended}");
    assert_eq!(boundaries(&ended), [(0, at), (at, next), (next, steps)]);
    assert_eq!(ended["attempts"][0]["state"], "PAUSED");
    assert_eq!(server.weights_digest("paused"), server.weights_digest("calm"));
}

#[test]
fn a_pause_survives_kills_of_the_worker_and_the_server() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    let calm = server.wait_for_job(&submit(&server, "calm"));
    let steps = calm["steps_target"].as_u64().unwrap();

    let job = submit(&server, "shaken");
    let at = steps / 2;
    server.saggar_ok(&["pause", &job, "--at-step", &at.to_string()]);
    server.wait_for_step(&job, steps / 8);
    server.wait_for("the worker", |server| match worker_processes(server.pid())[..] {
        [worker] => kill_9(worker).then_some(()),
        _ => None,
    });
    // On a fast machine it can be paused already.
    server.wait_for("a quarter of the steps", |server| {
        (server.job(&job)["step"].as_u64() >= Some(steps / 4)).then_some(())
    });
    server.kill_and_wait();

    let server = ServerProcess::start(home.path());
    let step = wait_until_paused(&server, &job)["step"].as_u64().unwrap();
    assert!(step >= at && step < at + 10, "{step}");
    server.kill_and_wait();

    let server = ServerProcess::start(home.path());
    let found = server.job(&job);
    assert_eq!((&found["paused"], &found["step"]), (&json!(true), &json!(step)), "{found}");
    assert!(worker_processes(server.pid()).is_empty());
    server.saggar_ok(&["resume", &job]);
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    assert_eq!(boundaries(&ended).last(), Some(&(step, steps)));
    assert_eq!(server.weights_digest("shaken"), server.weights_digest("calm"));
}

/// Returns the steps at which a series has a point.
fn metric_steps(server: &ServerProcess, job: &str, metric: &str) -> Vec<u64> {
    let points = server.get(&format!("/api/v1/jobs/{job}/metrics?series={metric}"));
    let series = &points["series"][0];
    assert_eq!(series["name"], metric, "{points}");
    series["points"].as_array().unwrap().iter().map(|point| point[0].as_u64().unwrap()).collect()
}

#[test]
fn a_pause_for_a_metric_is_at_its_very_step_and_changes_no_weight() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let calm = server.wait_for_job(&submit(&server, "calm"));
    let steps = calm["steps_target"].as_u64().unwrap();
    let epoch = steps / u64::from(EPOCHS);

    let job = submit(&server, "net");
    // In the middle of the second epoch, at the end of the fourth, and at the end of the training.
    let pauses = [
        ("epoch/loss", epoch + epoch / 2, 2 * epoch),
        ("validation/accuracy", 4 * epoch, 4 * epoch),
        ("validation/loss", steps, steps),
    ];
    let mut ends = vec![];
    for (metric, at, expected) in pauses {
        server.saggar_ok(&["pause", &job, "--at-step", &at.to_string(), "--metric", metric]);
        let paused = server.wait_for("the pause", |server| {
            let found = server.job(&job);
            assert!(!matches!(found["state"].as_str(), Some("SUCCEEDED" | "FAILED" | "CANCELLED")), "{found}");
            (found["paused"] == true && found["step"].as_u64() >= Some(at)).then_some(found)
        });
        assert_eq!(paused["step"], expected, "{metric}: {paused}");
        let reported = metric_steps(&server, &job, metric);
        assert_eq!(reported.last(), Some(&expected), "{metric}");
        assert_eq!(reported.len() as u64, expected / epoch, "{metric} has one value an epoch");
        ends.push(expected);
    }
    server.saggar_ok(&["resume", &job]);
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["wasted_steps"]), (&json!("SUCCEEDED"), &json!(0)), "{ended}");
    let last: Vec<u64> = boundaries(&ended).iter().map(|(_, last)| *last).collect();
    assert_eq!(last[..3], ends, "{ended}");
    for metric in ["epoch/loss", "validation/accuracy"] {
        assert_eq!(metric_steps(&server, &job, metric), metric_steps(&server, calm["name"].as_str().unwrap(), metric));
    }
    assert_eq!(server.weights_digest("net"), server.weights_digest("calm"));
}

#[test]
fn jobs_that_cannot_pause_or_resume_say_so() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(10_000_000).submit(&server);
    let send = |job: &str, verb: &str, body: &Value| {
        let path = format!("/api/v1/jobs/{job}/{verb}");
        let response = server.request("POST", &path, HttpPayload::Json(body));
        (response.status, response.text)
    };
    let (status, text) = send(&job, "resume", &Value::Null);
    assert!(status == 409 && text.contains("saggar restart"), "{status} {text}");
    let (status, text) = send(&job, "pause", &json!({"at_step": -1}));
    assert!(status == 400 && text.contains("at_step"), "{status} {text}");
    let (status, text) = send(&job, "pause", &json!({"at_step": 1, "metric": "n".repeat(300)}));
    assert!(status == 400 && text.contains("255 bytes"), "{status} {text}");
    assert_eq!(send("none-1", "pause", &json!({})).0, 404);
    // A queued job pauses at once.
    let queued = SteadyJob::with_steps(5).submit(&server);
    server.saggar_ok(&["pause", &queued]);
    assert_eq!(server.job(&queued)["paused"], true);
    server.saggar_ok(&["stop", &job, &queued]);
    assert_eq!(server.job(&queued)["state"], "CANCELLED");
    server.wait_for_job(&job);
    let (status, text) = send(&job, "pause", &json!({}));
    assert!(status == 409 && text.contains("CANCELLED"), "{status} {text}");
}
