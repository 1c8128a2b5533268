//! The scheduler: chooses the order of kernels, and the location of each result outside scratch memory.
//!
//! Reads of a variable see its old value. A kernel writes a variable in place if every other reader can run before it.
//! Otherwise the new value stays in scratch memory until a copy that runs after all readers.

mod kernel_dependencies;

use std::collections::{BTreeMap, BTreeSet};

use kernel_dependencies::KernelDependencies;
use saggar_tensor::op::{Op, UnaryOp};
use saggar_tensor::{Graph, GraphNode, InterruptCheck, NodeId};

use crate::error::CompileError;
use crate::fuse::{KernelDraft, read_variable};
use crate::output_materialization::MaterializedOutputs;
use crate::program::expr::{AffineView, Instruction, Register, ScalarExpr};
use crate::program::{KernelBody, ResultStore, ValueId, ValueLocation};

/// Kernels in execution order.
pub(crate) struct KernelSchedule {
    /// Kernels, each after the kernels whose results it reads.
    pub(crate) drafts: Vec<KernelDraft>,
    /// Locations of outputs and assigned values; all other results are scratch.
    pub(crate) locations: BTreeMap<NodeId, ValueLocation>,
    /// Variables that cannot be written in place although fusion assumed it.
    pub(crate) copied_variables: BTreeSet<u32>,
}

/// Orders `drafts`. For variables that cannot be written in place, adds copies to the graph and to the kernels.
///
/// # Errors
/// Returns `Interrupted` if interrupted, and `Internal` if the kernels' dependencies form a cycle.
pub(crate) fn schedule_kernels(
    graph: &mut Graph,
    destinations: &MaterializedOutputs,
    drafts: Vec<KernelDraft>,
    pinned: &BTreeSet<u32>,
    interrupt: &InterruptCheck<'_>,
) -> Result<KernelSchedule, CompileError> {
    let mut homes: BTreeMap<NodeId, ValueLocation> = BTreeMap::new();
    for (at, &node) in destinations.outputs.iter().enumerate() {
        homes.insert(node, ValueLocation::Output(at as u32));
    }
    let mut flow = KernelDependencies::new(graph, drafts)?;
    let mut refused = BTreeSet::new();
    for &(assigned, node) in &destinations.assignments {
        interrupt.check()?;
        // A value without elements has no kernel and needs no memory.
        let Some(&maker) = flow.maker.get(&node) else { continue };
        let readers = flow.readers_of_variable(assigned);
        let ordered = !pinned.contains(&assigned)
            && updates_in_place(graph, &flow.drafts[maker], assigned)
            && flow.order_before(&readers, maker);
        if ordered {
            homes.insert(node, ValueLocation::Variable(assigned));
            continue;
        }
        refused.insert(assigned);
        let (copied, draft) = copy_kernel(graph, node);
        let at = flow.push_kernel(draft);
        if !flow.order_before(&readers, at) {
            let place = format!("the copy to variable {assigned}");
            return Err(CompileError::Internal { pass: "schedule", place, what: "nothing depends on it" });
        }
        homes.insert(copied, ValueLocation::Variable(assigned));
    }
    let drafts = flow.memory_aware_order(graph, &homes, interrupt)?;
    Ok(KernelSchedule { drafts, locations: homes, copied_variables: refused })
}

/// Returns whether a kernel that writes the variable has only element-wise reads of it, or none.
fn updates_in_place(graph: &Graph, draft: &KernelDraft, assigned: u32) -> bool {
    if draft.loads.iter().all(|load| read_variable(graph, *load) != Some(assigned)) {
        return true;
    }
    reads_in_order(&draft.body, |node| read_variable(graph, node) == Some(assigned))
}

/// Returns whether a map has only element-wise reads of the nodes for which `is_meant` is true, or none.
pub(crate) fn reads_in_order(body: &KernelBody, is_meant: impl Fn(NodeId) -> bool) -> bool {
    let KernelBody::Map { dims, expr, .. } = body else { return false };
    let is_meant = |value: &ValueId| is_meant(NodeId(value.0));
    expr.instructions.iter().all(|(instruction, _)| match instruction {
        Instruction::Load { value, view, .. } => !is_meant(value) || is_identity(view, dims),
        Instruction::Random { key, .. } => !is_meant(key),
        Instruction::Immediate(_)
        | Instruction::Index(_)
        | Instruction::Accumulated
        | Instruction::Product(_)
        | Instruction::Unary(..)
        | Instruction::Binary(..)
        | Instruction::Select(..) => true,
    })
}

/// Returns whether the view's element is always the one at the iteration's current position.
fn is_identity(view: &AffineView, dims: &[usize]) -> bool {
    let mut stride = 1;
    let mut in_order = view.offset == 0 && view.bounds.is_empty();
    for (&size, &step) in dims.iter().zip(&view.strides).rev() {
        in_order = in_order && (step == stride || size == 1);
        stride *= size as i64;
    }
    in_order
}

fn copy_kernel(graph: &mut Graph, node: NodeId) -> (NodeId, KernelDraft) {
    let copied = NodeId(graph.nodes.len() as u32);
    let descriptor = graph.descriptor(node).clone();
    let elements = descriptor.shape.elements();
    let dtype = descriptor.dtype;
    graph.nodes.push(GraphNode { op: Op::Unary(UnaryOp::StopGradient), inputs: vec![node], descriptor, label: None });
    let view = AffineView { offset: 0, strides: vec![1], bounds: Vec::new() };
    let load = Instruction::Load { value: ValueId(node.0), view, fill: None };
    let body = KernelBody::Map {
        dims: vec![elements],
        expr: ScalarExpr { instructions: vec![(load, dtype)] },
        stores: vec![ResultStore { value: ValueId(copied.0), register: Register(0) }],
    };
    (copied, KernelDraft { body, anchor: None, roots: BTreeSet::from([copied]), loads: BTreeSet::from([node]) })
}
