//! Dropout.

use crate::error::Result;
use crate::operand::Operand;
use crate::variables::Variables;

/// Zeroes a share of the elements in a training and scales the others up; does nothing otherwise. Which ones follows from
/// the namespace's seed, the step and the place in the graph, so a resumed training drops the same ones.
/// Source: Srivastava et al., JMLR 15, 2014.
#[derive(Debug, Clone)]
pub struct Dropout {
    variables: Variables,
    rate: f64,
}

impl Dropout {
    /// Zeroes that share of the elements, 0 to 1.
    pub fn new(v: &Variables, rate: f64) -> Self {
        Self { variables: v.clone(), rate }
    }

    /// Shape: any, unchanged. Float.
    ///
    /// # Errors
    /// `Host` if the operand is not float; `Built`.
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        if !x.graph().training() || self.rate <= 0.0 {
            return Ok(x.clone());
        }
        let (key, stream) = x.graph().random_stream(&self.variables)?;
        let number = x.graph().random_uniform(&x.shape(), &key, stream)?;
        let dropped = number.lesser(&number.scalar_like(self.rate)?)?;
        // A rate of 1 leaves nothing to scale.
        let kept = x.mul_scalar(1.0 / (1.0 - self.rate).max(f64::EPSILON))?;
        dropped.where_cond(&x.scalar_like(0.0)?, &kept)
    }
}
