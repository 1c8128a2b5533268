//! Where each value lies: the caller's tensors, variables, and slabs of scratch memory shared over time.

mod scratch;

use std::collections::BTreeMap;

use saggar_tensor::op::{Op, Source};
use saggar_tensor::{Descriptor, Graph, Interrupt, NodeId};

use crate::error::CompileError;
use crate::fuse::{Draft, base};
use crate::label::{label, op_name};
use crate::program::{Body, Kernel, Layout, Place, Program, Value, ValueId};
use crate::schedule::{Schedule, reads_in_order};
use crate::target::{Class, Target};
use scratch::scratch;

/// Scratch values in one place, and when it is needed.
struct Lifetime {
    /// The first of them. A later one is written over the one before it.
    nodes: Vec<NodeId>,
    class: Class,
    bytes: usize,
    /// The kernel that writes it and the last one that reads it.
    from: usize,
    to: usize,
}

/// The program of scheduled kernels.
///
/// # Errors
/// `Unsupported` and `ValueTooLarge`, naming the node; `Interrupted`.
pub(crate) fn plan(
    graph: &Graph,
    schedule: Schedule,
    target: &Target,
    interrupt: &Interrupt<'_>,
) -> Result<Program, CompileError> {
    let mut places = schedule.homes.clone();
    let slabs = scratch(&lifetimes(graph, &schedule, target, interrupt)?, target, &mut places, interrupt)?;
    let mut constants = Vec::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        let place = match &node.op {
            Op::Source(Source::Input(input)) => Place::Input(*input),
            Op::Source(Source::Variable(variable)) => Place::Variable(*variable),
            Op::Source(Source::Constant(constant)) => {
                constants.push((node.descriptor.clone(), graph.constants[*constant as usize].clone()));
                Place::Constant(constants.len() as u32 - 1)
            }
            Op::Source(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Reduce(_)
            | Op::Movement(_)
            | Op::Contract(_)
            | Op::Convolution(_)
            | Op::Index(_) => continue,
        };
        places.insert(NodeId(at as u32), place);
    }
    let mut written: Vec<u32> = Vec::new();
    let mut table = Table { graph, target, places, values: Vec::new(), known: BTreeMap::new(), error: None };
    let mut kernels = Vec::with_capacity(schedule.drafts.len());
    for draft in schedule.drafts {
        interrupt.check()?;
        let label = label(graph, &draft);
        let mut body = draft.body;
        table.resolve(&mut body);
        written.extend(body.writes().iter().filter_map(|value| match table.values[value.index()].place {
            Place::Variable(variable) => Some(variable),
            Place::Input(_) | Place::Constant(_) | Place::Output(_) | Place::Slab { .. } => None,
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
    })
}

/// Bytes of a value in the device's memory, padded.
fn bytes(graph: &Graph, node: NodeId, target: &Target) -> Result<usize, CompileError> {
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
    schedule: &Schedule,
    target: &Target,
    interrupt: &Interrupt<'_>,
) -> Result<Vec<Lifetime>, CompileError> {
    let mut lifetimes: BTreeMap<NodeId, Lifetime> = BTreeMap::new();
    for (at, draft) in schedule.drafts.iter().enumerate() {
        interrupt.check()?;
        for &node in &draft.roots {
            let (class, bytes) = (target.class(graph.descriptor(node).dtype), bytes(graph, node, target)?);
            if !schedule.homes.contains_key(&node) {
                lifetimes.insert(node, Lifetime { nodes: vec![node], class, bytes, from: at, to: at });
            }
        }
        for load in &draft.loads {
            if let Some(lifetime) = lifetimes.get_mut(load) {
                lifetime.to = at;
            }
        }
    }
    if target.in_place {
        // Backwards, so that what is written over a value has already taken over what is written over itself.
        for (at, draft) in schedule.drafts.iter().enumerate().rev() {
            interrupt.check()?;
            for root in &draft.roots {
                let Some(read) = given_up(graph, draft, at, *root, &lifetimes) else { continue };
                let Some(later) = lifetimes.remove(root) else { continue };
                let Some(lifetime) = lifetimes.get_mut(&read) else { continue };
                lifetime.nodes.extend(later.nodes);
                // Past this kernel, so that no other of its results takes the same place.
                lifetime.to = later.to.max(at + 1);
            }
        }
    }
    Ok(lifetimes.into_values().collect())
}

/// The value in whose place kernel `at` can write `root`: as large, read by this kernel last, and element by element.
fn given_up(
    graph: &Graph,
    draft: &Draft,
    at: usize,
    root: NodeId,
    lifetimes: &BTreeMap<NodeId, Lifetime>,
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
            && (reads_in_order(&draft.body, |node| base(graph, node) == load)
                || reads_in_tiles(graph, &draft.body, load))
    })
}

