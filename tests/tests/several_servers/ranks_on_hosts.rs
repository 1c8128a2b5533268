//! Trainings whose ranks are on several hosts, which network namespaces stand for: the weights are those of one host, also
//! after a rank, a host or the network between two hosts was lost, and no host keeps a rank of an attempt that is over.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use saggar_tests::workers::WorkerProcess;
use saggar_tests::{NetworkCluster, ServerProcess, kill_9, plugin, worker_processes};
use serde_json::{Value, json};

const HOSTS: u8 = 2;
/// Time from the loss of its leader, or of the network, until a rank has ended.
const RANK_END_MAX: Duration = Duration::from_secs(15);
/// Epochs of a training that takes long enough to be disturbed.
const EPOCHS: u32 = 400;

/// Workers on hosts.
struct RankCluster {
    hosts: Vec<Option<WorkerProcess>>,
    shared: NetworkCluster,
}

impl RankCluster {
    /// Returns `None` in the cases of [`NetworkCluster::start`].
    fn start() -> Option<RankCluster> {
        let mut cluster = RankCluster { hosts: Vec::new(), shared: NetworkCluster::start(HOSTS)? };
        cluster.shared.observer.push_digits();
        cluster.hosts = (0..HOSTS).map(|at| Some(cluster.shared.start_worker(at))).collect();
        cluster.wait_until_ready();
        Some(cluster)
    }

    fn wait_until_ready(&self) {
        self.shared.observer.wait_for("the workers", |server| {
            let listed: Value = serde_json::from_str(&server.saggar_ok(&["ps", "--workers", "--json"])).unwrap();
            let ready = listed.as_array().unwrap().iter().filter(|worker| worker["state"] == "READY").count();
            (ready == usize::from(HOSTS) + 1).then_some(())
        });
    }

    fn train(&self, model: &str, epochs: u32, options: &[&str]) -> String {
        let (component, epochs) = (plugin("mlp"), epochs.to_string());
        let run = ["run", component.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "5"];
        let every = ["--retry", "100", "--checkpoint-every", "10steps"];
        let parameters = ["--", "--unit", "24", "--batch", "100", "--epochs", &epochs, "--model", model];
        self.shared.observer.saggar_ok(&[&run[..], &every, options, &parameters].concat()).trim().to_owned()
    }

    fn train_on_hosts(&self, model: &str, epochs: u32) -> String {
        self.train(model, epochs, &["--replicas", "2", "--shards", "2", "--hosts", "2"])
    }

    /// Waits for the end of a job and returns the digest of the weights that it published.
    fn weights(&self, job: &str, model: &str) -> String {
        let ended = self.shared.observer.wait_for_job(job);
        assert_eq!(
            ended["state"],
            "SUCCEEDED",
            "{ended}\n{}\n{}",
            self.shared.observer.saggar_ok(&["logs", job]),
            self.logs()
        );
        self.shared.observer.weights_digest(model)
    }

    fn logs(&self) -> String {
        self.hosts.iter().flatten().map(WorkerProcess::log).collect()
    }

    /// Waits until an attempt of a job has done some steps since its beginning. Returns its hosts, the leader first.
    fn wait_for_attempt(&self, job: &str, attempt: u64) -> [u8; 2] {
        self.shared.observer.wait_for("steps of the attempt", |server| {
            let document = server.job(job);
            assert!(document["finished_ms"].is_null(), "it is over too soon: {document}");
            let newest = document["attempts"].as_array()?.last()?;
            let did = newest["last_step"].as_u64()? > newest["first_step"].as_u64()? + 20;
            let host = |at: usize| newest["hosts"][at].as_str()?.strip_prefix("host-")?.parse().ok();
            (newest["number"] == json!(attempt) && did).then(|| Some([host(0)?, host(1)?]))?
        })
    }

    /// Returns the processes of attempts on a host.
    fn ranks_on(&self, at: u8) -> Vec<u32> {
        self.hosts[usize::from(at)].as_ref().map(|host| worker_processes(host.pid())).unwrap_or_default()
    }
}

