//! The file system of the state directory: full, read-only, too small for a push. Tests that need no mount are in
//! `faults_disk.rs`.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, binary, unshare_command};
use serde_json::json;

#[test]
fn a_read_only_filesystem_is_refused_with_a_hint() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.wait_for_job(&SteadyJob::with_steps(5).submit(&server));
    drop(server);
    let script = "mount --bind \"$0\" \"$0\"; mount -o remount,ro,bind \"$0\"; exec \"$1\" serve --addr 127.0.0.1:0 \
                  --device cpu --home \"$0\"";
    let Some(mut command) = unshare_command() else { return };
    let output = command.arg(script).arg(home.path()).arg(binary()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Read-only file system") && said.contains(home.path().to_str().unwrap()), "{said}");
    // No data is lost.
    let server = ServerProcess::start(home.path());
    assert_eq!(server.job("steady-1")["state"], "SUCCEEDED");
}

#[test]
fn a_full_disk_fails_only_operations_that_need_space() {
    let home = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=24m tmpfs \"$0\"; exec \"$1\" serve --addr 127.0.0.1:0 --device cpu --home \
                  \"$0\" --jobs 1";
    let logs = tempfile::tempdir().unwrap();
    let Some(mut command) = unshare_command() else { return };
    command.arg(script).arg(home.path()).arg(binary());
    let server = ServerProcess::from_command(command, logs.path());

    // A dataset that cannot fit is refused before anything is sent.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.csv"), "1,2\n".repeat(5_000_000)).unwrap();
    let push = server.saggar(&["data", "push", folder.path().to_str().unwrap(), "--name", "large"]);
    let said = String::from_utf8_lossy(&push.stderr).into_owned();
    assert_eq!(push.status.code(), Some(5), "{said}");
    assert!(said.contains("disk"), "{said}");

    // A job that fills the disk fails with that reason. The next one, which needs little, succeeds. The files that fit leave some
    // megabytes: on a disk without any, the records cannot be written either, and the server tries again until they can.
    let fills = SteadyJob::with_steps(20).with_parameter("write", "a.bin=12000000 b.bin=8000000 c.bin=12000000");
    let full = server.wait_for_job(&fills.submit(&server));
    assert_eq!(full["state"], "FAILED", "{full}");
    assert!(full["message"].as_str().unwrap().contains("No space left on device"), "{full}");
    let name = full["name"].as_str().unwrap();
    assert_eq!(server.request("DELETE", &format!("/api/v1/jobs/{name}"), HttpPayload::Nothing).status, 200);
    let next = server.wait_for_job(&SteadyJob::with_steps(20).submit(&server));
    assert_eq!(next["state"], "SUCCEEDED", "{next}");
}

