//! Gather and scatter by element or by index tuple, over several axes, as one flat index. Indices as in
//! [`GraphBuilder::gather`]: negative ones count from the end of their axis, and indices out of range are clamped.

use super::check_rank;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::error::NodeResult;
use crate::graph::NodeId;
use crate::limits::RANK_MAX;
use crate::op::{Scalar, ScatterCombine};
use crate::{DType, Descriptor, Shape};

/// Returns, for each position of `indices`, the element of `x` at the index along `axis` and at the same coordinates
/// along the other axes.
///
/// Shape: `x [a, d, b]`, `indices [a', i, b']` with `a' <= a` and `b' <= b` -> `[a', i, b']`. Any data type. Source:
/// WebNN `gatherElements`.
///
/// # Errors
/// Returns `Rank`, `AxisOutOfRange`, `Dimension`, `AxisEmpty`, `UnknownNode` or `TooManyNodes`; `DType` of the indices.
pub fn gather_elements(g: &mut GraphBuilder, x: NodeId, indices: NodeId, axis: usize) -> NodeResult {
    let places = flat_element_indices(g, "gather-elements", x, indices, axis)?;
    let flat = flatten(g, x)?;
    g.gather(flat, places, 0)
}

/// Combines each of `updates` into the element of `x` that [`gather_elements`] would read. Any data type.
///
/// Shape: `x [a, d, b]`, `indices` and `updates` alike -> `[a, d, b]`. Source: WebNN `scatterElements`.
///
/// # Errors
/// As [`gather_elements`], and `DTypesDiffer`, `ShapesDiffer`.
pub fn scatter_elements(
    g: &mut GraphBuilder,
    x: NodeId,
    indices: NodeId,
    updates: NodeId,
    axis: usize,
    combine: ScatterCombine,
) -> NodeResult {
    let op = "scatter-elements";
    let (lhs, rhs) = (g.descriptor_of(indices)?, g.descriptor_of(updates)?);
    if lhs.shape != rhs.shape {
        return Err(GraphError::ShapesDiffer { op, lhs: lhs.clone(), rhs: rhs.clone() });
    }
    let places = flat_element_indices(g, op, x, indices, axis)?;
    let (flat_x, places, updates) = (flatten(g, x)?, flatten(g, places)?, flatten(g, updates)?);
    let scattered = g.scatter(flat_x, places, updates, 0, combine)?;
    reshape_like(g, scattered, x)
}

/// Returns the elements or slices of `x` addressed by the rows of `indices`; each row indexes the first axes of `x`.
///
/// Shape: `x [d1 .. dk, r..]`, `indices [i.., k]` -> `[i.., r..]`. Any data type. Source: WebNN `gatherND`.
///
/// # Errors
/// Returns `AxisEmpty`, `InvalidShape`, `UnknownNode` or `TooManyNodes`; `DType` of the indices; `Rank` of the indices;
/// `Dimension` if `k` is above the rank of `x`.
pub fn gather_nd(g: &mut GraphBuilder, x: NodeId, indices: NodeId) -> NodeResult {
    let (places, rows) = flat_row_indices(g, "gather-nd", x, indices)?;
    g.gather(rows, places, 0)
}

/// Combines each of `updates` into the element or slice of `x` that [`gather_nd`] would read. Any data type.
///
/// Shape: `x [d1 .. dk, r..]`, `indices [i.., k]`, `updates [i.., r..]` -> as `x`. Source: WebNN `scatterND`.
///
/// # Errors
/// As [`gather_nd`], and `DTypesDiffer`, `Rank` or `Dimension` of the updates.
pub fn scatter_nd(
    g: &mut GraphBuilder,
    x: NodeId,
    indices: NodeId,
    updates: NodeId,
    combine: ScatterCombine,
) -> NodeResult {
    let (places, rows) = flat_row_indices(g, "scatter-nd", x, indices)?;
    // The updates' inner dimensions are flattened like the operand's. They are checked here, where they are still
    // known.
    let (k, wanted) = (g.descriptor(indices).shape.last().copied().unwrap_or(0), g.descriptor(x).shape.clone());
    let (got, count) = (g.descriptor_of(updates)?.clone(), g.descriptor(places).shape.rank());
    if got.shape.rank() != count + wanted.rank() - k {
        let rank = count + wanted.rank() - k;
        return Err(GraphError::Rank { op: "scatter-nd", operand: "updates", least: rank, most: rank, got });
    }
    for (axis, &expected) in wanted[k..].iter().enumerate() {
        if got.shape[count + axis] != expected {
            let axis = count + axis;
            return Err(GraphError::Dimension { op: "scatter-nd", operand: "updates", axis, expected, got });
        }
    }
    let rest: Vec<usize> = [&got.shape[..count], &g.descriptor(rows).shape[1..]].concat();
    let updates = g.reshape(updates, &rest)?;
    let scattered = g.scatter(rows, places, updates, 0, combine)?;
    reshape_like(g, scattered, x)
}

