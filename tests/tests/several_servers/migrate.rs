//! `saggar migrate`: a state directory becomes a database and a bucket, and a state directory again, without any difference.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use saggar_store::digest::Digest;
use saggar_tests::pipelines::{PipelineProject, wait_for_run};
use saggar_tests::s3::{FaultProxy, MotoServer, S3Fault, s3_address, s3_variables};
use saggar_tests::{HttpPayload, PostgresServer, ServerProcess, SteadyJob, binary, create_key, lenet};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The key that seals secrets in the database.
const SECRETS_KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const SECRET: &str = "correct horse battery";

/// The stores of servers, and directories.
struct TestStores {
    directory: TempDir,
    store: MotoServer,
    database: PostgresServer,
}

impl TestStores {
    /// Returns `None` if PostgreSQL or moto is not installed and not required.
    fn start() -> Option<TestStores> {
        let (database, store) = (PostgresServer::start()?, MotoServer::start()?);
        Some(TestStores { directory: tempfile::tempdir().unwrap(), store, database })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Adds what a program needs that reaches the bucket at this port.
    fn with_variables(&self, mut command: Command, store_port: u16) -> Command {
        command.env("SAGGAR_SECRETS_KEY", SECRETS_KEY).envs(s3_variables(store_port));
        command.env_remove("AWS_SESSION_TOKEN").env_remove("AWS_CA_BUNDLE").env_remove("SAGGAR_HOME");
        command
    }

    /// Returns a command that moves a directory to the stores, or the stores to a directory.
    fn migrate(&self, from: Option<&Path>, to: Option<&Path>, store_port: u16) -> Command {
        let mut command = Command::new(binary());
        let place = |command: &mut Command, option: &str, directory: Option<&Path>| {
            command.arg(option);
            match directory {
                Some(directory) => drop(command.arg(directory)),
                None => drop(command.arg(self.database.url()).arg(s3_address("lab"))),
            }
        };
        command.args(["--json", "migrate"]);
        place(&mut command, "--from", from);
        place(&mut command, "--to", to);
        self.with_variables(command, store_port)
    }

    fn to_stores(&self, from: &Path) -> Value {
        report(&self.migrate(Some(from), None, self.store.port()).output().unwrap())
    }

    fn to_directory(&self, to: &Path) -> Value {
        report(&self.migrate(None, Some(to), self.store.port()).output().unwrap())
    }

    /// Returns a command that starts a server with the stores.
    fn serve(&self, name: &str, arguments: &[&str]) -> Command {
        let home = self.path(name);
        std::fs::create_dir_all(&home).unwrap();
        let mut command = Command::new(binary());
        command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--name", name, "--home"]).arg(home);
        command.args(arguments).env("SAGGAR_DATABASE_URL", self.database.url());
        command.env("SAGGAR_OBJECTS", s3_address("lab"));
        self.with_variables(command, self.store.port())
    }
}

fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the exit code, the code and the text of a refusal, which names no password.
fn refusal(output: &Output) -> (i32, String, String) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!text.contains("hunter2"), "{text}");
    let last = text.lines().rev().find(|line| line.starts_with("{\"error\""));
    let error: Value = last.map_or(Value::Null, |line| serde_json::from_str(line).unwrap());
    let code = error["error"]["code"].as_str().unwrap_or_default().to_owned();
    (output.status.code().unwrap_or(-1), code, text)
}

