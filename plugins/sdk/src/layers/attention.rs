//! Attention.

use super::linear::Linear;
use super::xavier_uniform;
use crate::bindings::tensors::DataType;
use crate::call_site::AtCallSite;
use crate::error::{Error, Result};
use crate::graph::operand::Operand;
use crate::tensor::descriptor;
use crate::variables::Variables;

/// Replaces masked scores. It is finite, so that a query without any visible key yields a mean and not NaN.
const MASKED_SCORE: f64 = -1e9;

/// Scaled dot-product attention, `softmax(q kᵀ / sqrt(d)) v`: for each query, the mean of the values weighted by the
/// similarity of their keys.
///
/// Shape: `q` `[batch, heads, queries, d]`, `k` `[batch, heads, keys, d]`, `v` `[batch, heads, keys, e]` ->
/// `[batch, heads, queries, e]`. DType: float, that of `v`; the softmax is computed in `float32`. `padding`
/// `uint8[batch, keys]` is 1 for keys that are masked. With `causal`, a query sees the keys up to its own position; if
/// there are more keys than queries, the last query is aligned with the last key. Source: Vaswani et al.,
/// arXiv:1706.03762.
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::layers::{padding_mask, scaled_dot_product_attention};
///
/// # fn f(q: &Operand, k: &Operand, v: &Operand, tokens: &Operand) -> Result<()> {
/// let mask = padding_mask(tokens, 0)?; // int32[batch, keys] -> uint8[batch, keys]
/// let y = scaled_dot_product_attention(q, k, v, true, Some(&mask))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `Shape` if `q` or `k` does not have four dimensions, `Host` if the operands do not match, and `Built` after
/// the graph was built.
#[track_caller]
pub fn scaled_dot_product_attention(
    q: &Operand,
    k: &Operand,
    v: &Operand,
    causal: bool,
    padding: Option<&Operand>,
) -> Result<Operand> {
    let [.., queries, width] = four_dims(q, "queries")?;
    let [batch, _, keys, _] = four_dims(k, "keys")?;
    // Scaling before the product keeps the scores within the range of float16.
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

/// Returns a mask for attention: 1 for each element that equals `padding`, else 0. Shape: `[batch, length]` of an
/// integer type -> `uint8[batch, length]`.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(tokens: &Operand) -> Result<()> {
/// let mask = layers::padding_mask(tokens, 0)?; // token 0 is padding
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `Host` if the operand is refused, and `Built` after the graph was built.
#[track_caller]
pub fn padding_mask(tokens: &Operand, padding: i32) -> Result<Operand> {
    let tokens = tokens.cast(DataType::Int32)?;
    tokens.equal(&tokens.scalar_like(f64::from(padding))?)
}

/// Returns `uint8[queries, keys]`: 1 if the key is after the query, else 0.
#[track_caller]
fn causal_mask(any: &Operand, queries: u32, keys: u32) -> Result<Operand> {
    let places = descriptor(DataType::Int32, [queries, keys]);
    let (query, key) = (any.graph().iota(&places, 0)?, any.graph().iota(&places, 1)?);
    key.greater(&query.add_scalar(f64::from(keys) - f64::from(queries))?)
}

#[track_caller]
fn four_dims(operand: &Operand, what: &str) -> Result<[u32; 4]> {
    let shape = operand.shape();
    match shape[..] {
        [a, b, c, d] => Ok([a, b, c, d]),
        _ => Err(Error::Shape { what: what.to_owned(), expected: "[batch, heads, length, features]", given: shape })
            .at_caller(),
    }
}

/// Multi-head attention. Variables: those of the linear layers `query`, `key`, `value` and `output`, each with a
/// `weight` `[features, features]` initialised with [`xavier_uniform`] and a `bias` `[features]` initialised with 0.
/// Source: Vaswani et al., arXiv:1706.03762.
///
/// Shape: `x` `[batch, length, features]`, `memory` `[batch, keys, features]` -> `[batch, length, features]`. DType:
/// that of [`Graph::float`](crate::Graph::float), unchanged.
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::layers::MultiHeadAttention;
///
/// # fn f(v: &Variables, x: &Operand, encoded: &Operand) -> Result<()> {
/// let own = MultiHeadAttention::new(&v.scope("self"), 64, 4)?;
/// let cross = MultiHeadAttention::new(&v.scope("cross"), 64, 4)?;
/// let x = own.forward(x, x, true, None)?; // causal self-attention, [batch, length, 64]
/// let x = cross.forward(&x, encoded, false, None)?; // encoded: [batch, keys, 64]
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MultiHeadAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    heads: u32,
    /// Scope of the variables.
    name: String,
}

impl MultiHeadAttention {
    /// Returns attention over `features` features with `heads` heads. `features` must be a multiple of `heads`.
    ///
    /// # Errors
    /// Returns `Shape` if it is not a multiple, and `Host` if the variables exist with other shapes.
    #[track_caller]
    pub fn new(v: &Variables, features: u32, heads: u32) -> Result<Self> {
        if heads == 0 || !features.is_multiple_of(heads) {
            let what = format!("the number of features for {heads} heads");
            return Err(Error::Shape { what, expected: "a multiple of the number of heads", given: vec![features] })
                .at_caller();
        }
        let initial = xavier_uniform(features, features);
        let map = |name| Linear::with_initializer(&v.scope(name), features, features, &initial);
        Ok(Self {
            query: map("query")?,
            key: map("key")?,
            value: map("value")?,
            output: map("output")?,
            heads,
            name: v.scope_name(),
        })
    }

    /// Attends from each position of `x` to the positions of `memory`; self-attention if both are the same operand.
    ///
    /// Shape: `x` `[batch, length, features]`, `memory` `[batch, keys, features]` -> `[batch, length, features]`.
    /// `causal` and `padding` are those of [`scaled_dot_product_attention`].
    ///
    /// # Errors
    /// Returns `Shape` if an operand does not have three dimensions, and `Host` if the shapes do not match.
    #[track_caller]
    pub fn forward(&self, x: &Operand, memory: &Operand, causal: bool, padding: Option<&Operand>) -> Result<Operand> {
        super::finish_layer(self.attend(x, memory, causal, padding), &self.name)
    }

    fn attend(&self, x: &Operand, memory: &Operand, causal: bool, padding: Option<&Operand>) -> Result<Operand> {
        let q = self.split_heads(&self.query.forward(x)?)?;
        let k = self.split_heads(&self.key.forward(memory)?)?;
        let v = self.split_heads(&self.value.forward(memory)?)?;
        let found = scaled_dot_product_attention(&q, &k, &v, causal, padding)?;
        self.output.forward(&found.transpose(&[0, 2, 1, 3])?.reshape(&x.shape())?)
    }

    /// Shape: `[batch, length, features]` -> `[batch, heads, length, features / heads]`.
    #[track_caller]
    fn split_heads(&self, x: &Operand) -> Result<Operand> {
        let shape = x.shape();
        let [batch, places, features] = shape[..] else {
            let what = "an operand of multi-head attention".to_owned();
            return Err(Error::Shape { what, expected: "[batch, length, features]", given: shape });
        };
        x.reshape(&[batch, places, self.heads, features / self.heads])?.transpose(&[0, 2, 1, 3])
    }
}
