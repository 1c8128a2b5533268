//! A smaller graph that computes the same: no dead nodes, no node twice, no operator that changes nothing.
//!
//! Rules hold for every value, NaN and -0 included. Nothing reads a tensor without elements afterwards, unless its own
//! result has none, so kernels never touch empty memory.

mod empty;
mod identity;
mod pooled;
mod relu;

use std::collections::HashMap;

use saggar_tensor::op::{Movement, Op};
use saggar_tensor::{Graph, Interrupt, Interrupted, Node, NodeId};

use crate::limits::CONCAT_OPERANDS_MAX;

/// The simplified graph; inputs, variables, outputs and assignments keep their order.
///
/// # Errors
/// `Interrupted`.
pub(crate) fn simplify(graph: &Graph, interrupt: &Interrupt<'_>) -> Result<Graph, Interrupted> {
    let mut rewrite = Rewrite { graph: without_nodes(graph), known: HashMap::new() };
    let live = live(graph);
    let mut places = vec![NodeId(0); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate().filter(|(at, _)| live[*at]) {
        interrupt.check()?;
        let inputs = node.inputs.iter().map(|input| places[input.index()]).collect();
        places[at] = rewrite.add(Node { inputs, ..node.clone() });
    }
    let mut simpler = rewrite.graph;
    follow(&mut simpler, &places);
    let simpler = pooled::rectified_before(&simpler, interrupt)?;
    let simpler = relu::from_results(&simpler, interrupt)?;
    compact(&simpler, interrupt)
}

fn without_nodes(graph: &Graph) -> Graph {
    Graph {
        nodes: Vec::new(),
        inputs: graph.inputs.clone(),
        variables: graph.variables.clone(),
        constants: graph.constants.clone(),
        outputs: graph.outputs.clone(),
        assignments: graph.assignments.clone(),
    }
}

/// Adds a node, whatever is there.
fn push(graph: &mut Graph, node: Node) -> NodeId {
    graph.nodes.push(node);
    NodeId(graph.nodes.len() as u32 - 1)
}

/// Turns outputs and assignments to the places that their nodes have now.
fn follow(graph: &mut Graph, places: &[NodeId]) {
    graph.outputs.iter_mut().for_each(|(_, node)| *node = places[node.index()]);
    graph.assignments.iter_mut().for_each(|(_, node)| *node = places[node.index()]);
}

/// Which nodes an output or an assignment needs.
fn live(graph: &Graph) -> Vec<bool> {
    let mut live = vec![false; graph.nodes.len()];
    let wanted = graph.outputs.iter().map(|(_, node)| node).chain(graph.assignments.iter().map(|(_, node)| node));
    wanted.for_each(|node| live[node.index()] = true);
    for at in (0..graph.nodes.len()).rev() {
        if live[at] {
            graph.nodes[at].inputs.iter().for_each(|input| live[input.index()] = true);
        }
    }
    live
}

/// Without dead nodes.
fn compact(graph: &Graph, interrupt: &Interrupt<'_>) -> Result<Graph, Interrupted> {
    let live = live(graph);
    let mut smaller = without_nodes(graph);
    let mut places = vec![NodeId(0); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate().filter(|(at, _)| live[*at]) {
        interrupt.check()?;
        let inputs = node.inputs.iter().map(|input| places[input.index()]).collect();
        places[at] = push(&mut smaller, Node { inputs, ..node.clone() });
    }
    follow(&mut smaller, &places);
    Ok(smaller)
}

/// A graph under construction.
struct Rewrite {
    graph: Graph,
    /// Nodes by operator (as text, since numbers in it are compared by their bits), operands and descriptor.
    known: HashMap<(String, Vec<NodeId>, String), NodeId>,
}

impl Rewrite {
    /// The node, or one that is the same.
    fn add(&mut self, node: Node) -> NodeId {
        if let Some(same) = identity::same(&self.graph, &node) {
            return same;
        }
        if let Some(op) = empty::without_operands(&self.graph, &node).or_else(|| identity::folded(&self.graph, &node)) {
            return self.push(Node { op, inputs: Vec::new(), ..node });
        }
        match &node.op {
            Op::Movement(Movement::Reshape(_)) => {
                let inputs = vec![crate::fuse::base(&self.graph, node.inputs[0])];
                if self.graph.descriptor(inputs[0]) == &node.descriptor {
                    return inputs[0];
                }
                self.push(Node { inputs, ..node })
            }
            Op::Movement(Movement::Concat { axis }) => self.concat(*axis, node),
            Op::Movement(_)
            | Op::Source(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Reduce(_)
            | Op::Contract(_)
            | Op::Convolution(_)
            | Op::Index(_) => self.push(node),
        }
    }

    /// Without empty operands; more than one kernel joins become a tree.
    fn concat(&mut self, axis: usize, mut node: Node) -> NodeId {
        let graph = &self.graph;
        node.inputs.retain(|input| graph.descriptor(*input).shape.elements() > 0);
        while node.inputs.len() > CONCAT_OPERANDS_MAX {
            let groups: Vec<Vec<NodeId>> = node.inputs.chunks(CONCAT_OPERANDS_MAX).map(<[NodeId]>::to_vec).collect();
            node.inputs = groups.into_iter().map(|inputs| self.joined(axis, inputs, &node)).collect();
        }
        let inputs = std::mem::take(&mut node.inputs);
        self.joined(axis, inputs, &node)
    }

    fn joined(&mut self, axis: usize, inputs: Vec<NodeId>, whole: &Node) -> NodeId {
        if let [only] = inputs[..] {
            return only;
        }
        let size = inputs.iter().map(|input| self.graph.descriptor(*input).shape[axis]).sum();
        let descriptor = empty::resized(&whole.descriptor, axis, size);
        self.push(Node { inputs, descriptor, ..whole.clone() })
    }

    fn push(&mut self, node: Node) -> NodeId {
        let next = NodeId(self.graph.nodes.len() as u32);
        let key = (format!("{:?}", node.op), node.inputs.clone(), node.descriptor.to_string());
        let place = *self.known.entry(key).or_insert(next);
        if place == next {
            self.graph.nodes.push(node);
        }
        place
    }
}

#[cfg(test)]
mod tests;
