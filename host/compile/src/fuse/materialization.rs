//! Chooses the nodes that are materialized before kernels are merged.

use std::collections::BTreeSet;

use saggar_tensor::op::{ContractOp, MovementOp, Op, SourceOp};
use saggar_tensor::{Graph, InterruptCheck, InterruptedError, NodeId};

use super::expression_limits::materialize_to_limits;
use super::fused_matmul_search::FusedMatMulSet;
use super::fusion_kind::{FusionKind, fusion_kind, reshape_base};
use super::matmul_operands::matrix_view;
use crate::limits::{BROADCAST_COST_MAX, RECOMPUTE_COST_MAX};
use crate::target::CompileTarget;

/// Returns, for each node, whether it is in memory. Reshapes never are; the node that they reshape is.
///
/// `claimed` are outputs and assigned values; `forced` are nodes without which kernels could not be built.
///
/// # Errors
/// Returns `InterruptedError` if interrupted.
pub(super) fn materialized_nodes(
    graph: &Graph,
    claimed: &BTreeSet<NodeId>,
    forced: &BTreeSet<NodeId>,
    chains: &FusedMatMulSet,
    target: &CompileTarget,
    interrupt: &InterruptCheck<'_>,
) -> Result<Vec<bool>, InterruptedError> {
    let mut stored: Vec<bool> = graph.nodes.iter().map(|node| must_materialize(&node.op)).collect();
    chains.products.iter().for_each(|product| stored[product.index()] = false);
    claimed.iter().chain(forced).for_each(|node| stored[node.index()] = true);
    for node in &graph.nodes {
        interrupt.check()?;
        for operand in dense_operands(graph, &node.op, &node.inputs) {
            stored[operand.index()] |= !chains.elementwise.contains(&operand);
        }
    }
    interrupt.check()?;
    let uses = use_counts(graph, claimed);
    materialize_broadcast_operands(graph, &mut stored);
    interrupt.check()?;
    materialize_shared(graph, &uses, chains, &mut stored);
    materialize_to_limits(graph, chains, target, stored, interrupt)
}

fn must_materialize(op: &Op) -> bool {
    match fusion_kind(op) {
        FusionKind::External | FusionKind::Anchor | FusionKind::Standalone => true,
        FusionKind::Elementwise(_) | FusionKind::Movement => false,
    }
}

/// Returns the nodes that a kernel reads directly, not through an expression.
pub(super) fn dense_operands(graph: &Graph, op: &Op, inputs: &[NodeId]) -> Vec<NodeId> {
    match op {
        Op::Contract(ContractOp::MatMul { .. }) => inputs.iter().map(|&input| matrix_view(graph, input).node).collect(),
        Op::Convolution(_) | Op::Index(_) => inputs.iter().map(|&input| reshape_base(graph, input)).collect(),
        Op::Source(SourceOp::Random { .. }) => inputs.iter().map(|&input| reshape_base(graph, input)).collect(),
        Op::Reduce(_) if fusion_kind(op) == FusionKind::Standalone => {
            inputs.iter().map(|&input| reshape_base(graph, input)).collect()
        }
        Op::Source(_) | Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Reduce(_) | Op::Movement(_) => Vec::new(),
    }
}

/// Returns how often each node is an operand or claimed.
fn use_counts(graph: &Graph, claimed: &BTreeSet<NodeId>) -> Vec<usize> {
    let mut uses = vec![0; graph.nodes.len()];
    graph.nodes.iter().flat_map(|node| &node.inputs).for_each(|input| uses[input.index()] += 1);
    claimed.iter().for_each(|node| uses[node.index()] += 1);
    uses
}

/// Work per element down to memory, in additions, and whether a kernel's result is among the operands read.
#[derive(Clone, Copy, Default)]
struct RecomputeCost {
    cost: u32,
    follows_kernel: bool,
}

