//! The waiting and running jobs at one time, and the decisions about them.

use std::sync::Arc;

use saggar_store::RecordError;
use saggar_store::records::{
    HostOffer, HostRecord, JobRecords, PlacementQuery, PlacementState, QueueSelection, ServerIdentity,
};

use crate::error::JobError;
use crate::placement::{self, PlacementDecision, PlacementInput};
use crate::scheduler_config::SchedulerConfig;
use crate::shared::SharedState;

/// What was read of the queue, and of the hosts.
type QueueState = (PlacementState, Vec<HostRecord>);

/// A snapshot of the waiting and running jobs.
#[derive(Clone, Debug)]
pub(crate) struct QueueSnapshot {
    pub(crate) layout: Arc<SchedulerConfig>,
    pub(crate) state: PlacementState,
    now_ms: u64,
    server: ServerIdentity,
    host: Arc<HostOffer>,
    /// All hosts of shared records, if the whole queue was read.
    hosts: Vec<HostRecord>,
}

impl QueueSnapshot {
    /// Reads what this server needs to place jobs, and the pools, queues and limits.
    ///
    /// # Errors
    /// `Records`.
    pub(crate) async fn read(shared: &Arc<SharedState>, selection: QueueSelection) -> Result<QueueSnapshot, JobError> {
        QueueSnapshot::read_with(shared, move |records, layout, server, now_ms| {
            let query = placement_query(layout, &selection, server, now_ms);
            Ok((records.placement_state(&query)?, Vec::new()))
        })
        .await
    }

    /// Reads all waiting jobs and the running jobs of all servers, so that the decisions include every job.
    ///
    /// # Errors
    /// `Records`.
    pub(crate) async fn read_whole(shared: &Arc<SharedState>) -> Result<QueueSnapshot, JobError> {
        QueueSnapshot::read_with(shared, |records, layout, _, _| {
            let spent = if layout.limits_usage() { records.usage_totals()? } else { Vec::new() };
            let (waiting, running) = (records.queued_jobs()?, records.active_jobs()?);
            let hosts = if records.is_shared() { records.hosts()? } else { Vec::new() };
            Ok((PlacementState { waiting, running, spent, ..PlacementState::default() }, hosts))
        })
        .await
    }

    async fn read_with(
        shared: &Arc<SharedState>,
        read: impl Fn(&dyn JobRecords, &SchedulerConfig, &ServerIdentity, u64) -> Result<QueueState, RecordError>
        + Send
        + 'static,
    ) -> Result<QueueSnapshot, JobError> {
        let (now_ms, server) = (shared.clock.now_ms(), shared.server().clone());
        let (limits, reader) = (Arc::clone(shared), server.clone());
        let read = move |records: &dyn JobRecords| {
            let layout = limits.reload_scheduler_config();
            Ok((read(records, &layout, &reader, now_ms)?, layout))
        };
        let ((state, hosts), layout) = shared.with_records(read).await?;
        Ok(QueueSnapshot { layout, state, now_ms, server, host: shared.host_offer(), hosts })
    }

    /// Returns the snapshot as the input of [`placement`].
    pub(crate) fn placement_input(&self) -> PlacementInput<'_> {
        PlacementInput {
            layout: &self.layout,
            state: &self.state,
            now_ms: self.now_ms,
            server: &self.server,
            host: &self.host,
            hosts: &self.hosts,
            batch_job: None,
        }
    }

    /// Returns the decision for each waiting job, in scheduling order.
    pub(crate) fn decisions(&self) -> Vec<PlacementDecision> {
        placement::place_jobs(&self.placement_input())
    }

    /// Returns whether this server has to start or to preempt a job.
    pub(crate) fn decides_a_change(&self) -> bool {
        self.decisions().iter().any(|decision| match decision {
            PlacementDecision::Start { pool, .. } => !self.layout.engine_pools.contains(pool),
            PlacementDecision::Wait { evict, .. } => !evict.is_empty(),
        })
    }
}

/// Returns what a placement of some jobs under a configuration needs to read.
pub(crate) fn placement_query<'a>(
    layout: &SchedulerConfig,
    selection: &'a QueueSelection,
    server: &'a ServerIdentity,
    now_ms: u64,
) -> PlacementQuery<'a> {
    let (with_other_servers, with_usage) = (layout.limits_running_jobs(), layout.limits_usage());
    let with_common_pools = !layout.engine_pools.is_empty();
    PlacementQuery { server, selection, with_common_pools, with_other_servers, with_usage, now_ms }
}
