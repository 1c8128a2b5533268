//! Normalisation layers.

use crate::bindings::tensors::DataType;
use crate::bindings::variables::Initializer;
use crate::error::{Error, Result};
use crate::graph::operand::Operand;
use crate::variables::{Variable, Variables};

/// Layer normalisation over the last dimension. Variables: `scale` `[features]`, initialised with 1, and `bias`
/// `[features]`, initialised with 0. Epsilon is 1e-5. Source: Ba et al., arXiv:1607.06450.
///
/// Shape: `[..., features]`, unchanged. DType: float, unchanged; computed in `float32`.
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::layers::LayerNorm;
///
/// # fn f(v: &Variables, x: &Operand) -> Result<()> {
/// let norm = LayerNorm::new(&v.scope("norm"), 64)?;
/// let x = norm.forward(x)?; // [batch, length, 64], unchanged
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct LayerNorm {
    scale: Variable,
    bias: Variable,
    epsilon: f32,
}

impl LayerNorm {
    /// Returns a normalisation of `features` features.
    ///
    /// # Errors
    /// Returns `Host` if the variables exist with other shapes.
    #[track_caller]
    pub fn new(v: &Variables, features: u32) -> Result<Self> {
        let scale = v.parameter("scale", &[features], &Initializer::Constant(1.0))?;
        let bias = v.parameter("bias", &[features], &Initializer::Zeros)?;
        Ok(Self { scale, bias, epsilon: 1e-5 })
    }

    /// Applies the normalisation. Shape: `[..., features]`, unchanged.
    ///
    /// # Errors
    /// Returns `Shape` for a scalar, and `Host` if the number of features is another.
    #[track_caller]
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        super::finish_layer(self.apply(x), self.scale.scope())
    }

    fn apply(&self, x: &Operand) -> Result<Operand> {
        let shape = x.shape();
        let Some(last) = shape.len().checked_sub(1) else {
            let what = "the input of layer normalisation".to_owned();
            return Err(Error::Shape { what, expected: "of at least one dimension", given: shape });
        };
        let [scale, bias] = [&self.scale, &self.bias].map(|variable| to_float32(x.graph().variable(variable)?));
        let y =
            to_float32(x.clone())?.layer_normalization(Some(&scale?), Some(&bias?), &[last as u32], self.epsilon)?;
        cast_like(&y, x)
    }
}

/// Batch normalisation of channels. Variables: `scale` `[channels]`, initialised with 1, `bias` `[channels]`,
/// initialised with 0, and the running statistics `mean` `[channels]` and `variance` `[channels]`, initialised with 0
/// and 1. Epsilon is 1e-5.
///
/// A training graph normalises with the mean and variance of the batch, and moves the running statistics a tenth of the
/// way towards them. Other graphs normalise with the running statistics. A training graph can apply the layer only
/// once. Source: Ioffe and Szegedy, arXiv:1502.03167.
///
/// Shape: `[batch, channels, ...]`, unchanged. DType: float, unchanged; computed in `float32`.
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::layers::{BatchNorm, Conv2d};
///
/// # fn f(v: &Variables, x: &Operand) -> Result<()> {
/// let conv = Conv2d::without_bias(&v.scope("conv"), (3, 16), [3, 3])?;
/// let norm = BatchNorm::new(&v.scope("norm"), 16)?;
/// let x = norm.forward(&conv.forward(x)?)?.relu()?; // [batch, 3, 32, 32] -> [batch, 16, 30, 30]
/// # Ok(())
/// # }
/// ```
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
    /// Returns a normalisation of `channels` channels.
    ///
    /// # Errors
    /// Returns `Host` if the variables exist with other shapes.
    #[track_caller]
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

    /// Sets the momentum, the weight of a batch in the running statistics:
    /// `statistic = (1 - share) * statistic + share * batch`. Default: 0.1.
    #[must_use]
    pub fn momentum(mut self, share: f64) -> Self {
        self.momentum = share;
        self
    }

    /// Applies the normalisation. Shape: `[batch, channels, ...]`, unchanged.
    ///
    /// # Errors
    /// Returns `Host` if the number of channels is another, or a training graph applies the layer twice.
    #[track_caller]
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        super::finish_layer(self.apply(x), self.scale.scope())
    }

    fn apply(&self, x: &Operand) -> Result<Operand> {
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

    /// Updates the running statistics. Returns the mean and variance of the batch.
    #[track_caller]
    fn update_statistics(&self, x: &Operand) -> Result<[Operand; 2]> {
        let graph = x.graph();
        let shape = x.shape();
        let axes: Vec<u32> = (0..shape.len() as u32).filter(|axis| *axis != 1).collect();
        let centre = x.reduce_mean(&axes, true)?;
        let centred = x.sub(&centre)?;
        let variance = centred.mul(&centred)?.reduce_mean(&axes, false)?;
        let mean = centre.reshape(&variance.shape())?;
        let count: f64 = axes.iter().map(|axis| f64::from(shape[*axis as usize])).product();
        // The running variance is the unbiased estimate.
        let drawn = variance.mul_scalar(count / (count - 1.0).max(1.0))?;
        for (variable, new) in [(&self.mean, &mean), (&self.variance, &drawn)] {
            let old_share = graph.variable(variable)?.mul_scalar(1.0 - self.momentum)?;
            graph.assign_statistic(variable, &old_share.add(&new.mul_scalar(self.momentum)?)?)?;
        }
        Ok([mean, variance])
    }
}

/// Casts the operand to `float32`.
#[track_caller]
fn to_float32(x: Operand) -> Result<Operand> {
    match x.descriptor().data_type {
        DataType::Float32 => Ok(x),
        _ => x.cast(DataType::Float32),
    }
}

/// Casts `y` to the data type of `x`.
#[track_caller]
fn cast_like(y: &Operand, x: &Operand) -> Result<Operand> {
    match x.descriptor().data_type {
        DataType::Float32 => Ok(y.clone()),
        before => y.cast(before),
    }
}
