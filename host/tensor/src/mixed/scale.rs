//! The scale of the loss: how it is found, and what becomes of a step in which it was too large.
//!
//! Source: Micikevicius et al., section 3.2; bounds as in NVIDIA Apex (`max_loss_scale`) and TensorFlow
//! (`LossScaleOptimizer`, never below 1); growth as in PyTorch's `GradScaler`.

use crate::DType;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::Scalar;

/// The scale of the first step. All scales are powers of two, so that they change exponents alone.
pub const SCALE_FIRST: f64 = 65_536.0;
/// The scale is never smaller.
pub const SCALE_LEAST: f64 = 1.0;
/// The scale is never larger, 2^24.
pub const SCALE_MOST: f64 = 16_777_216.0;
/// What it is multiplied by after [`GROWTH_STEPS`] sound steps.
pub const SCALE_GROWTH: f64 = 2.0;
/// What it is multiplied by after a step that was left out.
pub const SCALE_BACKOFF: f64 = 0.5;
/// Sound steps in a row after which the scale grows.
pub const GROWTH_STEPS: i32 = 2000;

/// Variables of the graph, each without dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossScale {
    /// `float32`, [`SCALE_FIRST`] at first.
    pub scale: NodeId,
    /// `int32`: sound steps since the scale changed.
    pub sound_steps: NodeId,
    /// `int32`: steps that were left out, all together.
    pub left_out: NodeId,
}

/// Has a step be left out in which one of `gradients` is not finite: floating-point variables that are assigned so far keep
/// what they hold. Gives 1 for a sound step, a `uint8` without dimensions. What is assigned later is not guarded.
///
/// # Errors
/// `UnknownNode`; `DType` where a gradient is no float; `TooManyNodes`.
pub fn leave_out(builder: &mut GraphBuilder, gradients: &[NodeId]) -> Result<NodeId, GraphError> {
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
    builder.assign_where(sound)?;
    Ok(sound)
}

/// Assigns the scale: halved after a step that is not `sound`, doubled after [`GROWTH_STEPS`] sound ones.
///
/// # Errors
/// `AssignedTwice` where it is assigned already; `AssignMismatch` where a variable is of another kind; `UnknownNode`;
/// `TooManyNodes`.
pub fn advance(g: &mut GraphBuilder, sound: NodeId, of: &LossScale) -> Result<(), GraphError> {
    let [one, zero, steps] = [1, 0, GROWTH_STEPS.into()].map(|value| g.scalar(DType::I32, Scalar::Int(value)));
    let (one, zero, steps) = (one?, zero?, steps?);
    let [growth, backoff, least, most] =
        [SCALE_GROWTH, SCALE_BACKOFF, SCALE_LEAST, SCALE_MOST].map(|value| g.scalar(DType::F32, Scalar::Float(value)));
    let counted = g.add(of.sound_steps, one)?;
    let grows = g.greater_or_equal(counted, steps)?;

    let larger = g.mul(of.scale, growth?)?;
    let larger = g.min(larger, most?)?;
    let smaller = g.mul(of.scale, backoff?)?;
    let smaller = g.max(smaller, least?)?;
    let kept = g.select(grows, larger, of.scale)?;
    let scale = g.select(sound, kept, smaller)?;
    g.assign_to(of.scale, scale)?;

    let counted = g.select(grows, zero, counted)?;
    let counted = g.select(sound, counted, zero)?;
    g.assign_to(of.sound_steps, counted)?;

    let more = g.select(sound, zero, one)?;
    let left_out = g.add(of.left_out, more)?;
    g.assign_to(of.left_out, left_out)
}
