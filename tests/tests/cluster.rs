//! Servers on several machines, which network namespaces stand for: servers are killed at random and cut off, and every job
//! is still done once, with the weights of a calm run.
//!
//! `make cluster` runs a long form: `SAGGAR_CLUSTER_JOBS` is the number of trainings.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use saggar_tests::{
    NetworkHosts, PostgresServer, ServerProcess, SteadyJob, TcpForwarder, binary, lenet, worker_processes,
};
use serde_json::Value;
use tempfile::TempDir;

const HOSTS: u8 = 3;
/// Different trainings; the others repeat them.
const SEEDS: u64 = 3;
/// Between two losses of a server.
const KILL_INTERVAL: Duration = Duration::from_secs(5);
/// How long a killed server is gone: mostly it is back before its leases end, and sometimes another server takes its jobs.
const KILLED_TIME: [Duration; 4] =
    [Duration::from_secs(2), Duration::from_secs(1), Duration::from_secs(20), Duration::from_secs(2)];
/// How long a host is cut off.
const CUT_TIME: Duration = Duration::from_secs(25);
/// Every so many losses of a server are a cut.
const CUT_PERIOD: u64 = 5;
/// Time from the end of an owner until another server has the job: a lease, and two looks.
const TAKE_OVER_MAX: Duration = Duration::from_secs(25);
/// Time from the healing of a connection until a worker that lost its job has ended.
const FENCED_END_MAX: Duration = Duration::from_secs(15);

/// Servers on hosts, and one on this machine that has none of the files of their jobs, so it only watches.
struct TestCluster {
    servers: Vec<Option<ServerProcess>>,
    observer: ServerProcess,
    root: TempDir,
    url: String,
    _database: PostgresServer,
    hosts: NetworkHosts,
}

impl TestCluster {
    /// Returns `None` if something that it needs is not installed and not required.
    fn start() -> Option<TestCluster> {
        let (database, hosts) = (PostgresServer::start()?, NetworkHosts::create(HOSTS)?);
        let root = tempfile::tempdir().unwrap();
        let port = database.url().rsplit([':', '/']).nth(1).unwrap().parse().unwrap();
        let forwarder = TcpForwarder::start(hosts.gateway(), port);
        let there = format!("{}:{}", hosts.gateway(), forwarder.port());
        let url = database.url().replace(&format!("127.0.0.1:{port}"), &there);
        let home = root.path().join("observer");
        std::fs::create_dir(&home).unwrap();
        let mut command = Command::new(binary());
        command.args(["serve", "--port", "0", "--device", "cpu", "--name", "observer", "--home"]).arg(&home);
        command.env("SAGGAR_DATABASE_URL", database.url());
        let observer = ServerProcess::from_command(command, &home);
        let mut cluster = TestCluster { servers: Vec::new(), observer, root, url, _database: database, hosts };
        cluster.servers = (0..HOSTS).map(|at| Some(cluster.start_server(at))).collect();
        Some(cluster)
    }

    fn start_server(&self, at: u8) -> ServerProcess {
        let home = self.root.path().join(format!("host-{at}"));
        std::fs::create_dir_all(&home).unwrap();
        share_directories(self.root.path(), &home);
        let mut command = self.hosts.command(at, &binary());
        let address = format!("{}:0", self.hosts.address(at));
        command.args(["serve", "--insecure", "--device", "cpu", "--addr", &address, "--name", &format!("host-{at}")]);
        command.arg("--home").arg(&home).env("SAGGAR_DATABASE_URL", &self.url);
        ServerProcess::from_command(command, &home)
    }

    fn server(&self, at: u8) -> &ServerProcess {
        self.servers[usize::from(at)].as_ref().expect("it runs")
    }

    /// Kills a server, and starts it again after a while.
    fn kill(&mut self, at: u8, absence: Duration) {
        let server = self.servers[usize::from(at)].take().expect("it runs");
        server.kill_and_wait();
        std::thread::sleep(absence);
        self.servers[usize::from(at)] = Some(self.start_server(at));
    }

    fn log(&self, at: u8) -> String {
        std::fs::read_to_string(self.root.path().join(format!("host-{at}/server.log"))).unwrap_or_default()
    }
}

/// Links the directories that servers share.
fn share_directories(root: &Path, home: &Path) {
    for directory in ["objects", "datasets", "jobs", "models"] {
        let shared = root.join("shared").join(directory);
        std::fs::create_dir_all(&shared).unwrap();
        if !home.join(directory).exists() {
            symlink(shared, home.join(directory)).unwrap();
        }
    }
}

fn submit_training(server: &ServerProcess, model: &str, seed: u64) -> String {
    let (plugin, model, seed) = (lenet(), format!("model={model}"), seed.to_string());
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", &seed];
    let rest = ["--checkpoint-every", "20steps", "--", "epochs=60", &model];
    server.saggar_ok(&[&run[..], &rest].concat()).trim().to_owned()
}

fn unix_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Returns the events of a job: time, kind and text.
fn events(server: &ServerProcess, job: &str) -> Vec<(u64, String, String)> {
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let answer = server.get(&format!("/api/v1/jobs/{job}/events"));
    let events = answer["events"].as_array().unwrap();
    events.iter().map(|event| (event["at_ms"].as_u64().unwrap(), text(event, "kind"), text(event, "text"))).collect()
}

