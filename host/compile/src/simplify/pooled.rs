//! A rectifier before windows' largest elements instead of after them, where it costs nothing.

use std::collections::BTreeMap;

use saggar_tensor::op::{Convolution, Op, Pool, Pool2d};
use saggar_tensor::{Descriptor, Graph, Interrupt, Interrupted, Node, NodeId};

use super::{push, relu};

/// Rewrites `relu(max-pool2d(x))` as `max-pool2d(relu(x))` where `x` is computed, and used for nothing else: the kernel that
/// computes it then rectifies it on the way to memory, and the one after the pool is spared.
///
/// The two are equal where every window has an element of `x`: what is rectified keeps its order, NaN is the largest before
/// and after, and where the largest is not positive, -0 included, both are the rectifier's zero.
///
/// # Errors
/// `Interrupted`.
pub(super) fn rectified_before(graph: &Graph, interrupt: &Interrupt<'_>) -> Result<Graph, Interrupted> {
    let users = users(graph);
    let mut rewritten = super::without_nodes(graph);
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
        if let Some(rectifier) = rectified_alone(graph, &users, at) {
            inputs[0] = rectified(&mut rewritten, inputs[0], rectifier.map(|node| graph.node(node)));
            let [.., result] = rectifier;
            spared.insert(result, at);
        }
        places.push(push(&mut rewritten, Node { inputs, ..node.clone() }));
    }
    super::follow(&mut rewritten, &places);
    Ok(rewritten)
}

/// Those that read each node; an output or an assignment reads its node for itself.
fn users(graph: &Graph) -> Vec<Vec<NodeId>> {
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
fn rectified_alone(graph: &Graph, users: &[Vec<NodeId>], at: NodeId) -> Option<[NodeId; 3]> {
    let node = graph.node(at);
    let Op::Convolution(Convolution::Pool2d { kind: Pool::Max, pool }) = &node.op else { return None };
    let pooled = node.inputs[0];
    let is_computed = match &graph.node(pooled).op {
        Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Convolution(_) | Op::Contract(_) => true,
        Op::Source(_) | Op::Reduce(_) | Op::Movement(_) | Op::Index(_) => false,
    };
    let [condition, result] = users[at.index()][..] else { return None };
    let is_alone = users[pooled.index()] == [at] && users[condition.index()] == [result];
    let [of, zero, x] = relu::rectifier(graph, graph.node(result))?;
    let is_rectified = [of, x] == [condition, at];
    (has_elements(pool) && is_computed && is_alone && is_rectified).then_some([zero, condition, result])
}

/// Whether every window has an element: padding is less than a window, but taps that are apart may miss what is there.
fn has_elements(pool: &Pool2d) -> bool {
    pool.padding == [0; 4] || pool.dilations == [1, 1]
}

/// `x <= 0 ? 0 : x` as another rectifier's zeros, condition and result have it: zeros may be -0.
fn rectified(graph: &mut Graph, x: NodeId, [zero, condition, result]: [&Node; 3]) -> NodeId {
    let of = graph.descriptor(x).clone();
    let compared = Descriptor::new(condition.descriptor.dtype, of.shape.clone());
    let zero = push(graph, Node { descriptor: of.clone(), ..zero.clone() });
    let condition = push(graph, Node { inputs: vec![x, zero], descriptor: compared, ..condition.clone() });
    push(graph, Node { inputs: vec![condition, zero, x], descriptor: of, ..result.clone() })
}
