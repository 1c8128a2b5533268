//! Servers are restarted one after the other while clients send predictions and a worker trains: no request fails, and no
//! attempt ends.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use saggar_tests::s3::{MotoServer, s3_address, s3_variables};
use saggar_tests::workers::WorkerProcess;
use saggar_tests::{HttpPayload, PostgresServer, ServerProcess, SteadyJob, binary, create_key, lenet, request};
use serde_json::{Value, json};
use ureq::Agent;

/// Threads of clients, each with one request at a time.
const CLIENTS: u32 = 4;
/// How long the clients go as fast as they can, to find the rate.
const CALIBRATION_TIME: Duration = Duration::from_secs(2);
/// The share of that rate during the restarts.
const LOAD: f64 = 0.8;
/// Time from the removal of a server from the balancer until it gets SIGTERM, as in a rolling update of Kubernetes.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// Maximum time until a server has ended.
const END_TIME_MAX: Duration = Duration::from_secs(30);

/// The addresses of the servers that get requests.
type Balancer = Arc<Mutex<Vec<String>>>;

/// Clients that send predictions to the servers of a balancer in turn.
struct PredictionLoad {
    balancer: Balancer,
    /// Microseconds between two requests of a client; 0 for as fast as possible.
    pause_us: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl PredictionLoad {
    fn start(servers: &[ServerProcess], image: &Value) -> PredictionLoad {
        let balancer = Arc::new(Mutex::new(servers.iter().map(|server| server.url().to_owned()).collect()));
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let pause_us = Arc::new(AtomicU64::new(0));
        let mut load = PredictionLoad { balancer, pause_us, stop, answered, clients: Vec::new() };
        load.clients = (0..CLIENTS).map(|client| load.start_client(client, image.clone())).collect();
        load
    }

    fn start_client(&self, client: u32, body: Value) -> JoinHandle<Vec<String>> {
        let (balancer, pause_us) = (Arc::clone(&self.balancer), Arc::clone(&self.pause_us));
        let (stop, answered) = (Arc::clone(&self.stop), Arc::clone(&self.answered));
        std::thread::spawn(move || {
            let (mut turn, mut failures) = (client as usize, Vec::new());
            let agent = Agent::new_with_config(Agent::config_builder().http_status_as_error(false).build());
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                let url = {
                    let servers = balancer.lock().unwrap_or_else(PoisonError::into_inner);
                    turn += 1;
                    servers[turn % servers.len()].clone()
                };
                match request(&agent, "POST", &format!("{url}/models/net/predict"), HttpPayload::Json(&body)) {
                    Ok(answer) if answer.status == 200 => {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(answer) => failures.push(format!("{}: {}", answer.status, answer.text)),
                    Err(error) => failures.push(error.to_string()),
                }
                let pause = Duration::from_micros(pause_us.load(Ordering::Relaxed));
                std::thread::sleep(pause.saturating_sub(began.elapsed()));
            }
            failures
        })
    }

    fn servers(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.balancer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the rate of the clients, and reduces it to a share. Returns requests in a second.
    fn calibrate(&self, share: f64) -> f64 {
        let before = self.answered.load(Ordering::Relaxed);
        std::thread::sleep(CALIBRATION_TIME);
        let rate = (self.answered.load(Ordering::Relaxed) - before) as f64 / CALIBRATION_TIME.as_secs_f64() * share;
        self.pause_us.store((f64::from(CLIENTS) / rate * 1e6) as u64, Ordering::Relaxed);
        rate
    }

    /// Stops the clients, and returns the number of answers and the failures.
    fn stop(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        (self.answered.load(Ordering::Relaxed), failures)
    }
}

fn start_server(root: &Path, name: &str, database: &PostgresServer, store: &MotoServer) -> ServerProcess {
    let home = root.join(name);
    std::fs::create_dir_all(&home).unwrap();
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--jobs", "0", "--name", name, "--home"]);
    command.arg(&home).envs(s3_variables(store.port()));
    command.env("SAGGAR_DATABASE_URL", database.url()).env("SAGGAR_OBJECTS", s3_address("rolling"));
    ServerProcess::from_command(command, &home)
}

#[test]
fn servers_are_restarted_in_turn_without_a_failed_request_or_an_ended_attempt() {
    let (Some(database), Some(store)) = (PostgresServer::start(), MotoServer::start()) else { return };
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("a")).unwrap();
    let key = create_key(&root.path().join("a"), &["boss", "--scope", "admin,jobs:write,jobs:read"]);
    let mut servers: Vec<ServerProcess> =
        ["a", "b", "c"].map(|name| start_server(root.path(), name, &database, &store)).into();
    let home = root.path().join("worker");
    let worker = WorkerProcess::join(&servers[0], &key, &home, None, &["--slots", "2"]);
    servers[0].push_digits();
    let plugin = lenet();
    let train = ["run", plugin.to_str().unwrap(), "--data", "digits", "--wait", "--", "epochs=1", "model=net"];
    servers[0].saggar_ok(&train);
    servers.iter().for_each(|server| server.wait_for_version("net", 1));
    let job = SteadyJob::with_steps(100_000_000).submit(&servers[0]);
    servers[0].wait_for_step(&job, 5);

    let load = PredictionLoad::start(&servers, &json!({ "image": vec![[0; 8]; 8] }));
    let rate = load.calibrate(LOAD);
    for at in 0..servers.len() {
        let url = servers[at].url().to_owned();
        load.servers().retain(|server| *server != url);
        std::thread::sleep(DRAIN_TIME);
        servers[at].signal("-TERM");
        let ended = servers.remove(at).wait_for_exit(END_TIME_MAX).unwrap();
        assert!(ended.success(), "{ended}");
        let server = start_server(root.path(), ["a", "b", "c"][at], &database, &store);
        server.wait_for("readiness", |server| {
            (server.request("GET", "/readyz", HttpPayload::Nothing).status == 200).then_some(())
        });
        server.wait_for_version("net", 1);
        load.servers().push(server.url().to_owned());
        servers.insert(at, server);
    }
    let (answered, failures) = load.stop();
    println!("{answered} predictions at {rate:.0} a second; {} failed", failures.len());
    assert!(failures.is_empty(), "{}: {}", failures.len(), failures[0]);
    assert!(answered > 100, "{answered}");
    let after = servers[0].job(&job);
    assert_eq!((&after["attempt"], &after["state"]), (&json!(1), &json!("RUNNING")), "{after}");
    assert!(worker.log().contains("gave its settings"), "{}", worker.log());
    servers[1].saggar_ok(&["stop", &job]);
    assert_eq!(servers[2].wait_for_job(&job)["state"], "CANCELLED");
}
