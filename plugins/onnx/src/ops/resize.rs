//! Rules of Resize and Upsample. Along each axis, every element of the result is a weighted sum of a few elements.
//!
//! The weights are computed when the graph is built, so the host only gathers and adds. Source: ONNX Resize-19.

use super::{RuleResult, single_result};
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{ConstantElements, ConstantTensor, GraphValue, checked_size};

/// The maximum number of terms of a sum. Longer sums are computed as a matrix product.
const TAPS_MAX: usize = 4;
/// The maximum number of weights of one axis.
const WEIGHTS_MAX: usize = 1 << 24;

/// The resizing of one axis.
#[derive(Debug)]
struct ResizeAxis {
    axis: usize,
    from: usize,
    to: usize,
    scale: f64,
    /// The start and the end of the region, as fractions of the axis.
    region: [f64; 2],
}

/// The attributes of Resize.
#[derive(Debug)]
struct ResizeOptions {
    mode: String,
    coordinates: String,
    nearest: String,
    cubic: f64,
    exclude_outside: bool,
    antialias: bool,
    outside: f64,
}

/// Builds Resize.
pub(super) fn resize(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let old = call.opset < 11;
    let coordinates = if old { "asymmetric" } else { "half_pixel" };
    let manner = ResizeOptions {
        mode: call.string("mode", "nearest").into_owned(),
        coordinates: call.string("coordinate_transformation_mode", coordinates).into_owned(),
        nearest: call.string("nearest_mode", if old { "floor" } else { "round_prefer_floor" }).into_owned(),
        cubic: call.float("cubic_coeff_a", -0.75),
        exclude_outside: call.flag("exclude_outside", false),
        antialias: call.flag("antialias", false),
        outside: call.float("extrapolation_value", 0.0),
    };
    let axes = match call.ints("axes") {
        Some(axes) => axes.iter().map(|&axis| x.axis(axis)).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()).collect(),
    };
    let position = |newer: usize| if old { newer - 1 } else { newer };
    let region = if old { None } else { call.known_floats(1, "the region of Resize")?.filter(|roi| !roi.is_empty()) };
    let scales = call.known_floats(position(2), "the scales of Resize")?.filter(|scales| !scales.is_empty());
    let plan = match (scales, if old { None } else { call.known_ints(3, "the sizes of Resize")? }) {
        (Some(scales), _) => axes_from_scales(x, &axes, &scales)?,
        (None, Some(sizes)) => axes_from_sizes(x, &axes, &sizes, &call.string("keep_aspect_ratio_policy", "stretch"))?,
        (None, None) => return Err(Error::invalid("neither scales nor sizes are given")),
    };
    single_result(resize_axes(g, x, with_region(plan, region)?, &manner))
}

/// Builds Upsample: nearest or linear, with scales.
pub(super) fn upsample(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let manner = ResizeOptions {
        mode: call.string("mode", "nearest").into_owned(),
        coordinates: "asymmetric".to_owned(),
        nearest: "floor".to_owned(),
        cubic: 0.0,
        exclude_outside: false,
        antialias: false,
        outside: 0.0,
    };
    // Before version 7, images have one scale for each side.
    let sides = [call.number("height_scale"), call.number("width_scale")];
    let scales = match (call.floats("scales"), sides) {
        (Some(scales), _) => scales,
        (None, [Some(height), Some(width)]) => vec![1.0, 1.0, height, width],
        (None, _) => call.known_floats(1, "the scales of Upsample")?.unwrap_or_default(),
    };
    let axes: Vec<usize> = (0..x.rank()).collect();
    single_result(resize_axes(g, x, axes_from_scales(x, &axes, &scales)?, &manner))
}

fn axes_from_scales(x: &GraphValue, axes: &[usize], scales: &[f64]) -> Result<Vec<ResizeAxis>> {
    if scales.len() != axes.len() {
        return Err(Error::invalid(format!("{} scales for {} axes", scales.len(), axes.len())));
    }
    let each = axes.iter().zip(scales).map(|(&axis, &scale)| {
        let from = x.dim(axis)?;
        // In single precision, as other implementations compute the size.
        let to = checked_size((from as f32 * scale as f32).floor() as i64, "a dimension")?;
        Ok(ResizeAxis { axis, from, to, scale, region: [0.0, 1.0] })
    });
    each.collect()
}

