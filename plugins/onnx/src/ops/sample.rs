//! Rules that sample images at the coordinates of other operands.

use super::{RuleResult, single_result};
use crate::backend::ReductionOperator;
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::fold;
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{ConstantElements, ConstantTensor, GraphValue, checked_size, element_count};

/// One element along an axis that contributes to a sample: its index, its weight, and whether it is inside the image.
struct SampleTap {
    index: GraphValue,
    weight: Option<GraphValue>,
    there: Option<GraphValue>,
}

/// The handling of coordinates outside the image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GridPaddingMode {
    Zeros,
    Border,
    Reflection,
}

/// Builds GridSample of two or three dimensions: nearest, linear or cubic. Source: ONNX GridSample-20.
pub(super) fn grid_sample(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, grid) = (call.input(0)?, call.input(1)?);
    let image = x.shape().get(2..).unwrap_or_default().to_vec();
    let dims = image.len();
    if dims == 0 || dims > 3 || grid.rank() != dims + 2 || grid.shape().last() != Some(&dims) {
        return Err(Error::invalid(format!("a grid {:?} over {:?}", grid.shape(), x.shape())));
    }
    let outside = match &*call.string("padding_mode", "zeros") {
        "zeros" => GridPaddingMode::Zeros,
        "border" => GridPaddingMode::Border,
        "reflection" => GridPaddingMode::Reflection,
        other => return Err(Error::invalid(format!("`padding_mode` is `{other}`"))),
    };
    let corners = call.flag("align_corners", false);
    let (n, places) = (x.dim(0)?, grid.shape()[1..=dims].iter().product::<usize>());
    let flat = g.reshape(grid, &[n, places, dims])?;
    let mode = call.choice("mode", &["linear", "nearest", "cubic", "bilinear", "bicubic"])?;
    let mut taps = Vec::new();
    for (axis, &dim) in image.iter().enumerate() {
        // The grid lists the last axis first.
        let place = g.index_axis(&flat, 2, dims - 1 - axis)?;
        taps.push(axis_taps(g, &place, dim, corners, outside, mode)?);
    }
    let sampled = sum_taps(g, x, &image, &taps)?;
    single_result(g.reshape(&sampled, &[&x.shape()[..2], &grid.shape()[1..=dims]].concat()))
}

fn axis_taps(
    g: &mut FoldingGraph,
    place: &GraphValue,
    dim: usize,
    corners: bool,
    outside: GridPaddingMode,
    mode: &str,
) -> Result<Vec<SampleTap>> {
    let size = dim as f64;
    let from_start = g.add_scalar(place, 1.0)?;
    let mut at = if corners {
        g.mul_scalar(&from_start, (size - 1.0) / 2.0)?
    } else {
        let scaled = g.mul_scalar(&from_start, size)?;
        let moved = g.add_scalar(&scaled, -1.0)?;
        g.mul_scalar(&moved, 0.5)?
    };
    if mode == "nearest" {
        at = g.round_even(&at)?;
    }
    let [low, high] = if corners { [0.0, size - 1.0] } else { [-0.5, size - 0.5] };
    at = match outside {
        GridPaddingMode::Zeros => at,
        GridPaddingMode::Border => g.clamp(&at, Some(0.0), Some(size - 1.0))?,
        GridPaddingMode::Reflection => reflect(g, &at, low, high)?,
    };
    let offsets_and_weights = match mode {
        "nearest" => vec![(at.clone(), None)],
        "linear" | "bilinear" => {
            let floor = g.floor(&at)?;
            let ratio = g.sub(&at, &floor)?;
            let rest = g.neg(&ratio)?;
            vec![(floor.clone(), Some(g.add_scalar(&rest, 1.0)?)), (g.add_scalar(&floor, 1.0)?, Some(ratio))]
        }
        "cubic" | "bicubic" => {
            let floor = g.floor(&at)?;
            let ratio = g.sub(&at, &floor)?;
            let mut taps = Vec::new();
            for (tap, weight) in cubic_weights(g, &ratio)?.into_iter().enumerate() {
                taps.push((g.add_scalar(&floor, tap as f64 - 1.0)?, Some(weight)));
            }
            taps
        }
        other => return Err(Error::invalid(format!("`mode` is `{other}`"))),
    };
    let mut taps = Vec::new();
    for (index, weight) in offsets_and_weights {
        let there = match outside {
            GridPaddingMode::Zeros => {
                let (after, before) = (
                    g.greater_or_equal(&index, &g.scalar_like(&index, 0.0))?,
                    g.lesser(&index, &g.scalar_like(&index, size))?,
                );
                Some(g.and(&after, &before)?)
            }
            GridPaddingMode::Border | GridPaddingMode::Reflection => None,
        };
        let index = if outside == GridPaddingMode::Reflection { reflect(g, &index, low, high)? } else { index };
        let index = g.clamp(&index, Some(0.0), Some(size - 1.0))?;
        taps.push(SampleTap { index: g.cast(&index, ElementType::Int32)?, weight, there });
    }
    Ok(taps)
}

