//! Normalisation.

use super::{Outcome, one};
use crate::backend::{Pooling, Reduction, Windows};
use crate::call::Call;
use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::graph::{Built, Graph};
use crate::value::{Value, size};

/// One number a channel, to be combined with an image `[n, c, ..]`.
pub(super) fn per_channel(g: &mut Graph, value: &Value, rank: usize) -> Built {
    let mut shape = vec![1; rank];
    if let Some(channel) = shape.get_mut(1) {
        *channel = value.len();
    }
    g.reshape(value, &shape)
}

/// `(x - mean) / sqrt(variance + epsilon)` with both over `axes`; and the mean and the reciprocal deviation.
pub(super) fn standardized(g: &mut Graph, x: &Value, axes: &[usize], epsilon: f64) -> Result<[Value; 3]> {
    let mean = g.reduce(Reduction::Mean, x, axes)?;
    let centred = g.sub(x, &mean)?;
    let squares = g.mul(&centred, &centred)?;
    let variance = g.reduce(Reduction::Mean, &squares, axes)?;
    let variance = g.plus(&variance, epsilon)?;
    let deviation = g.sqrt(&variance)?;
    let inverse = g.reciprocal(&deviation)?;
    Ok([g.mul(&centred, &inverse)?, mean, inverse])
}

/// Checks the precision that statistics are to be computed in: they always are in single precision, which holds half.
///
/// # Errors
/// `Unsupported` for another one.
fn check_precision(call: &Call) -> Result<()> {
    match call.elem("stash_type")? {
        None | Some(Elem::Float32 | Elem::Float16) => Ok(()),
        Some(other) => Err(Error::unsupported(format!("{} with stash_type {other:?}", call.op))),
    }
}

/// BatchNormalization with the statistics given; in training mode by the batch's own.
pub(super) fn batch(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    if !call.flag("spatial", true) {
        return Err(Error::unsupported("BatchNormalization with statistics of each position (spatial = 0)"));
    }
    let epsilon = call.float("epsilon", 1e-5);
    let elem = x.elem();
    let mut each = [1, 2, 3, 4].into_iter().map(|i| {
        let value = g.cast(call.input(i)?, elem)?;
        per_channel(g, &value, x.rank())
    });
    let mut next = || each.next().unwrap_or_else(|| Err(Error::invalid("an operand is missing")));
    let (scale, bias, mean, variance) = (next()?, next()?, next()?, next()?);
    drop(each);
    if !call.flag("training_mode", false) || call.opset < 14 {
        let centred = g.sub(x, &mean)?;
        let raised = g.plus(&variance, epsilon)?;
        let deviation = g.sqrt(&raised)?;
        let factor = g.div(&scale, &deviation)?;
        let scaled = g.mul(&centred, &factor)?;
        return one(g.add(&scaled, &bias));
    }
    let axes: Vec<usize> = (0..x.rank()).filter(|&axis| axis != 1).collect();
    let [normal, own_mean, _] = standardized(g, x, &axes, epsilon)?;
    let scaled = g.mul(&normal, &scale)?;
    let y = g.add(&scaled, &bias)?;
    let centred = g.sub(x, &own_mean)?;
    let squares = g.mul(&centred, &centred)?;
    let own_variance = g.reduce(Reduction::Mean, &squares, &axes)?;
    let momentum = call.float("momentum", 0.9);
    let mut running = |old: &Value, new: &Value| {
        let (kept, added) = (g.times(old, momentum)?, g.times(new, 1.0 - momentum)?);
        let mixed = g.add(&kept, &added)?;
        g.reshape(&mixed, &[mixed.len()])
    };
    Ok(vec![y, running(&mean, &own_mean)?, running(&variance, &own_variance)?])
}

/// InstanceNormalization: each image's each channel.
pub(super) fn instance(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let axes: Vec<usize> = (2..x.rank()).collect();
    let [normal, ..] = standardized(g, x, &axes, call.float("epsilon", 1e-5))?;
    let scale = per_channel(g, call.input(1)?, x.rank())?;
    let bias = per_channel(g, call.input(2)?, x.rank())?;
    let scaled = g.mul(&normal, &scale)?;
    one(g.add(&scaled, &bias))
}

