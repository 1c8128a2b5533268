//! Subgraphs: the needed nodes of a graph, with inputs in place of others.

use std::collections::{BTreeMap, HashMap};

use crate::graph::{Graph, GraphNode, GraphPort, NodeId};
use crate::op::{BinaryOp, Op, SourceOp};
use crate::{DType, Descriptor, Shape};

/// Returns the number of the input, or `None` if `op` is not an input.
pub(super) fn input_number(op: &Op) -> Option<u32> {
    let Some(SourceOp::Input(number)) = op.as_source() else { return None };
    Some(*number)
}

pub(super) fn is_random(op: &Op) -> bool {
    matches!(op.as_source(), Some(SourceOp::Random { .. }))
}

/// Returns, for each node, whether it is one of `wanted` or one of their ancestors.
pub(crate) fn ancestors(graph: &Graph, wanted: &[NodeId]) -> Vec<bool> {
    let mut needed = vec![false; graph.nodes.len()];
    wanted.iter().for_each(|node| needed[node.index()] = true);
    for at in (0..graph.nodes.len()).rev() {
        if needed[at] {
            graph.nodes[at].inputs.iter().for_each(|input| needed[input.index()] = true);
        }
    }
    needed
}

/// Returns the graph that computes `wanted` for one shard, and whether it takes the shard's number.
pub(super) fn micro_batch_graph(graph: &Graph, needed: &[bool], wanted: &[NodeId]) -> (Graph, bool) {
    let mut part = SubgraphBuilder::new(graph, graph.inputs.clone());
    let mut keys: HashMap<NodeId, NodeId> = HashMap::new();
    let mut number = None;
    for at in (0..needed.len()).filter(|&at| needed[at]) {
        if is_random(&graph.nodes[at].op) {
            let key = part.places[graph.nodes[at].inputs[0].index()];
            let number = *number.get_or_insert_with(|| part.number_input());
            let key = *keys.entry(key).or_insert_with(|| part.add_nodes(key, number));
            part.copy_with(at, vec![key]);
        } else {
            part.copy(at);
        }
    }
    let outputs = wanted.iter().enumerate();
    part.graph.outputs = outputs.map(|(at, node)| (format!("part {at}"), part.places[node.index()])).collect();
    (part.graph, number.is_some())
}

/// Returns the graph that assigns, with the means of some nodes as the inputs of these numbers.
pub(super) fn update_graph(
    graph: &Graph,
    needed: &[bool],
    means: &BTreeMap<NodeId, u32>,
    is_shards: &dyn Fn(NodeId) -> bool,
) -> Graph {
    let mut part = SubgraphBuilder::new(graph, Vec::new());
    for (at, needed) in needed.iter().enumerate() {
        if let Some(&number) = means.get(&NodeId(at as u32)) {
            let descriptor = graph.nodes[at].descriptor.clone();
            part.graph.inputs.push(GraphPort { name: format!("mean {number}"), descriptor: descriptor.clone() });
            let node =
                GraphNode { op: Op::Source(SourceOp::Input(number)), inputs: Vec::new(), descriptor, label: None };
            part.places[at] = part.push(node);
        } else if *needed {
            part.copy(at);
        }
    }
    let outputs = graph.outputs.iter().filter(|(_, node)| !is_shards(*node));
    part.graph.outputs = outputs.map(|(name, node)| (name.clone(), part.places[node.index()])).collect();
    let assignments = graph.assignments.iter();
    part.graph.assignments = assignments.map(|&(variable, node)| (variable, part.places[node.index()])).collect();
    part.graph
}

/// A graph under construction from nodes of another graph.
struct SubgraphBuilder<'a> {
    source: &'a Graph,
    graph: Graph,
    /// New node of each node of the original graph, as far as copied.
    places: Vec<NodeId>,
    /// New number of each copied constant.
    constants: HashMap<u32, u32>,
}

impl<'a> SubgraphBuilder<'a> {
    fn new(whole: &'a Graph, inputs: Vec<GraphPort>) -> SubgraphBuilder<'a> {
        let graph = Graph { inputs, variables: whole.variables.clone(), ..Graph::default() };
        SubgraphBuilder {
            source: whole,
            graph,
            places: vec![NodeId(u32::MAX); whole.nodes.len()],
            constants: HashMap::new(),
        }
    }

    fn push(&mut self, node: GraphNode) -> NodeId {
        self.graph.nodes.push(node);
        NodeId(self.graph.nodes.len() as u32 - 1)
    }

    fn copy(&mut self, at: usize) {
        let inputs = self.source.nodes[at].inputs.iter().map(|input| self.places[input.index()]).collect();
        self.copy_with(at, inputs);
    }

    fn copy_with(&mut self, at: usize, inputs: Vec<NodeId>) {
        let node = &self.source.nodes[at];
        let op = match node.op.as_source() {
            Some(SourceOp::Constant(number)) => Op::Source(SourceOp::Constant(self.constant(*number))),
            Some(_) | None => node.op.clone(),
        };
        self.places[at] = self.push(GraphNode { op, inputs, ..node.clone() });
    }

    fn constant(&mut self, number: u32) -> u32 {
        let constants = &mut self.graph.constants;
        *self.constants.entry(number).or_insert_with(|| {
            constants.push(self.source.constants[number as usize].clone());
            constants.len() as u32 - 1
        })
    }

    /// Returns the input with the shard's number.
    fn number_input(&mut self) -> NodeId {
        let mut name = "shard".to_owned();
        while self.graph.inputs.iter().any(|port| port.name == name) {
            name.push('\'');
        }
        let descriptor = Descriptor::new(DType::U32, Shape::new([4]).expect("a small shape"));
        let op = Op::Source(SourceOp::Input(self.graph.inputs.len() as u32));
        self.graph.inputs.push(GraphPort { name, descriptor: descriptor.clone() });
        self.push(GraphNode { op, inputs: Vec::new(), descriptor, label: None })
    }

    fn add_nodes(&mut self, a: NodeId, b: NodeId) -> NodeId {
        let descriptor = self.graph.descriptor(a).clone();
        self.push(GraphNode { op: Op::Binary(BinaryOp::Add), inputs: vec![a, b], descriptor, label: None })
    }
}
