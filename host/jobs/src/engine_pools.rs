//! The engines of pools, and what they say about the jobs whose workers they are to start.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use saggar_store::records::StateReason;

use crate::engine::WorkerEngine;

/// The code of a wait for a worker that an engine starts.
const WAITING_FOR_ENGINE: &str = "WAITING_FOR_ENGINE";

/// The engines by pool, and what they say about waiting jobs.
#[derive(Default)]
pub(crate) struct EnginePools {
    engines: Mutex<BTreeMap<String, Arc<dyn WorkerEngine>>>,
    reasons: Mutex<HashMap<String, String>>,
}

impl EnginePools {
    pub(crate) fn add(&self, pool: &str, engine: Arc<dyn WorkerEngine>) {
        self.engines.lock().insert(pool.to_owned(), engine);
    }

    /// Returns the engines by pool.
    pub(crate) fn engines(&self) -> BTreeMap<String, Arc<dyn WorkerEngine>> {
        self.engines.lock().clone()
    }

    /// Replaces the reasons, by the identifiers of their jobs.
    pub(crate) fn set_reasons(&self, reasons: HashMap<String, String>) {
        *self.reasons.lock() = reasons;
    }

    /// Returns why a job waits whose worker an engine is to start.
    pub(crate) fn reason(&self, job: &str) -> Option<StateReason> {
        self.reasons.lock().get(job).map(|reason| StateReason::new(WAITING_FOR_ENGINE, reason.clone()))
    }
}