#[test]
fn a_dataset_past_the_quota_is_refused_before_upload() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--storage-quota", "1MiB"]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("dataset.json"),
        r#"{"format":"csv","file":"x.csv","fields":[{"name":"x","columns":[0,1],"dtype":"uint8"}]}"#,
    )
    .unwrap();
    std::fs::write(folder.path().join("x.csv"), "1,2\n".repeat(500_000)).unwrap();
    let push = server.saggar(&["--json", "data", "push", folder.path().to_str().unwrap(), "--name", "large"]);
    assert_eq!(push.status.code(), Some(5), "{push:?}");
    let error: serde_json::Value = serde_json::from_slice(&push.stderr).unwrap();
    assert_eq!(error["error"]["code"], "quota_exceeded", "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("1048576") && message.contains("--storage-quota"), "limit and setting: {message}");
    assert!(!home.path().join("uploads").read_dir().unwrap().any(|_| true), "nothing was begun");
    std::fs::write(folder.path().join("x.csv"), "1,2\n3,4\n").unwrap();
    server.saggar_ok(&["data", "push", folder.path().to_str().unwrap(), "--name", "small"]);
    // The used bytes are reported too.
    let used = server.get("/api/v1/quota")["storage_bytes"].as_u64().unwrap();
    std::fs::write(folder.path().join("x.csv"), "1,2\n".repeat(500_000)).unwrap();
    let push = server.saggar(&["data", "push", folder.path().to_str().unwrap(), "--name", "large"]);
    let said = String::from_utf8(push.stderr).unwrap();
    assert!(used > 0 && said.contains(&format!("{used} of 1048576 are used")), "{used}: {said}");
    // The stored bytes by kind are also Prometheus metrics.
    let page = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    let value = |series: &str| {
        let line = page.lines().find(|line| line.starts_with(series));
        line.unwrap_or_else(|| panic!("no {series} in {page}")).rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(value("saggar_storage_quota_bytes"), 1048576.0);
    let quota = server.get("/api/v1/quota");
    let datasets = quota["storage"].as_array().unwrap().iter().find(|it| it["kind"] == "datasets").unwrap();
    assert_eq!(value("saggar_storage_bytes{kind=\"datasets\"}"), datasets["bytes"].as_f64().unwrap());
}

#[test]
fn metrics_cover_queues_and_pools() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--jobs", "1"]);
    let long = SteadyJob::with_steps(1_000_000);
    let first = long.submit(&server);
    server.wait_for_step(&first, 1);
    let rest: Vec<String> = (0..3).map(|_| long.submit(&server)).collect();
    let wanted = [
        "saggar_queue_length{queue=\"default\"} 3",
        "saggar_queue_running_jobs{queue=\"default\"} 1",
        "saggar_pool_slots{pool=\"any\"} 1",
        "saggar_pool_slots_used{pool=\"any\"} 1",
    ];
    server.wait_for("the gauges", |server| {
        let page = server.request("GET", "/metrics", HttpPayload::Nothing).text;
        wanted.iter().all(|line| page.lines().any(|it| it == *line)).then_some(())
    });
    for job in rest.iter().chain([&first]) {
        server.post(&format!("/api/v1/jobs/{job}/stop"), &json!({}));
    }
    server.wait_for("empty queues", |server| {
        let page = server.request("GET", "/metrics", HttpPayload::Nothing).text;
        let empty = ["saggar_queue_length{queue=\"default\"} 0", "saggar_pool_slots_used{pool=\"any\"} 0"];
        empty.iter().all(|line| page.lines().any(|it| it == *line)).then_some(())
    });
}

/// Returns the log of a server that is started in `folder` without an explicit state directory, up to the line with its
/// address. Then stops the server.
fn start_in(folder: &Path, user_state: &Path) -> String {
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu"]).current_dir(folder);
    command.env("XDG_STATE_HOME", user_state).env_remove("SAGGAR_HOME").env_remove("SAGGAR_CONFIG");
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    for line in BufReader::new(server.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        said.push_str(&line);
        said.push('\n');
        if line.contains("serving on http") {
            break;
        }
    }
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(said.contains("serving on http"), "{said}");
    said
}

#[test]
fn the_startup_log_names_the_state_directory_and_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let place = dir.path().join(name);
        std::fs::create_dir_all(&place).unwrap();
        place.canonicalize().unwrap()
    };
    let (first, second, user_state) = (place("first"), place("second"), place("user"));
    let home = |folder: &Path| folder.join(".saggar").display().to_string();
    let said = start_in(&first, &user_state);
    assert!(
        said.contains(&format!("state={}", home(&first))) && !said.contains("the state directory is new"),
        "{said}"
    );
    let said = start_in(&second, &user_state);
    assert!(said.contains(&format!("state={}", home(&second))), "{said}");
    assert!(said.contains(&format!("`saggar serve --home {}` uses it again", home(&first))), "{said}");
    // Once the directory exists, it is used.
    assert!(!start_in(&second, &user_state).contains("the state directory is new"));
    let doctor = Command::new(binary())
        .args(["doctor", "--json"])
        .current_dir(&second)
        .env("XDG_STATE_HOME", &user_state)
        .env_remove("SAGGAR_HOME")
        .output()
        .unwrap();
    let findings: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let others = findings.as_array().unwrap().iter().find(|finding| finding["name"] == "state/others").unwrap();
    assert_eq!(others["what"], home(&first));
}
