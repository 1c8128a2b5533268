//! Dynamic loss scale: skips steps with overflowed gradients, and adjusts the scale.
//!
//! Source: Micikevicius et al., section 3.2; bounds as in NVIDIA Apex (`max_loss_scale`) and TensorFlow
//! (`LossScaleOptimizer`, never below 1); growth as in PyTorch's `GradScaler`.

use crate::DType;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::Scalar;

/// The scale of the first step. All scales are powers of two, so that they change only exponents.
pub const LOSS_SCALE_INITIAL: f64 = 65_536.0;
/// The smallest scale.
pub const LOSS_SCALE_MIN: f64 = 1.0;
/// The largest scale, 2^24.
pub const LOSS_SCALE_MAX: f64 = 16_777_216.0;
/// The factor of the scale after [`LOSS_SCALE_GROWTH_INTERVAL`] sound steps.
pub const LOSS_SCALE_GROWTH_FACTOR: f64 = 2.0;
/// The factor of the scale after a skipped step.
pub const LOSS_SCALE_BACKOFF_FACTOR: f64 = 0.5;
/// The number of consecutive sound steps after which the scale grows.
pub const LOSS_SCALE_GROWTH_INTERVAL: i32 = 2000;

/// The variables of the loss scale, each without dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossScaleNodes {
    /// The scale, `float32`; initially [`LOSS_SCALE_INITIAL`].
    pub scale: NodeId,
    /// Sound steps since the scale changed, `int32`.
    pub sound_steps: NodeId,
    /// Total skipped steps, `int32`.
    pub skipped_steps: NodeId,
}

/// Skips a step in which one of `gradients` is not finite: floating-point variables that are assigned so far keep their
/// old values. Returns 1 for a sound step, else 0, a `uint8` without dimensions. Later assignments are not guarded.
///
/// # Errors
/// Returns `UnknownNode` or `TooManyNodes`; `DType` if a gradient is not a float.
pub fn skip_nonfinite_step(builder: &mut GraphBuilder, gradients: &[NodeId]) -> Result<NodeId, GraphError> {
    let mut sound = None;
    for &gradient in gradients {
        let finite = builder.all_finite(gradient)?;
        sound = Some(match sound {
            Some(others) => builder.logical_and(others, finite)?,
            None => finite,
        });
    }
    let sound = match sound {
        Some(sound) => sound,
        None => builder.scalar(DType::U8, Scalar::Int(1))?,
    };
    builder.assign_only_where(sound)?;
    Ok(sound)
}

/// Assigns the new scale: halved after a step that is not `sound`, doubled after [`LOSS_SCALE_GROWTH_INTERVAL`] sound
/// steps.
///
/// # Errors
/// Returns `UnknownNode` or `TooManyNodes`; `AssignedTwice` if the scale is already assigned; `AssignMismatch` if a
/// variable has another descriptor.
pub fn update_loss_scale(g: &mut GraphBuilder, sound: NodeId, of: &LossScaleNodes) -> Result<(), GraphError> {
    let [one, zero, steps] =
        [1, 0, LOSS_SCALE_GROWTH_INTERVAL.into()].map(|value| g.scalar(DType::I32, Scalar::Int(value)));
    let (one, zero, steps) = (one?, zero?, steps?);
    let [growth, backoff, least, most] =
        [LOSS_SCALE_GROWTH_FACTOR, LOSS_SCALE_BACKOFF_FACTOR, LOSS_SCALE_MIN, LOSS_SCALE_MAX]
            .map(|value| g.scalar(DType::F32, Scalar::Float(value)));
    let counted = g.add(of.sound_steps, one)?;
    let grows = g.greater_or_equal(counted, steps)?;

    let larger = g.mul(of.scale, growth?)?;
    let larger = g.min(larger, most?)?;
    let smaller = g.mul(of.scale, backoff?)?;
    let smaller = g.max(smaller, least?)?;
    let sound_scale = g.select(grows, larger, of.scale)?;
    let scale = g.select(sound, sound_scale, smaller)?;
    g.assign_to(of.scale, scale)?;

    let counted = g.select(grows, zero, counted)?;
    let counted = g.select(sound, counted, zero)?;
    g.assign_to(of.sound_steps, counted)?;

    let more = g.select(sound, zero, one)?;
    let left_out = g.add(of.skipped_steps, more)?;
    g.assign_to(of.skipped_steps, left_out)
}
