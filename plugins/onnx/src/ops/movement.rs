//! Rules of data movement operators.

use super::{RuleResult, single_result};
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{ConstantTensor, GraphValue, checked_size, normalize_axis};

/// The maximum number of elements along an axis padded with its own elements.
const SOURCES_MAX: usize = 1 << 22;
/// The maximum block size of DepthToSpace and SpaceToDepth.
const BLOCK_MAX: usize = 1 << 10;

/// Builds Reshape: 0 keeps a dimension, -1 is inferred.
pub(super) fn reshape(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let wanted = call.ints_attribute_or_input("shape", 1)?.unwrap_or_default();
    let keep = !call.flag("allowzero", false);
    let mut shape = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (axis, &dim) in wanted.iter().enumerate() {
        shape.push(match dim {
            0 if keep => x.dim(axis)?,
            -1 if open.is_none() => {
                open = Some(axis);
                1
            }
            dim => checked_size(dim, "a dimension")?,
        });
    }
    if let Some(axis) = open {
        let others = crate::value::element_count(&shape)?;
        match x.len().checked_div(others) {
            Some(rest) if rest * others == x.len() => shape[axis] = rest,
            _ => return Err(Error::invalid(format!("shape {:?} cannot become {wanted:?}", x.shape()))),
        }
    }
    single_result(g.reshape(x, &shape))
}

/// Builds Flatten, to two dimensions.
pub(super) fn flatten(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axis = normalize_axis(call.int("axis", 1), x.rank() + 1).or_else(|_| x.axis(call.int("axis", 1)))?;
    // `axis` can be one more than the last axis; -1 is the last axis.
    let axis = if call.int("axis", 1) < 0 { x.axis(call.int("axis", 1))? } else { axis };
    let (outer, inner) = (x.shape()[..axis].iter().product(), x.shape()[axis..].iter().product());
    single_result(g.reshape(x, &[outer, inner]))
}

/// Builds Squeeze, of the given axes or of all axes of size 1.
pub(super) fn squeeze(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axes = match call.ints_attribute_or_input("axes", 1)? {
        Some(axes) => x.axes(&axes)?,
        None => (0..x.rank()).filter(|&axis| x.shape()[axis] == 1).collect(),
    };
    single_result(g.squeeze(x, &axes))
}

/// Builds Unsqueeze. The axes are those of the result.
pub(super) fn unsqueeze(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axes = call.ints_attribute_or_input("axes", 1)?.ok_or_else(|| Error::invalid("`axes` is missing"))?;
    let rank = x.rank() + axes.len();
    let mut axes = axes.iter().map(|&axis| normalize_axis(axis, rank)).collect::<Result<Vec<_>>>()?;
    axes.sort_unstable();
    if axes.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::invalid("an axis is named twice"));
    }
    let mut shape = x.shape().to_vec();
    axes.iter().for_each(|&axis| shape.insert(axis, 1));
    single_result(g.reshape(x, &shape))
}

/// Builds Transpose. By default the axes are reversed.
pub(super) fn transpose(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let permutation = match call.ints("perm") {
        Some(axes) => axes.iter().map(|&axis| x.axis(axis)).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()).rev().collect(),
    };
    single_result(g.transpose(x, &permutation))
}

/// Converts constant integers to sizes.
fn known_sizes(values: &[i64]) -> Result<Vec<usize>> {
    values.iter().map(|&value| checked_size(value, "a dimension")).collect()
}

/// Builds Expand, to the shape that the operand's shape and the given one broadcast to.
pub(super) fn expand(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let wanted = known_sizes(&call.known_ints(1, "the shape of Expand")?.unwrap_or_default())?;
    let shape = crate::value::broadcast_shapes(x.shape(), &wanted)?;
    single_result(g.expand(x, &shape))
}

/// Builds Tile. Before version 6 it has one count and one axis.
pub(super) fn tile(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let repeats = known_sizes(&call.known_ints(1, "the repetitions of Tile")?.unwrap_or_default())?;
    if repeats.len() != x.rank() {
        return Err(Error::invalid(format!("{repeats:?} repetitions of {:?}", x.shape())));
    }
    single_result(tile_by(g, x, &repeats))
}

