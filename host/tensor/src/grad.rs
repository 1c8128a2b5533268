//! Reverse-mode gradients as graph rewriting: every rule adds primitives, so gradients are compiled, differentiated and
//! verified like any other nodes.
//!
//! Each family has its rules in the file of the same name. A rule returns the adjoint of one operand, or `None` if the
//! derivative is zero wherever it exists (comparisons, rounding, indices, conversions to integers). `stop_gradient`
//! refuses a node that reaches the loss only through such operators, and an operator without a rule is refused by name.

mod binary;
mod contract;
mod convolution;
mod emit;
mod index;
mod movement;
mod reduce;
mod stop_gradient;
mod unary;

use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::{GraphNode, NodeId};
use crate::interrupt::InterruptCheck;
use crate::op::{BinaryOp, Op};

/// A node whose operands' adjoints are computed.
struct AdjointStep {
    inputs: Vec<NodeId>,
    output: NodeId,
    /// The derivative of the loss with respect to the node's result; it has the result's data type and shape.
    output_adjoint: NodeId,
}

/// Returns the derivatives of `loss` with respect to each node of `wrt`, in the order of `wrt`.
///
/// Shape and dtype: each as its node of `wrt`; float. `loss` is one float, of any rank. A node that the loss does not
/// depend on gets zeros. Only nodes between `wrt` and `loss` are visited. If several elements equal the maximum or
/// minimum, the adjoint is divided equally among them (max pooling gives it to the first).
///
/// # Errors
/// Returns `LossNotScalar` or `UnknownNode`; `DType` if a node of `wrt` is not a float; `GradientCut` if one reaches
/// the loss only through comparisons, indices or integers; `NoGradient` for an operator on the path without a rule;
/// errors for exceeded limits. Each has the node's label, or its number.
pub fn gradients(builder: &mut GraphBuilder, loss: NodeId, wrt: &[NodeId]) -> Result<Vec<NodeId>, GraphError> {
    scaled_gradients(builder, loss, None, wrt, &InterruptCheck::never())
}

/// Computes as [`gradients`] does, and multiplies each gradient by `factor`: one number of the loss's data type,
/// without dimensions. The factor is applied at the loss, so every intermediate adjoint is scaled too. Stops when
/// `interrupt` fires.
///
/// # Errors
/// As [`gradients`], and `InterruptedError`; `DTypesDiffer` if `factor` has another data type than the loss;
/// `Broadcast` if it has dimensions that the loss does not have.
pub fn scaled_gradients(
    builder: &mut GraphBuilder,
    loss: NodeId,
    factor: Option<NodeId>,
    wrt: &[NodeId],
    interrupt: &InterruptCheck<'_>,
) -> Result<Vec<NodeId>, GraphError> {
    check_loss_and_wrt(builder, loss, wrt)?;
    let reaching = depends_on_wrt(&builder.graph().nodes[..=loss.index()], wrt);
    let mut adjoints: Vec<Option<NodeId>> = vec![None; reaching.len()];
    if reaching[loss.index()] {
        let one = emit::fill_like(builder, loss, 1.0)?;
        adjoints[loss.index()] = Some(match factor {
            Some(factor) => builder.mul(one, factor)?,
            None => one,
        });
    }
    for position in (0..reaching.len()).rev() {
        let Some(dy) = adjoints[position] else { continue };
        interrupt.check()?;
        let node: GraphNode = builder.graph().nodes[position].clone();
        let step = AdjointStep { inputs: node.inputs, output: NodeId(position as u32), output_adjoint: dy };
        for operand in 0..step.inputs.len() {
            let input = step.inputs[operand];
            if !reaching[input.index()] {
                continue;
            }
            let adjoint = operand_adjoint(builder, &node.op, &step, operand).map_err(|error| match &node.label {
                Some(label) => error.at(label.as_ref()),
                None => error.at(format!("node {position}")),
            })?;
            if let Some(adjoint) = adjoint {
                adjoints[input.index()] = Some(match adjoints[input.index()] {
                    Some(sum) => emit::binary(builder, BinaryOp::Add, sum, adjoint)?,
                    None => adjoint,
                });
            }
        }
    }
    let mut severed = None;
    let adjoint = |&node: &NodeId| match adjoints.get(node.index()).copied().flatten() {
        Some(adjoint) => Ok(adjoint),
        None => {
            interrupt.check()?;
            let severed = severed.get_or_insert_with(|| stop_gradient::nondifferentiable_nodes(builder.graph(), loss));
            if severed.get(node.index()) == Some(&true) {
                stop_gradient::check_gradient_path(builder, loss, node)?;
            }
            emit::fill_like(builder, node, 0.0)
        }
    };
    wrt.iter().map(adjoint).collect()
}

fn check_loss_and_wrt(builder: &GraphBuilder, loss: NodeId, wrt: &[NodeId]) -> Result<(), GraphError> {
    let graph = builder.graph();
    for id in wrt.iter().chain([&loss]) {
        if id.index() >= graph.nodes.len() {
            return Err(GraphError::UnknownNode { id: id.0, nodes: graph.nodes.len() });
        }
    }
    let descriptor = graph.descriptor(loss);
    if !descriptor.dtype.is_float() || descriptor.shape.elements() != 1 {
        return Err(GraphError::LossNotScalar { got: descriptor.clone() });
    }
    for &id in wrt {
        let got = graph.descriptor(id).dtype;
        if !got.is_float() {
            return Err(GraphError::DType { op: "gradients", operand: "wrt", expected: "float32 or float16", got });
        }
    }
    Ok(())
}

/// Returns, for each node, whether it is one of `wrt` or depends on one.
fn depends_on_wrt(nodes: &[GraphNode], wrt: &[NodeId]) -> Vec<bool> {
    let mut reaching = vec![false; nodes.len()];
    wrt.iter().filter(|id| id.index() < nodes.len()).for_each(|id| reaching[id.index()] = true);
    for (position, node) in nodes.iter().enumerate() {
        reaching[position] |= node.inputs.iter().any(|input| reaching[input.index()]);
    }
    reaching
}

/// Returns the adjoint of one operand, or `None` if it is zero.
fn operand_adjoint(
    g: &mut GraphBuilder,
    op: &Op,
    step: &AdjointStep,
    operand: usize,
) -> Result<Option<NodeId>, GraphError> {
    match op {
        // Fills and ports have no operands, and random numbers have only an integer key.
        Op::Source(_) => Ok(None),
        Op::Unary(op) => unary::adjoint(g, *op, step),
        Op::Binary(op) => binary::adjoint(g, *op, step, operand),
        Op::Select => binary::select_adjoint(g, step, operand),
        Op::Reduce(op) => reduce::adjoint(g, op, step),
        Op::Movement(op) => movement::adjoint(g, op, step, operand),
        Op::Contract(op) => contract::adjoint(g, *op, step, operand).map(Some),
        Op::Convolution(op) => convolution::adjoint(g, op, step, operand),
        Op::Index(op) => index::adjoint(g, *op, step, operand),
    }
}
