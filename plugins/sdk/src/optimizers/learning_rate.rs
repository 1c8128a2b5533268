//! Learning-rate schedules.

use std::f64::consts::PI;

use crate::error::Result;
use crate::graph::operand::Operand;

/// A learning-rate schedule: the learning rate of each step, counted from 1. It is part of the training graph, so a
/// resumed training continues the schedule.
///
/// ```
/// use saggar_plugin::optimizers::{Adam, LearningRateSchedule};
///
/// let constant = LearningRateSchedule::from(0.001);
/// assert_eq!(constant.value(1), constant.value(1000));
///
/// let warmup = LearningRateSchedule::Warmup { peak: 2.0, warmup: 4 };
/// assert_eq!([1, 2, 4, 100].map(|step| warmup.value(step)), [0.5, 1.0, 2.0, 2.0]);
///
/// let cosine = LearningRateSchedule::Cosine { peak: 1.0, warmup: 2, steps: 6 };
/// assert_eq!([1, 2].map(|step| cosine.value(step)), [0.5, 1.0]);
/// assert!(cosine.value(5) < cosine.value(4));
///
/// let inverse = LearningRateSchedule::InverseSquareRoot { peak: 1.0, warmup: 4 };
/// assert_eq!([2, 4, 16].map(|step| inverse.value(step)), [0.5, 1.0, 0.5]);
///
/// let adam = Adam::new(LearningRateSchedule::transformer(512, 4000)); // or `Adam::new(0.001)`
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LearningRateSchedule {
    /// The same rate in every step.
    Constant(f64),
    /// Rises linearly from 0 over `warmup` steps, then stays at `peak`.
    Warmup {
        /// The maximum rate.
        peak: f64,
        /// Steps of the linear rise; can be 0.
        warmup: u64,
    },
    /// Rises linearly from 0 over `warmup` steps, then falls to 0 along half a cosine until step `steps`. Source:
    /// Loshchilov and Hutter, arXiv:1608.03983, without restarts.
    Cosine {
        /// The maximum rate.
        peak: f64,
        /// Steps of the linear rise; can be 0.
        warmup: u64,
        /// Total number of steps.
        steps: u64,
    },
    /// Rises linearly from 0 over `warmup` steps, then falls with the inverse square root of the step. Source: Vaswani
    /// et al., arXiv:1706.03762.
    InverseSquareRoot {
        /// The maximum rate, reached at step `warmup`.
        peak: f64,
        /// Steps of the linear rise, at least 1.
        warmup: u64,
    },
}

impl From<f64> for LearningRateSchedule {
    fn from(rate: f64) -> Self {
        Self::Constant(rate)
    }
}

impl LearningRateSchedule {
    /// Returns the schedule of "Attention is all you need" for a model of this width:
    /// `width^-0.5 * min(step^-0.5, step * warmup^-1.5)`.
    pub fn transformer(width: u32, warmup: u64) -> Self {
        Self::InverseSquareRoot { peak: (f64::from(width) * warmup.max(1) as f64).sqrt().recip(), warmup }
    }

    /// Returns the rate of `step`, from 1.
    pub fn value(self, step: u64) -> f64 {
        // Arithmetic on `f64` cannot fail; only operands of a graph that is already built can.
        self.evaluate(&(step as f64)).unwrap_or(f64::NAN)
    }

    /// Returns the rate of `step` (from 1, a `float32` scalar), a `float32` scalar.
    ///
    /// # Errors
    /// Returns `Built` after the graph was built.
    pub fn at(self, step: &Operand) -> Result<Operand> {
        self.evaluate(step)
    }

    /// Computes the rate. Generic, so that numbers and operands share one implementation.
    fn evaluate<N: ScheduleNumber>(self, step: &N) -> Result<N> {
        match self {
            Self::Constant(rate) => step.constant(rate),
            Self::Warmup { peak, warmup } => warmup_fraction(step, warmup)?.scaled(peak),
            Self::Cosine { peak, warmup, steps } => {
                // Without a warmup, step 1 has the peak rate; the rate of the last step is above 0.
                let falling = (steps as f64 - warmup as f64).max(1.0);
                let done = step.plus(-1.0 - warmup as f64)?.scaled(1.0 / falling)?.within(0.0, 1.0)?;
                warmup_fraction(step, warmup)?.times(&done.scaled(PI)?.cosine()?.plus(1.0)?.scaled(peak / 2.0)?)
            }
            Self::InverseSquareRoot { peak, warmup } => {
                let fall = step.scaled(1.0 / warmup.max(1) as f64)?.within(1.0, f64::MAX)?.inverse_root()?;
                warmup_fraction(step, warmup)?.times(&fall)?.scaled(peak)
            }
        }
    }
}

