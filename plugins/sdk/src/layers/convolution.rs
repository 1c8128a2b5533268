//! Convolutions.

use super::fan_in_uniform;
use crate::bindings::graphs::{Conv2dOptions, ConvTranspose2dOptions};
use crate::error::Result;
use crate::operand::Operand;
use crate::variables::{Variable, Variables};

/// A two-dimensional convolution. Variables: `weight` `[out, in / groups, height, width]`, `bias` `[out]`.
#[derive(Debug, Clone)]
pub struct Conv2d {
    weight: Variable,
    bias: Option<Variable>,
    options: Conv2dOptions,
}

impl Conv2d {
    /// A convolution from `channels.0` to `channels.1` channels with a filter of `[height, width]` and a bias, without
    /// padding.
    ///
    /// # Errors
    /// `Host` if the variables exist with other shapes.
    pub fn new(v: &Variables, channels: (u32, u32), filter: [u32; 2]) -> Result<Self> {
        Self::grouped(v, channels, filter, 1)
    }

    /// A convolution whose channels are in `groups` that see nothing of each other: as many as channels make it
    /// depthwise.
    ///
    /// # Errors
    /// `Host` if the variables exist with other shapes.
    pub fn grouped(v: &Variables, channels: (u32, u32), filter: [u32; 2], groups: u32) -> Result<Self> {
        let mut convolution = Self::init_weight(v, channels, filter, groups)?;
        let initial = fan_in_uniform(fan_in_of(channels.0 / groups.max(1), filter));
        convolution.bias = Some(v.parameter("bias", &[channels.1], &initial)?);
        Ok(convolution)
    }

    /// A convolution without a bias, for where a normalisation follows that has one.
    ///
    /// # Errors
    /// `Host` if the variable exists with another shape.
    pub fn without_bias(v: &Variables, channels: (u32, u32), filter: [u32; 2]) -> Result<Self> {
        Self::init_weight(v, channels, filter, 1)
    }

    fn init_weight(v: &Variables, channels: (u32, u32), filter: [u32; 2], groups: u32) -> Result<Self> {
        let (inputs, [height, width]) = (channels.0 / groups.max(1), filter);
        let initial = fan_in_uniform(fan_in_of(inputs, filter));
        let weight = v.parameter("weight", &[channels.1, inputs, height, width], &initial)?;
        Ok(Self { weight, bias: None, options: Conv2dOptions { groups: Some(groups), ..Conv2dOptions::default() } })
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

    /// With gaps between the filter's elements.
    #[must_use]
    pub fn dilations(mut self, [height, width]: [u32; 2]) -> Self {
        self.options.dilations = Some((height, width));
        self
    }

    /// Shape: `[batch, in, height, width]` -> `[batch, out, height', width']`.
    ///
    /// # Errors
    /// `Host` if the shape is another.
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        let weight = x.graph().variable(&self.weight)?;
        let bias = self.bias.as_ref().map(|bias| x.graph().variable(bias)).transpose()?;
        x.conv2d(&weight, bias.as_ref(), self.options)
    }
}

/// A transposed two-dimensional convolution, which makes images larger. Variables: `weight` `[in, out, height, width]`,
/// `bias` `[out]`.
#[derive(Debug, Clone)]
pub struct ConvTranspose2d {
    weight: Variable,
    bias: Variable,
    options: ConvTranspose2dOptions,
}

impl ConvTranspose2d {
    /// A transposed convolution from `channels.0` to `channels.1` channels with a filter of `[height, width]`.
    ///
    /// # Errors
    /// `Host` if the variables exist with other shapes.
    pub fn new(v: &Variables, channels: (u32, u32), filter: [u32; 2]) -> Result<Self> {
        let [height, width] = filter;
        // As in PyTorch, whose fan in counts the weight's second dimension.
        let initial = fan_in_uniform(fan_in_of(channels.1, filter));
        let weight = v.parameter("weight", &[channels.0, channels.1, height, width], &initial)?;
        let bias = v.parameter("bias", &[channels.1], &initial)?;
        Ok(Self { weight, bias, options: ConvTranspose2dOptions::default() })
    }

    /// With this much of the result's edge cut away: height on both sides, width on both sides.
    #[must_use]
    pub fn padding(mut self, [height, width]: [u32; 2]) -> Self {
        self.options.padding = Some((height, height, width, width));
        self
    }

    /// With the factor by which images grow.
    #[must_use]
    pub fn strides(mut self, [height, width]: [u32; 2]) -> Self {
        self.options.strides = Some((height, width));
        self
    }

    /// With this much added at the end of the result; below the strides.
    #[must_use]
    pub fn output_padding(mut self, [height, width]: [u32; 2]) -> Self {
        self.options.output_padding = Some((height, width));
        self
    }

    /// Shape: `[batch, in, height, width]` -> `[batch, out, height', width']` with
    /// `height' = (height - 1) * stride + filter - 2 * padding + output padding`.
    ///
    /// # Errors
    /// `Host` if the shape is another.
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        let (weight, bias) = (x.graph().variable(&self.weight)?, x.graph().variable(&self.bias)?);
        x.conv_transpose2d(&weight, Some(&bias), self.options)
    }
}

fn fan_in_of(channels: u32, [height, width]: [u32; 2]) -> f64 {
    f64::from(channels) * f64::from(height) * f64::from(width)
}
