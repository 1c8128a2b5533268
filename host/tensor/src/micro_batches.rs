//! Micro-batches: splits a training step so that each shard (an equal part of the batch) computes gradients
//! independently, and one update uses their means.
//!
//! The graph of a step is built for the items of one shard. [`average_gradients`] replaces each gradient by a node that
//! represents its mean over the shards. [`split_step`] splits the whole into two graphs: one that is computed for each
//! shard, and one that is computed once, from the means, and assigns. The result has the same bits for any number of
//! processes, as long as the means are summed in the order of the shards.
//!
//! The update can use gradients and means over the batch that are one float. Statistics that are learned without
//! gradients, such as running means, become the mean of the shards' values. Anything else is refused, because its value
//! would differ between the whole batch and its shards. The update itself computes the values that depend only on
//! variables. Each shard draws different random numbers: the number of the shard is part of their key.

mod subgraph;

use crate::builder::GraphBuilder;
use crate::error::MicroBatchError;
use crate::graph::{Graph, GraphNode, NodeId};
use crate::verify::VerifiedGraph;

pub(crate) use subgraph::ancestors;

/// A step as two graphs. Both have all of the step's variables, in its order; the first assigns none.
#[derive(Clone, Debug, PartialEq)]
pub struct MicroBatchStep {
    /// The graph computed for each shard. Takes the step's inputs and, if [`MicroBatchStep::takes_number`], the shard's
    /// number. Its first outputs are those whose means the update takes; the others are the step's outputs.
    pub micro_batch: Graph,
    /// The graph computed once. Takes the means of the shards' first outputs, in their order.
    pub update: Graph,
    /// Number of means that the update takes.
    pub means: usize,
    /// The location of each of the step's outputs.
    pub outputs: Vec<StepOutput>,
    /// Whether the last input of [`MicroBatchStep::micro_batch`] is the shard's number, encoded by
    /// [`random_key_offset`].
    pub takes_number: bool,
}

/// The location of an output of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutput {
    /// Output `.0` of every shard; the step's output is their mean.
    MicroBatches(usize),
    /// Output `.0` of the update.
    Update(usize),
}

/// Returns the little-endian `uint32[4]` that a shard adds to the keys of its random numbers. The first shard draws the
/// same numbers as an undivided batch.
pub fn random_key_offset(shard: u32) -> [u8; 16] {
    // In the upper half of the step's high word, which no step counter reaches.
    let mut bytes = [0; 16];
    bytes[12..].copy_from_slice(&(shard << 16).to_le_bytes());
    bytes
}

/// Replaces `gradients`, the gradients of `loss` with respect to `wrt`, by nodes that represent means over the shards,
/// and adds these nodes to `means`. Does not replace gradients that are equal in every shard, or gradients with respect
/// to values that each shard has separately, such as its inputs.
///
/// # Errors
/// Returns `Nested` if the loss depends on one of `means`, and `Graph` if the graph exceeds its limits.
pub fn average_gradients(
    builder: &mut GraphBuilder,
    means: &mut Vec<NodeId>,
    loss: NodeId,
    wrt: &[NodeId],
    gradients: &mut [NodeId],
) -> Result<(), MicroBatchError> {
    let flow = MicroBatchDependencies::analyze(builder.graph(), means);
    if flow.after_mean[loss.index()] {
        return Err(MicroBatchError::Nested { place: node_name(builder.graph(), loss) });
    }
    for (gradient, wrt) in gradients.iter_mut().zip(wrt) {
        if flow.differs_by_micro_batch(*gradient) && !flow.on_items[wrt.index()] {
            *gradient = builder.stop_gradient(*gradient)?;
            means.push(*gradient);
        }
    }
    Ok(())
}