fn tile_by(g: &mut FoldingGraph, x: &GraphValue, repeats: &[usize]) -> ValueResult {
    let mut result = x.clone();
    // Axis by axis, because all at once could have more dimensions than a tensor can.
    for (axis, &times) in repeats.iter().enumerate().filter(|(_, times)| **times != 1) {
        let shape = result.shape().to_vec();
        let mut split = [&shape[..axis], &[1], &shape[axis..]].concat();
        if split.len() > 8 {
            return Err(Error::unsupported("Tile of more than 7 dimensions"));
        }
        let apart = g.reshape(&result, &split)?;
        split[axis] = times;
        let repeated = g.expand(&apart, &split)?;
        let mut joined = shape;
        joined[axis] = joined[axis].saturating_mul(times);
        result = g.reshape(&repeated, &joined)?;
    }
    Ok(result)
}

/// Builds Concat.
pub(super) fn concat(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let all = call.inputs()?;
    let axis = all[0].axis(call.int("axis", 1))?;
    single_result(g.concat(&all, axis))
}

/// Builds Split. The sizes are an attribute or an operand, or follow from a number of parts or from the number of
/// results.
pub(super) fn split(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axis = x.axis(call.int("axis", 0))?;
    let total = x.dim(axis)?;
    let parts = match call.ints_attribute_or_input("split", 1)? {
        Some(parts) => known_sizes(&parts)?,
        None => {
            let count = call
                .optional_int("num_outputs")
                .map_or(Ok(call.wanted.len()), |count| checked_size(count, "num_outputs"))?;
            if count == 0 || count > 4096 {
                return Err(Error::invalid(format!("{count} parts")));
            }
            // The last part is smaller if the axis does not divide evenly.
            let each = total.div_ceil(count);
            (0..count).map(|i| total.saturating_sub(i * each).min(each)).collect()
        }
    };
    if parts.iter().sum::<usize>() != total {
        return Err(Error::invalid(format!("{total} elements cannot be split into {parts:?}")));
    }
    let mut start = 0;
    let mut results = Vec::with_capacity(parts.len());
    for part in parts {
        results.push(g.narrow(x, axis, start, part)?);
        start += part;
    }
    Ok(results)
}

/// Builds Slice. A step can be any number except 0. The bounds are attributes before version 10.
pub(super) fn slice(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let needed =
        |ints: Option<Vec<i64>>, what: &str| ints.ok_or_else(|| Error::invalid(format!("`{what}` is missing")));
    let starts = needed(call.ints_attribute_or_input("starts", 1)?, "starts")?;
    let ends = needed(call.ints_attribute_or_input("ends", 2)?, "ends")?;
    let axes = call.ints_attribute_or_input("axes", 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = call.known_ints(4, "the steps of Slice")?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(Error::invalid("starts, ends, axes and steps differ in number"));
    }
    let mut from = vec![0; x.rank()];
    let mut counts = x.shape().to_vec();
    let mut strides = vec![1; x.rank()];
    let mut reversed = Vec::new();
    for (i, &axis) in axes.iter().enumerate() {
        let axis = x.axis(axis)?;
        let dim = x.shape()[axis] as i64;
        let step = steps[i];
        if step == 0 {
            return Err(Error::invalid("a step of 0"));
        }
        let bound = |value: i64, least: i64, most: i64| {
            (if value < 0 { value.saturating_add(dim) } else { value }).clamp(least, most)
        };
        let length = |distance: i64, step: u64| (distance.max(0) as u64).div_ceil(step) as usize;
        if step > 0 {
            let (start, end) = (bound(starts[i], 0, dim), bound(ends[i], 0, dim));
            (from[axis], counts[axis]) = (start as usize, length(end - start, step as u64));
        } else {
            // A backward slice is a forward slice of the reversed axis.
            let (start, end) = (bound(starts[i], -1, dim - 1), bound(ends[i], -1, dim - 1));
            (from[axis], counts[axis]) = ((dim - 1 - start) as usize, length(start - end, step.unsigned_abs()));
            reversed.push(axis);
        }
        strides[axis] = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX).min(dim.max(1) as usize);
        // For an empty slice, a start at the end would be out of bounds.
        if counts[axis] == 0 {
            from[axis] = 0;
        }
    }
    let x = if reversed.is_empty() { x.clone() } else { g.reverse(x, &reversed)? };
    single_result(g.slice(&x, &from, &counts, &strides))
}

