//! The queue: which job runs where, preemption, and why the others wait.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, memory_kib};
use serde_json::{Value, json};

/// More steps than run during any test.
const LONG: u64 = 1_000_000;

/// Starts a server with this project file.
fn start_with_manifest(home: &Path, manifest: &str) -> ServerProcess {
    let file = home.join("saggar.toml");
    std::fs::write(&file, format!("manifest = 1\n[project]\nname = \"steady\"\n{manifest}")).unwrap();
    ServerProcess::start_with(home, &["--config", file.to_str().unwrap()])
}

fn long_job() -> SteadyJob {
    SteadyJob::with_steps(LONG)
}

fn wait_until(server: &ServerProcess, job: &str, state: &str) -> Value {
    server.wait_for(job, |server| Some(server.job(job)).filter(|it| it["state"] == state))
}

/// Two pools of the CPU stand for those of two devices: this test does not depend on the device of a pool.
const TWO_POOLS: &str = "[pool.first]\ndevice = \"cpu\"\nslots = 1\n[pool.second]\ndevice = \"cpu\"\nslots = 1\n";

#[test]
fn jobs_spill_over_to_the_next_pool_in_order() {
    let home = tempfile::tempdir().unwrap();
    let queues = "[queue.spills]\npools = [\"first\", \"second\"]\nspill = true\n\
                  [queue.waits]\npools = [\"first\", \"second\"]\nspill = false\n";
    let server = start_with_manifest(home.path(), &format!("{TWO_POOLS}{queues}"));
    let first = long_job().with_field("queue", "spills").submit(&server);
    assert_eq!(wait_until(&server, &first, "RUNNING")["pool"], "first");
    let waits = long_job().with_field("queue", "waits").submit(&server);
    let second = long_job().with_field("queue", "spills").submit(&server);
    assert_eq!(wait_until(&server, &second, "RUNNING")["pool"], "second");
    let third = long_job().with_field("queue", "spills").submit(&server);
    for job in [&waits, &third] {
        let job = server.job(job);
        assert_eq!(
            (&job["state"], &job["reason"], &job["position"]),
            (&json!("QUEUED"), &json!("WAITING_FOR_SLOT"), &json!(1))
        );
        assert!(job["message"].as_str().unwrap().contains(&first), "{job}");
    }
    let queues = server.get("/api/v1/queues");
    let pool = queues["pools"].as_array().unwrap().iter().find(|pool| pool["name"] == "first").unwrap();
    assert_eq!((&pool["used"], &pool["jobs"]), (&json!(1.0), &json!([first])));
    server.post(&format!("/api/v1/jobs/{first}/stop"), &json!({}));
    assert_eq!(wait_until(&server, &waits, "RUNNING")["pool"], "first");
}

#[test]
fn a_dedicated_job_preempts_only_preemptible_jobs() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let cheap = SteadyJob::with_steps(2_000).with_field("preemptible", true).submit(&server);
    server.wait_for_step(&cheap, 10);
    let dear = SteadyJob::with_steps(30).submit(&server);
    assert_eq!(server.wait_for_job(&dear)["state"], "SUCCEEDED");
    let cheap = server.wait_for_job(&cheap);
    assert_eq!((&cheap["state"], &cheap["attempt"]), (&json!("SUCCEEDED"), &json!(2)), "{cheap}");
    let first = &cheap["attempts"][0];
    assert_eq!((&first["state"], &first["reason"]), (&json!("PREEMPTED"), &json!("PREEMPTED")));
    assert!(first["message"].as_str().unwrap().contains(&dear), "{first}");
    assert_eq!(cheap["attempts"][1]["first_step"], first["last_step"], "nothing is done twice: {cheap}");
    let metrics = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    assert!(metrics.contains("saggar_job_preemptions_total{project=\"steady\",task=\"train\"} 1"), "{metrics}");

    // A job that is not preemptible is never evicted, by its own project or by another.
    for project in ["steady", "other"] {
        let dedicated = SteadyJob::with_steps(2_000).with_field("priority", 0).submit(&server);
        server.wait_for_step(&dedicated, 5);
        let urgent =
            SteadyJob::with_steps(5).with_field("priority", 100).with_field("project", project).submit(&server);
        assert_eq!(server.wait_for_job(&urgent)["state"], "SUCCEEDED");
        let dedicated = server.job(&dedicated);
        assert_eq!((&dedicated["attempt"], &dedicated["state"]), (&json!(1), &json!("SUCCEEDED")), "{dedicated}");
    }
    // The share of started jobs that were preempted: a job counts once, however many attempts it has.
    let metrics = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    for line in [
        "saggar_job_preemptions_total{project=\"steady\",task=\"train\"} 1\n",
        "saggar_jobs_started_total{project=\"steady\",task=\"train\"} 5\n",
        "saggar_jobs_started_total{project=\"other\",task=\"train\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
}

