//! Normalization. `float16` is computed in `float32`, because squared differences soon leave its range.

use super::conv::{InputLayout, from_nchw, to_nchw};
use super::f32_compute::{in_f32, in_f32_with};
use super::reduce::reduce_mean;
use super::{check_float, check_rank, fill_like, shift_by};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;

/// Returns `(x - mean) / sqrt(variance + epsilon)` over `axes`, times `scale`, plus `bias`. Float.
///
/// Shape: `x` and result alike; `scale` and `bias` have the dimensions of `axes`, in the order of `axes` (`x [b, n,
/// d]`, axes `[2]`, scale `[d]`). Source: WebNN `layerNormalization`.
///
/// # Errors
/// Returns `DType`, `DTypesDiffer`, `AxisOutOfRange`, `UnknownNode` or `TooManyNodes`; `AxesUnsorted` for an axis named
/// twice; `Rank` or `Dimension` of `scale` and `bias`.
pub fn layer_normalization(
    g: &mut GraphBuilder,
    x: NodeId,
    scale: Option<NodeId>,
    bias: Option<NodeId>,
    axes: &[usize],
    epsilon: f64,
) -> Result<NodeId, GraphError> {
    in_f32_with(g, "layer-normalization", x, [scale, bias], |g, x, [scale, bias]| {
        let normal = normalize(g, x, axes, epsilon)?;
        scale_and_shift(g, normal, axes, [scale, bias])
    })
}

/// Normalizes each channel of each image over its pixels, times `scale`, plus `bias`. Float.
///
/// Shape: `x [n, c, h, w]` in its layout and result alike; `scale` and `bias` `[c]`. Source: WebNN
/// `instanceNormalization`; Ulyanov et al., arXiv:1607.08022.
///
/// # Errors
/// Returns `DType`, `DTypesDiffer`, `Rank`, `UnknownNode` or `TooManyNodes`; `Dimension` of `scale` and `bias`.
pub fn instance_normalization(
    g: &mut GraphBuilder,
    x: NodeId,
    scale: Option<NodeId>,
    bias: Option<NodeId>,
    epsilon: f64,
    layout: InputLayout,
) -> Result<NodeId, GraphError> {
    check_rank(g, "instance-normalization", "input", x, 4)?;
    let x = to_nchw(g, x, layout)?;
    let y = in_f32_with(g, "instance-normalization", x, [scale, bias], |g, x, [scale, bias]| {
        let normal = normalize(g, x, &[2, 3], epsilon)?;
        scale_and_shift(g, normal, &[1], [scale, bias])
    })?;
    from_nchw(g, y, layout)
}

/// Returns `(x - mean) / sqrt(variance + epsilon) * scale + bias` with the given statistics. Float.
///
/// Shape: `x` and result alike; the others `[c]`, where `c` is `x`'s dimension at `axis`. Source: WebNN
/// `batchNormalization`.
///
/// # Errors
/// Returns `DType`, `DTypesDiffer`, `AxisOutOfRange`, `UnknownNode` or `TooManyNodes`; `Rank` or `Dimension` of the
/// others.
pub fn batch_normalization(
    g: &mut GraphBuilder,
    x: NodeId,
    [mean, variance]: [NodeId; 2],
    scale: Option<NodeId>,
    bias: Option<NodeId>,
    axis: usize,
    epsilon: f64,
) -> Result<NodeId, GraphError> {
    let op = "batch-normalization";
    check_float(g, op, "input", x)?;
    let got = g.descriptor_of(x)?;
    if axis >= got.shape.rank() {
        return Err(GraphError::AxisOutOfRange { op, axis, got: got.clone() });
    }
    in_f32_with(g, op, x, [Some(mean), Some(variance), scale, bias], |g, x, [mean, variance, scale, bias]| {
        let mut y = x;
        if let Some(mean) = mean {
            let mean = broadcast_statistic(g, "mean", mean, x, &[axis])?;
            y = g.sub(x, mean)?;
        }
        if let Some(variance) = variance {
            let variance = broadcast_statistic(g, "variance", variance, x, &[axis])?;
            y = divide_by_deviation(g, y, variance, epsilon)?;
        }
        scale_and_shift(g, y, &[axis], [scale, bias])
    })
}

/// Returns `(x - mean) / max(std, 1 / sqrt(N))` for each item of a batch, where mean and standard deviation are those of
/// the population of the item's `N` elements. An item with equal elements becomes zeros. Float.
///
/// Shape: `x [batch, item...]` and result alike. Source: TensorFlow `tf.image.per_image_standardization`.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`; `Rank` for a scalar.
pub fn per_image_standardization(g: &mut GraphBuilder, x: NodeId) -> Result<NodeId, GraphError> {
    let op = "per-image-standardization";
    check_float(g, op, "input", x)?;
    let got = g.descriptor_of(x)?.clone();
    let rank = got.shape.rank();
    if rank == 0 {
        return Err(GraphError::Rank { op, operand: "input", least: 1, most: usize::MAX, got });
    }
    let axes: Vec<usize> = (1..rank).collect();
    let elements: usize = got.shape.dims()[1..].iter().product();
    in_f32(g, x, |g, x| {
        let centred = centre(g, x, &axes)?;
        // The first mean is rounded to the precision of the elements, which is coarse beside a small deviation from a
        // large mean. The second mean is what the first one lacks.
        let centred = centre(g, centred, &axes)?;
        let squares = g.mul(centred, centred)?;
        let variance = reduce_mean(g, squares, &axes, true)?;
        // The limit of the variance instead of that of its root, whose derivative at 0 is infinite.
        let least = fill_like(g, variance, 1.0 / elements as f64)?;
        let variance = g.max(variance, least)?;
        let deviation = g.sqrt(variance)?;
        g.div(centred, deviation)
    })
}

/// Returns `x - mean` over `axes`.
fn centre(g: &mut GraphBuilder, x: NodeId, axes: &[usize]) -> Result<NodeId, GraphError> {
    let mean = reduce_mean(g, x, axes, true)?;
    g.sub(x, mean)
}

/// Returns `(x - mean) / sqrt(variance + epsilon)` over `axes`.
fn normalize(g: &mut GraphBuilder, x: NodeId, axes: &[usize], epsilon: f64) -> Result<NodeId, GraphError> {
    let centred = centre(g, x, axes)?;
    let squares = g.mul(centred, centred)?;
    let variance = reduce_mean(g, squares, axes, true)?;
    divide_by_deviation(g, centred, variance, epsilon)
}

/// Returns `x / sqrt(variance + epsilon)`.
fn divide_by_deviation(g: &mut GraphBuilder, x: NodeId, variance: NodeId, epsilon: f64) -> Result<NodeId, GraphError> {
    let variance = shift_by(g, variance, epsilon)?;
    let deviation = g.sqrt(variance)?;
    g.div(x, deviation)
}

/// Returns `x * scale + bias`, each with the dimensions that `x` has at `axes`.
fn scale_and_shift(
    g: &mut GraphBuilder,
    x: NodeId,
    axes: &[usize],
    [scale, bias]: [Option<NodeId>; 2],
) -> Result<NodeId, GraphError> {
    let mut y = x;
    if let Some(scale) = scale {
        let scale = broadcast_statistic(g, "scale", scale, x, axes)?;
        y = g.mul(y, scale)?;
    }
    if let Some(bias) = bias {
        let bias = broadcast_statistic(g, "bias", bias, x, axes)?;
        y = g.add(y, bias)?;
    }
    Ok(y)
}

/// Returns `statistic`, whose dimensions are those of `x` at `axes`, with size 1 along the other axes of `x`.
fn broadcast_statistic(
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
