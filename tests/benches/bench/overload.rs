//! Ten times the load that the server can handle: it must answer admitted requests in time, and its throughput must not
//! drop.

use saggar_tests::{HttpPayload, ServerProcess};
use serde_json::json;

use crate::client::{encode_post, port_of_url};
use crate::load::{LoadRequest, LoadResult, LoadTarget};
use crate::open_loop;
use crate::report::{BenchGoal, BenchReport};
use crate::stage::BenchFixture;
use crate::statistics::{median, percentile};

/// Name, depth and width of a model whose 250 MB of weights make it so slow that sending ten times its peak load costs
/// the machine little in comparison.
const HEAVY: (&str, u32, u32) = ("heavy", 16, 2048);
const DEADLINE_MS: f64 = 500.0;
const TIMES: f64 = 10.0;
const SECONDS: f64 = 10.0;
/// The statuses of an overloaded server: the prediction, two refusals, and a missed deadline.
const ANSWERS: [u16; 4] = [200, 429, 503, 504];
/// Number of loads whose median is the peak, and the seconds of each.
const PEAKS: (usize, u32) = (3, 4);

pub(crate) fn measure(stage: &BenchFixture, server: &ServerProcess, report: &mut BenchReport) {
    let (model, depth, width) = HEAVY;
    stage.publish_linear(server, model, 1, depth, width);
    // One item at a time: a batch would read the weights once for many, and the load generator runs on the same
    // machine.
    let config = json!({ "batch": { "max_items": 1 } });
    let answer = server.request("PUT", &format!("/api/v1/models/{model}/config"), HttpPayload::Json(&config));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let path = format!("/models/{model}/predict");
    // Short numbers, so that the load generator's work is small compared with the server's.
    let body = format!("{{\"x\":[{}]}}", vec!["1"; 784].join(","));
    let deadline = format!("x-saggar-deadline-ms: {DEADLINE_MS}\r\n");
    let request = LoadRequest::json(stage.home(), "ones", &body);
    let url = format!("{}{path}", server.url());
    let ours = LoadTarget { name: model.to_owned(), url, pid: server.pid(), request };
    let peaks: Vec<LoadResult> = (0..PEAKS.0).map(|_| ours.run_load(64, PEAKS.1)).collect();
    let failed: u64 = peaks.iter().map(|load| load.failed).sum();
    if failed > 0 {
        report.add_failure(format!("overload: {failed} requests failed below the peak"));
    }
    let peak = median(peaks.iter().map(|load| load.rate).collect());
    println!("\noverload: {depth} layers of {width}; peak {peak:.0} req/s at 64 connections");
    let outcome =
        open_loop::run(port_of_url(server.url()), &encode_post(&path, &deadline, &body), peak * TIMES, SECONDS);
    let in_time = outcome.answered.iter().filter(|seconds| **seconds * 1e3 <= DEADLINE_MS).count();
    let goodput = in_time as f64 / SECONDS;
    let p99 = percentile(outcome.answered.iter().map(|seconds| seconds * 1e3).collect(), 99.0);
    println!(
        "  {} due in {SECONDS} s, by status {:?}, {} found no connection; {goodput:.0} answered in time each second, p99 of \
         the accepted {p99:.0} ms",
        outcome.due, outcome.statuses, outcome.unsent
    );
    let broken: u64 = outcome.statuses.iter().filter(|(status, _)| !ANSWERS.contains(status)).map(|(_, n)| n).sum();
    if broken > 0 {
        report.add_failure(format!(
            "overload: {broken} requests were neither answered nor refused: {:?}",
            outcome.statuses
        ));
    }
    report.add_goal("10x overload: goodput / peak", goodput / peak, "x", BenchGoal::AtLeast(0.9));
    report.add_goal("10x overload: p99 of the accepted / deadline", p99 / DEADLINE_MS, "x", BenchGoal::AtMost(1.0));
}
