//! Usage of jobs, stored bytes, and how storage is freed.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob};
use serde_json::{Value, json};

/// Returns the bytes of all files below a directory.
fn directory_bytes(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => directory_bytes(&entry.path()),
        _ => entry.metadata().map_or(0, |data| data.len()),
    };
    entries.flatten().map(size).sum()
}

/// Returns the value of a series in `/metrics`, summed over its other labels.
fn metric(server: &ServerProcess, family: &str, job: &str) -> f64 {
    let text = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    let label = format!("job=\"{job}\"");
    let lines = text.lines().filter(|line| line.starts_with(family) && line.contains(&label));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[test]
fn usage_of_attempts_adds_up_to_the_prometheus_counters() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let job = SteadyJob::with_steps(2_000).with_parameter("work", 2).submit(&server);
    server.wait_for_step(&job, 50);
    server.saggar_ok(&["preempt", &job]);
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["attempts"].as_array().unwrap().len(), 2, "{ended}");
    for (field, family) in
        [("gpu_seconds", "saggar_job_gpu_seconds_total{"), ("wall_seconds", "saggar_job_wall_seconds_total{")]
    {
        let attempts = ended["attempts"].as_array().unwrap();
        let sum: f64 = attempts.iter().map(|attempt| attempt[field].as_f64().unwrap()).sum();
        let counted = metric(&server, family, &job);
        assert!(sum > 0.0 && (sum - counted).abs() <= 0.01 * sum, "{field}: attempts {sum}, counter {counted}");
        assert!((ended[field].as_f64().unwrap() - sum).abs() < 1e-6);
    }
    // An attempt's seconds are those between its start and its end.
    for attempt in ended["attempts"].as_array().unwrap() {
        let between = (attempt["ended_ms"].as_f64().unwrap() - attempt["started_ms"].as_f64().unwrap()) / 1000.0;
        let wall = attempt["wall_seconds"].as_f64().unwrap();
        assert!(wall <= between + 0.002 && between - wall < 0.5, "{wall} s of {between} s: {attempt}");
    }
    // AZ-03: all of its time is accounted for.
    let time = ended["time"].as_object().unwrap();
    let parts = ["compute", "data", "all_reduce", "checkpoint", "other"];
    let seconds = parts.map(|part| time[&format!("{part}_seconds")].as_f64().unwrap());
    let (sum, wall) = (seconds.iter().sum::<f64>(), ended["wall_seconds"].as_f64().unwrap());
    assert!((sum - wall).abs() <= 0.01 * wall && seconds[0] > 0.0 && seconds[3] > 0.0, "{wall} s: {time:?}");
    assert!(server.saggar_ok(&["status", &job]).contains("compute "), "the summary splits it too");
    // The CPU has no timer for its computations, so its seconds are marked as estimated everywhere.
    assert!(ended["gpu_seconds_estimated"] == true && ended["attempts"][0]["gpu_seconds_estimated"] == true, "{ended}");
    for arguments in [vec!["status", &job], vec!["ps", "-a"], vec!["compare", &job, &job]] {
        let text = server.saggar_ok(&arguments);
        assert!(text.contains(" estimated"), "{arguments:?}: {text}");
    }
    let doctor = String::from_utf8(server.saggar(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("its seconds are estimated"), "{doctor}");
    let cost: Value = serde_json::from_str(&server.saggar_ok(&["--json", "cost", &job, "--rate", "3600/h"])).unwrap();
    assert!((cost["cost"].as_f64().unwrap() - ended["wall_seconds"].as_f64().unwrap()).abs() < 1e-6, "{cost}");
    let quota = server.get("/api/v1/quota");
    assert_eq!(quota["projects"][0]["gpu_seconds"], ended["gpu_seconds"]);
    assert_eq!(server.saggar(&["cost", &job, "--rate", "3600"]).status.code(), Some(2));
}

