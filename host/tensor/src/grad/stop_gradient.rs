//! Refuses gradients that would silently be zero: nodes without an adjoint although the loss depends on them. Not
//! refused if a zero derivative was requested or is correct.

use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::{Graph, NodeId};
use crate::op::{Op, SourceOp, UnaryOp};

/// Returns, for each node up to the loss, whether [`check_gradient_path`] refuses it. Computes all of them at once.
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

/// Refuses a node if every path to the loss passes through an operator without a gradient: a comparison, an index, a
/// conversion to integers.
///
/// Without this error, training would silently learn nothing. Zeros are correct if the function is piecewise constant
/// (rounding, signs, the condition of a `where`), or if a `stop-gradient` requests them.
///
/// # Errors
/// Returns `GradientCut` with the first such operator, at its label, or at its number and the next label.
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

/// Returns which nodes up to the loss depend on `wrt` through a path without `stop-gradient`.
fn dependents_of(graph: &Graph, loss: NodeId, wrt: NodeId) -> Vec<bool> {
    let mut depends = vec![false; loss.index() + 1];
    for (position, node) in graph.nodes[..=loss.index()].iter().enumerate() {
        let through = !is_stop_gradient(&node.op) && node.inputs.iter().any(|input| depends[input.index()]);
        depends[position] = position == wrt.index() || through;
    }
    depends
}

/// Returns which nodes affect the loss through an integer: followed from the loss backward, the path leads through
/// float operators with a slope to an integer.
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

/// Returns whether the slope of the result with respect to this operand is zero wherever it exists.
fn has_zero_slope(op: &Op, operand: usize) -> bool {
    match op {
        Op::Unary(op) => op.has_zero_slope(),
        Op::Select => operand == 0,
        Op::Source(_)
        | Op::Binary(_)
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Contract(_)
        | Op::Convolution(_)
        | Op::Index(_) => false,
    }
}

fn is_stop_gradient(op: &Op) -> bool {
    op.as_unary() == Some(&UnaryOp::StopGradient)
}

/// Returns the plugin's name of the node.
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
