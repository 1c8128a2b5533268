//! Sources: nodes without tensor operands.

use serde::{Deserialize, Serialize};

use crate::DType;

/// A number that fits every data type: floats as f64, integers as i128.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Scalar {
    /// A value of a float type; rounded to the type where it is used.
    Float(f64),
    /// A value of an integer type; inference checks that it fits.
    Int(i128),
}

impl Scalar {
    /// Returns the value as a float.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Float(value) => value,
            Scalar::Int(value) => value as f64,
        }
    }
}

/// The distribution of a random source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RandomDistribution {
    /// 32 random bits, `uint32`.
    Bits,
    /// `float32` in `[0, 1)`: the upper 24 bits times 2^-24.
    Uniform,
}

impl RandomDistribution {
    /// Every distribution.
    pub const ALL: [RandomDistribution; 2] = [RandomDistribution::Bits, RandomDistribution::Uniform];

    /// Returns the word for it in text.
    pub const fn name(self) -> &'static str {
        match self {
            RandomDistribution::Bits => "bits",
            RandomDistribution::Uniform => "uniform",
        }
    }

    /// Returns the data type of its numbers.
    pub const fn dtype(self) -> DType {
        match self {
            RandomDistribution::Bits => DType::U32,
            RandomDistribution::Uniform => DType::F32,
        }
    }
}

/// A node without tensor operands, except that random numbers have a key as operand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SourceOp {
    /// The graph's input number `.0`; its name and descriptor are in the graph.
    Input(u32),
    /// The graph's constant number `.0`: dense bytes.
    Constant(u32),
    /// The same value for all elements.
    Fill(Scalar),
    /// The coordinate along `axis`, as a number of the node's data type.
    Iota {
        /// The axis whose coordinate is the value.
        axis: usize,
    },
    /// The graph's variable number `.0`, as it was when the dispatch began.
    Variable(u32),
    /// Counter-based random numbers. Operand: `key`, `uint32[4]` = seed low, seed high, step low, step high.
    ///
    /// Element `i` (row-major) is word `i % 4` of Philox4x32-10 with counter `[i / 4, step low, step high, stream]`
    /// and key `[seed low, seed high]`: it depends on nothing else, on any device.
    /// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    Random {
        /// Number of the stream; the 2^32 streams of one key are independent.
        stream: u32,
        /// Distribution of the numbers.
        distribution: RandomDistribution,
    },
}

impl SourceOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            SourceOp::Input(_) => "input",
            SourceOp::Constant(_) => "constant",
            SourceOp::Fill(_) => "fill",
            SourceOp::Iota { .. } => "iota",
            SourceOp::Variable(_) => "variable",
            SourceOp::Random { .. } => "random",
        }
    }

    pub(super) fn prototypes() -> [SourceOp; 6] {
        [
            SourceOp::Input(0),
            SourceOp::Constant(0),
            SourceOp::Fill(Scalar::Int(0)),
            SourceOp::Iota { axis: 0 },
            SourceOp::Variable(0),
            SourceOp::Random { stream: 0, distribution: RandomDistribution::Bits },
        ]
    }
}
