//! Rules of poolings over windows of one, two or three dimensions, and of global poolings.

use super::convolution::OnnxWindowGeometry;
use super::{RuleResult, single_result};
use crate::backend::{PlaneWindows, PoolingMode, ReductionOperator, ScatterMode};
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{GraphValue, checked_size};

/// Returns the geometry with the padding after the image adjusted so that exactly the counted windows fit.
fn fit_geometry(call: &OperatorCall, x: &GraphValue) -> Result<(OnnxWindowGeometry, Vec<usize>)> {
    let image = x.shape().get(2..).filter(|image| !image.is_empty());
    let image = image.ok_or_else(|| Error::invalid(format!("a pooling of {:?}", x.shape())))?;
    let window = call.sizes("kernel_shape", image.len(), 0, 1)?;
    let mut geometry = OnnxWindowGeometry::from_call(call, image, window)?;
    let counts = geometry.window_counts(image, call.flag("ceil_mode", false))?;
    for (axis, &count) in counts.iter().enumerate() {
        if count == 0 {
            return Err(Error::invalid(format!("no window fits axis {axis} of {image:?}")));
        }
        let reach = (count - 1) * geometry.strides[axis] + geometry.extent(axis);
        geometry.high[axis] = reach.saturating_sub(image[axis] + geometry.low[axis]);
    }
    Ok((geometry, counts))
}

/// Pools with this geometry over any number of dimensions: height and width first, then the axes before them.
fn pool_with_geometry(
    g: &mut FoldingGraph,
    how: PoolingMode,
    x: &GraphValue,
    geometry: &OnnxWindowGeometry,
) -> ValueResult {
    let n = geometry.window.len();
    if n == 1 {
        let flat = g.unsqueeze(x, 2)?;
        let y = g.pool2d(how, &flat, [1, geometry.window[0]], geometry.clone().with_leading_axis().plane_windows())?;
        return g.squeeze(&y, &[2]);
    }
    let shape = x.shape().to_vec();
    let (h, w) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let plane = geometry.plane_windows();
    let window = [geometry.window[n - 2], geometry.window[n - 1]];
    if n == 2 {
        return g.pool2d(how, x, window, plane);
    }
    if n > 3 {
        return Err(Error::unsupported(format!("a pooling of {n} dimensions")));
    }
    // The number of elements of a window is a product over the axes, so a mean of means is the mean.
    let (batch, depth) = (shape[0] * shape[1], shape[2]);
    let planes = g.reshape(x, &[batch, depth, h, w])?;
    let planes = g.pool2d(how, &planes, window, plane)?;
    let (oh, ow) = (planes.dim(2)?, planes.dim(3)?);
    let columns = g.reshape(&planes, &[batch, 1, depth, oh * ow])?;
    let along = PlaneWindows {
        padding: [geometry.low[0], geometry.high[0], 0, 0],
        strides: [geometry.strides[0], 1],
        dilations: [geometry.dilations[0], 1],
    };
    let y = g.pool2d(how, &columns, [geometry.window[0], 1], along)?;
    let depth = y.dim(2)?;
    g.reshape(&y, &[shape[0], shape[1], depth, oh, ow])
}

/// Builds MaxPool, with the indices of the largest elements if they are used.
pub(super) fn max_pool(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let (geometry, counts) = fit_geometry(call, x)?;
    let wide = if x.elem().is_float() { x.clone() } else { g.cast(x, ElementType::Float32)? };
    let y = pool_with_geometry(g, PoolingMode::Max, &wide, &geometry)?;
    let y = g.cast(&y, x.elem())?;
    if !call.is_output_used(1) {
        return single_result(Ok(y));
    }
    let places = max_positions(g, &wide, &geometry, &counts, call.flag("storage_order", false))?;
    Ok(vec![y, places])
}