fn check_refusal(mut command: Command, code: &str, words: &[&str]) {
    let output = command.output().unwrap();
    let (exit, found, text) = refusal(&output);
    assert!(exit > 0 && found == code, "{exit} {found}: {text}");
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// Returns the digest of every file below the directories of a state, which both forms of it have, by its path.
fn files(home: &Path) -> BTreeMap<String, String> {
    let (mut found, mut left) = (BTreeMap::new(), vec![home.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let name = path.strip_prefix(home).unwrap().to_str().unwrap().to_owned();
            let roots = ["objects/", "datasets/", "jobs/", "models/", "keys.json", "secrets.json"];
            // What a server writes for itself.
            let is_own = ["failures.json", ".lock", ".shared", ".storage-id"].iter().any(|end| name.ends_with(end));
            if roots.iter().any(|root| name.starts_with(root)) && !is_own && std::fs::metadata(&path).unwrap().len() > 0
            {
                found.insert(name, Digest::of_file(&path).unwrap().0.hex());
            }
        }
    }
    found
}

/// Ends a server as an administrator does: its jobs are saved and queued.
fn end(server: ServerProcess) {
    server.signal("-TERM");
    let status = server.wait_for_exit(Duration::from_secs(60)).unwrap();
    assert!(status.success(), "{status}");
}

/// What a client sees of a state.
fn what_clients_see(server: &ServerProcess) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let jobs = server.get("/api/v1/jobs");
    for job in jobs["jobs"].as_array().unwrap() {
        let name = job["name"].as_str().unwrap();
        seen.insert(format!("log of {name}"), server.saggar_ok(&["logs", name]));
        for part in ["events", "attempts", "output"] {
            let path = format!("/api/v1/jobs/{name}/{part}");
            seen.insert(path.clone(), server.get(&path).to_string());
        }
        let series = server.saggar_ok(&["metrics", name, "--csv"]);
        seen.insert(format!("series of {name}"), series);
    }
    seen.insert("jobs".to_owned(), jobs.to_string());
    for path in ["/api/v1/datasets", "/api/v1/sweeps", "/api/v1/pipeline-runs", "/api/v1/secrets", "/api/v1/schedules"]
    {
        seen.insert(path.to_owned(), server.get(path).to_string());
    }
    let model = server.get("/api/v1/models/digits");
    seen.insert("aliases".to_owned(), model["aliases"].to_string());
    seen.insert("configuration".to_owned(), server.get("/api/v1/models/digits/config").to_string());
    seen
}

fn predict(server: &ServerProcess) -> String {
    server.saggar_ok(&["predict", "digits", "-i", "image=@examples/digits/held-out/3.png", "--json"])
}

/// Makes a state with a bit of everything, and returns its key and the name of a queued job, which has a checkpoint.
fn make_state(home: &Path) -> (String, String) {
    std::fs::create_dir(home).unwrap();
    let key = create_key(home, &["boss", "--scope", "admin,jobs:write,jobs:read,predict,models:write"]);
    let server = ServerProcess::start(home).with_key(&key);
    server.push_digits();
    let plugin = lenet();
    let train = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--wait"];
    for epochs in ["epochs=1", "epochs=2"] {
        server.saggar_ok(&[&train[..], &["--", epochs, "model=digits"]].concat());
    }
    server.wait_for_version("digits", 2);
    server.saggar_ok(&["models", "promote", "digits", "1"]);
    let config = json!({ "queue": { "capacity": 7 } });
    assert_eq!(server.request("PUT", "/api/v1/models/digits/config", HttpPayload::Json(&config)).status, 200);
    let secret = json!({ "value": SECRET });
    assert!(server.request("PUT", "/api/v1/secrets/token", HttpPayload::Json(&secret)).status < 300);
    server.saggar_ok(&["data", "projects", "digits", "--project", "vision"]);
    let done =
        SteadyJob::with_steps(30).with_parameter("items", true).with_parameter("write", "a.txt=3").submit(&server);
    assert_eq!(server.wait_for_job(&done)["state"], "SUCCEEDED");
    server.saggar_ok(&["note", &done, "a note"]);
    server.saggar_ok(&["schedule", "set", "often", "15 23 29 2 *", "--like", &done]);
    let pipeline = "args = { steps = 3 }\n[pipeline.p]\n[[pipeline.p.step]]\nname = \"train\"\ntask = \"train\"\n";
    let project = PipelineProject::of_steady(pipeline);
    project.saggar_ok(&server, &["pipeline", "run", "p"]);
    assert_eq!(wait_for_run(&server, "p-1")["state"], "SUCCEEDED");
    let sweep = ["sweep", "--task", "train", "--grid", "work=1,2", "--metric", "accuracy", "--wait", "--", "steps=3"];
    project.saggar_ok(&server, &sweep);
    // A number that was used and is free again.
    server.saggar_ok(&["models", "push", "gone", saggar_tests::guest("echo").to_str().unwrap()]);
    server.saggar_ok(&["models", "rm", "gone", "--yes"]);
    // It is saved and queued when the server ends.
    let queued = SteadyJob::with_steps(3000).with_parameter("write", "b.txt=5").submit(&server);
    server.wait_for_step(&queued, 20);
    end(server);
    (key, queued)
}