/// Returns those of `nodes` that have the same value in all shards, given the `means` that [`average_gradients`] made.
pub fn replicated_nodes(graph: &Graph, means: &[NodeId], nodes: &[NodeId]) -> Vec<NodeId> {
    let flow = MicroBatchDependencies::analyze(graph, means);
    nodes.iter().copied().filter(|node| !flow.differs_by_micro_batch(*node)).collect()
}

/// Splits a step at `means`, which [`average_gradients`] made. `statistic` says whether a variable, by its number, is
/// learned without gradients.
///
/// # Errors
/// Returns `Items`, `Assigned` or `Random` if the update depends on values that differ between shards, and `Nested`.
pub fn split_step(
    graph: &VerifiedGraph,
    means: &[NodeId],
    statistic: &dyn Fn(u32) -> bool,
) -> Result<MicroBatchStep, MicroBatchError> {
    let flow = MicroBatchDependencies::analyze(graph, means);
    let crossing = UpdateCut::new(graph, &flow, statistic)?;
    let own_outputs: Vec<NodeId> =
        graph.outputs.iter().map(|(_, node)| *node).filter(|node| flow.is_micro_batch_value(*node)).collect();
    // Inside a shard, a mean represents its operand.
    let value = |node: NodeId| if flow.mean[node.index()] { graph.node(node).inputs[0] } else { node };
    let wanted: Vec<NodeId> = crossing.nodes.iter().map(|node| value(*node)).chain(own_outputs).collect();
    if let Some(nested) = wanted.iter().find(|node| flow.after_mean[node.index()]) {
        return Err(MicroBatchError::Nested { place: node_name(graph, *nested) });
    }
    let needed = subgraph::ancestors(graph, &wanted);
    let both =
        (0..needed.len()).find(|&at| needed[at] && crossing.update[at] && subgraph::is_random(&graph.nodes[at].op));
    if let Some(at) = both {
        return Err(MicroBatchError::Random { place: node_name(graph, NodeId(at as u32)) });
    }
    let (shard, numbered) = subgraph::micro_batch_graph(graph, &needed, &wanted);
    let inputs = crossing.nodes.iter().enumerate().map(|(at, &node)| (node, at as u32)).collect();
    let update = subgraph::update_graph(graph, &crossing.update, &inputs, &|node| flow.is_micro_batch_value(node));
    let mut places = [crossing.nodes.len(), 0];
    let output = |(_, node): &(String, NodeId)| {
        let own = flow.is_micro_batch_value(*node);
        let next = &mut places[usize::from(!own)];
        *next += 1;
        if own { StepOutput::MicroBatches(*next - 1) } else { StepOutput::Update(*next - 1) }
    };
    let outputs = graph.outputs.iter().map(output).collect();
    Ok(MicroBatchStep { micro_batch: shard, update, means: crossing.nodes.len(), outputs, takes_number: numbered })
}

/// The dependencies of every node.
struct MicroBatchDependencies {
    /// Whether the node depends on an input, that is, on the items of the shard.
    on_items: Vec<bool>,
    /// Whether the node depends on random numbers.
    random: Vec<bool>,
    /// Whether the node is a mean over the shards, or depends on one.
    after_mean: Vec<bool>,
    /// Whether the node represents a mean.
    mean: Vec<bool>,
}

impl MicroBatchDependencies {
    fn analyze(graph: &Graph, means: &[NodeId]) -> MicroBatchDependencies {
        let count = graph.nodes.len();
        let [items, random, after, mut mean] = std::array::from_fn(|_| vec![false; count]);
        means.iter().for_each(|node| mean[node.index()] = true);
        let mut flow = MicroBatchDependencies { on_items: items, random, after_mean: after, mean };
        for (at, node) in graph.nodes.iter().enumerate() {
            if flow.mean[at] {
                // A mean is the same in every shard.
                flow.after_mean[at] = true;
                continue;
            }
            flow.on_items[at] = subgraph::input_number(&node.op).is_some() || any_input(&flow.on_items, node);
            flow.random[at] = subgraph::is_random(&node.op) || any_input(&flow.random, node);
            flow.after_mean[at] = any_input(&flow.after_mean, node);
        }
        flow
    }

