//! The configuration of a model version.

use saggar_plugin::{Params, Result};

/// The configuration of a model version, which determines the network's shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformerConfig {
    /// The size of the vocabulary, which both languages share.
    pub words: u32,
    /// The positions of the longest sentence, including its end token.
    pub length: u32,
    /// The number of encoder layers and of decoder layers.
    pub layers: u32,
    /// The number of features per position; a multiple of `heads`.
    pub width: u32,
    /// The number of attention heads.
    pub heads: u32,
    /// The inner features of the feed-forward layers.
    pub inner: u32,
    /// The dropout rate during training.
    pub dropout: f64,
}

impl TransformerConfig {
    /// Reads the configuration of a model version.
    ///
    /// # Errors
    /// Returns `MissingParameter` or `Parameter` if a value is missing or invalid.
    pub fn from_params(config: &Params) -> Result<Self> {
        Ok(Self {
            words: config.require("words")?,
            length: config.require("length")?,
            layers: config.require("layers")?,
            width: config.require("width")?,
            heads: config.require("heads")?,
            inner: config.require("inner")?,
            dropout: config.require("dropout")?,
        })
    }

    /// Returns the configuration of a model version.
    pub fn to_params(&self) -> Params {
        Params::new()
            .with("words", self.words)
            .with("length", self.length)
            .with("layers", self.layers)
            .with("width", self.width)
            .with("heads", self.heads)
            .with("inner", self.inner)
            .with("dropout", self.dropout)
    }

    /// Returns the number of trainable parameters.
    pub fn parameter_count(&self) -> u64 {
        let [width, inner] = [self.width, self.inner].map(u64::from);
        let attention = 4 * (width * width + width);
        let forward = 2 * width * inner + width + inner;
        // An encoder layer has two parts and a decoder layer three, each with a normalization.
        let pair = 3 * attention + 2 * forward + 5 * 2 * width;
        u64::from(self.words) * width + u64::from(self.layers) * pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transformer_config_round_trips_through_params() {
        let it = TransformerConfig { words: 9, length: 5, layers: 1, width: 4, heads: 2, inner: 8, dropout: 0.1 };
        let config = Params::parse(&it.to_params().to_string()).unwrap();
        assert_eq!(TransformerConfig::from_params(&config).unwrap(), it);
        config.check().unwrap();
    }

    #[test]
    fn the_base_model_has_the_parameter_count_of_the_paper() {
        let it =
            TransformerConfig { words: 37_000, length: 64, layers: 6, width: 512, heads: 8, inner: 2048, dropout: 0.1 };
        // The paper reports 65 million. This count includes the biases.
        assert_eq!(it.parameter_count() / 1_000_000, 63);
    }
}
