//! Wanted nodes that get no adjoint although the loss depends on them: refused, unless a derivative of zero was asked for
//! or is the true one.

use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::{Graph, NodeId};
use crate::op::{Op, SourceOp, UnaryOp};

/// For each node up to the loss, whether [`check_gradient_path`] refuses it: found for all of them at once.
pub(super) fn nondifferentiable_nodes(graph: &Graph, loss: NodeId) -> Vec<bool> {
    let mut severed = nodes_before_integer_ops(graph, loss);
    for (is_severed, node) in severed.iter_mut().zip(&graph.nodes) {
        *is_severed &= !node.descriptor.dtype.is_float();
    }
    for (position, node) in graph.nodes[..=loss.index()].iter().enumerate().rev() {
        if severed[position] && !is_stop_gradient(&node.op) {
            node.inputs.iter().for_each(|input| severed[input.index()] = true);
        }
    }
    severed
}

/// Refuses a node whose every way to the loss leaves the floats: through a comparison, an index, a conversion to integers.
///
/// Nothing would be learned there, and nobody would be told. Where the derivative is zero because the function is made of
/// steps (rounding, signs, the condition of a `where`), or because a `stop-gradient` says so, zeros are right.
///
/// # Errors
/// `GradientCut` with the first such operator, at its label, or at its number and the label that comes next.
pub(super) fn check_gradient_path(builder: &GraphBuilder, loss: NodeId, wrt: NodeId) -> Result<(), GraphError> {
    let graph = builder.graph();
    let (depends, behind) = (dependents_of(graph, loss, wrt), nodes_before_integer_ops(graph, loss));
    let on_the_way = |position: &usize| depends[*position] && behind[*position];
    let is_float = |position: usize| graph.nodes[position].descriptor.dtype.is_float();
    let Some(cut) = (0..=loss.index()).filter(on_the_way).find(|&position| !is_float(position)) else {
        return Ok(());
    };
    let label = |position: usize| graph.nodes[position].label.as_deref();
    let place = match (label(cut), (cut..=loss.index()).filter(|&position| depends[position]).find_map(label)) {
        (Some(label), _) => label.to_owned(),
        (None, Some(next)) => format!("node {cut}, before {next}"),
        (None, None) => format!("node {cut}"),
    };
    Err(GraphError::GradientCut { op: graph.nodes[cut].op.name(), wrt: node_name(graph, wrt) }.at(place))
}

/// Which of the nodes up to the loss depend on `wrt`, other than through what is stopped.
fn dependents_of(graph: &Graph, loss: NodeId, wrt: NodeId) -> Vec<bool> {
    let mut depends = vec![false; loss.index() + 1];
    for (position, node) in graph.nodes[..=loss.index()].iter().enumerate() {
        let through = !is_stop_gradient(&node.op) && node.inputs.iter().any(|input| depends[input.index()]);
        depends[position] = position == wrt.index() || through;
    }
    depends
}

/// Which nodes the loss depends on by a way that leaves the floats: it comes down from the loss by floats with a slope, and
/// meets an integer.
fn nodes_before_integer_ops(graph: &Graph, loss: NodeId) -> Vec<bool> {
    let (mut live, mut behind) = (vec![false; loss.index() + 1], vec![false; loss.index() + 1]);
    live[loss.index()] = true;
    for (position, node) in graph.nodes[..=loss.index()].iter().enumerate().rev() {
        for (operand, input) in node.inputs.iter().map(|input| input.index()).enumerate() {
            let is_float = graph.nodes[input].descriptor.dtype.is_float();
            let sloped = live[position] && !has_zero_slope(&node.op, operand);
            live[input] |= sloped && is_float;
            behind[input] |= (sloped && !is_float) || (behind[position] && !is_stop_gradient(&node.op));
        }
    }
    behind
}

/// Whether the result has slope zero in this operand wherever it has a slope.
fn has_zero_slope(op: &Op, operand: usize) -> bool {
    match op {
        Op::Unary(UnaryOp::Sign | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::RoundEven | UnaryOp::StopGradient) => true,
        Op::Select => operand == 0,
        Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Contract(_)
        | Op::Convolution(_)
        | Op::Index(_) => false,
    }
}

fn is_stop_gradient(op: &Op) -> bool {
    match op {
        Op::Unary(op) => *op == UnaryOp::StopGradient,
        Op::Source(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Contract(_)
        | Op::Convolution(_)
        | Op::Index(_) => false,
    }
}

/// What a plugin calls the node.
fn node_name(graph: &Graph, node: NodeId) -> String {
    let found = graph.node(node);
    match (&found.label, &found.op) {
        (Some(label), _) => label.to_string(),
        (None, Op::Source(SourceOp::Variable(number))) => {
            format!("variable {}", graph.variables[*number as usize].name)
        }
        (None, Op::Source(SourceOp::Input(number))) => format!("input {}", graph.inputs[*number as usize].name),
        (None, _) => format!("node {}", node.0),
    }
}
