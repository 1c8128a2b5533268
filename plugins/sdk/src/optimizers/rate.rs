//! How fast to learn, step by step.

use std::f64::consts::PI;

use crate::error::Result;
use crate::operand::Operand;

/// A learning rate that may follow a schedule. It is part of the training graph, so a resumed training goes on where the
/// schedule was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LearningRate {
    /// The same in every step.
    Constant(f64),
    /// Rises linearly from 0 over `warmup` steps, then falls to 0 along half a cosine until `steps`.
    Cosine {
        /// The highest rate.
        peak: f64,
        /// Steps of rising; may be 0.
        warmup: u64,
        /// Steps in all.
        steps: u64,
    },
}

impl From<f64> for LearningRate {
    fn from(rate: f64) -> Self {
        Self::Constant(rate)
    }
}

impl LearningRate {
    /// The rate of `step` (from 1, a `float32` scalar), a scalar.
    ///
    /// # Errors
    /// `Built`.
    pub(super) fn at(self, step: &Operand) -> Result<Operand> {
        match self {
            Self::Constant(rate) => step.graph().scalar(step.descriptor().data_type, rate),
            Self::Cosine { peak, warmup, steps } => {
                let warmup = warmup as f64;
                let falling = (steps as f64 - warmup).max(1.0);
                // Step 1 takes the peak itself where nothing rises, and the last step still learns.
                let rise = step.div_scalar(warmup.max(1.0))?.clamp(None, Some(1.0))?;
                let done = step.add_scalar(-1.0 - warmup)?.div_scalar(falling)?.clamp(Some(0.0), Some(1.0))?;
                let fall = done.mul_scalar(PI)?.cos()?.add_scalar(1.0)?.mul_scalar(peak / 2.0)?;
                rise.mul(&fall)
            }
        }
    }
}