#[test]
fn preemptible_seconds_are_priced_separately() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let [dear, cheap] =
        [false, true].map(|preemptible| SteadyJob::with_steps(50).with_field("preemptible", preemptible));
    let [dear, cheap] = [dear, cheap].map(|job| job.submit(&server));
    let seconds = |job: &String| server.wait_for_job(job)["wall_seconds"].as_f64().unwrap();
    let [dear_seconds, cheap_seconds] = [&dear, &cheap].map(seconds);
    let cost = |rates: &[&str], jobs: &[&String]| {
        let mut arguments = vec!["--json", "cost"];
        arguments.extend(jobs.iter().map(|job| job.as_str()));
        let answer = server.saggar_ok(&[&arguments[..], rates].concat());
        serde_json::from_str::<Value>(&answer).unwrap()["cost"].as_f64().unwrap()
    };
    // One dollar per second, and a quarter of that.
    let rates = ["--rate", "3600/h", "--preemptible-rate", "900/h"];
    for (rates, jobs, expected) in [
        (&rates[..], &[&dear][..], dear_seconds),
        (&rates, &[&cheap], cheap_seconds / 4.0),
        (&rates, &[&dear, &cheap], dear_seconds + cheap_seconds / 4.0),
        (&rates[..2], &[&dear, &cheap], dear_seconds + cheap_seconds),
    ] {
        let found = cost(rates, jobs);
        assert!((found - expected).abs() < 1e-6 && expected > 0.0, "{rates:?} {jobs:?}: {found}, not {expected}");
    }
}

#[test]
fn removing_a_job_frees_its_disk_space() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let write =
        |server: &ServerProcess| SteadyJob::with_steps(10).with_parameter("write", "big.bin=300000").submit(server);
    let other_job = write(&server);
    server.wait_for_job(&other_job);
    let before = directory_bytes(&home.path().join("jobs")) + directory_bytes(&home.path().join("objects/checkpoints"));
    let job = write(&server);
    let id = server.wait_for_job(&job)["id"].as_str().unwrap().to_owned();
    let stored = |kind: &str| {
        let quota = server.get("/api/v1/quota");
        let row = quota["storage"].as_array().unwrap().iter().find(|row| row["kind"] == kind).unwrap().clone();
        row["bytes"].as_u64().unwrap()
    };
    assert_eq!(stored("outputs"), 600_000);
    assert!(stored("checkpoints") > 0 && stored("logs") > 0);
    assert_eq!(server.saggar(&["rm", &job]).status.code(), Some(2), "a script must agree");
    let removed: Value = serde_json::from_str(&server.saggar_ok(&["--json", "rm", &job, "--yes"])).unwrap();
    let after = directory_bytes(&home.path().join("jobs")) + directory_bytes(&home.path().join("objects/checkpoints"));
    assert!(removed[0]["freed_bytes"].as_u64() >= Some(300_000), "{removed}");
    assert_eq!(after, before, "what it took is free");
    assert!(!home.path().join("jobs").join(&id).exists());
    assert_eq!(server.saggar(&["status", &job]).status.code(), Some(3));
    assert_eq!(stored("outputs"), 300_000);
    // Its number is not reused.
    let next = write(&server);
    assert_eq!(next, "steady-3");
    server.wait_for_job(&next);
}

#[test]
fn a_storage_sweep_previews_removals_and_keeps_what_is_referenced() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let jobs = [0, 1, 2].map(|_| SteadyJob::with_steps(3).with_field("experiment", "lr").submit(&server));
    let failed = SteadyJob::with_steps(3).with_parameter("fail_at", 1).with_field("project", "other").submit(&server);
    jobs.iter().chain([&failed]).for_each(|job| drop(server.wait_for_job(job)));
    let names = |text: &str| -> Vec<String> {
        let answer: Value = serde_json::from_str(text).unwrap();
        answer["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect()
    };
    let would = server.saggar_ok(&["--json", "gc", "--keep-last", "1", "--dry-run"]);
    assert_eq!(names(&would), [jobs[1].as_str(), &jobs[0]]);
    assert_eq!(server.get("/api/v1/jobs")["jobs"].as_array().unwrap().len(), 4, "nothing is gone yet");
    assert!(names(&server.saggar_ok(&["--json", "gc", "--failed-older-than", "7d", "--dry-run"])).is_empty());
    let old = server.post("/api/v1/jobs/gc", &json!({ "failed_older_than_seconds": 0, "dry_run": false }));
    assert_eq!(old["jobs"][0]["name"], failed);
    assert_eq!(names(&server.saggar_ok(&["--json", "gc", "--keep-last", "1", "--yes"])), [jobs[1].as_str(), &jobs[0]]);
    // AZ-26: a whole experiment is removed at once.
    let asked = server.saggar(&["--json", "rm", "--experiment", "lr"]);
    assert_eq!((asked.status.code(), asked.stdout), (Some(2), Vec::new()), "what is asked about is no data");
    assert!(String::from_utf8_lossy(&asked.stderr).contains(&jobs[2]), "it shows what would go");
    server.saggar_ok(&["rm", "--experiment", "lr", "--yes"]);
    assert_eq!(server.get("/api/v1/jobs")["jobs"], json!([]));
    assert_eq!(
        directory_bytes(&home.path().join("jobs")) + directory_bytes(&home.path().join("objects/checkpoints")),
        0
    );
    let wrong = server.request("POST", "/api/v1/jobs/gc", HttpPayload::Json(&json!({ "dry_run": false })));
    assert_eq!(wrong.status, 400, "a sweep of everything must be said: {}", wrong.text);
}

