//! A training step in shards: a batch in equal parts, gradients of each by itself, and one update by their means.
//!
//! A step's graph is built for the items of one shard. [`average_gradients`] puts a node in the place of each gradient, which stands
//! for its mean over the shards; [`split_step`] makes two graphs of the whole: one that is computed for each shard, and one that
//! is computed once, from the means, and assigns. Whoever runs them, in however many processes, has the same bits as long
//! as the means are added up in the order of the shards.
//!
//! What may go from the shards into the update is a gradient, or a mean over the batch that is one float. Statistics that
//! are learnt without gradients, such as running means, become the mean of what the shards would make of them. Anything
//! else is refused: it would have one value in a batch and another in its shards. What the update needs of variables alone
//! it computes itself. Random numbers of a shard are its own: the number of the shard is part of their key.

mod subgraph;

use crate::builder::GraphBuilder;
use crate::error::MicroBatchError;
use crate::graph::{Graph, GraphNode, NodeId};
use crate::verify::VerifiedGraph;

pub(crate) use subgraph::ancestors;

/// A step in two graphs. Both have all of the step's variables, in its order; the first assigns none.
#[derive(Clone, Debug, PartialEq)]
pub struct MicroBatchStep {
    /// Computed for each shard. Takes the step's inputs and, where it is [`MicroBatchStep::takes_number`], the shard's number. Its first
    /// outputs are those whose means the update takes; the others are the step's own.
    pub micro_batch: Graph,
    /// Computed once. Takes the means of the shards' first outputs, in their order.
    pub update: Graph,
    /// How many means the update takes.
    pub means: usize,
    /// Where each of the step's outputs is.
    pub outputs: Vec<StepOutput>,
    /// Whether the last input of `shard` is the shard's number, as [`random_key_offset`] writes it.
    pub takes_number: bool,
}

/// Where an output of a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutput {
    /// Output `.0` of every shard: the step's is their mean.
    MicroBatches(usize),
    /// Output `.0` of the update.
    Update(usize),
}

/// Little-endian `uint32[4]` that a shard adds to the keys of its random numbers. The first shard's numbers are those of a
/// batch that is not divided.
pub fn random_key_offset(shard: u32) -> [u8; 16] {
    // In the upper half of the step's high word, which no training counts up to.
    let mut bytes = [0; 16];
    bytes[12..].copy_from_slice(&(shard << 16).to_le_bytes());
    bytes
}

/// Puts nodes that stand for means over the shards in the place of `gradients`, which are those of `loss` in `wrt`, and adds
/// them to `means`. Left alone are gradients that are the same in every shard, and those of what every shard has for
/// itself, such as its inputs.
///
/// # Errors
/// `Nested` where the loss depends on one of `means`; `Graph` for a graph past its limits.
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

/// Those of `nodes` that have one value in all shards, given the `means` that [`average_gradients`] made.
pub fn replicated_nodes(graph: &Graph, means: &[NodeId], nodes: &[NodeId]) -> Vec<NodeId> {
    let flow = MicroBatchDependencies::analyze(graph, means);
    nodes.iter().copied().filter(|node| !flow.differs_by_micro_batch(*node)).collect()
}

/// Cuts a step at `means`, which [`average_gradients`] made. `statistic` says whether a variable, by its number, is learnt without
/// gradients.
///
/// # Errors
/// `Items`, `Assigned`, `CaseRng` where the update depends on what shards have for themselves; `Nested`.
pub fn split_step(
    graph: &VerifiedGraph,
    means: &[NodeId],
    statistic: &dyn Fn(u32) -> bool,
) -> Result<MicroBatchStep, MicroBatchError> {
    let flow = MicroBatchDependencies::analyze(graph, means);
    let crossing = UpdateCut::new(graph, &flow, statistic)?;
    let own_outputs: Vec<NodeId> =
        graph.outputs.iter().map(|(_, node)| *node).filter(|node| flow.is_micro_batch_value(*node)).collect();
    // A mean stands for what its own operand is in a shard.
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

/// What every node depends on.
struct MicroBatchDependencies {
    /// On an input: the items of the shard.
    on_items: Vec<bool>,
    /// On random numbers.
    random: Vec<bool>,
    /// On a mean over the shards, or it is one.
    after_mean: Vec<bool>,
    /// Nodes that stand for means.
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
                // The same in every shard.
                flow.after_mean[at] = true;
                continue;
            }
            flow.on_items[at] = subgraph::input_number(&node.op).is_some() || any_input(&flow.on_items, node);
            flow.random[at] = subgraph::is_random(&node.op) || any_input(&flow.random, node);
            flow.after_mean[at] = any_input(&flow.after_mean, node);
        }
        flow
    }

    /// Whether each shard has another value.
    fn differs_by_micro_batch(&self, node: NodeId) -> bool {
        self.on_items[node.index()] || self.random[node.index()]
    }

    /// Whether each shard has another value, and has it before there are means.
    fn is_micro_batch_value(&self, node: NodeId) -> bool {
        self.differs_by_micro_batch(node) && !self.after_mean[node.index()]
    }
}

fn any_input(flags: &[bool], node: &GraphNode) -> bool {
    node.inputs.iter().any(|input| flags[input.index()])
}

/// What goes from the shards into the update.
struct UpdateCut {
    /// Nodes whose means the update takes, in the graph's order.
    nodes: Vec<NodeId>,
    /// What the update computes itself.
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
        let kept = graph.outputs.iter().map(|(_, node)| *node).filter(|node| !flow.is_micro_batch_value(*node));
        kept.for_each(|node| update[node.index()] = true);
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

/// Has what the shards make of a statistic go into the update as a mean, also where the update decides what becomes of it.
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

/// Whether the node is one float.
fn is_float_scalar(graph: &Graph, node: NodeId) -> bool {
    let descriptor = graph.descriptor(node);
    descriptor.dtype.is_float() && descriptor.shape.elements() == 1
}

fn node_name(graph: &Graph, node: NodeId) -> String {
    let input = subgraph::input_number(&graph.node(node).op).and_then(|number| graph.inputs.get(number as usize));
    let named = input.map(|port| port.name.as_str()).or(graph.node(node).label.as_deref());
    named.map_or_else(|| format!("node {}", node.0), str::to_owned)
}

#[cfg(test)]
mod tests;
