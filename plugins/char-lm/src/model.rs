//! The network: a GPT with blocks of causal attention and a feed-forward layer.
//!
//! Each part is pre-normalized and has a residual connection. Source: Radford et al., "Language models are unsupervised
//! multitask learners", 2019.

use saggar_plugin::layers::{Dropout, Embedding, LayerNorm, Linear, MultiHeadAttention, PositionEmbedding};
use saggar_plugin::{DataType, Error, Initializer, Operand, Params, Result, Variables};

/// The size of the vocabulary: one token per byte value.
pub(crate) const BYTE_VALUES: u32 = 256;

/// The configuration of a model version, which determines the network's shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct GptConfig {
    /// The context length in bytes.
    pub context: u32,
    /// The number of blocks.
    pub layers: u32,
    /// The number of attention heads.
    pub heads: u32,
    /// The number of features per position; a multiple of `heads`.
    pub width: u32,
    /// The dropout rate during training.
    pub dropout: f64,
}

impl GptConfig {
    /// Reads the configuration of a model version.
    ///
    /// # Errors
    /// Returns `MissingParameter` or `Parameter` if a value is missing or invalid.
    pub fn from_params(config: &Params) -> Result<Self> {
        Ok(Self {
            context: config.require("context")?,
            layers: config.require("layers")?,
            heads: config.require("heads")?,
            width: config.require("width")?,
            dropout: config.require("dropout")?,
        })
    }

    /// Returns the configuration of a model version.
    pub fn to_params(&self) -> Params {
        Params::new()
            .with("context", self.context)
            .with("layers", self.layers)
            .with("heads", self.heads)
            .with("width", self.width)
            .with("dropout", self.dropout)
    }

    /// Returns the number of trainable parameters.
    pub fn parameter_count(&self) -> u64 {
        let width = u64::from(self.width);
        let block = 12 * width * width + 13 * width;
        let tables = u64::from(BYTE_VALUES + self.context) * width;
        u64::from(self.layers) * block + tables + 2 * width
    }
}

/// The network.
#[derive(Debug)]
pub struct Gpt {
    bytes: Embedding,
    places: PositionEmbedding,
    dropout: Dropout,
    blocks: Vec<TransformerBlock>,
    last: LayerNorm,
}

#[derive(Debug)]
struct TransformerBlock {
    before_attention: LayerNorm,
    attention: MultiHeadAttention,
    before_layer: LayerNorm,
    wide: Linear,
    narrow: Linear,
}

impl Gpt {
    /// Creates the network over these variables.
    ///
    /// # Errors
    /// Returns `Parameter` if a size is 0; `Shape` if the width is not a multiple of the heads; `Host` if the variables
    /// exist with other shapes.
    pub fn new(v: &Variables, architecture: GptConfig) -> Result<Self> {
        let GptConfig { context, layers, heads, width, dropout } = architecture;
        if width == 0 {
            let (name, expected) = ("width".to_owned(), "at least 1".to_owned());
            return Err(Error::Parameter { name, expected, given: "0".to_owned() });
        }
        let block = |number| {
            let v = v.scope(&format!("block{number}"));
            // Scaled down so that the sum over all blocks does not grow with their number.
            let small = Initializer::Normal((0.0, 0.02 / (2.0 * layers.max(1) as f32).sqrt()));
            Ok(TransformerBlock {
                before_attention: LayerNorm::new(&v.scope("before-attention"), width)?,
                attention: MultiHeadAttention::new(&v.scope("attention"), width, heads)?,
                before_layer: LayerNorm::new(&v.scope("before-layer"), width)?,
                wide: Linear::with_initializer(&v.scope("wide"), width, 4 * width, &Initializer::Normal((0.0, 0.02)))?,
                narrow: Linear::with_initializer(&v.scope("narrow"), 4 * width, width, &small)?,
            })
        };
        Ok(Self {
            bytes: Embedding::with_std(&v.scope("bytes"), BYTE_VALUES, width, 0.02)?,
            places: PositionEmbedding::new(&v.scope("places"), context, width)?,
            dropout: Dropout::new(v, dropout),
            blocks: (0..layers).map(block).collect::<Result<_>>()?,
            last: LayerNorm::new(&v.scope("last"), width)?,
        })
    }

    /// Returns the features of each position. Shape: `uint8[batch, places]` -> `[batch, places, width]`.
    ///
    /// # Errors
    /// Returns `Host` if there are more positions than the context has.
    pub fn features(&self, text: &Operand) -> Result<Operand> {
        let bytes = self.bytes.forward(&text.cast(DataType::Int32)?)?;
        let mut x = self.dropout.forward(&self.places.forward(&bytes)?)?;
        for block in &self.blocks {
            let rest = block.before_attention.forward(&x)?;
            x = x.add(&self.dropout.forward(&block.attention.forward(&rest, &rest, true, None)?)?)?;
            let rest = block.wide.forward(&block.before_layer.forward(&x)?)?.gelu()?;
            x = x.add(&self.dropout.forward(&block.narrow.forward(&rest)?)?)?;
        }
        self.last.forward(&x)
    }

    /// Returns the logits of the next byte at each position. Shape: `uint8[batch, places]` -> `[batch, places, 256]`.
    ///
    /// # Errors
    /// Returns the errors of [`Gpt::features`].
    pub fn logits(&self, text: &Operand) -> Result<Operand> {
        self.byte_logits(&self.features(text)?)
    }

    /// Returns the logits of each byte. Shape: `[..., width]` -> `[..., 256]`.
    ///
    /// # Errors
    /// Returns `Host` if the number of features differs.
    pub fn byte_logits(&self, features: &Operand) -> Result<Operand> {
        self.bytes.logits(features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpt_config_round_trips_through_params() {
        let architecture = GptConfig { context: 64, layers: 4, heads: 4, width: 128, dropout: 0.1 };
        let config = Params::parse(&architecture.to_params().to_string()).unwrap();
        assert_eq!(GptConfig::from_params(&config).unwrap(), architecture);
        config.check().unwrap();
    }

    #[test]
    fn gpt_parameters_are_counted() {
        let architecture = GptConfig { context: 8, layers: 1, heads: 2, width: 4, dropout: 0.0 };
        // Attention 4 (16 + 4), feed-forward 2 * 64 + 16 + 4, three normalizations of 8, tables of 256 and 8 vectors.
        assert_eq!(architecture.parameter_count(), 80 + 148 + 24 + 264 * 4);
    }
}
