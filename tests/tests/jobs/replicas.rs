//! Trainings with several worker processes: bit-identical to one process, whatever happens to any of them.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use saggar_tests::{HttpPayload, ServerProcess, kill_9, plugin, worker_processes};
use serde_json::{Value, json};

/// The results of a training that must not depend on how it was run.
#[derive(Debug, PartialEq)]
struct ReplicaTrace {
    /// SHA-256 of all variables by step, including optimizer moments. A checkpoint can be saved twice.
    checkpoints: BTreeMap<u64, String>,
    /// Every value of every series, by name and step.
    metrics: BTreeMap<(String, u64), String>,
    /// SHA-256 of the published weights.
    weights: String,
}

fn collect_trace(server: &ServerProcess, job: &str, model: &str) -> ReplicaTrace {
    let log = server.saggar_ok(&["logs", job]);
    let checkpoint = |line: &str| {
        let (step, rest) = line.split_once("checkpoint @")?.1.split_once(" saved (")?;
        Some((step.parse().ok()?, rest.split_once("sha256 ")?.1.trim_end_matches([')', '\n']).to_owned()))
    };
    let mut checkpoints = BTreeMap::new();
    for (step, digest) in log.lines().filter_map(checkpoint) {
        let before = checkpoints.insert(step, digest.clone());
        assert!(before.is_none_or(|before| before == digest), "two states at step {step}: {log}");
    }
    let all = server.get(&format!("/api/v1/jobs/{job}/metrics"));
    let mut metrics = BTreeMap::new();
    for series in all["series"].as_array().unwrap_or_else(|| panic!("{all}")) {
        for point in series["points"].as_array().unwrap() {
            let key = (series["name"].as_str().unwrap().to_owned(), point[0].as_u64().unwrap());
            assert!(metrics.insert(key, point[1].to_string()).is_none(), "{point} comes twice");
        }
    }
    ReplicaTrace { checkpoints, metrics, weights: server.weights_digest(model) }
}

/// A training to run.
struct ReplicaRun {
    component: PathBuf,
    data: &'static str,
    model: String,
    arguments: Vec<String>,
    parameters: Vec<String>,
}

impl ReplicaRun {
    fn mlp(model: &str, replicas: u32, shards: u32, epochs: u32) -> ReplicaRun {
        let arguments =
            ["--replicas", &replicas.to_string(), "--shards", &shards.to_string()].map(str::to_owned).to_vec();
        let parameters = ["--unit", "24", "--batch", "100", "--epochs", &epochs.to_string(), "--model", model];
        let parameters = parameters.map(str::to_owned).to_vec();
        ReplicaRun { component: plugin("mlp"), data: "digits", model: model.to_owned(), arguments, parameters }
    }

    /// Returns a network with dropout, in mixed precision, with gradients accumulated over two batches and clipped, and
    /// averaged weights.
    fn char_lm(model: &str, replicas: u32) -> ReplicaRun {
        let network = ["context=16", "layers=1", "heads=2", "width=16", "dropout=0.2", "half=true"];
        let training = ["epochs=1", "batch=8", "accumulate=2", "average=0.9", "warmup=5"];
        let parameters = network.into_iter().chain(training).map(str::to_owned);
        ReplicaRun {
            component: plugin("char-lm"),
            data: "text",
            parameters: parameters.chain([format!("model={model}")]).collect(),
            ..ReplicaRun::mlp(model, replicas, 2, 1)
        }
    }

    fn submit(&self, server: &ServerProcess) -> String {
        let component = self.component.to_str().unwrap();
        let run = ["run", component, "--data", self.data, "--device", "cpu", "--seed", "5"];
        let every = ["--retry", "100", "--checkpoint-every", "10steps"];
        let arguments = self.arguments.iter().map(String::as_str).chain(["--"]);
        let words: Vec<&str> =
            run.into_iter().chain(every).chain(arguments).chain(self.parameters.iter().map(String::as_str)).collect();
        server.saggar_ok(&words).trim().to_owned()
    }

    /// Runs it to its end.
    fn run_and_trace(&self, server: &ServerProcess) -> ReplicaTrace {
        let job = self.submit(server);
        let ended = server.wait_for_job(&job);
        assert_eq!(ended["state"], "SUCCEEDED", "{ended}\n{}", server.saggar_ok(&["logs", &job]));
        collect_trace(server, &job, &self.model)
    }
}

fn server(home: &std::path::Path) -> ServerProcess {
    let server = ServerProcess::start(home);
    server.push_digits();
    server
}

#[test]
fn two_processes_are_bit_identical_to_two_micro_batches() {
    let home = tempfile::tempdir().unwrap();
    let server = server(home.path());
    let alone = ReplicaRun::mlp("one-two", 1, 2, 3).run_and_trace(&server);
    assert_eq!(alone.checkpoints.keys().copied().collect::<Vec<_>>(), [10, 24, 38], "{alone:?}");
    assert!(alone.metrics.keys().any(|(name, _)| name == "validation/accuracy"), "{alone:?}");
    assert_eq!(ReplicaRun::mlp("two-two", 2, 2, 3).run_and_trace(&server), alone);
    let four = ReplicaRun::mlp("one-four", 1, 4, 3).run_and_trace(&server);
    assert_ne!(four.checkpoints, alone.checkpoints, "other sums have other bits");
    assert_eq!(ReplicaRun::mlp("two-four", 2, 4, 3).run_and_trace(&server), four);
    assert_eq!(ReplicaRun::mlp("four-four", 4, 4, 3).run_and_trace(&server), four);

    let log = server.saggar_ok(&["logs", "mlp-2"]);
    assert!(log.contains("processes: 2, device: cpu, communicator: sockets"), "{log}");
    assert!(log.contains("units: 24, batch: 100, epochs: 3"), "{log}");
    let metrics = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    // Two with two replicas and one with four, of three epochs of 14 steps.
    assert!(metrics.contains("saggar_allreduce_seconds_count 126"), "{metrics}");
    assert!(worker_processes(server.pid()).is_empty(), "no worker is left");
}