/// Reflects coordinates at both bounds, repeatedly if needed.
fn reflect(g: &mut FoldingGraph, x: &GraphValue, low: f64, high: f64) -> ValueResult {
    let range = high - low;
    if range <= 0.0 {
        return g.mul_scalar(x, 0.0);
    }
    let moved = g.add_scalar(x, -low)?;
    let turns = g.mul_scalar(&moved, 0.5 / range)?;
    let turns = g.floor(&turns)?;
    let whole = g.mul_scalar(&turns, 2.0 * range)?;
    let rest = g.sub(&moved, &whole)?;
    let back = g.neg(&rest)?;
    let back = g.add_scalar(&back, 2.0 * range)?;
    let nearer = g.min(&rest, &back)?;
    g.add_scalar(&nearer, low)
}

/// Returns the weights of the four neighbours. Source: Keys, 1981, with a = -3/4.
fn cubic_weights(g: &mut FoldingGraph, ratio: &GraphValue) -> Result<Vec<GraphValue>> {
    let near = |g: &mut FoldingGraph, d: &GraphValue| {
        let line = g.mul_scalar(d, 1.25)?;
        let line = g.add_scalar(&line, -2.25)?;
        let square = g.mul(d, d)?;
        let product = g.mul(&line, &square)?;
        g.add_scalar(&product, 1.0)
    };
    let far = |g: &mut FoldingGraph, d: &GraphValue| {
        let line = g.mul_scalar(d, -0.75)?;
        let line = g.add_scalar(&line, 3.75)?;
        let product = g.mul(&line, d)?;
        let product = g.add_scalar(&product, -6.0)?;
        let product = g.mul(&product, d)?;
        g.add_scalar(&product, 3.0)
    };
    let other = g.neg(ratio)?;
    let (one_more, rest) = (g.add_scalar(ratio, 1.0)?, g.add_scalar(&other, 1.0)?);
    let two_less = g.add_scalar(&other, 2.0)?;
    Ok(vec![far(g, &one_more)?, near(g, ratio)?, near(g, &rest)?, far(g, &two_less)?])
}

