//! The layers of the encoder and the decoder, with residual connections and post-normalization.

use saggar_plugin::layers::{Dropout, LayerNorm, Linear, MultiHeadAttention, xavier_uniform};
use saggar_plugin::{Operand, Result, Variables};

use crate::transformer_config::TransformerConfig;

/// Dropout, a residual connection and layer normalization after a part.
#[derive(Debug)]
struct AddNorm {
    dropout: Dropout,
    norm: LayerNorm,
}

impl AddNorm {
    fn new(v: &Variables, it: &TransformerConfig) -> Result<Self> {
        Ok(Self { dropout: Dropout::new(v, it.dropout), norm: LayerNorm::new(v, it.width)? })
    }

    fn forward(&self, x: &Operand, part: &Operand) -> Result<Operand> {
        self.norm.forward(&x.add(&self.dropout.forward(part)?)?)
    }
}

/// A feed-forward layer: two linear layers applied to each position.
#[derive(Debug)]
struct FeedForward {
    wide: Linear,
    narrow: Linear,
}

impl FeedForward {
    fn new(v: &Variables, it: &TransformerConfig) -> Result<Self> {
        let (width, inner) = (it.width, it.inner);
        let initial = xavier_uniform(width, inner);
        Ok(Self {
            wide: Linear::with_initializer(&v.scope("wide"), width, inner, &initial)?,
            narrow: Linear::with_initializer(&v.scope("narrow"), inner, width, &initial)?,
        })
    }

    fn forward(&self, x: &Operand) -> Result<Operand> {
        self.narrow.forward(&self.wide.forward(x)?.relu()?)
    }
}

/// A layer of the encoder: every position attends to every other.
#[derive(Debug)]
pub(crate) struct EncoderLayer {
    attention: MultiHeadAttention,
    after_attention: AddNorm,
    forward: FeedForward,
    after_forward: AddNorm,
}

impl EncoderLayer {
    pub(crate) fn new(v: &Variables, it: &TransformerConfig) -> Result<Self> {
        Ok(Self {
            attention: MultiHeadAttention::new(&v.scope("attention"), it.width, it.heads)?,
            after_attention: AddNorm::new(&v.scope("after-attention"), it)?,
            forward: FeedForward::new(&v.scope("forward"), it)?,
            after_forward: AddNorm::new(&v.scope("after-forward"), it)?,
        })
    }

    pub(crate) fn forward(&self, x: &Operand, padding: &Operand) -> Result<Operand> {
        let x = self.after_attention.forward(x, &self.attention.forward(x, x, false, Some(padding))?)?;
        self.after_forward.forward(&x, &self.forward.forward(&x)?)
    }
}

/// A layer of the decoder: every position attends to those before it and to the encoder's output.
#[derive(Debug)]
pub(crate) struct DecoderLayer {
    own: MultiHeadAttention,
    after_own: AddNorm,
    other: MultiHeadAttention,
    after_other: AddNorm,
    forward: FeedForward,
    after_forward: AddNorm,
}

impl DecoderLayer {
    pub(crate) fn new(v: &Variables, it: &TransformerConfig) -> Result<Self> {
        Ok(Self {
            own: MultiHeadAttention::new(&v.scope("own"), it.width, it.heads)?,
            after_own: AddNorm::new(&v.scope("after-own"), it)?,
            other: MultiHeadAttention::new(&v.scope("other"), it.width, it.heads)?,
            after_other: AddNorm::new(&v.scope("after-other"), it)?,
            forward: FeedForward::new(&v.scope("forward"), it)?,
            after_forward: AddNorm::new(&v.scope("after-forward"), it)?,
        })
    }

    /// The target needs no padding mask, because its padding comes after every word that counts.
    pub(crate) fn forward(&self, x: &Operand, memory: &Operand, padding: &Operand) -> Result<Operand> {
        let x = self.after_own.forward(x, &self.own.forward(x, x, true, None)?)?;
        let x = self.after_other.forward(&x, &self.other.forward(&x, memory, false, Some(padding))?)?;
        self.after_forward.forward(&x, &self.forward.forward(&x)?)
    }
}
