//! Event files, with the real binary and TensorBoard's own reader.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::process::Stdio;

use saggar_tests::{ServerProcess, client_output, lenet};
use serde_json::Value;

/// Returns the runs of a log directory, as TensorBoard reads them.
fn read_runs(directory: &str) -> Value {
    serde_json::from_str(&client_output("tests/clients/observability.txt", "tensorboard_scalars.py", &[directory]))
        .unwrap()
}

/// Checks that TensorBoard has exactly the series of the job.
fn assert_same_series(server: &ServerProcess, runs: &Value, job: &str) {
    let series = server.get(&format!("/api/v1/jobs/{job}/metrics?times=1"))["series"].clone();
    let series = series.as_array().unwrap();
    let tags = runs[job].as_object().unwrap_or_else(|| panic!("{runs}"));
    assert_eq!(tags.len(), series.len());
    assert!(series.len() > 3);
    for one in series {
        let name = one["name"].as_str().unwrap();
        let expected: Vec<(u64, f32, f64)> = one["points"]
            .as_array()
            .unwrap()
            .iter()
            .map(|point| {
                let seconds = point[2].as_u64().unwrap() as f64 / 1000.0;
                (point[0].as_u64().unwrap(), point[1].as_f64().unwrap() as f32, seconds)
            })
            .collect();
        let mut read: Vec<(u64, f32, f64)> = tags[name]
            .as_array()
            .unwrap_or_else(|| panic!("{name}"))
            .iter()
            .map(|point| (point[0].as_u64().unwrap(), point[1].as_f64().unwrap() as f32, point[2].as_f64().unwrap()))
            .collect();
        read.sort_by_key(|point| point.0);
        assert_eq!(read, expected, "{name}");
    }
}

#[test]
fn tensorboard_reads_the_series_of_finished_and_running_jobs() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let logs = home.path().join("runs");
    let logs = logs.to_str().unwrap();
    let plugin = lenet();
    let plugin = plugin.to_str().unwrap();
    let run = ["run", plugin, "--data", "digits", "--project", "digits"];
    let submitted = server.saggar_ok(&[&run[..], &["--json", "--", "epochs=6"]].concat());
    assert!(submitted.contains("digits-1"), "{submitted}");
    let mut follow = server.command(&["metrics", "digits-1", "--tensorboard", logs, "--follow"]);
    let mut follow = follow.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // Readable while it grows.
    server.wait_for("values of the running job", |_| {
        assert!(follow.try_wait().unwrap().is_none_or(|status| status.success()));
        let runs = std::fs::read_dir(logs).is_ok().then(|| read_runs(logs))?;
        runs["digits-1"]["loss"].as_array().filter(|points| points.len() > 1).map(|_| ())
    });
    assert_eq!(server.wait_for_job("digits-1")["state"], "SUCCEEDED");
    let ended = follow.wait_with_output().unwrap();
    assert!(ended.status.success());
    let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(printed.contains(" points in ") && printed.contains("digits-1/events.out.tfevents."), "{printed}");
    assert_same_series(&server, &read_runs(logs), "digits-1");
    server.saggar_ok(&[&run[..], &["--wait", "--", "epochs=1"]].concat());
    server.saggar_ok(&["metrics", "digits-2", "--tensorboard", logs]);
    // Exporting again replaces the values.
    for job in ["digits-1", "digits-2"] {
        let exported: Value =
            serde_json::from_str(&server.saggar_ok(&["metrics", job, "--tensorboard", logs, "--json"])).unwrap();
        assert!(exported["points"].as_u64() > Some(0), "{exported}");
    }
    let runs = read_runs(logs);
    assert_same_series(&server, &runs, "digits-1");
    assert_same_series(&server, &runs, "digits-2");
    let only = home.path().join("only");
    server.saggar_ok(&["metrics", "digits-2", "--series", "loss", "--tensorboard", only.to_str().unwrap()]);
    assert_eq!(read_runs(only.to_str().unwrap())["digits-2"].as_object().unwrap().keys().collect::<Vec<_>>(), ["loss"]);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    server.saggar_ok(&[
        "run",
        lenet().to_str().unwrap(),
        "--data",
        "digits",
        "--project",
        "digits",
        "--wait",
        "--",
        "epochs=1",
    ]);
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = server.saggar(&["metrics", "digits-1", "--tensorboard", file.to_str().unwrap()]);
    let problem = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && problem.contains(file.to_str().unwrap()), "{problem}");
    let missing = server.saggar(&["metrics", "digits-9", "--tensorboard", home.path().join("runs").to_str().unwrap()]);
    assert!(!missing.status.success());
    assert!(!home.path().join("runs").exists());
}
