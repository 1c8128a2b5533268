//! Dropout.

use crate::error::Result;
use crate::graph::operand::Operand;
use crate::variables::Variables;

/// Dropout: in a training graph, sets a random fraction `rate` of the elements to zero and scales the others by
/// `1 / (1 - rate)`. In other graphs it returns its operand. The choice of elements depends on the namespace's seed, the
/// step and the order of the layers in the graph, so a resumed training drops the same elements.
/// Source: Srivastava et al., JMLR 15, 2014.
///
/// Shape: any, unchanged. DType: float, unchanged.
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::layers::Dropout;
///
/// # fn f(v: &Variables, x: &Operand) -> Result<()> {
/// let dropout = Dropout::new(v, 0.1);
/// let x = dropout.forward(x)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Dropout {
    variables: Variables,
    rate: f64,
}

impl Dropout {
    /// Returns dropout with this rate, from 0 to 1.
    pub fn new(v: &Variables, rate: f64) -> Self {
        Self { variables: v.clone(), rate }
    }

    /// Applies dropout. Shape: any, unchanged. DType: float, unchanged.
    ///
    /// # Errors
    /// Returns `Host` if the operand is not float, and `Built` after the graph was built.
    #[track_caller]
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        if !x.graph().training() || self.rate <= 0.0 {
            return Ok(x.clone());
        }
        let (key, stream) = x.graph().random_stream(&self.variables)?;
        let number = x.graph().random_uniform(&x.shape(), &key, stream)?;
        let dropped = number.lesser(&number.scalar_like(self.rate)?)?;
        // With a rate of 1 no element is kept; the limit avoids a division by zero.
        let scaled = x.mul_scalar(1.0 / (1.0 - self.rate).max(f64::EPSILON))?;
        dropped.where_cond(&x.scalar_like(0.0)?, &scaled)
    }
}
