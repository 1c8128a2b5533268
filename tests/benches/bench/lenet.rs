//! A small convolutional network behind JSON, against other servers with the same network in onnxruntime.
//!
//! Before anything is timed, all servers answer the same pictures, and the answers are compared.

use saggar_tests::{Payload, Server, request};
use serde_json::Value;
use ureq::Agent;

use crate::load::{Contender, Load, Request, interleaved};
use crate::peers::{Environment, Kind, Peer};
use crate::processes::pss_mb;
use crate::report::{Goal, Report, loads_heading};
use crate::stage::{Stage, picture_json};
use crate::statistics::median;

/// Batches that mosec is tried with.
const MOSEC_BATCHES: [usize; 4] = [1, 4, 16, 32];
/// Connections and seconds of a try.
const TRY: (u32, u32) = (64, 2);
/// Requests whose compute is asked for.
const TIMED: usize = 500;
/// Two implementations sum in other orders: probabilities differ in their last bits.
const TOLERANCE: f64 = 1e-4;

pub(crate) fn measure(stage: &Stage, server: &Server, report: &mut Report) {
    stage.train_lenet(server);
    let body = picture_json(&stage.pictures()[0]);
    let request = Request::json(stage.home(), "picture", &body);
    println!("\nLeNet, JSON in and out, {} bytes, against onnxruntime behind other servers", body.len());
    let peers = match peers(stage, &request, &body) {
        Ok(peers) => peers,
        Err(why) => return report.skip("LeNet against peers", &why),
    };
    let url = format!("{}/models/lenet/predict", server.url());
    let urls: Vec<String> = std::iter::once(url.clone()).chain(peers.iter().map(Peer::url)).collect();
    same_answers(stage, &urls);

    let ours = Contender { name: "saggar".to_owned(), url, pid: server.pid(), request: request.clone() };
    let contender = |peer: &Peer| contender(peer, &request);
    let contenders: Vec<Contender> = std::iter::once(ours).chain(peers.iter().map(contender)).collect();
    loads_heading();
    for connections in [1, 64] {
        let before: Vec<(f64, f64)> = peers.iter().map(Peer::computed).collect();
        let figures = interleaved(&contenders, connections);
        for (contender, load) in contenders.iter().zip(&figures) {
            report.load(&contender.name, connections, load);
        }
        if connections == 1 {
            let mut compute = vec![our_compute_us(server, &contenders[0].request)];
            compute.extend(peers.iter().zip(before).map(|(peer, before)| peer_compute_us(peer, before)));
            shares(&contenders, &figures, &compute);
        }
        goals(&peers, &figures, connections, report);
    }
    println!("\n  memory (PSS of all processes, MB, after the load)");
    for contender in &contenders {
        println!("  {:<34} {:>8.1}", contender.name, pss_mb(contender.pid));
    }
    report.goal("LeNet: memory of saggar", pss_mb(server.pid()), " MB", Goal::AtMost(40.0));
}

/// The peers, running: mosec with the batch that it does best with.
fn peers(stage: &Stage, request: &Request, body: &str) -> Result<Vec<Peer>, String> {
    let environment = Environment::open()?;
    let model = stage.onnx(&environment)?;
    let mut best: Option<(Kind, f64)> = None;
    for batch in MOSEC_BATCHES {
        let kind = Kind::Mosec { batch };
        let peer = Peer::start(&environment, kind, &model, body)?;
        let rate = contender(&peer, request).load(TRY.0, TRY.1).rate;
        println!("  trying {}: {rate:.0} req/s", kind.name());
        if best.is_none_or(|(_, most)| rate > most) {
            best = Some((kind, rate));
        }
    }
    let mosec = best.map_or(Kind::Mosec { batch: 1 }, |(kind, _)| kind);
    [mosec, Kind::FastApi, Kind::Flask].into_iter().map(|kind| Peer::start(&environment, kind, &model, body)).collect()
}

fn contender(peer: &Peer, request: &Request) -> Contender {
    Contender { name: peer.kind.name(), url: peer.url(), pid: peer.pid(), request: request.clone() }
}

/// Asks everybody about every picture.
fn same_answers(stage: &Stage, urls: &[String]) {
    let agent = Agent::new_with_defaults();
    for pixels in stage.pictures() {
        let body: Value = serde_json::from_str(&picture_json(pixels)).unwrap();
        let ask = |url: &String| request(&agent, "POST", url, Payload::Json(&body)).unwrap().json();
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

/// Microseconds of compute that our server tells in `Server-Timing`, the median of many requests one after the other.
fn our_compute_us(server: &Server, request: &Request) -> f64 {
    let picture = request.json_body();
    let ask = |_| {
        let answer = server.request("POST", "/models/lenet/predict", Payload::Json(&picture));
        timing_ms(answer.header("server-timing"), "compute") * 1e3
    };
    median((0..TIMED).map(ask).collect())
}

/// The duration of a part in a `Server-Timing` header.
pub(crate) fn timing_ms(header: &str, part: &str) -> f64 {
    let entry = header.split(',').find_map(|entry| entry.trim().strip_prefix(part)?.strip_prefix(";dur="));
    entry.and_then(|ms| ms.parse().ok()).unwrap_or(f64::NAN)
}

/// Microseconds of onnxruntime for each item since `before`, measured in the peer's processes.
fn peer_compute_us(peer: &Peer, before: (f64, f64)) -> f64 {
    let now = peer.computed();
    (now.1 - before.1) / (now.0 - before.0) * 1e6
}

/// What of a request's time at one connection is the network's: it depends on the machine's arithmetic, the rest on the
/// server.
fn shares(contenders: &[Contender], figures: &[Load], compute: &[f64]) {
    println!("  {:<34} {:>16} {:>16} {:>16}", "shares of p50 at 1 connection", "compute us", "the rest us", "compute");
    for ((contender, load), compute) in contenders.iter().zip(figures).zip(compute) {
        let (rest, share) = (load.p50 - compute, compute / load.p50 * 100.0);
        println!("  {:<34} {compute:>16.0} {rest:>16.0} {share:>15.0}%", contender.name);
    }
}

fn goals(peers: &[Peer], figures: &[Load], connections: u32, report: &mut Report) {
    let ours = figures[0];
    for (peer, theirs) in peers.iter().zip(&figures[1..]) {
        let rate = ours.rate / theirs.rate;
        let what = |figure: &str| format!("LeNet, {connections} connections: {figure} saggar / {}", peer.kind.name());
        let least = match (peer.kind, connections) {
            (Kind::Mosec { .. }, 64) => 2.2,
            (Kind::FastApi, 64) => 2.5,
            (Kind::Flask, 64) => 5.0,
            (Kind::FastApi, 1) => 2.0,
            _ => continue,
        };
        report.goal(what("req/s"), rate, "x", Goal::AtLeast(least));
        if connections == 64 {
            report.goal(what("the same by processor time:"), theirs.cpu / ours.cpu, "x", Goal::AtLeast(least));
        }
        if matches!(peer.kind, Kind::Mosec { .. }) {
            report.goal(what("p99"), ours.p99 / theirs.p99, "x", Goal::AtMost(0.6));
        }
    }
    let failed: u64 = figures.iter().map(|load| load.failed).sum();
    report.goal(format!("LeNet, {connections} connections: failed requests"), failed as f64, "", Goal::AtMost(0.0));
}