fn axes_from_sizes(x: &GraphValue, axes: &[usize], sizes: &[i64], policy: &str) -> Result<Vec<ResizeAxis>> {
    if sizes.len() != axes.len() {
        return Err(Error::invalid(format!("{} sizes for {} axes", sizes.len(), axes.len())));
    }
    let mut plan = Vec::new();
    for (&axis, &to) in axes.iter().zip(sizes) {
        let (from, to) = (x.dim(axis)?, checked_size(to, "a dimension")?);
        plan.push(ResizeAxis { axis, from, to, scale: to as f64 / from as f64, region: [0.0, 1.0] });
    }
    let scales = plan.iter().map(|axis| axis.scale);
    let common = match policy {
        "stretch" => return Ok(plan),
        "not_larger" => scales.fold(f64::INFINITY, f64::min),
        "not_smaller" => scales.fold(0.0, f64::max),
        other => return Err(Error::invalid(format!("`keep_aspect_ratio_policy` is `{other}`"))),
    };
    for axis in &mut plan {
        axis.scale = common;
        axis.to = checked_size((common * axis.from as f64 + 0.5).floor() as i64, "a dimension")?;
    }
    Ok(plan)
}

fn with_region(mut plan: Vec<ResizeAxis>, region: Option<Vec<f64>>) -> Result<Vec<ResizeAxis>> {
    if let Some(region) = region {
        let n = plan.len();
        if region.len() != 2 * n {
            return Err(Error::invalid(format!("a region of {} numbers for {n} axes", region.len())));
        }
        plan.iter_mut().enumerate().for_each(|(i, axis)| axis.region = [region[i], region[n + i]]);
    }
    Ok(plan)
}

fn resize_axes(g: &mut FoldingGraph, x: &GraphValue, plan: Vec<ResizeAxis>, manner: &ResizeOptions) -> ValueResult {
    let mut result = x.clone();
    for axis in &plan {
        let whole = manner.coordinates != "tf_crop_and_resize" || axis.region == [0.0, 1.0];
        if axis.from == axis.to && axis.scale == 1.0 && whole {
            continue;
        }
        if axis.from == 0 {
            return Err(Error::invalid(format!("nothing of {:?} to resize", x.shape())));
        }
        result = resize_along_axis(g, &result, axis, manner)?;
    }
    Ok(result)
}

/// Returns the coordinate in the operand of element `at` of the result.
fn source_coordinate(axis: &ResizeAxis, coordinates: &str, at: usize) -> Result<f64> {
    let (at, from, to) = (at as f64, axis.from as f64, axis.scale * axis.from as f64);
    let half_pixel = (at + 0.5) / axis.scale - 0.5;
    Ok(match coordinates {
        "half_pixel" => half_pixel,
        "half_pixel_symmetric" => from / 2.0 * (1.0 - axis.to as f64 / to) + half_pixel,
        "pytorch_half_pixel" if axis.to > 1 => half_pixel,
        // A single element takes the first element of the operand.
        "pytorch_half_pixel" => 0.0,
        "tf_half_pixel_for_nn" => (at + 0.5) / axis.scale,
        "asymmetric" => at / axis.scale,
        "align_corners" if axis.to > 1 => at * (from - 1.0) / (to - 1.0),
        "align_corners" => 0.0,
        "tf_crop_and_resize" => {
            let [start, end] = axis.region;
            if axis.to > 1 {
                start * (from - 1.0) + at * (end - start) * (from - 1.0) / (to - 1.0)
            } else {
                0.5 * (start + end) * (from - 1.0)
            }
        }
        other => return Err(Error::invalid(format!("`coordinate_transformation_mode` is `{other}`"))),
    })
}

/// Returns the weights of the taps around a coordinate. `ratio` is the distance from the element before the coordinate.
fn tap_weights(manner: &ResizeOptions, ratio: f64, scale: f64) -> Result<Vec<f64>> {
    let scale = if manner.antialias { scale.min(1.0) } else { 1.0 };
    let reach: f64 = match manner.mode.as_str() {
        "nearest" => return nearest_weights(&manner.nearest, ratio),
        "linear" => 1.0,
        "cubic" => 2.0,
        other => return Err(Error::invalid(format!("`mode` is `{other}`"))),
    };
    let start = (-reach / scale).floor() as i64 + 1;
    let distances = (start..2 - start).map(|i| (scale * (i as f64 - ratio)).abs());
    let a = manner.cubic;
    let weight = |d: f64| match manner.mode.as_str() {
        "linear" => (1.0 - d).max(0.0),
        _ if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
        _ if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
        _ => 0.0,
    };
    let weights: Vec<f64> = distances.map(weight).collect();
    let sum: f64 = weights.iter().sum();
    Ok(if manner.antialias { weights.into_iter().map(|weight| weight / sum).collect() } else { weights })
}

/// `ratio` is in `(0, 1]`: an integer coordinate is the second of the two elements.
fn nearest_weights(mode: &str, ratio: f64) -> Result<Vec<f64>> {
    let second = match mode {
        _ if ratio == 1.0 => true,
        "round_prefer_floor" => ratio > 0.5,
        "round_prefer_ceil" => ratio >= 0.5,
        "floor" => false,
        "ceil" => true,
        other => return Err(Error::invalid(format!("`nearest_mode` is `{other}`"))),
    };
    Ok(if second { vec![0.0, 1.0] } else { vec![1.0, 0.0] })
}

