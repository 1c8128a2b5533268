//! A pool of Kubernetes: a server creates one Job per attempt, whose container trains the job, and removes what is not needed.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use saggar_tests::kubernetes_api::{KubernetesApi, TOKEN};
use saggar_tests::s3::{MotoServer, s3_address, s3_variables};
use saggar_tests::workers::WorkerProcess;
use saggar_tests::{PostgresServer, ServerProcess, SteadyJob, binary, create_key};
use tempfile::TempDir;

/// Time until a pod that is asked to end has ended.
const END_MAX: Duration = Duration::from_secs(25);

/// A server with a pool of Kubernetes, and what its workers need.
struct JobPool {
    server: ServerProcess,
    api: KubernetesApi,
    store: MotoServer,
    database: PostgresServer,
    directory: TempDir,
}

impl JobPool {
    /// Returns `None` if PostgreSQL or moto is not installed and not required.
    fn start() -> Option<JobPool> {
        let (database, store) = (PostgresServer::start()?, MotoServer::start()?);
        let (api, directory) = (KubernetesApi::start(), tempfile::tempdir().unwrap());
        let home = directory.path().join("server");
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("token"), TOKEN).unwrap();
        let settings = format!(
            "manifest = 1\n[project]\nname = \"steady\"\n[pool.cluster]\nslots = 4\nlabels = {{ gpu = \"a100\" }}\n\
             [pool.cluster.kubernetes]\nimage = \"registry.example.com/saggar:0.1.0\"\nnamespace = \"ml\"\n\
             queue = \"team-a\"\nlimits = {{ \"nvidia.com/gpu\" = 1 }}\napi_server = \"{}\"\ntoken_file = \"token\"\n\
             [queue.cluster]\npools = [\"cluster\"]\n",
            api.address()
        );
        std::fs::write(home.join("saggar.toml"), settings).unwrap();
        let key = create_key(&home, &["boss", "--scope", "admin,jobs:write,jobs:read"]);
        let mut command = Command::new(binary());
        command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--objects", &s3_address("lab"), "--home"]);
        command.arg(&home).arg("--config").arg(home.join("saggar.toml"));
        command.env("SAGGAR_DATABASE_URL", database.url()).envs(s3_variables(store.port()));
        let server = ServerProcess::from_command(command, &home).with_key(&key);
        Some(JobPool { server, api, store, database, directory })
    }

    fn submit(&self, steps: u64) -> String {
        SteadyJob::with_steps(steps).with_field("queue", "cluster").submit(&self.server)
    }

    /// Waits until there is a Kubernetes Job.
    fn wait_for_job(&self, name: &str) {
        self.server.wait_for(name, |_| self.api.job(name));
    }

    /// Waits until a request was answered.
    fn wait_for_request(&self, request: &str) {
        self.server.wait_for(request, |_| self.api.requests().iter().any(|made| made == request).then_some(()));
    }

    /// Runs the container of a Job, with the secrets of the cluster and nothing else of the server.
    fn admit(&self, name: &str) -> WorkerProcess {
        let home: PathBuf = self.directory.path().join(name);
        std::fs::create_dir_all(&home).unwrap();
        let secrets = BTreeMap::from([("saggar-database/url".to_owned(), self.database.url().to_owned())]);
        let mut command = self.api.admit(name, &secrets);
        command.envs(s3_variables(self.store.port())).env("SAGGAR_HOME", &home);
        WorkerProcess::spawn(command, &home)
    }

    fn wait_until_running(&self, job: &str) {
        self.server.wait_for("the attempt", |server| (server.job(job)["state"] == "RUNNING").then_some(()));
    }
}