/// Returns the flat index in the whole tensor of the first largest element of each window.
fn max_positions(
    g: &mut FoldingGraph,
    x: &GraphValue,
    geometry: &OnnxWindowGeometry,
    counts: &[usize],
    column_major: bool,
) -> ValueResult {
    let image = x.shape()[2..].to_vec();
    let n = image.len();
    let taps: usize = geometry.window.iter().product();
    if taps > 1024 {
        return Err(Error::unsupported(format!("MaxPool indices for windows of {taps} elements")));
    }
    let low = [&[0, 0], &geometry.low[..]].concat();
    let high = [&[0, 0], &geometry.high[..]].concat();
    // The padding is below every number, so its positions are never chosen.
    let padded = g.pad(x, &low, &high, f64::NEG_INFINITY)?;
    let index = flat_index(g, x.shape(), column_major)?;
    let index = g.pad(&index, &low, &high, 0.0)?;
    let strides = [&[1, 1], &geometry.strides[..]].concat();
    let sizes = [&x.shape()[..2], counts].concat();
    let mut best: Option<(GraphValue, GraphValue)> = None;
    for offsets in crate::fold::map_positions(&geometry.window, <[usize]>::to_vec) {
        let at: Vec<usize> = (0..n).map(|axis| offsets[axis] * geometry.dilations[axis]).collect();
        let starts = [&[0, 0], &at[..]].concat();
        let (value, place) =
            (g.slice(&padded, &starts, &sizes, &strides)?, g.slice(&index, &starts, &sizes, &strides)?);
        best = Some(match best {
            None => (value, place),
            Some((most, found)) => {
                let larger = g.greater(&value, &most)?;
                (g.select(&larger, &value, &most)?, g.select(&larger, &place, &found)?)
            }
        });
    }
    best.map(|(_, place)| place).ok_or_else(|| Error::invalid("a window without elements"))
}

/// Returns 0, 1, 2, ... in row-major order, or with the image's axes in the opposite order.
fn flat_index(g: &mut FoldingGraph, shape: &[usize], column_major: bool) -> ValueResult {
    let total = crate::value::element_count(shape)?;
    let flat = g.iota(ElementType::Int64, &[total], 0)?;
    if !column_major {
        return g.reshape(&flat, shape);
    }
    let reversed: Vec<usize> = shape[..2].iter().chain(shape[2..].iter().rev()).copied().collect();
    let index = g.reshape(&flat, &reversed)?;
    let order: Vec<usize> = (0..2).chain((2..shape.len()).rev()).collect();
    g.transpose(&index, &order)
}

/// Builds AveragePool. Padding counts if the attribute says so. The part of a rounded-up window beyond the padding
/// never counts.
pub(super) fn average_pool(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let (mut geometry, _) = fit_geometry(call, x)?;
    let mut x = x.clone();
    if call.flag("count_include_pad", false) {
        let asked = OnnxWindowGeometry::from_call(call, &x.shape()[2..], geometry.window.clone())?;
        let high: Vec<usize> =
            asked.high.iter().zip(&geometry.high).map(|(asked, reached)| *asked.min(reached)).collect();
        x = g.pad(&x, &[&[0, 0], &geometry.low[..]].concat(), &[&[0, 0], &high[..]].concat(), 0.0)?;
        geometry.high.iter_mut().zip(&high).for_each(|(reached, padded)| *reached -= padded);
        geometry.low.fill(0);
    }
    single_result(pool_with_geometry(g, PoolingMode::Average, &x, &geometry))
}

/// Builds LpPool: the p-th root of the sum of p-th powers.
pub(super) fn lp_pool(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let p = call.number("p").unwrap_or(2.0);
    let (geometry, _) = fit_geometry(call, x)?;
    let powers = power(g, x, p)?;
    // The mean over all positions, with padding as zeros, times their number is the sum.
    let low = [&[0, 0], &geometry.low[..]].concat();
    let high = [&[0, 0], &geometry.high[..]].concat();
    let padded = g.pad(&powers, &low, &high, 0.0)?;
    let none = vec![0; geometry.window.len()];
    let whole = OnnxWindowGeometry { low: none.clone(), high: none, ..geometry };
    let mean = pool_with_geometry(g, PoolingMode::Average, &padded, &whole)?;
    let sum = g.mul_scalar(&mean, whole.window.iter().product::<usize>() as f64)?;
    single_result(root(g, &sum, p))
}

