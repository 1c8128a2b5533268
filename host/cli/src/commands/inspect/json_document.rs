//! The JSON output of `saggar inspect`.

use saggar_compile::cost::kernel_cost;
use saggar_compile::memory_report::PlannedTensor;
use saggar_compile::program::{Kernel, ValueId};
use saggar_compile::stages::FusedGroup;
use saggar_device::null_backend::RecordedGraph;
use saggar_gpu::wgsl::Shader;
use saggar_tensor::{Descriptor, Graph, GraphNode, GraphPort, NodeId};
use serde::Serialize;

use super::{InspectedGraph, listing};
use crate::args::CompileStage;
use crate::exit::CliError;

/// All graphs of a plugin or model.
#[derive(Serialize)]
pub(super) struct GraphList<'a> {
    pub(super) graphs: Vec<GraphEntry>,
    /// The phases that were cut short.
    pub(super) notes: &'a [String],
}

/// An entry of the list of graphs.
#[derive(Serialize)]
pub(super) struct GraphEntry {
    graph: usize,
    phase: String,
    nodes: usize,
    inputs: Vec<PortEntry>,
    variables: Vec<PortEntry>,
    outputs: Vec<PortEntry>,
    #[serde(flatten)]
    compiled: CompiledEntry,
}

/// The size of a compiled graph, or why it cannot be compiled.
#[derive(Serialize)]
#[serde(untagged)]
enum CompiledEntry {
    Program { kernels: usize, arena_bytes: u64, peak_bytes: u64, total_bytes: u64 },
    Failure { error: String },
}

/// One graph.
#[derive(Serialize)]
pub(super) struct GraphDocument<'a> {
    graph: usize,
    phase: &'a str,
    target: &'static str,
    stages: StageDocuments,
}

/// The requested stages of a graph.
#[derive(Serialize)]
struct StageDocuments {
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<NodeGraph>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simplified: Option<NodeGraph>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fused: Option<Vec<FusedEntry>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<Vec<KernelEntry>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wgsl: Option<Vec<ShaderEntry>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    routines: Option<Vec<String>>,
}

/// An input, variable or output.
#[derive(Serialize)]
struct PortEntry {
    name: String,
    data_type: &'static str,
    shape: Vec<usize>,
}

#[derive(Serialize)]
struct NodeGraph {
    inputs: Vec<PortEntry>,
    variables: Vec<PortEntry>,
    nodes: Vec<NodeEntry>,
    outputs: Vec<PortEntry>,
    assignments: Vec<AssignmentEntry>,
    text: String,
}

#[derive(Serialize)]
struct NodeEntry {
    op: &'static str,
    label: Option<String>,
    inputs: Vec<u32>,
    data_type: &'static str,
    shape: Vec<usize>,
}

#[derive(Serialize)]
struct AssignmentEntry {
    variable: u32,
    node: u32,
}

#[derive(Serialize)]
struct FusedEntry {
    label: String,
    nodes: Vec<u32>,
    reads: Vec<u32>,
    writes: Vec<u32>,
    /// Operations on elements.
    operations: u64,
    /// Bytes read and written.
    bytes: u64,
}

/// A kernel of the schedule.
#[derive(Serialize)]
struct KernelEntry {
    label: String,
    reads: Vec<String>,
    writes: Vec<String>,
    text: String,
}

#[derive(Serialize)]
struct MemoryDocument {
    tensors: Vec<PlannedTensorEntry>,
    /// The bytes of each slab.
    slabs: Vec<usize>,
    arena_bytes: u64,
    peak_bytes: u64,
    peak_kernel: Option<usize>,
    input_bytes: u64,
    variable_bytes: u64,
    constant_bytes: u64,
    output_bytes: u64,
    total_bytes: u64,
}

/// A tensor in memory. `written_by` and `last_use` are numbers of kernels.
#[derive(Serialize)]
struct PlannedTensorEntry {
    place: String,
    data_type: &'static str,
    shape: Vec<usize>,
    bytes: u64,
    written_by: Option<usize>,
    last_use: Option<usize>,
}

/// The shaders of a kernel, or why it has none.
#[derive(Serialize)]
#[serde(untagged)]
enum ShaderEntry {
    Passes { label: String, passes: Vec<PassEntry> },
    Failure { label: String, error: String },
}

#[derive(Serialize)]
struct PassEntry {
    bindings: usize,
    workgroups: [u32; 3],
    parts_bytes: usize,
    source: String,
}

impl GraphEntry {
    pub(super) fn new(
        number: usize,
        compiled: &Result<InspectedGraph, String>,
        recorded: &RecordedGraph,
    ) -> GraphEntry {
        let RecordedGraph { phase, graph } = recorded;
        let compiled = match compiled {
            Ok(it) => CompiledEntry::Program {
                kernels: it.stages.program.kernels.len(),
                arena_bytes: it.memory.arena_bytes,
                peak_bytes: it.memory.peak_bytes,
                total_bytes: it.memory.total_bytes(),
            },
            Err(error) => CompiledEntry::Failure { error: error.clone() },
        };
        GraphEntry {
            graph: number,
            phase: phase.clone(),
            nodes: graph.nodes.len(),
            inputs: port_entries(&graph.inputs),
            variables: port_entries(&graph.variables),
            outputs: output_entries(graph),
            compiled,
        }
    }
}

