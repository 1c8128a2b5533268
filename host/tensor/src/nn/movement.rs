//! Splitting, repeating, and padding with the tensor's own elements.

use super::fill_like;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::limits::RANK_MAX;
use crate::op::Scalar;
use crate::{DType, Descriptor, Shape};

/// Splits `x` along `axis` into parts of these sizes. Any data type. Source: WebNN `split`.
///
/// Shape: `[6, d]`, sizes `[2, 4]`, axis 0 -> `[2, d]`, `[4, d]`.
///
/// # Errors
/// Returns `AxisOutOfRange`, `UnknownNode` or `TooManyNodes`; `AttributeRange` unless the sizes add up to the
/// dimension.
pub fn split(g: &mut GraphBuilder, x: NodeId, sizes: &[usize], axis: usize) -> Result<Vec<NodeId>, GraphError> {
    let size = dimension(g, "split", x, axis)?;
    let sum = sizes.iter().fold(0usize, |sum, &size| sum.saturating_add(size));
    if sum != size {
        return Err(GraphError::AttributeRange {
            op: "split",
            attribute: "sum of splits",
            least: size,
            most: size,
            got: sum,
        });
    }
    let mut parts = Vec::with_capacity(sizes.len());
    let mut start = 0;
    for &size in sizes {
        parts.push(g.narrow(x, axis, start, size)?);
        start += size;
    }
    Ok(parts)
}

/// Pads with the edge elements, repeated `low[i]` times before and `high[i]` times after along each axis. Any data
/// type. Source: WebNN `pad`, `edge`.
///
/// # Errors
/// Returns `AttributeCount`, `InvalidShape`, `UnknownNode` or `TooManyNodes`; `AxisEmpty` if there is no edge.
pub fn pad_edge(g: &mut GraphBuilder, x: NodeId, low: &[usize], high: &[usize]) -> Result<NodeId, GraphError> {
    check_counts(g, x, low, high)?;
    let mut padded = x;
    for axis in 0..low.len() {
        if low[axis] == 0 && high[axis] == 0 {
            continue;
        }
        let size = dimension(g, "pad", padded, axis)?;
        if size == 0 {
            return Err(GraphError::AxisEmpty { op: "pad", axis, got: g.descriptor(padded).clone() });
        }
        let mut repeated = |start: usize, times: usize| {
            let edge = g.narrow(padded, axis, start, 1)?;
            let mut dims = g.descriptor(edge).shape.to_vec();
            dims[axis] = times;
            g.broadcast_to(edge, Shape::new(dims)?)
        };
        let (before, after) = (repeated(0, low[axis])?, repeated(size - 1, high[axis])?);
        padded = g.concat(&[before, padded, after], axis)?;
    }
    Ok(padded)
}

/// Pads with elements mirrored at the edges, without the edge elements: `low[i]` before and `high[i]` after along each
/// axis, both smaller than the dimension. Any data type. Source: WebNN `pad`, `reflection`.
///
/// # Errors
/// Returns `AttributeCount`, `AttributeRange`, `AxisEmpty`, `InvalidShape`, `UnknownNode` or `TooManyNodes`.
pub fn pad_reflection(g: &mut GraphBuilder, x: NodeId, low: &[usize], high: &[usize]) -> Result<NodeId, GraphError> {
    pad_mirrored(g, x, low, high, ("reflection", 1))
}

/// Pads with elements mirrored at the edges, including the edge elements: `low[i]` before and `high[i]` after along
/// each axis, both at most the dimension. Any data type. Source: WebNN `pad`, `symmetric`.
///
/// # Errors
/// Returns `AttributeCount`, `AttributeRange`, `AxisEmpty`, `InvalidShape`, `UnknownNode` or `TooManyNodes`.
pub fn pad_symmetric(g: &mut GraphBuilder, x: NodeId, low: &[usize], high: &[usize]) -> Result<NodeId, GraphError> {
    pad_mirrored(g, x, low, high, ("symmetric", 0))
}

