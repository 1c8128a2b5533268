//! The time from the start of a process to its first response, with warm caches of the system and of saggar; waking a
//! model that was put to sleep; and starting an instance to replace one that trapped.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, ServerProcess, binary, guest};
use serde_json::json;

use crate::client::{HttpConnection, encode_post, port_of_url, post_once};
use crate::peers::{PeerEnvironment, PeerKind, PeerServer, free_port};
use crate::report::{BenchGoal, BenchReport};
use crate::stage::{BenchFixture, picture_json, vector};
use crate::statistics::{median, percentile};

/// Number of starts of each server.
const STARTS: usize = 11;
/// Number of wakes of the model.
const WAKES: usize = 10;
/// The arguments of a server that computes on the processor.
const ON_CPU: &[&str] = &["--device", "cpu"];
const START_MAX: Duration = Duration::from_secs(60);
/// Number of calls that trap.
const TRAPS: usize = 500;
/// The layer width with which a model has 2 MB of weights: (784 + 10 + 1) x 640 floats.
const TWO_MEGABYTES_WIDTH: u32 = 640;

pub(crate) fn measure(stage: &BenchFixture, server: &ServerProcess, report: &mut BenchReport) {
    stage.train_lenet(server);
    measure_wakes(stage, server, report);
    measure_instance_starts(server, report);
    measure_starts(stage, report);
}

fn measure_starts(stage: &BenchFixture, report: &mut BenchReport) {
    println!("\nstart of the process to the first answer of LeNet, ms, {STARTS} starts each in turn");
    let body = picture_json(&stage.pictures()[0]);
    let home = copy_home(stage);
    let peers = PeerEnvironment::open().and_then(|environment| {
        let model = stage.export_onnx(&environment)?;
        Ok((environment, model))
    });
    if let Err(why) = &peers {
        report.add_skipped("cold start of peers", why);
    }
    let kinds = [PeerKind::Flask, PeerKind::FastApi, PeerKind::Mosec { batch: 1 }];
    let mut times = vec![Vec::new(); 1 + kinds.len()];
    for _ in 0..STARTS {
        times[0].push(start_to_first_answer_ms(home.path(), ON_CPU, &body));
        if let Ok((environment, model)) = &peers {
            for (kind, times) in kinds.iter().zip(&mut times[1..]) {
                let began = Instant::now();
                let peer = PeerServer::spawn(environment, *kind, model, 1);
                times.push(first_answer_ms(began, peer.port(), "/predict", &body));
            }
        }
    }
    let names = std::iter::once("saggar".to_owned()).chain(kinds.iter().map(|kind| kind.name()));
    for (name, times) in names.zip(&times).filter(|(_, times)| !times.is_empty()) {
        println!(
            "  {name:<34} median {:>7.1}   least {:>7.1}   most {:>7.1}",
            median(times.clone()),
            percentile(times.clone(), 0.0),
            percentile(times.clone(), 100.0)
        );
    }
    report.add_goal(
        "start of the process to the first answer",
        median(times[0].clone()),
        " ms",
        BenchGoal::AtMost(60.0),
    );
}