fn recompute_costs(graph: &Graph, stored: &[bool]) -> Vec<RecomputeCost> {
    let mut works: Vec<RecomputeCost> = Vec::with_capacity(graph.nodes.len());
    for (at, node) in graph.nodes.iter().enumerate() {
        let inputs = node.inputs.iter().map(|input| works[input.index()]);
        let below = inputs.fold(RecomputeCost::default(), |sum, work| RecomputeCost {
            cost: sum.cost.saturating_add(work.cost),
            follows_kernel: sum.follows_kernel || work.follows_kernel,
        });
        works.push(match fusion_kind(&node.op) {
            FusionKind::External => RecomputeCost::default(),
            FusionKind::Anchor | FusionKind::Standalone => RecomputeCost { cost: 0, follows_kernel: true },
            FusionKind::Elementwise(_) | FusionKind::Movement if stored[at] => RecomputeCost::default(),
            FusionKind::Elementwise(cost) => RecomputeCost { cost: below.cost.saturating_add(cost), ..below },
            FusionKind::Movement => below,
        });
    }
    works
}

/// Materializes operands of broadcasts that would otherwise be recomputed for each repetition.
fn materialize_broadcast_operands(graph: &Graph, stored: &mut [bool]) {
    let works = recompute_costs(graph, stored);
    let moved = movement_sources(graph);
    for node in &graph.nodes {
        let Some(MovementOp::Broadcast(shape)) = node.op.as_movement() else { continue };
        let operand = moved[node.inputs[0].index()];
        let work = works[operand.index()];
        let repeats = shape.elements() > graph.descriptor(operand).shape.elements();
        let worth = work.cost > BROADCAST_COST_MAX || (work.follows_kernel && work.cost > 0);
        if repeats && worth && !stored[operand.index()] {
            stored[operand.index()] = true;
        }
    }
}

/// Returns, for each node, the computation whose elements it moves, or the node itself. Concatenations count as
/// computations.
fn movement_sources(graph: &Graph) -> Vec<NodeId> {
    let mut moved: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    for (at, node) in graph.nodes.iter().enumerate() {
        let is_rearrangement = node.op.as_movement().is_some_and(MovementOp::is_rearrangement);
        moved.push(if is_rearrangement { moved[node.inputs[0].index()] } else { NodeId(at as u32) });
    }
    moved
}

/// The kernel that computes a node that is not in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeOwner {
    Nobody,
    One(usize),
    Several,
}

/// Materializes nodes that several kernels need, if recomputing them in each is expensive.
fn materialize_shared(graph: &Graph, uses: &[usize], chains: &FusedMatMulSet, stored: &mut [bool]) {
    let works = recompute_costs(graph, stored);
    let carried = replaceable_results(graph, uses, stored);
    let mut owners = vec![NodeOwner::Nobody; graph.nodes.len()];
    for at in (0..graph.nodes.len()).rev() {
        let node = &graph.nodes[at];
        let is_piece = chains.elementwise.contains(&NodeId(at as u32));
        if !stored[at] && !is_piece && owners[at] == NodeOwner::Several {
            stored[at] = match fusion_kind(&node.op) {
                FusionKind::Elementwise(cost) => works[at].cost > RECOMPUTE_COST_MAX || (carried[at] && cost > 0),
                FusionKind::External | FusionKind::Movement | FusionKind::Anchor | FusionKind::Standalone => false,
            };
        }
        // An anchor's epilogue and prologue are evaluated at different positions, so a node below the anchor belongs
        // only to it.
        let owner = if stored[at] { NodeOwner::One(at) } else { owners[at] };
        for input in &node.inputs {
            let seen = &mut owners[input.index()];
            *seen = match (*seen, owner) {
                (NodeOwner::Nobody, owner) => owner,
                (seen, owner) if seen == owner => seen,
                (seen, NodeOwner::Nobody) => seen,
                (NodeOwner::One(_) | NodeOwner::Several, NodeOwner::One(_) | NodeOwner::Several) => NodeOwner::Several,
            };
        }
    }
}

/// Returns the nodes that can be stored instead of a kernel's result, as its only consumers of that shape.
fn replaceable_results(graph: &Graph, uses: &[usize], stored: &[bool]) -> Vec<bool> {
    let mut carried = vec![false; graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        let elements = node.descriptor.shape.elements();
        let from_input = |input: &NodeId| {
            carried[input.index()] && uses[input.index()] == 1 && graph.descriptor(*input).shape.elements() == elements
        };
        carried[at] = match fusion_kind(&node.op) {
            FusionKind::Anchor => true,
            FusionKind::External | FusionKind::Standalone => false,
            FusionKind::Elementwise(_) => !stored[at] && node.inputs.iter().any(from_input),
            FusionKind::Movement => node.op.is_reshape() && node.inputs.iter().any(from_input),
        };
    }
    carried
}
