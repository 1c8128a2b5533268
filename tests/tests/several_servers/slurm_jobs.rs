//! A pool of Slurm: a server submits a batch job for each attempt, whose worker trains; the loss of a node and a preemption
//! cost no result.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::process::Command;
use std::time::{Duration, Instant};

use saggar_tests::s3::{MotoServer, s3_address, s3_variables};
use saggar_tests::slurm::SlurmCluster;
use saggar_tests::{PostgresServer, ServerProcess, SteadyJob, binary, create_key, lenet, plugin, processes_of};
use tempfile::TempDir;

/// Time from the loss of a node until the next attempt runs.
const RESUME_MAX: Duration = Duration::from_secs(45);

/// A server with a pool of Slurm.
struct SlurmPool {
    server: ServerProcess,
    slurm: SlurmCluster,
    directory: TempDir,
    _store: MotoServer,
    _database: PostgresServer,
}

impl SlurmPool {
    /// Returns `None` if something that it needs is not installed and not required.
    fn start() -> Option<SlurmPool> {
        let (database, store, slurm) = (PostgresServer::start()?, MotoServer::start()?, SlurmCluster::start()?);
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("server");
        std::fs::create_dir_all(&home).unwrap();
        let workers = directory.path().join("workers");
        let settings = format!(
            "manifest = 1\n[project]\nname = \"steady\"\n[pool.cluster]\nslots = 4\n\
             [pool.cluster.slurm]\npartition = \"spot\"\ncpus = \"2\"\nhome = \"{}\"\n\
             [queue.cluster]\npools = [\"cluster\"]\n",
            workers.display()
        );
        std::fs::write(home.join("saggar.toml"), settings).unwrap();
        let key = create_key(&home, &["boss", "--scope", "admin,jobs:write,jobs:read,models:write"]);
        let mut command = Command::new(binary());
        command.args([
            "serve",
            "--addr",
            "127.0.0.1:0",
            "--device",
            "cpu",
            "--objects",
            &s3_address("slurm"),
            "--home",
        ]);
        command.arg(&home).arg("--config").arg(home.join("saggar.toml")).envs(s3_variables(store.port()));
        command.env("SAGGAR_DATABASE_URL", database.url()).env("SLURM_CONF", slurm.configuration());
        let server = ServerProcess::from_command(command, &home).with_key(&key);
        Some(SlurmPool { server, slurm, directory, _store: store, _database: database })
    }

    fn train(&self, model: &str) -> String {
        let (plugin, model) = (lenet(), format!("model={model}"));
        let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "3"];
        let rest = ["--queue", "cluster", "--checkpoint-every", "20steps", "--", "epochs=60", &model];
        self.server.saggar_ok(&[&run[..], &rest].concat()).trim().to_owned()
    }

    /// Returns the folder of the workers' state directories.
    fn homes(&self) -> std::path::PathBuf {
        self.directory.path().join("workers")
    }

    fn logs(&self) -> String {
        let files = std::fs::read_dir(self.homes()).into_iter().flatten().flatten();
        let logs = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|name| name == "log"));
        logs.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect()
    }
}

fn wait_for_checkpoint(server: &ServerProcess, job: &str) {
    server.wait_for("a checkpoint", |server| (!server.checkpoints(job).is_empty()).then_some(()));
}

fn wait_for_attempt(server: &ServerProcess, job: &str, attempt: u64) {
    server.wait_for("the next attempt", |server| {
        let job = server.job(job);
        let runs = job["state"] == "RUNNING" || job["state"] == "SUCCEEDED";
        (runs && job["attempt"].as_u64() >= Some(attempt)).then_some(())
    });
}

#[test]
fn a_training_in_slurm_continues_with_equal_weights_after_its_node_is_lost() {
    let Some(mut pool) = SlurmPool::start() else { return };
    pool.server.push_digits();
    let calm = pool.train("calm");
    let done = pool.server.wait_for_job(&calm);
    assert_eq!(done["state"], "SUCCEEDED", "{done}; {}", pool.logs());
    let job = pool.train("shaken");
    wait_for_checkpoint(&pool.server, &job);
    let batch_job = format!("saggar-{job}-1");
    let node = pool.slurm.node_of(&batch_job).unwrap();
    let lost = Instant::now();
    // The only batch job: the processes of its worker and its attempt.
    pool.slurm.kill_node(node, &processes_of(&binary(), &pool.homes()));
    wait_for_attempt(&pool.server, &job, 2);
    println!("the next attempt ran {:.1} s after its node was lost", lost.elapsed().as_secs_f64());
    assert!(lost.elapsed() < RESUME_MAX, "{:?}", lost.elapsed());
    assert_eq!(pool.server.wait_for_job(&job)["state"], "SUCCEEDED");
    assert_eq!(pool.server.weights_digest("calm"), pool.server.weights_digest("shaken"));
    // The calm attempt has left its state directory to the next one on its node.
    let second = |node: u16| pool.homes().join(format!("n{node}/worker-1"));
    assert!(pool.homes().join("n1/worker-0").is_dir() || pool.homes().join("n2/worker-0").is_dir());
    assert!(!second(1).exists() && !second(2).exists());
}

