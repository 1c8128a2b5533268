//! Several servers with one database: a job of a server that is gone continues on another one, a server that was stopped
//! for a while is refused, and a database that restarts ends no attempt.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use saggar_tests::{
    HttpPayload, PostgresServer, ServerProcess, SteadyJob, binary, lenet, processes_of, worker_processes,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Time from the end of a server until another one has begun the next attempt of its job: a lease, and the time between two
/// looks for leases that are over.
const TAKE_OVER_MAX: Duration = Duration::from_secs(25);

/// The servers `a` and `b`, with shared files, on one database.
struct SharedServers {
    servers: Vec<ServerProcess>,
    directory: TempDir,
    database: PostgresServer,
}

fn start_server(database: &PostgresServer, root: &Path, name: &str) -> ServerProcess {
    let home = root.join(name);
    std::fs::create_dir_all(&home).unwrap();
    if name != "a" {
        for directory in ["objects", "datasets", "jobs", "models"] {
            if !home.join(directory).exists() {
                symlink(root.join("a").join(directory), home.join(directory)).unwrap();
            }
        }
    }
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--name", name, "--home"]).arg(&home);
    ServerProcess::from_command(with_database(&mut command, database), &home)
}

/// The environment keeps the password out of the list of processes.
fn with_database(command: &mut Command, database: &PostgresServer) -> Command {
    let mut whole = Command::new(command.get_program());
    whole.args(command.get_args()).env("SAGGAR_DATABASE_URL", database.url());
    whole
}

impl SharedServers {
    /// Returns `None` if PostgreSQL is not installed and not required.
    fn start() -> Option<SharedServers> {
        let (database, directory) = (PostgresServer::start()?, tempfile::tempdir().unwrap());
        let servers = ["a", "b"].map(|name| start_server(&database, directory.path(), name)).into();
        Some(SharedServers { servers, directory, database })
    }

    /// Waits until a server runs an attempt of the only job, and takes the server out of the list.
    fn take_owner(&mut self) -> (ServerProcess, u32) {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            let owner = self.servers.iter().position(|server| worker_processes(server.pid()).len() == 1);
            if let Some(at) = owner {
                let server = self.servers.remove(at);
                let worker = worker_processes(server.pid())[0];
                return (server, worker);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("no server runs the job: {}", self.log("a") + &self.log("b"));
    }

    fn other(&self) -> &ServerProcess {
        &self.servers[0]
    }

    fn log(&self, server: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(server).join("server.log")).unwrap_or_default()
    }
}

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

fn submit_training(server: &ServerProcess, model: &str) -> String {
    let (plugin, model) = (lenet(), format!("model={model}"));
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "3"];
    let rest = ["--checkpoint-every", "20steps", "--", "epochs=60", &model];
    server.saggar_ok(&[&run[..], &rest].concat()).trim().to_owned()
}

fn wait_for_checkpoint(server: &ServerProcess, job: &str) {
    server.wait_for("a checkpoint", |server| (!server.checkpoints(job).is_empty()).then_some(()));
}

fn wait_for_attempt(server: &ServerProcess, job: &str, attempt: u64) -> Value {
    server.wait_for("the next attempt", |server| {
        let job = server.job(job);
        let is_running = job["state"] == "RUNNING" || job["state"] == "SUCCEEDED";
        (is_running && job["attempt"].as_u64() >= Some(attempt)).then_some(job)
    })
}

fn reasons(server: &ServerProcess, job: &str) -> Vec<String> {
    let attempts = server.get(&format!("/api/v1/jobs/{job}"))["attempts"].clone();
    let reason = |attempt: &Value| attempt["reason"].as_str().unwrap_or_default().to_owned();
    attempts.as_array().into_iter().flatten().map(reason).collect()
}

