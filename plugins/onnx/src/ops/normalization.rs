//! Rules of normalization.

use super::{RuleResult, single_result};
use crate::backend::{PlaneWindows, PoolingMode, ReductionOperator};
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{GraphValue, checked_size};

/// Reshapes one number per channel so that it broadcasts over an image `[n, c, ..]`.
pub(super) fn reshape_per_channel(g: &mut FoldingGraph, value: &GraphValue, rank: usize) -> ValueResult {
    let mut shape = vec![1; rank];
    if let Some(channel) = shape.get_mut(1) {
        *channel = value.len();
    }
    g.reshape(value, &shape)
}

/// Returns `(x - mean) / sqrt(variance + epsilon)` with the statistics over `axes`, then the mean and the reciprocal
/// standard deviation.
pub(super) fn standardize(
    g: &mut FoldingGraph,
    x: &GraphValue,
    axes: &[usize],
    epsilon: f64,
) -> Result<[GraphValue; 3]> {
    let mean = g.reduce(ReductionOperator::Mean, x, axes)?;
    let centred = g.sub(x, &mean)?;
    let squares = g.mul(&centred, &centred)?;
    let variance = g.reduce(ReductionOperator::Mean, &squares, axes)?;
    let variance = g.add_scalar(&variance, epsilon)?;
    let deviation = g.sqrt(&variance)?;
    let inverse = g.reciprocal(&deviation)?;
    Ok([g.mul(&centred, &inverse)?, mean, inverse])
}

/// Checks the precision of the statistics. They are always computed in single precision, which includes half precision.
///
/// # Errors
/// Returns `Unsupported` for another precision.
fn check_precision(call: &OperatorCall) -> Result<()> {
    match call.element_type("stash_type")? {
        None | Some(ElementType::Float32 | ElementType::Float16) => Ok(()),
        Some(other) => Err(Error::unsupported(format!("{} with stash_type {other:?}", call.op))),
    }
}

/// Builds BatchNormalization with the given statistics, or in training mode with those of the batch.
pub(super) fn batch_normalization(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    if !call.flag("spatial", true) {
        return Err(Error::unsupported("BatchNormalization with statistics of each position (spatial = 0)"));
    }
    let epsilon = call.float("epsilon", 1e-5);
    let elem = x.elem();
    let mut each = [1, 2, 3, 4].into_iter().map(|i| {
        let value = g.cast(call.input(i)?, elem)?;
        reshape_per_channel(g, &value, x.rank())
    });
    let mut next = || each.next().unwrap_or_else(|| Err(Error::invalid("an operand is missing")));
    let (scale, bias, mean, variance) = (next()?, next()?, next()?, next()?);
    drop(each);
    if !call.flag("training_mode", false) || call.opset < 14 {
        let centred = g.sub(x, &mean)?;
        let raised = g.add_scalar(&variance, epsilon)?;
        let deviation = g.sqrt(&raised)?;
        let factor = g.div(&scale, &deviation)?;
        let scaled = g.mul(&centred, &factor)?;
        return single_result(g.add(&scaled, &bias));
    }
    let axes: Vec<usize> = (0..x.rank()).filter(|&axis| axis != 1).collect();
    let [normal, own_mean, _] = standardize(g, x, &axes, epsilon)?;
    let scaled = g.mul(&normal, &scale)?;
    let y = g.add(&scaled, &bias)?;
    let centred = g.sub(x, &own_mean)?;
    let squares = g.mul(&centred, &centred)?;
    let own_variance = g.reduce(ReductionOperator::Mean, &squares, &axes)?;
    let momentum = call.float("momentum", 0.9);
    let mut running = |old: &GraphValue, new: &GraphValue| {
        let (decayed, added) = (g.mul_scalar(old, momentum)?, g.mul_scalar(new, 1.0 - momentum)?);
        let mixed = g.add(&decayed, &added)?;
        g.reshape(&mixed, &[mixed.len()])
    };
    Ok(vec![y, running(&mean, &own_mean)?, running(&variance, &own_variance)?])
}

/// Builds InstanceNormalization: normalizes each channel of each image.
pub(super) fn instance_normalization(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axes: Vec<usize> = (2..x.rank()).collect();
    let [normal, ..] = standardize(g, x, &axes, call.float("epsilon", 1e-5))?;
    let scale = reshape_per_channel(g, call.input(1)?, x.rank())?;
    let bias = reshape_per_channel(g, call.input(2)?, x.rank())?;
    let scaled = g.mul(&normal, &scale)?;
    single_result(g.add(&scaled, &bias))
}