#[test]
fn a_write_past_the_storage_quota_fails_and_keeps_the_last_checkpoint() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--storage-quota", "2MiB"]);
    let job = SteadyJob::with_steps(20).with_parameter("write", "huge.bin=3000000").submit(&server);
    let failed = server.wait_for_job(&job);
    assert_eq!(failed["state"], "FAILED", "{failed}");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("quota-exceeded") && message.contains("2097152"), "it tells the limit: {message}");
    let checkpoints = server.get(&format!("/api/v1/jobs/{job}/checkpoints"));
    assert_eq!(checkpoints["checkpoints"][0]["step"], 20, "{checkpoints}");
    assert_eq!(server.get(&format!("/api/v1/jobs/{job}/output"))["files"], json!([]));
    let quota = server.get("/api/v1/quota");
    assert_eq!(quota["storage_quota_bytes"], 2 << 20);
}

/// Returns a directory on another file system, if there is one, so that nothing can be moved there atomically.
fn directory_on_other_filesystem() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[test]
fn state_subdirectories_may_be_links_to_other_filesystems() {
    let (home, disk) = (tempfile::tempdir().unwrap(), directory_on_other_filesystem());
    std::fs::create_dir(home.path().join("objects")).unwrap();
    for place in ["datasets", "jobs", "models", "uploads", "cache", "checkpoints"] {
        let (link, target) = match place {
            "checkpoints" => ("objects/checkpoints", disk.path().join(place)),
            place => (place, disk.path().join(place)),
        };
        std::fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, home.path().join(link)).unwrap();
    }
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let at = |place: &str| directory_bytes(&disk.path().join(place));
    for place in ["datasets", "jobs", "models", "cache", "checkpoints"] {
        assert!(at(place) > 0, "{place} holds what was written");
    }
    let stored = || {
        let quota = server.get("/api/v1/quota");
        let kinds = quota["storage"].as_array().unwrap().clone();
        move |kind: &str| kinds.iter().find(|it| it["kind"] == kind).unwrap()["bytes"].as_u64().unwrap()
    };
    let counted = stored();
    assert_eq!(counted("datasets"), at("datasets") + at("uploads"));
    assert_eq!(counted("checkpoints"), at("checkpoints"));
    assert_eq!(counted("models"), at("models"));
    assert_eq!(counted("outputs") + counted("logs"), at("jobs"));

    // Removal works there too, and links stay links.
    let job = server.get("/api/v1/jobs")["jobs"][0]["name"].as_str().unwrap().to_owned();
    server.saggar_ok(&["rm", &job, "-y"]);
    assert_eq!((at("jobs"), at("checkpoints")), (0, 0));
    assert_eq!(stored()("outputs") + stored()("checkpoints"), 0);
    server.saggar_ok(&["data", "rm", "digits/1", "-y"]);
    assert_eq!(stored()("datasets"), at("datasets") + at("uploads"));
    for link in ["datasets", "jobs", "objects/checkpoints"] {
        assert!(home.path().join(link).is_symlink(), "{link}");
    }
    server.kill_and_wait();
    let server = ServerProcess::start(home.path());
    server.wait_for_version("digits", 1);
    let doctor = server.saggar(&["doctor", "--json", "--home", home.path().to_str().unwrap()]);
    let findings: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let place = findings.as_array().unwrap().iter().find(|it| it["name"] == "state/datasets").unwrap();
    assert!(place["what"].as_str().unwrap().contains(disk.path().to_str().unwrap()), "{place}");
    server.kill_and_wait();

    // A missing disk is reported, and nothing is created in its place.
    let gone = disk.path().join("jobs");
    std::fs::rename(&gone, disk.path().join("jobs.unmounted")).unwrap();
    let refused = std::process::Command::new(saggar_tests::binary())
        .args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home"])
        .arg(home.path())
        .output()
        .unwrap();
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && message.contains("bring back the disk"), "{message}");
    assert!(!gone.exists());
}
