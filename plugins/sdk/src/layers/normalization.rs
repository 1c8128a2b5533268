//! Normalisations.

use crate::bindings::tensors::DataType;
use crate::bindings::variables::Initializer;
use crate::error::{Error, Result};
use crate::operand::Operand;
use crate::variables::{Variable, Variables};

/// Layer normalisation over the last dimension. Variables: `scale`, `bias` `[features]`, ones and zeros at first.
/// Source: Ba et al., arXiv:1607.06450.
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
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        let shape = x.shape();
        let Some(last) = shape.len().checked_sub(1) else {
            let what = "what is normalised".to_owned();
            return Err(Error::Shape { what, expected: "of at least one dimension", given: shape });
        };
        let [scale, bias] = [&self.scale, &self.bias].map(|variable| to_float32(x.graph().variable(variable)?));
        let y =
            to_float32(x.clone())?.layer_normalization(Some(&scale?), Some(&bias?), &[last as u32], self.epsilon)?;
        cast_like(&y, x)
    }
}

/// Batch normalisation of channels. Variables: `scale`, `bias` `[channels]`, ones and zeros at first, and the statistics
/// `mean`, `variance` `[channels]`, which a training moves a tenth of the way to those of each batch.
///
/// A training normalises by the batch's own mean and variance, everything else by the statistics. A training graph may
/// apply it once. Source: Ioffe and Szegedy, arXiv:1502.03167.
#[derive(Debug, Clone)]
pub struct BatchNorm {
    scale: Variable,
    bias: Variable,
    mean: Variable,
    variance: Variable,
    momentum: f64,
    epsilon: f32,
}

impl BatchNorm {
    /// A normalisation of that many channels.
    ///
    /// # Errors
    /// `Host` if the variables exist with other shapes.
    pub fn new(v: &Variables, channels: u32) -> Result<Self> {
        let (zeros, ones) = (Initializer::Zeros, Initializer::Constant(1.0));
        Ok(Self {
            scale: v.parameter("scale", &[channels], &ones)?,
            bias: v.parameter("bias", &[channels], &zeros)?,
            mean: v.statistic("mean", &[channels], &zeros)?,
            variance: v.statistic("variance", &[channels], &ones)?,
            momentum: 0.1,
            epsilon: 1e-5,
        })
    }

    /// With the share by which the statistics move to those of each batch.
    #[must_use]
    pub fn momentum(mut self, share: f64) -> Self {
        self.momentum = share;
        self
    }

    /// Shape: `[batch, channels, ...]`, unchanged.
    ///
    /// # Errors
    /// `Host` if there are other channels, or a training graph applies it twice.
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        let graph = x.graph();
        let wide_x = to_float32(x.clone())?;
        let [mean, variance] = if graph.training() {
            self.update_statistics(&wide_x)?
        } else {
            [graph.variable(&self.mean)?, graph.variable(&self.variance)?]
        };
        let [scale, bias] = [&self.scale, &self.bias].map(|variable| to_float32(graph.variable(variable)?));
        let y = wide_x.batch_normalization([&mean, &variance], Some(&scale?), Some(&bias?), 1, self.epsilon)?;
        cast_like(&y, x)
    }

    /// The batch's mean and variance, towards which the statistics move.
    fn update_statistics(&self, x: &Operand) -> Result<[Operand; 2]> {
        let graph = x.graph();
        let shape = x.shape();
        let axes: Vec<u32> = (0..shape.len() as u32).filter(|axis| *axis != 1).collect();
        let centre = x.reduce_mean(&axes, true)?;
        let centred = x.sub(&centre)?;
        let variance = centred.mul(&centred)?.reduce_mean(&axes, false)?;
        let mean = centre.reshape(&variance.shape())?;
        let count: f64 = axes.iter().map(|axis| f64::from(shape[*axis as usize])).product();
        // What is kept is the variance of what the batch was drawn from.
        let drawn = variance.mul_scalar(count / (count - 1.0).max(1.0))?;
        for (variable, new) in [(&self.mean, &mean), (&self.variance, &drawn)] {
            let kept = graph.variable(variable)?.mul_scalar(1.0 - self.momentum)?;
            graph.assign_statistic(variable, &kept.add(&new.mul_scalar(self.momentum)?)?)?;
        }
        Ok([mean, variance])
    }
}

/// As `float32`.
fn to_float32(x: Operand) -> Result<Operand> {
    match x.descriptor().data_type {
        DataType::Float32 => Ok(x),
        _ => x.cast(DataType::Float32),
    }
}

/// In the data type of `x`.
fn cast_like(y: &Operand, x: &Operand) -> Result<Operand> {
    match x.descriptor().data_type {
        DataType::Float32 => Ok(y.clone()),
        before => y.cast(before),
    }
}
