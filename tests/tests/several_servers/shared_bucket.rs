//! Servers with one database and one bucket: nothing else is shared, and each can do what the others can.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use saggar_tests::s3::{FaultProxy, MotoServer, S3Fault, s3_address, s3_variables};
use saggar_tests::{HttpPayload, PostgresServer, ServerProcess, binary, lenet, worker_processes};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Time in which what one server changes is followed by the others.
const FOLLOW_TIME_MAX: Duration = Duration::from_secs(5);

/// The key that seals secrets in the database.
const SECRETS_KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// The servers `a` and `b`, each with its own state directory.
struct BucketServers {
    servers: Vec<ServerProcess>,
    directory: TempDir,
    store: MotoServer,
    database: PostgresServer,
}

impl BucketServers {
    /// Returns `None` if PostgreSQL or moto is not installed and not required.
    fn start() -> Option<BucketServers> {
        let mut shared = BucketServers::without_servers()?;
        shared.servers = ["a", "b"].map(|name| shared.start_server(name, shared.store.port())).into();
        Some(shared)
    }

    fn without_servers() -> Option<BucketServers> {
        let (database, store) = (PostgresServer::start()?, MotoServer::start()?);
        Some(BucketServers { servers: Vec::new(), directory: tempfile::tempdir().unwrap(), store, database })
    }

    /// Starts a server that reaches the bucket at this port.
    fn start_server(&self, name: &str, store_port: u16) -> ServerProcess {
        let home = self.home(name);
        std::fs::create_dir_all(&home).unwrap();
        ServerProcess::from_command(self.command(name, store_port), &home)
    }

    fn command(&self, name: &str, store_port: u16) -> Command {
        let mut command = Command::new(binary());
        command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--name", name, "--home"]);
        command.arg(self.home(name)).env("SAGGAR_SECRETS_KEY", SECRETS_KEY);
        command.env("SAGGAR_DATABASE_URL", self.database.url()).env("SAGGAR_OBJECTS", s3_address("lab"));
        command.envs(s3_variables(store_port)).env_remove("AWS_SESSION_TOKEN").env_remove("AWS_CA_BUNDLE");
        command
    }

