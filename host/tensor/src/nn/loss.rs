//! Losses, and the accuracy of classifiers.

use super::activation::{softplus, subtract_max};
use super::f32_compute::in_f32;
use super::reduce::reduce_mean;
use super::{check_float, check_rank, fill_like, scale_by};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::error::NodeResult;
use crate::graph::NodeId;
use crate::{DType, Descriptor, Shape};

/// Returns the mean over the batch of the negative log-probability of each label.
///
/// Shape: `logits [b, c]` float, `labels [b]` of an integer type -> scalar of the logits' data type. A label outside `0
/// .. c` has zero loss and zero gradient. An empty batch gives NaN.
///
/// # Errors
/// Returns `Rank`, `DType`, `Dimension`, `UnknownNode` or `TooManyNodes`.
pub fn cross_entropy(g: &mut GraphBuilder, logits: NodeId, labels: NodeId) -> NodeResult {
    let op = "cross-entropy";
    check_labels(g, op, logits, labels)?;
    let [batch, classes] = [g.descriptor(logits).shape[0], g.descriptor(logits).shape[1]];
    in_f32(g, logits, |g, logits| {
        let centred = subtract_max(g, logits, 1)?;
        let power = g.exp(centred)?;
        let power = g.reduce_sum(power, &[1], false)?;
        let log = g.log(power)?;
        // Selects the label's logit instead of its log-probability among all classes. So the operand of the sum over
        // classes is read once, and the gradient needs no separate sum. A selection instead of a product, because
        // another logit can be -inf.
        let labelled = label_mask(g, labels, classes)?;
        let zero = fill_like(g, centred, 0.0)?;
        let chosen = g.select(labelled, centred, zero)?;
        let chosen = g.reduce_sum(chosen, &[1], false)?;
        let cost = g.sub(log, chosen)?;
        let zero = fill_like(g, cost, 0.0)?;
        let is_class = in_range_mask(g, labels, classes)?;
        let cost = g.select(is_class, cost, zero)?;
        let sum = g.reduce_sum(cost, &[0], false)?;
        let count = fill_like(g, sum, batch as f64)?;
        g.div(sum, count)
    })
}

/// Returns the mean of `-t ln(sigmoid(x)) - (1 - t) ln(1 - sigmoid(x))` over all elements, for logits `x` and targets
/// `t` in `[0, 1]`. Float; a scalar.
///
/// # Errors
/// Returns `DType`, `DTypesDiffer`, `Broadcast`, `UnknownNode` or `TooManyNodes`.
pub fn binary_cross_entropy(g: &mut GraphBuilder, logits: NodeId, targets: NodeId) -> NodeResult {
    // ln(1 + e^x) - t x
    let cost = softplus(g, logits)?;
    let gain = g.mul(targets, logits)?;
    let cost = g.sub(cost, gain)?;
    mean_of_all(g, cost)
}

/// Returns the mean of `(prediction - target)^2` over all elements. Float; a scalar.
///
/// # Errors
/// Returns `DType`, `DTypesDiffer`, `Broadcast`, `UnknownNode` or `TooManyNodes`.
pub fn mean_squared_error(g: &mut GraphBuilder, prediction: NodeId, target: NodeId) -> NodeResult {
    let difference = g.sub(prediction, target)?;
    let square = g.mul(difference, difference)?;
    mean_of_all(g, square)
}

/// Returns 1 at the index along a new last axis of size `depth`, 0 elsewhere; an index outside `0 .. depth` gives
/// zeros.
///
/// Shape: `indices [i..]` of an integer type -> `[i.., depth]` of `dtype`.
///
/// # Errors
/// Returns `DType`, `InvalidShape`, `UnknownNode` or `TooManyNodes`.
pub fn one_hot(g: &mut GraphBuilder, indices: NodeId, depth: usize, dtype: DType) -> NodeResult {
    check_integer(g, "one-hot", "indices", indices)?;
    let truth = label_mask(g, indices, depth)?;
    g.cast(truth, dtype)
}

/// Returns the fraction of the batch whose largest logit is at its label.
///
/// Shape: `logits [b, c]`, `labels [b]` of an integer type -> scalar `float32`. An empty batch gives NaN.
///
/// # Errors
/// Returns `Rank`, `DType`, `Dimension`, `UnknownNode` or `TooManyNodes`; `AxisEmpty` without classes.
pub fn accuracy(g: &mut GraphBuilder, logits: NodeId, labels: NodeId) -> NodeResult {
    check_labels(g, "accuracy", logits, labels)?;
    let guess = g.arg_max(logits, 1, false)?;
    let labels = g.cast(labels, DType::I32)?;
    let right = g.equal(guess, labels)?;
    let right = g.cast(right, DType::F32)?;
    reduce_mean(g, right, &[0], false)
}

fn mean_of_all(g: &mut GraphBuilder, x: NodeId) -> NodeResult {
    let Descriptor { dtype: _, shape } = g.descriptor(x).clone();
    let axes: Vec<usize> = (0..shape.rank()).collect();
    let sum = g.reduce_sum(x, &axes, false)?;
    if shape.elements() == 0 {
        return fill_like(g, sum, f64::NAN);
    }
    scale_by(g, sum, 1.0 / shape.elements() as f64)
}

/// Returns a boolean along a new last axis of size `depth`: whether the coordinate equals the index.
fn label_mask(g: &mut GraphBuilder, indices: NodeId, depth: usize) -> NodeResult {
    let indices = g.cast(indices, DType::I32)?;
    let shape = g.descriptor(indices).shape.clone();
    let column = g.reshape(indices, &[&shape[..], &[1]].concat())?;
    let all = Shape::new([&shape[..], &[depth]].concat())?;
    let axis = shape.rank();
    let column = g.broadcast_to(column, all.clone())?;
    let classes = g.iota(Descriptor::new(DType::I32, all), axis)?;
    g.equal(classes, column)
}

/// Returns a boolean for each index: whether it is in `0 .. depth`.
fn in_range_mask(g: &mut GraphBuilder, indices: NodeId, depth: usize) -> NodeResult {
    let indices = g.cast(indices, DType::I32)?;
    let (first, end) = (fill_like(g, indices, 0.0)?, fill_like(g, indices, depth as f64)?);
    let (low, high) = (g.greater_or_equal(indices, first)?, g.less(indices, end)?);
    g.logical_and(low, high)
}

fn check_labels(g: &GraphBuilder, op: &'static str, logits: NodeId, labels: NodeId) -> Result<(), GraphError> {
    check_rank(g, op, "logits", logits, 2)?;
    check_float(g, op, "logits", logits)?;
    check_rank(g, op, "labels", labels, 1)?;
    check_integer(g, op, "labels", labels)?;
    let (expected, got) = (g.descriptor(logits).shape[0], g.descriptor(labels));
    if got.shape[0] != expected {
        return Err(GraphError::Dimension { op, operand: "labels", axis: 0, expected, got: got.clone() });
    }
    Ok(())
}

fn check_integer(g: &GraphBuilder, op: &'static str, operand: &'static str, node: NodeId) -> Result<(), GraphError> {
    let got = g.descriptor_of(node)?.dtype;
    if got.is_float() {
        return Err(GraphError::DType { op, operand, expected: "an integer type", got });
    }
    Ok(())
}