/// Returns how long the job had no owner after each loss of a server that ran it.
fn idle_times(events: &[(u64, String, String)], losses: &[(u64, u8)]) -> Vec<Duration> {
    let claims: Vec<&(u64, String, String)> = events.iter().filter(|event| event.1 == "CLAIMED").collect();
    let mut idle = Vec::new();
    for pair in claims.windows(2) {
        let (claimed, next) = (pair[0], pair[1]);
        let ran_there = |host: u8| claimed.2.ends_with(&format!("of server host-{host}"));
        let loss = losses.iter().find(|(at, host)| ran_there(*host) && claimed.0 <= *at && *at <= next.0);
        idle.extend(loss.map(|(at, _)| Duration::from_millis(next.0 - at)));
    }
    idle
}

#[test]
fn every_job_is_done_once_although_servers_are_killed_and_cut_off() {
    let Some(mut cluster) = TestCluster::start() else { return };
    let jobs = std::env::var("SAGGAR_CLUSTER_JOBS").map_or(9, |jobs| jobs.parse().unwrap());
    cluster.server(0).push_digits();
    let calm: Vec<String> =
        (0..SEEDS).map(|seed| submit_training(cluster.server(0), &format!("calm{seed}"), seed)).collect();
    for job in &calm {
        assert_eq!(cluster.observer.wait_for_job(job)["state"], "SUCCEEDED");
    }
    let trainings: BTreeMap<u64, String> =
        (0..jobs).map(|at| (at, submit_training(cluster.server(0), &format!("shaken{at}"), at % SEEDS))).collect();
    let (mut losses, mut round, began) = (Vec::new(), 0_u64, Instant::now());
    let is_over =
        |cluster: &TestCluster| trainings.values().all(|job| cluster.observer.job(job)["finished_ms"].is_u64());
    while !is_over(&cluster) {
        assert!(began.elapsed() < Duration::from_secs(60 * (5 + jobs)), "the jobs do not end");
        // A fixed sequence, in which each host is met after each other one.
        let at = u8::try_from((round * 7 + round / 3) % u64::from(HOSTS)).unwrap();
        losses.push((unix_ms(), at));
        if round % CUT_PERIOD == 1 {
            cluster.hosts.cut(at);
            std::thread::sleep(CUT_TIME);
            cluster.hosts.heal(at);
        } else {
            cluster.kill(at, KILLED_TIME[round as usize % KILLED_TIME.len()]);
        }
        round += 1;
        std::thread::sleep(KILL_INTERVAL);
    }
    let (mut idle, mut attempts) = (Vec::new(), 0);
    for (at, job) in &trainings {
        let document = cluster.observer.job(job);
        assert_eq!(document["state"], "SUCCEEDED", "{document}");
        attempts += document["attempt"].as_u64().unwrap();
        let (calm, shaken) = (format!("calm{}", at % SEEDS), format!("shaken{at}"));
        let versions = cluster.server(0).get(&format!("/api/v1/models/{shaken}"))["versions"].clone();
        assert_eq!(versions.as_array().unwrap().len(), 1, "published once: {versions}");
        assert_eq!(cluster.server(0).weights_digest(&shaken), cluster.server(0).weights_digest(&calm), "{job}");
        idle.extend(idle_times(&events(&cluster.observer, job), &losses));
    }
    idle.sort();
    let longest = idle.last().copied().unwrap_or_default();
    println!(
        "{jobs} jobs in {:.0} s and {attempts} attempts; {} losses of a server, {} of a running job; idle at most {:.1} s",
        began.elapsed().as_secs_f64(),
        losses.len(),
        idle.len(),
        longest.as_secs_f64()
    );
    assert!(!idle.is_empty(), "no server was lost while it ran a job");
    assert!(longest < TAKE_OVER_MAX, "{idle:?}");
}

#[test]
fn the_worker_of_a_host_that_was_cut_off_ends_and_changes_nothing() {
    let Some(cluster) = TestCluster::start() else { return };
    let job = SteadyJob::with_steps(100_000_000).submit(cluster.server(0));
    let (at, worker) = cluster.observer.wait_for("an owner", |_| {
        let owner = (0..HOSTS).find(|at| worker_processes(cluster.server(*at).pid()).len() == 1)?;
        Some((owner, worker_processes(cluster.server(owner).pid())[0]))
    });
    cluster.observer.wait_for_step(&job, 10);
    cluster.hosts.cut(at);
    let cut = Instant::now();
    let attempt = |server: &ServerProcess| server.job(&job)["attempt"].as_u64();
    cluster.observer.wait_for("the next attempt", |server| (attempt(server) == Some(2)).then_some(()));
    println!("the next attempt began {:.1} s after the cut", cut.elapsed().as_secs_f64());
    assert!(cut.elapsed() < TAKE_OVER_MAX, "{:?}", cut.elapsed());
    assert!(Path::new(&format!("/proc/{worker}")).exists(), "the worker computes on");
    cluster.hosts.heal(at);
    let healed = Instant::now();
    cluster
        .observer
        .wait_for("the worker's end", |_| worker_processes(cluster.server(at).pid()).is_empty().then_some(()));
    println!("the worker ended {:.1} s after the healing", healed.elapsed().as_secs_f64());
    assert!(healed.elapsed() < FENCED_END_MAX, "{:?}", healed.elapsed());
    let log = cluster.log(at);
    assert!(log.contains("attempt lost"), "{log}");
    assert_eq!(attempt(&cluster.observer), Some(2));
    cluster.observer.saggar_ok(&["stop", &job]);
    assert_eq!(cluster.observer.wait_for_job(&job)["state"], "CANCELLED");
}
