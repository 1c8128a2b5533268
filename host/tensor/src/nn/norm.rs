//! Normalisation.

use super::reduce::reduce_mean;
use super::{check_float, check_rank, shift};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;

/// `(x - mean) / sqrt(variance + epsilon)` over `axes`, times `scale`, plus `bias`. Float.
///
/// Shape: `x` and result alike; `scale` and `bias` have the dimensions of `axes`, in the order of `axes` (`x [b, n, d]`,
/// axes `[2]`, scale `[d]`). Source: WebNN `layerNormalization`.
///
/// # Errors
/// `DType`; `AxisOutOfRange`; `AxesUnsorted` for an axis named twice; `Rank` or `Dimension` of `scale` and `bias`;
/// `UnknownNode`; `TooManyNodes`.
pub fn layer_normalization(
    g: &mut GraphBuilder,
    x: NodeId,
    scale: Option<NodeId>,
    bias: Option<NodeId>,
    axes: &[usize],
    epsilon: f64,
) -> Result<NodeId, GraphError> {
    let mean = reduce_mean(g, x, axes, true)?;
    let centred = g.sub(x, mean)?;
    let squares = g.mul(centred, centred)?;
    let variance = reduce_mean(g, squares, axes, true)?;
    let variance = shift(g, variance, epsilon)?;
    let deviation = g.sqrt(variance)?;
    let mut y = g.div(centred, deviation)?;
    if let Some(scale) = scale {
        let scale = along(g, "scale", scale, x, axes)?;
        y = g.mul(y, scale)?;
    }
    if let Some(bias) = bias {
        let bias = along(g, "bias", bias, x, axes)?;
        y = g.add(y, bias)?;
    }
    Ok(y)
}

/// `(x - mean) / sqrt(variance + epsilon) * scale + bias` with statistics that are given. Float.
///
/// Shape: `x` and result alike; the others `[c]`, where `c` is `x`'s dimension at `axis`.
/// Source: WebNN `batchNormalization`.
///
/// # Errors
/// `DType`; `AxisOutOfRange`; `Rank` or `Dimension` of the others; `UnknownNode`; `TooManyNodes`.
pub fn batch_normalization(
    g: &mut GraphBuilder,
    x: NodeId,
    [mean, variance]: [NodeId; 2],
    scale: Option<NodeId>,
    bias: Option<NodeId>,
    axis: usize,
    epsilon: f64,
) -> Result<NodeId, GraphError> {
    check_float(g, "batch-normalization", "input", x)?;
    let got = g.descriptor_of(x)?;
    if axis >= got.shape.rank() {
        return Err(GraphError::AxisOutOfRange { op: "batch-normalization", axis, got: got.clone() });
    }
    let mean = along(g, "mean", mean, x, &[axis])?;
    let variance = along(g, "variance", variance, x, &[axis])?;
    let centred = g.sub(x, mean)?;
    let variance = shift(g, variance, epsilon)?;
    let deviation = g.sqrt(variance)?;
    let mut y = g.div(centred, deviation)?;
    if let Some(scale) = scale {
        let scale = along(g, "scale", scale, x, &[axis])?;
        y = g.mul(y, scale)?;
    }
    if let Some(bias) = bias {
        let bias = along(g, "bias", bias, x, &[axis])?;
        y = g.add(y, bias)?;
    }
    Ok(y)
}

/// `statistic`, whose dimensions are those of `x` at `axes`, with size 1 along the other axes of `x`.
fn along(
    g: &mut GraphBuilder,
    operand: &'static str,
    statistic: NodeId,
    x: NodeId,
    axes: &[usize],
) -> Result<NodeId, GraphError> {
    let op = "normalization";
    check_rank(g, op, operand, statistic, axes.len())?;
    let shape = g.descriptor_of(x)?.shape.clone();
    let got = g.descriptor_of(statistic)?;
    for (axis, &of) in axes.iter().enumerate() {
        if got.shape[axis] != shape[of] {
            return Err(GraphError::Dimension { op, operand, axis, expected: shape[of], got: got.clone() });
        }
    }
    let mut order: Vec<usize> = (0..axes.len()).collect();
    order.sort_unstable_by_key(|&position| axes[position]);
    let sorted = g.transpose(statistic, &order)?;
    let dims: Vec<usize> = (0..shape.rank()).map(|axis| if axes.contains(&axis) { shape[axis] } else { 1 }).collect();
    g.reshape(sorted, &dims)
}
