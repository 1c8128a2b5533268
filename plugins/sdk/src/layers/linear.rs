//! Linear layers.

use super::fan_in_uniform;
use crate::bindings::variables::Initializer;
use crate::error::Result;
use crate::graph::operand::Operand;
use crate::variables::{Variable, Variables};

/// A linear layer, `x * weight + bias`. Variables: `weight` `[in, out]`, `bias` `[out]`.
///
/// Shape: `[..., in]` -> `[..., out]`. DType: that of [`Graph::float`](crate::Graph::float), unchanged.
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::layers::Linear;
///
/// # fn f(v: &Variables, x: &Operand) -> Result<()> {
/// let (hidden, output) = (Linear::new(&v.scope("hidden"), 784, 128)?, Linear::new(&v.scope("output"), 128, 10)?);
/// let logits = output.forward(&hidden.forward(x)?.relu()?)?; // [batch, 784] -> [batch, 10]
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Linear {
    weight: Variable,
    bias: Option<Variable>,
}

impl Linear {
    /// Returns a layer with a bias that maps `inputs` to `outputs` features.
    ///
    /// # Errors
    /// Returns `Host` if the variables exist with other shapes.
    #[track_caller]
    pub fn new(v: &Variables, inputs: u32, outputs: u32) -> Result<Self> {
        let initial = fan_in_uniform(f64::from(inputs));
        let weight = v.parameter("weight", &[inputs, outputs], &initial)?;
        let bias = Some(v.parameter("bias", &[outputs], &initial)?);
        Ok(Self { weight, bias })
    }

    /// Returns a layer whose weight is initialised with `initial`, and whose bias is initialised with 0.
    ///
    /// # Errors
    /// Returns `Host` if the variables exist with other shapes.
    #[track_caller]
    pub fn with_initializer(v: &Variables, inputs: u32, outputs: u32, initial: &Initializer) -> Result<Self> {
        let weight = v.parameter("weight", &[inputs, outputs], initial)?;
        let bias = Some(v.parameter("bias", &[outputs], &Initializer::Zeros)?);
        Ok(Self { weight, bias })
    }

    /// Returns a layer without a bias.
    ///
    /// # Errors
    /// Returns `Host` if the variable exists with another shape.
    #[track_caller]
    pub fn without_bias(v: &Variables, inputs: u32, outputs: u32) -> Result<Self> {
        let weight = v.parameter("weight", &[inputs, outputs], &fan_in_uniform(f64::from(inputs)))?;
        Ok(Self { weight, bias: None })
    }

    /// Applies the layer. Shape: `[..., in]` -> `[..., out]`.
    ///
    /// # Errors
    /// Returns `Host` if the number of features or the data type is another.
    #[track_caller]
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        super::finish_layer(self.apply(x), self.weight.scope())
    }

    fn apply(&self, x: &Operand) -> Result<Operand> {
        let y = x.matmul(&x.graph().variable(&self.weight)?)?;
        match &self.bias {
            Some(bias) => y.add(&x.graph().variable(bias)?),
            None => Ok(y),
        }
    }
}