/// Returns a copy of the state directory, because the server of the section holds the other's lock. Its cache is warm
/// after the first start.
pub(crate) fn copy_home(stage: &BenchFixture) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for dir in ["models", "cache"] {
        let from = stage.home().join(dir);
        if from.is_dir() {
            let status = Command::new("cp").arg("-a").arg(from).arg(home.path().join(dir)).status().unwrap();
            assert!(status.success(), "cp {dir}");
        }
    }
    // Keep only the requested model: others would only make the start longer.
    for entry in std::fs::read_dir(home.path().join("models")).unwrap().flatten() {
        if entry.file_name() != "lenet" {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    start_to_first_answer_ms(home.path(), ON_CPU, &picture_json(&stage.pictures()[0]));
    home
}

/// Returns the time from the start of a server with these arguments to its first answer of LeNet.
pub(crate) fn start_to_first_answer_ms(home: &Path, arguments: &[&str], body: &str) -> f64 {
    struct KillOnDrop(Child);
    impl Drop for KillOnDrop {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let port = free_port();
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", &format!("127.0.0.1:{port}"), "--home"]).arg(home).args(arguments);
    // Mesa's cache in the user's home would stand in for that of saggar.
    command.env("MESA_SHADER_CACHE_DISABLE", "true");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let _server = KillOnDrop(command.spawn().unwrap());
    first_answer_ms(began, port, "/models/lenet/predict", body)
}

fn first_answer_ms(began: Instant, port: u16, path: &str, body: &str) -> f64 {
    while !post_once(port, path, body) {
        assert!(began.elapsed() < START_MAX, "nothing answered on port {port}");
        std::thread::sleep(Duration::from_micros(500));
    }
    began.elapsed().as_secs_f64() * 1e3
}

fn measure_wakes(stage: &BenchFixture, server: &ServerProcess, report: &mut BenchReport) {
    println!("\nwaking a model of 2 MB that was put to sleep, {WAKES} times");
    let model = "two-megabytes";
    stage.publish_linear(server, model, 1, 1, TWO_MEGABYTES_WIDTH);
    let config = json!({ "keep_alive": "0s" });
    let answer = server.request("PUT", &format!("/api/v1/models/{model}/config"), HttpPayload::Json(&config));
    if answer.status != 200 {
        return report.add_skipped("wake from zero", &format!("PUT config answers {}", answer.status));
    }
    let body = json!({ "x": vector() });
    let mut times = Vec::new();
    for _ in 0..WAKES {
        server.wait_for("the model to sleep", |server| {
            (server.get(&format!("/api/v1/models/{model}"))["state"] == "ASLEEP").then_some(())
        });
        let began = Instant::now();
        let answer = server.request("POST", &format!("/models/{model}/predict"), HttpPayload::Json(&body));
        times.push(began.elapsed().as_secs_f64() * 1e3);
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    println!("  median {:.1} ms, most {:.1} ms", median(times.clone()), percentile(times.clone(), 100.0));
    report.add_goal("wake from zero, 2 MB", median(times), " ms", BenchGoal::AtMost(10.0));
}

/// Measures instance starts: a call that traps destroys its instance, and the next request needs a new one.
fn measure_instance_starts(server: &ServerProcess, report: &mut BenchReport) {
    println!("\nstarting an instance in place of one that trapped, {TRAPS} times");
    let plugin = guest("hostile");
    let run = ["run", plugin.to_str().unwrap(), "--device", "cpu", "--wait", "--", "train=well", "predict=fragile"];
    server.saggar_ok(&run);
    server.wait_for_version("hostile", 1);
    let signature = server.get("/api/v1/models/hostile")["signature"].clone();
    let size = signature["inputs"][0]["shape"][0].as_u64().unwrap();
    let body = json!({ "x": vec![-1.0; usize::try_from(size).unwrap()] }).to_string();
    let before = instance_start_histogram(server);
    let mut connection = HttpConnection::open(port_of_url(server.url())).unwrap();
    let request = encode_post("/models/hostile/predict", "", &body);
    for _ in 0..TRAPS {
        assert_eq!(connection.send(&request).unwrap(), 500);
    }
    let after = instance_start_histogram(server);
    let count = |buckets: &[(f64, f64)]| buckets.last().map_or(0.0, |last| last.1);
    println!("  {} started", count(&after) - count(&before));
    match histogram_median(&before, &after) {
        Some(seconds) => report.add_goal("start of an instance, p50", seconds * 1e6, " us", BenchGoal::AtMost(20.0)),
        None => report.add_skipped("start of an instance", "saggar_instance_start_seconds counts none"),
    }
}

/// Returns the bounds and counts of the histogram of instance starts.
fn instance_start_histogram(server: &ServerProcess) -> Vec<(f64, f64)> {
    let page = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    let bucket = |line: &str| {
        let bound = line.strip_prefix("saggar_instance_start_seconds_bucket{le=\"")?.split('"').next()?;
        Some((bound.parse().unwrap_or(f64::INFINITY), line.rsplit(' ').next()?.parse().ok()?))
    };
    page.lines().filter_map(bucket).collect()
}

/// Returns the median of the values that a histogram counted in between, interpolated linearly between the bounds, or
/// `None` if there are no values.
fn histogram_median(before: &[(f64, f64)], after: &[(f64, f64)]) -> Option<f64> {
    let earlier = |bound: f64| before.iter().find(|bucket| bucket.0 == bound).map_or(0.0, |bucket| bucket.1);
    let buckets: Vec<(f64, f64)> = after.iter().map(|&(bound, count)| (bound, count - earlier(bound))).collect();
    let half = buckets.last().filter(|last| last.1 > 0.0)?.1 / 2.0;
    let at = buckets.iter().position(|bucket| bucket.1 >= half)?;
    let (low, upto_low) = if at == 0 { (0.0, 0.0) } else { buckets[at - 1] };
    let (high, upto) = buckets[at];
    Some(low + (high - low) * (half - upto_low) / (upto - upto_low).max(1.0))
}
