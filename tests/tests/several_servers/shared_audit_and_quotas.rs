//! The audit log, and the quotas and rates of keys, of servers with one database.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, PostgresServer, ServerProcess, binary, create_key};
use serde_json::{Value, json};

/// Time in which the servers know each other's requests: one exchange each 5 s.
const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(7);

fn start_server(database: &PostgresServer, root: &Path, name: &str) -> ServerProcess {
    let home = root.join(name);
    std::fs::create_dir_all(&home).unwrap();
    let mut command = Command::new(binary());
    let arguments = ["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--require-keys", "--name", name, "--home"];
    command.args(arguments).arg(&home).env("SAGGAR_DATABASE_URL", database.url());
    ServerProcess::from_command(command, &home)
}

/// Two servers of one database, and their administrator's key.
fn start_servers(database: &PostgresServer, root: &Path) -> (Vec<ServerProcess>, String) {
    std::fs::create_dir_all(root.join("a")).unwrap();
    let admin = create_key(&root.join("a"), &["root", "--scope", "admin"]);
    let servers = ["a", "b"].map(|name| start_server(database, root, name).with_key(&admin));
    (servers.into(), admin)
}

fn create_limited_key(server: &ServerProcess, name: &str, limit: (&str, &str)) -> String {
    let mut body = json!({ "name": name, "scopes": ["jobs:read"] });
    body[limit.0] = json!(limit.1);
    server.post("/api/v1/keys", &body)["key"].as_str().unwrap().to_owned()
}

fn status(server: &ServerProcess, key: &str) -> u16 {
    server.request_as(Some(key), "GET", "/api/v1/jobs", HttpPayload::Nothing).status
}

fn audit_lines(server: &ServerProcess, query: &str) -> Vec<Value> {
    server.get(&format!("/api/v1/audit?{query}"))["lines"].as_array().unwrap().clone()
}

#[test]
fn actions_on_every_server_are_in_one_audit_log_also_those_while_the_database_was_away() {
    let Some(database) = PostgresServer::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let (servers, _) = start_servers(&database, root.path());
    for (server, name) in servers.iter().zip(["one", "two"]) {
        create_limited_key(server, name, ("rate", "100/s"));
    }
    let created = servers[0].wait_for("lines of both servers", |server| {
        let lines = audit_lines(server, "action=key.create");
        (lines.len() == 2).then_some(lines)
    });
    let fields = |line: &Value| ["server", "subject", "who", "result"].map(|it| line[it].as_str().unwrap().to_owned());
    assert_eq!(fields(&created[0]), ["b", "two", "key:root", "ok"]);
    assert_eq!(fields(&created[1]), ["a", "one", "key:root", "ok"]);
    assert!(created[0]["sequence"].as_u64() > created[1]["sequence"].as_u64());
    assert!(created.iter().all(|line| line["request_id"] != "" && line["at"].as_str().unwrap().ends_with('Z')));
    assert_eq!(
        servers[1].get("/api/v1/audit?action=key.create")["lines"],
        json!(created),
        "every server shows the same"
    );
    // Pages and filters.
    let page = servers[1].get("/api/v1/audit?action=key&limit=1");
    assert_eq!(page["lines"], json!([created[0]]));
    let next = format!("/api/v1/audit?action=key&limit=1&before={}", page["next"]);
    assert_eq!(servers[1].get(&next)["lines"], json!([created[1]]));
    assert_eq!(audit_lines(&servers[0], "server=b&subject=two").len(), 1);
    assert!(audit_lines(&servers[0], "who=key%3Aother").is_empty());
    let refused = servers[0].request("GET", "/api/v1/audit?limit=many", HttpPayload::Nothing);
    assert_eq!(refused.status, 400, "{}", refused.text);
    // The command, and a key that may not read the log.
    let printed = servers[1].saggar_ok(&["audit", "--action", "key.create"]);
    let rows: Vec<&str> = printed.lines().collect();
    assert!(rows.len() == 3 && rows[1].contains(" one ") && rows[2].contains(" two "), "{printed}");
    let reader = create_limited_key(&servers[0], "reader", ("rate", "100/s"));
    let denied = servers[0].request_as(Some(&reader), "GET", "/api/v1/audit", HttpPayload::Nothing);
    assert_eq!(denied.status, 403, "{}", denied.text);
    // While the database is away, lines are in the file of their server. Later all servers have them.
    database.stop();
    let answer = servers[1].request("DELETE", "/api/v1/keys/two", HttpPayload::Nothing);
    assert_eq!(answer.status, 503, "{}", answer.text);
    let file = std::fs::read_to_string(root.path().join("b/audit.log")).unwrap();
    assert!(file.lines().last().unwrap().contains("database_unavailable"), "{file}");
    assert_eq!(servers[0].request("GET", "/api/v1/audit", HttpPayload::Nothing).status, 503);
    servers[1].wait_for_log("the audit log is not recorded in the database");
    database.start_again();
    let late = servers[0].wait_for("the line of the outage", |server| {
        let answer = server.request("GET", "/api/v1/audit?action=key.revoke", HttpPayload::Nothing);
        answer.json()["lines"].as_array().filter(|lines| !lines.is_empty()).cloned()
    });
    assert_eq!(fields(&late[0]), ["b", "two", "key:root", "database_unavailable"]);
    servers[1].wait_for_log("the audit log is recorded in the database again");
}

