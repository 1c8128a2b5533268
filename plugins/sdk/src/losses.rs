//! Losses, made of operators that have gradients. They compute in `float32`, whatever they are given.

use crate::bindings::tensors::DataType;
use crate::error::{Error, Result};
use crate::operand::Operand;

/// Cross-entropy of class numbers: how surprised a classifier is by the right answers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CrossEntropy {
    /// The share of each label that is spread over all classes evenly, 0 to 1. Source: Szegedy et al., arXiv:1512.00567.
    pub label_smoothing: f64,
    /// Labels that do not count: padding, say.
    pub ignore_index: Option<i32>,
}

impl CrossEntropy {
    /// Cross-entropy of labels that all count.
    pub fn new() -> Self {
        Self::default()
    }

    /// With that share of each label spread over all classes.
    #[must_use]
    pub fn label_smoothing(mut self, share: f64) -> Self {
        self.label_smoothing = share;
        self
    }

    /// Without the labels that are `label`.
    #[must_use]
    pub fn ignore_index(mut self, label: i32) -> Self {
        self.ignore_index = Some(label);
        self
    }

    /// Mean over the counted labels of `(1 - s) * -ln p(label) + s * masked_mean(-ln p)` with the smoothing `s`; 0 where none
    /// counts.
    ///
    /// Shape: `logits` `[..., classes]` float, `labels` `[...]` of an integer type -> a `float32` scalar.
    ///
    /// # Errors
    /// `Shape` for a scalar; `Host`; `Built`.
    pub fn loss(&self, logits: &Operand, labels: &Operand) -> Result<Operand> {
        let (logits, labels) = (logits.cast(DataType::Float32)?, labels.cast(DataType::Int32)?);
        let (axis, classes) = last_axis(&logits)?;
        // A choice, not a product: another class's logit may be infinite.
        let here = labels.one_hot(classes, DataType::Uint8)?;
        let chosen = here.where_cond(&logits, &logits.scalar_like(0.0)?)?.reduce_sum(&[axis], false)?;
        let total = logits.reduce_log_sum_exp(&[axis], false)?;
        let cost = match self.label_smoothing {
            0.0 => total.sub(&chosen)?,
            share => {
                let spread = logits.reduce_mean(&[axis], false)?.mul_scalar(share)?;
                total.sub(&chosen.mul_scalar(1.0 - share)?)?.sub(&spread)?
            }
        };
        self.masked_mean(&cost, &labels)
    }

    /// The share of the counted labels that have the largest logit; 0 where none counts.
    ///
    /// Shape: as [`CrossEntropy::loss`].
    ///
    /// # Errors
    /// `Shape` for a scalar; `Host`; `Built`.
    pub fn accuracy(&self, logits: &Operand, labels: &Operand) -> Result<Operand> {
        let (axis, _) = last_axis(logits)?;
        let labels = labels.cast(DataType::Int32)?;
        let right = logits.arg_max(axis, false)?.equal(&labels)?.cast(DataType::Float32)?;
        self.masked_mean(&right, &labels)
    }

    /// Mean of a value for each label over the labels that count.
    fn masked_mean(&self, values: &Operand, labels: &Operand) -> Result<Operand> {
        let Some(ignored) = self.ignore_index else { return values.reduce_mean(&[], false) };
        let counted = labels.not_equal(&labels.scalar_like(f64::from(ignored))?)?;
        let sum = counted.where_cond(values, &values.scalar_like(0.0)?)?.reduce_sum(&[], false)?;
        let count = counted.cast(DataType::Float32)?.reduce_sum(&[], false)?;
        sum.div(&count.clamp(Some(1.0), None)?)
    }
}

/// The share of labels that have the largest logit; a `float32` scalar.
///
/// Shape: `logits` `[..., classes]`, `labels` `[...]` of an integer type.
///
/// # Errors
/// `Shape` for a scalar; `Host`; `Built`.
pub fn accuracy(logits: &Operand, labels: &Operand) -> Result<Operand> {
    CrossEntropy::new().accuracy(logits, labels)
}

/// Mean of `(prediction - target)^2` over all elements; a `float32` scalar.
///
/// # Errors
/// `Host` if the shapes do not go together; `Built`.
pub fn mean_squared_error(prediction: &Operand, target: &Operand) -> Result<Operand> {
    let miss = prediction.cast(DataType::Float32)?.sub(&target.cast(DataType::Float32)?)?;
    miss.mul(&miss)?.reduce_mean(&[], false)
}

/// Mean of `-t ln(sigmoid(x)) - (1 - t) ln(1 - sigmoid(x))` over all elements, of logits `x` and targets `t` in `[0, 1]`;
/// a `float32` scalar.
///
/// # Errors
/// `Host` if the shapes do not go together; `Built`.
pub fn binary_cross_entropy_with_logits(logits: &Operand, targets: &Operand) -> Result<Operand> {
    let (logits, targets) = (logits.cast(DataType::Float32)?, targets.cast(DataType::Float32)?);
    // The same as ln(1 + e^x) - t x, which large logits do not overflow.
    logits.softplus()?.sub(&targets.mul(&logits)?)?.reduce_mean(&[], false)
}

/// The last axis and its size.
fn last_axis(logits: &Operand) -> Result<(u32, u32)> {
    let shape = logits.shape();
    match shape.last() {
        Some(size) => Ok((shape.len() as u32 - 1, *size)),
        None => {
            let what = "logits".to_owned();
            Err(Error::Shape { what, expected: "of at least one dimension", given: shape })
        }
    }
}
