//! Servers and workers on several machines, which network namespaces stand for: they share a database and a bucket, are
//! killed at random and cut off, and every job is still done once, with the weights of a calm run.
//!
//! `make cluster` runs a long form: `SAGGAR_CLUSTER_JOBS` is the number of trainings, and `SAGGAR_CLUSTER_CUT_SECONDS` how
//! long a host is cut off.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use saggar_tests::workers::WorkerProcess;
use saggar_tests::{NetworkCluster, ServerProcess, SteadyJob, binary, lenet, worker_processes};
use serde_json::Value;

/// Hosts with servers; workers are on those that follow.
const SERVERS: u8 = 3;
const HOSTS: u8 = 6;
/// Different trainings; the others repeat them.
const SEEDS: u64 = 3;
/// Between two losses of a host.
const LOSS_INTERVAL: Duration = Duration::from_secs(5);
/// How long a killed process is gone: mostly it is back before its leases end, and sometimes another one takes its jobs.
const KILLED_TIME: [Duration; 4] =
    [Duration::from_secs(2), Duration::from_secs(1), Duration::from_secs(20), Duration::from_secs(2)];
/// How long a host is cut off, unless `SAGGAR_CLUSTER_CUT_SECONDS` says otherwise.
const CUT_SECONDS: u64 = 25;
/// Each fifth loss is a cut.
const CUT_PERIOD: u64 = 5;
/// Time from the end of an owner until another host can have the job: a lease, and two looks.
const TAKE_OVER_MAX: Duration = Duration::from_secs(25);
/// Time from the healing of a connection until a worker that lost its job has ended.
const FENCED_END_MAX: Duration = Duration::from_secs(15);

/// A process that runs jobs.
#[derive(Debug)]
enum JobHost {
    Server(ServerProcess),
    Worker(WorkerProcess),
}

impl JobHost {
    fn pid(&self) -> u32 {
        match self {
            JobHost::Server(server) => server.pid(),
            JobHost::Worker(worker) => worker.pid(),
        }
    }

    fn kill_and_wait(self) {
        match self {
            JobHost::Server(server) => server.kill_and_wait(),
            JobHost::Worker(worker) => worker.kill_and_wait(),
        }
    }
}

/// Servers and workers on hosts.
struct TestCluster {
    hosts: Vec<Option<JobHost>>,
    shared: NetworkCluster,
}

impl TestCluster {
    /// Returns `None` in the cases of [`NetworkCluster::start`].
    fn start() -> Option<TestCluster> {
        let mut cluster = TestCluster { hosts: Vec::new(), shared: NetworkCluster::start(HOSTS)? };
        cluster.hosts = (0..HOSTS).map(|at| Some(cluster.start_host(at))).collect();
        Some(cluster)
    }

    fn start_host(&self, at: u8) -> JobHost {
        if at >= SERVERS {
            return JobHost::Worker(self.shared.start_worker(at));
        }
        let NetworkCluster { network, variables, key, .. } = &self.shared;
        let home = self.shared.home(at);
        let mut command = network.command(at, &binary());
        command.args(["serve", "--device", "cpu", "--addr", &format!("{}:0", network.address(at))]);
        command.args(["--name", &format!("host-{at}"), "--home"]).arg(&home).envs(variables.clone());
        JobHost::Server(ServerProcess::from_command(command, &home).with_key(key))
    }

    /// Kills the process of a host, and starts it again after a while.
    fn kill(&mut self, at: u8, absence: Duration) {
        self.hosts[usize::from(at)].take().expect("it runs").kill_and_wait();
        std::thread::sleep(absence);
        self.hosts[usize::from(at)] = Some(self.start_host(at));
    }

    /// Returns the process of the attempt that runs on a host.
    fn attempt_on(&self, at: u8) -> Option<u32> {
        worker_processes(self.hosts[usize::from(at)].as_ref()?.pid()).first().copied()
    }

