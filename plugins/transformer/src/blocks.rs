//! The layers of encoder and decoder. Each part is added to what goes into it, and the sum is normalised.

use saggar_plugin::layers::{Dropout, LayerNorm, Linear, MultiHeadAttention, xavier};
use saggar_plugin::{Operand, Result, Variables};

use crate::model::Architecture;

/// A part, dropped out of, added to what went into it, and normalised.
#[derive(Debug)]
struct Residual {
    dropout: Dropout,
    norm: LayerNorm,
}

impl Residual {
    fn new(v: &Variables, it: &Architecture) -> Result<Self> {
        Ok(Self { dropout: Dropout::new(v, it.dropout), norm: LayerNorm::new(v, it.width)? })
    }

    fn apply(&self, x: &Operand, part: &Operand) -> Result<Operand> {
        self.norm.apply(&x.add(&self.dropout.apply(part)?)?)
    }
}

/// Two linear maps over each place alone.
#[derive(Debug)]
struct FeedForward {
    wide: Linear,
    narrow: Linear,
}

impl FeedForward {
    fn new(v: &Variables, it: &Architecture) -> Result<Self> {
        let (width, inner) = (it.width, it.inner);
        let initial = xavier(width, inner);
        Ok(Self {
            wide: Linear::with_initial(&v.scope("wide"), width, inner, &initial)?,
            narrow: Linear::with_initial(&v.scope("narrow"), inner, width, &initial)?,
        })
    }

    fn apply(&self, x: &Operand) -> Result<Operand> {
        self.narrow.apply(&self.wide.apply(x)?.relu()?)
    }
}

/// A layer of the encoder: every place looks at every other.
#[derive(Debug)]
pub(crate) struct EncoderLayer {
    attention: MultiHeadAttention,
    after_attention: Residual,
    forward: FeedForward,
    after_forward: Residual,
}

impl EncoderLayer {
    pub(crate) fn new(v: &Variables, it: &Architecture) -> Result<Self> {
        Ok(Self {
            attention: MultiHeadAttention::new(&v.scope("attention"), it.width, it.heads)?,
            after_attention: Residual::new(&v.scope("after-attention"), it)?,
            forward: FeedForward::new(&v.scope("forward"), it)?,
            after_forward: Residual::new(&v.scope("after-forward"), it)?,
        })
    }

    pub(crate) fn apply(&self, x: &Operand, padding: &Operand) -> Result<Operand> {
        let x = self.after_attention.apply(x, &self.attention.apply(x, x, false, Some(padding))?)?;
        self.after_forward.apply(&x, &self.forward.apply(&x)?)
    }
}

/// A layer of the decoder: every place looks at those before it, and at the encoder's.
#[derive(Debug)]
pub(crate) struct DecoderLayer {
    own: MultiHeadAttention,
    after_own: Residual,
    other: MultiHeadAttention,
    after_other: Residual,
    forward: FeedForward,
    after_forward: Residual,
}

impl DecoderLayer {
    pub(crate) fn new(v: &Variables, it: &Architecture) -> Result<Self> {
        Ok(Self {
            own: MultiHeadAttention::new(&v.scope("own"), it.width, it.heads)?,
            after_own: Residual::new(&v.scope("after-own"), it)?,
            other: MultiHeadAttention::new(&v.scope("other"), it.width, it.heads)?,
            after_other: Residual::new(&v.scope("after-other"), it)?,
            forward: FeedForward::new(&v.scope("forward"), it)?,
            after_forward: Residual::new(&v.scope("after-forward"), it)?,
        })
    }

    /// Padding of the target needs no mask: it comes after every word that counts.
    pub(crate) fn apply(&self, x: &Operand, memory: &Operand, padding: &Operand) -> Result<Operand> {
        let x = self.after_own.apply(x, &self.own.apply(x, x, true, None)?)?;
        let x = self.after_other.apply(&x, &self.other.apply(&x, memory, false, Some(padding))?)?;
        self.after_forward.apply(&x, &self.forward.apply(&x)?)
    }
}
