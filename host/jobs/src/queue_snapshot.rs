//! The waiting and running jobs at one time, and the decisions about them.

use std::sync::Arc;

use saggar_store::records::{ActiveJob, HostOffer, HostRecord, JobRecords, QueuedJob, ServerIdentity, UsageTotal};

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
    host: Arc<HostOffer>,
    /// All hosts of shared records; empty if there is one server.
    pub(crate) hosts: Vec<HostRecord>,
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
            let hosts = if records.is_shared() { records.hosts()? } else { Vec::new() };
            Ok((layout, waiting, records.active_jobs()?, spent, hosts))
        };
        let (layout, waiting, running, spent, hosts) = shared.with_records(read).await?;
        let (server, host) = (shared.server().clone(), shared.host_offer());
        Ok(QueueSnapshot { layout, waiting, running, spent, now_ms, server, host, hosts })
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
            host: &self.host,
            hosts: &self.hosts,
        }
    }

    /// Returns the decision for each waiting job, in scheduling order.
    pub(crate) fn decisions(&self) -> Vec<PlacementDecision> {
        placement::place_jobs(&self.placement_input())
    }
}
