//! The overhead of serving, without the compute time: a model of one vector-matrix product, against a bare server.

use saggar_tests::ServerProcess;

use crate::bare::BareServer;
use crate::load::{LoadRequest, LoadTarget, run_interleaved};
use crate::report::{BenchGoal, BenchReport, print_load_heading};
use crate::stage::{BenchFixture, vector_json};

const CONNECTIONS: [u32; 2] = [1, 64];

pub(crate) fn measure(stage: &BenchFixture, server: &ServerProcess, report: &mut BenchReport) {
    stage.publish_linear(server, "matmul", 1, 0, 1);
    let body = vector_json();
    println!("\nhost overhead: one 784 -> 10 product, {} bytes of JSON, against a bare axum server", body.len());
    let Some(bare) = BareServer::start() else {
        let why = "this harness is built without optimisation; SAGGAR_BARE names an optimised one";
        return report.add_skipped("host overhead", why);
    };
    let request = LoadRequest::json(stage.home(), "vector", &body);
    let contender =
        |name: &str, url: String, pid| LoadTarget { name: name.to_owned(), url, pid, request: request.clone() };
    let contenders = [
        contender("saggar", format!("{}/models/matmul/predict", server.url()), server.pid()),
        contender("bare axum", bare.url.clone(), bare.pid()),
    ];
    print_load_heading();
    for connections in CONNECTIONS {
        let figures = run_interleaved(&contenders, connections);
        for (contender, load) in contenders.iter().zip(&figures) {
            report.print_load(&contender.name, connections, load);
        }
        let [ours, theirs] = figures[..] else { unreachable!("two contenders") };
        if connections == 64 {
            report.add_goal(
                "784 -> 10, 64 connections: saggar / bare axum",
                ours.rate / theirs.rate,
                "x",
                BenchGoal::AtLeast(0.6),
            );
            report.add_goal(
                "the same by processor time a request",
                theirs.cpu / ours.cpu,
                "x",
                BenchGoal::AtLeast(0.6),
            );
        }
    }
}