    fn home(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Waits until a server runs an attempt of the only job, and returns its place among the servers.
    fn wait_for_owner(&self) -> usize {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            if let Some(at) = self.servers.iter().position(|server| worker_processes(server.pid()).len() == 1) {
                return at;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("no server runs the job");
    }
}

fn submit_training(server: &ServerProcess, model: &str) -> String {
    let (plugin, model) = (lenet(), format!("model={model}"));
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "3"];
    let rest = ["--checkpoint-every", "20steps", "--", "epochs=60", &model];
    server.saggar_ok(&[&run[..], &rest].concat()).trim().to_owned()
}

/// Returns what the servers say about a path, which must be the same.
fn get_equal(servers: &[ServerProcess], path: &str) -> Value {
    let found: Vec<Value> = servers.iter().map(|server| server.get(path)).collect();
    assert_eq!(found[0], found[1], "{path}");
    found[0].clone()
}

#[test]
fn a_dataset_of_one_server_is_listed_exported_trained_on_and_removed_by_another() {
    let Some(shared) = BucketServers::start() else { return };
    let [a, b] = &shared.servers[..] else { panic!("two servers") };
    a.push_digits();
    let listed = get_equal(&shared.servers, "/api/v1/datasets");
    assert_eq!((&listed["datasets"][0]["name"], &listed["datasets"][0]["version"]), (&json!("digits"), &json!(1)));
    // The same content is no second version, whichever server gets it.
    b.push_digits();
    assert_eq!(get_equal(&shared.servers, "/api/v1/datasets"), listed);
    let job = submit_training(b, "net");
    assert_eq!(a.wait_for_job(&job)["state"], "SUCCEEDED");
    let target = shared.directory.path().join("exported");
    b.saggar_ok(&["data", "export", "digits/1", "-o", target.to_str().unwrap()]);
    assert!(target.join("dataset.json").exists());
    for home in ["a", "b"] {
        let left: Vec<_> = std::fs::read_dir(shared.home(home).join("datasets")).unwrap().collect();
        assert!(left.is_empty(), "datasets are in the bucket: {left:?}");
    }
    b.saggar_ok(&["data", "rm", "digits/1", "--yes"]);
    assert_eq!(get_equal(&shared.servers, "/api/v1/datasets")["datasets"], json!([]));
    a.push_digits();
    assert_eq!(get_equal(&shared.servers, "/api/v1/datasets")["datasets"][0]["version"], 2, "no number is used again");
}

#[test]
fn a_job_of_one_server_is_followed_read_and_removed_by_the_other_and_its_model_predicts_on_both() {
    let Some(shared) = BucketServers::start() else { return };
    shared.servers[1].push_digits();
    let job = submit_training(&shared.servers[0], "net");
    let owner = shared.wait_for_owner();
    let other = &shared.servers[1 - owner];
    // Lines of a running attempt, from the records.
    let log = other.wait_for("a line of the log", |it| {
        let log = it.saggar_ok(&["logs", &job]);
        log.contains("checkpoint @").then_some(log)
    });
    let followed = other.saggar_ok(&["logs", "-f", &job]);
    assert!(followed.starts_with(&log) && followed.contains("SUCCEEDED"), "{followed}");
    assert_eq!(shared.servers[owner].saggar_ok(&["logs", &job]), followed);
    let outputs = get_equal(&shared.servers, &format!("/api/v1/jobs/{job}/output"));
    println!("outputs {outputs}");
    let published = Instant::now();
    let digest = |server: &ServerProcess| {
        server.wait_for_version("net", 1);
        server.weights_digest("net")
    };
    assert_eq!(digest(&shared.servers[0]), digest(&shared.servers[1]));
    println!("both servers have the version {:.1} s after the job", published.elapsed().as_secs_f64());
    assert!(published.elapsed() < FOLLOW_TIME_MAX);
    let jobs_left = |home: &str| std::fs::read_dir(shared.home(home).join("jobs")).unwrap().count();
    assert_eq!((jobs_left("a"), jobs_left("b")), (0, 0), "files of jobs are in the bucket");
    other.saggar_ok(&["rm", &job, "--yes"]);
    let answer = shared.servers[owner].request("GET", &format!("/api/v1/jobs/{job}"), HttpPayload::Nothing);
    assert_eq!(answer.status, 404, "{}", answer.text);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let left = runtime.block_on(shared.store.objects("lab").list("jobs")).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn aliases_settings_and_removals_of_one_server_are_followed_by_the_other() {
    let Some(shared) = BucketServers::start() else { return };
    let [a, b] = &shared.servers[..] else { panic!("two servers") };
    a.push_digits();
    for epochs in ["epochs=1", "epochs=2"] {
        let plugin = lenet();
        a.saggar_ok(&[
            "run",
            plugin.to_str().unwrap(),
            "--data",
            "digits",
            "--device",
            "cpu",
            "--wait",
            "--",
            epochs,
            "model=net",
        ]);
    }
    for server in [a, b] {
        server.wait_for_version("net", 2);
    }
    let serving = |server: &ServerProcess| server.get("/api/v1/models/net")["serving"].as_u64();
    let follow = |what: &str, server: &ServerProcess, is_done: &dyn Fn(&ServerProcess) -> bool| {
        let began = Instant::now();
        server.wait_for(what, |server| is_done(server).then_some(()));
        let took = began.elapsed();
        println!("{what} after {:.1} s", took.as_secs_f64());
        assert!(took < FOLLOW_TIME_MAX, "{what}: {took:?}");
    };
    a.saggar_ok(&["models", "promote", "net", "1"]);
    assert_eq!(serving(a), Some(1), "{}", a.get("/api/v1/models/net"));
    follow("the promotion", b, &|server| serving(server) == Some(1));
    // The other server promotes another version at once, and the first one follows.
    b.saggar_ok(&["models", "promote", "net", "2"]);
    follow("the next promotion", a, &|server| serving(server) == Some(2));
    let config = json!({ "queue": { "capacity": 7 } });
    let answer = b.request("PUT", "/api/v1/models/net/config", HttpPayload::Json(&config));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let queue = |server: &ServerProcess| server.get("/api/v1/models/net/config")["queue"].clone();
    let expected = queue(b);
    follow("the configuration", a, &|server| queue(server) == expected);
    b.saggar_ok(&["models", "rm", "net@1", "--yes"]);
    let versions = |server: &ServerProcess| server.get("/api/v1/models/net")["versions"].as_array().map(Vec::len);
    follow("the removal of a version", a, &|server| versions(server) == Some(1));
    a.saggar_ok(&["models", "rm", "net", "--yes"]);
    let is_gone =
        |server: &ServerProcess| server.request("GET", "/api/v1/models/net", HttpPayload::Nothing).status == 404;
    follow("the removal of the model", b, &is_gone);
}

/// Trains a version of the model `net`, and waits until it is published.
fn publish_version(server: &ServerProcess, epochs: &str) {
    let plugin = lenet();
    let run =
        ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--wait", "--", epochs, "model=net"];
    server.saggar_ok(&run);
}

#[test]
fn a_server_that_has_not_fetched_a_version_keeps_its_alias_and_serves_the_version_before() {
    let Some(mut shared) = BucketServers::without_servers() else { return };
    let proxy = FaultProxy::start(shared.store.port());
    shared.servers = vec![shared.start_server("a", shared.store.port())];
    shared.servers[0].push_digits();
    publish_version(&shared.servers[0], "epochs=1");
    let (a, b) = (&shared.servers[0], shared.start_server("b", proxy.port()));
    b.wait_for_version("net", 1);
    proxy.inject(S3Fault::Refuse(403, "AccessDenied"), "GET", "models-parts/", u32::MAX);
    publish_version(a, "epochs=2");
    a.saggar_ok(&["models", "promote", "net", "2"]);
    let model = b.wait_for("the alias", |server| {
        let model = server.get("/api/v1/models/net");
        (model["aliases"]["stable"] == 2).then_some(model)
    });
    assert_eq!((&model["serving"], &model["state"]), (&json!(1), &json!("READY")), "{model}");
    // A command looks at the versions again, and the alias stays.
    b.saggar_ok(&["models", "load", "net", "1"]);
    assert_eq!(b.get("/api/v1/models/net")["aliases"]["stable"], 2);
    proxy.heal();
    b.wait_for("the version", |server| (server.get("/api/v1/models/net")["serving"] == 2).then_some(()));
    assert_eq!(a.get("/api/v1/models/net")["aliases"]["stable"], 2);
}

#[test]
fn secrets_are_those_of_all_servers_with_the_key_and_sealed_in_the_database() {
    let Some(shared) = BucketServers::start() else { return };
    let [a, b] = &shared.servers[..] else { panic!("two servers") };
    let body = json!({ "value": "correct horse battery" });
    let answer = a.request("PUT", "/api/v1/secrets/token", HttpPayload::Json(&body));
    assert!(answer.status < 300, "{}", answer.text);
    let began = Instant::now();
    b.wait_for("the secret", |server| server.get("/api/v1/secrets").to_string().contains("token").then_some(()));
    assert!(began.elapsed() < FOLLOW_TIME_MAX, "{:?}", began.elapsed());
    assert!(std::fs::read_to_string(shared.home("b").join("secrets.json")).unwrap().contains("correct horse"));
    let records = saggar_store::records::open(shared.database.url()).unwrap();
    let sealed = records.document("secrets", 0).unwrap().unwrap().text;
    assert!(sealed.starts_with("sealed1:") && !sealed.contains("correct"), "{sealed}");
    let mut command = shared.command("c", shared.store.port());
    let output = command.env("SAGGAR_SECRETS_KEY", SECRETS_KEY.replace('0', "1")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("set SAGGAR_SECRETS_KEY to that of the others"), "{said}");
    let output = command.env("SAGGAR_SECRETS_KEY", "short").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("openssl rand -hex 32") && !said.contains("short"), "{said}");
}

#[test]
fn a_job_of_a_killed_server_continues_on_another_one_with_equal_weights_and_both_logs() {
    let Some(mut shared) = BucketServers::start() else { return };
    shared.servers[0].push_digits();
    let calm = submit_training(&shared.servers[0], "calm");
    assert_eq!(shared.servers[1].wait_for_job(&calm)["state"], "SUCCEEDED");
    let job = submit_training(&shared.servers[1], "shaken");
    let owner = shared.wait_for_owner();
    let first = shared.servers[1 - owner].wait_for("a checkpoint", |server| {
        let log = server.saggar_ok(&["logs", &job]);
        log.contains("checkpoint @").then_some(log)
    });
    shared.servers.remove(owner).kill_and_wait();
    let other = &shared.servers[0];
    assert_eq!(other.wait_for_job(&job)["state"], "SUCCEEDED");
    let attempts = other.get(&format!("/api/v1/jobs/{job}"))["attempts"].clone();
    assert_eq!((attempts.as_array().map(Vec::len), &attempts[0]["reason"]), (Some(2), &json!("HOST_LOST")));
    let log = other.saggar_ok(&["logs", &job, "--attempt", "1"]);
    assert!(log.starts_with(&first), "the lines of the killed server: {log}");
    assert!(other.saggar_ok(&["logs", &job]).contains("resumed from checkpoint @"));
    for model in ["calm", "shaken"] {
        other.wait_for_version(model, 1);
    }
    assert_eq!(other.weights_digest("calm"), other.weights_digest("shaken"));
}