fn wait_for_end(server: &ServerProcess, processes: &[u32]) {
    server.wait_for("the end of the ranks", |_| {
        processes.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
}

#[test]
fn ranks_on_two_hosts_compute_the_weights_of_one_host() {
    let Some(cluster) = RankCluster::start() else { return };
    let alone = cluster.train("alone", 3, &["--shards", "2"]);
    let together = cluster.train("together", 3, &["--replicas", "2", "--shards", "2"]);
    let alone = cluster.weights(&alone, "alone");
    assert_eq!(cluster.weights(&together, "together"), alone);
    // Two jobs that both need both hosts run one after the other.
    let jobs = ["apart", "again"].map(|model| (cluster.train_on_hosts(model, 3), model));
    for (job, model) in &jobs {
        assert_eq!(cluster.weights(job, model), alone);
        let document = cluster.shared.observer.job(job);
        let attempts = document["attempts"].as_array().unwrap();
        let mut hosts: Vec<_> =
            attempts[0]["hosts"].as_array().unwrap().iter().map(|host| host.as_str().unwrap()).collect();
        hosts.sort_unstable();
        assert_eq!((attempts.len(), hosts), (1, vec!["host-0", "host-1"]), "{document}");
    }
    let log = cluster.shared.observer.saggar_ok(&["logs", &jobs[0].0]);
    assert!(log.contains("processes: 2 on 2 hosts, device: cpu, communicator: TLS between hosts"), "{log}");
    let described = cluster.shared.observer.saggar_ok(&["status", &jobs[0].0]);
    assert!(described.contains("host-0") && described.contains("host-1"), "{described}");
    println!("{described}");
    // A job that needs more hosts than there are says so.
    let job = cluster.train("never", 1, &["--replicas", "3", "--hosts", "3"]);
    let document = cluster
        .shared
        .observer
        .wait_for("a reason", |server| Some(server.job(&job)).filter(|job| job["reason"] == "NO_MATCHING_HOST"));
    let message = document["message"].as_str().unwrap();
    assert!(
        message.starts_with("it needs 3 hosts with 1 slot of pool any each; 2 hosts fit: host-0, host-1"),
        "{message}"
    );
}

#[test]
fn the_loss_of_a_rank_or_a_host_costs_no_bit() {
    let Some(mut cluster) = RankCluster::start() else { return };
    let calm = cluster.train("calm", EPOCHS, &["--shards", "2"]);
    let calm = cluster.weights(&calm, "calm");
    let job = cluster.train_on_hosts("shaken", EPOCHS);
    // The process of rank 1.
    let [leader, follower] = cluster.wait_for_attempt(&job, 1);
    let ranks = [cluster.ranks_on(leader), cluster.ranks_on(follower)];
    assert_eq!(ranks.each_ref().map(Vec::len), [1, 1]);
    let lost = Instant::now();
    assert!(kill_9(ranks[1][0]));
    wait_for_end(&cluster.shared.observer, &ranks.concat());
    println!("rank 0 ended {:.1} s after rank 1", lost.elapsed().as_secs_f64());
    assert!(lost.elapsed() < RANK_END_MAX, "{:?}", lost.elapsed());
    // The host of rank 1, whose rank has to end with it.
    let [leader, follower] = cluster.wait_for_attempt(&job, 2);
    let ranks = [cluster.ranks_on(leader), cluster.ranks_on(follower)].concat();
    let lost = Instant::now();
    cluster.hosts[usize::from(follower)].take().unwrap().kill_and_wait();
    wait_for_end(&cluster.shared.observer, &ranks);
    println!("all ranks ended {:.1} s after the host of rank 1", lost.elapsed().as_secs_f64());
    assert!(lost.elapsed() < RANK_END_MAX, "{:?}", lost.elapsed());
    cluster.hosts[usize::from(follower)] = Some(cluster.shared.start_worker(follower));
    // The host of rank 0, whose job is taken away when its lease is over.
    let attempt = cluster.shared.observer.wait_for("the next attempt", |server| {
        let attempts = server.job(&job)["attempts"].clone();
        let newest = attempts.as_array()?.last()?;
        let did = newest["last_step"].as_u64()? > newest["first_step"].as_u64()? + 20;
        newest["number"].as_u64().filter(|number| *number > 2 && did)
    });
    let [leader, follower] = cluster.wait_for_attempt(&job, attempt);
    let ranks = [cluster.ranks_on(leader), cluster.ranks_on(follower)].concat();
    let lost = Instant::now();
    cluster.hosts[usize::from(leader)].take().unwrap().kill_and_wait();
    wait_for_end(&cluster.shared.observer, &ranks);
    println!("all ranks ended {:.1} s after the host of rank 0", lost.elapsed().as_secs_f64());
    assert!(lost.elapsed() < RANK_END_MAX, "{:?}", lost.elapsed());
    cluster.hosts[usize::from(leader)] = Some(cluster.shared.start_worker(leader));
    assert_eq!(cluster.weights(&job, "shaken"), calm);
    let attempts = cluster.shared.observer.job(&job)["attempts"].clone();
    assert!(attempts.as_array().unwrap().len() >= 4, "{attempts}");
    println!(
        "{}",
        attempts.as_array().unwrap().iter().map(|attempt| attempt["message"].to_string() + "\n").collect::<String>()
    );
}

#[test]
fn a_cut_network_ends_both_sides_and_costs_no_bit() {
    let Some(cluster) = RankCluster::start() else { return };
    let calm = cluster.train("calm", EPOCHS, &["--shards", "2"]);
    let calm = cluster.weights(&calm, "calm");
    let job = cluster.train_on_hosts("cut", EPOCHS);
    let [leader, follower] = cluster.wait_for_attempt(&job, 1);
    let ranks = [cluster.ranks_on(leader), cluster.ranks_on(follower)].concat();
    assert_eq!(ranks.len(), 2);
    cluster.shared.network.cut(follower);
    let cut = Instant::now();
    wait_for_end(&cluster.shared.observer, &ranks);
    println!("both ranks ended {:.1} s after the cut", cut.elapsed().as_secs_f64());
    assert!(cut.elapsed() < RANK_END_MAX, "{:?}", cut.elapsed());
    // The job waits for its second host and holds no slots.
    let waiting = cluster.shared.observer.wait_for("the reason", |server| {
        Some(server.job(&job)).filter(|job| job["state"] == "QUEUED" && job["reason"] == "NO_MATCHING_HOST")
    });
    println!("{}", waiting["message"]);
    cluster.shared.network.heal(follower);
    assert_eq!(cluster.weights(&job, "cut"), calm);
}

#[test]
fn strangers_on_the_port_of_the_ranks_are_refused_and_do_not_disturb() {
    let Some(cluster) = RankCluster::start() else { return };
    // The second host is asleep, so rank 0 waits for it, and the port stays open.
    let asleep = cluster.hosts[1].as_ref().unwrap();
    asleep.signal("-STOP");
    let job = cluster.train_on_hosts("scanned", 3);
    let address = cluster.shared.observer.wait_for("the port", |server| {
        let log = server.saggar_ok(&["logs", &job]);
        let (_, rest) = log.split_once("rank 0 waits at ")?;
        rest.split_once(" for the ranks").map(|(address, _)| address.to_owned())
    });
    assert!(address.starts_with(&format!("{}:", cluster.shared.network.address(0))), "{address}");
    let mut strangers = Vec::new();
    for _ in 0..200 {
        let mut stranger = TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(10)).unwrap();
        let _ = stranger.write_all(b"GET / HTTP/1.1\r\n\r\n");
        strangers.push(stranger);
        strangers.push(TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(10)).unwrap());
    }
    asleep.signal("-CONT");
    let ended = cluster.shared.observer.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("SUCCEEDED"), &json!(1)), "{ended}");
    let log = cluster.shared.observer.saggar_ok(&["logs", &job]);
    let refusals = log.lines().filter(|line| line.contains("to the port of the ranks was refused")).count();
    assert!((1..=16).contains(&refusals), "{log}");
    drop(strangers);
}