    fn log(&self, at: u8) -> String {
        let file = if at < SERVERS { "server.log" } else { "worker.log" };
        std::fs::read_to_string(self.shared.home(at).join(file)).unwrap_or_default()
    }

    fn train(&self, model: &str, seed: u64) -> String {
        let (plugin, model, seed) = (lenet(), format!("model={model}"), seed.to_string());
        let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", &seed];
        let rest = ["--checkpoint-every", "20steps", "--", "epochs=30", &model];
        self.shared.observer.saggar_ok(&[&run[..], &rest].concat()).trim().to_owned()
    }
}

fn unix_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// An event of a job.
struct ClusterEvent {
    at_ms: u64,
    kind: String,
    text: String,
}

fn events(server: &ServerProcess, job: &str) -> Vec<ClusterEvent> {
    let answer = server.get(&format!("/api/v1/jobs/{job}/events"));
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let event = |event: &Value| ClusterEvent {
        at_ms: event["at_ms"].as_u64().unwrap(),
        kind: text(event, "kind"),
        text: text(event, "text"),
    };
    answer["events"].as_array().unwrap().iter().map(event).collect()
}

/// The times after the loss of a host that ran a job.
struct LossTimes {
    /// Until the job was queued again, so that another host with a free slot could have it.
    idle: Duration,
    /// Until it trained again.
    training: Option<Duration>,
}

/// Returns the times after each loss of a host that a job ran on.
fn loss_times(events: &[ClusterEvent], losses: &[(u64, u8)]) -> Vec<LossTimes> {
    let owned: Vec<&ClusterEvent> =
        events.iter().filter(|event| matches!(event.kind.as_str(), "CLAIMED" | "QUEUED")).collect();
    let times = |pair: &[&ClusterEvent]| {
        let (claimed, queued) = (pair[0], pair[1]);
        let ran_there = |host: u8| claimed.kind == "CLAIMED" && claimed.text.ends_with(&format!(" host-{host}"));
        let loss = losses.iter().find(|(at, host)| ran_there(*host) && (claimed.at_ms..=queued.at_ms).contains(at))?;
        let since = |event: &ClusterEvent| Duration::from_millis(event.at_ms - loss.0);
        let running = events.iter().find(|event| event.at_ms >= queued.at_ms && event.kind == "RUNNING");
        Some(LossTimes { idle: since(queued), training: running.map(since) })
    };
    owned.windows(2).filter_map(times).collect()
}

