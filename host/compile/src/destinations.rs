//! Every output and every assigned value becomes a node of its own, so that each has one place to be written to.

use std::collections::{BTreeMap, BTreeSet};

use saggar_tensor::op::{Op, Unary};
use saggar_tensor::{Graph, Node, NodeId};

use crate::fuse::{Claims, base, is_given};

/// Where claimed nodes go.
pub(crate) struct Destinations {
    /// The node of each output, in order.
    pub(crate) outputs: Vec<NodeId>,
    /// Each assigned variable with its node.
    pub(crate) assignments: Vec<(u32, NodeId)>,
}

impl Destinations {
    /// What `fuse` needs to know of them.
    pub(crate) fn claims(&self) -> Claims {
        let assigned: BTreeMap<NodeId, u32> =
            self.assignments.iter().map(|&(variable, node)| (node, variable)).collect();
        let nodes: BTreeSet<NodeId> = self.outputs.iter().chain(assigned.keys()).copied().collect();
        Claims { nodes, assigned }
    }
}

/// Finds them, adding copies (as `StopGradient`, which computes nothing) for sources and for what is claimed twice.
pub(crate) fn destinations(graph: &mut Graph) -> Destinations {
    let mut taken = BTreeSet::new();
    let mut claim = |graph: &mut Graph, node: NodeId| {
        let whole = base(graph, node);
        if !is_given(graph, whole) && taken.insert(whole) {
            return whole;
        }
        let copy = NodeId(graph.nodes.len() as u32);
        let descriptor = graph.descriptor(whole).clone();
        let label = graph.node(node).label.clone();
        graph.nodes.push(Node { op: Op::Unary(Unary::StopGradient), inputs: vec![whole], descriptor, label });
        taken.insert(copy);
        copy
    };
    let outputs = graph.outputs.iter().map(|(_, node)| *node).collect::<Vec<_>>();
    let outputs = outputs.into_iter().map(|node| claim(graph, node)).collect();
    let assignments = graph.assignments.clone();
    let assignments = assignments.into_iter().map(|(variable, node)| (variable, claim(graph, node))).collect();
    Destinations { outputs, assignments }
}
