//! The waiting and running jobs at one time, and the decisions about them.

use std::sync::Arc;

use saggar_store::records::{ActiveJob, JobRecords, QueuedJob, ServerIdentity, UsageTotal};

use crate::error::JobError;
use crate::placement::{self, PlacementDecision, PlacementInput};
use crate::scheduler_config::SchedulerConfig;
use crate::shared::SharedState;

/// A snapshot of the waiting and running jobs.
pub(crate) struct QueueSnapshot {
    pub(crate) layout: Arc<SchedulerConfig>,
    pub(crate) waiting: Vec<QueuedJob>,
    pub(crate) running: Vec<ActiveJob>,
    spent: Vec<UsageTotal>,
    now_ms: u64,
    server: ServerIdentity,
}

impl QueueSnapshot {
    /// Reads the records, and the pools, queues and limits.
    ///
    /// # Errors
    /// `Records`.
    pub(crate) async fn take(shared: &Arc<SharedState>) -> Result<QueueSnapshot, JobError> {
        let now_ms = shared.clock.now_ms();
        let limits = Arc::clone(shared);
        let read = move |records: &dyn JobRecords| {
            let layout = limits.reload_scheduler_config();
            let waiting = records.queued_jobs()?;
            let spent = if layout.limits_usage() { records.usage_totals()? } else { Vec::new() };
            Ok((layout, waiting, records.active_jobs()?, spent))
        };
        let (layout, waiting, running, spent) = shared.with_records(read).await?;
        Ok(QueueSnapshot { layout, waiting, running, spent, now_ms, server: shared.server().clone() })
    }

    /// Returns the snapshot as the input of [`placement`].
    pub(crate) fn placement_input(&self) -> PlacementInput<'_> {
        PlacementInput {
            layout: &self.layout,
            waiting: &self.waiting,
            running: &self.running,
            spent: &self.spent,
            now_ms: self.now_ms,
            server: &self.server,
        }
    }

    /// Returns the decision for each waiting job, in scheduling order.
    pub(crate) fn decisions(&self) -> Vec<PlacementDecision> {
        placement::place_jobs(&self.placement_input())
    }
}
