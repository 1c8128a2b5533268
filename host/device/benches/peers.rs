//! `make bench-peers`: a device beside others that compute the same, on this machine, in this run; one table.
//!
//! `cargo bench -p saggar-device --bench peers [-- OPTION.. NAME..]` measures the works whose names have a NAME in
//! them, or all. Options: `--list` (names), `--adapters` (which there are), `--kernels` (what each takes), `--threads N` (else
//! one for each core), `--seconds S` (of a turn), `--rounds N`, `--patience S` (that a work waits for others to leave the
//! machine alone), `--save FILE` (where else the table goes), `--python FILE` (has the peers, instead of an environment made
//! for them). Contenders take turns, and what they compute is compared first: figures of sides that disagree are not told.
//!
//! Without `--device NAME` it is the processor, beside gemm, ONNX Runtime and PyTorch. With `--device vulkan:0` it is that
//! adapter, beside PyTorch on CUDA by the `python3` that has it; `--device cpu` has the processor do an adapter's works, which
//! checks that both sides compute the same. `--small` shrinks networks, to try the harness out; `--budget S` begins no work
//! after so many seconds. Where there is no source tree, `--sources DIR` has the Python programs and `--folder DIR` takes what
//! is written.
#![allow(clippy::print_stdout, reason = "it prints what it measured")]

#[path = "peers/adapter/mod.rs"]
mod adapter;
#[path = "peers/alone.rs"]
mod alone;
#[path = "peers/arguments.rs"]
mod arguments;
#[path = "peers/bert.rs"]
mod bert;
#[path = "peers/child.rs"]
mod child;
#[path = "peers/decoder.rs"]
mod decoder;
#[path = "peers/environment.rs"]
mod environment;
#[path = "peers/gemm.rs"]
mod gemm;
#[path = "peers/inference.rs"]
mod inference;
#[path = "peers/layers.rs"]
mod layers;
#[path = "peers/lenet.rs"]
mod lenet;
#[path = "peers/loaded.rs"]
mod loaded;
#[path = "peers/machine.rs"]
mod machine;
#[path = "peers/others.rs"]
mod others;
#[path = "peers/products.rs"]
mod products;
#[path = "peers/resnet.rs"]
mod resnet;
#[path = "peers/resnet50.rs"]
mod resnet50;
#[path = "peers/seq2seq.rs"]
mod seq2seq;
#[path = "peers/stage.rs"]
mod stage;
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
#[path = "peers/turns.rs"]
mod turns;

use std::process::ExitCode;
use std::time::Instant;

use arguments::BenchArguments;
use stage::BenchContext;
use table::{ComparisonRow, ComparisonTable};

/// What is measured.
struct PeerBenchmark {
    name: &'static str,
    /// # Errors
    /// Why there is no figure.
    measure: fn(&BenchContext) -> Result<Vec<ComparisonRow>, String>,
}

/// The processor's, in running order.
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
    PeerBenchmark { name: "first-step-lenet", measure: |stage| alone::first_step(stage, &task::LENET, 64) },
    PeerBenchmark { name: "first-step-seq2seq", measure: |stage| alone::first_step(stage, &task::SEQ2SEQ, 64) },
    PeerBenchmark { name: "memory-lenet", measure: |stage| alone::peak_memory(stage, &task::LENET, 128) },
    PeerBenchmark { name: "memory-seq2seq", measure: |stage| alone::peak_memory(stage, &task::SEQ2SEQ, 64) },
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

/// Whether every comparison was made.
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
        let rows = if is_late { Err("the time was up".to_owned()) } else { (work.measure)(&stage) };
        let name = format!("{}{}", work.name, if arguments.small { ", small" } else { "" });
        table.add(&name, rows.unwrap_or_else(|reason| vec![ComparisonRow::without_figures(&reason)]));
        // After every work, so that a run that is cut off leaves what it has.
        table.save(&stage.folder.join("table.md"))?;
        arguments.save.iter().try_for_each(|file| table.save(file))?;
    }
    println!("\n{table}");
    Ok(table.is_complete())
}
