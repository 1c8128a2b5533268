//! A small sequence-to-sequence transformer with two encoder and two decoder layers.
//!
//! Source: Vaswani et al., arXiv:1706.03762; positions are learned.

use saggar_tensor::{GraphError, NodeId};

use crate::layers::LayerBuilder;

const LAYERS: usize = 2;
const HEADS: usize = 4;
const EPSILON: f64 = 1e-5;

/// Returns the logits. Shape: `[b * n, words]`.
pub(crate) fn logits(l: &mut LayerBuilder<'_>) -> Result<NodeId, GraphError> {
    let places = l.parameter("places")?;
    let mut memory = embed(l, "source", places)?;
    for index in 0..LAYERS {
        memory = layer(l, &format!("encoder.{index}"), HEADS, memory, None)?;
    }
    let mut x = embed(l, "target", places)?;
    for index in 0..LAYERS {
        x = layer(l, &format!("decoder.{index}"), HEADS, x, Some(memory))?;
    }
    let shape = l.g.descriptor(x).shape.clone();
    let x = l.g.reshape(x, &[shape[0] * shape[1], shape[2]])?;
    l.linear("words", x)
}

/// Returns the embedding of words. Shape: words `[b, n]` -> `[b, n, d]`.
fn embed(l: &mut LayerBuilder<'_>, name: &str, places: NodeId) -> Result<NodeId, GraphError> {
    let words = l.input(name)?;
    let table = l.parameter(&format!("{name}.weight"))?;
    let x = l.g.gather(table, words, 0)?;
    l.g.add(x, places)
}

/// Returns an encoder layer, or with a `memory` a decoder layer, with causal self-attention and attention to `memory`.
pub(crate) fn layer(
    l: &mut LayerBuilder<'_>,
    name: &str,
    heads: usize,
    x: NodeId,
    memory: Option<NodeId>,
) -> Result<NodeId, GraphError> {
    let mut x = attention_block(l, [&format!("{name}.own"), &format!("{name}.norm1")], heads, x, x, memory.is_some())?;
    if let Some(memory) = memory {
        x = attention_block(l, [&format!("{name}.other"), &format!("{name}.norm2")], heads, x, memory, false)?;
    }
    let y = l.linear(&format!("{name}.wide"), x)?;
    let y = l.relu(y)?;
    let y = l.linear(&format!("{name}.narrow"), y)?;
    let sum = l.g.add(x, y)?;
    l.norm(&format!("{name}.norm3"), sum, EPSILON)
}

/// Returns an attention block with its residual addition and normalisation.
fn attention_block(
    l: &mut LayerBuilder<'_>,
    [name, norm]: [&str; 2],
    heads: usize,
    x: NodeId,
    memory: NodeId,
    causal: bool,
) -> Result<NodeId, GraphError> {
    let names = ["query", "key", "value", "output"].map(|part| format!("{name}.{part}"));
    let found = l.attention(names.each_ref().map(String::as_str), x, memory, heads, causal)?;
    let sum = l.g.add(x, found)?;
    l.norm(norm, sum, EPSILON)
}
