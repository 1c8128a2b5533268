//! Layers: variables and the operators that use them.
//!
//! Weights and biases begin uniform in `±1 / sqrt(fan in)`, which is what PyTorch does by default, where a layer says
//! nothing else. In a step of mixed precision layers compute in `float16` and normalise in `float32`.

mod attention;
mod convolution;
mod dropout;
mod embedding;
mod linear;
mod normalization;

pub use attention::{MultiHeadAttention, padding_mask, scaled_dot_product_attention};
pub use convolution::{Conv2d, ConvTranspose2d};
pub use dropout::Dropout;
pub use embedding::{Embedding, PositionEmbedding, sinusoidal_position_encoding};
pub use linear::Linear;
pub use normalization::{BatchNorm, LayerNorm};

use crate::bindings::variables::Initializer;

/// Uniform in `±1 / sqrt(n)`: Kaiming uniform with `a = sqrt(5)`, as in PyTorch's `reset_parameters`.
fn fan_in_uniform(n: f64) -> Initializer {
    let bound = (1.0 / n.max(1.0).sqrt()) as f32;
    Initializer::Uniform((-bound, bound))
}

/// Uniform in `±sqrt(6 / (fan in + fan out))`. Source: Glorot and Bengio, AISTATS 2010.
pub fn xavier_uniform(inputs: u32, outputs: u32) -> Initializer {
    let bound = (6.0 / (f64::from(inputs) + f64::from(outputs)).max(1.0)).sqrt() as f32;
    Initializer::Uniform((-bound, bound))
}