/// Pads with mirrored elements, without the first `skipped` elements at each edge.
fn pad_mirrored(
    g: &mut GraphBuilder,
    x: NodeId,
    low: &[usize],
    high: &[usize],
    (attribute, skipped): (&'static str, usize),
) -> Result<NodeId, GraphError> {
    check_counts(g, x, low, high)?;
    let mut padded = x;
    for axis in 0..low.len() {
        if low[axis] == 0 && high[axis] == 0 {
            continue;
        }
        let size = dimension(g, "pad", padded, axis)?;
        if size == 0 {
            return Err(GraphError::AxisEmpty { op: "pad", axis, got: g.descriptor(padded).clone() });
        }
        let most = size - skipped;
        for got in [low[axis], high[axis]] {
            if got > most {
                return Err(GraphError::AttributeRange { op: "pad", attribute, least: 0, most, got });
            }
        }
        let mut mirrored = |start: usize, count: usize| {
            let part = g.narrow(padded, axis, start, count)?;
            g.reverse(part, &[axis])
        };
        let before = mirrored(skipped, low[axis])?;
        let after = mirrored(most - high[axis], high[axis])?;
        padded = g.concat(&[before, padded, after], axis)?;
    }
    Ok(padded)
}

/// Repeats `x` `repetitions[i]` times along each axis `i`. Any data type. Source: WebNN `tile`.
///
/// Shape: `[2, d]`, repetitions `[3, 1]` -> `[6, d]`.
///
/// # Errors
/// Returns `AttributeCount`, `InvalidShape`, `UnknownNode` or `TooManyNodes`.
pub fn tile(g: &mut GraphBuilder, x: NodeId, repetitions: &[usize]) -> Result<NodeId, GraphError> {
    let rank = g.descriptor_of(x)?.shape.rank();
    if repetitions.len() != rank {
        let (expected, got) = (rank, repetitions.len());
        return Err(GraphError::AttributeCount { op: "tile", attribute: "repetitions", expected, got });
    }
    let mut tiled = x;
    for (axis, &times) in repetitions.iter().enumerate() {
        if times == 1 {
            continue;
        }
        let mut dims = g.descriptor(tiled).shape.to_vec();
        let (before, rest): (usize, usize) = (dims[..axis].iter().product(), dims[axis..].iter().product());
        let once = g.reshape(tiled, &[before, 1, rest])?;
        let repeated = g.broadcast_to(once, Shape::new([before, times, rest])?)?;
        dims[axis] = dims[axis].saturating_mul(times);
        tiled = g.reshape(repeated, &dims)?;
    }
    Ok(tiled)
}

/// Keeps, in the matrices of the last two dimensions, the elements on and above (`upper`) or on and below the
/// `diagonal`-th diagonal; zeros elsewhere. Any data type. Source: WebNN `triangular`.
///
/// Shape: unchanged. Diagonal 0 is the main one; positive ones lie above it.
///
/// # Errors
/// Returns `UnknownNode` or `TooManyNodes`; `Rank` below 2.
pub fn triangular(g: &mut GraphBuilder, x: NodeId, upper: bool, diagonal: i64) -> Result<NodeId, GraphError> {
    let got = g.descriptor_of(x)?.clone();
    let Some(before) = got.shape.rank().checked_sub(2) else {
        let (op, operand) = ("triangular", "input");
        return Err(GraphError::Rank { op, operand, least: 2, most: RANK_MAX, got });
    };
    let matrix = Descriptor::new(DType::I32, Shape::new(&got.shape[before..])?);
    let (row, column) = (g.iota(matrix.clone(), 0)?, g.iota(matrix, 1)?);
    // Every diagonal outside the matrix is equivalent to the nearest one.
    let reach = (got.shape[before].max(got.shape[before + 1]) as i64).min(i64::from(i32::MAX) / 2);
    let diagonal = g.scalar(DType::I32, Scalar::Int(diagonal.clamp(-reach, reach).into()))?;
    let of_row = g.add(row, diagonal)?;
    let mask = if upper { g.less_or_equal(of_row, column)? } else { g.less_or_equal(column, of_row)? };
    let zero = fill_like(g, x, 0.0)?;
    g.select(mask, x, zero)
}

fn dimension(g: &GraphBuilder, op: &'static str, x: NodeId, axis: usize) -> Result<usize, GraphError> {
    let got = g.descriptor_of(x)?;
    got.shape.get(axis).copied().ok_or_else(|| GraphError::AxisOutOfRange { op, axis, got: got.clone() })
}

fn check_counts(g: &GraphBuilder, x: NodeId, low: &[usize], high: &[usize]) -> Result<(), GraphError> {
    let expected = g.descriptor_of(x)?.shape.rank();
    for (attribute, counts) in [("low", low), ("high", high)] {
        if counts.len() != expected {
            return Err(GraphError::AttributeCount { op: "pad", attribute, expected, got: counts.len() });
        }
    }
    Ok(())
}