/// Builds Pad: with a value, the edge, a reflection or the opposite side. Negative counts crop.
pub(super) fn pad(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let pads =
        call.ints_attribute_or_input("pads", 1)?.or(call.ints("paddings").map(<[i64]>::to_vec)).unwrap_or_default();
    let value = match call.attribute("value") {
        Some(value) => f64::from(value.f),
        None => call.known_scalar(2, "the value of Pad", 0.0)?,
    };
    let axes = match call.known_ints(3, "the axes of Pad")? {
        Some(axes) => axes.iter().map(|&axis| x.axis(axis)).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(Error::invalid(format!("{} paddings for {} axes", pads.len(), axes.len())));
    }
    let (mut low, mut high) = (vec![0; x.rank()], vec![0; x.rank()]);
    for (i, &axis) in axes.iter().enumerate() {
        (low[axis], high[axis]) = (pads[i], pads[axes.len() + i]);
    }
    let x = crop_negative_padding(g, x, &mut low, &mut high)?;
    let low = known_sizes(&low)?;
    let high = known_sizes(&high)?;
    let mode = call.string("mode", "constant");
    if mode == "constant" {
        return single_result(g.pad(&x, &low, &high, value));
    }
    let mut result = x;
    for axis in 0..low.len() {
        let indices = padding_sources(&mode, result.dim(axis)?, low[axis], high[axis])?;
        if low[axis] + high[axis] > 0 {
            result = g.gather(&result, &ConstantTensor::ints(indices).into(), axis)?;
        }
    }
    single_result(Ok(result))
}

/// Crops the negative padding and sets it to 0.
fn crop_negative_padding(g: &mut FoldingGraph, x: &GraphValue, low: &mut [i64], high: &mut [i64]) -> ValueResult {
    let mut result = x.clone();
    for axis in 0..low.len() {
        let cut = |count: i64| usize::try_from(-count.min(0)).unwrap_or(usize::MAX);
        let (front, back) = (cut(low[axis]), cut(high[axis]));
        if front > 0 || back > 0 {
            let rest = result.dim(axis)?.saturating_sub(front).saturating_sub(back);
            result = g.narrow(&result, axis, front, rest)?;
        }
        (low[axis], high[axis]) = (low[axis].max(0), high[axis].max(0));
    }
    Ok(result)
}

/// Returns for each position along a padded axis the index of the element that it copies.
fn padding_sources(mode: &str, dim: usize, low: usize, high: usize) -> Result<Vec<i64>> {
    let (n, count) = (dim as i64, low.saturating_add(dim).saturating_add(high));
    if low + high > 0 && dim == 0 {
        return Err(Error::invalid(format!("padding of nothing by `{mode}`")));
    }
    if count > SOURCES_MAX {
        return Err(Error::unsupported(format!("padding {dim} elements to {count} by `{mode}`")));
    }
    let source = |place: i64| match mode {
        "edge" => Ok(place.clamp(0, n - 1)),
        "wrap" => Ok(place.rem_euclid(n)),
        "reflect" if n == 1 => Ok(0),
        "reflect" => {
            let turn = place.rem_euclid(2 * (n - 1));
            Ok(turn.min(2 * (n - 1) - turn))
        }
        other => Err(Error::unsupported(format!("padding by `{other}`"))),
    };
    (0..count as i64).map(|place| source(place - low as i64)).collect()
}

/// Builds Identity, and Dropout in inference mode with its mask.
pub(super) fn identity(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    if call.op == "Dropout" && call.opset >= 12 {
        let training = call.known_ints(2, "the training mode of Dropout")?.is_some_and(|mode| mode.first() != Some(&0));
        let ratio = call.known_scalar(1, "the ratio of Dropout", 0.5)?;
        if training && ratio != 0.0 {
            return Err(Error::unsupported("Dropout in training mode"));
        }
    }
    if !call.is_output_used(1) {
        return single_result(Ok(x.clone()));
    }
    let elem = if call.opset < 10 { x.elem() } else { ElementType::Bool };
    Ok(vec![x.clone(), g.fill(elem, x.shape(), 1.0)?])
}

