//! Device loss: served models recover automatically, and a job loses one attempt.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert; figures are shown")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, ServerProcess, binary, lenet, request};
use serde_json::{Value, json};

/// The variable that names the file which triggers a device loss.
const LOSE_DEVICE_VARIABLE: &str = "SAGGAR_TEST_LOSE_DEVICE";
/// The time limit for a wait.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// The tolerance for a deadline of one second on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(15);

/// Starts a server on a device whose adapters are lost when `file` exists.
fn serve(home: &Path, device: &str, file: &Path) -> ServerProcess {
    let mut command = Command::new(binary());
    command
        .args(["serve", "--addr", "127.0.0.1:0", "--device", device, "--home"])
        .arg(home)
        .env(LOSE_DEVICE_VARIABLE, file);
    ServerProcess::from_command(command, home)
}

/// Writes the file that triggers a device loss, atomically.
fn request_device_loss(file: &Path, how: &str) {
    let half = file.with_extension("half");
    std::fs::write(&half, how).unwrap();
    std::fs::rename(&half, file).unwrap();
}

/// Returns a state directory in which version 1 of `digits` waits to be served, or `None` if there is no adapter.
fn home_with_digits() -> Option<tempfile::TempDir> {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    server.has_vulkan().then_some(home)
}

/// Requests a prediction. Returns `false` if the response asks to retry later, which must be the documented error.
fn is_answered(server: &ServerProcess) -> bool {
    let body = json!({ "image": vec![[0; 8]; 8] });
    let answer = server.request("POST", "/models/digits/predict", HttpPayload::Json(&body));
    if answer.status == 200 {
        return true;
    }
    let code = answer.json()["code"].clone();
    assert!(answer.status == 503 && (code == "device_lost" || code == "not_ready"), "{}", answer.text);
    assert_eq!(answer.header("retry-after"), "1");
    false
}

/// Sends requests until the model has recovered from `losses` losses. Returns the longest time of refusals.
fn wait_for_recovery(server: &ServerProcess, losses: u64) -> Duration {
    let (mut refused_since, mut longest) = (None, Duration::ZERO);
    let begun = Instant::now();
    loop {
        let refused = (!is_answered(server)).then(|| refused_since.unwrap_or_else(Instant::now));
        if let (Some(since), None) = (refused_since, refused) {
            longest = longest.max(since.elapsed());
            let up = format!("saggar_model_setups_total{{model=\"digits\",version=\"1\"}} {}", losses + 1);
            if server.request("GET", "/metrics", HttpPayload::Nothing).text.contains(&up) {
                return longest;
            }
        }
        refused_since = refused;
        assert!(begun.elapsed() < WAIT_TIMEOUT, "the model does not come back");
    }
}

/// Trains twice, the second time with a device loss, which must cost one attempt and give the same weights. Returns the
/// second job.
fn train_with_device_loss(server: &ServerProcess, file: &Path, how: &str) -> Value {
    server.push_digits();
    let submit = |model: &str| {
        let (plugin, model) = (lenet(), format!("model={model}"));
        let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "vulkan:0", "--seed", "3"];
        let rest = ["--retry", "3", "--checkpoint-every", "20steps", "--", "epochs=8", "channels=4", &model];
        server.saggar_ok(&[&run[..], &rest].concat()).trim().to_owned()
    };
    let calm = submit("calm");
    assert_eq!(server.wait_for_job(&calm)["state"], "SUCCEEDED");
    let shaken = submit("shaken");
    server.wait_for("a checkpoint", |server| server.saggar_ok(&["logs", &shaken]).contains(" saved (").then_some(()));
    request_device_loss(file, how);
    let ended = server.wait_for_job(&shaken);
    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("SUCCEEDED"), &json!(2)), "{ended}");
    assert!(ended.to_string().contains("DEVICE_LOST"), "{ended}");
    assert_eq!(server.weights_digest("calm"), server.weights_digest("shaken"));
    ended
}

#[test]
fn serving_recovers_from_a_lost_device() {
    let Some(home) = home_with_digits() else { return };
    let file = home.path().join("lose");
    let server = serve(home.path(), "vulkan:0", &file);
    server.wait_for_version("digits", 1);
    for losses in 1..=3 {
        assert!(is_answered(&server));
        request_device_loss(&file, "once");
        println!("refused for {:?} after loss {losses}", wait_for_recovery(&server, losses));
    }
    let metrics = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    assert!(metrics.contains("saggar_device_lost_total{device=\"vulkan:0\"} 3"), "{metrics}");
}

