//! The text output of `saggar inspect`.

use std::fmt::Write as _;

use saggar_compile::memory_report::{MemoryReport, PlannedTensor};
use saggar_compile::program::{Program, ValueLocation};
use saggar_device::null_backend::RecordedGraph;
use saggar_tensor::{GraphPort, NodeId};

use super::InspectedGraph;
use crate::args::CompileStage;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::units::format_bytes;

/// Maximum width of a list of names in a table, in characters.
const NAMES_WIDTH: usize = 48;

/// Returns a row of the list of graphs.
pub(super) fn graph_row(
    number: usize,
    compiled: &Result<InspectedGraph, String>,
    recorded: &RecordedGraph,
) -> Vec<String> {
    let RecordedGraph { phase, graph } = recorded;
    let port = |port: &GraphPort| format!("{} {}", port.name, port.descriptor);
    let inputs = graph.inputs.iter().map(port);
    let outputs = graph.outputs.iter().map(|(name, node)| format!("{name} {}", graph.descriptor(*node)));
    let [kernels, arena, all] = match compiled {
        Ok(it) => [
            it.stages.program.kernels.len().to_string(),
            format_bytes(it.memory.arena_bytes),
            format_bytes(it.memory.total_bytes()),
        ],
        Err(_) => ["-", "-", "-"].map(str::to_owned),
    };
    let outputs = match compiled {
        Ok(_) => join_truncated(outputs),
        Err(error) => format!("not compiled: {error}"),
    };
    vec![
        number.to_string(),
        phase.clone(),
        graph.nodes.len().to_string(),
        kernels,
        arena,
        all,
        join_truncated(inputs),
        outputs,
    ]
}

fn join_truncated(names: impl Iterator<Item = String>) -> String {
    let all = names.collect::<Vec<_>>().join(", ");
    match all.char_indices().nth(NAMES_WIDTH) {
        None if all.is_empty() => "-".to_owned(),
        None => all,
        Some((at, _)) => format!("{}...", &all[..at]),
    }
}

/// Prints the requested stages, each with a title if there are several.
pub(super) fn print_stages(it: &InspectedGraph, wanted: CompileStage, output: CliOutput) -> Result<(), CliError> {
    let titled = |title: &str| {
        if wanted == CompileStage::All {
            output.print_line(&format!("== {title}"));
        }
    };
    if wanted == CompileStage::All {
        let target = it.target_name();
        output.print_line(&format!("graph {} of the {}, for {target}", it.number, it.phase));
    }
    if it.includes_stage(wanted, CompileStage::Graph) {
        titled("graph, as verified");
        output.print_text(&it.graph.graph().to_string());
    }
    if it.includes_stage(wanted, CompileStage::Simplified) {
        titled("simplified, and laid out for the target");
        output.print_text(&it.stages.simplified.to_string());
    }
    if it.includes_stage(wanted, CompileStage::Fused) {
        titled("fused: the nodes of each kernel");
        output.print_text(&fused_text(it));
    }
    if it.includes_stage(wanted, CompileStage::Schedule) {
        titled("schedule");
        output.print_text(&schedule_text(&it.stages.program));
    }
    if it.includes_stage(wanted, CompileStage::Memory) {
        titled("memory");
        print_memory(&it.stages.program, &it.memory, output);
    }
    if it.includes_stage(wanted, CompileStage::Wgsl) {
        titled("wgsl");
        output.print_text(&shaders_text(it));
    }
    if it.includes_stage(wanted, CompileStage::Routines) {
        titled("routines");
        for (at, (routine, kernel)) in it.routines()?.iter().zip(&it.stages.program.kernels).enumerate() {
            output.print_line(&format!("kernel {at} {}: {routine}", kernel.label));
        }
    }
    Ok(())
}