#[test]
fn a_quota_counts_the_requests_on_all_servers_and_survives_their_restart() {
    let Some(database) = PostgresServer::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let (mut servers, _) = start_servers(&database, root.path());
    let key = create_limited_key(&servers[0], "limited", ("quota", "20/d"));
    servers[1].wait_for("the key", |server| (status(server, &key) == 200).then_some(()));
    // 1 request or more to wait for the key; the others go to both servers until both refuse.
    let (began, mut accepted) = (Instant::now(), 1);
    let mut refused_at = [None, None];
    while refused_at.contains(&None) && began.elapsed() < Duration::from_secs(60) {
        for (at, server) in servers.iter().enumerate() {
            match status(server, &key) {
                200 => accepted += 1,
                429 => refused_at[at] = refused_at[at].or(Some(began.elapsed())),
                other => panic!("status {other}"),
            }
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    println!("{accepted} of 20 requests accepted; refused after {refused_at:?}");
    // Between two exchanges, each server can accept what the other one does not know: 5 s of 2 requests a second.
    assert!((20..=20 + 2 * 7).contains(&accepted), "{accepted}");
    assert!(refused_at.iter().all(Option::is_some), "{refused_at:?}");
    // A server that starts again knows the requests.
    servers.remove(0).kill_and_wait();
    let again = start_server(&database, root.path(), "a");
    let began = Instant::now();
    again.wait_for("the refusal", |server| (status(server, &key) == 429).then_some(()));
    assert!(began.elapsed() < EXCHANGE_TIME_MAX, "{:?}", began.elapsed());
}

#[test]
fn each_of_two_servers_gives_half_of_the_rate() {
    let Some(database) = PostgresServer::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let (mut servers, _) = start_servers(&database, root.path());
    // The bucket of a whole window, which does not fill again during the test.
    let accepted = |server: &ServerProcess, key: &str| (0..60).filter(|_| status(server, key) == 200).count();
    // Until the servers know of each other, each one gives the whole rate.
    let both = servers[0].wait_for("half of the rate", |server| {
        let name = format!("half-{}", server.get("/api/v1/keys")["keys"].as_array().unwrap().len());
        let key = create_limited_key(server, &name, ("rate", "40/h"));
        servers[1].wait_for("the key", |server| (status(server, &key) != 401).then_some(()));
        let counts = [accepted(server, &key), accepted(&servers[1], &key)];
        println!("accepted {counts:?} of 40");
        (counts[0] == 20).then_some(counts)
    });
    // The second server has answered while it was asked for the key.
    assert!(both[1] <= 20 && both[1] >= 10, "{both:?}");
    // The one that is left gives all of it, after the other one was not seen for 25 s.
    servers.remove(1).kill_and_wait();
    let began = Instant::now();
    servers[0].wait_for("the whole rate", |server| {
        let name = format!("all-{}", server.get("/api/v1/keys")["keys"].as_array().unwrap().len());
        let key = create_limited_key(server, &name, ("rate", "40/h"));
        std::thread::sleep(Duration::from_secs(1));
        (accepted(server, &key) == 40).then_some(())
    });
    println!("the whole rate after {:.0} s", began.elapsed().as_secs_f64());
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
}
