//! Convolutions, and images resized.

use super::Operand;
use crate::bindings::graphs::{Conv2dOptions, ConvTranspose2dOptions, Resample2dOptions};
use crate::error::Result;

/// Convolutions, and images resized.
impl Operand {
    /// Two-dimensional convolution, with `bias` one number an output channel.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn conv2d(&self, filter: &Self, bias: Option<&Self>, options: Conv2dOptions) -> Result<Self> {
        self.graph.add_operand(|builder| builder.conv2d(&self.raw, &filter.raw, bias.map(Self::raw), options))
    }

    /// The adjoint of a convolution in its input, with `bias` one number an output channel.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn conv_transpose2d(
        &self,
        filter: &Self,
        bias: Option<&Self>,
        options: ConvTranspose2dOptions,
    ) -> Result<Self> {
        self.graph.add_operand(|builder| builder.conv_transpose2d(&self.raw, &filter.raw, bias.map(Self::raw), options))
    }

    /// Two axes of a four-dimensional operand resized.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn resample2d(&self, options: Resample2dOptions) -> Result<Self> {
        self.graph.add_operand(|builder| builder.resample2d(&self.raw, options))
    }
}