#[test]
fn a_training_of_a_killed_server_continues_on_another_one_with_equal_weights() {
    let Some(mut shared) = SharedServers::start() else { return };
    shared.servers[0].push_digits();
    let calm = submit_training(&shared.servers[0], "calm");
    assert_eq!(shared.servers[1].wait_for_job(&calm)["state"], "SUCCEEDED");
    // Every server shows every job, also one that it does not run.
    let job = submit_training(&shared.servers[1], "shaken");
    wait_for_checkpoint(&shared.servers[0], &job);
    let (owner, _) = shared.take_owner();
    let killed = Instant::now();
    owner.kill_and_wait();
    let next = wait_for_attempt(shared.other(), &job, 2);
    let took = killed.elapsed();
    println!("the next attempt began {:.1} s after its server was killed", took.as_secs_f64());
    assert!(took < TAKE_OVER_MAX, "{took:?}: {next}");
    assert_eq!(shared.other().wait_for_job(&job)["state"], "SUCCEEDED");
    assert_eq!(reasons(shared.other(), &job)[0], "HOST_LOST");
    assert!(shared.other().saggar_ok(&["logs", &job]).contains("resumed from checkpoint @"));
    assert_eq!(shared.other().weights_digest("calm"), shared.other().weights_digest("shaken"));
    for log in [shared.log("a"), shared.log("b")] {
        assert!(log.contains("the records are in a database") && !log.contains("hunter2"), "{log}");
    }
}

/// The worker of a stopped server goes on alone, knows after 12 seconds that it may not be the owner, and ends when its
/// server learns that.
#[test]
fn a_server_that_was_stopped_for_30_seconds_changes_nothing_of_the_next_owner() {
    let Some(mut shared) = SharedServers::start() else { return };
    let job = SteadyJob::with_steps(100_000_000).submit(&shared.servers[0]);
    wait_for_checkpoint(&shared.servers[0], &job);
    let (stopped, worker) = shared.take_owner();
    signal("STOP", stopped.pid());
    let began = Instant::now();
    wait_for_attempt(shared.other(), &job, 2);
    assert!(began.elapsed() < TAKE_OVER_MAX, "{:?}", began.elapsed());
    std::thread::sleep(Duration::from_secs(30).saturating_sub(began.elapsed()));
    let before = shared.other().job(&job);
    assert!(is_alive(worker), "the worker waits for its server");
    signal("CONT", stopped.pid());
    stopped.wait_for("the worker's end", |_| (!is_alive(worker)).then_some(()));
    let log = stopped.wait_for("the refusal", |_| {
        let log = shared.log("a") + &shared.log("b");
        let is_refusal = |line: &str| line.contains("attempt lost") && line.contains("claimed by server");
        log.lines().any(is_refusal).then_some(log)
    });
    assert!(log.contains("lost its lease has ended") && log.contains("exit_code=75"), "{log}");
    let after = stopped.job(&job);
    assert_eq!((&after["attempt"], &after["state"]), (&json!(2), &json!("RUNNING")), "{after}");
    assert!(after["step"].as_u64() >= before["step"].as_u64(), "{before} {after}");
    // All newer checkpoints are of the second attempt's epoch, and one is still saved.
    let saved = shared.other().checkpoints(&job)[0].0;
    shared.other().wait_for("another checkpoint", |it| (it.checkpoints(&job)[0].0 > saved).then_some(()));
    shared.other().saggar_ok(&["stop", &job]);
    assert_eq!(stopped.wait_for_job(&job)["state"], "CANCELLED");
    assert_eq!(reasons(&stopped, &job).len(), 2);
}

#[test]
fn a_database_that_is_killed_and_restarted_ends_no_attempt() {
    let Some(shared) = SharedServers::start() else { return };
    let jobs = [0, 1].map(|at| SteadyJob::with_steps(100_000_000).submit(&shared.servers[at]));
    for job in &jobs {
        shared.servers[0].wait_for_step(job, 10);
    }
    for _ in 0..2 {
        shared.database.kill_and_restart();
        for job in &jobs {
            let step = shared.servers[0].job(job)["step"].as_u64().unwrap();
            shared.servers[0].wait_for_step(job, step + 20);
        }
    }
    for job in &jobs {
        let job_document = shared.servers[1].job(job);
        assert_eq!(
            (&job_document["attempt"], &job_document["state"]),
            (&json!(1), &json!("RUNNING")),
            "{job_document}"
        );
        shared.servers[1].saggar_ok(&["stop", job]);
        assert_eq!(shared.servers[0].wait_for_job(job)["state"], "CANCELLED");
    }
}

