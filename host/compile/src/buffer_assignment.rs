//! Buffer assignment: places each value in a caller's tensor, a variable, or a slab of scratch memory that values share
//! over time.

mod slab_packing;

use std::collections::BTreeMap;

use saggar_tensor::op::SourceOp;
use saggar_tensor::{Descriptor, Graph, InterruptCheck, NodeId};

use crate::error::CompileError;
use crate::fuse::{KernelDraft, reshape_base};
use crate::label::op_name;
use crate::program::{ChannelLayout, Kernel, KernelBody, Program, ProgramValue, ValueId, ValueLocation};
use crate::schedule::{KernelSchedule, reads_in_order};
use crate::target::{CompileTarget, StorageClass};
use slab_packing::pack_slabs;

/// Scratch values that share one location, and their lifetime.
struct BufferLifetime {
    /// The nodes in order; each overwrites the one before it.
    nodes: Vec<NodeId>,
    class: StorageClass,
    bytes: usize,
    /// First kernel that writes the location; `to` is the last kernel that reads it.
    from: usize,
    to: usize,
}

/// Returns the program of the scheduled kernels.
///
/// # Errors
/// Returns `Unsupported` and `ValueTooLarge`, naming the node, and `Interrupted`.
pub(crate) fn assign_buffers(
    graph: &Graph,
    schedule: KernelSchedule,
    target: &CompileTarget,
    interrupt: &InterruptCheck<'_>,
) -> Result<Program, CompileError> {
    let mut places = schedule.locations.clone();
    let slabs = pack_slabs(&lifetimes(graph, &schedule, target, interrupt)?, target, &mut places, interrupt)?;
    let mut constants = Vec::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        let place = match node.op.as_source() {
            Some(SourceOp::Input(input)) => ValueLocation::Input(*input),
            Some(SourceOp::Variable(variable)) => ValueLocation::Variable(*variable),
            Some(SourceOp::Constant(constant)) => {
                constants.push((node.descriptor.clone(), graph.constants[*constant as usize].clone()));
                ValueLocation::Constant(constants.len() as u32 - 1)
            }
            Some(SourceOp::Fill(_) | SourceOp::Iota { .. } | SourceOp::Random { .. }) | None => continue,
        };
        places.insert(NodeId(at as u32), place);
    }
    let mut written: Vec<u32> = Vec::new();
    let mut table = ValueTable { graph, target, places, values: Vec::new(), known: BTreeMap::new(), error: None };
    let mut kernels = Vec::with_capacity(schedule.drafts.len());
    for draft in schedule.drafts {
        interrupt.check()?;
        let label = draft.label(graph);
        let mut body = draft.body;
        table.replace_nodes(&mut body);
        written.extend(body.written_values().iter().filter_map(|value| match table.values[value.index()].place {
            ValueLocation::Variable(variable) => Some(variable),
            ValueLocation::Input(_)
            | ValueLocation::Constant(_)
            | ValueLocation::Output(_)
            | ValueLocation::Slab { .. } => None,
        }));
        kernels.push(Kernel { label, body });
    }
    if let Some(error) = table.error {
        return Err(error);
    }
    written.sort_unstable();
    written.dedup();
    Ok(Program {
        values: table.values,
        slabs,
        kernels,
        inputs: graph.inputs.clone(),
        variables: graph.variables.clone(),
        written_variables: written,
        constants,
        outputs: Vec::new(),
        without: target.without,
    })
}

/// Returns the bytes of a value in the device's memory, padded.
fn padded_bytes(graph: &Graph, node: NodeId, target: &CompileTarget) -> Result<usize, CompileError> {
    let descriptor = graph.descriptor(node);
    let bytes = descriptor.shape.elements() * target.element_bytes(descriptor.dtype);
    let bytes = bytes.next_multiple_of(target.alignment_bytes);
    if bytes > target.slab_bytes_max {
        let (op, label) = op_name(graph, node);
        return Err(CompileError::ValueTooLarge { op, label, value_bytes: bytes, limit_bytes: target.slab_bytes_max });
    }
    Ok(bytes)
}

fn lifetimes(
    graph: &Graph,
    schedule: &KernelSchedule,
    target: &CompileTarget,
    interrupt: &InterruptCheck<'_>,
) -> Result<Vec<BufferLifetime>, CompileError> {
    let mut lifetimes: BTreeMap<NodeId, BufferLifetime> = BTreeMap::new();
    for (at, draft) in schedule.drafts.iter().enumerate() {
        interrupt.check()?;
        for &node in &draft.roots {
            let (class, bytes) = (target.class(graph.descriptor(node).dtype), padded_bytes(graph, node, target)?);
            if !schedule.locations.contains_key(&node) {
                lifetimes.insert(node, BufferLifetime { nodes: vec![node], class, bytes, from: at, to: at });
            }
        }
        for load in &draft.loads {
            if let Some(lifetime) = lifetimes.get_mut(load) {
                lifetime.to = at;
            }
        }
    }
    if target.in_place {
        // In reverse order: a value then has its final lifetime, including the values that overwrite it, before it is
        // considered to overwrite another value.
        for (at, draft) in schedule.drafts.iter().enumerate().rev() {
            interrupt.check()?;
            for root in &draft.roots {
                let Some(read) = reusable_operand(graph, draft, at, *root, &lifetimes) else { continue };
                let Some(later) = lifetimes.remove(root) else { continue };
                let Some(lifetime) = lifetimes.get_mut(&read) else { continue };
                lifetime.nodes.extend(later.nodes);
                // Extend the lifetime past this kernel, so that no other result of the kernel takes the same location.
                lifetime.to = later.to.max(at + 1);
            }
        }
    }
    Ok(lifetimes.into_values().collect())
}

