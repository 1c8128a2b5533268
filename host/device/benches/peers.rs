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

use arguments::Arguments;
use stage::Stage;
use table::{Row, Table};

/// What is measured.
struct Work {
    name: &'static str,
    /// # Errors
    /// Why there is no figure.
    measure: fn(&Stage) -> Result<Vec<Row>, String>,
}

/// The processor's, in running order.
const WORKS: [Work; 16] = [
    Work { name: "matmul-512", measure: |stage| products::measure(stage, 512) },
    Work { name: "matmul-1024", measure: |stage| products::measure(stage, 1024) },
    Work { name: "matmul-2048", measure: |stage| products::measure(stage, 2048) },
    Work { name: "infer-lenet-b1", measure: |stage| inference::measure(stage, &inference::LENET, 1) },
    Work { name: "infer-lenet-b64", measure: |stage| inference::measure(stage, &inference::LENET, 64) },
    Work { name: "infer-resnet18-b1", measure: |stage| inference::measure(stage, &inference::RESNET18, 1) },
    Work { name: "infer-resnet18-b32", measure: |stage| inference::measure(stage, &inference::RESNET18, 32) },
    Work { name: "infer-bert-b1", measure: |stage| inference::measure(stage, &inference::BERT, 1) },
    Work { name: "infer-bert-b32", measure: |stage| inference::measure(stage, &inference::BERT, 32) },
    Work { name: "train-lenet-b64", measure: |stage| training::lenet(stage, 64) },
    Work { name: "train-lenet-b128", measure: |stage| training::lenet(stage, 128) },
    Work { name: "train-seq2seq", measure: training::seq2seq },
    Work { name: "first-step-lenet", measure: |stage| alone::first_step(stage, &task::LENET, 64) },
    Work { name: "first-step-seq2seq", measure: |stage| alone::first_step(stage, &task::SEQ2SEQ, 64) },
    Work { name: "memory-lenet", measure: |stage| alone::memory(stage, &task::LENET, 128) },
    Work { name: "memory-seq2seq", measure: |stage| alone::memory(stage, &task::SEQ2SEQ, 64) },
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
    let arguments = Arguments::read(std::env::args().skip(1))?;
    if let Some(alone) = &arguments.alone {
        println!("{}", alone.run()?);
        return Ok(true);
    }
    if arguments.adapters {
        machine::adapters().iter().for_each(|line| println!("{line}"));
        return Ok(true);
    }
    let works: &[Work] = if arguments.device.is_some() { &adapter::WORKS } else { &WORKS };
    let chosen: Vec<&Work> = works.iter().filter(|work| arguments.chooses(work.name)).collect();
    if arguments.list || chosen.is_empty() {
        works.iter().for_each(|work| println!("{}", work.name));
        return Ok(arguments.list);
    }
    let begun = Instant::now();
    let stage = Stage::new(&arguments)?;
    let mut table = Table::new(machine::describe(&stage));
    for work in chosen {
        println!("{} ...", work.name);
        let is_late = begun.elapsed().as_secs() >= arguments.budget;
        let rows = if is_late { Err("the time was up".to_owned()) } else { (work.measure)(&stage) };
        let name = format!("{}{}", work.name, if arguments.small { ", small" } else { "" });
        table.add(&name, rows.unwrap_or_else(|reason| vec![Row::without_figures(&reason)]));
        // After every work, so that a run that is cut off leaves what it has.
        table.save(&stage.folder.join("table.md"))?;
        arguments.save.iter().try_for_each(|file| table.save(file))?;
    }
    println!("\n{table}");
    Ok(table.is_complete())
}
