//! Gives every output and every assigned value a separate node, so that each node is written to one location.

use std::collections::{BTreeMap, BTreeSet};

use saggar_tensor::op::{Op, UnaryOp};
use saggar_tensor::{Graph, GraphNode, NodeId};

use crate::fuse::{RequiredNodes, is_external, reshape_base};

/// The nodes of outputs and assigned values.
pub(crate) struct MaterializedOutputs {
    /// The node of each output, in order.
    pub(crate) outputs: Vec<NodeId>,
    /// Each assigned variable with its node.
    pub(crate) assignments: Vec<(u32, NodeId)>,
}

impl MaterializedOutputs {
    /// Returns the nodes that `fuse` must leave in memory.
    pub(crate) fn required_nodes(&self) -> RequiredNodes {
        let assigned: BTreeMap<NodeId, u32> =
            self.assignments.iter().map(|&(variable, node)| (node, variable)).collect();
        let nodes: BTreeSet<NodeId> = self.outputs.iter().chain(assigned.keys()).copied().collect();
        RequiredNodes { nodes, assigned }
    }
}

/// Finds the nodes. Adds copies (as `StopGradient`, which computes nothing) for sources and for nodes that several
/// outputs or assignments use.
pub(crate) fn materialize_outputs(graph: &mut Graph) -> MaterializedOutputs {
    let mut claimed_nodes = BTreeSet::new();
    let mut claim = |graph: &mut Graph, node: NodeId| {
        let whole = reshape_base(graph, node);
        if !is_external(graph, whole) && claimed_nodes.insert(whole) {
            return whole;
        }
        let copy = NodeId(graph.nodes.len() as u32);
        let descriptor = graph.descriptor(whole).clone();
        let label = graph.node(node).label.clone();
        graph.nodes.push(GraphNode { op: Op::Unary(UnaryOp::StopGradient), inputs: vec![whole], descriptor, label });
        claimed_nodes.insert(copy);
        copy
    };
    let outputs = graph.outputs.iter().map(|(_, node)| *node).collect::<Vec<_>>();
    let outputs = outputs.into_iter().map(|node| claim(graph, node)).collect();
    let assignments = graph.assignments.clone();
    let assignments = assignments.into_iter().map(|(variable, node)| (variable, claim(graph, node))).collect();
    MaterializedOutputs { outputs, assignments }
}
