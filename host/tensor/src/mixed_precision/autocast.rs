//! Autocast: replaces contractions of `float32` operands by contractions of the same operands in `float16`.

use std::collections::{BTreeSet, HashMap};

use crate::graph::{Graph, GraphNode, NodeId};
use crate::op::{MovementOp, Op, UnaryOp};
use crate::{DType, Descriptor};

/// Returns the graph with these contractions in `float16`, each followed by a conversion to `float32`, and the new node
/// of each node of `graph`.
///
/// An operand is rounded before it is moved, and once for all its readers. If one contraction reaches another only
/// through movements, the value stays `float16` in between. Contractions of other data types are not changed, nor are
/// contractions of two operands that were widened from `float16`: the builder of the graph chose their rounding.
pub fn autocast_to_f16(graph: &Graph, contractions: &BTreeSet<NodeId>) -> (Graph, Vec<NodeId>) {
    let exchanged = autocast_contractions(graph, contractions.iter().copied());
    let mut halving = AutocastPass {
        source: graph,
        nodes: Vec::with_capacity(graph.nodes.len() + 4 * contractions.len()),
        places: Vec::with_capacity(graph.nodes.len()),
        f16_nodes: HashMap::new(),
    };
    for (at, node) in graph.nodes.iter().enumerate() {
        let id = NodeId(at as u32);
        let place = if exchanged.contains(&id) { halving.cast_contraction(id) } else { halving.copy_node(node) };
        halving.places.push(place);
    }
    let AutocastPass { nodes, places, .. } = halving;
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

/// Returns those of `contractions` that [`autocast_to_f16`] replaces.
pub(super) fn autocast_contractions(graph: &Graph, contractions: impl Iterator<Item = NodeId>) -> BTreeSet<NodeId> {
    let widened = is_widened_f16(graph);
    let is_single = |input: &NodeId| graph.descriptor(*input).dtype == DType::F32;
    contractions
        .filter(|contraction| {
            let inputs = &graph.node(*contraction).inputs;
            inputs.iter().all(is_single) && !inputs.iter().all(|input| widened[input.index()])
        })
        .collect()
}

/// Returns, for each node, whether it is a `float16` value widened to `float32`, possibly moved.
fn is_widened_f16(graph: &Graph) -> Vec<bool> {
    let mut widened: Vec<bool> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        widened.push(match moved_operand(node) {
            Some(operand) => widened[operand.index()],
            None => narrow_source(graph, node).is_some(),
        });
    }
    widened
}

/// Returns the `float16` node that this node widens to `float32`, or `None`.
fn narrow_source(graph: &Graph, node: &GraphNode) -> Option<NodeId> {
    let to_single = node.op == Op::Unary(UnaryOp::Cast(DType::F32));
    let operand = *node.inputs.first()?;
    (to_single && graph.descriptor(operand).dtype == DType::F16).then_some(operand)
}

/// Returns the node's operand if the node only moves the elements of one operand, else `None`.
fn moved_operand(node: &GraphNode) -> Option<NodeId> {
    let is_rearrangement = node.op.as_movement().is_some_and(MovementOp::is_rearrangement);
    node.inputs.first().copied().filter(|_| is_rearrangement)
}

struct AutocastPass<'a> {
    source: &'a Graph,
    nodes: Vec<GraphNode>,
    /// New node of each node of the original graph, as far as copied.
    places: Vec<NodeId>,
    /// New `float16` node of each node that has one.
    f16_nodes: HashMap<NodeId, NodeId>,
}

impl AutocastPass<'_> {
    fn push(&mut self, node: GraphNode) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    fn copy_node(&mut self, node: &GraphNode) -> NodeId {
        let inputs = node.inputs.iter().map(|input| self.places[input.index()]).collect();
        self.push(GraphNode { inputs, ..node.clone() })
    }

    /// Adds the contraction in `float16` and returns its result in `float32`.
    fn cast_contraction(&mut self, id: NodeId) -> NodeId {
        let node = self.source.node(id);
        let inputs = node.inputs.iter().map(|input| self.node_in_f16(*input)).collect();
        let half = self.push(GraphNode { inputs, descriptor: f16_descriptor(node), ..node.clone() });
        self.f16_nodes.insert(id, half);
        self.add_cast(half, node, DType::F32)
    }

    /// Returns the node in `float16`.
    fn node_in_f16(&mut self, id: NodeId) -> NodeId {
        // Descends to the moved node, then adds the movements again. A loop, because a recursion could be as deep as
        // the graph is long.
        let mut moves = Vec::new();
        let mut root = id;
        let mut place = loop {
            if let Some(&half) = self.f16_nodes.get(&root) {
                break half;
            }
            let node = self.source.node(root);
            if let Some(operand) = moved_operand(node) {
                moves.push(root);
                root = operand;
                continue;
            }
            let half = match narrow_source(self.source, node) {
                Some(own) => self.places[own.index()],
                None => self.add_cast(self.places[root.index()], node, DType::F16),
            };
            self.f16_nodes.insert(root, half);
            break half;
        };
        for id in moves.into_iter().rev() {
            let node = self.source.node(id);
            place = self.push(GraphNode {
                inputs: vec![place],
                descriptor: f16_descriptor(node),
                label: None,
                ..node.clone()
            });
            self.f16_nodes.insert(id, place);
        }
        place
    }

    fn add_cast(&mut self, operand: NodeId, of: &GraphNode, to: DType) -> NodeId {
        let descriptor = Descriptor::new(to, of.descriptor.shape.clone());
        self.push(GraphNode { op: Op::Unary(UnaryOp::Cast(to)), inputs: vec![operand], descriptor, label: None })
    }
}

/// Returns the descriptor of the node's result in `float16`.
fn f16_descriptor(node: &GraphNode) -> Descriptor {
    Descriptor::new(DType::F16, node.descriptor.shape.clone())
}