/// The tables of a report, with the number of rows and the digest of each.
fn tables(report: &Value) -> BTreeMap<String, (u64, String)> {
    let table = |it: &Value| {
        let name = it["table"].as_str().unwrap().to_owned();
        (name, (it["rows"].as_u64().unwrap(), it["sha256"].as_str().unwrap().to_owned()))
    };
    report["tables"].as_array().unwrap().iter().map(table).collect()
}

#[test]
fn a_state_is_moved_to_shared_stores_and_back_without_a_difference() {
    let Some(stores) = TestStores::start() else { return };
    let (first, back) = (stores.path("first"), stores.path("back"));
    let (key, queued) = make_state(&first);
    let server = ServerProcess::start_with(&first, &["--jobs", "0"]).with_key(&key);
    server.wait_for_version("digits", 1);
    assert_eq!(server.job(&queued)["state"], "QUEUED");
    let (seen, answer) = (what_clients_see(&server), predict(&server));
    // The lock of its directory.
    check_refusal(
        stores.migrate(Some(&first), None, stores.store.port()),
        "home_in_use",
        &["in use by another server"],
    );
    end(server);
    let before = files(&first);
    let began = Instant::now();
    let there = stores.to_stores(&first);
    println!("to the stores in {:.1} s: {}", began.elapsed().as_secs_f64(), there["content"]);
    assert_eq!(files(&first), before, "the source is not changed");
    let rows = tables(&there);
    for table in
        ["jobs", "attempts", "metrics", "events", "schedules", "pipeline_runs", "pipeline_steps", "sweeps", "trials"]
    {
        assert!(rows[table].0 > 0, "the state has rows in {table}: {rows:?}");
    }
    let left = there["left"].to_string();
    assert!(left.contains("audit.log") && left.contains("keep the file"), "{left}");

    let server = ServerProcess::from_command(stores.serve("s", &["--jobs", "0", "--require-keys"]), &stores.path("s"))
        .with_key(&key);
    server.wait_for_version("digits", 1);
    assert_eq!(predict(&server), answer);
    for (path, expected) in &seen {
        assert_eq!(what_clients_see(&server).get(path), Some(expected), "{path}");
    }
    assert_eq!(server.request_as(None, "GET", "/api/v1/jobs", HttpPayload::Nothing).status, 401, "the key is needed");
    check_refusal(
        stores.migrate(None, Some(&back), stores.store.port()),
        "source_in_use",
        &["servers and workers use the source: s", "SIGTERM"],
    );
    check_refusal(stores.migrate(Some(&first), None, stores.store.port()), "not_empty", &["jobs", "createdb"]);
    end(server);

    let mut other_key = stores.migrate(None, Some(&back), stores.store.port());
    other_key.env("SAGGAR_SECRETS_KEY", SECRETS_KEY.replace('0', "1"));
    check_refusal(other_key, "other_secrets_key", &["SAGGAR_SECRETS_KEY"]);
    assert!(!back.exists(), "a refusal creates nothing");
    let began = Instant::now();
    let here = stores.to_directory(&back);
    println!("to a directory in {:.1} s: {}", began.elapsed().as_secs_f64(), here["content"]);
    assert_eq!(tables(&here), rows);
    assert_eq!(files(&back), before);
    check_refusal(stores.migrate(None, Some(&back), stores.store.port()), "not_empty", &["back"]);
    let server = ServerProcess::start(&back).with_key(&key);
    server.wait_for_version("digits", 1);
    assert_eq!(predict(&server), answer);
    let job = server.wait_for_job(&queued);
    assert_eq!(job["state"], "SUCCEEDED", "{job}");
    assert!(server.saggar_ok(&["logs", &queued]).contains("resumed from checkpoint @"));
    // A number that was used before is not used again, after both moves.
    let echo = saggar_tests::guest("echo");
    assert_eq!(server.saggar_ok(&["models", "push", "gone", echo.to_str().unwrap()]).trim(), "gone@2");
    end(server);
}

/// Makes a small state: a job with a checkpoint, an output and a log.
fn make_small_state(home: &Path) -> String {
    std::fs::create_dir(home).unwrap();
    let server = ServerProcess::start(home);
    let job = SteadyJob::with_steps(30).with_parameter("write", "a.txt=3").submit(&server);
    assert_eq!(server.wait_for_job(&job)["state"], "SUCCEEDED");
    end(server);
    job
}

