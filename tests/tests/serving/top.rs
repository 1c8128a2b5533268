//! `saggar top` in a terminal, against real servers: live charts, keys, clicks, sizes, and servers that do not answer.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, TerminalProcess, binary, guest};
use serde_json::json;

const UP: &str = "\x1b[A";
const DOWN: &str = "\x1b[B";
const RIGHT: &str = "\x1b[C";
const LEFT: &str = "\x1b[D";

/// Returns `saggar top` with arguments, without the configuration of the tester.
fn top(home: &std::path::Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("top").args(arguments).env("XDG_CONFIG_HOME", home).env("TERM", "xterm-256color");
    for name in ["SAGGAR_HOST", "SAGGAR_API_KEY", "SAGGAR_JSON", "NO_COLOR"] {
        command.env_remove(name);
    }
    command
}

/// Starts `saggar top` for one server.
fn top_of(server: &ServerProcess, arguments: &[&str], columns: u16, rows: u16) -> TerminalProcess {
    let command = top(server.home(), &[&["--host", server.url(), "--interval", "200ms"], arguments].concat());
    TerminalProcess::start(&command, columns, rows)
}

/// Starts a server with a job that goes on.
fn server_with_job() -> (tempfile::TempDir, ServerProcess, String) {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(10_000_000).with_parameter("work", 4).submit(&server);
    server.wait_for_step(&job, 50);
    (home, server, job)
}

/// Waits until the server has samples of how busy a device is, at this many times.
fn wait_for_busy_samples(server: &ServerProcess, count: usize) {
    server.wait_for("samples of a busy device", |server| {
        let history = server.get("/api/v1/history?series=device_busy_ratio");
        let values = history["series"][0]["values"].as_array()?;
        (values.iter().filter(|value| value.is_number()).count() >= count).then_some(())
    });
}

/// Requests that another thread sends. Dropping this ends them, also when a test fails.
struct RequestLoad<'a>(&'a AtomicBool);

impl Drop for RequestLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the value behind a name in the legend.
fn legend_value(screen: &str, name: &str) -> Option<f64> {
    let (_, after) = screen.split_once(&format!("{name}  "))?;
    after.split_whitespace().next()?.trim_end_matches(['k', 'M', 'G']).parse().ok()
}

/// Returns the values at the axis of the first chart.
fn axis_values(screen: &str) -> Vec<f64> {
    let labels = screen.lines().filter_map(|line| line.split_once('┤')).map(|(label, _)| label.trim());
    labels.map(|label| label.parse().unwrap_or(f64::NAN)).collect()
}

#[test]
fn several_series_are_charted_live_with_their_latest_values() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.saggar_ok(&["run", guest("matmul").to_str().unwrap(), "--device", "cpu", "--wait"]);
    server.wait_for_version("matmul", 1);
    let job = SteadyJob::with_steps(10_000_000).submit(&server);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = RequestLoad(&is_over);
        scope.spawn(|| {
            let pixels = json!({ "x": vec![0.5; 784] });
            while !is_over.load(Ordering::Relaxed) {
                server.request("POST", "/models/matmul/predict", HttpPayload::Json(&pixels));
            }
        });
        let terminal = top_of(&server, &["--series", "busy,requests,accuracy", "--window", "1m"], 100, 40);
        let is_braille = |c: char| ('\u{2801}'..='\u{28ff}').contains(&c);
        let is_drawn = |screen: &str| {
            let titles = ["device busy, %", "requests/s", "accuracy"];
            titles.iter().all(|title| screen.contains(title))
                && screen.chars().filter(|c| is_braille(*c)).count() > 40
                && legend_value(screen, "matmul").is_some_and(|rate| rate > 1.0)
                && legend_value(screen, "cpu").is_some_and(|busy| busy > 1.0)
        };
        let first = terminal.wait_for("a chart of three units", is_drawn);
        let accuracy = |screen: &str| legend_value(screen, &job);
        terminal.wait_for("a later value of the job", |screen| {
            accuracy(screen).is_some_and(|value| Some(value) > accuracy(&first))
        });
        drop(load);
        terminal.wait_for("a model without requests", |screen| legend_value(screen, "matmul") == Some(0.0));
    });
}

#[test]
fn the_past_of_a_job_fills_the_window_at_the_start() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(3_000).with_parameter("spin", 1).submit(&server);
    server.wait_for_job(&job);
    let terminal = top_of(&server, &["--series", "accuracy", "--window", "5m"], 100, 30);
    let screen = terminal.wait_for_texts(&["accuracy", &format!("{job}  1")]);
    // A whole series between the first and the last refresh is more than a point.
    let rows = screen.lines().filter(|line| line.contains('│') || line.contains('┤'));
    let drawn = rows.filter(|row| row.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c))).count();
    assert!(drawn > 10, "{screen}");
}

