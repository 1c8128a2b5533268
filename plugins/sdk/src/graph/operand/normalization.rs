//! Normalisations.

use super::Operand;
use crate::bindings::graphs::InputOperandLayout;
use crate::error::Result;

/// Normalisations.
impl Operand {
    /// Returns `exp(x)` divided by its sum along `axis`. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn softmax(&self, axis: u32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.softmax(&self.raw, axis))
    }

    /// Returns `(x - mean) / sqrt(variance + epsilon)`, with mean and variance over `axes`, then multiplied by `scale`
    /// and added to `bias`, whose shapes are the dimensions of `axes`. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
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

    /// Returns `(x - mean) / sqrt(variance + epsilon)`, with the given `statistics` mean and variance, then multiplied
    /// by `scale` and added to `bias`. Each of the four has one element per index along `axis`. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
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

    /// Normalises each channel of each image, then multiplies by `scale` and adds `bias`, which have one element per
    /// channel. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
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

    unary! {
        /// Returns `(x - mean) / max(std, 1 / sqrt(N))` for each item of a batch `[batch, item...]`, where mean and
        /// standard deviation are those of the item's `N` elements. Float.
        per_image_standardization;
    }

    binary! {
        /// Returns the mean over the batch of each label's negative log-probability. `self` are the logits, `other` the
        /// labels.
        ///
        /// Shape: `[batch, classes]` float, `[batch]` of an integer type -> a scalar.
        softmax_cross_entropy;
    }
}