#[test]
fn every_job_is_done_once_although_hosts_are_killed_and_cut_off() {
    let Some(mut cluster) = TestCluster::start() else { return };
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let jobs = number("SAGGAR_CLUSTER_JOBS", 6);
    let cut_time = Duration::from_secs(number("SAGGAR_CLUSTER_CUT_SECONDS", CUT_SECONDS));
    cluster.shared.observer.push_digits();
    let calm: Vec<String> = (0..SEEDS).map(|seed| cluster.train(&format!("calm{seed}"), seed)).collect();
    for job in &calm {
        assert_eq!(cluster.shared.observer.wait_for_job(job)["state"], "SUCCEEDED");
    }
    let trainings: BTreeMap<u64, String> =
        (0..jobs).map(|at| (at, cluster.train(&format!("shaken{at}"), at % SEEDS))).collect();
    let (mut losses, mut round, began) = (Vec::new(), 0_u64, Instant::now());
    let is_over = |cluster: &TestCluster, job: &String| cluster.shared.observer.job(job)["finished_ms"].is_u64();
    while !trainings.values().all(|job| is_over(&cluster, job)) {
        assert!(began.elapsed() < Duration::from_secs(60 * (5 + jobs)), "the jobs do not end");
        // A fixed sequence, in which each host is met after each other one.
        let at = u8::try_from((round * 7 + round / 6) % u64::from(HOSTS)).unwrap();
        losses.push((unix_ms(), at));
        if round % CUT_PERIOD == 1 {
            cluster.shared.network.cut(at);
            std::thread::sleep(cut_time);
            cluster.shared.network.heal(at);
        } else {
            cluster.kill(at, KILLED_TIME[round as usize % KILLED_TIME.len()]);
        }
        round += 1;
        std::thread::sleep(LOSS_INTERVAL);
    }
    let (mut times, mut attempts) = (Vec::new(), 0);
    for (at, job) in &trainings {
        let document = cluster.shared.observer.job(job);
        assert_eq!(document["state"], "SUCCEEDED", "{document}");
        attempts += document["attempt"].as_u64().unwrap();
        let (calm, shaken) = (format!("calm{}", at % SEEDS), format!("shaken{at}"));
        let digest = cluster.shared.observer.weights_digest(&shaken);
        assert_eq!(digest, cluster.shared.observer.weights_digest(&calm), "{job}");
        let versions = cluster.shared.observer.get(&format!("/api/v1/models/{shaken}"))["versions"].clone();
        assert_eq!(versions.as_array().unwrap().len(), 1, "published once: {versions}");
        times.extend(loss_times(&events(&cluster.shared.observer, job), &losses));
    }
    let mut idle: Vec<Duration> = times.iter().map(|times| times.idle).collect();
    let mut training: Vec<Duration> = times.iter().filter_map(|times| times.training).collect();
    idle.sort();
    training.sort();
    let longest = idle.last().copied().unwrap_or_default();
    let usual = training.get((training.len() * 95 / 100).min(training.len().saturating_sub(1)));
    println!(
        "{jobs} jobs in {:.0} s and {attempts} attempts; {} losses of a host, {} of a running job; idle at most {:.1} s; \
         95 of 100 train again within {:.1} s",
        began.elapsed().as_secs_f64(),
        losses.len(),
        idle.len(),
        longest.as_secs_f64(),
        usual.copied().unwrap_or_default().as_secs_f64()
    );
    assert!(!idle.is_empty(), "no host was lost while it ran a job");
    assert!(longest < TAKE_OVER_MAX, "{idle:?}");
}

#[test]
fn the_worker_of_a_host_that_was_cut_off_ends_and_changes_nothing() {
    let Some(cluster) = TestCluster::start() else { return };
    let job = SteadyJob::with_steps(100_000_000).submit(&cluster.shared.observer);
    let (at, attempt) = cluster
        .shared
        .observer
        .wait_for("an owner", |_| (0..HOSTS).find_map(|at| cluster.attempt_on(at).map(|attempt| (at, attempt))));
    cluster.shared.observer.wait_for_step(&job, 10);
    cluster.shared.network.cut(at);
    let cut = Instant::now();
    let number = |server: &ServerProcess| server.job(&job)["attempt"].as_u64();
    cluster.shared.observer.wait_for("the next attempt", |server| (number(server) == Some(2)).then_some(()));
    println!("the next attempt began {:.1} s after the cut", cut.elapsed().as_secs_f64());
    assert!(cut.elapsed() < TAKE_OVER_MAX, "{:?}", cut.elapsed());
    let process = format!("/proc/{attempt}");
    assert!(Path::new(&process).exists(), "the attempt computes on");
    cluster.shared.network.heal(at);
    let healed = Instant::now();
    cluster.shared.observer.wait_for("the attempt's end", |_| cluster.attempt_on(at).is_none().then_some(()));
    println!("the attempt ended {:.1} s after the healing", healed.elapsed().as_secs_f64());
    assert!(healed.elapsed() < FENCED_END_MAX, "{:?}", healed.elapsed());
    // Its supervisor is refused too.
    cluster.shared.observer.wait_for("the refusal", |_| cluster.log(at).contains("attempt lost").then_some(()));
    assert_eq!(number(&cluster.shared.observer), Some(2));
    cluster.shared.observer.saggar_ok(&["stop", &job]);
    assert_eq!(cluster.shared.observer.wait_for_job(&job)["state"], "CANCELLED");
}