#[test]
fn the_past_of_devices_fills_the_window_at_the_start() {
    let (_home, server, _job) = server_with_job();
    wait_for_busy_samples(&server, 5);
    // One refresh alone is one point.
    let command =
        top(server.home(), &["--host", server.url(), "--series", "busy", "--window", "1m", "--interval", "1h"]);
    let terminal = TerminalProcess::start(&command, 100, 24);
    let is_braille = |c: char| ('\u{2801}'..='\u{28ff}').contains(&c);
    terminal.wait_for("a line of several seconds", |screen| {
        let places = |line: &str| line.chars().enumerate().filter(|(_, c)| is_braille(*c)).map(|(at, _)| at).collect();
        let columns: std::collections::BTreeSet<usize> = screen
            .lines()
            .filter(|line| line.contains(['│', '┤']))
            .flat_map(|line| -> Vec<usize> { places(line) })
            .collect();
        columns.len() >= 5
    });
}

#[test]
fn keys_change_the_range_the_time_and_the_view() {
    let (_home, server, _job) = server_with_job();
    wait_for_busy_samples(&server, 1);
    let mut terminal =
        top_of(&server, &["--series", "busy", "--ymin", "0", "--ymax", "100", "--window", "2m"], 100, 24);
    let wait = |terminal: &TerminalProcess, low: f64, high: f64| {
        terminal.wait_for(&format!("an axis from {low} to {high}"), |screen| {
            let values = axis_values(screen);
            let (last, first) = (values.last().copied(), values.first().copied());
            last.is_some_and(|value| value >= low && value <= low + (high - low) / 4.0)
                && first.is_some_and(|value| value <= high && value >= high - (high - low) / 4.0)
        })
    };
    assert!(wait(&terminal, 0.0, 100.0).contains("range set"));
    terminal.send(UP);
    wait(&terminal, 20.0, 120.0);
    terminal.send(DOWN);
    wait(&terminal, 0.0, 100.0);
    terminal.send("+");
    wait(&terminal, 25.0, 75.0);
    terminal.send("--");
    wait(&terminal, -50.0, 150.0);
    terminal.send("a");
    terminal.wait_for_texts(&["range automatic"]);
    terminal.send("f");
    terminal.wait_for_texts(&["range every value"]);
    terminal.wait_for_texts(&[" now", "2m to "]);
    terminal.send(LEFT);
    terminal.wait_for("an axis without now", |screen| !screen.contains(" now"));
    terminal.send(RIGHT);
    terminal.wait_for_texts(&[" now"]);
    terminal.send(">");
    terminal.wait_for_texts(&["4m to "]);
    terminal.send("<<");
    terminal.wait_for_texts(&["60s to "]);
    for (key, text) in [("1", "PROGRESS"), ("2", "REQ/S"), ("\t", "ADAPTER"), ("\t", "device busy, %")] {
        terminal.send(key);
        terminal.wait_for_texts(&[text]);
    }
    terminal.send("p");
    terminal.wait_for_texts(&["PAUSED"]);
    terminal.send("p");
    terminal.wait_for_texts(&["every 200ms"]);
    terminal.send("?");
    terminal.wait_for_texts(&["q  Esc  Ctrl-C", "halve, double the range", "pan by 20 % of the range", "refresh now"]);
    terminal.send("\x1b");
    terminal.wait_for("the page of keys closes", |screen| !screen.contains("halve, double the range"));
    terminal.send("s");
    terminal.wait_for_texts(&["filter: ", "[x] cpu:busy", "[ ] cpu:memory"]);
    terminal.send("memory \r");
    terminal.wait_for_texts(&["device memory, bytes", "device busy, %"]);
    // The mouse: SGR coordinates from 1 (xterm, "Extended coordinates").
    terminal.send("\x1b[<0;3;1M");
    terminal.wait_for_texts(&["PROGRESS"]);
    terminal.send("q");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn a_key_refreshes_at_once() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let command = top(server.home(), &["--host", server.url(), "--interval", "1h"]);
    let mut terminal = TerminalProcess::start(&command, 100, 24);
    terminal.wait_for_texts(&["no jobs"]);
    let job = SteadyJob::with_steps(1).submit(&server);
    server.wait_for_job(&job);
    terminal.send("r");
    terminal.wait_for_texts(&[&job, "SUCCEEDED"]);
}

