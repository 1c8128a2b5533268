//! Keys of servers with one database: created or revoked on one server, they are valid or refused on the others, and known
//! keys stay valid while the database is gone.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, PostgresServer, ServerProcess, binary, create_key};
use serde_json::{Value, json};

/// Time until a change of keys on one server applies on all.
const PROPAGATION_MAX: Duration = Duration::from_secs(5);

/// Runs `saggar key` in a state directory, with the database if there is one.
fn key_command(home: &Path, database: Option<&PostgresServer>, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(["--json", "key"]).args(arguments).env("SAGGAR_HOME", home);
    if let Some(database) = database {
        command.env("SAGGAR_DATABASE_URL", database.url());
    }
    command.output().unwrap()
}

fn created_key(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let created: Value = serde_json::from_slice(&output.stdout).unwrap();
    created["key"].as_str().unwrap().to_owned()
}

fn start_server(database: &PostgresServer, home: &Path) -> ServerProcess {
    std::fs::create_dir_all(home).unwrap();
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--require-keys", "--home"]).arg(home);
    command.env("SAGGAR_DATABASE_URL", database.url());
    ServerProcess::from_command(command, home)
}

fn status(server: &ServerProcess, key: &str) -> u16 {
    server.request_as(Some(key), "GET", "/api/v1/jobs", HttpPayload::Nothing).status
}

/// Waits until a server answers with this status to a request with a key, and returns how long that took.
fn wait_for_status(server: &ServerProcess, key: &str, expected: u16) -> Duration {
    let began = Instant::now();
    while status(server, key) != expected {
        assert!(began.elapsed() < PROPAGATION_MAX, "no {expected} after {:?}", began.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    began.elapsed()
}

/// Names of the keys in a state directory, sorted.
fn key_names(path: PathBuf) -> Vec<String> {
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let name = |key: &Value| key["name"].as_str().unwrap().to_owned();
    let mut names: Vec<String> = file["keys"].as_array().unwrap().iter().map(name).collect();
    names.sort();
    names
}

#[test]
fn keys_are_created_and_revoked_on_all_servers_of_a_database() {
    let Some(database) = PostgresServer::start() else { return };
    let place = tempfile::tempdir().unwrap();
    let homes = ["a", "b"].map(|name| place.path().join(name));
    // The first server brings its keys. Those of the second one are renamed, and nothing is lost.
    let admin = create_key(&homes[0], &["root", "--scope", "admin"]);
    let other = create_key(&homes[1], &["other", "--scope", "admin"]);
    let servers = homes.each_ref().map(|home| start_server(&database, home));
    assert_eq!(
        [status(&servers[0], &admin), status(&servers[1], &admin), status(&servers[1], &other)],
        [200, 200, 401]
    );
    assert_eq!(key_names(homes[1].join("keys.json.before-sharing")), ["other"]);

    let body = json!({ "name": "reader", "scopes": ["jobs:read"] });
    let created = servers[1].request_as(Some(&admin), "POST", "/api/v1/keys", HttpPayload::Json(&body));
    assert_eq!(created.status, 201, "{}", created.text);
    let reader = created.json()["key"].as_str().unwrap().to_owned();
    assert_eq!(status(&servers[1], &reader), 200);
    let valid_after = wait_for_status(&servers[0], &reader, 200);
    let again = servers[0].request_as(Some(&admin), "POST", "/api/v1/keys", HttpPayload::Json(&body));
    assert_eq!(again.status, 409, "the name is taken on all servers: {}", again.text);
    let revoked = servers[0].request_as(Some(&admin), "DELETE", "/api/v1/keys/reader", HttpPayload::Nothing);
    assert_eq!(revoked.status, 204, "{}", revoked.text);
    let refused_after = wait_for_status(&servers[1], &reader, 401);
    println!(
        "a new key was valid on the other server after {valid_after:?}, a revoked one refused after {refused_after:?}"
    );

    // The command changes the keys of all servers too, and refuses to change one server's copy.
    let alone = key_command(&homes[0], None, &["create", "lost", "--scope", "predict"]);
    let text = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(!alone.status.success() && text.contains("is a copy") && text.contains("SAGGAR_DATABASE_URL"), "{text}");
    let third = created_key(&key_command(&homes[0], Some(&database), &["create", "third", "--scope", "jobs:read"]));
    wait_for_status(&servers[1], &third, 200);

    // Without the database, the keys that are known stay valid, and none can be created.
    database.stop();
    assert_eq!([status_of_models(&servers[0], &admin), status_of_models(&servers[1], &admin)], [200, 200]);
    let unknown = servers[1].request_as(Some("sgr_00000000"), "GET", "/api/v1/models", HttpPayload::Nothing);
    assert_eq!(unknown.status, 401);
    let body = json!({ "name": "late", "scopes": ["jobs:read"] });
    let refused = servers[0].request_as(Some(&admin), "POST", "/api/v1/keys", HttpPayload::Json(&body));
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("database_unavailable")), "{}", refused.text);
    database.start_again();
    let began = Instant::now();
    while servers[0].request_as(Some(&admin), "POST", "/api/v1/keys", HttpPayload::Json(&body)).status != 201 {
        assert!(began.elapsed() < PROPAGATION_MAX, "no key after {:?}", began.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    let names = ["late", "root", "third"];
    assert_eq!(key_names(homes[0].join("keys.json")), names);
    let [first, _second] = servers;
    first.kill_and_wait();
    // A server that leaves the database has the keys that it knew, and changes them alone.
    let alone = ServerProcess::start_with(&homes[0], &["--require-keys"]);
    assert_eq!(status(&alone, &admin), 200);
    create_key(&homes[0], &["alone", "--scope", "predict"]);
    assert_eq!(key_names(homes[0].join("keys.json")), ["alone", "late", "root", "third"]);
}

/// A request that needs no records.
fn status_of_models(server: &ServerProcess, key: &str) -> u16 {
    server.request_as(Some(key), "GET", "/api/v1/models", HttpPayload::Nothing).status
}