#[test]
fn a_server_that_cannot_reopen_its_device_restarts() {
    let Some(home) = home_with_digits() else { return };
    let file = home.path().join("lose");
    let server = serve(home.path(), "vulkan:0", &file);
    server.wait_for_version("digits", 1);
    request_device_loss(&file, "for good");
    // For a moment no process listens. The address and the process stay the same.
    let (agent, url) = (ureq::Agent::new_with_defaults(), format!("{}/models/digits/predict", server.url()));
    let body: Value = json!({ "image": vec![[0; 8]; 8] });
    let (begun, mut refused) = (Instant::now(), None);
    loop {
        let is_answered =
            request(&agent, "POST", &url, HttpPayload::Json(&body)).is_ok_and(|answer| answer.status == 200);
        match refused {
            Some(since) if is_answered => break println!("refused for {:?}", Instant::elapsed(&since)),
            None if !is_answered => refused = Some(Instant::now()),
            Some(_) | None => std::thread::sleep(Duration::from_millis(10)),
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "it does not come back");
    }
    server.wait_for_log("the server restarts, because");
    assert_eq!(server.get("/api/v1/models/digits")["serving"], 1);
}

#[test]
fn a_lost_device_costs_a_job_one_attempt() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("lose");
    let server = serve(home.path(), "cpu", &file);
    if !server.has_vulkan() {
        return;
    }
    train_with_device_loss(&server, &file, "once");
}

/// Requests a prediction with a deadline of one second from a server that can be ending. Returns its response, if any.
fn ask_for_a_second(server: &ServerProcess) -> Option<(u16, Value)> {
    let agent = ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
    let url = format!("{}/models/digits/predict", server.url());
    let began = Instant::now();
    let post = agent.post(url).header("x-saggar-deadline-ms", "1000");
    let mut answer = post.send_json(json!({ "image": vec![[0; 8]; 8] })).ok()?;
    let body: Value = answer.body_mut().read_json().ok()?;
    assert!(began.elapsed() < LATE_MAX, "answered after {:?}: {body}", began.elapsed());
    Some((answer.status().as_u16(), body))
}

/// If work on the adapter never ends, predictions end at their deadlines, and the watchdog declares the device lost.
/// Only a new process can open it again, so the server restarts itself.
#[test]
fn a_hung_device_is_lost_after_the_watchdog_timeout() {
    let Some(home) = home_with_digits() else { return };
    let file = home.path().join("lose");
    let server = serve(home.path(), "vulkan:0", &file);
    server.wait_for_version("digits", 1);
    let (status, label) = ask_for_a_second(&server).unwrap();
    assert_eq!(status, 200, "{label}");
    request_device_loss(&file, "hang");
    let begun = Instant::now();
    let mut ends = Vec::new();
    while !std::fs::read_to_string(home.path().join("server.log")).unwrap().contains("the server restarts, because") {
        let end = ask_for_a_second(&server);
        // Requests before the work that never ends are answered.
        if ends.is_empty() && end.as_ref().is_some_and(|(status, _)| *status == 200) {
            continue;
        }
        ends.extend(end.map(|(status, body)| (status, body["code"].as_str().unwrap_or("answered").to_owned())));
        assert!(begun.elapsed() < WAIT_TIMEOUT, "it is not given up: {ends:?}");
    }
    assert_eq!(ends.first(), Some(&(504, "deadline".to_owned())), "{ends:?}");
    let known =
        [(504, "deadline"), (408, "deadline_queued"), (429, "queue_full"), (503, "device_lost"), (503, "not_ready")];
    assert!(ends.iter().all(|(status, code)| known.contains(&(*status, code.as_str()))), "{ends:?}");
    let log = std::fs::read_to_string(home.path().join("server.log")).unwrap();
    assert!(log.contains("the device is lost") && log.contains("work on it has not ended within 3 seconds"), "{log}");
    assert!(log.contains("it hung in this process, and only another process can open it again"), "{log}");
    server.wait_for("an answer", |server| {
        ask_for_a_second(server).filter(|(status, _)| *status == 200).map(|(_, after)| {
            assert_eq!(after["label"], label["label"]);
        })
    });
}

#[test]
fn a_hung_device_costs_a_job_one_attempt() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("lose");
    let server = serve(home.path(), "cpu", &file);
    if !server.has_vulkan() {
        return;
    }
    let ended = train_with_device_loss(&server, &file, "hang");
    let attempt = &ended["attempts"][0];
    assert!(attempt["message"].to_string().contains("work on it has not ended within 3 seconds"), "{ended}");
}