#[test]
fn an_object_that_is_damaged_on_its_way_is_found() {
    let Some(stores) = TestStores::start() else { return };
    let home = stores.path("home");
    let job = make_small_state(&home);
    let proxy = FaultProxy::start(stores.store.port());
    proxy.inject(S3Fault::DamageBody, "PUT", "output/a.txt", 1);
    let (exit, code, text) = refusal(&stores.migrate(Some(&home), None, proxy.port()).output().unwrap());
    assert_eq!((exit, code.as_str()), (1, "differs"), "{text}");
    assert!(text.contains("output/a.txt") && text.contains("repeat the command"), "{text}");
    let output = stores.serve("s", &[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("incomplete copy") && said.contains("saggar migrate"), "{said}");
    stores.to_stores(&home);
    let server = ServerProcess::from_command(stores.serve("s", &[]), &stores.path("s"));
    let output = server.request("GET", &format!("/api/v1/jobs/{job}/output/a.txt"), HttpPayload::Nothing);
    assert_eq!(output.text, "xxx");
}

/// Waits until a request that the proxy holds is there, and kills the command.
fn kill_at_request(mut command: Child, proxy: &FaultProxy, method: &str, part: &str) {
    let began = Instant::now();
    while proxy.requests(method, part) == 0 {
        assert!(
            command.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(60),
            "no {method} {part}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    command.kill().unwrap();
    command.wait().unwrap();
}

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_killed_migration_leaves_a_destination_that_nothing_opens_and_is_completed_by_the_next_one() {
    let Some(stores) = TestStores::start() else { return };
    let (home, back) = (stores.path("home"), stores.path("back"));
    make_small_state(&home);
    let before = files(&home);
    let proxy = FaultProxy::start(stores.store.port());
    for (method, part) in [("PUT", "jobs/"), ("GET", "checkpoints/")] {
        proxy.heal();
        proxy.inject(S3Fault::Silence, method, part, u32::MAX);
        let requests = proxy.requests(method, part);
        let command = start(stores.migrate(Some(&home), None, proxy.port()));
        assert_eq!(requests, 0, "each is another place of the migration");
        kill_at_request(command, &proxy, method, part);
        assert_eq!(files(&home), before, "the source is not changed");
        let output = stores.serve("s", &[]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("incomplete copy"), "{said}");
        // The bucket alone, without the database.
        let mut command = stores.serve("t", &[]);
        command.env_remove("SAGGAR_DATABASE_URL").env_remove("SAGGAR_SERVER_NAME");
        let arguments: Vec<_> =
            command.get_args().filter(|it| *it != "--name" && *it != "t").map(ToOwned::to_owned).collect();
        let mut alone = stores.with_variables(Command::new(binary()), stores.store.port());
        alone.args(arguments).env("SAGGAR_OBJECTS", s3_address("lab"));
        let said = String::from_utf8_lossy(&alone.output().unwrap().stderr).into_owned();
        assert!(said.contains("incomplete copy") && said.contains("s3://"), "{said}");
        check_refusal(
            stores.migrate(None, Some(&back), stores.store.port()),
            "incomplete_migration",
            &["incomplete copy"],
        );
    }
    let there = stores.to_stores(&home);

    // Another one, which has forwarded no request yet.
    let proxy = FaultProxy::start(stores.store.port());
    proxy.inject(S3Fault::Silence, "GET", "jobs/", u32::MAX);
    let command = start(stores.migrate(None, Some(&back), proxy.port()));
    kill_at_request(command, &proxy, "GET", "jobs/");
    let mut serve = Command::new(binary());
    serve.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home"]).arg(&back);
    let said = String::from_utf8_lossy(&serve.output().unwrap().stderr).into_owned();
    assert!(said.contains("incomplete copy") && said.contains("back"), "{said}");
    let here = stores.to_directory(&back);
    assert_eq!((tables(&here), files(&back)), (tables(&there), before));
    end(ServerProcess::start(&back));
}

/// Checks that records of another version are refused, in a copy of the state whose database has no write-ahead log.
fn check_other_schemas(stores: &TestStores, home: &Path) {
    let (file, copy) = (stores.path("copy.tar"), stores.path("copy"));
    for (command, home) in [("backup", home), ("restore", &copy)] {
        let output = Command::new(binary()).arg(command).arg(&file).arg("--home").arg(home).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // The low byte of the schema's version.
    let mut bytes = std::fs::read(copy.join("saggar.db")).unwrap();
    let version = bytes[63];
    for (found, words) in
        [(version - 1, "start `saggar serve` of this version once"), (version + 1, "use the newer version")]
    {
        bytes[63] = found;
        std::fs::write(copy.join("saggar.db"), &bytes).unwrap();
        let command = stores.migrate(Some(&copy), None, stores.store.port());
        check_refusal(command, "other_schema", &[&format!("have schema {found}"), words]);
    }
}

#[test]
fn a_source_with_active_jobs_or_of_another_version_is_refused() {
    let Some(stores) = TestStores::start() else { return };
    let home = stores.path("home");
    std::fs::create_dir(&home).unwrap();
    let server = ServerProcess::start(&home);
    let job = SteadyJob::with_steps(100_000_000).submit(&server);
    server.wait_for_step(&job, 5);
    server.kill_and_wait();
    let to_stores = || stores.migrate(Some(&home), None, stores.store.port());
    check_refusal(to_stores(), "active_jobs", &[&format!("{job} (RUNNING)"), "SIGTERM", "saggar stop JOB"]);
    // A server takes the job back, and saves it when it ends.
    let server = ServerProcess::start(&home);
    server.wait_for("the next attempt", |it| (it.job(&job)["state"] == "RUNNING").then_some(()));
    let answer = server.request("PUT", "/api/v1/secrets/token", HttpPayload::Json(&json!({ "value": SECRET })));
    assert!(answer.status < 300, "{}", answer.text);
    end(server);
    let mut without_key = to_stores();
    without_key.env_remove("SAGGAR_SECRETS_KEY");
    check_refusal(without_key, "no_secrets_key", &["openssl rand -hex 32"]);
    check_refusal(stores.migrate(Some(&stores.path("none")), None, stores.store.port()), "no_home", &["saggar doctor"]);
    check_refusal(stores.migrate(Some(&home), Some(&home), stores.store.port()), "invalid", &["saggar backup"]);
    check_other_schemas(&stores, &home);
    stores.to_stores(&home);
    // The job goes on where it was.
    let server = ServerProcess::from_command(stores.serve("s", &[]), &stores.path("s"));
    server.wait_for("the next attempt", |it| (it.job(&job)["attempt"].as_u64() >= Some(3)).then_some(()));
    assert!(server.saggar_ok(&["logs", &job]).contains("resumed from checkpoint @"));
    server.kill_and_wait();
    // The server's row is that of one that was lost lately.
    check_refusal(
        stores.migrate(None, Some(&stores.path("back")), stores.store.port()),
        "source_in_use",
        &["25 seconds"],
    );
}

/// Returns the `saggar migrate` commands of the documentation.
fn documented_commands() -> Vec<String> {
    let page = std::fs::read_to_string(saggar_tests::root().join("host/docs/operate/migrate.md")).unwrap();
    let blocks = page.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).filter(|line| line.starts_with("saggar migrate "));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_documented_commands_move_a_state_and_bring_it_back() {
    let Some(stores) = TestStores::start() else { return };
    let (home, back) = (stores.path("home"), stores.path("back"));
    make_small_state(&home);
    let commands = documented_commands();
    assert_eq!(commands.len(), 2, "there and back: {commands:?}");
    for command in commands {
        let command = command
            .replace("postgres://saggar_server@db.example.com/saggar", stores.database.url())
            .replace("s3://my-bucket/saggar", &s3_address("lab"))
            .replace("/var/lib/saggar-3", back.to_str().unwrap())
            .replace("/var/lib/saggar", home.to_str().unwrap());
        let mut words = command.split(' ');
        assert_eq!(words.next(), Some("saggar"));
        let mut run = Command::new(binary());
        run.args(words);
        let output = stores.with_variables(run, stores.store.port()).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        println!("{command}\n{printed}{}", String::from_utf8_lossy(&output.stderr));
        assert!(printed.starts_with("COPIED AND COMPARED") && printed.contains("jobs  "), "{printed}");
    }
    assert_eq!(files(&back), files(&home));
}
