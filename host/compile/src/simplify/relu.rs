//! A rectifier's slope from its result, so that its operand need not outlive the forward pass.

use std::collections::BTreeMap;

use saggar_tensor::op::{Binary, Op, Scalar, Source};
use saggar_tensor::{Graph, Node, NodeId};

/// Rewrites later uses of `x <= 0` as `y <= 0` where `y = x <= 0 ? 0 : x`.
///
/// The two are equal: a positive `x` is `y`, a NaN compares false in both, and everything else makes `y` 0.
pub(super) fn from_results(graph: &Graph) -> Graph {
    // For each condition, the rectified value and the zeros it is compared with.
    let mut rectified: BTreeMap<NodeId, (NodeId, NodeId)> = BTreeMap::new();
    let mut rewritten = super::without_nodes(graph);
    let mut places: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    let mut conditions: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        let mut inputs: Vec<NodeId> = node.inputs.iter().map(|input| places[input.index()]).collect();
        for (input, place) in node.inputs.iter().zip(&mut inputs) {
            let Some(&(result, zero)) = rectified.get(input) else { continue };
            *place = *conditions.entry(*input).or_insert_with(|| {
                let compared = vec![places[result.index()], places[zero.index()]];
                rewritten.nodes.push(Node { inputs: compared, ..graph.node(*input).clone() });
                NodeId(rewritten.nodes.len() as u32 - 1)
            });
        }
        places.push(NodeId(rewritten.nodes.len() as u32));
        rewritten.nodes.push(Node { inputs, ..node.clone() });
        if let Some([condition, zero, _]) = rectifier(graph, node) {
            rectified.entry(condition).or_insert((NodeId(at as u32), zero));
        }
    }
    rewritten.outputs.iter_mut().for_each(|(_, node)| *node = places[node.index()]);
    rewritten.assignments.iter_mut().for_each(|(_, node)| *node = places[node.index()]);
    rewritten
}

/// The condition, the zeros and the operand of `x <= 0 ? 0 : x`.
pub(super) fn rectifier(graph: &Graph, node: &Node) -> Option<[NodeId; 3]> {
    let [condition, zero, x] = select(node)?;
    let compared = match &graph.node(condition).op {
        Op::Binary(Binary::LessOrEqual) => &graph.node(condition).inputs,
        Op::Binary(_)
        | Op::Source(_)
        | Op::Unary(_)
        | Op::Select
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Contract(_)
        | Op::Convolution(_)
        | Op::Index(_) => return None,
    };
    (compared[..] == [x, zero] && is_zero(graph, zero)).then_some([condition, zero, x])
}

fn select(node: &Node) -> Option<[NodeId; 3]> {
    match &node.op {
        Op::Select => node.inputs[..].try_into().ok(),
        Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Contract(_)
        | Op::Convolution(_)
        | Op::Index(_) => None,
    }
}

fn is_zero(graph: &Graph, node: NodeId) -> bool {
    match &graph.node(node).op {
        Op::Source(Source::Fill(Scalar::Float(value))) => *value == 0.0,
        Op::Source(Source::Fill(Scalar::Int(value))) => *value == 0,
        Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Contract(_)
        | Op::Convolution(_)
        | Op::Index(_) => false,
    }
}
