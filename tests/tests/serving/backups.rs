//! Backups of a server's state directory, and the check before an upgrade.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, binary, guest, lenet};
use serde_json::{Value, json};

fn local(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).env_remove("SAGGAR_HOME").output().unwrap()
}

fn local_ok(arguments: &[&str]) -> String {
    let output = local(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the size, the time of change and the content of every file below a directory.
fn snapshot(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => drop(found.insert(path.display().to_string(), fs::read(&path).unwrap())),
            }
        }
    }
    found
}

#[test]
fn a_backup_of_a_training_server_continues_its_jobs_and_serves_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (home, restored) = (dir.path().join("home"), dir.path().join("restored"));
    fs::create_dir(&home).unwrap();
    let server = ServerProcess::start(&home);
    server.push_digits();
    let plugin = lenet();
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--project", "p", "--wait"];
    server.saggar_ok(&[&run[..], &["--", "epochs=1", "model=digits"]].concat());
    server.wait_for_version("digits", 1);
    let job = SteadyJob::with_steps(4000).with_field("checkpoint_every", json!({"steps": 20})).submit(&server);
    server.wait_for_step(&job, 60);

    // The server trains and answers while several backups are made.
    let predict = |server: &ServerProcess| {
        server.saggar_ok(&["predict", "digits", "-i", "image=@examples/digits/held-out/3.png", "--json"])
    };
    let answer = predict(&server);
    let file = |n: u32| dir.path().join(format!("backup-{n}.tar"));
    for n in 0..3 {
        let path = file(n);
        local_ok(&["backup", path.to_str().unwrap(), "--home", home.to_str().unwrap()]);
        assert_eq!(predict(&server), answer);
    }
    let before = server.job(&job);
    assert_eq!(before["state"], "RUNNING", "it trains throughout: {before}");
    let refused = local(&["backup", file(0).to_str().unwrap(), "--home", home.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    // The original server is gone for good.
    server.kill_and_wait();

    let (path, target) = (file(2), restored.to_str().unwrap().to_owned());
    local_ok(&["restore", path.to_str().unwrap(), "--home", &target]);
    let again = local(&["restore", path.to_str().unwrap(), "--home", &target]);
    assert_eq!(again.status.code(), Some(5), "nothing is replaced: {again:?}");
    let doctor = local_ok(&["doctor", "--device", "cpu", "--home", &target, "--json"]);
    let state: Value = serde_json::from_str(&doctor).unwrap();
    assert!(state.to_string().contains("state"), "{doctor}");
    let checked = local(&["upgrade-check", "--home", &target]);
    assert!(checked.status.success(), "{checked:?}");

    let server = ServerProcess::start(&restored);
    server.wait_for_version("digits", 1);
    assert_eq!(predict(&server), answer);
    let finished = server.wait_for_job(&job);
    assert_eq!(finished["state"], "SUCCEEDED", "{finished}");
    let attempts = server.get(&format!("/api/v1/jobs/{job}/attempts"));
    let attempts = attempts["attempts"].as_array().unwrap();
    assert!(attempts.len() >= 2, "{attempts:?}");
    let log = server.saggar_ok(&["logs", &job]);
    assert!(log.contains("resumed"), "it continues from a checkpoint: {log}");
    // New versions and datasets get new numbers.
    let pushed = server.saggar_ok(&["models", "push", "digits", guest("echo").to_str().unwrap()]);
    assert_eq!(pushed.trim(), "digits@2");
    let verified = server.get("/api/v1/models/digits/versions/1?verify=true");
    assert_eq!(verified["intact"], true, "{verified}");
}

#[test]
fn every_backup_of_a_busy_server_is_restorable() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    let server = ServerProcess::start_with(&home, &["--jobs", "2"]);
    // Every step saves a checkpoint and prunes one, while versions and outputs appear.
    let fields =
        |job: SteadyJob| job.with_field("checkpoint_every", json!({"steps": 1})).with_field("checkpoint_keep_last", 1);
    let jobs: Vec<String> = (0..2).map(|_| fields(SteadyJob::with_steps(100_000)).submit(&server)).collect();
    jobs.iter().for_each(|job| drop(server.wait_for_step(job, 5)));
    for n in 0..6 {
        let (file, target) = (dir.path().join(format!("{n}.tar")), dir.path().join(format!("restored-{n}")));
        let config = format!(r#"{{"size": {}}}"#, n + 1);
        let path = dir.path().join("c.json");
        fs::write(&path, config).unwrap();
        let push = ["models", "push", "echo", guest("echo").to_str().unwrap(), "--config", path.to_str().unwrap()]
            .map(str::to_owned);
        server.saggar_ok(&push.iter().map(String::as_str).collect::<Vec<_>>());
        local_ok(&["backup", file.to_str().unwrap(), "--home", home.to_str().unwrap()]);
        local_ok(&["restore", file.to_str().unwrap(), "--home", target.to_str().unwrap()]);
        for job in jobs.iter().map(|job| server.job(job)["id"].as_str().unwrap().to_owned()) {
            let checkpoints = target.join("objects/checkpoints").join(&job);
            let manifests = fs::read_dir(&checkpoints).unwrap().flatten().map(|entry| entry.path());
            let manifests: Vec<_> = manifests.filter(|path| path.extension().is_some_and(|it| it == "json")).collect();
            assert!(!manifests.is_empty(), "backup {n} has no checkpoint of {job}");
        }
    }
    for job in &jobs {
        server.saggar_ok(&["stop", job]);
        server.wait_for_job(job);
    }
    server.kill_and_wait();
    // The checkpoints of the last one are intact.
    let server = ServerProcess::start(&dir.path().join("restored-5"));
    for job in &jobs {
        let printed = server.saggar_ok(&["output", "checkpoints", job, "--verify", "--json"]);
        assert!(!printed.contains("damaged") && printed.contains("step"), "{printed}");
    }
    let versions = server.get("/api/v1/models/echo")["versions"].as_array().unwrap().len();
    assert_eq!(versions, 6);
}

#[test]
fn damaged_backups_are_refused_and_nothing_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    let server = ServerProcess::start(&home);
    server.saggar_ok(&["models", "push", "echo", guest("echo").to_str().unwrap()]);
    let (file, bad) = (dir.path().join("b.tar"), dir.path().join("bad.tar"));
    local_ok(&["backup", file.to_str().unwrap(), "--home", home.to_str().unwrap()]);
    let whole = fs::read(&file).unwrap();
    let mut changed = whole.clone();
    let at = changed.windows(4).rposition(|window| window == b"\0asm").unwrap();
    changed[at + 100] ^= 1;
    for (bytes, says) in [
        (&whole[..whole.len() / 2], "is cut off"),
        (&changed[..], "it was changed or damaged"),
        (b"no backup", "is not a backup, or is cut off"),
    ] {
        fs::write(&bad, bytes).unwrap();
        let target = dir.path().join("restored");
        let refused = local(&["restore", bad.to_str().unwrap(), "--home", target.to_str().unwrap()]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(7) && error.contains(says), "{error}");
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }
    let nowhere = local(&["backup", bad.to_str().unwrap(), "--home", dir.path().join("none").to_str().unwrap()]);
    assert_eq!(nowhere.status.code(), Some(3), "{nowhere:?}");
}

#[test]
fn the_upgrade_check_changes_nothing_and_names_what_is_too_new() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(dir.path());
    server.saggar_ok(&["models", "push", "echo", guest("echo").to_str().unwrap()]);
    let answer = server.request("POST", "/models/echo/predict", HttpPayload::Json(&json!({"x": [1, 2, 3, 4]})));
    assert_eq!(answer.status, 200, "{}", answer.text);
    server.kill_and_wait();
    let home = dir.path().to_str().unwrap();
    let before = snapshot(dir.path());
    let listed: Value = serde_json::from_str(&local_ok(&["upgrade-check", "--home", home, "--json"])).unwrap();
    let part = |name: &str| listed.as_array().unwrap().iter().find(|it| it["part"] == name).unwrap().clone();
    assert_eq!(part("models")["found"], json!([[1, 1]]));
    assert_eq!((&part("job records")["verdict"], &part("models")["verdict"]), (&json!("readable"), &json!("readable")));
    assert_eq!(snapshot(dir.path()), before, "nothing was changed");
    let manifest = dir.path().join("models/echo/1/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"format\": 1", "\"format\": 99")).unwrap();
    let refused = local(&["upgrade-check", "--home", home]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(5) && error.contains("a newer version wrote its models"), "{error}");
}
