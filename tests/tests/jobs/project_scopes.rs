//! Keys that are limited to projects, against the real binary.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::{Command, Output};

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, binary};
use serde_json::{Value, json};

/// More steps than run during the test.
const LONG: u64 = 1_000_000;
/// A queue whose jobs run one after the other.
const ONE_SLOT_MANIFEST: &str = "manifest = 1\n[project]\nname = \"steady\"\n[pool.narrow]\ndevice = \"cpu\"\nslots = 1\n\
                      [queue.narrow]\npools = [\"narrow\"]\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `saggar key` with a state directory.
fn key(home: &Path, arguments: &[&str]) -> Output {
    Command::new(binary()).args(["--json", "key"]).args(arguments).env("SAGGAR_HOME", home).output().unwrap()
}

fn create(home: &Path, arguments: &[&str]) -> String {
    let output = key(home, &[&["create"], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["key"].as_str().unwrap().to_owned()
}

/// A server, the admin key that requests use by default, and a key that is limited to `digits`.
struct ScopedServer {
    server: ServerProcess,
    ci: String,
}

impl ScopedServer {
    fn new(home: &Path) -> ScopedServer {
        let boss = create(home, &["boss", "--scope", "admin"]);
        let ci = create(home, &["ci", "--scope", "jobs:write,models:write", "--project", "digits"]);
        let file = home.join("saggar.toml");
        std::fs::write(&file, ONE_SLOT_MANIFEST).unwrap();
        let arguments = ["--require-keys", "--config", file.to_str().unwrap()];
        ScopedServer { server: ServerProcess::start_with(home, &arguments).with_key(&boss), ci }
    }

    /// Returns the response to the limited key: status and body, without the request's identifier and `name`.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>, name: &str) -> (u16, String) {
        let payload = body.map_or(HttpPayload::Nothing, HttpPayload::Json);
        let answer = self.server.request_as(Some(&self.ci), method, path, payload);
        let id = answer.header("x-request-id");
        (answer.status, answer.text.replace(id, "ID").replace(name, "NAME"))
    }

    fn get(&self, path: &str) -> Value {
        let (status, text) = self.ask("GET", path, None, "\0");
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    fn saggar(&self, arguments: &[&str]) -> Output {
        self.server.saggar(&[&["--key", &self.ci], arguments].concat())
    }
}

/// Returns every method of every route with a job in its path, from the server's own description.
fn routes_of_jobs(server: &ServerProcess) -> Vec<(String, String)> {
    let document = server.get("/openapi.json");
    let paths = document["paths"].as_object().unwrap().iter().filter(|(path, _)| path.contains("{job}"));
    let methods = |(path, item): (&String, &Value)| {
        let methods: Vec<_> = item.as_object().unwrap().keys().filter(|key| *key != "parameters").cloned().collect();
        methods.into_iter().map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
    };
    paths.flat_map(methods).collect()
}

fn check_hidden_jobs(place: &ScopedServer, hidden: &Value, digits: &Value) {
    let (name, id) = (hidden["name"].as_str().unwrap(), hidden["id"].as_str().unwrap());
    let routes = routes_of_jobs(&place.server);
    assert!(routes.len() >= 13, "{routes:?}");
    for (method, path) in &routes {
        let of = |job: &str| {
            let path = path.replace("{job}", job).replace("{which}", "latest").replace("{path}", "x.txt");
            place.ask(method, &path, None, job)
        };
        let unknown = of("faces-99");
        assert_eq!(unknown.0, 404, "{method} {path}");
        assert_eq!((of(name), of(id)), (unknown.clone(), unknown), "{method} {path}");
    }
    let with = |field: &str, value: Value| {
        let mut spec = digits.clone();
        spec[field] = value;
        spec
    };
    let of_mount = |job: &str| with("data", json!([{ "job": job, "mount": "/data" }]));
    let of_origin = |job: &str| with("init_from", json!(format!("job:{job}")));
    type NamedBody<'a> = (&'a str, &'a dyn Fn(&str) -> Value);
    let body: [NamedBody<'_>; 5] = [
        ("/api/v1/jobs", &of_mount),
        ("/api/v1/jobs", &of_origin),
        ("/api/v1/schedules", &|job| json!({ "name": "s", "cron": "0 0 * * *", "spec": of_mount(job) })),
        ("/api/v1/datasets/taken/from-job", &|job| json!({ "job": job })),
        ("/api/v1/models/m/versions", &|job| json!({ "from": format!("job:{job}") })),
    ];
    for (path, body) in body {
        let of = |job: &str| place.ask("POST", path, Some(&body(job)), job);
        assert_eq!(of("faces-99").0, 404, "{path}: {}", of("faces-99").1);
        assert_eq!(of(name), of("faces-99"), "{path}");
    }
    let events = |job: &str| place.ask("GET", &format!("/api/v1/events?job={job}"), None, job);
    assert_eq!(events(name), events("faces-99"));
    let status = place.saggar(&["status", name]);
    assert_eq!(status.status.code(), Some(3));
    assert!(text(&status.stderr).contains(&format!("no job {name}")), "{}", text(&status.stderr));
}

fn check_lists(place: &ScopedServer) {
    let rows = |path: &str, list: &str| place.get(path)[list].as_array().unwrap().clone();
    assert!(rows("/api/v1/jobs", "jobs").iter().all(|job| job["project"] == "digits"));
    assert!(!rows("/api/v1/jobs", "jobs").is_empty());
    assert_eq!(rows("/api/v1/jobs?project=faces", "jobs"), Vec::<Value>::new());
    assert_eq!(rows("/api/v1/schedules", "schedules"), Vec::<Value>::new());
    assert_eq!(place.server.get("/api/v1/schedules")["schedules"][0]["name"], "nightly");
    let removed = |name: &str| place.ask("DELETE", &format!("/api/v1/schedules/{name}"), None, name);
    assert_eq!((removed("nightly").0, removed("nightly")), (404, removed("none")));
    for path in ["/api/v1/jobs", "/api/v1/events", "/api/v1/schedules", "/api/v1/quota", "/api/v1/queues"] {
        let (status, text) = place.ask("GET", path, None, "\0");
        assert!(status == 200 && !text.contains("faces"), "{path}: {text}");
    }
    let keys: Vec<Value> = rows("/api/v1/quota", "keys").iter().map(|row| row["key"].clone()).collect();
    assert_eq!(keys, ["ci"]);
    let listed = place.saggar(&["ps", "-a"]);
    assert!(text(&listed.stdout).contains("digits-1") && !text(&listed.stdout).contains("faces"));
    // Shared objects are visible, without fields that name other projects.
    let used_by = |datasets: &Value| datasets["datasets"][0]["used_by"].clone();
    assert_eq!(used_by(&place.server.get("/api/v1/datasets")), json!(["faces-2"]));
    assert_eq!(used_by(&place.get("/api/v1/datasets")), json!([]));
    let (status, text) = place.ask("DELETE", "/api/v1/datasets/numbers/1", None, "\0");
    assert!(status == 403 && text.contains("it belongs to no project of the key ci"), "{status} {text}");
    place.server.saggar_ok(&["data", "projects", "numbers", "--project", "digits", "--project", "faces"]);
    let (status, text) = place.ask("DELETE", "/api/v1/datasets/numbers/1", None, "\0");
    assert!(status == 409 && text.contains("mount it: 1 of other projects"), "{status} {text}");
}

fn check_preemption_reason(place: &ScopedServer, faces: &SteadyJob, digits: &SteadyJob) {
    let server = &place.server;
    let first = digits.clone().with_field("preemptible", true).submit(server);
    server.wait_for_step(&first, 1);
    let winner = faces.submit(server);
    server.wait_for_step(&winner, 1);
    let job = server.wait_for(&first, |server| Some(server.job(&first)).filter(|job| job["state"] == "QUEUED"));
    let attempt = &job["attempts"][0];
    assert_eq!(attempt["message"], "made room for a job of another project", "{attempt}");
    let log = server.request("GET", &format!("/api/v1/jobs/{first}/logs"), HttpPayload::Nothing).text;
    assert!(log.contains("made room for a job of another project") && !log.contains(&winner), "{log}");
    let waits = |job: &Value| job["message"].as_str().unwrap().to_owned();
    assert!(waits(&job).contains(&format!("used by {winner}")), "{}", waits(&job));
    let limited = waits(&place.get(&format!("/api/v1/jobs/{first}")));
    assert!(limited.contains("used by a job of another project") && !limited.contains("faces"), "{limited}");
    let pools = place.get("/api/v1/queues")["pools"].as_array().unwrap().clone();
    let pool = pools.iter().find(|pool| pool["name"] == "narrow").unwrap();
    assert_eq!((&pool["used"], &pool["jobs"]), (&json!(1.0), &json!([])), "its slot is taken, by nobody that is named");
}

#[test]
fn things_outside_the_projects_of_a_key_are_not_found() {
    let home = tempfile::tempdir().unwrap();
    let place = ScopedServer::new(home.path());
    let server = &place.server;
    let narrow =
        |project: &str| SteadyJob::with_steps(LONG).with_field("project", project).with_field("queue", "narrow");
    let (faces, digits) = (narrow("faces"), narrow("digits"));

    let hidden =
        SteadyJob::with_steps(10).with_field("project", "faces").with_parameter("write", "x.txt=5").submit(server);
    let hidden = server.wait_for_job(&hidden);
    let spec = SteadyJob::with_steps(10).with_field("project", "digits").spec(server);
    let (status, job) = place.ask("POST", "/api/v1/jobs", Some(&spec), "\0");
    assert_eq!(status, 201, "{job}");
    server.wait_for_job("digits-1");
    let (status, own) = place.ask("GET", "/api/v1/jobs/digits-1", None, "\0");
    assert_eq!(status, 200, "{own}");

    server.saggar_ok(&["data", "push", "examples/digits", "--name", "numbers"]);
    let mounts = json!([{ "dataset": "numbers", "mount": "/data" }]);
    let reader = narrow("faces").with_field("data", mounts).submit(server);
    assert_eq!(reader, "faces-2");
    server.wait_for_step(&reader, 1);
    let nightly = json!({ "name": "nightly", "cron": "0 0 * * *", "spec": faces.spec(server) });
    server.post("/api/v1/schedules", &nightly);

    check_hidden_jobs(&place, &hidden, &spec);
    check_lists(&place);

    let theirs = faces.spec(server);
    let (status, refused) = place.ask("POST", "/api/v1/jobs", Some(&theirs), "\0");
    assert!(status == 403 && refused.contains("\"foreign_project\""), "{status} {refused}");
    assert!(refused.contains("the key ci is for jobs of digits, not of faces"), "{refused}");
    assert_eq!(place.ask("POST", "/api/v1/schedules", Some(&nightly), "\0").0, 403);
    let moved = json!({ "overrides": { "project": "faces" } });
    assert_eq!(place.ask("POST", "/api/v1/jobs/digits-1/restart", Some(&moved), "\0").0, 403);
    assert_eq!(server.get("/api/v1/jobs?project=faces")["jobs"].as_array().unwrap().len(), 2, "nothing was submitted");

    server.post(&format!("/api/v1/jobs/{reader}/stop"), &json!({}));
    server.wait_for_job(&reader);
    check_preemption_reason(&place, &faces, &digits);
}

#[test]
fn the_key_command_creates_project_keys() {
    let home = tempfile::tempdir().unwrap();
    create(home.path(), &["ci", "--scope", "jobs:read", "--project", "faces", "--project", "digits"]);
    create(home.path(), &["all", "--scope", "jobs:read"]);
    let listed: Value = serde_json::from_slice(&key(home.path(), &["ls"]).stdout).unwrap();
    let projects: Vec<&Value> = listed["keys"].as_array().unwrap().iter().map(|key| &key["projects"]).collect();
    assert_eq!(projects, [&json!(["digits", "faces"]), &Value::Null]);
    let table = Command::new(binary()).args(["key", "ls"]).env("SAGGAR_HOME", home.path()).output().unwrap();
    let table = text(&table.stdout);
    assert!(table.contains("PROJECTS") && table.contains("digits,faces") && table.contains(" all "), "{table}");
    for (scope, project, words) in [
        ("admin", "digits", "the scope admin sees every project"),
        ("jobs:read", "Digits", "`Digits` cannot be a project's name"),
        ("jobs:read", "", "`` cannot be a project's name"),
    ] {
        let refused = key(home.path(), &["create", "x", "--scope", scope, "--project", project]);
        assert_eq!(refused.status.code(), Some(7), "{project:?}: {}", text(&refused.stderr));
        let said = text(&refused.stderr) + &text(&refused.stdout);
        assert!(said.contains(words), "{said}");
    }
}
