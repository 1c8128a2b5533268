//! What `saggar top` reads and writes besides the terminal: JSON, recordings, the user's configuration, keys, and a
//! Prometheus server.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use saggar_tests::{ServerProcess, SteadyJob, TerminalProcess, binary, create_key};
use serde_json::Value;

fn top(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("top").args(arguments).env("XDG_CONFIG_HOME", home).env("TERM", "xterm-256color");
    for name in ["SAGGAR_HOST", "SAGGAR_API_KEY", "SAGGAR_JSON", "NO_COLOR"] {
        command.env_remove(name);
    }
    command
}

fn run(home: &Path, arguments: &[&str]) -> Output {
    top(home, arguments).output().unwrap()
}

/// Returns the objects that a command prints, one a line.
fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{}: {text}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn errors(output: &Output, code: i32) -> String {
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

/// Starts a job that goes on, and waits until the server has a sample of its device. Returns its name.
fn start_job(server: &ServerProcess) -> String {
    let job = SteadyJob::with_steps(10_000_000).submit(server);
    server.wait_for_step(&job, 5);
    server.wait_for("a sample of a busy device", |server| {
        let history = server.get("/api/v1/history?series=device_busy_ratio");
        let values = history["series"][0]["values"].as_array()?;
        values.iter().any(Value::is_number).then_some(())
    });
    job
}

#[test]
fn json_is_one_object_for_each_refresh() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = start_job(&server);
    let gone = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let hosts = ["--host", server.url(), "--host", &gone];
    let lines = objects(&run(home.path(), &[&hosts[..], &["--json", "-n", "3"]].concat()));
    assert_eq!(lines.len(), 3);
    let times: Vec<u64> = lines.iter().map(|line| line["at_ms"].as_u64().unwrap()).collect();
    assert!(times.is_sorted_by(|one, other| one < other), "{times:?}");
    let host = &lines[2]["hosts"][0];
    assert_eq!((&host["host"], &host["answered"]), (&server.url().into(), &true.into()));
    let row = &host["jobs"][0];
    assert_eq!(
        (&row["name"], &row["state"], &row["steps_target"]),
        (&job.into(), &"RUNNING".into(), &10_000_000.into())
    );
    assert!(row["metrics"]["accuracy"].is_number() && row["steps_per_second"].is_number(), "{row}");
    assert!(host["devices"][0]["busy_percent"].is_number(), "{host}");
    let dead = &lines[2]["hosts"][1];
    assert_eq!((&dead["host"], &dead["answered"]), (&gone.clone().into(), &false.into()));
    assert!(dead["error"].as_str().unwrap().contains("no answer from"), "{dead}");
    // The reader decides how long it goes on.
    let command = format!("{} top --json --host {} --interval 200ms | head -n 2", binary().display(), server.url());
    let piped = Command::new("bash").args(["-c", &format!("set -o pipefail; {command}")]).output().unwrap();
    assert_eq!(objects(&piped).len(), 2);
}

#[test]
fn without_a_terminal_the_error_names_json_and_wrong_arguments_are_explained() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let host = ["--host", server.url()];
    let refused = |arguments: &[&str], code| errors(&run(home.path(), &[&host[..], arguments].concat()), code);
    let text = refused(&[], 2);
    assert!(text.contains("standard output is not a terminal") && text.contains("saggar top --json"), "{text}");
    assert!(refused(&["--interval", "1ms"], 2).contains("too short"));
    assert!(refused(&["--ymin", "1", "--ymax", "-1"], 2).contains("--ymin 1 is not below --ymax -1"));
    assert!(refused(&["--series", "a:"], 2).contains("expected NAME or OWNER:NAME"));
    assert!(refused(&["nothing.jsonl"], 7).contains("nothing.jsonl: No such file"));
    std::fs::write(home.path().join("bad.jsonl"), "{\"at_ms\":1,\"hosts\":[]}\n{}\n").unwrap();
    let bad = home.path().join("bad.jsonl");
    assert!(refused(&["--replay", bad.to_str().unwrap()], 7).contains("bad.jsonl:2: expected a line of"));
    let several = Command::new(binary()).args(["--host", "http://a", "--host", "http://b", "ps"]).output().unwrap();
    assert!(errors(&several, 2).contains("`saggar top` shows several servers"));
}

