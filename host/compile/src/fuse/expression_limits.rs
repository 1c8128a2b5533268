//! Materializes nodes so that no kernel's expression is too long or reads too many values.

use std::collections::BTreeSet;

use saggar_tensor::op::MovementOp;
use saggar_tensor::{Graph, InterruptCheck, InterruptedError, NodeId};

use super::fused_matmul_search::FusedMatMulSet;
use super::fusion_kind::reshape_base;
use crate::limits::FUSED_NODES_MAX;
use crate::target::CompileTarget;

/// Materializes operands, in addition to the nodes in `stored`, until every node can be computed in one expression.
///
/// # Errors
/// Returns `InterruptedError` if interrupted.
pub(super) fn materialize_to_limits(
    graph: &Graph,
    chains: &FusedMatMulSet,
    target: &CompileTarget,
    stored: Vec<bool>,
    interrupt: &InterruptCheck<'_>,
) -> Result<Vec<bool>, InterruptedError> {
    let nodes = graph.nodes.len();
    let mut reach =
        ExpressionLimiter { graph, chains, target, stored, sizes: vec![1; nodes], loads: vec![BTreeSet::new(); nodes] };
    for at in 0..nodes {
        interrupt.check()?;
        reach.limit_node(at);
    }
    // Materializing a node adds one value to earlier visited readers that also read another ancestor of that node. So
    // these readers are visited again.
    let mut users = vec![Vec::new(); nodes];
    for (at, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&input| users[reshape_base(graph, input).index()].push(at));
    }
    let mut open: BTreeSet<usize> = (0..nodes).collect();
    while let Some(at) = open.pop_first() {
        interrupt.check()?;
        let before = (reach.sizes[at], reach.loads[at].clone());
        for materialised in reach.limit_node(at) {
            open.extend(&users[materialised.index()]);
        }
        if before != (reach.sizes[at], reach.loads[at].clone()) {
            open.extend(&users[at]);
        }
    }
    Ok(reach.stored)
}

struct ExpressionLimiter<'a> {
    graph: &'a Graph,
    chains: &'a FusedMatMulSet,
    target: &'a CompileTarget,
    stored: Vec<bool>,
    /// For each node, the largest number of instructions that it becomes, down to stored nodes.
    sizes: Vec<usize>,
    /// For each node, the stored nodes that it is computed from.
    loads: Vec<BTreeSet<NodeId>>,
}

impl ExpressionLimiter<'_> {
    /// Computes size and loads of node `at` from its operands, and materializes operands until both are within limits.
    /// Returns the nodes materialized.
    fn limit_node(&mut self, at: usize) -> Vec<NodeId> {
        let (graph, node) = (self.graph, NodeId(at as u32));
        // A movement reads what its operand reads, which was counted for the operand.
        let moves_one = graph.nodes[at].op.as_movement().is_some() && graph.nodes[at].inputs.len() == 1;
        let more = if self.chains.contains(node) || moves_one { self.target.chain_values_max } else { 0 };
        let values_max = more.max(self.target.kernel_values_max);
        let mut inputs: Vec<NodeId> = graph.nodes[at].inputs.iter().map(|&input| reshape_base(graph, input)).collect();
        inputs.sort_by_key(|input| (self.loads[input.index()].len(), self.sizes[input.index()], *input));
        inputs.dedup();
        let mut materialised = Vec::new();
        loop {
            let read: BTreeSet<NodeId> = inputs.iter().flat_map(|input| &self.loads[input.index()]).copied().collect();
            let size =
                instruction_count(graph, node) + inputs.iter().map(|input| self.sizes[input.index()]).sum::<usize>();
            let largest = inputs.iter().rposition(|input| !self.stored[input.index()]);
            let fits = size <= FUSED_NODES_MAX && read.len() < values_max;
            let Some(largest) = largest.filter(|_| !fits).map(|largest| inputs[largest]) else {
                (self.sizes[at], self.loads[at]) = (size, read);
                break;
            };
            self.stored[largest.index()] = true;
            (self.sizes[largest.index()], self.loads[largest.index()]) = (1, BTreeSet::from([largest]));
            materialised.push(largest);
        }
        if self.stored[at] {
            (self.sizes[at], self.loads[at]) = (1, BTreeSet::from([node]));
        }
        materialised
    }
}

/// Returns the largest number of instructions that a node becomes.
fn instruction_count(graph: &Graph, node: NodeId) -> usize {
    let node = graph.node(node);
    match node.op.as_movement() {
        Some(MovementOp::Pad { low, .. }) => 2 + 6 * low.len(),
        Some(MovementOp::Concat { .. }) => 4 * node.inputs.len(),
        Some(_) | None => 1,
    }
}