fn fused_text(it: &InspectedGraph) -> String {
    let mut text = String::new();
    let node = |node: &NodeId| {
        let of = it.stages.simplified.node(*node);
        let label = of.label.as_ref().map(|label| format!(" {label:?}")).unwrap_or_default();
        format!("%{} {}{label}", node.0, of.op.name())
    };
    let nodes = |list: &[NodeId]| list.iter().map(node).collect::<Vec<_>>().join(", ");
    for (at, group) in it.stages.groups.iter().enumerate() {
        let _ = writeln!(text, "kernel {at} {}", group.label);
        let _ = writeln!(text, "  nodes  {}", nodes(&group.nodes));
        let _ = writeln!(text, "  reads  {}", nodes(&group.reads));
        let _ = writeln!(text, "  writes {}", nodes(&group.writes));
    }
    text
}

fn schedule_text(program: &Program) -> String {
    let mut text = String::new();
    for (at, kernel) in program.kernels.iter().enumerate() {
        let _ = write!(text, "kernel {at} {}", program.kernel_text(kernel));
    }
    text
}

/// Formats a value's location: `slab 0 + 1024`, `input x`.
pub(super) fn place_label(program: &Program, place: ValueLocation) -> String {
    let port =
        |ports: &[GraphPort], at: u32| ports.get(at as usize).map_or_else(|| at.to_string(), |it| it.name.clone());
    match place {
        ValueLocation::Input(at) => format!("input {}", port(&program.inputs, at)),
        ValueLocation::Variable(at) => format!("variable {}", port(&program.variables, at)),
        ValueLocation::Constant(at) => format!("constant {at}"),
        ValueLocation::Output(at) => format!("output {}", port(&program.outputs, at)),
        ValueLocation::Slab { slab, offset_bytes } => format!("slab {slab} + {offset_bytes}"),
    }
}

fn print_memory(program: &Program, plan: &MemoryReport, output: CliOutput) {
    let kernel = |kernel: Option<usize>| kernel.map_or("-".to_owned(), |kernel| kernel.to_string());
    let row = |it: &PlannedTensor| {
        let label = it.from.map(|at| program.kernels[at].label.clone()).unwrap_or_default();
        let place = place_label(program, it.place);
        vec![place, it.descriptor.to_string(), it.bytes.to_string(), kernel(it.from), kernel(it.to), label]
    };
    let rows: Vec<Vec<String>> = plan.tensors.iter().map(row).collect();
    output.print_table(&["PLACE", "TENSOR", "BYTES", "WRITTEN BY", "LAST USE", "OF"], &rows);
    for (at, slab) in program.slabs.iter().enumerate() {
        output.print_line(&format!("slab {at}: {} bytes of {:?}", slab.bytes, slab.class));
    }
    let at = plan.peak_kernel.map(|kernel| format!(" at kernel {kernel}")).unwrap_or_default();
    output.print_line(&format!("arena: {} bytes; in use at once: {} bytes{at}", plan.arena_bytes, plan.peak_bytes));
    let MemoryReport { input_bytes, variable_bytes, constant_bytes, output_bytes, .. } = plan;
    output.print_line(&format!(
        "inputs: {input_bytes} bytes; variables: {variable_bytes}; constants: {constant_bytes}; outputs: {output_bytes}"
    ));
    output.print_line(&format!("all: {} bytes ({})", plan.total_bytes(), format_bytes(plan.total_bytes())));
}

fn shaders_text(it: &InspectedGraph) -> String {
    let mut text = String::new();
    for (at, (passes, kernel)) in it.shaders().iter().zip(&it.stages.program.kernels).enumerate() {
        match passes {
            Ok(passes) => {
                for (number, shader) in (1..).zip(passes) {
                    let ([x, y, z], count) = (shader.workgroups, passes.len());
                    let which = if count > 1 { format!(", pass {number} of {count}") } else { String::new() };
                    let _ = writeln!(text, "// kernel {at} {}{which}: {x} x {y} x {z} workgroups", kernel.label);
                    let _ = writeln!(text, "{}", shader.source.trim_end());
                }
            }
            Err(error) => {
                let _ = writeln!(text, "// kernel {at} has no shader: {error}");
            }
        }
    }
    text
}
