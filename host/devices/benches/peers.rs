//! `make bench-peers`: compares a device with other libraries (peers) that compute the same, on this machine and in the
//! same run, and prints one table.
//!
//! `cargo bench -p saggar-device --bench peers [-- OPTION.. NAME..]` runs the benchmarks whose names contain a NAME, or
//! all. Options: `--list` (print the names), `--adapters` (print the adapters), `--kernels` (print the time of each
//! kernel), `--threads N` (default: one per core), `--seconds S` (per turn), `--rounds N`, `--patience S` (how long a
//! benchmark waits for a quiet machine), `--save FILE` (an additional file for the table), `--python FILE` (a Python
//! that has the peers, instead of an environment created for them). Contenders take turns. Their results are compared
//! first: if they differ, no figures are reported.
//!
//! Without `--device NAME`, the CPU device is compared with gemm, ONNX Runtime and PyTorch. With `--device vulkan:0`,
//! that adapter is compared with PyTorch on CUDA, run by the `python3` that has it. `--device cpu` runs the adapter
//! benchmarks on the processor, which checks that both sides compute the same. `--small` shrinks the networks, to test
//! the harness. `--budget S` starts no benchmark after this many seconds. On a machine without the source tree,
//! `--sources DIR` names the directory of the Python programs and `--folder DIR` that of the output.
#![allow(clippy::print_stdout, reason = "it prints what it measured")]

#[path = "peers/adapter/mod.rs"]
mod adapter;
#[path = "peers/arguments.rs"]
mod arguments;
#[path = "peers/bert.rs"]
mod bert;
#[path = "peers/decoder.rs"]
mod decoder;
#[path = "peers/environment.rs"]
mod environment;
#[path = "peers/gemm.rs"]
mod gemm;
#[path = "peers/inference.rs"]
mod inference;
#[path = "peers/interleaved_runs.rs"]
mod interleaved_runs;
#[path = "peers/layers.rs"]
mod layers;
#[path = "peers/lenet.rs"]
mod lenet;
#[path = "peers/loaded_graph.rs"]
mod loaded_graph;
#[path = "peers/machine.rs"]
mod machine;
#[path = "peers/measurement_context.rs"]
mod measurement_context;
#[path = "peers/other_processes.rs"]
mod other_processes;
#[path = "peers/peer_process.rs"]
mod peer_process;
#[path = "peers/products.rs"]
mod products;
#[path = "peers/resnet.rs"]
mod resnet;
#[path = "peers/resnet50.rs"]
mod resnet50;
#[path = "peers/separate_process.rs"]
mod separate_process;
#[path = "peers/seq2seq.rs"]
mod seq2seq;
#[path = "peers/table.rs"]
mod table;
#[path = "peers/task.rs"]
mod task;
#[path = "peers/tensors.rs"]
mod tensors;
#[path = "peers/training.rs"]
mod training;
#[path = "peers/transformer.rs"]
mod transformer;

use std::process::ExitCode;
use std::time::Instant;

use arguments::BenchArguments;
use measurement_context::BenchContext;
use table::{ComparisonRow, ComparisonTable};

/// A benchmark with its name.
struct PeerBenchmark {
    name: &'static str,
    /// Measures the rows of the table.
    ///
    /// # Errors
    /// Returns the reason why there is no figure.
    measure: fn(&BenchContext) -> Result<Vec<ComparisonRow>, String>,
}

/// The benchmarks of the CPU device, in running order.
const CPU_BENCHMARKS: [PeerBenchmark; 16] = [
    PeerBenchmark { name: "matmul-512", measure: |stage| products::measure(stage, 512) },
    PeerBenchmark { name: "matmul-1024", measure: |stage| products::measure(stage, 1024) },
    PeerBenchmark { name: "matmul-2048", measure: |stage| products::measure(stage, 2048) },
    PeerBenchmark { name: "infer-lenet-b1", measure: |stage| inference::measure(stage, &inference::LENET, 1) },
    PeerBenchmark { name: "infer-lenet-b64", measure: |stage| inference::measure(stage, &inference::LENET, 64) },
    PeerBenchmark { name: "infer-resnet18-b1", measure: |stage| inference::measure(stage, &inference::RESNET18, 1) },
    PeerBenchmark { name: "infer-resnet18-b32", measure: |stage| inference::measure(stage, &inference::RESNET18, 32) },
    PeerBenchmark { name: "infer-bert-b1", measure: |stage| inference::measure(stage, &inference::BERT, 1) },
    PeerBenchmark { name: "infer-bert-b32", measure: |stage| inference::measure(stage, &inference::BERT, 32) },
    PeerBenchmark { name: "train-lenet-b64", measure: |stage| training::lenet(stage, 64) },
    PeerBenchmark { name: "train-lenet-b128", measure: |stage| training::lenet(stage, 128) },
    PeerBenchmark { name: "train-seq2seq", measure: training::seq2seq },
    PeerBenchmark { name: "first-step-lenet", measure: |stage| separate_process::first_step(stage, &task::LENET, 64) },
    PeerBenchmark {
        name: "first-step-seq2seq",
        measure: |stage| separate_process::first_step(stage, &task::SEQ2SEQ, 64),
    },
    PeerBenchmark { name: "memory-lenet", measure: |stage| separate_process::peak_memory(stage, &task::LENET, 128) },
    PeerBenchmark { name: "memory-seq2seq", measure: |stage| separate_process::peak_memory(stage, &task::SEQ2SEQ, 64) },
];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the selected benchmarks. Returns whether every comparison succeeded.
fn run() -> Result<bool, String> {
    let arguments = BenchArguments::parse(std::env::args().skip(1))?;
    if let Some(alone) = &arguments.alone {
        println!("{}", alone.run()?);
        return Ok(true);
    }
    if arguments.adapters {
        machine::adapter_lines().iter().for_each(|line| println!("{line}"));
        return Ok(true);
    }
    let works: &[PeerBenchmark] =
        if arguments.device.is_some() { &adapter::ADAPTER_BENCHMARKS } else { &CPU_BENCHMARKS };
    let chosen: Vec<&PeerBenchmark> = works.iter().filter(|work| arguments.selects(work.name)).collect();
    if arguments.list || chosen.is_empty() {
        works.iter().for_each(|work| println!("{}", work.name));
        return Ok(arguments.list);
    }
    let begun = Instant::now();
    let stage = BenchContext::new(&arguments)?;
    let mut table = ComparisonTable::new(machine::describe(&stage));
    for work in chosen {
        println!("{} ...", work.name);
        let is_late = begun.elapsed().as_secs() >= arguments.budget;
        let rows = if is_late { Err("the time budget was used up".to_owned()) } else { (work.measure)(&stage) };
        let name = format!("{}{}", work.name, if arguments.small { ", small" } else { "" });
        table.add(&name, rows.unwrap_or_else(|reason| vec![ComparisonRow::without_figures(&reason)]));
        // Saved after every benchmark, so that an interrupted run keeps its rows.
        table.save(&stage.folder.join("table.md"))?;
        arguments.save.iter().try_for_each(|file| table.save(file))?;
    }
    println!("\n{table}");
    Ok(table.is_complete())
}