#[test]
fn a_recording_is_shown_and_printed_again() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = start_job(&server);
    let file = home.path().join("run.jsonl");
    let path = file.to_str().unwrap();
    let record = ["--host", server.url(), "--record", path, "-n", "4", "--interval", "200ms"];
    let terminal = TerminalProcess::start(&top(home.path(), &record), 100, 30);
    assert_eq!(terminal.wait(), 0);
    let recorded: Vec<Value> =
        std::fs::read_to_string(&file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(recorded.len(), 4);
    // Another recording continues the file, and a line that was cut off is left out.
    let printed = objects(&run(home.path(), &["--host", server.url(), "--json", "-n", "1", "--record", path]));
    std::fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(b"{\"at_ms\":").unwrap();
    drop(server);
    let all = objects(&run(home.path(), &[path, "--json"]));
    assert_eq!((&all[..4], &all[4..]), (&recorded[..], &printed[..]));
    for arguments in [&[path, "--window", "5s"][..], &["--replay", path, "--window", "5s"]] {
        let mut terminal = TerminalProcess::start(&top(home.path(), arguments), 100, 30);
        terminal.wait_for_texts(&[&job, "RUNNING", "recording", "LOSS"]);
        terminal.send("4");
        terminal.wait_for_texts(&["device busy, %"]);
        terminal.send("q");
        assert_eq!(terminal.wait(), 0);
    }
}

#[test]
fn the_users_configuration_has_defaults() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    start_job(&server);
    let config = home.path().join("saggar/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    let text = format!(
        "[top]\nhosts = [\"{}\", \"http://127.0.0.1:9\"]\ninterval = \"250ms\"\nwindow = \"7m\"\nseries = [\"busy\"]\n",
        server.url()
    );
    std::fs::write(&config, text).unwrap();
    let mut terminal = TerminalProcess::start(&top(home.path(), &["--view", "charts"]), 100, 30);
    terminal.wait_for_texts(&["7m to ", "every 250ms", "device busy, %", "○ 127.0.0.1:9"]);
    terminal.send("q");
    terminal.wait();
    let lines = objects(&run(home.path(), &["--json", "-n", "1"]));
    assert_eq!(lines[0]["hosts"].as_array().unwrap().len(), 2);
    // The command line wins.
    let lines = objects(&run(home.path(), &["--json", "-n", "1", "--host", server.url()]));
    assert_eq!(lines[0]["hosts"].as_array().unwrap().len(), 1);
    let mut listing = Command::new(binary());
    listing.args(["config", "ls"]).env("XDG_CONFIG_HOME", home.path()).env_remove("SAGGAR_HOST");
    let listing = String::from_utf8(listing.current_dir(home.path()).output().unwrap().stdout).unwrap();
    let row = |key: &str| listing.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
    assert!(row("top.interval").contains("250ms") && row("top.interval").ends_with("user configuration"), "{listing}");
    assert!(row("top.prometheus").ends_with("built-in"), "{listing}");
    std::fs::write(&config, "[top]\nseries = [\"a:\"]\n").unwrap();
    assert!(errors(&run(home.path(), &["--json"]), 7).contains("top.series: invalid series `a:`"));
    std::fs::remove_file(&config).unwrap();
    TerminalProcess::start(&top(home.path(), &["--host", server.url()]), 100, 30)
        .wait_for_texts(&["10m to ", "every 2s"]);
}