/// Returns the value that kernel `at` can overwrite with `root`: of equal size, read here for the last time, and
/// element by element.
fn reusable_operand(
    graph: &Graph,
    draft: &KernelDraft,
    at: usize,
    root: NodeId,
    lifetimes: &BTreeMap<NodeId, BufferLifetime>,
) -> Option<NodeId> {
    lifetimes.get(&root)?;
    let same = |load: NodeId| {
        let [read, written] = [load, root].map(|node| graph.descriptor(node));
        read.dtype == written.dtype && read.shape.elements() == written.shape.elements()
    };
    draft.loads.iter().copied().find(|&load| {
        let Some(read) = lifetimes.get(&load) else { return false };
        read.to == at
            && same(load)
            && (reads_in_order(&draft.body, |node| reshape_base(graph, node) == load)
                || reads_in_tiles(graph, &draft.body, load))
    })
}

/// Returns whether `body` is a gradient of max pooling that reads `load` in windows that are disjoint tiles. Each
/// window then writes only elements that it alone has read.
fn reads_in_tiles(graph: &Graph, body: &KernelBody, load: NodeId) -> bool {
    let KernelBody::MaxPool2dGrad { pool, layout: ChannelLayout::ChannelsLast, input, gradient, output: _ } = body
    else {
        return false;
    };
    let dims = |value: &ValueId| graph.descriptor(NodeId(value.0)).shape.dims();
    let is_load = |value: &ValueId| reshape_base(graph, NodeId(value.0)) == load;
    is_load(input) && !is_load(gradient) && pool.is_tiling([dims(input)[1], dims(input)[2]])
}

/// Values by location and shape.
struct ValueTable<'a> {
    graph: &'a Graph,
    target: &'a CompileTarget,
    places: BTreeMap<NodeId, ValueLocation>,
    values: Vec<ProgramValue>,
    known: BTreeMap<(NodeId, Vec<usize>), ValueId>,
    error: Option<CompileError>,
}

impl ValueTable<'_> {
    /// Replaces nodes by values.
    fn replace_nodes(&mut self, body: &mut KernelBody) {
        let shaped = needs_value_shapes(body);
        let mut nodes = BTreeMap::new();
        for value in body.read_values().into_iter().chain(body.written_values()) {
            nodes.insert(value, self.value_of(NodeId(value.0), shaped));
        }
        body.map_values(&mut |value| nodes[&value], &mut |value| nodes[&value]);
    }

    fn value_of(&mut self, node: NodeId, shaped: bool) -> ValueId {
        let whole = reshape_base(self.graph, node);
        let place = self.places[&whole];
        let home = match place {
            // The old and the new value of a variable are one value.
            ValueLocation::Variable(variable) => self.graph.variables[variable as usize].descriptor.clone(),
            ValueLocation::Input(_)
            | ValueLocation::Constant(_)
            | ValueLocation::Output(_)
            | ValueLocation::Slab { .. } => self.graph.descriptor(whole).clone(),
        };
        let descriptor = if shaped { self.graph.descriptor(node).clone() } else { home };
        let whole = match place {
            ValueLocation::Variable(variable) => NodeId(u32::MAX - variable),
            ValueLocation::Input(_)
            | ValueLocation::Constant(_)
            | ValueLocation::Output(_)
            | ValueLocation::Slab { .. } => whole,
        };
        let key = (whole, descriptor.shape.to_vec());
        if let Some(&value) = self.known.get(&key) {
            return value;
        }
        let checked = padded_bytes(self.graph, node, self.target);
        self.error = self.error.take().or(checked.err());
        self.values.push(ProgramValue { descriptor: Descriptor::new(descriptor.dtype, descriptor.shape), place });
        let value = ValueId(self.values.len() as u32 - 1);
        self.known.insert(key, value);
        value
    }
}

/// Returns whether the kernel takes sizes from the shapes of its values.
fn needs_value_shapes(body: &KernelBody) -> bool {
    match body {
        KernelBody::Conv2d { .. }
        | KernelBody::Conv2dInputGrad { .. }
        | KernelBody::Conv2dFilterGrad { .. }
        | KernelBody::Pool2d { .. }
        | KernelBody::MaxPool2dGrad { .. }
        | KernelBody::SumPool2dGrad { .. } => true,
        KernelBody::Map { .. }
        | KernelBody::Fold { .. }
        | KernelBody::ArgFold { .. }
        | KernelBody::MatMul { .. }
        | KernelBody::Chain { .. }
        | KernelBody::Gather { .. }
        | KernelBody::Scatter { .. } => false,
    }
}
