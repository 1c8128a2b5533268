//! The graphs of an instance: those being built, and how finished ones become programs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::compiled_graph::ExecutableCache;
use super::pending_graph::PluginGraphBuilder;
use crate::compiler::children::CompilerMode;
use crate::host_error::HostError;

/// The graphs of an instance.
#[derive(Default)]
pub(crate) struct GraphScope {
    /// Graphs being built, by the id in their handles.
    pending: BTreeMap<u64, PluginGraphBuilder>,
    /// Number of ids that were given so far.
    ids: u64,
    /// The cache of programs that instances of one model version share.
    pub(crate) executables: Option<Arc<ExecutableCache>>,
    /// Where large graphs are compiled.
    pub(crate) compiler: CompilerMode,
}

impl GraphScope {
    /// Returns the id of the next graph. Ids are never reused.
    pub(super) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids - 1
    }

    /// Begins an empty graph.
    pub(super) fn begin(&mut self, id: u64) {
        self.pending.insert(id, PluginGraphBuilder::default());
    }

    /// Returns a graph being built.
    ///
    /// # Errors
    /// Traps if it does not exist, which is a bug in this host.
    pub(super) fn get(&self, id: u64) -> Result<&PluginGraphBuilder, HostError> {
        self.pending.get(&id).ok_or_else(missing_builder_error)
    }

    /// Returns a graph being built, to change it.
    ///
    /// # Errors
    /// As [`GraphScope::get`].
    pub(super) fn get_mut(&mut self, id: u64) -> Result<&mut PluginGraphBuilder, HostError> {
        self.pending.get_mut(&id).ok_or_else(missing_builder_error)
    }

    /// Returns a graph to change it, or `None` if it was finished already.
    pub(super) fn find_mut(&mut self, id: u64) -> Option<&mut PluginGraphBuilder> {
        self.pending.get_mut(&id)
    }

    /// Takes out a graph, to finish it.
    ///
    /// # Errors
    /// As [`GraphScope::get`].
    pub(super) fn remove(&mut self, id: u64) -> Result<PluginGraphBuilder, HostError> {
        self.pending.remove(&id).ok_or_else(missing_builder_error)
    }

    /// Drops a graph, unless it was finished already.
    pub(super) fn discard(&mut self, id: u64) {
        self.pending.remove(&id);
    }
}

/// Cannot happen: a handle is in the table as long as its graph is in the map.
fn missing_builder_error() -> HostError {
    HostError::Trap(wasmtime::Error::msg("a graph builder without its graph"))
}