fn power(g: &mut FoldingGraph, x: &GraphValue, p: f64) -> ValueResult {
    if p == 2.0 {
        return g.mul(x, x);
    }
    let size = g.abs(x)?;
    if p == 1.0 { Ok(size) } else { g.pow(&size, &g.scalar_like(&size, p)) }
}

fn root(g: &mut FoldingGraph, x: &GraphValue, p: f64) -> ValueResult {
    if p == 1.0 {
        Ok(x.clone())
    } else if p == 2.0 {
        g.sqrt(x)
    } else {
        g.pow(x, &g.scalar_like(x, 1.0 / p))
    }
}

/// Builds GlobalMaxPool, GlobalAveragePool and GlobalLpPool: the whole image is one window.
pub(super) fn global_pool(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axes: Vec<usize> = (2..x.rank()).collect();
    single_result(match call.op {
        "GlobalMaxPool" => g.reduce(ReductionOperator::Max, x, &axes),
        "GlobalAveragePool" => g.reduce(ReductionOperator::Mean, x, &axes),
        _ => {
            let p = call.number("p").unwrap_or(2.0);
            let powers = power(g, x, p)?;
            let sum = g.reduce(ReductionOperator::Sum, &powers, &axes)?;
            root(g, &sum, p)
        }
    })
}

/// Builds LpNormalization: divides by the p-norm along one axis.
pub(super) fn lp_normalization(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axis = x.axis(call.int("axis", -1))?;
    let p = call.number("p").unwrap_or(2.0);
    let powers = power(g, x, p)?;
    let sum = g.reduce(ReductionOperator::Sum, &powers, &[axis])?;
    let norm = root(g, &sum, p)?;
    let zero = g.equal(&norm, &g.scalar_like(&norm, 0.0))?;
    let norm = g.select(&zero, &g.scalar_like(&norm, 1.0), &norm)?;
    single_result(g.div(x, &norm))
}

/// Builds MaxUnpool: writes elements to the positions where a MaxPool found them.
pub(super) fn max_unpool(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let image = x.shape().get(2..).unwrap_or_default();
    let window = call.sizes("kernel_shape", image.len(), 0, 1)?;
    let geometry = OnnxWindowGeometry::from_call(call, image, window)?;
    let side = |axis: usize| {
        let full =
            (image[axis].max(1) - 1).saturating_mul(geometry.strides[axis]).saturating_add(geometry.window[axis]);
        full.saturating_sub(geometry.low[axis] + geometry.high[axis])
    };
    let natural: Vec<usize> = (0..image.len()).map(side).collect();
    let natural = [&x.shape()[..2], &natural[..]].concat();
    let zeros = g.fill(x.elem(), &[crate::value::element_count(&natural)?], 0.0)?;
    let (flat, places) = (g.reshape(x, &[x.len()])?, g.reshape(indices, &[indices.len()])?);
    let spread = g.scatter_elements(&zeros, &places, &flat, 0, ScatterMode::Replace)?;
    let spread = g.reshape(&spread, &natural)?;
    // Indices refer to the natural shape. A larger requested shape is padded after it.
    let Some(shape) = call.known_ints(2, "the shape of MaxUnpool")? else { return single_result(Ok(spread)) };
    let shape = shape.iter().map(|&dim| checked_size(dim, "a dimension")).collect::<Result<Vec<_>>>()?;
    if shape.len() != natural.len() {
        return Err(Error::invalid(format!("a shape {shape:?} for {natural:?}")));
    }
    let high: Vec<usize> =
        shape.iter().zip(&natural).map(|(wanted, natural)| wanted.saturating_sub(*natural)).collect();
    single_result(g.pad(&spread, &vec![0; natural.len()], &high, 0.0))
}