/// Returns the flat positions in `x` for `indices` along `axis`, in the indices' shape, `int32`.
fn flat_element_indices(g: &mut GraphBuilder, op: &'static str, x: NodeId, indices: NodeId, axis: usize) -> NodeResult {
    let shape = g.descriptor_of(x)?.shape.clone();
    check_rank(g, op, "indices", indices, shape.rank())?;
    let got = g.descriptor(indices).clone();
    if axis >= shape.rank() {
        return Err(GraphError::AxisOutOfRange { op, axis, got: g.descriptor(x).clone() });
    }
    let mut places = None;
    for along in 0..shape.rank() {
        let part = if along == axis {
            clamped_index(g, op, indices, shape[axis])?
        } else {
            let expected = shape[along];
            if got.shape[along] > expected {
                return Err(GraphError::Dimension { op, operand: "indices", axis: along, expected, got });
            }
            g.iota(Descriptor::new(DType::I32, got.shape.clone()), along)?
        };
        places = Some(accumulate_index(g, places, part, axis_stride(&shape, along))?);
    }
    // A rank of 0 has no axis and is refused above.
    Ok(places.unwrap_or(indices))
}

/// Returns the flat rows that `indices` address, `int32[i..]`, and `x` as `[d1 * .. * dk, r]`.
fn flat_row_indices(
    g: &mut GraphBuilder,
    op: &'static str,
    x: NodeId,
    indices: NodeId,
) -> Result<(NodeId, NodeId), GraphError> {
    let (shape, got) = (g.descriptor_of(x)?.shape.clone(), g.descriptor_of(indices)?.clone());
    let Some(last) = got.shape.rank().checked_sub(1) else {
        return Err(GraphError::Rank { op, operand: "indices", least: 1, most: RANK_MAX, got });
    };
    let k = got.shape[last];
    if k > shape.rank() {
        return Err(GraphError::Dimension { op, operand: "indices", axis: last, expected: shape.rank(), got });
    }
    let (named, rest) = shape.split_at(k);
    let mut places = None;
    for (axis, &size) in named.iter().enumerate() {
        let part = g.narrow(indices, last, axis, 1)?;
        let part = clamped_index(g, op, part, size)?;
        let part = g.reshape(part, &got.shape[..last])?;
        places = Some(accumulate_index(g, places, part, named[axis + 1..].iter().product())?);
    }
    let places = match places {
        Some(places) => places,
        None => g.fill(Descriptor::new(DType::I32, Shape::new(&got.shape[..last])?), Scalar::Int(0))?,
    };
    let rows = g.reshape(x, &[&[named.iter().product::<usize>()], rest].concat())?;
    Ok((places, rows))
}

/// Returns indices along an axis of this size as valid positions, `int32`.
fn clamped_index(g: &mut GraphBuilder, op: &'static str, indices: NodeId, size: usize) -> NodeResult {
    let dtype = g.descriptor_of(indices)?.dtype;
    if dtype.is_float() {
        return Err(GraphError::DType { op, operand: "indices", expected: "an integer type", got: dtype });
    }
    // Narrow types cannot always hold the size; wide types can hold larger values than the result's type.
    let (wide, indices) = match dtype {
        DType::I8 | DType::U8 | DType::I32 => (DType::I32, g.cast(indices, DType::I32)?),
        DType::I64 | DType::U64 | DType::U32 => (dtype, indices),
        DType::F32 | DType::F16 => (dtype, indices),
    };
    let last = g.scalar(wide, Scalar::Int(size.saturating_sub(1) as i128))?;
    let mut place = indices;
    if wide.is_signed_integer() {
        let (zero, size) = (g.scalar(wide, Scalar::Int(0))?, g.scalar(wide, Scalar::Int(size as i128))?);
        let negative = g.less(place, zero)?;
        let counted = g.add(place, size)?;
        let counted = g.select(negative, counted, place)?;
        place = g.max(counted, zero)?;
    }
    let place = g.min(place, last)?;
    g.cast(place, DType::I32)
}

fn accumulate_index(g: &mut GraphBuilder, places: Option<NodeId>, part: NodeId, stride: usize) -> NodeResult {
    let stride = g.scalar(DType::I32, Scalar::Int(stride as i128))?;
    let scaled = g.mul(part, stride)?;
    places.map_or(Ok(scaled), |places| g.add(places, scaled))
}

fn axis_stride(shape: &Shape, axis: usize) -> usize {
    shape[axis + 1..].iter().product()
}

fn flatten(g: &mut GraphBuilder, x: NodeId) -> NodeResult {
    let count = g.descriptor_of(x)?.shape.elements();
    g.reshape(x, &[count])
}

fn reshape_like(g: &mut GraphBuilder, x: NodeId, like: NodeId) -> NodeResult {
    let shape = g.descriptor_of(like)?.shape.clone();
    g.reshape(x, &shape)
}
