//! Convolutions.

use super::fan_in_uniform;
use crate::bindings::graphs::{Conv2dOptions, ConvTranspose2dOptions};
use crate::error::Result;
use crate::graph::operand::Operand;
use crate::variables::{Variable, Variables};

/// A two-dimensional convolution. Variables: `weight` `[out, in / groups, height, width]`, `bias` `[out]`.
///
/// Shape: `[batch, in, height, width]` -> `[batch, out, height', width']` with
/// `height' = (height + 2 * padding - dilation * (filter - 1) - 1) / stride + 1`, rounded down, and `width'` likewise.
/// DType: that of [`Graph::float`](crate::Graph::float), unchanged.
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::layers::Conv2d;
///
/// # fn f(v: &Variables, x: &Operand) -> Result<()> {
/// let same = Conv2d::new(&v.scope("conv1"), (3, 16), [5, 5])?.padding([2, 2]);
/// let half = Conv2d::new(&v.scope("conv2"), (16, 32), [3, 3])?.padding([1, 1]).strides([2, 2]);
/// let x = same.forward(x)?.relu()?; // [batch, 3, 32, 32] -> [batch, 16, 32, 32]
/// let x = half.forward(&x)?; // [batch, 32, 16, 16]
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Conv2d {
    weight: Variable,
    bias: Option<Variable>,
    options: Conv2dOptions,
}

impl Conv2d {
    /// Returns a convolution from `channels.0` to `channels.1` channels, with a filter of `[height, width]` and a bias,
    /// without padding.
    ///
    /// # Errors
    /// Returns `Host` if the variables exist with other shapes.
    #[track_caller]
    pub fn new(v: &Variables, channels: (u32, u32), filter: [u32; 2]) -> Result<Self> {
        Self::grouped(v, channels, filter, 1)
    }

    /// Returns a grouped convolution: the channels are divided into `groups` that are convolved independently. With as
    /// many groups as input channels it is depthwise.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(v: &Variables) -> Result<()> {
    /// let depthwise = layers::Conv2d::grouped(v, (32, 32), [3, 3], 32)?.padding([1, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Host` if the variables exist with other shapes.
    #[track_caller]
    pub fn grouped(v: &Variables, channels: (u32, u32), filter: [u32; 2], groups: u32) -> Result<Self> {
        let mut convolution = Self::init_weight(v, channels, filter, groups)?;
        let initial = fan_in_uniform(fan_in_of(channels.0 / groups.max(1), filter));
        convolution.bias = Some(v.parameter("bias", &[channels.1], &initial)?);
        Ok(convolution)
    }

    /// Returns a convolution without a bias, for use before a normalisation that has one.
    ///
    /// # Errors
    /// Returns `Host` if the variable exists with another shape.
    #[track_caller]
    pub fn without_bias(v: &Variables, channels: (u32, u32), filter: [u32; 2]) -> Result<Self> {
        Self::init_weight(v, channels, filter, 1)
    }

    #[track_caller]
    fn init_weight(v: &Variables, channels: (u32, u32), filter: [u32; 2], groups: u32) -> Result<Self> {
        let (inputs, [height, width]) = (channels.0 / groups.max(1), filter);
        let initial = fan_in_uniform(fan_in_of(inputs, filter));
        let weight = v.parameter("weight", &[channels.1, inputs, height, width], &initial)?;
        Ok(Self { weight, bias: None, options: Conv2dOptions { groups: Some(groups), ..Conv2dOptions::default() } })
    }

    /// Sets the zero padding: `height` rows above and below, `width` columns left and right.
    #[must_use]
    pub fn padding(mut self, [height, width]: [u32; 2]) -> Self {
        self.options.padding = Some((height, height, width, width));
        self
    }

    /// Sets the strides: the step between windows.
    #[must_use]
    pub fn strides(mut self, [height, width]: [u32; 2]) -> Self {
        self.options.strides = Some((height, width));
        self
    }