/// Builds DepthToSpace and SpaceToDepth.
pub(super) fn depth_to_space(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let [n, c, h, w] = *x.shape() else {
        return Err(Error::invalid(format!("an image must have 4 dimensions, not {:?}", x.shape())));
    };
    let block = checked_size(call.int("blocksize", 1), "blocksize")?;
    if !(1..=BLOCK_MAX).contains(&block) {
        return Err(Error::invalid(format!("blocks of {block}")));
    }
    let channels_outermost = call.choice("mode", &["DCR", "CRD"])? == "CRD";
    if call.op == "SpaceToDepth" {
        let apart = g.reshape(x, &[n, c, h / block, block, w / block, block])?;
        let order = if channels_outermost { [0, 1, 3, 5, 2, 4] } else { [0, 3, 5, 1, 2, 4] };
        let moved = g.transpose(&apart, &order)?;
        return single_result(g.reshape(&moved, &[n, c * block * block, h / block, w / block]));
    }
    let channels = c / (block * block).max(1);
    let moved = if channels_outermost {
        let apart = g.reshape(x, &[n, channels, block, block, h, w])?;
        g.transpose(&apart, &[0, 1, 4, 2, 5, 3])?
    } else {
        let apart = g.reshape(x, &[n, block, block, channels, h, w])?;
        g.transpose(&apart, &[0, 3, 4, 1, 5, 2])?
    };
    single_result(g.reshape(&moved, &[n, channels, h * block, w * block]))
}

/// Builds Trilu: the upper or lower triangle of the last two dimensions.
pub(super) fn trilu(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let [.., rows, columns] = *x.shape() else { return Err(Error::invalid("Trilu takes matrices")) };
    let k = call.known_scalar(1, "the diagonal of Trilu", 0.0)?.clamp(-(rows as f64) - 1.0, columns as f64 + 1.0);
    let row = g.iota(ElementType::Int32, &[rows, 1], 0)?;
    let column = g.iota(ElementType::Int32, &[1, columns], 1)?;
    let diagonal = g.add_scalar(&row, k)?;
    let mask = if call.flag("upper", true) {
        g.greater_or_equal(&column, &diagonal)?
    } else {
        g.lesser_or_equal(&column, &diagonal)?
    };
    single_result(g.select(&mask, x, &g.scalar_like(x, 0.0)))
}

/// Builds CenterCropPad: crops or zero-pads around the centre.
pub(super) fn center_crop_pad(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let shape = known_sizes(&call.known_ints(1, "the shape of CenterCropPad")?.unwrap_or_default())?;
    let axes = match call.ints("axes") {
        Some(axes) => axes.iter().map(|&axis| x.axis(axis)).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()).collect(),
    };
    let (mut low, mut high) = (vec![0; x.rank()], vec![0; x.rank()]);
    for (&axis, &wanted) in axes.iter().zip(&shape) {
        let (dim, wanted) = (x.dim(axis)? as i64, wanted as i64);
        // An odd element is added or cropped after the centre.
        let before = if wanted >= dim { (wanted - dim) / 2 } else { -((dim - wanted) / 2) };
        (low[axis], high[axis]) = (before, wanted - dim - before);
    }
    let x = crop_negative_padding(g, x, &mut low, &mut high)?;
    single_result(g.pad(&x, &known_sizes(&low)?, &known_sizes(&high)?, 0.0))
}

/// Builds ReverseSequence: reverses the valid elements of each sequence, which are the first ones.
pub(super) fn reverse_sequence(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, lengths) = (call.input(0)?, call.input(1)?);
    let (batch, time) = (x.axis(call.int("batch_axis", 1))?, x.axis(call.int("time_axis", 0))?);
    let mut shape = vec![1; x.rank()];
    shape[batch] = x.dim(batch)?;
    let lengths = g.cast(lengths, ElementType::Int64)?;
    let lengths = g.reshape(&lengths, &shape)?;
    shape[batch] = 1;
    shape[time] = x.dim(time)?;
    let step = g.iota(ElementType::Int64, &[x.dim(time)?], 0)?;
    let step = g.reshape(&step, &shape)?;
    let inside = g.lesser(&step, &lengths)?;
    let last = g.add_scalar(&lengths, -1.0)?;
    let mirrored = g.sub(&last, &step)?;
    let source = g.select(&inside, &mirrored, &step)?;
    let source = g.expand(&source, x.shape())?;
    single_result(g.gather_elements(x, &source, time))
}
