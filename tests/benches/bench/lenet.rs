//! A small convolutional network with JSON input, against other servers with the same network in onnxruntime.
//!
//! Before any measurement, all servers predict the same pictures, and their outputs are compared.

use saggar_tests::{HttpPayload, ServerProcess, request};
use serde_json::Value;
use ureq::Agent;

use crate::load::{LoadRequest, LoadResult, LoadTarget, run_interleaved};
use crate::peers::{PeerEnvironment, PeerKind, PeerServer};
use crate::processes::pss_mb;
use crate::report::{BenchGoal, BenchReport, print_load_heading};
use crate::stage::{BenchFixture, picture_json};
use crate::statistics::median;

/// The batch sizes that are tried for mosec.
const MOSEC_BATCHES: [usize; 4] = [1, 4, 16, 32];
/// Connections and seconds of a trial.
const TRIAL_LOAD: (u32, u32) = (64, 2);
/// Number of requests whose compute time is read.
const TIMED_REQUESTS: usize = 500;
/// Two implementations sum in different orders, so probabilities differ in their last bits.
const TOLERANCE: f64 = 1e-4;

pub(crate) fn measure(stage: &BenchFixture, server: &ServerProcess, report: &mut BenchReport) {
    stage.train_lenet(server);
    let body = picture_json(&stage.pictures()[0]);
    let request = LoadRequest::json(stage.home(), "picture", &body);
    println!("\nLeNet, JSON in and out, {} bytes, against onnxruntime behind other servers", body.len());
    let peers = match start_peers(stage, &request, &body) {
        Ok(peers) => peers,
        Err(why) => return report.add_skipped("LeNet against peers", &why),
    };
    let url = format!("{}/models/lenet/predict", server.url());
    let urls: Vec<String> = std::iter::once(url.clone()).chain(peers.iter().map(PeerServer::url)).collect();
    check_same_answers(stage, &urls);

    let ours = LoadTarget { name: "saggar".to_owned(), url, pid: server.pid(), request: request.clone() };
    let contender = |peer: &PeerServer| contender(peer, &request);
    let contenders: Vec<LoadTarget> = std::iter::once(ours).chain(peers.iter().map(contender)).collect();
    print_load_heading();
    for connections in [1, 64] {
        let before: Vec<(f64, f64)> = peers.iter().map(PeerServer::compute_totals).collect();
        let figures = run_interleaved(&contenders, connections);
        for (contender, load) in contenders.iter().zip(&figures) {
            report.print_load(&contender.name, connections, load);
        }
        if connections == 1 {
            let mut compute = vec![our_compute_us(server, &contenders[0].request)];
            compute.extend(peers.iter().zip(before).map(|(peer, before)| peer_compute_us(peer, before)));
            print_time_shares(&contenders, &figures, &compute);
        }
        report_goals(&peers, &figures, connections, report);
    }
    println!("\n  memory (PSS of all processes, MB, after the load)");
    for contender in &contenders {
        println!("  {:<34} {:>8.1}", contender.name, pss_mb(contender.pid));
    }
    report.add_goal("LeNet: memory of saggar", pss_mb(server.pid()), " MB", BenchGoal::AtMost(40.0));
}

/// Starts the peers: mosec with the batch size that gives its best result.
fn start_peers(stage: &BenchFixture, request: &LoadRequest, body: &str) -> Result<Vec<PeerServer>, String> {
    let environment = PeerEnvironment::open()?;
    let model = stage.export_onnx(&environment)?;
    let mut best: Option<(PeerKind, f64)> = None;
    for batch in MOSEC_BATCHES {
        let kind = PeerKind::Mosec { batch };
        let peer = PeerServer::start(&environment, kind, &model, body)?;
        let rate = contender(&peer, request).run_load(TRIAL_LOAD.0, TRIAL_LOAD.1).rate;
        println!("  trying {}: {rate:.0} req/s", kind.name());
        if best.is_none_or(|(_, most)| rate > most) {
            best = Some((kind, rate));
        }
    }
    let mosec = best.map_or(PeerKind::Mosec { batch: 1 }, |(kind, _)| kind);
    [mosec, PeerKind::FastApi, PeerKind::Flask]
        .into_iter()
        .map(|kind| PeerServer::start(&environment, kind, &model, body))
        .collect()
}

fn contender(peer: &PeerServer, request: &LoadRequest) -> LoadTarget {
    LoadTarget { name: peer.kind.name(), url: peer.url(), pid: peer.pid(), request: request.clone() }
}

