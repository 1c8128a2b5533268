//! Batching on and off, for a model that computes 32 items in less time than four single ones.

use saggar_tests::{HttpPayload, ServerProcess};
use serde_json::{Value, json};

use crate::lenet::timing_ms;
use crate::load::{LoadRequest, LoadResult, LoadTarget};
use crate::report::{BenchGoal, BenchReport, print_load_heading};
use crate::stage::{BenchFixture, vector, vector_json};
use crate::statistics::percentile;

/// Name, depth and width of a model of many small products: most of the cost of an item is paid once per batch.
const DEEP: (&str, u32, u32) = ("deep", 1024, 16);
/// Number of executions of each size whose times are compared.
const EXECUTIONS: usize = 40;
/// Number of turns of on and off; the seconds of each follow.
const ROUNDS: usize = 4;
const SECONDS: u32 = 4;
const CONNECTIONS: u32 = 64;

pub(crate) fn measure(stage: &BenchFixture, server: &ServerProcess, report: &mut BenchReport) {
    let (model, depth, width) = DEEP;
    stage.publish_linear(server, model, 1, depth, width);
    println!("\nbatching: {depth} layers of {width}, {CONNECTIONS} connections that ask for one item each");
    let single = compute_ms(server, model, &json!({ "x": vector() }));
    let batch = compute_ms(server, model, &json!({ "x": vec![vector(); 32] }));
    println!("  one item computes in {single:.2} ms, 32 in {batch:.2} ms: {:.2} single ones", batch / single);
    if batch >= 4.0 * single {
        return report
            .add_skipped("batching", "32 items cost four single ones and more here: the model does not qualify");
    }
    if let Err(why) = set_batch(server, model, 1) {
        return report.add_skipped("batching", &why);
    }
    let request = LoadRequest::json(stage.home(), "deep", &vector_json());
    let url = format!("{}/models/{model}/predict", server.url());
    let ours = LoadTarget { name: model.to_owned(), url, pid: server.pid(), request };
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (items, loads) in [(1, &mut off), (32, &mut on)] {
            set_batch(server, model, items).unwrap();
            loads.push(ours.run_load(CONNECTIONS, SECONDS));
        }
    }
    print_load_heading();
    let (off, on) = (LoadResult::median(&off), LoadResult::median(&on));
    for (name, load) in [("max_items 1", &off), ("max_items 32", &on)] {
        report.print_load(name, CONNECTIONS, load);
        println!("  {:<34} p95 {:.1} ms", "", load.p95 / 1e3);
    }
    report.add_goal("batching on / off, items/s", on.rate / off.rate, "x", BenchGoal::AtLeast(3.0));
    report.add_goal("batching on / off, p95", on.p95 / off.p95, "x", BenchGoal::AtMost(1.0));
}

/// Returns the minimum compute time in `Server-Timing` for this request, because disturbances only add to it.
fn compute_ms(server: &ServerProcess, model: &str, body: &Value) -> f64 {
    let path = format!("/models/{model}/predict");
    let ask = |_| {
        let answer = server.request("POST", &path, HttpPayload::Json(body));
        assert_eq!(answer.status, 200, "{}", answer.text);
        timing_ms(answer.header("server-timing"), "compute")
    };
    percentile((0..EXECUTIONS).map(ask).collect(), 0.0)
}

/// Sets the maximum number of items in a batch.
fn set_batch(server: &ServerProcess, model: &str, items: u32) -> Result<(), String> {
    let config = json!({ "batch": { "max_items": items } });
    let answer = server.request("PUT", &format!("/api/v1/models/{model}/config"), HttpPayload::Json(&config));
    if answer.status == 200 { Ok(()) } else { Err(format!("PUT config answers {}: {}", answer.status, answer.text)) }
}