/// Builds GroupNormalization. Before version 21 it has one scale per group.
pub(super) fn group_normalization(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let (n, c) = (x.dim(0)?, x.dim(1)?);
    let groups = checked_size(call.int("num_groups", 1), "num_groups")?;
    if groups == 0 || c % groups != 0 {
        return Err(Error::invalid(format!("{c} channels in {groups} groups")));
    }
    check_precision(call)?;
    let rest = x.len() / (n * groups).max(1);
    let apart = g.reshape(x, &[n, groups, rest])?;
    let wide = g.cast(&apart, ElementType::Float32)?;
    let [normal, ..] = standardize(g, &wide, &[2], call.float("epsilon", 1e-5))?;
    let normal = g.cast(&normal, x.elem())?;
    let (scale, bias) = (call.input(1)?, call.input(2)?);
    if scale.len() == groups && scale.len() != c {
        let (scale, bias) = (reshape_per_channel(g, scale, 3)?, reshape_per_channel(g, bias, 3)?);
        let scaled = g.mul(&normal, &scale)?;
        let y = g.add(&scaled, &bias)?;
        return single_result(g.reshape(&y, x.shape()));
    }
    let normal = g.reshape(&normal, x.shape())?;
    let (scale, bias) = (reshape_per_channel(g, scale, x.rank())?, reshape_per_channel(g, bias, x.rank())?);
    let scaled = g.mul(&normal, &scale)?;
    single_result(g.add(&scaled, &bias))
}

/// Builds LayerNormalization in single precision. Further results: the mean and the reciprocal standard deviation.
pub(super) fn layer_normalization(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    check_precision(call)?;
    let axes = super::reduce::trailing_axes(x, call.int("axis", -1))?;
    let wide = g.cast(x, ElementType::Float32)?;
    let [normal, mean, inverse] = standardize(g, &wide, &axes, call.float("epsilon", 1e-5))?;
    let normal = g.cast(&normal, x.elem())?;
    let mut y = g.mul(&normal, call.input(1)?)?;
    if let Some(bias) = call.optional(2) {
        y = g.add(&y, bias)?;
    }
    Ok(vec![y, mean, inverse])
}

/// Builds RMSNormalization: divides by the root of the mean square.
pub(super) fn rms_normalization(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    check_precision(call)?;
    let axes = super::reduce::trailing_axes(x, call.int("axis", -1))?;
    let wide = g.cast(x, ElementType::Float32)?;
    let squares = g.mul(&wide, &wide)?;
    let mean = g.reduce(ReductionOperator::Mean, &squares, &axes)?;
    let raised = g.add_scalar(&mean, call.float("epsilon", 1e-5))?;
    let root = g.sqrt(&raised)?;
    let normal = g.div(&wide, &root)?;
    let normal = g.cast(&normal, x.elem())?;
    single_result(g.mul(&normal, call.input(1)?))
}

/// Builds MeanVarianceNormalization.
pub(super) fn mean_variance_normalization(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axes = x.axes(call.ints("axes").unwrap_or(&[0, 2, 3]))?;
    let mean = g.reduce(ReductionOperator::Mean, x, &axes)?;
    let centred = g.sub(x, &mean)?;
    let squares = g.mul(&centred, &centred)?;
    let variance = g.reduce(ReductionOperator::Mean, &squares, &axes)?;
    let deviation = g.sqrt(&variance)?;
    let deviation = g.add_scalar(&deviation, 1e-9)?;
    single_result(g.div(&centred, &deviation))
}

/// Builds LRN: divides by a power of a sum of squares of neighbouring channels.
pub(super) fn local_response_normalization(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let window = checked_size(call.int("size", 1), "size")?.max(1);
    let (n, c) = (x.dim(0)?, x.dim(1)?);
    let rest = x.len() / (n * c).max(1);
    let squares = g.mul(x, x)?;
    let (low, high) = ((window - 1) / 2, window - 1 - (window - 1) / 2);
    let image = g.reshape(&squares, &[n, 1, c, rest])?;
    let padded = g.pad(&image, &[0, 0, low, 0], &[0, 0, high, 0], 0.0)?;
    let windows = PlaneWindows { padding: [0; 4], strides: [1, 1], dilations: [1, 1] };
    // The mean over a window of `size` channels is the sum divided by `size`.
    let mean = g.pool2d(PoolingMode::Average, &padded, [window, 1], windows)?;
    let mean = g.reshape(&mean, x.shape())?;
    let scaled = g.mul_scalar(&mean, call.float("alpha", 1e-4))?;
    let raised = g.add_scalar(&scaled, call.float("bias", 1.0))?;
    let divisor = g.pow(&raised, &g.scalar_like(x, call.float("beta", 0.75)))?;
    single_result(g.div(x, &divisor))
}
