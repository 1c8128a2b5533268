//! The JSON output of `saggar inspect`.

use saggar_compile::memory_report::PlannedTensor;
use saggar_compile::program::Kernel;
use saggar_device::null_backend::RecordedGraph;
use saggar_gpu::wgsl::Shader;
use saggar_tensor::{Descriptor, Graph, GraphPort, NodeId};
use serde_json::{Map, Value, json};

use super::{InspectedGraph, listing};
use crate::args::CompileStage;
use crate::exit::CliError;

/// Returns an entry of the list of graphs.
pub(super) fn graph_entry(number: usize, compiled: &Result<InspectedGraph, String>, recorded: &RecordedGraph) -> Value {
    let RecordedGraph { phase, graph } = recorded;
    let mut entry = json!({
        "graph": number,
        "phase": phase,
        "nodes": graph.nodes.len(),
        "inputs": ports_json(&graph.inputs),
        "variables": ports_json(&graph.variables),
        "outputs": outputs_json(graph),
    });
    match compiled {
        Ok(it) => {
            entry["kernels"] = it.stages.program.kernels.len().into();
            entry["arena_bytes"] = it.memory.arena_bytes.into();
            entry["peak_bytes"] = it.memory.peak_bytes.into();
            entry["total_bytes"] = it.memory.total_bytes().into();
        }
        Err(error) => entry["error"] = error.clone().into(),
    }
    entry
}

/// Returns one graph with the requested stages.
pub(super) fn graph_document(it: &InspectedGraph, wanted: CompileStage) -> Result<Value, CliError> {
    let mut stages = Map::new();
    let mut put = |stage: CompileStage, name: &str, value: &dyn Fn() -> Result<Value, CliError>| {
        if it.includes_stage(wanted, stage) {
            stages.insert(name.to_owned(), value()?);
        }
        Ok::<(), CliError>(())
    };
    put(CompileStage::Graph, "graph", &|| Ok(graph_json(it.graph.graph())))?;
    put(CompileStage::Simplified, "simplified", &|| Ok(graph_json(&it.stages.simplified)))?;
    put(CompileStage::Fused, "fused", &|| Ok(fused_json(it)))?;
    put(CompileStage::Schedule, "schedule", &|| Ok(schedule_json(it)))?;
    put(CompileStage::Memory, "memory", &|| Ok(memory_json(it)))?;
    put(CompileStage::Wgsl, "wgsl", &|| Ok(shaders_json(it)))?;
    put(CompileStage::Routines, "routines", &|| Ok(it.routines()?.into()))?;
    Ok(json!({ "graph": it.number, "phase": it.phase, "target": it.target_name(), "stages": stages }))
}

fn port_json(name: &str, descriptor: &Descriptor) -> Value {
    json!({ "name": name, "data_type": descriptor.dtype.name(), "shape": descriptor.shape.dims() })
}

fn ports_json(ports: &[GraphPort]) -> Vec<Value> {
    ports.iter().map(|port| port_json(&port.name, &port.descriptor)).collect()
}

fn outputs_json(graph: &Graph) -> Vec<Value> {
    graph.outputs.iter().map(|(name, node)| port_json(name, graph.descriptor(*node))).collect()
}

fn node_numbers(nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|node| node.0).collect()
}

fn graph_json(graph: &Graph) -> Value {
    let nodes: Vec<Value> = graph
        .nodes
        .iter()
        .map(|node| {
            json!({
                "op": node.op.name(),
                "label": node.label.as_deref(),
                "inputs": node_numbers(&node.inputs),
                "data_type": node.descriptor.dtype.name(),
                "shape": node.descriptor.shape.dims(),
            })
        })
        .collect();
    let assign = |(variable, node): &(u32, NodeId)| json!({ "variable": variable, "node": node.0 });
    json!({
        "inputs": ports_json(&graph.inputs),
        "variables": ports_json(&graph.variables),
        "nodes": nodes,
        "outputs": outputs_json(graph),
        "assignments": graph.assignments.iter().map(assign).collect::<Vec<_>>(),
        "text": graph.to_string(),
    })
}

fn fused_json(it: &InspectedGraph) -> Value {
    let group = |group: &saggar_compile::stages::FusedGroup| {
        json!({
            "label": group.label,
            "nodes": node_numbers(&group.nodes),
            "reads": node_numbers(&group.reads),
            "writes": node_numbers(&group.writes),
        })
    };
    it.stages.groups.iter().map(group).collect()
}

fn schedule_json(it: &InspectedGraph) -> Value {
    let program = &it.stages.program;
    let touched = |values: Vec<saggar_compile::program::ValueId>| -> Vec<String> {
        values.iter().map(|value| listing::place_label(program, program.values[value.index()].place)).collect()
    };
    let kernel = |kernel: &saggar_compile::program::Kernel| {
        json!({
            "label": kernel.label,
            "reads": touched(kernel.body.read_values()),
            "writes": touched(kernel.body.written_values()),
            "text": program.kernel_text(kernel).to_string(),
        })
    };
    program.kernels.iter().map(kernel).collect()
}

fn memory_json(it: &InspectedGraph) -> Value {
    let (program, plan) = (&it.stages.program, &it.memory);
    let tensor = |tensor: &PlannedTensor| {
        json!({
            "place": listing::place_label(program, tensor.place),
            "data_type": tensor.descriptor.dtype.name(),
            "shape": tensor.descriptor.shape.dims(),
            "bytes": tensor.bytes,
            "written_by": tensor.from,
            "last_use": tensor.to,
        })
    };
    json!({
        "tensors": plan.tensors.iter().map(tensor).collect::<Vec<_>>(),
        "slabs": program.slabs.iter().map(|slab| slab.bytes).collect::<Vec<_>>(),
        "arena_bytes": plan.arena_bytes,
        "peak_bytes": plan.peak_bytes,
        "peak_kernel": plan.peak_kernel,
        "input_bytes": plan.input_bytes,
        "variable_bytes": plan.variable_bytes,
        "constant_bytes": plan.constant_bytes,
        "output_bytes": plan.output_bytes,
        "total_bytes": plan.total_bytes(),
    })
}

fn shaders_json(it: &InspectedGraph) -> Value {
    let pass = |shader: &Shader| {
        json!({
            "bindings": shader.bindings.len(),
            "workgroups": shader.workgroups,
            "parts_bytes": shader.pass_buffer_bytes,
            "source": shader.source,
        })
    };
    let shaders = |(passes, kernel): (Result<Vec<Shader>, String>, &Kernel)| match passes {
        Ok(passes) => json!({ "label": kernel.label, "passes": passes.iter().map(pass).collect::<Vec<_>>() }),
        Err(error) => json!({ "label": kernel.label, "error": error }),
    };
    it.shaders().into_iter().zip(&it.stages.program.kernels).map(shaders).collect()
}