#[test]
fn a_batch_job_that_slurm_preempts_saves_its_state_and_continues() {
    let Some(pool) = SlurmPool::start() else { return };
    let job = SteadyJob::with_steps(100_000_000).with_field("queue", "cluster").submit(&pool.server);
    wait_for_checkpoint(&pool.server, &job);
    let preempted = Instant::now();
    let urgent =
        ["--parsable", "--partition=dedicated", "--nodes=2", "--exclusive", "--wrap=sleep 3", "--output=/dev/null"];
    pool.slurm.run("sbatch", &urgent);
    wait_for_attempt(&pool.server, &job, 2);
    println!("the next attempt ran {:.1} s after the preemption", preempted.elapsed().as_secs_f64());
    assert!(preempted.elapsed() < RESUME_MAX, "{:?}", preempted.elapsed());
    pool.server.wait_for("the line of the resumed training", |server| {
        server.saggar_ok(&["logs", &job]).contains("resumed from checkpoint @").then_some(())
    });
    pool.server.saggar_ok(&["stop", &job]);
    assert_eq!(pool.server.wait_for_job(&job)["state"], "CANCELLED");
    let left = ["--noheader", "--format=%j", "--states=PENDING,RUNNING"];
    pool.server.wait_for("the removal of the batch jobs", |_| {
        (!pool.slurm.run("squeue", &left).contains("saggar-")).then_some(())
    });
}

#[test]
fn a_controller_that_is_stopped_delays_jobs_and_ends_no_attempt() {
    let Some(mut pool) = SlurmPool::start() else { return };
    pool.server.push_digits();
    let running = SteadyJob::with_steps(100_000_000).with_field("queue", "cluster").submit(&pool.server);
    wait_for_checkpoint(&pool.server, &running);
    pool.slurm.stop_controller();
    let waiting = pool.train("later");
    pool.server.wait_for("the reason of the wait", |server| {
        server.job(&waiting).to_string().contains("trying again").then_some(())
    });
    let step = pool.server.job(&running)["step"].as_u64().unwrap();
    pool.server.wait_for_step(&running, step + 10);
    pool.slurm.restart_controller();
    assert_eq!(pool.server.wait_for_job(&waiting)["state"], "SUCCEEDED", "{}", pool.logs());
    assert_eq!(pool.server.job(&running)["attempt"], 1);
    pool.server.saggar_ok(&["stop", &running]);
    assert_eq!(pool.server.wait_for_job(&running)["state"], "CANCELLED");
}

#[test]
fn a_training_on_two_nodes_has_the_weights_of_one_node() {
    let Some(pool) = SlurmPool::start() else { return };
    pool.server.push_digits();
    let component = plugin("mlp");
    let train = |model: &str, options: &[&str]| {
        let run = ["run", component.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "5"];
        let queue = ["--queue", "cluster", "--shards", "2"];
        let parameters = ["--", "--unit", "24", "--batch", "100", "--epochs", "3", "--model", model];
        pool.server.saggar_ok(&[&run[..], &queue, options, &parameters].concat()).trim().to_owned()
    };
    let (alone, apart) = (train("alone", &[]), train("apart", &["--replicas", "2", "--hosts", "2"]));
    for job in [&alone, &apart] {
        let done = pool.server.wait_for_job(job);
        assert_eq!(done["state"], "SUCCEEDED", "{done}; {}", pool.logs());
    }
    assert_eq!(pool.server.weights_digest("apart"), pool.server.weights_digest("alone"));
    let hosts = pool.server.job(&apart)["attempts"][0]["hosts"].clone();
    let names: Vec<&str> = hosts.as_array().unwrap().iter().map(|host| host.as_str().unwrap()).collect();
    assert!(names.len() == 2 && names[0] != names[1] && names.iter().all(|name| !name.contains("slurm ")), "{hosts}");
    assert_eq!(pool.server.job(&alone)["attempts"][0]["hosts"], serde_json::Value::Null);
}