/// Compares the outputs of all servers for every picture.
fn check_same_answers(stage: &BenchFixture, urls: &[String]) {
    let agent = Agent::new_with_defaults();
    for pixels in stage.pictures() {
        let body: Value = serde_json::from_str(&picture_json(pixels)).unwrap();
        let ask = |url: &String| request(&agent, "POST", url, HttpPayload::Json(&body)).unwrap().json();
        let answers: Vec<Value> = urls.iter().map(ask).collect();
        for (url, answer) in urls.iter().zip(&answers) {
            assert_eq!(answer["label"], answers[0]["label"], "{url}");
            let chances = |answer: &Value| -> Vec<f64> {
                answer["probabilities"].as_array().unwrap().iter().map(|chance| chance.as_f64().unwrap()).collect()
            };
            let near = chances(answer).iter().zip(chances(&answers[0])).all(|(a, b)| (a - b).abs() < TOLERANCE);
            assert!(near, "{url}: {answer} and {}", answers[0]);
        }
    }
    println!("  {} servers gave the same answers to {} pictures", urls.len(), stage.pictures().len());
}

/// Returns the compute time in microseconds that our server reports in `Server-Timing`: the median of many sequential
/// requests.
fn our_compute_us(server: &ServerProcess, request: &LoadRequest) -> f64 {
    let picture = request.json_body();
    let ask = |_| {
        let answer = server.request("POST", "/models/lenet/predict", HttpPayload::Json(&picture));
        timing_ms(answer.header("server-timing"), "compute") * 1e3
    };
    median((0..TIMED_REQUESTS).map(ask).collect())
}

/// Returns the duration of a part in a `Server-Timing` header.
pub(crate) fn timing_ms(header: &str, part: &str) -> f64 {
    let entry = header.split(',').find_map(|entry| entry.trim().strip_prefix(part)?.strip_prefix(";dur="));
    entry.and_then(|ms| ms.parse().ok()).unwrap_or(f64::NAN)
}

/// Returns onnxruntime's microseconds per item since `before`, measured in the peer's processes.
fn peer_compute_us(peer: &PeerServer, before: (f64, f64)) -> f64 {
    let now = peer.compute_totals();
    (now.1 - before.1) / (now.0 - before.0) * 1e6
}

/// Prints the network's share of a request's time at one connection. It depends on the machine's arithmetic; the rest
/// depends on the server.
fn print_time_shares(contenders: &[LoadTarget], figures: &[LoadResult], compute: &[f64]) {
    println!("  {:<34} {:>16} {:>16} {:>16}", "shares of p50 at 1 connection", "compute us", "the rest us", "compute");
    for ((contender, load), compute) in contenders.iter().zip(figures).zip(compute) {
        let (rest, share) = (load.p50 - compute, compute / load.p50 * 100.0);
        println!("  {:<34} {compute:>16.0} {rest:>16.0} {share:>15.0}%", contender.name);
    }
}

fn report_goals(peers: &[PeerServer], figures: &[LoadResult], connections: u32, report: &mut BenchReport) {
    let ours = figures[0];
    for (peer, theirs) in peers.iter().zip(&figures[1..]) {
        let rate = ours.rate / theirs.rate;
        let what = |figure: &str| format!("LeNet, {connections} connections: {figure} saggar / {}", peer.kind.name());
        let least = match (peer.kind, connections) {
            (PeerKind::Mosec { .. }, 64) => 2.2,
            (PeerKind::FastApi, 64) => 2.5,
            (PeerKind::Flask, 64) => 5.0,
            (PeerKind::FastApi, 1) => 2.0,
            _ => continue,
        };
        report.add_goal(what("req/s"), rate, "x", BenchGoal::AtLeast(least));
        if connections == 64 {
            report.add_goal(what("the same by processor time:"), theirs.cpu / ours.cpu, "x", BenchGoal::AtLeast(least));
        }
        if matches!(peer.kind, PeerKind::Mosec { .. }) {
            report.add_goal(what("p99"), ours.p99 / theirs.p99, "x", BenchGoal::AtMost(0.6));
        }
    }
    let failed: u64 = figures.iter().map(|load| load.failed).sum();
    report.add_goal(
        format!("LeNet, {connections} connections: failed requests"),
        failed as f64,
        "",
        BenchGoal::AtMost(0.0),
    );
}
