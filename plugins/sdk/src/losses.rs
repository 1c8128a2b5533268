//! Losses, composed of differentiable operators. They compute in `float32` for any float input.

use crate::bindings::tensors::DataType;
use crate::call_site::AtCallSite;
use crate::error::{Error, Result};
use crate::graph::operand::Operand;

/// Cross-entropy of logits and class indices, with label smoothing and an ignored label.
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::losses::CrossEntropy;
///
/// # fn f(logits: &Operand, labels: &Operand) -> Result<Objective> {
/// // `logits` [batch, length, classes], `labels` int32[batch, length]; label 0 is padding.
/// let cross_entropy = CrossEntropy::new().label_smoothing(0.1).ignore_index(0);
/// let loss = cross_entropy.loss(logits, labels)?;
/// Ok(Objective::new(loss).metric("accuracy", cross_entropy.accuracy(logits, labels)?))
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CrossEntropy {
    /// Label smoothing, 0 to 1: the fraction of each label that is distributed evenly over all classes. Source: Szegedy
    /// et al., arXiv:1512.00567.
    pub label_smoothing: f64,
    /// A label that is ignored, such as padding.
    pub ignore_index: Option<i32>,
}

impl CrossEntropy {
    /// Returns a cross-entropy without label smoothing and without an ignored label.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the label smoothing.
    #[must_use]
    pub fn label_smoothing(mut self, share: f64) -> Self {
        self.label_smoothing = share;
        self
    }

    /// Ignores labels that equal `label`.
    #[must_use]
    pub fn ignore_index(mut self, label: i32) -> Self {
        self.ignore_index = Some(label);
        self
    }

    /// Returns the mean over the labels that are not ignored of `(1 - s) * -ln p(label) + s * mean(-ln p)`, where `s`
    /// is the label smoothing and the second mean is over the classes. Returns 0 if all labels are ignored.
    ///
    /// Shape: `logits` `[..., classes]` float, `labels` `[...]` of an integer type -> a `float32` scalar.
    ///
    /// # Errors
    /// Returns `Shape` if `logits` is a scalar, `Host` if the shapes do not match, and `Built` after the graph was
    /// built.
    #[track_caller]
    pub fn loss(&self, logits: &Operand, labels: &Operand) -> Result<Operand> {
        let (logits, labels) = (logits.cast(DataType::Float32)?, labels.cast(DataType::Int32)?);
        let (axis, classes) = last_axis(&logits)?;
        // A selection, not a product, because the logit of another class can be infinite.
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

    /// Returns the fraction of labels that have the largest logit, among the labels that are not ignored. Returns 0 if
    /// all labels are ignored.
    ///
    /// Shape: as in [`CrossEntropy::loss`].
    ///
    /// # Errors
    /// As [`CrossEntropy::loss`].
    #[track_caller]
    pub fn accuracy(&self, logits: &Operand, labels: &Operand) -> Result<Operand> {
        let (axis, _) = last_axis(logits)?;
        let labels = labels.cast(DataType::Int32)?;
        let right = logits.arg_max(axis, false)?.equal(&labels)?.cast(DataType::Float32)?;
        self.masked_mean(&right, &labels)
    }

    /// Returns the mean of `values` over the labels that are not ignored.
    #[track_caller]
    fn masked_mean(&self, values: &Operand, labels: &Operand) -> Result<Operand> {
        let Some(ignored) = self.ignore_index else { return values.reduce_mean(&[], false) };
        let counted = labels.not_equal(&labels.scalar_like(f64::from(ignored))?)?;
        let sum = counted.where_cond(values, &values.scalar_like(0.0)?)?.reduce_sum(&[], false)?;
        let count = counted.cast(DataType::Float32)?.reduce_sum(&[], false)?;
        sum.div(&count.clamp(Some(1.0), None)?)
    }
}

/// Returns the fraction of labels that have the largest logit.
///
/// Shape: `logits` `[..., classes]` float, `labels` `[...]` of an integer type -> a `float32` scalar.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(logits: &Operand, labels: &Operand) -> Result<Objective> {
/// Ok(Objective::new(logits.softmax_cross_entropy(labels)?).metric("accuracy", accuracy(logits, labels)?))
/// # }
/// ```
///
/// # Errors
/// Returns `Shape` if `logits` is a scalar, `Host` if the shapes do not match, and `Built` after the graph was built.
#[track_caller]
pub fn accuracy(logits: &Operand, labels: &Operand) -> Result<Operand> {
    CrossEntropy::new().accuracy(logits, labels)
}

/// Returns the mean of `(prediction - target)^2` over all elements.
///
/// Shape: two operands whose shapes broadcast, of any number type -> a `float32` scalar.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(prediction: &Operand, target: &Operand) -> Result<Objective> {
/// Ok(Objective::new(losses::mean_squared_error(prediction, target)?))
/// # }
/// ```
///
/// # Errors
/// Returns `Host` if the shapes do not match, and `Built` after the graph was built.
#[track_caller]
pub fn mean_squared_error(prediction: &Operand, target: &Operand) -> Result<Operand> {
    let miss = prediction.cast(DataType::Float32)?.sub(&target.cast(DataType::Float32)?)?;
    miss.mul(&miss)?.reduce_mean(&[], false)
}

/// Returns the binary cross-entropy: the mean of `-t ln(sigmoid(x)) - (1 - t) ln(1 - sigmoid(x))` over all elements,
/// for logits `x` and targets `t` in `[0, 1]`.
///
/// Shape: two operands whose shapes broadcast, of any number type -> a `float32` scalar.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(logits: &Operand, targets: &Operand) -> Result<Objective> {
/// Ok(Objective::new(losses::binary_cross_entropy_with_logits(logits, targets)?))
/// # }
/// ```
///
/// # Errors
/// Returns `Host` if the shapes do not match, and `Built` after the graph was built.
#[track_caller]
pub fn binary_cross_entropy_with_logits(logits: &Operand, targets: &Operand) -> Result<Operand> {
    let (logits, targets) = (logits.cast(DataType::Float32)?, targets.cast(DataType::Float32)?);
    // Equal to ln(1 + e^x) - t x, which does not overflow for large logits.
    logits.softplus()?.sub(&targets.mul(&logits)?)?.reduce_mean(&[], false)
}

/// Returns the last axis and its size.
#[track_caller]
fn last_axis(logits: &Operand) -> Result<(u32, u32)> {
    let shape = logits.shape();
    match shape.last() {
        Some(size) => Ok((shape.len() as u32 - 1, *size)),
        None => {
            let what = "logits".to_owned();
            Err(Error::Shape { what, expected: "of at least one dimension", given: shape }).at_caller()
        }
    }
}
