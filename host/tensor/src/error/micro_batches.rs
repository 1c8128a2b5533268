//! Errors of splitting a training step into micro-batches.

use thiserror::Error;

use super::GraphError;

/// The reason why a training step cannot be computed in micro-batches. `place` is a node's label, or its number.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum MicroBatchError {
    /// Gradients of a loss that depends on the means of other gradients.
    #[error(
        "depends on gradients, which are complete only after all shards: second-order gradients do not work in shards"
    )]
    Nested {
        /// The loss, or the gradient.
        place: String,
    },
    /// An update that depends on the items of a batch.
    #[error(
        "the update depends on a value that differs between shards; it can depend on gradients, and on means over the \
         batch that are one float"
    )]
    Items {
        /// The node that the update depends on.
        place: String,
    },
    /// A variable whose assigned value would differ between micro-batches.
    #[error(
        "each shard would assign a different value; only statistics, and variables of one float, become the mean of \
         the shards' values"
    )]
    Assigned {
        /// The variable's name.
        place: String,
    },
    /// Random numbers that both a micro-batch and the update use.
    #[error("the update depends on random numbers that differ between shards")]
    Random {
        /// The random numbers.
        place: String,
    },
    /// The resulting graph exceeds a limit.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl MicroBatchError {
    /// Returns the label, node or variable of the error, or `None` if unknown.
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
