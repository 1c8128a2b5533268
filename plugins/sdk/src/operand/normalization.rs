//! Normalisations.

use super::Operand;
use crate::bindings::graphs::InputOperandLayout;
use crate::error::Result;

/// Normalisations.
impl Operand {
    /// `exp(x)` over its sum along `axis`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn softmax(&self, axis: u32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.softmax(&self.raw, axis))
    }

    /// `(x - mean) / sqrt(variance + epsilon)` over `axes`, then scaled and shifted by operands with the dimensions of
    /// `axes`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn layer_normalization(
        &self,
        scale: Option<&Self>,
        bias: Option<&Self>,
        axes: &[u32],
        epsilon: f32,
    ) -> Result<Self> {
        let (scale, bias) = (scale.map(Self::raw), bias.map(Self::raw));
        self.graph.add_operand(|builder| builder.layer_normalization(&self.raw, scale, bias, Some(axes), epsilon))
    }

    /// `(x - mean) / sqrt(variance + epsilon)` with `statistics` mean and variance, one number for each place along
    /// `axis`; then scaled and shifted likewise.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn batch_normalization(
        &self,
        statistics: [&Self; 2],
        scale: Option<&Self>,
        bias: Option<&Self>,
        axis: u32,
        epsilon: f32,
    ) -> Result<Self> {
        let [mean, variance] = statistics.map(Self::raw);
        let (scale, bias) = (scale.map(Self::raw), bias.map(Self::raw));
        self.graph
            .add_operand(|builder| builder.batch_normalization(&self.raw, mean, variance, scale, bias, axis, epsilon))
    }

    /// Each image's each channel normalised, then scaled and shifted by one number a channel.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn instance_normalization(
        &self,
        scale: Option<&Self>,
        bias: Option<&Self>,
        epsilon: f32,
        layout: InputOperandLayout,
    ) -> Result<Self> {
        let (scale, bias) = (scale.map(Self::raw), bias.map(Self::raw));
        self.graph.add_operand(|builder| builder.instance_normalization(&self.raw, scale, bias, epsilon, layout))
    }

    binary! {
        /// `self` are logits `[batch, classes]`, `other` labels `[batch]` of an integer type: the mean over the batch of
        /// the negative log-probability of each label, a scalar.
        softmax_cross_entropy;
    }
}
