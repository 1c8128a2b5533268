//! A language model with Llama's architecture: RMS norms, rotary position embeddings, grouped-query attention, a gated
//! MLP.
//!
//! Source: Touvron et al., arXiv:2307.09288; rotary embeddings: Su et al., arXiv:2104.09864.

use saggar_tensor::NodeResult;
use saggar_tensor::op::Scalar;
use saggar_tensor::{DType, Descriptor, GraphError, NodeId, Shape, nn};

use crate::layers::{LayerBuilder, causal_mask};

const EPSILON: f64 = 1e-5;
/// Base of the rotary wavelengths.
const BASE: f64 = 100_000.0;

/// Cosines and sines by position and pair of elements.
struct RotaryTable {
    cos: NodeId,
    sin: NodeId,
}

/// Returns the logits. Shape: tokens `[b, n]` -> `[b * n, words]`. Input and output share one embedding table.
pub(crate) fn logits(l: &mut LayerBuilder<'_>) -> NodeResult {
    let tokens = l.input("tokens")?;
    let table = l.parameter("words.weight")?;
    let mut x = l.g.gather(table, tokens, 0)?;
    let shape = l.g.descriptor(x).shape.clone();
    let (heads, shared) = (l.start.metadata_number("heads"), l.start.metadata_number("shared"));
    let turns = rotary_table(l, shape[1], shape[2] / heads / 2)?;
    for index in 0..l.start.module_count("layers") {
        x = layer(l, &format!("layers.{index}"), x, [heads, shared], &turns)?;
    }
    let x = rms_norm(l, "norm", x)?;
    l.vocabulary_logits(x, table)
}

fn layer(l: &mut LayerBuilder<'_>, name: &str, x: NodeId, heads: [usize; 2], turns: &RotaryTable) -> NodeResult {
    let y = rms_norm(l, &format!("{name}.norm1"), x)?;
    let y = grouped_query_attention(l, name, y, heads, turns)?;
    let x = l.g.add(x, y)?;
    let y = rms_norm(l, &format!("{name}.norm2"), x)?;
    let gate = l.linear_without_bias(&format!("{name}.gate"), y)?;
    let gate = nn::silu(&mut l.g, gate)?;
    let wide = l.linear_without_bias(&format!("{name}.wide"), y)?;
    let y = l.g.mul(gate, wide)?;
    let y = l.linear_without_bias(&format!("{name}.narrow"), y)?;
    l.g.add(x, y)
}

/// Returns `x / sqrt(mean(x^2) + epsilon)` over the last axis, scaled. Source: Zhang and Sennrich, arXiv:1910.07467.
fn rms_norm(l: &mut LayerBuilder<'_>, name: &str, x: NodeId) -> NodeResult {
    let scale = l.parameter(&format!("{name}.weight"))?;
    let g = &mut l.g;
    let last = g.descriptor(x).shape.rank() - 1;
    let squares = g.mul(x, x)?;
    let mean = nn::reduce_mean(g, squares, &[last], true)?;
    let epsilon = g.scalar(DType::F32, Scalar::Float(EPSILON))?;
    let mean = g.add(mean, epsilon)?;
    let root = g.sqrt(mean)?;
    let x = g.div(x, root)?;
    g.mul(x, scale)
}

/// Returns causal grouped-query attention: each of the `shared` key and value heads serves a group of query heads.
fn grouped_query_attention(
    l: &mut LayerBuilder<'_>,
    name: &str,
    x: NodeId,
    [heads, shared]: [usize; 2],
    turns: &RotaryTable,
) -> NodeResult {
    let q = l.linear_without_bias(&format!("{name}.query"), x)?;
    let k = l.linear_without_bias(&format!("{name}.key"), x)?;
    let v = l.linear_without_bias(&format!("{name}.value"), x)?;
    let shape = l.g.descriptor(x).shape.clone();
    let (batch, length, width) = (shape[0], shape[1], shape[2] / heads);
    let q = l.split_heads(q, heads)?;
    let q = apply_rotary(l, q, turns)?;
    let q = l.g.reshape(q, &[batch, shared, heads / shared, length, width])?;
    let k = l.split_heads(k, shared)?;
    let k = apply_rotary(l, k, turns)?;
    let k = l.g.reshape(k, &[batch, shared, 1, length, width])?;
    let v = l.split_heads(v, shared)?;
    let v = l.g.reshape(v, &[batch, shared, 1, length, width])?;
    let g = &mut l.g;
    let k = g.transpose(k, &[0, 1, 2, 4, 3])?;
    let scores = g.matmul(q, k)?;
    let scores = g.reshape(scores, &[batch, heads, length, length])?;
    let scale = g.scalar(DType::F32, Scalar::Float(1.0 / (width as f64).sqrt()))?;
    let scores = g.mul(scores, scale)?;
    let scores = causal_mask(g, scores)?;
    let weights = nn::softmax(g, scores, 3)?;
    let weights = g.reshape(weights, &[batch, shared, heads / shared, length, length])?;
    let found = g.matmul(weights, v)?;
    let found = g.reshape(found, &[batch, heads, length, width])?;
    let found = g.transpose(found, &[0, 2, 1, 3])?;
    let found = g.reshape(found, &shape)?;
    l.linear_without_bias(&format!("{name}.output"), found)
}

/// Rotates each pair of an element of the first half and one of the second by its position's angle. Shape: `[b, h, n,
/// d]`.
fn apply_rotary(l: &mut LayerBuilder<'_>, x: NodeId, turns: &RotaryTable) -> NodeResult {
    let g = &mut l.g;
    let half = g.descriptor(x).shape[3] / 2;
    let (a, b) = (g.narrow(x, 3, 0, half)?, g.narrow(x, 3, half, half)?);
    let (near, far) = (g.mul(a, turns.cos)?, g.mul(b, turns.sin)?);
    let first = g.sub(near, far)?;
    let (near, far) = (g.mul(b, turns.cos)?, g.mul(a, turns.sin)?);
    let second = g.add(near, far)?;
    g.concat(&[first, second], 3)
}

fn rotary_table(l: &mut LayerBuilder<'_>, length: usize, half: usize) -> Result<RotaryTable, GraphError> {
    let angle = |at: usize| (at / half) as f64 * BASE.powf(-((at % half) as f64) / half as f64);
    let mut table = |of: fn(f64) -> f64| {
        let bytes: Vec<u8> = (0..length * half).flat_map(|at| (of(angle(at)) as f32).to_le_bytes()).collect();
        l.g.constant(Descriptor::new(DType::F32, Shape::new([length, half])?), bytes)
    };
    Ok(RotaryTable { cos: table(f64::cos)?, sin: table(f64::sin)? })
}
