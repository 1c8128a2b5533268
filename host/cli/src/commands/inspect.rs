//! `saggar inspect`: what the compiler makes of a graph, stage by stage. No device is opened and no tensor allocated, so
//! that a graph can be looked at which this machine could not run.

mod document;
mod listing;
mod source;
mod stand_in;

use std::sync::Arc;

use saggar_compile::memory_report::{MemoryReport, memory_report};
use saggar_compile::wgsl::{self, Shader, ShaderTuning};
use saggar_compile::{CompileStages, CompileTarget, compile_stages};
use saggar_device::cpu;
use saggar_device::null_backend::RecordedGraph;
use saggar_tensor::VerifiedGraph;
use serde_json::{Value, json};

use crate::args::{Inspect, Stage, TargetName};
use crate::exit::{self, Failure};
use crate::output::Output;
use source::Found;

/// A graph with everything that can be shown of it.
struct Compiled {
    number: usize,
    phase: String,
    graph: Arc<VerifiedGraph>,
    target: TargetName,
    stages: CompileStages,
    memory: MemoryReport,
}

pub(crate) fn inspect(args: &Inspect, output: Output) -> Result<(), Failure> {
    let name = target_of(args)?;
    let target = match name {
        TargetName::Cpu => CompileTarget::cpu(),
        TargetName::Gpu => CompileTarget::gpu(),
    };
    let Found { recorded, cut_short } = source::graphs(args, target, output)?;
    cut_short.iter().for_each(|sentence| output.note(&format!("note: {sentence}")));
    if recorded.omitted_graphs > 0 {
        let (kept, left) = (recorded.graphs.len(), recorded.omitted_graphs);
        output.note(&format!("note: the first {kept} graphs are kept, {left} more were built"));
    }
    let count = recorded.graphs.len();
    let compile = |number: usize| compiled(number, &recorded.graphs[number - 1], name, &target);
    if args.graph.is_none() && args.stage.is_none() {
        let all: Vec<_> = (1..=count).map(compile).collect();
        list(&all, &recorded.graphs, &cut_short, output);
        return Ok(());
    }
    let number = args.graph.unwrap_or(1);
    if !(1..=count).contains(&number) {
        let message = format!("{} has graphs 1 to {count}, and no graph {number}", args.source);
        return Err(Failure::new(exit::NOT_FOUND, "not_found", message));
    }
    if args.graph.is_none() && count > 1 {
        output.note(&format!("note: graph 1 of {count}; --graph N shows another"));
    }
    let shown = compile(number).map_err(Failure::invalid)?;
    let stage = args.stage.unwrap_or(Stage::All);
    if output.json {
        output.json(&document::document(&shown, stage)?);
        return Ok(());
    }
    listing::show(&shown, stage, output)
}

/// The target that was named, or that the stage is for.
fn target_of(args: &Inspect) -> Result<TargetName, Failure> {
    let usage = |message: &str| Failure::new(exit::USAGE, "usage", message);
    match (args.target, args.stage) {
        (Some(TargetName::Cpu), Some(Stage::Wgsl)) => {
            Err(usage("the CPU has no WGSL").hint("--stage routines tells which routine each kernel takes there"))
        }
        (Some(TargetName::Gpu), Some(Stage::Routines)) => {
            Err(usage("routines are the CPU's").hint("--stage wgsl shows each kernel's shader"))
        }
        (Some(target), _) => Ok(target),
        (None, Some(Stage::Wgsl)) => Ok(TargetName::Gpu),
        (None, _) => Ok(TargetName::Cpu),
    }
}

fn compiled(
    number: usize,
    recorded: &RecordedGraph,
    name: TargetName,
    target: &CompileTarget,
) -> Result<Compiled, String> {
    let RecordedGraph { phase, graph } = recorded;
    let stages = compile_stages(graph, target).map_err(|error| error.to_string())?;
    let memory = memory_report(&stages.program, target);
    Ok(Compiled { number, phase: phase.clone(), graph: Arc::clone(graph), target: name, stages, memory })
}

impl Compiled {
    /// The target, as it is named on the command line.
    fn target_name(&self) -> &'static str {
        match self.target {
            TargetName::Cpu => "cpu",
            TargetName::Gpu => "gpu",
        }
    }

    /// The shaders of each kernel's passes, or why it has none.
    fn shaders(&self) -> Vec<Result<Vec<Shader>, String>> {
        let program = &self.stages.program;
        let tuning = ShaderTuning { window_bytes: CompileTarget::gpu().binding_bytes_max, ..ShaderTuning::UNLIMITED };
        let passes = |kernel| wgsl::shader_passes(program, kernel, tuning).map_err(|error| error.to_string());
        program.kernels.iter().map(passes).collect()
    }

    /// Which routine of the CPU each kernel takes.
    fn routines(&self) -> Result<Vec<String>, Failure> {
        cpu::describe_kernels(&self.stages.program).map_err(|error| Failure::invalid(error.to_string()))
    }

    /// Whether `stage` is shown where `wanted` was asked for.
    fn shows(&self, wanted: Stage, stage: Stage) -> bool {
        let of_target = match stage {
            Stage::Wgsl => self.target == TargetName::Gpu,
            Stage::Routines => self.target == TargetName::Cpu,
            Stage::Graph | Stage::Simplified | Stage::Fused | Stage::Schedule | Stage::Memory | Stage::All => true,
        };
        wanted == stage || (wanted == Stage::All && of_target)
    }
}

fn list(all: &[Result<Compiled, String>], recorded: &[RecordedGraph], cut_short: &[String], output: Output) {
    if output.json {
        let graphs: Vec<Value> = (1..)
            .zip(all)
            .zip(recorded)
            .map(|((number, it), recorded)| document::entry(number, it, recorded))
            .collect();
        output.json(&json!({ "graphs": graphs, "notes": cut_short }));
        return;
    }
    let rows: Vec<Vec<String>> =
        (1..).zip(all).zip(recorded).map(|((number, it), recorded)| listing::row(number, it, recorded)).collect();
    output.table(&["GRAPH", "PHASE", "NODES", "KERNELS", "ARENA", "ALL MEMORY", "INPUTS", "OUTPUTS"], &rows);
    output.note("--graph N shows one of them, --stage graph|simplified|fused|schedule|memory|wgsl|routines one stage");
}