/// GroupNormalization; before version 21 with one scale a group.
pub(super) fn group(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let (n, c) = (x.dim(0)?, x.dim(1)?);
    let groups = size(call.int("num_groups", 1), "num_groups")?;
    if groups == 0 || c % groups != 0 {
        return Err(Error::invalid(format!("{c} channels in {groups} groups")));
    }
    check_precision(call)?;
    let rest = x.len() / (n * groups).max(1);
    let apart = g.reshape(x, &[n, groups, rest])?;
    let wide = g.cast(&apart, Elem::Float32)?;
    let [normal, ..] = standardized(g, &wide, &[2], call.float("epsilon", 1e-5))?;
    let normal = g.cast(&normal, x.elem())?;
    let (scale, bias) = (call.input(1)?, call.input(2)?);
    if scale.len() == groups && scale.len() != c {
        let (scale, bias) = (per_channel(g, scale, 3)?, per_channel(g, bias, 3)?);
        let scaled = g.mul(&normal, &scale)?;
        let y = g.add(&scaled, &bias)?;
        return one(g.reshape(&y, x.shape()));
    }
    let normal = g.reshape(&normal, x.shape())?;
    let (scale, bias) = (per_channel(g, scale, x.rank())?, per_channel(g, bias, x.rank())?);
    let scaled = g.mul(&normal, &scale)?;
    one(g.add(&scaled, &bias))
}

/// LayerNormalization, computed in single precision; also its mean and reciprocal deviation.
pub(super) fn layer(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    check_precision(call)?;
    let axes = super::reduce::trailing(x, call.int("axis", -1))?;
    let wide = g.cast(x, Elem::Float32)?;
    let [normal, mean, inverse] = standardized(g, &wide, &axes, call.float("epsilon", 1e-5))?;
    let normal = g.cast(&normal, x.elem())?;
    let mut y = g.mul(&normal, call.input(1)?)?;
    if let Some(bias) = call.optional(2) {
        y = g.add(&y, bias)?;
    }
    Ok(vec![y, mean, inverse])
}

/// RMSNormalization: over the root of the mean square.
pub(super) fn rms(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    check_precision(call)?;
    let axes = super::reduce::trailing(x, call.int("axis", -1))?;
    let wide = g.cast(x, Elem::Float32)?;
    let squares = g.mul(&wide, &wide)?;
    let mean = g.reduce(Reduction::Mean, &squares, &axes)?;
    let raised = g.plus(&mean, call.float("epsilon", 1e-5))?;
    let root = g.sqrt(&raised)?;
    let normal = g.div(&wide, &root)?;
    let normal = g.cast(&normal, x.elem())?;
    one(g.mul(&normal, call.input(1)?))
}

/// MeanVarianceNormalization.
pub(super) fn mean_variance(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let axes = x.axes(call.ints("axes").unwrap_or(&[0, 2, 3]))?;
    let mean = g.reduce(Reduction::Mean, x, &axes)?;
    let centred = g.sub(x, &mean)?;
    let squares = g.mul(&centred, &centred)?;
    let variance = g.reduce(Reduction::Mean, &squares, &axes)?;
    let deviation = g.sqrt(&variance)?;
    let deviation = g.plus(&deviation, 1e-9)?;
    one(g.div(&centred, &deviation))
}

/// LRN: over a sum of squares of neighbouring channels.
pub(super) fn local_response(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let window = size(call.int("size", 1), "size")?.max(1);
    let (n, c) = (x.dim(0)?, x.dim(1)?);
    let rest = x.len() / (n * c).max(1);
    let squares = g.mul(x, x)?;
    let (low, high) = ((window - 1) / 2, window - 1 - (window - 1) / 2);
    let image = g.reshape(&squares, &[n, 1, c, rest])?;
    let padded = g.pad(&image, &[0, 0, low, 0], &[0, 0, high, 0], 0.0)?;
    let windows = Windows { padding: [0; 4], strides: [1, 1], dilations: [1, 1] };
    // The mean over a window of `size` is the sum over `size`.
    let mean = g.pool2d(Pooling::Average, &padded, [window, 1], windows)?;
    let mean = g.reshape(&mean, x.shape())?;
    let scaled = g.times(&mean, call.float("alpha", 1e-4))?;
    let raised = g.plus(&scaled, call.float("bias", 1.0))?;
    let divisor = g.pow(&raised, &g.like(x, call.float("beta", 0.75)))?;
    one(g.div(x, &divisor))
}