/// Starts a server with a job that is over and one that goes on, and returns the names of both.
fn server_with_two_jobs() -> (tempfile::TempDir, ServerProcess, [String; 2]) {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let first = SteadyJob::with_steps(200).submit(&server);
    server.wait_for_job(&first);
    let second = SteadyJob::with_steps(10_000_000).submit(&server);
    server.wait_for_step(&second, 50);
    (home, server, [first, second])
}

#[test]
fn rows_are_selected_with_keys_and_the_wheel_and_opened_as_charts() {
    let (_home, server, [first, second]) = server_with_two_jobs();
    let mut terminal = top_of(&server, &["--series", "busy", "--view", "jobs"], 100, 30);
    terminal.wait_for_texts(&[&first, &second, "LOSS"]);
    // The newest job is first.
    terminal.send(DOWN);
    terminal.send("\x1b[<64;10;5M");
    terminal.send("\x1b[<65;10;5M");
    terminal.send("\r");
    let screen = terminal.wait_for("a chart of the selected job", |screen| {
        screen.contains("loss") && legend_value(screen, &first).is_some() && !screen.contains("PROGRESS")
    });
    assert!(legend_value(&screen, &second).is_none(), "{screen}");
}

#[test]
fn servers_are_polled_in_parallel_and_a_dead_one_is_marked() {
    let (home, server, job) = server_with_job();
    // One that accepts connections and never answers, and one that nobody listens at.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hosts = [format!("http://{silent}"), server.url().to_owned(), format!("http://{gone}")];
    let hosts: Vec<&str> = hosts.iter().flat_map(|host| ["--host", host]).collect();
    let command = top(home.path(), &[&hosts[..], &["--interval", "200ms"]].concat());
    let terminal = TerminalProcess::start(&command, 140, 30);
    let live = server.url().strip_prefix("http://").unwrap().to_owned();
    let marks = [format!("○ {silent}"), format!("● {live}"), format!("○ {gone}: no answer"), job.clone()];
    terminal.wait_for_texts(&marks.each_ref().map(String::as_str));
    let step = |screen: &str| {
        let row = screen.lines().find(|line| line.starts_with(&job))?;
        row.split_whitespace().find_map(|word| word.strip_suffix("/10000000")?.parse::<u64>().ok())
    };
    let first = terminal.wait_for("the job's step", |screen| step(screen).is_some());
    // The silent server is given up after seconds; the other is refreshed meanwhile.
    let later = terminal.wait_for("a later step", |screen| step(screen) > step(&first));
    assert!(later.contains(&format!("○ {silent}")), "{later}");
    drop(server);
    let screen = terminal.wait_for_texts(&[&format!("○ {live}: no answer")]);
    assert!(screen.contains(&job), "the last figures stay: {screen}");
}

#[test]
fn terminals_of_60_to_300_columns_are_filled_and_smaller_ones_explained() {
    let (_home, server, job) = server_with_job();
    let mut terminal = top_of(&server, &["--view", "jobs"], 60, 15);
    let screen = terminal.wait_for_texts(&[&job, "RUNNING", "loss", "q ends"]);
    assert!(screen.lines().all(|line| line.chars().count() <= 60), "{screen}");
    terminal.resize(300, 60);
    let screen = terminal.wait_for_texts(&[&job, "ATTEMPT", "q ends"]);
    assert!(screen.lines().any(|line| line.trim_end().chars().count() == 300), "{screen}");
    terminal.resize(59, 14);
    terminal.wait_for_texts(&["needs 60 columns and 15 rows", "this terminal has 59 and 14"]);
    terminal.resize(100, 30);
    terminal.wait_for_texts(&[&job, "q ends"]);
}

#[test]
fn lines_differ_without_colours() {
    let (_home, server, [first, second]) = server_with_two_jobs();
    for no_colour in [false, true] {
        let mut command = top(server.home(), &["--host", server.url(), "--series", "accuracy", "--interval", "200ms"]);
        if no_colour {
            command.env("NO_COLOR", "1");
        }
        let mut terminal = TerminalProcess::start(&command, 100, 24);
        let screen = terminal.wait_for_texts(&["A ", "B ", &first, &second]);
        let plots: Vec<&str> = screen.lines().filter(|line| line.contains('│') || line.contains('┤')).collect();
        assert!(plots.iter().any(|row| row.contains('A')) && plots.iter().any(|row| row.contains('B')), "{screen}");
        terminal.send("q");
        terminal.wait();
        assert_eq!(terminal.received().contains("38;5;"), !no_colour);
    }
}