#[test]
fn a_server_with_keys_is_shown_as_far_as_the_key_allows() {
    let home = tempfile::tempdir().unwrap();
    let admin = create_key(home.path(), &["admin", "--scope", "admin"]);
    let reader = create_key(home.path(), &["reader", "--scope", "jobs:read"]);
    let predictor = create_key(home.path(), &["predictor", "--scope", "predict"]);
    let server = ServerProcess::start_with(home.path(), &["--require-keys"]).with_key(&admin);
    let job = SteadyJob::with_steps(3).submit(&server);
    server.wait_for_job(&job);
    let start = |key: Option<&str>| {
        let mut command = top(home.path(), &["--host", server.url(), "--interval", "200ms"]);
        if let Some(key) = key {
            command.env("SAGGAR_API_KEY", key);
        }
        TerminalProcess::start(&command, 120, 30)
    };
    start(Some(&reader)).wait_for_texts(&[&job, "SUCCEEDED"]);
    start(Some(&predictor)).wait_for_texts(&["jobs: ", "jobs:read", "no jobs"]);
    start(None).wait_for_texts(&["jobs: ", "key"]);
    let mut command = top(home.path(), &["--host", server.url(), "--json", "-n", "1"]);
    let lines = objects(&command.env("SAGGAR_API_KEY", &reader).output().unwrap());
    assert_eq!(lines[0]["hosts"][0]["jobs"][0]["name"], job);
    assert!(!lines[0].to_string().contains(&reader));
}

/// The requests that a Prometheus server got: the first line and the headers of each.
type SeenRequests = Arc<Mutex<Vec<String>>>;

/// Starts a Prometheus server whose device was 42 % busy at all times that are requested.
fn prometheus_server() -> (String, SeenRequests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, seen) = (format!("http://{}", listener.local_addr().unwrap()), SeenRequests::default());
    let requests = Arc::clone(&seen);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let parameter = |name: &str| {
                let (_, value) = head[0].split_once(&format!("{name}=")).unwrap();
                value.split(['&', ' ', '.']).next().unwrap().parse::<u64>().unwrap_or(0)
            };
            let values: Vec<String> = match head[0].contains("busy_seconds") {
                true => (parameter("start")..parameter("end")).step_by(10).map(|at| format!("[{at},\"42\"]")).collect(),
                false => Vec::new(),
            };
            let body = format!(
                "{{\"status\":\"success\",\"data\":{{\"resultType\":\"matrix\",\"result\":[{{\"metric\":\
                 {{\"instance\":\"scraped\",\"device\":\"cpu\"}},\"values\":[{}]}}]}}}}",
                values.join(",")
            );
            let answer =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes());
            requests.lock().unwrap().push(head.join("\n"));
        }
    });
    (url, seen)
}

#[test]
fn prometheus_fills_the_time_before_the_start() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    start_job(&server);
    let (url, requests) = prometheus_server();
    let arguments = ["--host", server.url(), "--series", "busy", "--window", "10m", "--interval", "300ms"];
    let mut command =
        top(home.path(), &[&arguments[..], &["--prometheus", &url, "--ymin", "0", "--ymax", "100"]].concat());
    command.env("SAGGAR_API_KEY", "a-key-that-is-for-the-server");
    let mut terminal = TerminalProcess::start(&command, 100, 24);
    let is_braille = |c: char| ('\u{2801}'..='\u{28ff}').contains(&c);
    let is_filled = |screen: &str| screen.lines().any(|line| line.chars().filter(|c| is_braille(*c)).count() > 80);
    terminal.wait_for("a line from the left to the right", is_filled);
    terminal.send("\x1b[D");
    terminal.wait_for("an earlier time", |screen| !screen.contains(" now") && is_filled(screen));
    let seen = requests.lock().unwrap().clone();
    assert!(seen.iter().all(|head| head.contains("/api/v1/query_range?query=")), "{seen:?}");
    assert!(!seen.iter().any(|head| head.to_lowercase().contains("authorization")), "the key is for the server alone");
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let command = top(home.path(), &[&arguments[..], &["--prometheus", &format!("http://{gone}")]].concat());
    TerminalProcess::start(&command, 100, 24).wait_for_texts(&["Prometheus: no answer from", "device busy, %"]);
}