#[test]
fn orders_for_a_job_reach_the_server_that_runs_it() {
    let Some(mut shared) = SharedServers::start() else { return };
    let job = SteadyJob::with_steps(100_000_000).with_field("checkpoint_every", json!({ "steps": 100_000_000 }));
    let job = job.submit(&shared.servers[0]);
    shared.servers[0].wait_for_step(&job, 5);
    let (owner, _) = shared.take_owner();
    let answer = shared.other().request("POST", &format!("/api/v1/jobs/{job}/checkpoint"), HttpPayload::Nothing);
    assert_eq!(answer.status, 200, "{}", answer.text);
    wait_for_checkpoint(shared.other(), &job);
    shared.other().post(&format!("/api/v1/jobs/{job}/preempt"), &json!({}));
    wait_for_attempt(shared.other(), &job, 2);
    assert_eq!(reasons(shared.other(), &job)[0], "PREEMPTED");
    shared.other().saggar_ok(&["stop", &job]);
    assert_eq!(owner.wait_for_job(&job)["state"], "CANCELLED");
}

/// A server whose files are elsewhere does not take the job.
#[test]
fn a_job_waits_for_a_server_that_has_its_files() {
    let Some(database) = PostgresServer::start() else { return };
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = start_server(&database, first.path(), "a");
    let job = SteadyJob::with_steps(10_000_000).submit(&a);
    a.wait_for_step(&job, 5);
    a.kill_and_wait();
    // The directory of this one is new, and has the same name.
    let b = start_server(&database, second.path(), "a");
    let waiting = b.wait_for("the reason of the wait", |server| {
        let job_document = server.job(&job);
        (job_document["state"] == "QUEUED").then_some(job_document)
    });
    assert!(waiting.to_string().contains("OTHER_STORAGE"), "{waiting}");
    let own = SteadyJob::with_steps(10).submit(&b);
    assert_eq!(b.wait_for_job(&own)["state"], "SUCCEEDED");
    assert_eq!(b.job(&job)["state"], "QUEUED");
    let a = start_server(&database, first.path(), "a");
    a.saggar_ok(&["stop", &job]);
    assert_eq!(a.wait_for_job(&job)["state"], "CANCELLED");
}

#[test]
fn doctor_checks_the_database_and_serve_names_a_wrong_one_without_its_password() {
    let Some(database) = PostgresServer::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let doctor = |url: &str| {
        let mut command = Command::new(binary());
        command.args(["doctor", "--json", "--home"]).arg(home.path()).env("SAGGAR_DATABASE_URL", url);
        let output = command.output().unwrap();
        let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        findings.into_iter().find(|finding| finding["name"] == "database").unwrap()
    };
    let found = doctor(database.url());
    assert_eq!(found["state"], "OK", "{found}");
    let what = found["what"].as_str().unwrap();
    assert!(what.contains("PostgreSQL") && what.contains("no records yet") && !what.contains("hunter2"), "{what}");
    let missing = doctor(&database.url().replace("/test1", "/missing"));
    assert_eq!(missing["state"], "FAILED", "{missing}");
    assert!(missing["hint"].as_str().unwrap().contains("createdb -E UTF8"), "{missing}");
    for (url, words) in [("mysql://ci:hunter2@db/x", "postgres://"), ("postgres://ci:hunter2@127.0.0.1:1/x", "refused")]
    {
        let mut command = Command::new(binary());
        command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home"]).arg(home.path());
        let output = command.env("SAGGAR_DATABASE_URL", url).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words) && !said.contains("hunter2"), "{said}");
    }
    assert!(processes_of(&binary(), home.path()).is_empty());
}

#[test]
fn a_server_that_is_started_again_takes_its_own_jobs_at_once() {
    let Some(database) = PostgresServer::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let server = start_server(&database, root.path(), "a");
    let job = SteadyJob::with_steps(100_000_000).submit(&server);
    wait_for_checkpoint(&server, &job);
    server.kill_and_wait();
    let began = Instant::now();
    let server = start_server(&database, root.path(), "a");
    wait_for_attempt(&server, &job, 2);
    assert!(began.elapsed() < Duration::from_secs(12), "it waits for no lease: {:?}", began.elapsed());
    assert_eq!(reasons(&server, &job)[0], "HOST_RESTART");
    server.saggar_ok(&["stop", &job]);
    assert_eq!(server.wait_for_job(&job)["state"], "CANCELLED");
}
