//! Why a training step cannot be computed in shards.

use thiserror::Error;

use super::GraphError;

/// Why a training step cannot be computed in shards. `place` is a node's label, or its number.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum MicroBatchError {
    /// Gradients of a loss that depends on other gradients' means.
    #[error(
        "depends on gradients, which are known only when every shard is done: gradients of gradients are not computed in shards"
    )]
    Nested {
        /// The loss, or the gradient.
        place: String,
    },
    /// An update that depends on the items of a batch.
    #[error(
        "an update depends on what is different in each shard; it may depend on gradients, and on means over the batch \
         that are one float"
    )]
    Items {
        /// What it depends on.
        place: String,
    },
    /// A variable that each shard would give another value.
    #[error(
        "each shard would give it another value; only statistics, and variables of one float, become the mean of what the \
         shards give them"
    )]
    Assigned {
        /// The variable's name.
        place: String,
    },
    /// Random numbers that a shard and the update both use.
    #[error("the random numbers of a shard are its own, and the update depends on them")]
    Random {
        /// The random numbers.
        place: String,
    },
    /// The graph would pass a limit.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl MicroBatchError {
    /// The label, node or variable at fault, where known.
    pub fn place(&self) -> Option<&str> {
        match self {
            MicroBatchError::Nested { place }
            | MicroBatchError::Items { place }
            | MicroBatchError::Assigned { place }
            | MicroBatchError::Random { place } => Some(place),
            MicroBatchError::Graph(error) => error.place(),
        }
    }
}
