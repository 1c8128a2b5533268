//! Attention.

use super::linear::Linear;
use super::xavier_uniform;
use crate::bindings::tensors::DataType;
use crate::error::{Error, Result};
use crate::operand::Operand;
use crate::tensor::descriptor;
use crate::variables::Variables;

/// Takes the place of scores that must not count. Not infinite, so that a query that may look nowhere gets a mean and
/// not NaN.
const MASKED_SCORE: f64 = -1e9;

/// `softmax(q kᵀ / sqrt(d)) v`: for each query a mean of the values, weighted by how well their keys fit.
///
/// Shape: `q` `[batch, heads, queries, d]`, `k` `[batch, heads, keys, d]`, `v` `[batch, heads, keys, e]` ->
/// `[batch, heads, queries, e]`. With `causal`, a query sees its own place and those before; where there are more keys
/// than queries, the last query stands at the last key. `padding` `uint8[batch, keys]` is 1 at keys that nobody sees.
/// Weights are computed in `float32`. Source: Vaswani et al., arXiv:1706.03762.
///
/// # Errors
/// `Shape` if an operand does not have four dimensions; `Host` if they do not go together; `Built`.
pub fn scaled_dot_product_attention(
    q: &Operand,
    k: &Operand,
    v: &Operand,
    causal: bool,
    padding: Option<&Operand>,
) -> Result<Operand> {
    let [.., queries, width] = four_dims(q, "queries")?;
    let [batch, _, keys, _] = four_dims(k, "keys")?;
    // Scaled before the product, so that it stays small enough for float16.
    let scaled = q.mul_scalar(1.0 / f64::from(width.max(1)).sqrt())?;
    let mut scores = scaled.matmul(&k.transpose(&[0, 1, 3, 2])?)?.cast(DataType::Float32)?;
    let mut hidden = padding.map(|padding| padding.reshape(&[batch, 1, 1, keys])).transpose()?;
    if causal {
        let later = causal_mask(q, queries, keys)?;
        hidden = Some(match hidden {
            Some(padding) => padding.logical_or(&later)?,
            None => later,
        });
    }
    if let Some(hidden) = hidden {
        scores = hidden.where_cond(&scores.scalar_like(MASKED_SCORE)?, &scores)?;
    }
    scores.softmax(3)?.cast(v.descriptor().data_type)?.matmul(v)
}

/// Whether each element is `padding`: a mask for attention. Shape: `[batch, places]` -> `uint8` of the same shape.
///
/// # Errors
/// `Host`; `Built`.
pub fn padding_mask(tokens: &Operand, padding: i32) -> Result<Operand> {
    let tokens = tokens.cast(DataType::Int32)?;
    tokens.equal(&tokens.scalar_like(f64::from(padding))?)
}

/// 1 where the key lies after the query. Shape: `uint8[queries, keys]`.
fn causal_mask(any: &Operand, queries: u32, keys: u32) -> Result<Operand> {
    let places = descriptor(DataType::Int32, [queries, keys]);
    let (query, key) = (any.graph().iota(&places, 0)?, any.graph().iota(&places, 1)?);
    key.greater(&query.add_scalar(f64::from(keys) - f64::from(queries))?)
}

fn four_dims(operand: &Operand, what: &str) -> Result<[u32; 4]> {
    let shape = operand.shape();
    match shape[..] {
        [a, b, c, d] => Ok([a, b, c, d]),
        _ => Err(Error::Shape { what: what.to_owned(), expected: "[batch, heads, places, features]", given: shape }),
    }
}

/// Attention of several heads, each over a part of the features. Variables: `query`, `key`, `value`, `output`, linear
/// maps between as many features. Source: Vaswani et al., arXiv:1706.03762.
#[derive(Debug, Clone)]
pub struct MultiHeadAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    heads: u32,
}

impl MultiHeadAttention {
    /// Attention over that many features, a multiple of `heads`.
    ///
    /// # Errors
    /// `Shape` if it is none; `Host` if the variables exist with other shapes.
    pub fn new(v: &Variables, features: u32, heads: u32) -> Result<Self> {
        if heads == 0 || !features.is_multiple_of(heads) {
            let what = format!("the features of {heads} heads");
            return Err(Error::Shape { what, expected: "a multiple of the heads", given: vec![features] });
        }
        let initial = xavier_uniform(features, features);
        let map = |name| Linear::with_initializer(&v.scope(name), features, features, &initial);
        Ok(Self { query: map("query")?, key: map("key")?, value: map("value")?, output: map("output")?, heads })
    }

    /// What each place of `x` finds in `memory`, which is `x` itself for self-attention.
    ///
    /// Shape: `x` `[batch, places, features]`, `memory` `[batch, keys, features]` -> `x`'s. `causal` and `padding` are
    /// those of [`scaled_dot_product_attention`].
    ///
    /// # Errors
    /// `Shape`; `Host` if the shapes are others.
    pub fn forward(&self, x: &Operand, memory: &Operand, causal: bool, padding: Option<&Operand>) -> Result<Operand> {
        let q = self.split_heads(&self.query.forward(x)?)?;
        let k = self.split_heads(&self.key.forward(memory)?)?;
        let v = self.split_heads(&self.value.forward(memory)?)?;
        let found = scaled_dot_product_attention(&q, &k, &v, causal, padding)?;
        self.output.forward(&found.transpose(&[0, 2, 1, 3])?.reshape(&x.shape())?)
    }

    /// Shape: `[batch, places, features]` -> `[batch, heads, places, features / heads]`.
    fn split_heads(&self, x: &Operand) -> Result<Operand> {
        let shape = x.shape();
        let [batch, places, features] = shape[..] else {
            let what = "what attends".to_owned();
            return Err(Error::Shape { what, expected: "[batch, places, features]", given: shape });
        };
        x.reshape(&[batch, places, self.heads, features / self.heads])?.transpose(&[0, 2, 1, 3])
    }
}
