//! Cutting, and padding with the tensor's own elements.

use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;

/// `x` cut along `axis` into parts of these sizes. Any data type. Source: WebNN `split`.
///
/// Shape: `[6, d]`, sizes `[2, 4]`, axis 0 -> `[2, d]`, `[4, d]`.
///
/// # Errors
/// `AxisOutOfRange`; `AttributeRange` unless the sizes add up to the dimension; `UnknownNode`; `TooManyNodes`.
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

/// The edge elements repeated `low[i]` and `high[i]` times along each axis. Any data type. Source: WebNN `pad`, `edge`.
///
/// # Errors
/// `AttributeCount`; `AxisEmpty` where there is no edge; `TooManyElements`; `UnknownNode`; `TooManyNodes`.
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
            g.broadcast_to(edge, crate::Shape::new(dims)?)
        };
        let (before, after) = (repeated(0, low[axis])?, repeated(size - 1, high[axis])?);
        padded = g.concat(&[before, padded, after], axis)?;
    }
    Ok(padded)
}

/// Elements mirrored at the edges, which are not repeated: `low[i]` before and `high[i]` after along each axis, both
/// below the dimension. Any data type. Source: WebNN `pad`, `reflection`.
///
/// # Errors
/// `AttributeCount`; `AttributeRange`; `AxisEmpty`; `TooManyElements`; `UnknownNode`; `TooManyNodes`.
pub fn pad_reflection(g: &mut GraphBuilder, x: NodeId, low: &[usize], high: &[usize]) -> Result<NodeId, GraphError> {
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
        for got in [low[axis], high[axis]] {
            if got >= size {
                let most = size - 1;
                return Err(GraphError::AttributeRange { op: "pad", attribute: "reflection", least: 0, most, got });
            }
        }
        let mut mirrored = |start: usize, count: usize| {
            let part = g.narrow(padded, axis, start, count)?;
            g.reverse(part, &[axis])
        };
        let (before, after) = (mirrored(1, low[axis])?, mirrored(size - 1 - high[axis], high[axis])?);
        padded = g.concat(&[before, padded, after], axis)?;
    }
    Ok(padded)
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
