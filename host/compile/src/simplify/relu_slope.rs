//! Computes a ReLU's slope from its result, so that its operand is not kept after the forward pass.

use std::collections::BTreeMap;

use saggar_tensor::op::{BinaryOp, Op, Scalar};
use saggar_tensor::{Graph, GraphNode, InterruptCheck, InterruptedError, NodeId};

/// Rewrites later uses of `x <= 0` as `y <= 0` if `y = x <= 0 ? 0 : x`.
///
/// Both conditions are equal: a positive `x` equals `y`, a NaN compares false in both, and any other `x` makes `y` 0.
///
/// # Errors
/// Returns `InterruptedError` if interrupted.
pub(super) fn relu_slope_from_results(
    graph: &Graph,
    interrupt: &InterruptCheck<'_>,
) -> Result<Graph, InterruptedError> {
    // For each condition, the ReLU's result and the zeros that it is compared with.
    let mut rectified: BTreeMap<NodeId, (NodeId, NodeId)> = BTreeMap::new();
    let mut rewritten = super::copy_ports(graph);
    let mut places: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    let mut conditions: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        interrupt.check()?;
        let mut inputs: Vec<NodeId> = node.inputs.iter().map(|input| places[input.index()]).collect();
        for (input, place) in node.inputs.iter().zip(&mut inputs) {
            let Some(&(result, zero)) = rectified.get(input) else { continue };
            *place = *conditions.entry(*input).or_insert_with(|| {
                let compared = vec![places[result.index()], places[zero.index()]];
                super::push_node(&mut rewritten, GraphNode { inputs: compared, ..graph.node(*input).clone() })
            });
        }
        places.push(super::push_node(&mut rewritten, GraphNode { inputs, ..node.clone() }));
        if let Some([condition, zero, _]) = match_relu(graph, node) {
            rectified.entry(condition).or_insert((NodeId(at as u32), zero));
        }
    }
    super::remap_outputs(&mut rewritten, &places);
    Ok(rewritten)
}

/// Returns condition, zeros and operand of `x <= 0 ? 0 : x`, or `None` if the node is not a ReLU.
pub(super) fn match_relu(graph: &Graph, node: &GraphNode) -> Option<[NodeId; 3]> {
    let Op::Select = node.op else { return None };
    let [condition, zero, x]: [NodeId; 3] = node.inputs[..].try_into().ok()?;
    let compared = graph.node(condition);
    let Op::Binary(BinaryOp::LessOrEqual) = compared.op else { return None };
    (compared.inputs[..] == [x, zero] && is_zero(graph.node(zero).op.fill_value()?)).then_some([condition, zero, x])
}

fn is_zero(scalar: Scalar) -> bool {
    match scalar {
        Scalar::Float(value) => value == 0.0,
        Scalar::Int(value) => value == 0,
    }
}
