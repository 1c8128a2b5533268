//! A rectifier before windows' largest elements instead of after them, where it costs nothing.

use std::collections::BTreeMap;

use saggar_tensor::op::{ConvolutionOp, Op, Pool2d, PoolKind};
use saggar_tensor::{Descriptor, Graph, GraphNode, InterruptCheck, InterruptedError, NodeId};

use super::{push_node, relu_slope};

/// Rewrites `relu_slope(max-pool2d(x))` as `max-pool2d(relu_slope(x))` where `x` is computed, and used for nothing else: the kernel that
/// computes it then rectifies it on the way to memory, and the one after the pool is spared.
///
/// The two are equal where every window has an element of `x`: what is rectified keeps its order, NaN is the largest before
/// and after, and where the largest is not positive, -0 included, both are the rectifier's zero.
///
/// # Errors
/// `InterruptedError`.
pub(super) fn swap_relu_and_max_pool(graph: &Graph, interrupt: &InterruptCheck<'_>) -> Result<Graph, InterruptedError> {
    let users = node_users(graph);
    let mut rewritten = super::copy_ports(graph);
    let mut places: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    // Rectifiers that are spared, and the pools before them.
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

/// Those that read each node; an output or an assignment reads its node for itself.
fn node_users(graph: &Graph) -> Vec<Vec<NodeId>> {
    let mut users = vec![Vec::new(); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|input| users[input.index()].push(NodeId(at as u32)));
    }
    let kept = graph.outputs.iter().map(|(_, node)| node).chain(graph.assignments.iter().map(|(_, node)| node));
    kept.for_each(|node| users[node.index()].push(*node));
    users
}

/// Zeros, condition and result of what rectifies the largest of windows of what nothing else reads, if nothing else reads
/// those.
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

/// Whether every window has an element: padding is less than a window, but taps that are apart may miss what is there.
fn every_window_has_elements(pool: &Pool2d) -> bool {
    pool.padding == [0; 4] || pool.dilations == [1, 1]
}

/// `x <= 0 ? 0 : x` as another rectifier's zeros, condition and result have it: zeros may be -0.
fn push_relu(graph: &mut Graph, x: NodeId, [zero, condition, result]: [&GraphNode; 3]) -> NodeId {
    let of = graph.descriptor(x).clone();
    let compared = Descriptor::new(condition.descriptor.dtype, of.shape.clone());
    let zero = push_node(graph, GraphNode { descriptor: of.clone(), ..zero.clone() });
    let condition = push_node(graph, GraphNode { inputs: vec![x, zero], descriptor: compared, ..condition.clone() });
    push_node(graph, GraphNode { inputs: vec![condition, zero, x], descriptor: of, ..result.clone() })
}
