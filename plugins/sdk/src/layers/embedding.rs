//! Tables of vectors: for words, and for places in a sequence.

use crate::bindings::variables::Initializer;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::operand::Operand;
use crate::variables::{Variable, Variables};

/// A table of vectors looked up by number. Variable: `weight` `[count, features]`, whose gradient adds up what each place
/// asks of its vector, in the same order every time.
#[derive(Debug, Clone)]
pub struct Embedding {
    weight: Variable,
}

impl Embedding {
    /// A table of `count` vectors of that many features, normal at first.
    ///
    /// # Errors
    /// `Host` if the variable exists with another shape.
    pub fn new(v: &Variables, count: u32, features: u32) -> Result<Self> {
        Self::with_std(v, count, features, 1.0)
    }

    /// A table whose elements begin normal with that standard deviation.
    ///
    /// # Errors
    /// `Host` if the variable exists with another shape.
    pub fn with_std(v: &Variables, count: u32, features: u32, deviation: f32) -> Result<Self> {
        let weight = v.parameter("weight", &[count, features], &Initializer::Normal((0.0, deviation)))?;
        Ok(Self { weight })
    }

    /// Shape: `[...]` of an integer type -> `[..., features]`.
    ///
    /// # Errors
    /// `Host` if the operand is no integer.
    pub fn forward(&self, indices: &Operand) -> Result<Operand> {
        indices.graph().variable(&self.weight)?.gather(indices, 0)
    }

    /// How well each vector of the table fits: the output layer of a language model that shares its table with the
    /// input. Shape: `[..., features]` -> `[..., count]`. Source: Press and Wolf, arXiv:1608.05859.
    ///
    /// # Errors
    /// `Host` if there are other features.
    pub fn logits(&self, x: &Operand) -> Result<Operand> {
        x.matmul(&x.graph().variable(&self.weight)?.transpose(&[1, 0])?)
    }
}

/// A learnt vector for each place in a sequence. Variable: `weight` `[length, features]`.
#[derive(Debug, Clone)]
pub struct PositionEmbedding {
    weight: Variable,
}

impl PositionEmbedding {
    /// Vectors for sequences of up to `length` places, normal at first with a standard deviation of 0.02.
    ///
    /// # Errors
    /// `Host` if the variable exists with another shape.
    pub fn new(v: &Variables, length: u32, features: u32) -> Result<Self> {
        let weight = v.parameter("weight", &[length, features], &Initializer::Normal((0.0, 0.02)))?;
        Ok(Self { weight })
    }

    /// The operand with each place's vector added. Shape: `[..., places, features]`, unchanged.
    ///
    /// # Errors
    /// `Shape` if there are fewer than two dimensions; `Host` if there are too many places or other features.
    pub fn forward(&self, x: &Operand) -> Result<Operand> {
        let [places, features] = sequence_dims(x)?;
        x.add(&x.graph().variable(&self.weight)?.slice(&[0, 0], &[places, features])?)
    }
}

/// The operand with sines and cosines of each place added. Shape: `[..., places, features]`, unchanged.
///
/// Feature `2i` of place `p` is `sin(p / 10000^(2i / features))`, feature `2i + 1` its cosine.
/// Source: Vaswani et al., arXiv:1706.03762.
///
/// # Errors
/// `Shape` if there are fewer than two dimensions; `Host`; `Built`.
pub fn sinusoidal_position_encoding(x: &Operand) -> Result<Operand> {
    let [places, features] = sequence_dims(x)?;
    let table = sinusoid_constant(x.graph(), places, features)?;
    x.add(&table.cast(x.descriptor().data_type)?)
}

fn sinusoid_constant(graph: &Graph, places: u32, features: u32) -> Result<Operand> {
    graph.constant_f32(&[places, features], &sinusoid_table(places, features))
}

/// The sinusoids' table, row-major.
fn sinusoid_table(places: u32, features: u32) -> Vec<f32> {
    let element = |place: u32, feature: u32| {
        let exponent = f64::from(feature - feature % 2) / f64::from(features);
        let angle = f64::from(place) / 10_000_f64.powf(exponent);
        if feature.is_multiple_of(2) { angle.sin() as f32 } else { angle.cos() as f32 }
    };
    (0..places).flat_map(|place| (0..features).map(move |feature| element(place, feature))).collect()
}

fn sequence_dims(x: &Operand) -> Result<[u32; 2]> {
    let shape = x.shape();
    match shape[..] {
        [.., places, features] => Ok([places, features]),
        _ => {
            let what = "a sequence".to_owned();
            Err(Error::Shape { what, expected: "of at least two dimensions", given: shape })
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
