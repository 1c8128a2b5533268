//! The encoder of BERT-base, on hidden states `[b, 128, 768]`.
//!
//! Source: Devlin et al., arXiv:1810.04805.

use saggar_tensor::{GraphError, NodeId, nn};

use crate::layers::LayerBuilder;

const LAYERS: usize = 12;
const HEADS: usize = 12;
const EPSILON: f64 = 1e-12;

/// Returns the hidden states after the last layer, in the input's shape.
pub(crate) fn hidden(l: &mut LayerBuilder<'_>) -> Result<NodeId, GraphError> {
    let mut x = l.input("hidden")?;
    for index in 0..LAYERS {
        x = layer(l, &format!("layers.{index}"), x)?;
    }
    Ok(x)
}

fn layer(l: &mut LayerBuilder<'_>, name: &str, x: NodeId) -> Result<NodeId, GraphError> {
    let names = ["query", "key", "value", "output"].map(|part| format!("{name}.{part}"));
    let found = l.attention(names.each_ref().map(String::as_str), x, x, HEADS, false)?;
    let sum = l.g.add(found, x)?;
    let x = l.norm(&format!("{name}.norm1"), sum, EPSILON)?;
    let y = l.linear(&format!("{name}.wide"), x)?;
    let y = nn::gelu(&mut l.g, y)?;
    let y = l.linear(&format!("{name}.narrow"), y)?;
    let sum = l.g.add(y, x)?;
    l.norm(&format!("{name}.norm2"), sum, EPSILON)
}
