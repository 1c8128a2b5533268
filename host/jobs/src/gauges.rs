//! Prometheus gauges of the queue: job states, queue lengths and pool slots.

use std::collections::HashMap;
use std::sync::Arc;

use saggar_metrics::MetricHandles;
use saggar_store::records::{HostState, JobRecords, JobState};

use crate::queue_snapshot::QueueSnapshot;
use crate::shared::SharedState;

/// Sets the gauges of this server's pools. Unused ones are 0, not absent.
pub(crate) fn set_pool_gauges(families: &MetricHandles, look: &QueueSnapshot) {
    let slots = |milli: u64| milli as f64 / 1000.0;
    for (name, pool) in &look.layout.pools {
        let jobs = look.state.running.iter().filter(|job| job.pool == *name);
        let used = jobs.map(|job| u64::from(job.demand.slots_milli)).sum();
        families.pool_slots.with_label_values(&[name]).set(slots(pool.slots_milli.into()));
        families.pool_slots_used.with_label_values(&[name]).set(slots(used));
    }
}

/// Sets `saggar_jobs` and the gauges of queues and hosts. States and queues without jobs are 0, not absent.
pub(crate) async fn set_queue_gauges(shared: &Arc<SharedState>) {
    let read = |records: &dyn JobRecords| {
        let hosts = if records.is_shared() { Some(records.hosts()?) } else { None };
        Ok((records.count_by_state()?, records.queue_counts()?, hosts))
    };
    let Ok((by_state, by_queue, hosts)) = shared.with_records(read).await else { return };
    let families = &shared.metrics.families;
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let by_state: HashMap<JobState, u64> = by_state.into_iter().collect();
    for state in JobState::ALL {
        let count = by_state.get(&state).copied().unwrap_or(0);
        families.jobs.with_label_values(&[state.name()]).set(number(count));
    }
    for name in shared.scheduler_config().queues.keys() {
        let counts = by_queue.iter().filter(|count| count.queue == *name);
        let (waiting, running) = counts.fold((0, 0), |sum, count| (sum.0 + count.waiting, sum.1 + count.running));
        families.queue_length.with_label_values(&[name]).set(number(waiting));
        families.queue_running.with_label_values(&[name]).set(number(running));
    }
    for state in HostState::ALL {
        let count = match &hosts {
            Some(hosts) => hosts.iter().filter(|host| host.state == state).count(),
            // Without shared records, the server is the only host.
            None => usize::from(state == HostState::Ready),
        };
        families.hosts.with_label_values(&[state.name()]).set(number(count as u64));
    }
}
