//! Servers and workers are killed at arbitrary instants while jobs are submitted and run: no job is lost or run twice,
//! no process is left, and all jobs end with the same bits as an undisturbed one. `CHAOS_KILLS` and `CHAOS_JOBS` make
//! the test longer.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use saggar_tests::{ServerProcess, SteadyJob, binary, kill_9, processes_of, worker_processes};
use serde_json::Value;

const STEPS: u64 = 120;

fn environment_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Returns the n-th number of a deterministic pseudo-random sequence (splitmix64).
fn splitmix64(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Submits jobs to whichever server runs, each until it is acknowledged, spread over all kills, so that some job is
/// always running.
fn submit(socket: &Path, spec: &Value, jobs: u64, kills: &AtomicU64, kills_wanted: u64) -> Vec<String> {
    let spec_file = socket.with_file_name("spec.json");
    std::fs::write(&spec_file, spec.to_string()).unwrap();
    let mut names = Vec::new();
    for at in 0..jobs {
        while kills.load(Ordering::Acquire) < at * kills_wanted / jobs {
            std::thread::sleep(Duration::from_millis(5));
        }
        let key = format!("Idempotency-Key: job-{at}");
        loop {
            let output = std::process::Command::new("curl")
                .args(["-s", "--max-time", "5", "--unix-socket"])
                .arg(socket)
                .args(["-H", "content-type: application/json", "-H", &key, "--data-binary"])
                .arg(format!("@{}", spec_file.display()))
                .arg("http://localhost/api/v1/jobs")
                .output()
                .unwrap();
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
            if let Some(name) = answer["name"].as_str() {
                names.push(name.to_owned());
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    names
}

/// Returns the bytes of every variable in a job's checkpoint of its last step.
fn last_checkpoint_variables(server: &ServerProcess, home: &Path, job: &str) -> BTreeMap<String, Vec<u8>> {
    let (step, out) = (STEPS.to_string(), home.to_str().unwrap());
    let file = server.saggar_ok(&["output", "get", job, "--checkpoint", &step, "-o", out]);
    let bytes = std::fs::read(file.trim()).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    tensors.iter().map(|(name, tensor)| (name.to_owned(), tensor.data().to_vec())).collect()
}

fn start(home: &Path, socket: &Path) -> ServerProcess {
    // A killed server leaves its socket file.
    let _ = std::fs::remove_file(socket);
    ServerProcess::start_with(home, &["--jobs", "2", "--addr", &format!("unix:{}", socket.display())])
}

#[test]
fn kills_at_arbitrary_instants_neither_lose_nor_repeat_jobs() {
    let (kills_wanted, jobs) = (environment_number("CHAOS_KILLS", 40), environment_number("CHAOS_JOBS", 12));
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("s.sock");
    let server = start(home.path(), &socket);
    let calm = SteadyJob::with_steps(STEPS).with_field("project", "calm").submit(&server);
    assert_eq!(server.wait_for_job(&calm)["state"], "SUCCEEDED");
    let expected = last_checkpoint_variables(&server, home.path(), &calm);
    assert!(expected.len() >= 2, "{:?}", expected.keys());

    let spec = SteadyJob::with_steps(STEPS).with_field("retry", 1000).spec(&server);
    let count = AtomicU64::new(0);
    let (server, names) = std::thread::scope(|scope| {
        let mut server = server;
        let submitter = scope.spawn(|| submit(&socket, &spec, jobs, &count, kills_wanted));
        let mut kills = 0;
        while kills < kills_wanted {
            std::thread::sleep(Duration::from_millis(splitmix64(kills) % 250));
            let workers = worker_processes(server.pid());
            // One kill in three hits the server.
            match workers.get(splitmix64(kills ^ 0xabcd) as usize % 3) {
                Some(worker) => kills += u64::from(kill_9(*worker)),
                None => {
                    server.kill_and_wait();
                    kills += 1;
                    server = start(home.path(), &socket);
                }
            }
            count.store(kills, Ordering::Release);
        }
        (server, submitter.join().unwrap())
    });
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len() as u64, jobs, "each submission is one job: {names:?}");
    for name in &names {
        let job = server.wait_for_job(name);
        assert_eq!(job["state"], "SUCCEEDED", "{job}");
        let successes = job["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "SUCCEEDED").count();
        assert_eq!(successes, 1, "{job}");
        let same = last_checkpoint_variables(&server, home.path(), name) == expected;
        assert!(same, "{name} has other bits than a job that nobody disturbed");
    }
    let listed = server.get("/api/v1/jobs?project=steady&limit=1000");
    assert_eq!(listed["jobs"].as_array().unwrap().len() as u64, jobs, "none lost, none doubled");
    // Of all processes started on this directory, only the server is left.
    let left = server.wait_for("the last worker's end", |server| {
        let left = processes_of(&binary(), home.path());
        (left == [server.pid()]).then_some(left)
    });
    assert_eq!(left.len(), 1);
}
