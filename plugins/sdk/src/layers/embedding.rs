//! Embeddings of tokens and of positions in a sequence.

use crate::bindings::variables::Initializer;
use crate::call_site::AtCallSite;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::graph::operand::Operand;
use crate::variables::{Variable, Variables};

/// An embedding: a table of vectors that are looked up by index. Variable: `weight` `[count, features]`. Its gradient
/// sums over equal indices in a fixed order, so the result is deterministic.
///
/// Shape: indices `[...]` of an integer type -> `[..., features]`. DType of the result: that of
/// [`Graph::float`].
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::layers::Embedding;
///
/// # fn f(v: &Variables, tokens: &Operand) -> Result<()> {
/// let embedding = Embedding::with_std(&v.scope("tokens"), 1000, 64, 0.02)?;
/// let x = embedding.forward(tokens)?; // int32[batch, length] -> [batch, length, 64]
/// let logits = embedding.logits(&x)?; // [batch, length, 1000]
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Embedding {
    weight: Variable,
}

impl Embedding {
    /// Returns a table of `count` vectors of `features` elements, initialised normally with a standard deviation of 1.
    ///
    /// # Errors
    /// Returns `Host` if the variable exists with another shape.
    #[track_caller]
    pub fn new(v: &Variables, count: u32, features: u32) -> Result<Self> {
        Self::with_std(v, count, features, 1.0)
    }

    /// Returns a table that is initialised normally with this standard deviation.
    ///
    /// # Errors
    /// Returns `Host` if the variable exists with another shape.
    #[track_caller]
    pub fn with_std(v: &Variables, count: u32, features: u32, deviation: f32) -> Result<Self> {
        let weight = v.parameter("weight", &[count, features], &Initializer::Normal((0.0, deviation)))?;
        Ok(Self { weight })
    }

    /// Looks up the vector of each index. Shape: `[...]` of an integer type -> `[..., features]`.
    ///
    /// # Errors
    /// Returns `Host` if the operand's data type is not an integer type.
    #[track_caller]
    pub fn forward(&self, indices: &Operand) -> Result<Operand> {
        super::finish_layer(self.look_up(indices), self.weight.scope())
    }

    fn look_up(&self, indices: &Operand) -> Result<Operand> {
        indices.graph().variable(&self.weight)?.gather(indices, 0)
    }

    /// Returns the product of `x` with each vector of the table: the output layer of a language model that shares its
    /// table with the input. Shape: `[..., features]` -> `[..., count]`. Source: Press and Wolf, arXiv:1608.05859.
    ///
    /// # Errors
    /// Returns `Host` if the number of features or the data type is another.
    #[track_caller]
    pub fn logits(&self, x: &Operand) -> Result<Operand> {
        super::finish_layer(self.score(x), self.weight.scope())
    }

    fn score(&self, x: &Operand) -> Result<Operand> {
        x.matmul(&x.graph().variable(&self.weight)?.transpose(&[1, 0])?)
    }
}

/// A learnt position embedding: a vector for each position in a sequence. Variable: `weight` `[length, features]`.
///
/// Shape: `[..., positions, features]`, unchanged. DType: that of [`Graph::float`], unchanged.
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::layers::{Embedding, PositionEmbedding};
///
/// # fn f(v: &Variables, tokens: &Operand) -> Result<()> {
/// let embedding = Embedding::new(&v.scope("tokens"), 1000, 64)?;
/// let positions = PositionEmbedding::new(&v.scope("positions"), 128, 64)?;
/// let x = positions.forward(&embedding.forward(tokens)?)?; // [batch, length, 64], length at most 128
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PositionEmbedding {
    weight: Variable,
}

impl PositionEmbedding {
    /// Returns vectors for sequences of up to `length` positions, initialised normally with a standard deviation of
    /// 0.02.
    ///
    /// # Errors
    /// Returns `Host` if the variable exists with another shape.
    #[track_caller]
    pub fn new(v: &Variables, length: u32, features: u32) -> Result<Self> {
        let weight = v.parameter("weight", &[length, features], &Initializer::Normal((0.0, 0.02)))?;
        Ok(Self { weight })
    }

    /// Adds the vector of each position. Shape: `[..., positions, features]`, unchanged.
    ///
    /// # Errors
    /// Returns `Shape` if there are fewer than two dimensions, and `Host` if there are too many positions or another
    /// number of features.
    #[track_caller]
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        super::finish_layer(self.apply(x), self.weight.scope())
    }

    fn apply(&self, x: &Operand) -> Result<Operand> {
        let [places, features] = sequence_dims(x)?;
        x.add(&x.graph().variable(&self.weight)?.slice(&[0, 0], &[places, features])?)
    }
}

/// Adds a sinusoidal encoding of each position. Shape: `[..., positions, features]`, unchanged. DType: float,
/// unchanged.
///
/// Feature `2i` of position `p` is `sin(p / 10000^(2i / features))`, feature `2i + 1` is the cosine of the same angle.
/// Source: Vaswani et al., arXiv:1706.03762.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(embedded: &Operand) -> Result<()> {
/// let x = layers::sinusoidal_position_encoding(embedded)?; // [batch, length, 64], unchanged
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `Shape` if there are fewer than two dimensions, `Host` if the data type is not float, and `Built` after the
/// graph was built.
#[track_caller]
pub fn sinusoidal_position_encoding(x: &Operand) -> Result<Operand> {
    let [places, features] = sequence_dims(x)?;
    let table = sinusoid_constant(x.graph(), places, features)?;
    x.add(&table.cast(x.descriptor().data_type)?)
}

#[track_caller]
fn sinusoid_constant(graph: &Graph, places: u32, features: u32) -> Result<Operand> {
    graph.constant_f32(&[places, features], &sinusoid_table(places, features))
}

/// Returns the encoding `[places, features]`, row-major.
fn sinusoid_table(places: u32, features: u32) -> Vec<f32> {
    let element = |place: u32, feature: u32| {
        let exponent = f64::from(feature - feature % 2) / f64::from(features);
        let angle = f64::from(place) / 10_000_f64.powf(exponent);
        if feature.is_multiple_of(2) { angle.sin() as f32 } else { angle.cos() as f32 }
    };
    (0..places).flat_map(|place| (0..features).map(move |feature| element(place, feature))).collect()
}

#[track_caller]
fn sequence_dims(x: &Operand) -> Result<[u32; 2]> {
    let shape = x.shape();
    match shape[..] {
        [.., places, features] => Ok([places, features]),
        _ => {
            let what = "a sequence".to_owned();
            Err(Error::Shape { what, expected: "of at least two dimensions", given: shape }).at_caller()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sinusoid_table_matches_the_paper() {
        let table = sinusoid_table(3, 4);
        assert_eq!(table[..4], [0.0, 1.0, 0.0, 1.0]);
        let expected = [2.0_f64.sin(), 2.0_f64.cos(), 0.02_f64.sin(), 0.02_f64.cos()];
        for (got, expected) in table[8..].iter().zip(expected) {
            assert!((f64::from(*got) - expected).abs() < 1e-7, "{got} is not {expected}");
        }
    }
}
