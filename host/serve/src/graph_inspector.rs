//! Inspects the graphs of model versions.

use std::fmt::Debug;
use std::path::Path;

use saggar_rest::model_graphs::ModelGraphDocument;

/// Inspects the graphs of model versions.
pub trait GraphInspector: Debug + Send + Sync {
    /// Returns the graph with this number, from 1, of the version in a directory. Called from a thread that can block, at
    /// most once at a time. The members `model` and `version` are left empty.
    ///
    /// # Errors
    /// Returns why the version has no such graph, for people.
    fn inspect(&self, version_dir: &Path, graph: usize) -> Result<ModelGraphDocument, GraphInspectError>;
}

/// Why a graph cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphInspectError {
    /// The version has fewer graphs.
    #[error("it has graphs 1 to {count}")]
    NoGraph {
        /// The number of its graphs.
        count: usize,
    },
    /// The plugin's graphs cannot be built or compiled.
    #[error("{reason}")]
    Refused {
        /// The reason.
        reason: String,
    },
    /// The inspection failed.
    #[error("{cause}")]
    Failed {
        /// The cause, for the log.
        cause: String,
    },
}
