//! A compiled graph as JSON.

use saggar_compile::memory_report::PlannedTensor;
use saggar_compile::program::Kernel;
use saggar_compile::wgsl::Shader;
use saggar_device::null_backend::RecordedGraph;
use saggar_tensor::{Descriptor, Graph, GraphPort, NodeId};
use serde_json::{Map, Value, json};

use super::{Compiled, listing};
use crate::args::Stage;
use crate::exit::Failure;

/// A graph in the list.
pub(super) fn entry(number: usize, compiled: &Result<Compiled, String>, recorded: &RecordedGraph) -> Value {
    let RecordedGraph { phase, graph } = recorded;
    let mut entry = json!({
        "graph": number,
        "phase": phase,
        "nodes": graph.nodes.len(),
        "inputs": ports(&graph.inputs),
        "variables": ports(&graph.variables),
        "outputs": outputs(graph),
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

/// One graph with the stages that are wanted.
pub(super) fn document(it: &Compiled, wanted: Stage) -> Result<Value, Failure> {
    let mut stages = Map::new();
    let mut put = |stage: Stage, name: &str, value: &dyn Fn() -> Result<Value, Failure>| {
        if it.shows(wanted, stage) {
            stages.insert(name.to_owned(), value()?);
        }
        Ok::<(), Failure>(())
    };
    put(Stage::Graph, "graph", &|| Ok(graph(it.graph.graph())))?;
    put(Stage::Simplified, "simplified", &|| Ok(graph(&it.stages.simplified)))?;
    put(Stage::Fused, "fused", &|| Ok(fused(it)))?;
    put(Stage::Schedule, "schedule", &|| Ok(schedule(it)))?;
    put(Stage::Memory, "memory", &|| Ok(memory(it)))?;
    put(Stage::Wgsl, "wgsl", &|| Ok(shaders(it)))?;
    put(Stage::Routines, "routines", &|| Ok(it.routines()?.into()))?;
    Ok(json!({ "graph": it.number, "phase": it.phase, "target": it.target_name(), "stages": stages }))
}

fn described(name: &str, descriptor: &Descriptor) -> Value {
    json!({ "name": name, "data_type": descriptor.dtype.name(), "shape": descriptor.shape.dims() })
}

fn ports(ports: &[GraphPort]) -> Vec<Value> {
    ports.iter().map(|port| described(&port.name, &port.descriptor)).collect()
}

fn outputs(graph: &Graph) -> Vec<Value> {
    graph.outputs.iter().map(|(name, node)| described(name, graph.descriptor(*node))).collect()
}

fn numbers(nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|node| node.0).collect()
}

fn graph(graph: &Graph) -> Value {
    let nodes: Vec<Value> = graph
        .nodes
        .iter()
        .map(|node| {
            json!({
                "op": node.op.name(),
                "label": node.label.as_deref(),
                "inputs": numbers(&node.inputs),
                "data_type": node.descriptor.dtype.name(),
                "shape": node.descriptor.shape.dims(),
            })
        })
        .collect();
    let assign = |(variable, node): &(u32, NodeId)| json!({ "variable": variable, "node": node.0 });
    json!({
        "inputs": ports(&graph.inputs),
        "variables": ports(&graph.variables),
        "nodes": nodes,
        "outputs": outputs(graph),
        "assignments": graph.assignments.iter().map(assign).collect::<Vec<_>>(),
        "text": graph.to_string(),
    })
}

fn fused(it: &Compiled) -> Value {
    let group = |group: &saggar_compile::stages::FusedGroup| {
        json!({
            "label": group.label,
            "nodes": numbers(&group.nodes),
            "reads": numbers(&group.reads),
            "writes": numbers(&group.writes),
        })
    };
    it.stages.groups.iter().map(group).collect()
}

fn schedule(it: &Compiled) -> Value {
    let program = &it.stages.program;
    let touched = |values: Vec<saggar_compile::program::ValueId>| -> Vec<String> {
        values.iter().map(|value| listing::place(program, program.values[value.index()].place)).collect()
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

fn memory(it: &Compiled) -> Value {
    let (program, plan) = (&it.stages.program, &it.memory);
    let tensor = |tensor: &PlannedTensor| {
        json!({
            "place": listing::place(program, tensor.place),
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

fn shaders(it: &Compiled) -> Value {
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
