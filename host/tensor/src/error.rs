//! What can be wrong with a graph: data, not prose.

use thiserror::Error;

use crate::limits::{ELEMENTS_MAX, RANK_MAX};

/// Why a graph, or an addition to one, is refused.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum GraphError {
    /// More dimensions than a tensor may have.
    #[error("a tensor has at most {RANK_MAX} dimensions, not {rank}")]
    RankTooLarge {
        /// The number asked for.
        rank: usize,
    },
    /// More elements than a tensor may have.
    #[error("a tensor has at most {ELEMENTS_MAX} elements, and {dims:?} has more")]
    TooManyElements {
        /// The dimensions asked for.
        dims: Vec<usize>,
    },
}