#[test]
fn jobs_past_a_limit_stay_queued_with_the_reason() {
    let home = tempfile::tempdir().unwrap();
    let limits = "[pool.wide]\ndevice = \"cpu\"\nslots = 9\n[queue.wide]\npools = [\"wide\"]\nmax_running_jobs = 9\n\
                  [quota]\nmax_running_jobs = 2\n";
    let server = start_with_manifest(home.path(), limits);
    let jobs = [0, 1, 2].map(|_| long_job().with_field("queue", "wide").submit(&server));
    wait_until(&server, &jobs[1], "RUNNING");
    let third = server.job(&jobs[2]);
    assert_eq!((&third["state"], &third["reason"]), (&json!("QUEUED"), &json!("QUOTA_RUNNING_JOBS")), "{third}");
    let sentence = third["message"].as_str().unwrap();
    assert!(sentence.contains("max_running_jobs") && sentence.contains('2'), "it names the limit: {sentence}");
    // Another project is not affected.
    let other = SteadyJob::with_steps(5).with_field("queue", "wide").with_field("project", "other").submit(&server);
    assert_eq!(server.wait_for_job(&other)["state"], "SUCCEEDED");
    let quota = server.get("/api/v1/quota");
    let project = quota["projects"].as_array().unwrap().iter().find(|it| it["project"] == "steady").unwrap();
    assert_eq!((&project["running_jobs"], &project["max_running_jobs"]), (&json!(2), &json!(2)));
}

#[test]
fn a_key_runs_at_most_its_limit_of_jobs() {
    let home = tempfile::tempdir().unwrap();
    let key = |name: &str, more: &[&str]| {
        let home = home.path().to_str().unwrap();
        let create = ["key", "create", name, "--scope", "jobs:read,jobs:write", "--home", home];
        let output = std::process::Command::new(saggar_tests::binary()).args(create).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (steady, few) = (saggar_tests::guest("steady"), key("few", &["--max-running-jobs", "1"]));
    let server = ServerProcess::start_with(home.path(), &["--jobs", "3", "--require-keys"]);
    let submit = |key: &str| {
        let run = ["--key", key, "--json", "run", steady.to_str().unwrap(), "--device", "cpu", "--", "steps=1000000"];
        let job: Value = serde_json::from_str(&server.saggar_ok(&run)).unwrap();
        job["name"].as_str().unwrap().to_owned()
    };
    let jobs = [submit(&few), submit(&few)];
    let status = |key: &str, job: &str| -> Value {
        serde_json::from_str(&server.saggar_ok(&["--key", key, "--json", "status", job])).unwrap()
    };
    let second = server
        .wait_for("the limit", |_| Some(status(&few, &jobs[1])).filter(|job| job["reason"] == "QUOTA_RUNNING_JOBS"));
    assert_eq!((&second["state"], &second["owner"]), (&json!("QUEUED"), &json!("few")));
    assert!(second["message"].as_str().unwrap().contains("key few"), "{second}");
    // A key created while the server runs has separate limits.
    let many = key("many", &[]);
    let third = submit(&many);
    server.wait_for("its start", |_| Some(()).filter(|()| status(&many, &third)["state"] == "RUNNING"));
}

#[test]
fn an_exhausted_budget_queues_jobs_and_loses_none() {
    let home = tempfile::tempdir().unwrap();
    let server = start_with_manifest(home.path(), "[quota]\ngpu_seconds = 1\n");
    let job = long_job().with_parameter("work", 20).submit(&server);
    let waiting = server.wait_for(&job, |server| {
        Some(server.job(&job)).filter(|it| it["state"] == "QUEUED" && it["reason"] == "QUOTA_GPU_SECONDS")
    });
    assert!(waiting["step"].as_u64() > Some(0) && waiting["gpu_seconds"].as_f64() >= Some(1.0), "{waiting}");
    assert_eq!(waiting["attempts"][0]["reason"], "QUOTA_GPU_SECONDS");
    // Its checkpoint is of its last step.
    let checkpoints = server.get(&format!("/api/v1/jobs/{job}/checkpoints"));
    assert_eq!(checkpoints["checkpoints"][0]["step"], waiting["attempts"][0]["last_step"]);
}

#[test]
fn fractional_slots_are_counted_and_shared() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--jobs", "1"]);
    let large = long_job().with_field("gpu_slots", 4).submit(&server);
    let job =
        server.wait_for(&large, |server| Some(server.job(&large)).filter(|it| it["reason"] == "INSUFFICIENT_GPU"));
    assert_eq!(job["state"], "QUEUED");
    let shares = [0, 1, 2, 3].map(|_| long_job().with_field("gpu_slots", 0.25).submit(&server));
    for job in &shares {
        wait_until(&server, job, "RUNNING");
    }
    let fifth = long_job().with_field("gpu_slots", 0.25).submit(&server);
    assert_eq!(server.job(&fifth)["reason"], "WAITING_FOR_SLOT");
}