/// Returns for each element of the result the indices of the elements that it sums and their weights.
fn taps(axis: &ResizeAxis, manner: &ResizeOptions) -> Result<Vec<Vec<(usize, f64)>>> {
    let last = axis.from as i64 - 1;
    let mut rows = Vec::new();
    for at in 0..axis.to {
        let place = source_coordinate(axis, &manner.coordinates, at)?;
        let before = place.ceil() as i64 - 1;
        let mut weights = tap_weights(manner, place - before as f64, axis.scale)?;
        if rows.is_empty() && weights.len().saturating_mul(axis.to) > WEIGHTS_MAX {
            return Err(Error::unsupported(format!("resizing {} elements to {}", axis.from, axis.to)));
        }
        let first = before + 1 - weights.len() as i64 / 2;
        if manner.exclude_outside {
            for (i, weight) in weights.iter_mut().enumerate() {
                if !(0..=last).contains(&(first + i as i64)) {
                    *weight = 0.0;
                }
            }
            let sum: f64 = weights.iter().sum();
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        let index = |i: usize| (first + i as i64).clamp(0, last) as usize;
        rows.push(weights.iter().enumerate().map(|(i, &weight)| (index(i), weight)).collect());
    }
    Ok(rows)
}

fn resize_along_axis(g: &mut FoldingGraph, x: &GraphValue, axis: &ResizeAxis, manner: &ResizeOptions) -> ValueResult {
    let rows = taps(axis, manner)?;
    let mut shape = vec![1; x.rank()];
    shape[axis.axis] = axis.to;
    let count = rows.first().map_or(0, Vec::len);
    let result = if manner.mode == "nearest" || count == 0 {
        let chosen =
            |row: &Vec<(usize, f64)>| row.iter().find(|(_, weight)| *weight != 0.0).map_or(0, |(i, _)| *i as i64);
        g.gather(x, &ConstantTensor::ints(rows.iter().map(chosen).collect()).into(), axis.axis)?
    } else if count <= TAPS_MAX {
        let wide = if x.elem().is_float() { x.clone() } else { g.cast(x, ElementType::Float32)? };
        let mut sum: Option<GraphValue> = None;
        for tap in 0..count {
            let indices = ConstantTensor::ints(rows.iter().map(|row| row[tap].0 as i64).collect());
            let weights = ConstantElements::Float(rows.iter().map(|row| row[tap].1).collect());
            let part = g.gather(&wide, &indices.into(), axis.axis)?;
            let weighted = g.mul(&part, &ConstantTensor::new(wide.elem(), shape.clone(), weights).into())?;
            sum = Some(match sum {
                Some(sum) => g.add(&sum, &weighted)?,
                None => weighted,
            });
        }
        sum.ok_or_else(|| Error::invalid("nothing to add up"))?
    } else {
        resize_by_matmul(g, x, axis, &rows)?
    };
    let result = g.cast(&result, x.elem())?;
    if manner.coordinates != "tf_crop_and_resize" {
        return Ok(result);
    }
    let bounds = 0.0..=axis.from as f64 - 1.0;
    let inside = |at| Ok(i64::from(bounds.contains(&source_coordinate(axis, &manner.coordinates, at)?)));
    let inside = (0..axis.to).map(inside).collect::<Result<Vec<_>>>()?;
    let inside: GraphValue = ConstantTensor::new(ElementType::Bool, shape, ConstantElements::Int(inside)).into();
    let outside = g.scalar_like(&result, manner.outside);
    g.select(&inside, &result, &outside)
}

/// Computes the sums as a matrix product along the last axis.
fn resize_by_matmul(
    g: &mut FoldingGraph,
    x: &GraphValue,
    axis: &ResizeAxis,
    rows: &[Vec<(usize, f64)>],
) -> ValueResult {
    if axis.from.saturating_mul(axis.to) > WEIGHTS_MAX {
        return Err(Error::unsupported(format!("resizing {} elements to {} as a matrix product", axis.from, axis.to)));
    }
    let wide = if x.elem().is_float() { x.clone() } else { g.cast(x, ElementType::Float32)? };
    let mut matrix = vec![0.0; axis.from * axis.to];
    for (column, row) in rows.iter().enumerate() {
        row.iter().for_each(|&(index, weight)| matrix[index * axis.to + column] += weight);
    }
    let matrix = ConstantTensor::new(wide.elem(), vec![axis.from, axis.to], ConstantElements::Float(matrix)).into();
    let last = x.rank() - 1;
    let moved = g.swap_axes(&wide, axis.axis, last)?;
    let product = super::contract::matmul(g, &moved, &matrix)?;
    g.swap_axes(&product, axis.axis, last)
}
