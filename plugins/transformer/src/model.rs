//! The network: token embedding, encoder, decoder and output layer. Source, target and output share one embedding
//! table.

use saggar_plugin::layers::{Dropout, Embedding, padding_mask, sinusoidal_position_encoding};
use saggar_plugin::{Error, Operand, Result, Variables};

use crate::PADDING;
use crate::encoder_decoder_layers::{DecoderLayer, EncoderLayer};
use crate::transformer_config::TransformerConfig;

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
    /// Creates the network over these variables.
    ///
    /// # Errors
    /// Returns `Parameter` if the width is 0; `Shape` if the width is not a multiple of the heads; `Host` if the
    /// variables exist with other shapes.
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

    /// Encodes the source. Shape: `[batch, places]` of an integer type -> `[batch, places, width]`.
    ///
    /// # Errors
    /// Returns `Host` if the operand has no integer type.
    pub fn encode(&self, source: &Operand) -> Result<Operand> {
        let padding = padding_mask(source, PADDING)?;
        let mut x = self.embed(source)?;
        for layer in &self.encoder {
            x = layer.forward(&x, &padding)?;
        }
        Ok(x)
    }

    /// Returns the features that predict the word after each word of the target. Shape: `target` `[batch, places]`,
    /// `memory` the result of [`Transformer::encode`] for `source` -> `[batch, places, width]`.
    ///
    /// # Errors
    /// Returns `Host` if an operand has no integer type or the shapes do not fit together.
    pub fn decode(&self, target: &Operand, memory: &Operand, source: &Operand) -> Result<Operand> {
        let padding = padding_mask(source, PADDING)?;
        let mut x = self.embed(target)?;
        for layer in &self.decoder {
            x = layer.forward(&x, memory, &padding)?;
        }
        Ok(x)
    }

    /// Returns the logits of each word. Shape: `[..., width]` -> `[..., words]`.
    ///
    /// # Errors
    /// Returns `Host` if the number of features differs.
    pub fn logits(&self, features: &Operand) -> Result<Operand> {
        self.words.logits(features)
    }

    fn embed(&self, words: &Operand) -> Result<Operand> {
        let vectors = self.words.forward(words)?.mul_scalar(f64::from(self.width).sqrt())?;
        self.dropout.forward(&sinusoidal_position_encoding(&vectors)?)
    }
}