/// Sums over all combinations of taps: `x` `[n, c, image..]`, taps `[n, places]` -> `[n, c, places]`.
fn sum_taps(g: &mut FoldingGraph, x: &GraphValue, image: &[usize], taps: &[Vec<SampleTap>]) -> ValueResult {
    let (n, c) = (x.dim(0)?, x.dim(1)?);
    let pixels = element_count(image)?;
    let flat = g.reshape(x, &[n, c, pixels])?;
    let strides = fold::strides(image);
    let counts: Vec<usize> = taps.iter().map(Vec::len).collect();
    let mut sum: Option<GraphValue> = None;
    for chosen in fold::map_positions(&counts, <[usize]>::to_vec) {
        let mut index: Option<GraphValue> = None;
        let (mut weight, mut there) = (None, None);
        for (axis, &tap) in chosen.iter().enumerate() {
            let tap = &taps[axis][tap];
            let part = g.mul_scalar(&tap.index, strides[axis] as f64)?;
            index = Some(match index {
                Some(index) => g.add(&index, &part)?,
                None => part,
            });
            weight = combine_optional(weight, tap.weight.clone(), |a, b| g.mul(a, b))?;
            there = combine_optional(there, tap.there.clone(), |a, b| g.and(a, b))?;
        }
        let index = index.ok_or_else(|| Error::invalid("an image without axes"))?;
        let places = index.dim(1)?;
        let index = g.unsqueeze(&index, 1)?;
        let index = g.expand(&index, &[n, c, places])?;
        let mut part = g.gather_elements(&flat, &index, 2)?;
        if let Some(weight) = weight {
            let weight = g.unsqueeze(&weight, 1)?;
            let weight = g.cast(&weight, x.elem())?;
            part = g.mul(&part, &weight)?;
        }
        if let Some(there) = there {
            let there = g.unsqueeze(&there, 1)?;
            part = g.select(&there, &part, &g.scalar_like(&part, 0.0))?;
        }
        sum = Some(match sum {
            Some(sum) => g.add(&sum, &part)?,
            None => part,
        });
    }
    sum.ok_or_else(|| Error::invalid("an image without axes"))
}

