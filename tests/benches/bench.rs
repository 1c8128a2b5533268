//! `make bench`: what a user would ask of this machine, each figure beside what bounds it, in one table.
//!
//! Serving is loaded by `wrk` from outside of both processes; the bare hyper server beside it reads the same body and
//! answers a fixed one, so the ratio is what decoding, the plugin, the device and the answer cost.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark stops at the first thing that goes wrong")]

#[path = "bench/bare.rs"]
mod bare;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use saggar_tests::{Payload, Server, copy_version, lenet, root};
use serde_json::json;

const CONNECTIONS: [u32; 3] = [1, 8, 64];
const SECONDS: u32 = 6;
const SWAPS: u64 = 10;
const STARTS: usize = 5;

fn main() {
    if std::env::args().any(|argument| argument == "--bare") {
        bare::serve();
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path());
    println!("machine: {}", machine());
    let shape = training(&server);
    serving(&server, shape, home.path());
    swaps(&server, home.path());
    drop(server);
    starts(home.path(), shape);
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("?").trim_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("{model}, {cores} cores, load {}", load.split(' ').next().unwrap_or("?"))
}

/// Trains the LeNet, on MNIST where `MNIST` names its directory, and returns the image's height and width.
fn training(server: &Server) -> usize {
    let mnist = std::env::var_os("MNIST").map(PathBuf::from);
    let (data, side) = match &mnist {
        Some(dir) => (dir.clone(), 28),
        None => (root().join("examples/digits"), 8),
    };
    server.saggar_ok(&["data", "push", data.to_str().unwrap(), "--name", "data"]);
    let epochs = if mnist.is_some() { "epochs=1" } else { "epochs=30" };
    let plugin = lenet();
    let run =
        ["run", plugin.to_str().unwrap(), "--project", "bench", "--data", "data", "--device", "cpu", "--wait", "--"];
    server.saggar_ok(&[&run[..], &["batch=64", "model=bench", epochs]].concat());
    let job = server.get("/api/v1/jobs/bench-1");
    let attempt = &job["attempts"][0];
    let (samples, seconds) = (attempt["samples"].as_f64().unwrap(), attempt["wall_seconds"].as_f64().unwrap());
    let device = attempt["gpu_seconds"].as_f64().unwrap();
    println!("\ntraining, LeNet {side}x{side}, batch 64, whole attempt with validation");
    println!(
        "  {:.0} samples/s ({samples} samples in {seconds:.2} s, {device:.2} s of it on the device)",
        samples / seconds
    );
    side
}

fn serving(server: &Server, side: usize, home: &Path) {
    server.wait_for_version("bench", 1);
    let body = json!({ "image": vec![vec![7; side]; side] }).to_string();
    let script = home.join("post.lua");
    let lua = format!("wrk.method='POST' wrk.headers['content-type']='application/json' wrk.body='{body}'");
    std::fs::write(&script, lua).unwrap();
    let mut bare = Command::new(std::env::current_exe().unwrap()).arg("--bare").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(bare.stdout.take().unwrap()), &mut line).unwrap();
    println!("\nserving, POST /predict, {} bytes of JSON, {SECONDS} s each", body.len());
    println!("  connections  saggar req/s  p50        p99        bare hyper req/s  p50        p99        ratio");
    for connections in CONNECTIONS {
        let ours = wrk(&format!("{}/predict", server.url()), connections, &script);
        let theirs = wrk(line.trim(), connections, &script);
        let ratio = ours.rate / theirs.rate;
        println!(
            "  {connections:<11}  {:<12.0}  {:<9}  {:<9}  {:<16.0}  {:<9}  {:<9}  {ratio:.3}",
            ours.rate, ours.p50, ours.p99, theirs.rate, theirs.p50, theirs.p99
        );
    }
    bare.kill().unwrap();
    bare.wait().unwrap();
}

struct Load {
    rate: f64,
    p50: String,
    p99: String,
}

fn wrk(url: &str, connections: u32, script: &Path) -> Load {
    let threads = connections.min(2).to_string();
    let output = Command::new("wrk")
        .args(["-t", &threads, "-c", &connections.to_string(), "-d", &format!("{SECONDS}s"), "--latency", "-s"])
        .arg(script)
        .arg(url)
        .output()
        .expect("wrk is installed: `.ci/setup bench` does it");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("Non-2xx"), "{text}");
    let after = |key: &str| {
        let line =
            text.lines().find(|line| line.trim_start().starts_with(key)).unwrap_or_else(|| panic!("{key} in {text}"));
        line.trim_start()[key.len()..].trim().to_owned()
    };
    Load { rate: after("Requests/sec:").parse().unwrap(), p50: after("50%"), p99: after("99%") }
}

fn swaps(server: &Server, home: &Path) {
    let models = home.join("models/bench");
    let mut times: Vec<f64> = Vec::new();
    for version in 2..2 + SWAPS {
        copy_version(&models, 1, version);
        let began = Instant::now();
        server.wait_for_version("bench", version);
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    let metrics = server.request("GET", "/metrics", Payload::Nothing).text;
    let value = |suffix: &str| -> f64 {
        let name = format!("saggar_model_swap_duration_seconds_{suffix}{{model=\"bench\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    };
    println!("\nhot swap, {SWAPS} versions with the same plugin");
    println!("  from the manifest's arrival to the first answer possible: median {:.0} ms", times[times.len() / 2]);
    println!("  of it work (verify, compile, load, warm): mean {:.1} ms", value("sum") / value("count") * 1000.0);
}

fn starts(home: &Path, side: usize) {
    let body = json!({ "image": vec![vec![7; side]; side] });
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..STARTS {
        let began = Instant::now();
        let server = Server::start(home);
        while server.request("POST", "/predict", Payload::Json(&body)).status != 200 {
            std::thread::sleep(Duration::from_millis(1));
        }
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    println!("\nstart of the process to the first answer: median {:.0} ms of {STARTS}", times[STARTS / 2]);
}
