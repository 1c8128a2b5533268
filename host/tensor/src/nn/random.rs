//! Random numbers that depend only on a key (`uint32[4]`: seed low, seed high, step low, step high) and a stream.

use super::{fill_like, scale_by, shift_by};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{RandomDistribution, Scalar};
use crate::{Descriptor, Shape};

/// Returns uniform numbers in `[low, high)`, `float32`.
///
/// # Errors
/// Returns `TooManyNodes`; `DType`, `Rank` or `Dimension` of the key.
pub fn uniform(
    g: &mut GraphBuilder,
    shape: Shape,
    key: NodeId,
    stream: u32,
    [low, high]: [f64; 2],
) -> Result<NodeId, GraphError> {
    let unit = g.random(shape, key, stream, RandomDistribution::Uniform)?;
    if [low, high] == [0.0, 1.0] {
        return Ok(unit);
    }
    let scaled = scale_by(g, unit, high - low)?;
    shift_by(g, scaled, low)
}

/// Returns normal numbers of mean 0 and standard deviation 1, `float32`. Uses two uniform numbers for each. Source: Box
/// and Muller, "A note on the generation of random normal deviates", 1958.
///
/// # Errors
/// Returns `TooManyNodes`; `DType`, `Rank` or `Dimension` of the key; `InvalidShape` past half of a tensor's.
pub fn normal(g: &mut GraphBuilder, shape: Shape, key: NodeId, stream: u32) -> Result<NodeId, GraphError> {
    let count = shape.elements();
    let pairs = g.random(Shape::new([2, count])?, key, stream, RandomDistribution::Uniform)?;
    let (first, second) = (g.narrow(pairs, 0, 0, 1)?, g.narrow(pairs, 0, 1, 1)?);
    // 1 - u is in (0, 1], where the logarithm is finite.
    let one = fill_like(g, first, 1.0)?;
    let positive = g.sub(one, first)?;
    let log = g.log(positive)?;
    let square = scale_by(g, log, -2.0)?;
    let radius = g.sqrt(square)?;
    let angle = scale_by(g, second, std::f64::consts::TAU)?;
    let cos = g.cos(angle)?;
    let flat = g.mul(radius, cos)?;
    g.reshape(flat, &shape)
}

/// Returns `x` with each element zeroed with probability `rate` and the others divided by `1 - rate`. A rate of 0 or
/// less (or NaN) returns `x`, a rate of 1 or more zeros. Float.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`; `DType`, `Rank` or `Dimension` of the key.
pub fn dropout(g: &mut GraphBuilder, x: NodeId, rate: f64, key: NodeId, stream: u32) -> Result<NodeId, GraphError> {
    super::check_float(g, "dropout", "input", x)?;
    if rate >= 1.0 {
        return fill_like(g, x, 0.0);
    }
    if rate.is_nan() || rate <= 0.0 {
        return Ok(x);
    }
    let Descriptor { dtype: _, shape } = g.descriptor(x).clone();
    let unit = g.random(shape, key, stream, RandomDistribution::Uniform)?;
    let threshold = g.fill(g.descriptor(unit).clone(), Scalar::Float(rate))?;
    let dropped = g.less(unit, threshold)?;
    let scaled = scale_by(g, x, 1.0 / (1.0 - rate))?;
    let zero = fill_like(g, x, 0.0)?;
    g.select(dropped, zero, scaled)
}
