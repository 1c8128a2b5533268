//! The base model of Vaswani et al., arXiv:1706.03762, without dropout. Encoder, decoder and output share one embedding
//! table.

use saggar_tensor::op::Scalar;
use saggar_tensor::{DType, Descriptor, GraphError, NodeId, Shape};

use crate::layers::LayerBuilder;
use crate::seq2seq::layer;

/// Base of the position wavelengths.
const BASE: f64 = 10_000.0;

/// Returns the logits. Shape: `[b * n, words]`.
pub(crate) fn logits(l: &mut LayerBuilder<'_>) -> Result<NodeId, GraphError> {
    let heads = l.start.metadata_number("heads");
    let table = l.parameter("words.weight")?;
    let mut memory = embed(l, "source", table)?;
    for index in 0..l.start.module_count("encoder") {
        memory = layer(l, &format!("encoder.{index}"), heads, memory, None)?;
    }
    let mut x = embed(l, "target", table)?;
    for index in 0..l.start.module_count("decoder") {
        x = layer(l, &format!("decoder.{index}"), heads, x, Some(memory))?;
    }
    l.vocabulary_logits(x, table)
}

/// Returns the embedding of words. Shape: words `[b, n]` -> `[b, n, d]`.
fn embed(l: &mut LayerBuilder<'_>, name: &str, table: NodeId) -> Result<NodeId, GraphError> {
    let words = l.input(name)?;
    let x = l.g.gather(table, words, 0)?;
    let shape = l.g.descriptor(x).shape.clone();
    let scale = l.g.scalar(DType::F32, Scalar::Float((shape[2] as f64).sqrt()))?;
    let x = l.g.mul(x, scale)?;
    let places = sinusoidal_positions(l, shape[1], shape[2])?;
    l.g.add(x, places)
}

/// Returns the position encoding: sines at even elements, cosines at odd ones.
fn sinusoidal_positions(l: &mut LayerBuilder<'_>, length: usize, width: usize) -> Result<NodeId, GraphError> {
    let number = |at: usize| {
        let (place, element) = ((at / width) as f64, at % width);
        let angle = place * BASE.powf(-((element / 2 * 2) as f64) / width as f64);
        (if element % 2 == 0 { angle.sin() } else { angle.cos() }) as f32
    };
    let bytes: Vec<u8> = (0..length * width).flat_map(|at| number(at).to_le_bytes()).collect();
    l.g.constant(Descriptor::new(DType::F32, Shape::new([length, width])?), bytes)
}