fn combine_optional(
    a: Option<GraphValue>,
    b: Option<GraphValue>,
    mut join: impl FnMut(&GraphValue, &GraphValue) -> ValueResult,
) -> Result<Option<GraphValue>> {
    match (a, b) {
        (Some(a), Some(b)) => join(&a, &b).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}

/// Builds AffineGrid: transforms the coordinates of a regular grid.
pub(super) fn affine_grid(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let theta = call.input(0)?;
    let shape = call.known_ints(1, "the size of AffineGrid")?.unwrap_or_default();
    let shape = shape.iter().map(|&dim| checked_size(dim, "a dimension")).collect::<Result<Vec<_>>>()?;
    let Some(image) = shape.get(2..).filter(|image| (2..=3).contains(&image.len())) else {
        return Err(Error::invalid(format!("a grid for {shape:?}")));
    };
    let dims = image.len();
    let corners = call.flag("align_corners", false);
    if element_count(image)? > 1 << 20 {
        return Err(Error::unsupported(format!("a grid for {shape:?}")));
    }
    let place = |i: usize, dim: usize| match corners {
        true => -1.0 + 2.0 * i as f64 / (dim as f64 - 1.0).max(1.0),
        false => -1.0 + (2 * i + 1) as f64 / dim as f64,
    };
    // One row for each axis, the last axis first, and one row of ones.
    let mut rows = Vec::new();
    for axis in (0..dims).rev() {
        rows.extend(fold::map_positions(image, |at| place(at[axis], image[axis])));
    }
    let places = element_count(image)?;
    rows.extend(std::iter::repeat_n(1.0, places));
    let base = ConstantTensor::new(theta.elem(), vec![dims + 1, places], ConstantElements::Float(rows)).into();
    let moved = super::contract::matmul(g, theta, &base)?;
    let moved = g.transpose(&moved, &[0, 2, 1])?;
    single_result(g.reshape(&moved, &[&[theta.dim(0)?], image, &[dims]].concat()))
}

/// Builds RoiAlign with a fixed number of samples. Source: ONNX RoiAlign-16.
pub(super) fn roi_align(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, rois, batches) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let &[_, c, h, w] = x.shape() else { return Err(Error::invalid(format!("RoiAlign of {:?}", x.shape()))) };
    let (height, width) = (
        checked_size(call.int("output_height", 1), "output_height")?,
        checked_size(call.int("output_width", 1), "output_width")?,
    );
    let samples = checked_size(call.int("sampling_ratio", 0), "sampling_ratio")?;
    if samples == 0 {
        return Err(Error::unsupported("RoiAlign whose number of samples follows from the regions"));
    }
    let half = call.opset >= 16
        && call.choice("coordinate_transformation_mode", &["half_pixel", "output_half_pixel"])? == "half_pixel";
    let scaled = g.mul_scalar(rois, call.float("spatial_scale", 1.0))?;
    let scaled = if half { g.add_scalar(&scaled, -0.5)? } else { scaled };
    let largest = call.choice("mode", &["avg", "max"])? == "max";
    let count = rois.dim(0)?;
    let mut axis = |from: usize, to: usize, bins: usize, dim: usize| {
        let (start, end) = (g.narrow(&scaled, 1, from, 1)?, g.narrow(&scaled, 1, to, 1)?);
        let extent = g.sub(&end, &start)?;
        let extent = if half { extent } else { g.max(&extent, &g.scalar_like(&extent, 1.0))? };
        let fractions = (0..bins * samples).map(|i| (i as f64 + 0.5) / (bins * samples) as f64).collect();
        let fractions: GraphValue =
            ConstantTensor::new(rois.elem(), vec![1, bins * samples], ConstantElements::Float(fractions)).into();
        let offsets = g.mul(&extent, &fractions)?;
        let at = g.add(&start, &offsets)?;
        let (after, before) = (
            g.greater_or_equal(&at, &g.scalar_like(&at, -1.0))?,
            g.lesser_or_equal(&at, &g.scalar_like(&at, dim as f64))?,
        );
        let there = g.and(&after, &before)?;
        let inside = g.clamp(&at, Some(0.0), Some(dim as f64 - 1.0))?;
        let low = g.floor(&inside)?;
        let high = g.add_scalar(&low, 1.0)?;
        let high = g.clamp(&high, None, Some(dim as f64 - 1.0))?;
        let ratio = g.sub(&inside, &low)?;
        let rest = g.neg(&ratio)?;
        let rest = g.add_scalar(&rest, 1.0)?;
        let there = g.cast(&there, rois.elem())?;
        let (rest, ratio) = (g.mul(&rest, &there)?, g.mul(&ratio, &there)?);
        Ok::<_, Error>([(g.cast(&low, ElementType::Int32)?, rest), (g.cast(&high, ElementType::Int32)?, ratio)])
    };
    let (rows, columns) = (axis(1, 3, height, h)?, axis(0, 2, width, w)?);
    let images = g.gather(x, batches, 0)?;
    let images = g.reshape(&images, &[count, c, h * w])?;
    let (sh, sw) = (height * samples, width * samples);
    let mut result: Option<GraphValue> = None;
    for (row, weight_row) in &rows {
        for (column, weight_column) in &columns {
            let row = g.mul_scalar(row, w as f64)?;
            let (row, column) = (g.reshape(&row, &[count, 1, sh, 1])?, g.reshape(column, &[count, 1, 1, sw])?);
            let index = g.add(&row, &column)?;
            let index = g.expand(&index, &[count, c, sh, sw])?;
            let index = g.reshape(&index, &[count, c, sh * sw])?;
            let pixels = g.gather_elements(&images, &index, 2)?;
            let pixels = g.reshape(&pixels, &[count, c, sh, sw])?;
            let (a, b) = (g.reshape(weight_row, &[count, 1, sh, 1])?, g.reshape(weight_column, &[count, 1, 1, sw])?);
            let weight = g.mul(&a, &b)?;
            let part = g.mul(&pixels, &weight)?;
            result = Some(match result {
                None => part,
                Some(result) if largest => g.max(&result, &part)?,
                Some(result) => g.add(&result, &part)?,
            });
        }
    }
    let result = result.ok_or_else(|| Error::invalid("no samples"))?;
    let apart = g.reshape(&result, &[count, c, height, samples, width, samples])?;
    let pooled = g.reduce(if largest { ReductionOperator::Max } else { ReductionOperator::Mean }, &apart, &[3, 5])?;
    single_result(g.squeeze(&pooled, &[3, 5]))
}