/// Returns `step / warmup`, limited to 0 to 1.
fn warmup_fraction<N: ScheduleNumber>(step: &N, warmup: u64) -> Result<N> {
    step.scaled(1.0 / warmup.max(1) as f64)?.within(0.0, 1.0)
}

/// The arithmetic of the schedules, for numbers and operands.
trait ScheduleNumber: Sized {
    fn constant(&self, value: f64) -> Result<Self>;
    fn plus(&self, value: f64) -> Result<Self>;
    fn scaled(&self, value: f64) -> Result<Self>;
    fn times(&self, other: &Self) -> Result<Self>;
    fn within(&self, low: f64, high: f64) -> Result<Self>;
    fn cosine(&self) -> Result<Self>;
    fn inverse_root(&self) -> Result<Self>;
}

impl ScheduleNumber for f64 {
    fn constant(&self, value: f64) -> Result<Self> {
        Ok(value)
    }
    fn plus(&self, value: f64) -> Result<Self> {
        Ok(self + value)
    }
    fn scaled(&self, value: f64) -> Result<Self> {
        Ok(self * value)
    }
    fn times(&self, other: &Self) -> Result<Self> {
        Ok(self * other)
    }
    fn within(&self, low: f64, high: f64) -> Result<Self> {
        Ok(self.clamp(low, high))
    }
    fn cosine(&self) -> Result<Self> {
        Ok(self.cos())
    }
    fn inverse_root(&self) -> Result<Self> {
        Ok(self.sqrt().recip())
    }
}

impl ScheduleNumber for Operand {
    fn constant(&self, value: f64) -> Result<Self> {
        self.scalar_like(value)
    }
    fn plus(&self, value: f64) -> Result<Self> {
        self.add_scalar(value)
    }
    fn scaled(&self, value: f64) -> Result<Self> {
        self.mul_scalar(value)
    }
    fn times(&self, other: &Self) -> Result<Self> {
        self.mul(other)
    }
    fn within(&self, low: f64, high: f64) -> Result<Self> {
        // The limit `f64::MAX` means no limit, and it is not a `float32`.
        self.clamp(Some(low), Some(high).filter(|high| *high < f64::from(f32::MAX)))
    }
    fn cosine(&self) -> Result<Self> {
        self.cos()
    }
    fn inverse_root(&self) -> Result<Self> {
        self.sqrt()?.reciprocal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rate: LearningRateSchedule, expected: &[(u64, f64)]) {
        for (step, expected) in expected {
            let got = rate.value(*step);
            assert!((got - expected).abs() < 1e-12, "step {step} of {rate:?} has {got}, not {expected}");
        }
    }

    #[test]
    fn a_constant_schedule_never_changes() {
        check(LearningRateSchedule::from(0.5), &[(1, 0.5), (1_000_000, 0.5)]);
    }

    #[test]
    fn a_warmup_schedule_rises_and_stays() {
        check(LearningRateSchedule::Warmup { peak: 2.0, warmup: 4 }, &[(1, 0.5), (2, 1.0), (4, 2.0), (100, 2.0)]);
        check(LearningRateSchedule::Warmup { peak: 2.0, warmup: 0 }, &[(1, 2.0)]);
    }

    #[test]
    fn a_cosine_schedule_falls_from_its_peak_to_zero() {
        let cosine = LearningRateSchedule::Cosine { peak: 1.0, warmup: 0, steps: 4 };
        check(cosine, &[(1, 1.0), (3, 0.5), (5, 0.0), (9, 0.0)]);
        assert!(cosine.value(4) > 0.0);
        let warm = LearningRateSchedule::Cosine { peak: 1.0, warmup: 2, steps: 6 };
        check(warm, &[(1, 0.5), (2, 1.0), (3, 1.0), (5, 0.5), (7, 0.0)]);
    }

    #[test]
    fn the_transformer_schedule_matches_the_paper() {
        let paper = |step: f64| 512_f64.powf(-0.5) * step.powf(-0.5).min(step * 4000_f64.powf(-1.5));
        let steps = [1, 100, 3999, 4000, 4001, 100_000];
        check(LearningRateSchedule::transformer(512, 4000), &steps.map(|step| (step, paper(step as f64))));
    }
}
