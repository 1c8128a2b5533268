//! Contractions of `float32` operands become contractions of the same operands in `float16`.

use std::collections::{BTreeSet, HashMap};

use crate::graph::{Graph, Node, NodeId};
use crate::op::{Movement, Op, Unary};
use crate::{DType, Descriptor};

/// The graph with these contractions in `float16`, each widened to `float32` behind it; and where each node of `graph` is
/// in it.
///
/// Operands are rounded before they are moved, and once, whoever reads them. What a contraction gives to another one
/// through movements alone is not widened in between. Left alone are contractions of other data types, and those of two
/// operands that were widened from `float16` already: whoever built them chose where to round.
pub fn halve(graph: &Graph, contractions: &BTreeSet<NodeId>) -> (Graph, Vec<NodeId>) {
    let exchanged = exchanged(graph, contractions.iter().copied());
    let mut halving = Halving {
        whole: graph,
        nodes: Vec::with_capacity(graph.nodes.len() + 4 * contractions.len()),
        places: Vec::with_capacity(graph.nodes.len()),
        halves: HashMap::new(),
    };
    for (at, node) in graph.nodes.iter().enumerate() {
        let id = NodeId(at as u32);
        let place = if exchanged.contains(&id) { halving.contraction(id) } else { halving.copy(node) };
        halving.places.push(place);
    }
    let Halving { nodes, places, .. } = halving;
    let place = |node: &NodeId| places[node.index()];
    let halved = Graph {
        nodes,
        inputs: graph.inputs.clone(),
        variables: graph.variables.clone(),
        constants: graph.constants.clone(),
        outputs: graph.outputs.iter().map(|(name, node)| (name.clone(), place(node))).collect(),
        assignments: graph.assignments.iter().map(|(variable, node)| (*variable, place(node))).collect(),
    };
    (halved, places)
}

/// Those of `contractions` that [`halve`] exchanges.
pub(super) fn exchanged(graph: &Graph, contractions: impl Iterator<Item = NodeId>) -> BTreeSet<NodeId> {
    let widened = widened(graph);
    let is_single = |input: &NodeId| graph.descriptor(*input).dtype == DType::F32;
    contractions
        .filter(|contraction| {
            let inputs = &graph.node(*contraction).inputs;
            inputs.iter().all(is_single) && !inputs.iter().all(|input| widened[input.index()])
        })
        .collect()
}

/// Which nodes are `float16` numbers in `float32`, moved perhaps.
fn widened(graph: &Graph) -> Vec<bool> {
    let mut widened: Vec<bool> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        widened.push(match moved(node) {
            Some(operand) => widened[operand.index()],
            None => narrow(graph, node).is_some(),
        });
    }
    widened
}

/// The `float16` node that this one is in `float32`.
fn narrow(graph: &Graph, node: &Node) -> Option<NodeId> {
    let to_single = node.op == Op::Unary(Unary::Cast(DType::F32));
    let operand = *node.inputs.first()?;
    (to_single && graph.descriptor(operand).dtype == DType::F16).then_some(operand)
}

/// What the node moves, where it does nothing but move the elements of one operand.
fn moved(node: &Node) -> Option<NodeId> {
    match &node.op {
        Op::Movement(movement) => match movement {
            Movement::Reshape(_)
            | Movement::Broadcast(_)
            | Movement::Transpose(_)
            | Movement::Slice { .. }
            | Movement::Reverse(_) => node.inputs.first().copied(),
            Movement::Pad { .. } | Movement::Concat { .. } => None,
        },
        Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Reduce(_)
        | Op::Contract(_)
        | Op::Convolution(_)
        | Op::Index(_) => None,
    }
}

struct Halving<'a> {
    whole: &'a Graph,
    nodes: Vec<Node>,
    /// Where nodes of the whole are, as far as they are.
    places: Vec<NodeId>,
    /// Where they are in `float16`.
    halves: HashMap<NodeId, NodeId>,
}

impl Halving<'_> {
    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    fn copy(&mut self, node: &Node) -> NodeId {
        let inputs = node.inputs.iter().map(|input| self.places[input.index()]).collect();
        self.push(Node { inputs, ..node.clone() })
    }

    /// The contraction in `float16`, and its result in `float32`.
    fn contraction(&mut self, id: NodeId) -> NodeId {
        let node = self.whole.node(id);
        let inputs = node.inputs.iter().map(|input| self.half(*input)).collect();
        let half = self.push(Node { inputs, descriptor: half(node), ..node.clone() });
        self.halves.insert(id, half);
        self.cast(half, node, DType::F32)
    }

    /// The node in `float16`.
    fn half(&mut self, id: NodeId) -> NodeId {
        // Down to what is moved, and up again: a recursion could be as deep as the graph is long.
        let mut moves = Vec::new();
        let mut root = id;
        let mut place = loop {
            if let Some(&half) = self.halves.get(&root) {
                break half;
            }
            let node = self.whole.node(root);
            if let Some(operand) = moved(node) {
                moves.push(root);
                root = operand;
                continue;
            }
            let half = match narrow(self.whole, node) {
                Some(own) => self.places[own.index()],
                None => self.cast(self.places[root.index()], node, DType::F16),
            };
            self.halves.insert(root, half);
            break half;
        };
        for id in moves.into_iter().rev() {
            let node = self.whole.node(id);
            place = self.push(Node { inputs: vec![place], descriptor: half(node), label: None, ..node.clone() });
            self.halves.insert(id, place);
        }
        place
    }

    fn cast(&mut self, operand: NodeId, of: &Node, to: DType) -> NodeId {
        let descriptor = Descriptor::new(to, of.descriptor.shape.clone());
        self.push(Node { op: Op::Unary(Unary::Cast(to)), inputs: vec![operand], descriptor, label: None })
    }
}

/// What the node's result is in `float16`.
fn half(node: &Node) -> Descriptor {
    Descriptor::new(DType::F16, node.descriptor.shape.clone())
}
