//! `saggar bench serve`: sends predictions to a running server and measures requests per second, latency, and where the
//! server's time goes.
//!
//! In a closed loop, each connection sends its next request when it has the answer to the last one, so a server that
//! stalls is asked less, and the latencies are those of the requests that were sent. In an open loop (`--rate`), requests
//! are due on a schedule, and latency counts from when a request was due, which corrects the coordinated omission of a
//! closed loop. Source: Tene, "How NOT to Measure Latency", 2013.

mod arrival_schedule;
mod client_cpu;
mod load_connection;
mod load_recorder;
mod load_result;
mod load_run;
mod load_target;
mod request_encoding;
mod request_mix;
mod server_timing;
mod server_usage;
mod tensor_input;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::device::format_rate;
use super::saved_result::{BenchKind, MeasuredSeries, SavedResult};
use crate::args::BenchServeArgs;
use crate::client::ApiClient;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::server::ServerAddress;
use arrival_schedule::ArrivalSchedule;
use load_result::{LoadResult, print_results};
use load_run::{LoadPlan, run_load};
use load_target::LoadTarget;
use request_mix::RequestMix;

/// The figures of all loads.
#[derive(Serialize)]
struct ServeResults {
    /// `closed` or `open`.
    #[serde(rename = "loop")]
    loop_kind: &'static str,
    /// Whether latency counts from when requests were due, so that requests which waited are not omitted.
    corrected_for_coordinated_omission: bool,
    warm_up_seconds: f64,
    duration_seconds: f64,
    timeout_seconds: f64,
    loads: Vec<LoadResult>,
    warnings: Vec<String>,
}

pub(super) fn serve(args: &BenchServeArgs, address: &ServerAddress, output: CliOutput) -> Result<i32, CliError> {
    let client = address.client()?;
    let target = LoadTarget::new(address, args.protocol)?;
    let mix = RequestMix::from_args(args, &client)?.addressed_to(&target);
    let plan = LoadPlan {
        target: Arc::new(target),
        mix: Arc::new(mix),
        connections: 1,
        arrivals: args.rate.map(|rate| ArrivalSchedule::new(rate, args.arrivals, args.seed)),
        warm_up: args.warm_up,
        duration: args.duration,
        timeout: args.timeout,
        threads: args.threads.unwrap_or_else(default_threads),
        seed: args.seed,
    };
    let (loads, series) = run_loads(args, &plan, &client, output)?;
    let warnings: Vec<String> = loads.iter().flat_map(LoadResult::warnings).collect();
    let failure = loads.iter().find_map(|load| load_failure(load, address));
    let versions: BTreeSet<&str> = loads.iter().flat_map(|load| &load.versions).map(String::as_str).collect();
    let versions = versions.into_iter().collect::<Vec<_>>().join(", ");
    let results = ServeResults {
        loop_kind: if args.rate.is_some() { "open" } else { "closed" },
        corrected_for_coordinated_omission: args.rate.is_some(),
        warm_up_seconds: args.warm_up.as_secs_f64(),
        duration_seconds: args.duration.as_secs_f64(),
        timeout_seconds: args.timeout.as_secs_f64(),
        loads,
        warnings,
    };
    let saved = SavedResult::new(BenchKind::Serve, series, results)
        .with_condition("models", plan.mix.model_names())
        .with_condition("protocol", args.protocol.name())
        .with_condition("requests", &plan.mix.identity)
        .with_condition("arrivals", args.rate.map_or("closed loop", |_| args.arrivals.name()))
        .with_property("model versions", versions);
    // The figures are shown even if they cannot be saved.
    print_saved(&saved, output);
    if let Some(file) = &args.save {
        saved.save(file)?;
    }
    failure.map_or(Ok(0), Err)
}

/// Runs the load of each number of connections in turn.
fn run_loads(
    args: &BenchServeArgs,
    plan: &LoadPlan,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(Vec<LoadResult>, Vec<MeasuredSeries>), CliError> {
    let (mut loads, mut series) = (Vec::new(), Vec::new());
    for &connections in &args.connections {
        output.print_note(&format!("measuring with --connections {connections}"));
        let plan = LoadPlan { connections, ..plan.clone() };
        let outcome = run_load(&plan, client)?;
        let load = LoadResult::new(&plan, args.rate, &outcome);
        series.extend(load.series(&outcome));
        let is_lost = load.server_lost;
        loads.push(load);
        if is_lost {
            break;
        }
    }
    Ok((loads, series))
}

/// Half of the cores, because the server often runs on the same machine.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (usize::from(cores) / 2).max(1))
}

fn print_saved(saved: &SavedResult<ServeResults>, output: CliOutput) {
    if output.json {
        output.print_json(saved);
        return;
    }
    let results = &saved.result;
    print_results(&results.loads, output);
    let note = match results.loads.first().and_then(LoadResult::rate) {
        Some(rate) => format!("open loop, {} requests/s due: latency counts from when a request was due, so it is corrected for coordinated omission", format_rate(rate)),
        None => "closed loop: each connection waits for its answer, so latency is not corrected for coordinated omission; --rate N sends on a schedule".to_owned(),
    };
    output.print_note(&note);
    for warning in &results.warnings {
        output.print_note(&format!("warning: {warning}"));
    }
}

/// Returns the error of a load that measured nothing, or whose server is gone.
fn load_failure(load: &LoadResult, address: &ServerAddress) -> Option<CliError> {
    let host = address.host();
    if load.server_lost {
        let message = format!("no answer from {host} at the end of the measurement");
        return Some(
            CliError::new(exit::UNREACHABLE, "unreachable", message)
                .with_hint("start a server with `saggar serve`, or name one with --host or SAGGAR_HOST"),
        );
    }
    (load.requests.answered == 0).then(|| {
        let message = format!("{host} answered no request of {} connections", load.connections);
        CliError::new(exit::UNEXPECTED, "no_answer", message)
            .with_hint("the warnings name the causes; `saggar predict` shows the whole error of one request")
    })
}
