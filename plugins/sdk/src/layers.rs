//! Layers: variables and the operators that use them.
//!
//! Unless a layer's documentation says otherwise, weights and biases are initialised uniformly in `±1 / sqrt(fan in)`,
//! as in PyTorch. Parameters are stored as `float32`. In mixed precision, layers compute in `float16` and
//! normalisations compute in `float32`; the inputs must then be cast to [`Graph::float`](crate::Graph::float).

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
use crate::call_site::AtCallSite;
use crate::error::Result;
use crate::graph::operand::Operand;

/// Labels the result of a layer with the layer's name, the scope of its variables, and adds the name to an error.
#[track_caller]
fn finish_layer(result: Result<Operand>, layer: &str) -> Result<Operand> {
    let operand = result.in_layer(layer)?;
    Ok(if layer.is_empty() { operand } else { operand.label(layer) })
}

/// Returns a uniform initialiser in `±1 / sqrt(n)`: Kaiming uniform with `a = sqrt(5)`, as in PyTorch's
/// `reset_parameters`.
fn fan_in_uniform(n: f64) -> Initializer {
    let bound = (1.0 / n.max(1.0).sqrt()) as f32;
    Initializer::Uniform((-bound, bound))
}

/// Returns a uniform initialiser in `±sqrt(6 / (fan in + fan out))`. Source: Glorot and Bengio, AISTATS 2010.
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::layers::{Linear, xavier_uniform};
///
/// # fn f(v: &Variables) -> Result<()> {
/// let linear = Linear::with_initializer(v, 64, 10, &xavier_uniform(64, 10))?;
/// # Ok(())
/// # }
/// ```
pub fn xavier_uniform(inputs: u32, outputs: u32) -> Initializer {
    let bound = (6.0 / (f64::from(inputs) + f64::from(outputs)).max(1.0)).sqrt() as f32;
    Initializer::Uniform((-bound, bound))
}