#[test]
fn a_drained_host_gives_its_part_of_a_job_back_with_the_state_saved() {
    let Some(mut cluster) = RankCluster::start() else { return };
    let job = cluster.train_on_hosts("drained", 10 * EPOCHS);
    let [_, follower] = cluster.wait_for_attempt(&job, 1);
    cluster.shared.observer.saggar_ok(&["worker", "drain", &format!("host-{follower}")]);
    let drained = cluster.hosts[usize::from(follower)].take().unwrap();
    assert!(drained.wait_for_exit(RANK_END_MAX * 2).unwrap().success());
    let document = cluster.shared.observer.wait_for("the reason", |server| {
        Some(server.job(&job)).filter(|job| job["state"] == "QUEUED" && job["reason"] == "NO_MATCHING_HOST")
    });
    let attempt = &document["attempts"][0];
    assert_eq!(attempt["reason"], "HOST_SHUTDOWN", "{attempt}");
    let newest = cluster.shared.observer.checkpoints(&job).into_iter().map(|(step, _)| step).max();
    assert_eq!(newest, attempt["last_step"].as_u64(), "the state was saved where it stopped: {attempt}");
    cluster.shared.observer.saggar_ok(&["stop", &job]);
    assert_eq!(cluster.shared.observer.wait_for_job(&job)["state"], "CANCELLED");
}
