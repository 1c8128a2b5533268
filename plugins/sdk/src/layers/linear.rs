//! Linear maps.

use super::fan_in_uniform;
use crate::bindings::variables::Initializer;
use crate::error::Result;
use crate::operand::Operand;
use crate::variables::{Variable, Variables};

/// A linear map. Variables: `weight` `[in, out]`, `bias` `[out]`.
#[derive(Debug, Clone)]
pub struct Linear {
    weight: Variable,
    bias: Option<Variable>,
}

impl Linear {
    /// A map from `inputs` to `outputs` features, with a bias.
    ///
    /// # Errors
    /// `Host` if the variables exist with other shapes.
    pub fn new(v: &Variables, inputs: u32, outputs: u32) -> Result<Self> {
        let initial = fan_in_uniform(f64::from(inputs));
        let weight = v.parameter("weight", &[inputs, outputs], &initial)?;
        let bias = Some(v.parameter("bias", &[outputs], &initial)?);
        Ok(Self { weight, bias })
    }

    /// A map whose weight begins as `initial` says, and whose bias begins at 0.
    ///
    /// # Errors
    /// `Host` if the variables exist with other shapes.
    pub fn with_initializer(v: &Variables, inputs: u32, outputs: u32, initial: &Initializer) -> Result<Self> {
        let weight = v.parameter("weight", &[inputs, outputs], initial)?;
        let bias = Some(v.parameter("bias", &[outputs], &Initializer::Zeros)?);
        Ok(Self { weight, bias })
    }

    /// A map without a bias.
    ///
    /// # Errors
    /// `Host` if the variable exists with another shape.
    pub fn without_bias(v: &Variables, inputs: u32, outputs: u32) -> Result<Self> {
        let weight = v.parameter("weight", &[inputs, outputs], &fan_in_uniform(f64::from(inputs)))?;
        Ok(Self { weight, bias: None })
    }

    /// Shape: `[..., in]` -> `[..., out]`.
    ///
    /// # Errors
    /// `Host` if the shape is another.
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        let y = x.matmul(&x.graph().variable(&self.weight)?)?;
        match &self.bias {
            Some(bias) => y.add(&x.graph().variable(bias)?),
            None => Ok(y),
        }
    }
}