/// Whether a gradient of max pooling chooses among the elements of `load`, window by window, where windows are tiles: each
/// then writes what it alone has read.
fn reads_in_tiles(graph: &Graph, body: &Body, load: NodeId) -> bool {
    let Body::MaxPool2dGrad { pool, layout: Layout::ChannelsLast, input, gradient, output: _ } = body else {
        return false;
    };
    let dims = |value: &ValueId| graph.descriptor(NodeId(value.0)).shape.dims();
    let is_load = |value: &ValueId| base(graph, NodeId(value.0)) == load;
    is_load(input) && !is_load(gradient) && pool.is_tiling([dims(input)[1], dims(input)[2]])
}

/// Values by place and shape.
struct Table<'a> {
    graph: &'a Graph,
    target: &'a Target,
    places: BTreeMap<NodeId, Place>,
    values: Vec<Value>,
    known: BTreeMap<(NodeId, Vec<usize>), ValueId>,
    error: Option<CompileError>,
}

impl Table<'_> {
    /// Replaces nodes by values.
    fn resolve(&mut self, body: &mut Body) {
        let shaped = is_shaped(body);
        let mut nodes = BTreeMap::new();
        for value in body.reads().into_iter().chain(body.writes()) {
            nodes.insert(value, self.value(NodeId(value.0), shaped));
        }
        body.map_values(&mut |value| nodes[&value], &mut |value| nodes[&value]);
    }

    fn value(&mut self, node: NodeId, shaped: bool) -> ValueId {
        let whole = base(self.graph, node);
        let place = self.places[&whole];
        let home = match place {
            // The old and the new value of a variable are one.
            Place::Variable(variable) => self.graph.variables[variable as usize].descriptor.clone(),
            Place::Input(_) | Place::Constant(_) | Place::Output(_) | Place::Slab { .. } => {
                self.graph.descriptor(whole).clone()
            }
        };
        let descriptor = if shaped { self.graph.descriptor(node).clone() } else { home };
        let whole = match place {
            Place::Variable(variable) => NodeId(u32::MAX - variable),
            Place::Input(_) | Place::Constant(_) | Place::Output(_) | Place::Slab { .. } => whole,
        };
        let key = (whole, descriptor.shape.to_vec());
        if let Some(&value) = self.known.get(&key) {
            return value;
        }
        let checked = bytes(self.graph, node, self.target);
        self.error = self.error.take().or(checked.err());
        self.values.push(Value { descriptor: Descriptor::new(descriptor.dtype, descriptor.shape), place });
        let value = ValueId(self.values.len() as u32 - 1);
        self.known.insert(key, value);
        value
    }
}

/// Whether the kernel takes sizes from the shapes of its values.
fn is_shaped(body: &Body) -> bool {
    match body {
        Body::Conv2d { .. }
        | Body::Conv2dInputGrad { .. }
        | Body::Conv2dFilterGrad { .. }
        | Body::Pool2d { .. }
        | Body::MaxPool2dGrad { .. }
        | Body::SumPool2dGrad { .. } => true,
        Body::Map { .. }
        | Body::Fold { .. }
        | Body::ArgFold { .. }
        | Body::MatMul { .. }
        | Body::Chain { .. }
        | Body::Gather { .. }
        | Body::Scatter { .. } => false,
    }
}
