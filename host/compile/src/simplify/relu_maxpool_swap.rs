//! Swaps ReLU and max pooling so that ReLU runs first, if that costs nothing.

use std::collections::BTreeMap;

use saggar_tensor::op::{ConvolutionOp, Op, Pool2d, PoolKind};
use saggar_tensor::{Descriptor, Graph, GraphNode, InterruptCheck, InterruptedError, NodeId};

use super::{push_node, relu_slope};

/// Rewrites `relu(max-pool2d(x))` as `max-pool2d(relu(x))` if the graph computes `x` and uses it for nothing else. The
/// kernel that computes `x` then applies ReLU before it stores the result, and no kernel is needed after the pool.
///
/// Both forms are equal if every window has an element of `x`: ReLU keeps the order of elements, NaN is the largest
/// element before and after, and if the largest element is not positive (-0 included), both results are the ReLU's
/// zero.
///
/// # Errors
/// Returns `InterruptedError` if interrupted.
pub(super) fn swap_relu_and_max_pool(graph: &Graph, interrupt: &InterruptCheck<'_>) -> Result<Graph, InterruptedError> {
    let users = node_users(graph);
    let mut rewritten = super::copy_ports(graph);
    let mut places: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    // Removed ReLU nodes, and the pools before them.
    let mut spared: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        interrupt.check()?;
        let at = NodeId(at as u32);
        if let Some(pool) = spared.get(&at) {
            places.push(places[pool.index()]);
            continue;
        }
        let mut inputs: Vec<NodeId> = node.inputs.iter().map(|input| places[input.index()]).collect();
        if let Some(rectifier) = match_relu_of_max_pool(graph, &users, at) {
            inputs[0] = push_relu(&mut rewritten, inputs[0], rectifier.map(|node| graph.node(node)));
            let [.., result] = rectifier;
            spared.insert(result, at);
        }
        places.push(push_node(&mut rewritten, GraphNode { inputs, ..node.clone() }));
    }
    super::remap_outputs(&mut rewritten, &places);
    Ok(rewritten)
}

/// Returns the readers of each node. An output or assignment counts as a reader: it adds the node itself.
fn node_users(graph: &Graph) -> Vec<Vec<NodeId>> {
    let mut users = vec![Vec::new(); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|input| users[input.index()].push(NodeId(at as u32)));
    }
    let outputs = graph.outputs.iter().map(|(_, node)| node).chain(graph.assignments.iter().map(|(_, node)| node));
    outputs.for_each(|node| users[node.index()].push(*node));
    users
}

/// Returns zeros, condition and result of the ReLU of the max pool `at`. Returns `None` if something else reads the
/// pool, its operand or the condition, or if the rewrite does not apply.
fn match_relu_of_max_pool(graph: &Graph, users: &[Vec<NodeId>], at: NodeId) -> Option<[NodeId; 3]> {
    let node = graph.node(at);
    let Op::Convolution(ConvolutionOp::Pool2d { kind: PoolKind::Max, pool }) = &node.op else { return None };
    let pooled = node.inputs[0];
    let is_computed = match &graph.node(pooled).op {
        Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Convolution(_) | Op::Contract(_) => true,
        Op::Source(_) | Op::Reduce(_) | Op::Movement(_) | Op::Index(_) => false,
    };
    let [condition, result] = users[at.index()][..] else { return None };
    let is_alone = users[pooled.index()] == [at] && users[condition.index()] == [result];
    let [of, zero, x] = relu_slope::match_relu(graph, graph.node(result))?;
    let is_rectified = [of, x] == [condition, at];
    (every_window_has_elements(pool) && is_computed && is_alone && is_rectified).then_some([zero, condition, result])
}

/// Returns whether every window has an element. Padding is smaller than a window, but dilated taps can miss all
/// elements.
fn every_window_has_elements(pool: &Pool2d) -> bool {
    pool.padding == [0; 4] || pool.dilations == [1, 1]
}

/// Adds `x <= 0 ? 0 : x` with the operators and labels of an existing ReLU, whose zero can be -0.
fn push_relu(graph: &mut Graph, x: NodeId, [zero, condition, result]: [&GraphNode; 3]) -> NodeId {
    let of = graph.descriptor(x).clone();
    let compared = Descriptor::new(condition.descriptor.dtype, of.shape.clone());
    let zero = push_node(graph, GraphNode { descriptor: of.clone(), ..zero.clone() });
    let condition = push_node(graph, GraphNode { inputs: vec![x, zero], descriptor: compared, ..condition.clone() });
    push_node(graph, GraphNode { inputs: vec![condition, zero, x], descriptor: of, ..result.clone() })
}
