//! The network: words to vectors, through encoder and decoder, and back to words. One table serves all three.

use saggar_plugin::layers::{Dropout, Embedding, padding_mask, sinusoidal_position_encoding};
use saggar_plugin::{Error, Operand, Params, Result, Variables};

use crate::PADDING;
use crate::encoder_decoder_layers::{DecoderLayer, EncoderLayer};

/// What the network's shapes follow from: the configuration of a model version.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformerConfig {
    /// Numbers of the vocabulary, which both languages share.
    pub words: u32,
    /// Places of the longest sentence, its end included.
    pub length: u32,
    /// Layers of the encoder, and of the decoder.
    pub layers: u32,
    /// Features of each place; a multiple of `heads`.
    pub width: u32,
    /// Heads of attention.
    pub heads: u32,
    /// Features inside each layer.
    pub inner: u32,
    /// Share of the features that a training drops.
    pub dropout: f64,
}

impl TransformerConfig {
    /// The architecture that a configuration describes.
    ///
    /// # Errors
    /// `MissingParameter`; `Parameter`.
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

    /// The configuration that describes the architecture.
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

    /// How many numbers are learnt.
    pub fn parameter_count(&self) -> u64 {
        let [width, inner] = [self.width, self.inner].map(u64::from);
        let attention = 4 * (width * width + width);
        let forward = 2 * width * inner + width + inner;
        // Two and three parts, each with a normalisation.
        let pair = 3 * attention + 2 * forward + 5 * 2 * width;
        u64::from(self.words) * width + u64::from(self.layers) * pair
    }
}

/// The network.
#[derive(Debug)]
pub struct Transformer {
    words: Embedding,
    width: u32,
    dropout: Dropout,
    encoder: Vec<EncoderLayer>,
    decoder: Vec<DecoderLayer>,
}

impl Transformer {
    /// A network over these variables.
    ///
    /// # Errors
    /// `Parameter` for a width of 0; `Shape` if the width is no multiple of the heads; `Host` if the variables exist with
    /// other shapes.
    pub fn new(v: &Variables, it: TransformerConfig) -> Result<Self> {
        if it.width == 0 {
            let (name, expected) = ("width".to_owned(), "at least 1".to_owned());
            return Err(Error::Parameter { name, expected, given: "0".to_owned() });
        }
        let (encoder, decoder) = (v.scope("encoder"), v.scope("decoder"));
        let layer = |number: u32| format!("layer{number}");
        Ok(Self {
            words: Embedding::with_std(&v.scope("words"), it.words, it.width, (it.width as f32).powf(-0.5))?,
            width: it.width,
            dropout: Dropout::new(v, it.dropout),
            encoder: (0..it.layers)
                .map(|number| EncoderLayer::new(&encoder.scope(&layer(number)), &it))
                .collect::<Result<_>>()?,
            decoder: (0..it.layers)
                .map(|number| DecoderLayer::new(&decoder.scope(&layer(number)), &it))
                .collect::<Result<_>>()?,
        })
    }

    /// What the source says. Shape: `[batch, places]` of an integer type -> `[batch, places, width]`.
    ///
    /// # Errors
    /// `Host` if the operand is no integer.
    pub fn encode(&self, source: &Operand) -> Result<Operand> {
        let padding = padding_mask(source, PADDING)?;
        let mut x = self.embed(source)?;
        for layer in &self.encoder {
            x = layer.forward(&x, &padding)?;
        }
        Ok(x)
    }

    /// What comes after each word of the target. Shape: `target` `[batch, places]`, `memory` what [`Transformer::encode`]
    /// made of `source` -> `[batch, places, width]`.
    ///
    /// # Errors
    /// `Host` if an operand is no integer or the shapes do not go together.
    pub fn decode(&self, target: &Operand, memory: &Operand, source: &Operand) -> Result<Operand> {
        let padding = padding_mask(source, PADDING)?;
        let mut x = self.embed(target)?;
        for layer in &self.decoder {
            x = layer.forward(&x, memory, &padding)?;
        }
        Ok(x)
    }

    /// How likely each word is. Shape: `[..., width]` -> `[..., words]`, logits.
    ///
    /// # Errors
    /// `Host` if there are other features.
    pub fn logits(&self, features: &Operand) -> Result<Operand> {
        self.words.logits(features)
    }

    fn embed(&self, words: &Operand) -> Result<Operand> {
        let vectors = self.words.forward(words)?.mul_scalar(f64::from(self.width).sqrt())?;
        self.dropout.forward(&sinusoidal_position_encoding(&vectors)?)
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
        // The paper says 65 million, with biases where it has them.
        assert_eq!(it.parameter_count() / 1_000_000, 63);
    }
}
