//! Reverse-mode gradients as graph rewriting: every rule adds primitives, so gradients are compiled, differentiated and
//! verified like any other nodes.
//!
//! Each family has its rules in the file of its name. A rule gives the adjoint of one operand, or nothing where the
//! derivative is zero wherever it exists (comparisons, rounding, indices, conversions to integers). A node that reaches the
//! loss through such conversions alone is refused by `severed`, and an operator without a rule by its name.

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

/// A node whose operands' adjoints are wanted.
struct AdjointStep {
    inputs: Vec<NodeId>,
    output: NodeId,
    /// The loss's derivative in the node's result; of the result's data type and shape.
    output_adjoint: NodeId,
}

/// The derivatives of `loss` in each of `wrt`, in the order of `wrt`.
///
/// Shape and dtype: each as its node of `wrt`; float. `loss` is one float, of any rank. A node that the loss does not
/// depend on gets zeros. Only nodes between `wrt` and `loss` are visited. Where a maximum or minimum has equals, the
/// adjoint is divided equally among them (max pooling: given to the first).
///
/// # Errors
/// `LossNotScalar`; `UnknownNode`; `DType` if a node of `wrt` is no float; `GradientCut` if one reaches the loss through
/// comparisons, indices or integers alone; `NoGradient` for an operator on the way without a rule; limits of the graph.
/// Each with the node's label, or its number.
pub fn gradients(builder: &mut GraphBuilder, loss: NodeId, wrt: &[NodeId]) -> Result<Vec<NodeId>, GraphError> {
    scaled_gradients(builder, loss, None, wrt, &InterruptCheck::never())
}

/// As [`gradients`], each times `factor`: one number of the loss's data type, without dimensions. It is multiplied in at the
/// loss, so every adjoint on the way is larger by it. Stops when `interrupt` comes.
///
/// # Errors
/// As [`gradients`]; `InterruptedError`; `DTypesDiffer` where `factor` has another data type than the loss; `Broadcast` where it has dimensions
/// that the loss has not.
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

/// Whether each node depends on one of `wrt`, or is one.
fn depends_on_wrt(nodes: &[GraphNode], wrt: &[NodeId]) -> Vec<bool> {
    let mut reaching = vec![false; nodes.len()];
    wrt.iter().filter(|id| id.index() < nodes.len()).for_each(|id| reaching[id.index()] = true);
    for (position, node) in nodes.iter().enumerate() {
        reaching[position] |= node.inputs.iter().any(|input| reaching[input.index()]);
    }
    reaching
}

/// The adjoint of one operand, `None` if it is zero.
fn operand_adjoint(
    g: &mut GraphBuilder,
    op: &Op,
    step: &AdjointStep,
    operand: usize,
) -> Result<Option<NodeId>, GraphError> {
    match op {
        // Fills and ports have no operands, and random numbers only an integer key.
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