#[test]
fn a_job_of_a_kubernetes_pool_trains_in_a_pod_and_continues_after_an_eviction() {
    let Some(pool) = JobPool::start() else { return };
    let job = pool.submit(400);
    pool.wait_for_job("saggar-steady-1-1");
    let created = serde_json::to_value(pool.api.job("saggar-steady-1-1").unwrap()).unwrap();
    assert_eq!(created["spec"]["suspend"], true);
    assert_eq!(created["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team-a");
    let arguments = created["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    assert_eq!(arguments, r#"["worker","run","steady-1","--label","gpu=a100"]"#);
    assert!(!created.to_string().contains("hunter2"), "the password of the database is in {created}");
    pool.server.wait_for("the reason", |server| {
        let listed = server.saggar_ok(&["ps"]);
        listed.contains("WAITING_FOR_ENGINE").then_some(())
    });
    let pod = pool.admit("saggar-steady-1-1");
    pool.server.wait_for_step(&job, 20);
    pod.signal("-TERM");
    let ended = pod.wait_for_exit(END_MAX).unwrap();
    assert_eq!(ended.code(), Some(75));
    // The next attempt has its own Job.
    pool.wait_for_job("saggar-steady-1-2");
    let pod = pool.admit("saggar-steady-1-2");
    let finished = pool.server.wait_for_job(&job);
    assert_eq!((&finished["state"], &finished["attempt"]), (&"SUCCEEDED".into(), &2.into()), "{finished}");
    assert_eq!(pod.wait_for_exit(END_MAX).unwrap().code(), Some(0));
    let log = pool.server.saggar_ok(&["logs", &job]);
    assert!(log.contains("resumed from checkpoint @"), "{log}");
    let unexpected: Vec<String> = pool.api.requests().into_iter().filter(|made| made.contains(" 4")).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

#[test]
fn a_stopped_job_has_no_kubernetes_job_and_a_vanished_or_failed_one_is_created_again() {
    let Some(pool) = JobPool::start() else { return };
    // The first request is repeated at once.
    pool.api.fail(2);
    let job = pool.submit(100_000);
    pool.wait_for_request("POST saggar-steady-1-1 201");
    pool.api.forget("saggar-steady-1-1");
    pool.wait_for_job("saggar-steady-1-1");
    pool.api.set_condition("saggar-steady-1-1", "Failed", "PodFailurePolicy");
    pool.wait_for_request("DELETE saggar-steady-1-1 200");
    pool.wait_for_job("saggar-steady-1-1");
    pool.server.saggar_ok(&["stop", &job]);
    pool.server.wait_for("the removal", |_| pool.api.job("saggar-steady-1-1").is_none().then_some(()));
    assert_eq!(pool.server.job(&job)["state"], "CANCELLED");
}

#[test]
fn the_worker_of_a_running_job_ends_with_it_when_it_is_stopped() {
    let Some(pool) = JobPool::start() else { return };
    let job = pool.submit(100_000);
    pool.wait_for_job("saggar-steady-1-1");
    let pod = pool.admit("saggar-steady-1-1");
    pool.wait_until_running(&job);
    pool.server.saggar_ok(&["stop", &job]);
    assert_eq!(pool.server.wait_for_job(&job)["state"], "CANCELLED");
    // The exit code of a cancelled job, after which Kubernetes starts no other pod.
    assert_eq!(pod.wait_for_exit(END_MAX).unwrap().code(), Some(21));
    let again = pool.admit("saggar-steady-1-1");
    assert_eq!(again.wait_for_exit(END_MAX).unwrap().code(), Some(0), "a second pod finds nothing to do");
}

#[test]
fn a_server_without_shared_records_refuses_a_kubernetes_pool() {
    let home = tempfile::tempdir().unwrap();
    let settings = "manifest = 1\n[project]\nname = \"p\"\n[pool.c]\nkubernetes = { image = \"saggar\" }\n";
    std::fs::write(home.path().join("saggar.toml"), settings).unwrap();
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home"]).arg(home.path().join("state"));
    let output = command.arg("--config").arg(home.path().join("saggar.toml")).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{errors}");
    assert!(errors.contains("pool.c.kubernetes") && errors.contains("--database and --objects"), "{errors}");
}
