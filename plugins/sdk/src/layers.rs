//! Layers: variables and the operators that use them.
//!
//! Weights and biases begin uniform in `±1 / sqrt(fan in)`, which is what PyTorch does by default.

use crate::bindings::graphs::Conv2dOptions;
use crate::bindings::variables::Initializer;
use crate::error::{Error, Result};
use crate::operand::Operand;
use crate::variables::{Variable, Variables};

/// A two-dimensional convolution with a bias. Variables: `weight` `[out, in, height, width]`, `bias` `[out]`.
#[derive(Debug, Clone)]
pub struct Conv2d {
    weight: Variable,
    bias: Variable,
    options: Conv2dOptions,
}

impl Conv2d {
    /// A convolution from `channels.0` to `channels.1` channels with a filter of `[height, width]`, without padding.
    ///
    /// # Errors
    /// `Host` if the variables exist with other shapes.
    pub fn new(v: &Variables, channels: (u32, u32), filter: [u32; 2]) -> Result<Self> {
        let [height, width] = filter;
        let initial = fan_in(f64::from(channels.0) * f64::from(height) * f64::from(width));
        let weight = v.parameter("weight", &[channels.1, channels.0, height, width], &initial)?;
        let bias = v.parameter("bias", &[channels.1], &initial)?;
        Ok(Self { weight, bias, options: Conv2dOptions::default() })
    }

    /// With zeros around the image: height on both sides, width on both sides.
    #[must_use]
    pub fn padding(mut self, [height, width]: [u32; 2]) -> Self {
        self.options.padding = Some((height, height, width, width));
        self
    }

    /// With a step between windows.
    #[must_use]
    pub fn strides(mut self, [height, width]: [u32; 2]) -> Self {
        self.options.strides = Some((height, width));
        self
    }

    /// Shape: `[batch, in, height, width]` -> `[batch, out, height', width']`.
    ///
    /// # Errors
    /// `Host` if the shape is another.
    pub fn apply(&self, x: &Operand) -> Result<Operand> {
        let weight = x.graph().variable(&self.weight)?;
        let bias = x.graph().variable(&self.bias)?;
        x.conv2d(&weight, Some(&bias), self.options)
    }
}

/// A linear map with a bias. Variables: `weight` `[in, out]`, `bias` `[out]`.
#[derive(Debug, Clone)]
pub struct Linear {
    weight: Variable,
    bias: Variable,
}

impl Linear {
    /// A map from `inputs` to `outputs` features.
    ///
    /// # Errors
    /// `Host` if the variables exist with other shapes.
    pub fn new(v: &Variables, inputs: u32, outputs: u32) -> Result<Self> {
        let initial = fan_in(f64::from(inputs));
        let weight = v.parameter("weight", &[inputs, outputs], &initial)?;
        let bias = v.parameter("bias", &[outputs], &initial)?;
        Ok(Self { weight, bias })
    }

    /// Shape: `[..., in]` -> `[..., out]`.
    ///
    /// # Errors
    /// `Host` if the shape is another.
    pub fn apply(&self, x: &Operand) -> Result<Operand> {
        let weight = x.graph().variable(&self.weight)?;
        let bias = x.graph().variable(&self.bias)?;
        x.matmul(&weight)?.add(&bias)
    }
}

/// Layer normalisation over the last dimension. Variables: `scale`, `bias` `[features]`, ones and zeros at first.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    scale: Variable,
    bias: Variable,
    epsilon: f32,
}

impl LayerNorm {
    /// A normalisation of that many features.
    ///
    /// # Errors
    /// `Host` if the variables exist with other shapes.
    pub fn new(v: &Variables, features: u32) -> Result<Self> {
        let scale = v.parameter("scale", &[features], &Initializer::Constant(1.0))?;
        let bias = v.parameter("bias", &[features], &Initializer::Zeros)?;
        Ok(Self { scale, bias, epsilon: 1e-5 })
    }

    /// Shape: `[..., features]`, unchanged.
    ///
    /// # Errors
    /// `Shape` for a scalar; `Host` if there are other features.
    pub fn apply(&self, x: &Operand) -> Result<Operand> {
        let shape = x.shape();
        let Some(last) = shape.len().checked_sub(1) else {
            let what = "what is normalised".to_owned();
            return Err(Error::Shape { what, expected: "of at least one dimension", given: shape });
        };
        let scale = x.graph().variable(&self.scale)?;
        let bias = x.graph().variable(&self.bias)?;
        x.layer_normalization(Some(&scale), Some(&bias), &[last as u32], self.epsilon)
    }
}

/// A table of vectors looked up by number. Variable: `weight` `[count, features]`, normal at first.
#[derive(Debug, Clone)]
pub struct Embedding {
    weight: Variable,
}

impl Embedding {
    /// A table of `count` vectors of that many features.
    ///
    /// # Errors
    /// `Host` if the variable exists with another shape.
    pub fn new(v: &Variables, count: u32, features: u32) -> Result<Self> {
        let weight = v.parameter("weight", &[count, features], &Initializer::Normal((0.0, 1.0)))?;
        Ok(Self { weight })
    }

    /// Shape: `[...]` of an integer type -> `[..., features]`.
    ///
    /// # Errors
    /// `Host` if the operand is no integer.
    pub fn apply(&self, indices: &Operand) -> Result<Operand> {
        indices.graph().variable(&self.weight)?.gather(indices, 0)
    }
}

/// Uniform in `±1 / sqrt(n)`: Kaiming uniform with `a = sqrt(5)`, as in PyTorch's `reset_parameters`.
fn fan_in(n: f64) -> Initializer {
    let bound = (1.0 / n.max(1.0).sqrt()) as f32;
    Initializer::Uniform((-bound, bound))
}
