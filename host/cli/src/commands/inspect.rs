//! `saggar inspect`: shows what the compiler makes of a graph, stage by stage. No device is opened and no tensor is
//! allocated, so that graphs too large for this machine can be inspected.

mod graph_source;
mod json_document;
mod listing;
mod placeholder_dataset;

use std::sync::Arc;

use saggar_compile::memory_report::{MemoryReport, memory_report};
use saggar_compile::{CompileStages, CompileTarget, compile_stages};
use saggar_device::null_backend::RecordedGraph;
use saggar_gpu::wgsl::{self, Shader, ShaderTuning};
use saggar_tensor::VerifiedGraph;

use crate::args::{CompileStage, InspectArgs, TargetArg};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use graph_source::LoadedGraphs;
use json_document::{GraphEntry, GraphList};

/// A graph with all its compiler stages.
struct InspectedGraph {
    number: usize,
    phase: String,
    graph: Arc<VerifiedGraph>,
    target: TargetArg,
    stages: CompileStages,
    memory: MemoryReport,
}

pub(crate) fn inspect(args: &InspectArgs, output: CliOutput) -> Result<(), CliError> {
    let name = select_target(args)?;
    let target = match name {
        TargetArg::Cpu => CompileTarget::cpu(),
        TargetArg::Gpu => CompileTarget::gpu(),
    };
    let target = target.without(args.without.optimizations());
    let LoadedGraphs { recorded, incomplete_phases: cut_short } = graph_source::load_graphs(args, target, output)?;
    cut_short.iter().for_each(|sentence| output.print_note(&format!("note: {sentence}")));
    if recorded.omitted_graphs > 0 {
        let (recorded_graphs, left) = (recorded.graphs.len(), recorded.omitted_graphs);
        output.print_note(&format!("note: the first {recorded_graphs} graphs are kept, {left} more were built"));
    }
    let count = recorded.graphs.len();
    let compile = |number: usize| compile_graph(number, &recorded.graphs[number - 1], name, &target);
    if args.graph.is_none() && args.stage.is_none() {
        let all: Vec<_> = (1..=count).map(compile).collect();
        list_graphs(&all, &recorded.graphs, &cut_short, output);
        return Ok(());
    }
    let number = args.graph.unwrap_or(1);
    if !(1..=count).contains(&number) {
        let message = format!("{} has graphs 1 to {count}, and no graph {number}", args.source);
        return Err(CliError::new(exit::NOT_FOUND, "not_found", message));
    }
    if args.graph.is_none() && count > 1 {
        output.print_note(&format!("note: graph 1 of {count}; --graph N shows another"));
    }
    let graph_stages = compile(number).map_err(CliError::invalid)?;
    let stage = args.stage.unwrap_or(CompileStage::All);
    if output.json {
        output.print_json(&json_document::graph_document(&graph_stages, stage)?);
        return Ok(());
    }
    listing::print_stages(&graph_stages, stage, output)
}

/// Returns the given target, or the one that the stage implies.
fn select_target(args: &InspectArgs) -> Result<TargetArg, CliError> {
    let usage = |message: &str| CliError::new(exit::USAGE, "usage", message);
    match (args.target, args.stage) {
        (Some(TargetArg::Cpu), Some(CompileStage::Wgsl)) => {
            Err(usage("the CPU has no WGSL").with_hint("--stage routines shows the routine of each kernel on the CPU"))
        }
        (Some(TargetArg::Gpu), Some(CompileStage::Routines)) => {
            Err(usage("routines exist only for the CPU").with_hint("--stage wgsl shows each kernel's shader"))
        }
        (Some(target), _) => Ok(target),
        (None, Some(CompileStage::Wgsl)) => Ok(TargetArg::Gpu),
        (None, _) => Ok(TargetArg::Cpu),
    }
}

fn compile_graph(
    number: usize,
    recorded: &RecordedGraph,
    name: TargetArg,
    target: &CompileTarget,
) -> Result<InspectedGraph, String> {
    let RecordedGraph { phase, graph } = recorded;
    let stages = compile_stages(graph, target).map_err(|error| error.to_string())?;
    let memory = memory_report(&stages.program, target);
    Ok(InspectedGraph { number, phase: phase.clone(), graph: Arc::clone(graph), target: name, stages, memory })
}

impl InspectedGraph {
    /// Returns the target's name on the command line.
    fn target_name(&self) -> &'static str {
        match self.target {
            TargetArg::Cpu => "cpu",
            TargetArg::Gpu => "gpu",
        }
    }

    /// Returns the shaders of each kernel's passes, or the reason why it has none.
    fn shaders(&self) -> Vec<Result<Vec<Shader>, String>> {
        let program = &self.stages.program;
        let tuning = ShaderTuning { window_bytes: CompileTarget::gpu().binding_bytes_max, ..ShaderTuning::UNLIMITED };
        let tuning = tuning.without(program.without);
        let passes = |kernel| wgsl::shader_passes(program, kernel, tuning).map_err(|error| error.to_string());
        program.kernels.iter().map(passes).collect()
    }

    /// Returns the CPU routine of each kernel.
    fn routines(&self) -> Result<Vec<String>, CliError> {
        saggar_cpu::describe_kernels(&self.stages.program).map_err(|error| CliError::invalid(error.to_string()))
    }

    /// Returns whether `stage` is shown if `wanted` was requested.
    fn includes_stage(&self, wanted: CompileStage, stage: CompileStage) -> bool {
        let of_target = match stage {
            CompileStage::Wgsl => self.target == TargetArg::Gpu,
            CompileStage::Routines => self.target == TargetArg::Cpu,
            CompileStage::Graph
            | CompileStage::Simplified
            | CompileStage::Fused
            | CompileStage::Schedule
            | CompileStage::Memory
            | CompileStage::All => true,
        };
        wanted == stage || (wanted == CompileStage::All && of_target)
    }
}

fn list_graphs(
    all: &[Result<InspectedGraph, String>],
    recorded: &[RecordedGraph],
    cut_short: &[String],
    output: CliOutput,
) {
    if output.json {
        let graphs = (1..).zip(all).zip(recorded);
        let graphs = graphs.map(|((number, it), recorded)| GraphEntry::new(number, it, recorded)).collect();
        output.print_json(&GraphList { graphs, notes: cut_short });
        return;
    }
    let rows: Vec<Vec<String>> =
        (1..).zip(all).zip(recorded).map(|((number, it), recorded)| listing::graph_row(number, it, recorded)).collect();
    output.print_table(&["GRAPH", "PHASE", "NODES", "KERNELS", "ARENA", "ALL MEMORY", "INPUTS", "OUTPUTS"], &rows);
    output.print_note(
        "--graph N shows one of them, --stage graph|simplified|fused|schedule|memory|wgsl|routines one stage",
    );
}