/// Returns one graph with the requested stages.
pub(super) fn graph_document(it: &InspectedGraph, wanted: CompileStage) -> Result<GraphDocument<'_>, CliError> {
    let includes = |stage| it.includes_stage(wanted, stage);
    let stages = StageDocuments {
        graph: includes(CompileStage::Graph).then(|| node_graph(it.graph.graph())),
        simplified: includes(CompileStage::Simplified).then(|| node_graph(&it.stages.simplified)),
        fused: includes(CompileStage::Fused).then(|| fused_entries(it)),
        schedule: includes(CompileStage::Schedule).then(|| schedule(it)),
        memory: includes(CompileStage::Memory).then(|| memory_document(it)),
        wgsl: includes(CompileStage::Wgsl).then(|| shader_entries(it)),
        routines: includes(CompileStage::Routines).then(|| it.routines()).transpose()?,
    };
    Ok(GraphDocument { graph: it.number, phase: &it.phase, target: it.target_name(), stages })
}

fn port_entry(name: &str, descriptor: &Descriptor) -> PortEntry {
    let (data_type, shape) = (descriptor.dtype.name(), descriptor.shape.dims().to_vec());
    PortEntry { name: name.to_owned(), data_type, shape }
}

fn port_entries(ports: &[GraphPort]) -> Vec<PortEntry> {
    ports.iter().map(|port| port_entry(&port.name, &port.descriptor)).collect()
}

fn output_entries(graph: &Graph) -> Vec<PortEntry> {
    graph.outputs.iter().map(|(name, node)| port_entry(name, graph.descriptor(*node))).collect()
}

fn node_numbers(nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|node| node.0).collect()
}

fn node_graph(graph: &Graph) -> NodeGraph {
    let node = |node: &GraphNode| NodeEntry {
        op: node.op.name(),
        label: node.label.as_deref().map(str::to_owned),
        inputs: node_numbers(&node.inputs),
        data_type: node.descriptor.dtype.name(),
        shape: node.descriptor.shape.dims().to_vec(),
    };
    let assign = |(variable, node): &(u32, NodeId)| AssignmentEntry { variable: *variable, node: node.0 };
    NodeGraph {
        inputs: port_entries(&graph.inputs),
        variables: port_entries(&graph.variables),
        nodes: graph.nodes.iter().map(node).collect(),
        outputs: output_entries(graph),
        assignments: graph.assignments.iter().map(assign).collect(),
        text: graph.to_string(),
    }
}

/// Returns the groups, each with the least work of its kernel.
fn fused_entries(it: &InspectedGraph) -> Vec<FusedEntry> {
    let program = &it.stages.program;
    let entry = |(group, kernel): (&FusedGroup, &Kernel)| {
        let cost = kernel_cost(program, kernel);
        FusedEntry {
            label: group.label.clone(),
            nodes: node_numbers(&group.nodes),
            reads: node_numbers(&group.reads),
            writes: node_numbers(&group.writes),
            operations: cost.operations,
            bytes: cost.bytes,
        }
    };
    it.stages.groups.iter().zip(&program.kernels).map(entry).collect()
}

fn schedule(it: &InspectedGraph) -> Vec<KernelEntry> {
    let program = &it.stages.program;
    let touched = |values: Vec<ValueId>| -> Vec<String> {
        values.iter().map(|value| listing::place_label(program, program.values[value.index()].place)).collect()
    };
    let kernel = |kernel: &Kernel| KernelEntry {
        label: kernel.label.clone(),
        reads: touched(kernel.body.read_values()),
        writes: touched(kernel.body.written_values()),
        text: program.kernel_text(kernel).to_string(),
    };
    program.kernels.iter().map(kernel).collect()
}

fn memory_document(it: &InspectedGraph) -> MemoryDocument {
    let (program, plan) = (&it.stages.program, &it.memory);
    let tensor = |tensor: &PlannedTensor| PlannedTensorEntry {
        place: listing::place_label(program, tensor.place),
        data_type: tensor.descriptor.dtype.name(),
        shape: tensor.descriptor.shape.dims().to_vec(),
        bytes: tensor.bytes,
        written_by: tensor.from,
        last_use: tensor.to,
    };
    MemoryDocument {
        tensors: plan.tensors.iter().map(tensor).collect(),
        slabs: program.slabs.iter().map(|slab| slab.bytes).collect(),
        arena_bytes: plan.arena_bytes,
        peak_bytes: plan.peak_bytes,
        peak_kernel: plan.peak_kernel,
        input_bytes: plan.input_bytes,
        variable_bytes: plan.variable_bytes,
        constant_bytes: plan.constant_bytes,
        output_bytes: plan.output_bytes,
        total_bytes: plan.total_bytes(),
    }
}

fn shader_entries(it: &InspectedGraph) -> Vec<ShaderEntry> {
    let pass = |shader: Shader| PassEntry {
        bindings: shader.bindings.len(),
        workgroups: shader.workgroups,
        parts_bytes: shader.pass_buffer_bytes,
        source: shader.source,
    };
    let shaders = |(passes, kernel): (Result<Vec<Shader>, String>, &Kernel)| {
        let label = kernel.label.clone();
        match passes {
            Ok(passes) => ShaderEntry::Passes { label, passes: passes.into_iter().map(pass).collect() },
            Err(error) => ShaderEntry::Failure { label, error },
        }
    };
    it.shaders().into_iter().zip(&it.stages.program.kernels).map(shaders).collect()
}