    /// Returns whether the value differs between shards.
    fn differs_by_micro_batch(&self, node: NodeId) -> bool {
        self.on_items[node.index()] || self.random[node.index()]
    }

    /// Returns whether the value differs between shards and does not depend on means.
    fn is_micro_batch_value(&self, node: NodeId) -> bool {
        self.differs_by_micro_batch(node) && !self.after_mean[node.index()]
    }
}

fn any_input(flags: &[bool], node: &GraphNode) -> bool {
    node.inputs.iter().any(|input| flags[input.index()])
}

/// The values that pass from the shards to the update.
struct UpdateCut {
    /// Nodes whose means the update takes, in the graph's order.
    nodes: Vec<NodeId>,
    /// For each node, whether the update computes it.
    update: Vec<bool>,
}

impl UpdateCut {
    fn new(
        graph: &Graph,
        flow: &MicroBatchDependencies,
        statistic: &dyn Fn(u32) -> bool,
    ) -> Result<UpdateCut, MicroBatchError> {
        let mut update = vec![false; graph.nodes.len()];
        let mut crosses = flow.mean.clone();
        for &(variable, node) in &graph.assignments {
            update[node.index()] = true;
            if statistic(variable) {
                cross_statistic(graph, flow, node, &mut crosses);
            } else if flow.on_items[node.index()] && !flow.after_mean[node.index()] && !is_float_scalar(graph, node) {
                return Err(MicroBatchError::Assigned { place: graph.variables[variable as usize].name.clone() });
            }
        }
        let update_outputs =
            graph.outputs.iter().map(|(_, node)| *node).filter(|node| !flow.is_micro_batch_value(*node));
        update_outputs.for_each(|node| update[node.index()] = true);
        let mut nodes = Vec::new();
        for at in (0..graph.nodes.len()).rev() {
            if !update[at] {
                continue;
            }
            let node = NodeId(at as u32);
            let items = flow.on_items[at] && !flow.after_mean[at];
            if crosses[at] || (items && is_float_scalar(graph, node)) {
                update[at] = false;
                nodes.push(node);
            } else if items && subgraph::input_number(&graph.nodes[at].op).is_some() {
                return Err(MicroBatchError::Items { place: node_name(graph, node) });
            } else {
                graph.nodes[at].inputs.iter().for_each(|input| update[input.index()] = true);
            }
        }
        nodes.reverse();
        Ok(UpdateCut { nodes, update })
    }
}

/// Passes the shards' value of a statistic to the update as a mean, even if the update selects between it and another
/// value.
fn cross_statistic(graph: &Graph, flow: &MicroBatchDependencies, assigned: NodeId, crosses: &mut [bool]) {
    let (mut left, mut seen) = (vec![assigned], vec![false; graph.nodes.len()]);
    while let Some(node) = left.pop() {
        if std::mem::replace(&mut seen[node.index()], true) || flow.mean[node.index()] {
            continue;
        }
        if flow.after_mean[node.index()] {
            left.extend(&graph.node(node).inputs);
        } else if flow.differs_by_micro_batch(node) && graph.descriptor(node).dtype.is_float() {
            crosses[node.index()] = true;
        }
    }
}

/// Returns whether the node is one float.
fn is_float_scalar(graph: &Graph, node: NodeId) -> bool {
    let descriptor = graph.descriptor(node);
    descriptor.dtype.is_float() && descriptor.shape.elements() == 1
}

fn node_name(graph: &Graph, node: NodeId) -> String {
    let input = subgraph::input_number(&graph.node(node).op).and_then(|number| graph.inputs.get(number as usize));
    let named = input.map(|port| port.name.as_str()).or(graph.node(node).label.as_deref());
    named.map_or_else(|| format!("node {}", node.0), str::to_owned)
}