#[test]
fn five_hundred_waiting_jobs_cost_the_server_little() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let before = long_job().submit(&server);
    wait_until(&server, &before, "RUNNING");
    let spec = SteadyJob::with_steps(2).spec(&server);
    let names: Vec<Value> = (0..500).map(|_| server.post("/api/v1/jobs", &spec)["name"].clone()).collect();
    let listed = server.get("/api/v1/jobs?limit=500");
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 500);
    let last = server.job(names[499].as_str().unwrap());
    assert_eq!(last["reason"], "WAITING_FOR_SLOT");
    let queues = server.get("/api/v1/queues");
    assert_eq!(queues["queues"][0]["waiting"], 500, "{queues}");
    // The running job is listed, however many jobs came after it.
    let listed = server.saggar_ok(&["ps", "-q"]);
    assert_eq!((listed.lines().count(), listed.lines().last()), (501, Some(before.as_str())));
    server.saggar_ok(&["stop", &before]);
    let first = server.wait_for_job(names[20].as_str().unwrap());
    assert_eq!(first["state"], "SUCCEEDED");
    let peak_mb = memory_kib(server.pid(), "VmHWM") / 1000;
    assert!(peak_mb <= 300, "the server held {peak_mb} MB");
}

#[test]
fn invalid_queue_requests_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let cases = [
        (SteadyJob::with_steps(1).with_field("queue", "nowhere"), "queue"),
        (SteadyJob::with_steps(1).with_field("priority", 101), "priority"),
        (SteadyJob::with_steps(1).with_field("gpu_slots", 0), "gpu_slots"),
        (SteadyJob::with_steps(1).with_field("max_runtime_seconds", -1), "max_runtime_seconds"),
        (SteadyJob::with_steps(1).with_field("memory_bytes", 0), "memory_bytes"),
        (SteadyJob::with_steps(1).with_field("retry_on", json!(["never"])), "never"),
        (SteadyJob::with_steps(1).with_field("surprise", 1), "surprise"),
        (SteadyJob::with_steps(1).with_field("project", "../x"), "project"),
        (SteadyJob::with_steps(1).with_field("data", json!([{"dataset": "../x", "mount": "/data"}])), "../x"),
        (SteadyJob::with_steps(1).with_field("data", json!([{"dataset": "x", "mount": "/a/../b"}])), "/a/../b"),
        (SteadyJob::with_steps(1).with_field("init_from", "job:"), "job:"),
    ];
    for (job, word) in cases {
        let answer = job.post(&server);
        assert_eq!(answer.status, 400, "{word}: {}", answer.text);
        assert!(answer.json()["error"].as_str().unwrap().contains(word), "{word}: {}", answer.text);
    }
    for (job, word) in [
        (SteadyJob::with_steps(1).with_field("data", json!([{"dataset": "absent", "mount": "/data"}])), "absent"),
        (SteadyJob::with_steps(1).with_field("data", json!([{"job": "absent-1", "mount": "/data"}])), "absent-1"),
        (SteadyJob::with_steps(1).with_field("init_from", "job:absent-1"), "absent-1"),
        (SteadyJob::with_steps(1).with_field("init_from", "model:absent"), "absent"),
    ] {
        let answer = job.post(&server);
        assert_eq!(answer.status, 404, "{word}: {}", answer.text);
        assert!(answer.json()["error"].as_str().unwrap().contains(word), "{}", answer.text);
    }
    assert_eq!(server.get("/api/v1/jobs")["jobs"], json!([]), "nothing was recorded");
}
