//! Workers: hosts that join a server and only run its jobs. They are listed with what they offer, jobs find them by labels, and
//! a job of a worker that ends, is drained or is killed continues on another one.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use saggar_tests::workers::{WorkerProcess, link_shared_directories};
use saggar_tests::{PostgresServer, ServerProcess, SteadyJob, binary, create_key, guest, lenet, worker_processes};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Time until a job of a killed worker runs on another one.
const TAKE_OVER_MAX: Duration = Duration::from_secs(25);
/// Time until a stopped worker has ended.
const END_MAX: Duration = Duration::from_secs(25);
/// Time until a worker that joins is listed.
const JOIN_MAX: Duration = Duration::from_secs(10);

/// A server that runs no jobs itself, and what its workers need.
struct JobCluster {
    server: ServerProcess,
    key: String,
    directory: TempDir,
    database: PostgresServer,
}

impl JobCluster {
    /// Returns `None` if PostgreSQL is not installed and not required.
    fn start(arguments: &[&str]) -> Option<JobCluster> {
        let (database, directory) = (PostgresServer::start()?, tempfile::tempdir().unwrap());
        let home = directory.path().join("a");
        std::fs::create_dir_all(&home).unwrap();
        let key = create_key(&home, &["boss", "--scope", "admin,jobs:write,jobs:read,predict,models:write"]);
        let mut command = Command::new(binary());
        command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--name", "a", "--home"]).arg(&home);
        command.arg("--require-keys").args(arguments).env("SAGGAR_DATABASE_URL", database.url());
        let server = ServerProcess::from_command(command, &home).with_key(&key);
        Some(JobCluster { server, key, directory, database })
    }