#[test]
fn a_killed_rank_resumes_bit_identically() {
    const KILLS: usize = 4;
    const EPOCHS: u32 = 600;
    let home = tempfile::tempdir().unwrap();
    let server = server(home.path());
    let calm = ReplicaRun::mlp("calm", 2, 2, EPOCHS).run_and_trace(&server);

    let shaken = ReplicaRun::mlp("shaken", 2, 2, EPOCHS);
    let job = shaken.submit(&server);
    let mut kills = 0;
    while kills < KILLS {
        let found = server.wait_for("both worker processes, some steps on", |server| {
            let state = server.get(&format!("/api/v1/jobs/{job}"));
            assert!(state["state"] != "SUCCEEDED" && state["state"] != "FAILED", "over after {kills} kills: {state}");
            let [leader] = worker_processes(server.pid())[..] else { return None };
            let [other] = worker_processes(leader)[..] else { return None };
            // Wait for an attempt that has continued from where the previous one was killed.
            let on = (state["attempt"].as_u64(), state["step"].as_u64().unwrap_or(0) as usize);
            (on.0 == Some(kills as u64 + 1) && on.1 > kills * 60).then_some([leader, other])
        });
        assert!(kill_9(found[kills % 2]), "{found:?}");
        kills += 1;
        server.wait_for("the other's end", |_| {
            found.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
        });
    }
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    assert_eq!(ended["attempt"].as_u64(), Some(KILLS as u64 + 1), "{ended}");
    let mut trace = collect_trace(&server, &job, &shaken.model);
    // A kill between the saving of a checkpoint and its line in the log loses the line, not the checkpoint.
    let unlogged: Vec<u64> =
        calm.checkpoints.keys().filter(|step| !trace.checkpoints.contains_key(step)).copied().collect();
    assert!(unlogged.len() <= KILLS, "{unlogged:?}");
    trace.checkpoints.extend(unlogged.iter().map(|step| (*step, calm.checkpoints[step].clone())));
    assert_eq!(trace, calm);
    assert!(worker_processes(server.pid()).is_empty(), "no worker is left");
    let reasons = server.get(&format!("/api/v1/jobs/{job}"));
    let reasons: Vec<&Value> =
        reasons["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["reason"]).collect();
    assert!(reasons[..KILLS].iter().all(|reason| **reason == json!("WORKER_LOST")), "{reasons:?}");
}

#[test]
fn preempted_ranks_resume_bit_identically() {
    const EPOCHS: u32 = 200;
    let home = tempfile::tempdir().unwrap();
    let server = server(home.path());
    let calm = ReplicaRun::mlp("calm", 1, 2, EPOCHS).run_and_trace(&server);
    let shaken = ReplicaRun::mlp("shaken", 2, 2, EPOCHS);
    let job = shaken.submit(&server);
    for preemptions in 0..3 {
        server.wait_for("some steps", |server| {
            let job = server.get(&format!("/api/v1/jobs/{job}"));
            let on = job["state"] == "RUNNING" && job["attempt"].as_u64() == Some(preemptions + 1);
            (on && job["step"].as_u64() > Some(100 * (preemptions + 1))).then_some(())
        });
        let path = format!("/api/v1/jobs/{job}/preempt");
        assert_eq!(server.request("POST", &path, HttpPayload::Nothing).status, 200);
    }
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("SUCCEEDED"), &json!(4)), "{ended}");
    let found = collect_trace(&server, &job, &shaken.model);
    assert_eq!((found.metrics, found.weights), (calm.metrics, calm.weights));
    // A preempted job saves a checkpoint at its current step, so the steps of checkpoints differ. Checkpoints of the
    // same step are equal.
    let alike = found.checkpoints.iter().filter(|(step, _)| calm.checkpoints.contains_key(step));
    assert!(alike.clone().count() > 0, "{:?}", found.checkpoints);
    assert!(alike.into_iter().all(|(step, digest)| calm.checkpoints[step] == *digest), "{:?}", found.checkpoints);
}

#[test]
fn random_numbers_depend_on_micro_batches_and_not_on_processes() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let text = tempfile::tempdir().unwrap();
    let words: String = (0..600).map(|number: u32| format!("{} ", number * number)).collect();
    std::fs::write(text.path().join("text.txt"), words).unwrap();
    server.saggar_ok(&["data", "push", text.path().to_str().unwrap(), "--name", "text"]);
    let alone = ReplicaRun::char_lm("alone", 1).run_and_trace(&server);
    assert!(alone.checkpoints.len() > 1, "{alone:?}");
    assert_eq!(ReplicaRun::char_lm("together", 2).run_and_trace(&server), alone);
}

#[test]
fn an_indivisible_batch_is_refused_with_the_numbers() {
    let home = tempfile::tempdir().unwrap();
    let server = server(home.path());
    let job = ReplicaRun::mlp("odd", 1, 3, 1).submit(&server);
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "FAILED", "{ended}");
    let message = ended["message"].as_str().unwrap();
    assert!(message.contains("a batch of 100 items cannot be divided into 3 equal shards"), "{message}");
}
