//! The graphs of model versions that were inspected last.

use std::collections::VecDeque;

use parking_lot::Mutex;
use saggar_rest::model_graphs::ModelGraphDocument;

use crate::limits::GRAPHS_CACHED_MAX;

/// The graphs that were inspected last. Graphs are inspected one at a time, because each takes a process.
#[derive(Debug, Default)]
pub(crate) struct InspectedGraphs {
    /// Held while a graph is inspected.
    pub(crate) turn: tokio::sync::Mutex<()>,
    newest: Mutex<VecDeque<InspectedGraph>>,
}

/// A graph of a version. A version never changes, but one of a model that was removed and made again has another time.
#[derive(Debug)]
struct InspectedGraph {
    created_ms: u64,
    document: ModelGraphDocument,
}

impl InspectedGraphs {
    /// Returns the graph if it was inspected.
    pub(crate) fn find(&self, model: &str, version: u64, graph: usize, created_ms: u64) -> Option<ModelGraphDocument> {
        let newest = self.newest.lock();
        let is_same = |it: &&InspectedGraph| {
            it.document.model == model
                && (it.document.version, it.document.graph, it.created_ms) == (version, graph, created_ms)
        };
        newest.iter().find(is_same).map(|it| it.document.clone())
    }

    /// Keeps a graph, and drops the oldest if there are too many.
    pub(crate) fn add(&self, created_ms: u64, document: ModelGraphDocument) {
        let mut newest = self.newest.lock();
        if newest.len() == GRAPHS_CACHED_MAX {
            newest.pop_front();
        }
        newest.push_back(InspectedGraph { created_ms, document });
    }
}