    fn home(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Lets a worker with shared files join, and waits until it is listed.
    fn join(&self, name: &str, arguments: &[&str]) -> WorkerProcess {
        let worker = WorkerProcess::join(&self.server, &self.key, &self.home(name), Some(&self.home("a")), arguments);
        self.wait_for_worker(name, |listed| listed["state"] == "READY");
        worker
    }

    /// Returns a worker as `saggar ps --workers` lists it.
    fn listed(&self, name: &str) -> Option<Value> {
        let listed: Value = serde_json::from_str(&self.server.saggar_ok(&["ps", "--workers", "--json"])).unwrap();
        listed.as_array().unwrap().iter().find(|worker| worker["name"] == name).cloned()
    }

    fn wait_for_worker(&self, name: &str, is_there: impl Fn(&Value) -> bool) -> Value {
        self.server.wait_for(name, |_| self.listed(name).filter(|listed| is_there(listed)))
    }

    fn wait_until_running(&self, job: &str, attempt: u64) -> Value {
        self.server.wait_for("the attempt", |server| {
            let job = server.job(job);
            (job["state"] == "RUNNING" && job["attempt"].as_u64() >= Some(attempt)).then_some(job)
        })
    }

    /// Returns the name of the host that runs a job.
    fn host_of(&self, job: &str) -> String {
        let listed: Value = serde_json::from_str(&self.server.saggar_ok(&["ps", "--workers", "--json"])).unwrap();
        let runs = |worker: &&Value| worker["jobs"].as_array().unwrap().contains(&json!(job));
        let host = listed.as_array().unwrap().iter().find(runs);
        host.map(|host| host["name"].as_str().unwrap().to_owned()).unwrap_or_default()
    }

    fn stop(&self, job: &str) {
        self.server.saggar_ok(&["stop", job]);
        assert_eq!(self.server.wait_for_job(job)["state"], "CANCELLED");
    }

    fn reasons(&self, job: &str) -> Vec<String> {
        let attempts = self.server.get(&format!("/api/v1/jobs/{job}"))["attempts"].clone();
        let reason = |attempt: &Value| attempt["reason"].as_str().unwrap_or_default().to_owned();
        attempts.as_array().into_iter().flatten().map(reason).collect()
    }

    /// Trains LeNet, with options, and returns the job's name.
    fn train(&self, model: &str, options: &[&str]) -> String {
        let (plugin, model) = (lenet(), format!("model={model}"));
        let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--seed", "3"];
        let rest = ["--checkpoint-every", "20steps"];
        let parameters = ["--", "epochs=60", &model];
        self.server.saggar_ok(&[&run[..], &rest, options, &parameters].concat()).trim().to_owned()
    }
}

fn endless() -> SteadyJob {
    SteadyJob::with_steps(100_000_000)
}

#[test]
fn a_joined_worker_is_listed_within_10_seconds_and_runs_jobs_of_the_server() {
    let Some(cluster) = JobCluster::start(&["--jobs", "0"]) else { return };
    let began = Instant::now();
    let worker = cluster.join("w1", &["--label", "gpu=a100", "--slots", "2"]);
    let took = began.elapsed();
    println!("listed {:.1} s after its start", took.as_secs_f64());
    assert!(took < JOIN_MAX, "{took:?}");
    let listed = cluster.listed("w1").unwrap();
    assert_eq!(
        (&listed["kind"], &listed["slots"], &listed["reserve"]),
        (&json!("worker"), &json!(2.0), &json!("none"))
    );
    assert_eq!(listed["labels"]["gpu"], "a100");
    assert_eq!(listed["labels"]["preemptible"], "false");
    assert_eq!(cluster.listed("a").unwrap()["kind"], "server");
    let table = cluster.server.saggar_ok(&["ps", "--workers"]);
    assert!(table.contains("w1") && table.contains("gpu=a100") && table.contains("0 of 2"), "{table}");
    cluster
        .server
        .wait_for("the gauge", |server| (server.metric("saggar_hosts{state=\"READY\"}") == Some(2.0)).then_some(()));
    cluster.server.push_digits();
    let job = cluster.train("digits", &["--label", "gpu=a100"]);
    cluster.wait_until_running(&job, 1);
    assert_eq!(cluster.host_of(&job), "w1");
    assert_eq!(worker_processes(worker.pid()).len(), 1);
    assert_eq!(cluster.listed("w1").unwrap()["used"], 1.0);
    assert_eq!(cluster.server.wait_for_job(&job)["state"], "SUCCEEDED");
    cluster.server.wait_for_version("digits", 1);
    let audit = std::fs::read_to_string(cluster.home("a").join("audit.log")).unwrap();
    assert!(audit.contains(r#""action":"worker.join","worker":"w1""#), "{audit}");
    let words = std::fs::read(format!("/proc/{}/cmdline", worker.pid())).unwrap();
    let words = String::from_utf8_lossy(&words);
    assert!(!words.contains(&cluster.key) && !words.contains("hunter2"), "{words}");
    assert!(!worker.log().contains("hunter2"), "{}", worker.log());
}

/// Writes a project whose file says nothing about machines.
fn write_project(place: &Path) {
    let text = format!(
        "manifest = 1\n[project]\nname = \"steady\"\n[plugin.steady]\nsource = {:?}\n\
         [task.train]\nplugin = \"steady\"\nargs = {{ steps = 200, model = \"steady\" }}\nseed = 7\n",
        guest("steady")
    );
    std::fs::write(place.join("saggar.toml"), text).unwrap();
}

/// Runs the task of the project, and returns the job.
fn run_task(server: &ServerProcess, project: &Path, device: Option<&str>) -> String {
    let mut command = server.command(&["run", "--task", "train"]);
    command.current_dir(project).envs(device.map(|device| ("SAGGAR_DEVICE", device)));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn device_of(server: &ServerProcess, job: &str) -> String {
    let finished = server.wait_for_job(job);
    assert_eq!(finished["state"], "SUCCEEDED", "{finished}");
    finished["device"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn the_same_project_runs_on_one_machine_on_a_gpu_and_on_several_joined_workers() {
    let Some(cluster) = JobCluster::start(&["--jobs", "0"]) else { return };
    let (project, (_home, laptop)) = (tempfile::tempdir().unwrap(), ServerProcess::start_in_temp_dir());
    write_project(project.path());
    let job = run_task(&laptop, project.path(), None);
    assert_eq!(device_of(&laptop, &job), "cpu");
    let weights = laptop.weights_digest("steady");
    if !laptop.has_vulkan() {
        return;
    }
    let on_gpu = run_task(&laptop, project.path(), Some("vulkan:0"));
    assert_eq!(device_of(&laptop, &on_gpu), "vulkan:0");
    // Two workers compute on the processor, and one with a GPU is listed with it and computes on it.
    let workers = [cluster.join("w1", &[]), cluster.join("w2", &[])];
    let jobs: Vec<String> = (0..2).map(|_| run_task(&cluster.server, project.path(), None)).collect();
    jobs.iter().for_each(|job| assert_eq!(device_of(&cluster.server, job), "cpu"));
    assert_eq!(cluster.server.weights_digest("steady"), weights);
    for worker in workers {
        worker.signal("-TERM");
        assert_eq!(worker.wait_for_exit(END_MAX).unwrap().code(), Some(0));
    }
    let began = Instant::now();
    let gpu =
        WorkerProcess::join_on(&cluster.server, &cluster.key, &cluster.home("gpu"), &cluster.home("a"), "vulkan:0");
    let listed = cluster.wait_for_worker("gpu", |listed| listed["state"] == "READY");
    assert!(began.elapsed() < JOIN_MAX, "{:?}", began.elapsed());
    assert!(listed["devices"].as_array().unwrap().contains(&json!("vulkan:0")), "{listed} {}", gpu.log());
    let job = run_task(&cluster.server, project.path(), None);
    assert_eq!(device_of(&cluster.server, &job), "vulkan:0");
}

#[test]
fn only_an_administrator_joins_and_only_a_server_with_a_database_is_joined() {
    let Some(cluster) = JobCluster::start(&["--jobs", "0"]) else { return };
    let join = |url: &str, key: &str| {
        let mut command = Command::new(binary());
        command.args(["worker", "join", url, "--name", "w1", "--home"]).arg(cluster.home("w1"));
        let output = command.env("SAGGAR_API_KEY", key).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let reader =
        create_key(&cluster.home("a"), &["reader", "--scope", "jobs:write", "--database", cluster.database.url()]);
    let refused = cluster.server.wait_for("the new key", |server| {
        let (code, said) = join(server.url(), &reader);
        said.contains("admin").then_some((code, said))
    });
    assert_eq!(refused.0, Some(4), "{}", refused.1);
    assert!(!refused.1.contains("hunter2"));
    let audit = std::fs::read_to_string(cluster.home("a").join("audit.log")).unwrap_or_default();
    assert!(!audit.contains(r#""action":"worker.join","worker":"w1""#), "{audit}");
    let (home, alone) = ServerProcess::start_in_temp_dir();
    // Also from this machine, a key is needed: the answer contains passwords.
    let (code, said) = join(alone.url(), "");
    assert_eq!(code, Some(4), "{said}");
    let (code, said) = join(alone.url(), &create_key(home.path(), &["boss", "--scope", "admin"]));
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("saggar serve --database"), "{said}");
    // The only server of a state directory lists itself.
    let listed: Value = serde_json::from_str(&alone.saggar_ok(&["ps", "--workers", "--json"])).unwrap();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["kind"]), (1, &json!("server")));
    drop(home);
}

#[test]
fn a_training_continues_with_equal_weights_when_its_worker_is_stopped_or_killed() {
    let Some(cluster) = JobCluster::start(&["--jobs", "0"]) else { return };
    let mut workers = vec![cluster.join("w1", &[]), cluster.join("w2", &[])];
    cluster.server.push_digits();
    let calm = cluster.train("calm", &[]);
    assert_eq!(cluster.server.wait_for_job(&calm)["state"], "SUCCEEDED");
    let mut take_owner = || {
        let owner = cluster
            .server
            .wait_for("the owner", |_| workers.iter().position(|worker| worker_processes(worker.pid()).len() == 1));
        workers.remove(owner)
    };
    let job = cluster.train("shaken", &[]);
    cluster.server.wait_for("a checkpoint", |server| (!server.checkpoints(&job).is_empty()).then_some(()));
    let owner = take_owner();
    owner.signal("-TERM");
    let began = Instant::now();
    let status = owner.wait_for_exit(END_MAX).unwrap();
    println!("the worker ended {:.1} s after SIGTERM", began.elapsed().as_secs_f64());
    assert_eq!(status.code(), Some(0));
    cluster.wait_until_running(&job, 2);
    assert_eq!(cluster.reasons(&job)[0], "HOST_SHUTDOWN");
    workers.push(cluster.join("w3", &[]));
    let mut take_owner = || {
        let owner = cluster
            .server
            .wait_for("the owner", |_| workers.iter().position(|worker| worker_processes(worker.pid()).len() == 1));
        workers.remove(owner)
    };
    let owner = take_owner();
    owner.kill_and_wait();
    let killed = Instant::now();
    cluster.wait_until_running(&job, 3);
    let took = killed.elapsed();
    println!("the next attempt began {:.1} s after its worker was killed", took.as_secs_f64());
    assert!(took < TAKE_OVER_MAX, "{took:?}");
    assert_eq!(cluster.reasons(&job)[1], "HOST_LOST");
    assert_eq!(cluster.server.wait_for_job(&job)["state"], "SUCCEEDED");
    assert_eq!(cluster.server.weights_digest("calm"), cluster.server.weights_digest("shaken"));
    cluster.server.wait_for("the lost worker", |_| {
        let lost = ["w1", "w2"].iter().filter_map(|name| cluster.listed(name)).find(|worker| worker["state"] == "LOST");
        lost.map(drop)
    });
}

#[test]
fn a_job_runs_only_on_a_host_that_has_its_labels() {
    let Some(cluster) = JobCluster::start(&[]) else { return };
    let small = endless().with_field("labels", json!({ "gpu": "t4" })).submit(&cluster.server);
    let waits = cluster.server.wait_for("the reason", |server| {
        let job = server.job(&small);
        job.to_string().contains("NO_MATCHING_HOST").then_some(job.to_string())
    });
    assert!(waits.contains("no host has the labels gpu=t4; the hosts are: a"), "{waits}");
    let _large = cluster.join("large", &["--label", "gpu=a100"]);
    let waits = cluster.server.job(&small).to_string();
    assert!(waits.contains("large (gpu=a100)"), "{waits}");
    let _small = cluster.join("small", &["--label", "gpu=t4"]);
    cluster.wait_until_running(&small, 1);
    assert_eq!(cluster.host_of(&small), "small");
    // Another one waits for a slot of that host, though others have free slots.
    let next = endless().with_field("labels", json!({ "gpu": "t4", "device": "cpu" })).submit(&cluster.server);
    let other = SteadyJob::with_steps(10).submit(&cluster.server);
    assert_eq!(cluster.server.wait_for_job(&other)["state"], "SUCCEEDED");
    let waits = cluster.server.job(&next);
    assert_eq!((&waits["state"], waits.to_string().contains("a slot of small")), (&json!("QUEUED"), true), "{waits}");
    cluster.stop(&next);
    cluster.stop(&small);
}

#[test]
fn a_job_that_is_not_preemptible_never_runs_on_a_preemptible_host() {
    let Some(cluster) = JobCluster::start(&["--jobs", "0"]) else { return };
    let _spot = cluster.join("spot", &["--preemptible", "--slots", "4"]);
    let listed = cluster.listed("spot").unwrap();
    assert_eq!((&listed["reserve"], &listed["labels"]["preemptible"]), (&json!("preemptible-only"), &json!("true")));
    let dedicated = endless().submit(&cluster.server);
    let preemptible = SteadyJob::with_steps(10).with_field("preemptible", true);
    for _ in 0..3 {
        let job = preemptible.submit(&cluster.server);
        assert_eq!(cluster.server.wait_for_job(&job)["state"], "SUCCEEDED");
    }
    let waits = cluster.server.job(&dedicated);
    assert_eq!((&waits["state"], &waits["attempt"]), (&json!("QUEUED"), &json!(0)), "{waits}");
    assert!(waits.to_string().contains("NO_MATCHING_HOST") && waits.to_string().contains("spot"), "{waits}");
    // A host that may vanish and is not reserved takes it.
    let _open = cluster.join("open", &["--preemptible", "--reserve", "none"]);
    cluster.wait_until_running(&dedicated, 1);
    assert_eq!(cluster.host_of(&dedicated), "open");
    cluster.stop(&dedicated);
}

#[test]
fn a_waiting_job_preempts_one_job_though_several_hosts_could() {
    let Some(cluster) = JobCluster::start(&["--jobs", "0"]) else { return };
    let workers = ["w1", "w2", "w3"].map(|name| cluster.join(name, &[]));
    // Each saves its state slowly, so that the next look at the queue finds the waiting job again.
    let running: Vec<String> = workers
        .iter()
        .map(|_| {
            let job = endless().with_field("preemptible", true).with_parameter("spin", 60).submit(&cluster.server);
            cluster.wait_until_running(&job, 1);
            job
        })
        .collect();
    for _ in 0..3 {
        let urgent = SteadyJob::with_steps(20).with_field("priority", 90).submit(&cluster.server);
        assert_eq!(cluster.server.wait_for_job(&urgent)["state"], "SUCCEEDED");
        let preempted =
            || running.iter().flat_map(|job| cluster.reasons(job)).filter(|reason| reason == "PREEMPTED").count();
        let before = preempted();
        running.iter().for_each(|job| drop(cluster.wait_until_running(job, 1)));
        assert_eq!(preempted(), before);
        println!("{before} preempted so far");
    }
    let all: Vec<String> = running.iter().flat_map(|job| cluster.reasons(job)).collect();
    assert_eq!(all.iter().filter(|reason| *reason == "PREEMPTED").count(), 3, "{all:?}");
    running.iter().for_each(|job| cluster.stop(job));
}

#[test]
fn a_drained_worker_gives_its_jobs_back_and_ends() {
    let Some(cluster) = JobCluster::start(&["--jobs", "0"]) else { return };
    let first = cluster.join("w1", &[]);
    let job = endless().submit(&cluster.server);
    cluster.server.wait_for("a checkpoint", |server| (!server.checkpoints(&job).is_empty()).then_some(()));
    let second = cluster.join("w2", &[]);
    assert!(cluster.server.saggar_ok(&["worker", "drain", "w1"]).contains("w1 DRAINING"));
    assert_eq!(first.wait_for_exit(Duration::from_secs(35)).unwrap().code(), Some(0));
    cluster.wait_until_running(&job, 2);
    assert_eq!((cluster.host_of(&job).as_str(), cluster.listed("w1")), ("w2", None));
    assert_eq!(cluster.reasons(&job)[0], "HOST_SHUTDOWN");
    // With --finish the job goes on; a drain can be undone.
    cluster.server.saggar_ok(&["worker", "drain", "w2", "--finish"]);
    let waiting = SteadyJob::with_steps(5).submit(&cluster.server);
    let step = cluster.server.job(&job)["step"].as_u64().unwrap();
    cluster.server.wait_for_step(&job, step + 50);
    assert_eq!(cluster.server.job(&job)["attempt"], 2);
    assert_eq!(cluster.listed("w2").unwrap()["state"], "DRAINING");
    cluster.stop(&job);
    assert_eq!(cluster.server.job(&waiting)["state"], "QUEUED");
    assert_eq!(second.wait_for_exit(Duration::from_secs(35)).unwrap().code(), Some(0));
    // A server stays, without taking jobs, until it is resumed.
    let refused = cluster.server.saggar(&["worker", "drain", "w1"]);
    assert_eq!(refused.status.code(), Some(3), "{}", String::from_utf8_lossy(&refused.stderr));
    cluster.server.saggar_ok(&["worker", "drain", "a"]);
    assert_eq!(cluster.listed("a").unwrap()["state"], "DRAINING");
    cluster.server.saggar_ok(&["worker", "drain", "a", "--resume"]);
    assert_eq!(cluster.listed("a").unwrap()["state"], "READY");
    let audit = std::fs::read_to_string(cluster.home("a").join("audit.log")).unwrap();
    for action in ["worker.drain\",\"worker\":\"w2\",\"detail\":\"finish", "worker.resume\",\"worker\":\"a"] {
        assert!(audit.contains(action), "{action}: {audit}");
    }
}

#[test]
fn of_two_processes_for_one_attempt_one_runs_it_and_the_other_ends_with_0() {
    let Some(cluster) = JobCluster::start(&["--jobs", "0"]) else { return };
    cluster.server.push_digits();
    let job = cluster.train("digits", &[]);
    let start = |name: &str| {
        let home = cluster.home(name);
        link_shared_directories(&home, Some(&cluster.home("a")));
        let mut command = Command::new(binary());
        command.args(["worker", "run", &job, "--device", "cpu", "--home"]).arg(&home);
        command.env("SAGGAR_DATABASE_URL", cluster.database.url());
        WorkerProcess::spawn(command, &home)
    };
    let first = start("r1");
    cluster.wait_until_running(&job, 1);
    let second = start("r2");
    assert_eq!(second.wait_for_exit(Duration::from_secs(30)).unwrap().code(), Some(0));
    assert_eq!(cluster.server.job(&job)["attempt"], 1);
    // It saves the state when it is to end, and another process continues.
    cluster.server.wait_for("a checkpoint", |server| (!server.checkpoints(&job).is_empty()).then_some(()));
    first.signal("-TERM");
    assert_eq!(first.wait_for_exit(END_MAX).unwrap().code(), Some(75));
    assert_eq!(cluster.server.job(&job)["state"], "QUEUED");
    let last = start("r3");
    assert_eq!(last.wait_for_exit(Duration::from_secs(120)).unwrap().code(), Some(0));
    assert_eq!(cluster.server.wait_for_job(&job)["state"], "SUCCEEDED");
    assert_eq!(cluster.reasons(&job).len(), 2);
    let missing = Command::new(binary())
        .args(["worker", "run", "digits-99", "--home"])
        .arg(cluster.home("r4"))
        .env("SAGGAR_DATABASE_URL", cluster.database.url())
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(3), "{}", String::from_utf8_lossy(&missing.stderr));
}
