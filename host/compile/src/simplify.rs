//! Graph simplification. The result computes the same values without dead nodes, duplicate nodes and operators that
//! change nothing.
//!
//! All rules hold for every value, NaN and -0 included. In the result, no node reads a tensor without elements unless
//! its own result has none, so kernels never touch empty memory.

mod empty_tensors;
mod identity_folding;
mod relu_maxpool_swap;
mod relu_slope;

use std::collections::HashMap;

use saggar_tensor::op::MovementOp;
use saggar_tensor::{Graph, GraphNode, InterruptCheck, InterruptedError, NodeId};

use crate::limits::CONCAT_OPERANDS_MAX;
use crate::optimization::{DisabledOptimizations, Optimization};

/// Returns the simplified graph; inputs, variables, outputs and assignments keep their order.
///
/// # Errors
/// Returns `InterruptedError` if interrupted.
pub(crate) fn simplify(
    graph: &Graph,
    without: DisabledOptimizations,
    interrupt: &InterruptCheck<'_>,
) -> Result<Graph, InterruptedError> {
    let mut rewrite = GraphRewriter { graph: copy_ports(graph), known: HashMap::new() };
    let live = live_nodes(graph);
    let mut places = vec![NodeId(0); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate().filter(|(at, _)| live[*at]) {
        interrupt.check()?;
        let inputs = node.inputs.iter().map(|input| places[input.index()]).collect();
        places[at] = rewrite.add_or_reuse(GraphNode { inputs, ..node.clone() });
    }
    let mut simpler = rewrite.graph;
    remap_outputs(&mut simpler, &places);
    if without.enables(Optimization::ReluMaxPool) {
        simpler = relu_maxpool_swap::swap_relu_and_max_pool(&simpler, interrupt)?;
    }
    if without.enables(Optimization::ReluSlope) {
        simpler = relu_slope::relu_slope_from_results(&simpler, interrupt)?;
    }
    remove_dead_nodes(&simpler, interrupt)
}

fn copy_ports(graph: &Graph) -> Graph {
    Graph {
        nodes: Vec::new(),
        inputs: graph.inputs.clone(),
        variables: graph.variables.clone(),
        constants: graph.constants.clone(),
        outputs: graph.outputs.clone(),
        assignments: graph.assignments.clone(),
    }
}

/// Adds a node without a search for an equal one.
fn push_node(graph: &mut Graph, node: GraphNode) -> NodeId {
    graph.nodes.push(node);
    NodeId(graph.nodes.len() as u32 - 1)
}

/// Updates outputs and assignments to the new node numbers.
fn remap_outputs(graph: &mut Graph, places: &[NodeId]) {
    graph.outputs.iter_mut().for_each(|(_, node)| *node = places[node.index()]);
    graph.assignments.iter_mut().for_each(|(_, node)| *node = places[node.index()]);
}

/// Returns, for each node, whether an output or an assignment depends on it.
fn live_nodes(graph: &Graph) -> Vec<bool> {
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

/// Returns the graph without dead nodes.
fn remove_dead_nodes(graph: &Graph, interrupt: &InterruptCheck<'_>) -> Result<Graph, InterruptedError> {
    let live = live_nodes(graph);
    let mut smaller = copy_ports(graph);
    let mut places = vec![NodeId(0); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate().filter(|(at, _)| live[*at]) {
        interrupt.check()?;
        let inputs = node.inputs.iter().map(|input| places[input.index()]).collect();
        places[at] = push_node(&mut smaller, GraphNode { inputs, ..node.clone() });
    }
    remap_outputs(&mut smaller, &places);
    Ok(smaller)
}

/// A graph under construction.
struct GraphRewriter {
    graph: Graph,
    /// Nodes by operator, operands and descriptor. The operator is text, because its numbers are compared by their
    /// bits.
    known: HashMap<(String, Vec<NodeId>, String), NodeId>,
}

impl GraphRewriter {
    /// Adds the node, or returns an equal existing one.
    fn add_or_reuse(&mut self, node: GraphNode) -> NodeId {
        if let Some(same) = identity_folding::equal_operand(&self.graph, &node) {
            return same;
        }
        if let Some(op) = empty_tensors::replace_empty_operands(&self.graph, &node)
            .or_else(|| identity_folding::constant_fold(&self.graph, &node))
        {
            return self.push(GraphNode { op, inputs: Vec::new(), ..node });
        }
        match node.op.as_movement() {
            Some(MovementOp::Reshape(_)) => {
                let inputs = vec![crate::fuse::reshape_base(&self.graph, node.inputs[0])];
                if self.graph.descriptor(inputs[0]) == &node.descriptor {
                    return inputs[0];
                }
                self.push(GraphNode { inputs, ..node })
            }
            Some(MovementOp::Concat { axis }) => self.concat(*axis, node),
            Some(_) | None => self.push(node),
        }
    }

    /// Adds a concatenation without its empty operands. More operands than one kernel joins become a tree.
    fn concat(&mut self, axis: usize, mut node: GraphNode) -> NodeId {
        let graph = &self.graph;
        node.inputs.retain(|input| graph.descriptor(*input).shape.elements() > 0);
        while node.inputs.len() > CONCAT_OPERANDS_MAX {
            let groups: Vec<Vec<NodeId>> = node.inputs.chunks(CONCAT_OPERANDS_MAX).map(<[NodeId]>::to_vec).collect();
            node.inputs = groups.into_iter().map(|inputs| self.concat_tree(axis, inputs, &node)).collect();
        }
        let inputs = std::mem::take(&mut node.inputs);
        self.concat_tree(axis, inputs, &node)
    }

    fn concat_tree(&mut self, axis: usize, inputs: Vec<NodeId>, whole: &GraphNode) -> NodeId {
        if let [only] = inputs[..] {
            return only;
        }
        let size = inputs.iter().map(|input| self.graph.descriptor(*input).shape[axis]).sum();
        let descriptor = empty_tensors::resize_axis(&whole.descriptor, axis, size);
        self.push(GraphNode { inputs, descriptor, ..whole.clone() })
    }

    fn push(&mut self, node: GraphNode) -> NodeId {
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
