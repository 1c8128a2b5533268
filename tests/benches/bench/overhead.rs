//! What serving costs beside computing: a model of one product of a vector with a matrix, against a bare server.

use saggar_tests::Server;

use crate::bare::Bare;
use crate::load::{Contender, Request, interleaved};
use crate::report::{Goal, Report, loads_heading};
use crate::stage::{Stage, vector_json};

const CONNECTIONS: [u32; 2] = [1, 64];

pub(crate) fn measure(stage: &Stage, server: &Server, report: &mut Report) {
    stage.publish_linear(server, "matmul", 1, 0, 1);
    let body = vector_json();
    println!("\nhost overhead: one 784 -> 10 product, {} bytes of JSON, against a bare axum server", body.len());
    let Some(bare) = Bare::start() else {
        let why = "this harness is built without optimisation; SAGGAR_BARE names an optimised one";
        return report.skip("host overhead", why);
    };
    let request = Request::json(stage.home(), "vector", &body);
    let contender =
        |name: &str, url: String, pid| Contender { name: name.to_owned(), url, pid, request: request.clone() };
    let contenders = [
        contender("saggar", format!("{}/models/matmul/predict", server.url()), server.pid()),
        contender("bare axum", bare.url.clone(), bare.pid()),
    ];
    loads_heading();
    for connections in CONNECTIONS {
        let figures = interleaved(&contenders, connections);
        for (contender, load) in contenders.iter().zip(&figures) {
            report.load(&contender.name, connections, load);
        }
        let [ours, theirs] = figures[..] else { unreachable!("two contenders") };
        if connections == 64 {
            report.goal(
                "784 -> 10, 64 connections: saggar / bare axum",
                ours.rate / theirs.rate,
                "x",
                Goal::AtLeast(0.6),
            );
            report.goal("the same by processor time a request", theirs.cpu / ours.cpu, "x", Goal::AtLeast(0.6));
        }
    }
}
