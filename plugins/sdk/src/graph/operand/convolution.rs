//! Convolutions and image resizing.

use super::Operand;
use crate::bindings::graphs::{Conv2dOptions, ConvTranspose2dOptions, Resample2dOptions};
use crate::error::Result;

/// Convolutions and image resizing.
impl Operand {
    /// Returns the two-dimensional convolution (cross-correlation), with one element of `bias` per output channel.
    /// Float.
    ///
    /// Shape, with default layouts: `[batch, in, height, width]`, `filter` `[out, in / groups, height, width]`, `bias`
    /// `[out]` -> `[batch, out, height', width']`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn conv2d(&self, filter: &Self, bias: Option<&Self>, options: Conv2dOptions) -> Result<Self> {
        self.graph.add_operand(|builder| builder.conv2d(&self.raw, &filter.raw, bias.map(Self::raw), options))
    }

    /// Returns the transposed two-dimensional convolution: the adjoint of a convolution with respect to its input. One
    /// element of `bias` per output channel. Float.
    ///
    /// Shape, with default layouts: `[batch, in, height, width]`, `filter` `[in, out / groups, height, width]`, `bias`
    /// `[out]` -> `[batch, out, height', width']`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn conv_transpose2d(
        &self,
        filter: &Self,
        bias: Option<&Self>,
        options: ConvTranspose2dOptions,
    ) -> Result<Self> {
        self.graph.add_operand(|builder| builder.conv_transpose2d(&self.raw, &filter.raw, bias.map(Self::raw), options))
    }

    /// Resizes two axes of a four-dimensional operand; by default the last two.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn resample2d(&self, options: Resample2dOptions) -> Result<Self> {
        self.graph.add_operand(|builder| builder.resample2d(&self.raw, options))
    }
}
