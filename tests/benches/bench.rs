//! `make bench`: benchmarks from a user's view, each compared with other servers or a baseline, and a table of goals.
//!
//! The servers under load are separate processes. The contenders take turns, so that ratios are valid even on a noisy
//! machine. Arguments name sections: `make bench ONLY="overhead lenet"`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark stops at the first thing that goes wrong")]

#[path = "bench/bare.rs"]
mod bare;
#[path = "bench/batching.rs"]
mod batching;
#[path = "bench/binary.rs"]
mod binary;
#[path = "bench/client.rs"]
mod client;
#[path = "bench/cold_start.rs"]
mod cold_start;
#[path = "bench/lenet.rs"]
mod lenet;
#[path = "bench/load.rs"]
mod load;
#[path = "bench/machine.rs"]
mod machine;
#[path = "bench/open_loop.rs"]
mod open_loop;
#[path = "bench/overhead.rs"]
mod overhead;
#[path = "bench/overload.rs"]
mod overload;
#[path = "bench/peers.rs"]
mod peers;
#[path = "bench/processes.rs"]
mod processes;
#[path = "bench/protection.rs"]
mod protection;
#[path = "bench/queue.rs"]
mod queue;
#[path = "bench/report.rs"]
mod report;
#[path = "bench/stage.rs"]
mod stage;
#[path = "bench/statistics.rs"]
mod statistics;
#[path = "bench/swaps.rs"]
mod swaps;
#[path = "bench/sweeps.rs"]
mod sweeps;
#[path = "bench/switches.rs"]
mod switches;
#[path = "bench/training.rs"]
mod training;

use std::process::ExitCode;

use report::BenchReport;
use saggar_tests::ServerProcess;
use stage::BenchFixture;

type BenchSection = fn(&BenchFixture, &ServerProcess, &mut BenchReport);

/// The sections, in running order.
const SECTIONS: [(&str, BenchSection); 12] = [
    ("training", training::measure),
    ("queue", queue::measure),
    ("sweeps", sweeps::measure),
    ("overhead", overhead::measure),
    ("lenet", lenet::measure),
    ("binary", binary::measure),
    ("batching", batching::measure),
    ("cold-start", cold_start::measure),
    ("swaps", swaps::measure),
    ("overload", overload::measure),
    ("protection", protection::measure),
    ("switches", switches::measure),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--bare") {
        bare::serve();
        return ExitCode::SUCCESS;
    }
    // Cargo adds `--bench`.
    let named: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    if let Some(unknown) = named.iter().find(|name| !SECTIONS.iter().any(|(section, _)| section == **name)) {
        let sections: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
        eprintln!("bench: there is no section {unknown}; there are {}", sections.join(", "));
        return ExitCode::from(2);
    }
    let is_wanted = |name: &str| named.is_empty() || named.iter().any(|named| *named == name);
    let load = machine::load_average();
    println!("{}\n{}", machine::describe(), machine::noise_warning(load));
    let (stage, mut report) = (BenchFixture::new(), BenchReport::default());
    // Trained by a separate server, so that the measured servers have only served.
    stage.train_lenet(&stage.start_server());
    for (_, section) in SECTIONS.iter().filter(|(name, _)| is_wanted(name)) {
        section(&stage, &stage.start_server(), &mut report);
    }
    if report.print_goals() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