    /// Sets the dilations: the distance between the filter's elements.
    #[must_use]
    pub fn dilations(mut self, [height, width]: [u32; 2]) -> Self {
        self.options.dilations = Some((height, width));
        self
    }

    /// Applies the convolution. Shape: `[batch, in, height, width]` -> `[batch, out, height', width']`.
    ///
    /// # Errors
    /// Returns `Host` if the shape or the data type does not match.
    #[track_caller]
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        super::finish_layer(self.apply(x), self.weight.scope())
    }

    fn apply(&self, x: &Operand) -> Result<Operand> {
        let weight = x.graph().variable(&self.weight)?;
        let bias = self.bias.as_ref().map(|bias| x.graph().variable(bias)).transpose()?;
        x.conv2d(&weight, bias.as_ref(), self.options)
    }
}

/// A transposed two-dimensional convolution, which upsamples images. Variables: `weight` `[in, out, height, width]`,
/// `bias` `[out]`.
///
/// Shape: `[batch, in, height, width]` -> `[batch, out, height', width']` with
/// `height' = (height - 1) * stride + filter - 2 * padding + output padding`, and `width'` likewise. DType: that of
/// [`Graph::float`](crate::Graph::float), unchanged.
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::layers::ConvTranspose2d;
///
/// # fn f(v: &Variables, x: &Operand) -> Result<()> {
/// let double = ConvTranspose2d::new(v, (32, 16), [4, 4])?.strides([2, 2]).padding([1, 1]);
/// let y = double.forward(x)?; // [batch, 32, 8, 8] -> [batch, 16, 16, 16]
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ConvTranspose2d {
    weight: Variable,
    bias: Variable,
    options: ConvTranspose2dOptions,
}

impl ConvTranspose2d {
    /// Returns a transposed convolution from `channels.0` to `channels.1` channels with a filter of `[height, width]`.
    ///
    /// # Errors
    /// Returns `Host` if the variables exist with other shapes.
    #[track_caller]
    pub fn new(v: &Variables, channels: (u32, u32), filter: [u32; 2]) -> Result<Self> {
        let [height, width] = filter;
        // As in PyTorch, which computes the fan in from the weight's second dimension.
        let initial = fan_in_uniform(fan_in_of(channels.1, filter));
        let weight = v.parameter("weight", &[channels.0, channels.1, height, width], &initial)?;
        let bias = v.parameter("bias", &[channels.1], &initial)?;
        Ok(Self { weight, bias, options: ConvTranspose2dOptions::default() })
    }

    /// Sets the padding: `height` rows are removed at the top and bottom of the result, `width` columns at the left and
    /// right.
    #[must_use]
    pub fn padding(mut self, [height, width]: [u32; 2]) -> Self {
        self.options.padding = Some((height, height, width, width));
        self
    }

    /// Sets the strides: the factors by which the image grows.
    #[must_use]
    pub fn strides(mut self, [height, width]: [u32; 2]) -> Self {
        self.options.strides = Some((height, width));
        self
    }

    /// Sets the rows and columns added at the end of the result. Each must be less than its stride.
    #[must_use]
    pub fn output_padding(mut self, [height, width]: [u32; 2]) -> Self {
        self.options.output_padding = Some((height, width));
        self
    }

    /// Applies the transposed convolution. Shape: `[batch, in, height, width]` -> `[batch, out, height', width']`.
    ///
    /// # Errors
    /// Returns `Host` if the shape or the data type does not match.
    #[track_caller]
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        super::finish_layer(self.apply(x), self.weight.scope())
    }

    fn apply(&self, x: &Operand) -> Result<Operand> {
        let (weight, bias) = (x.graph().variable(&self.weight)?, x.graph().variable(&self.bias)?);
        x.conv_transpose2d(&weight, Some(&bias), self.options)
    }
}

fn fan_in_of(channels: u32, [height, width]: [u32; 2]) -> f64 {
    f64::from(channels) * f64::from(height) * f64::from(width)
}
