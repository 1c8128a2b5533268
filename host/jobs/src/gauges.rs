//! Prometheus gauges of the queue: job states, queue lengths and pool slots.

use std::collections::HashMap;
use std::sync::Arc;

use saggar_metrics::MetricHandles;
use saggar_store::records::{HostState, JobState};

use crate::queue_snapshot::QueueSnapshot;
use crate::shared::SharedState;

/// Sets the gauges of queues and pools. Unused ones are 0, not absent.
pub(crate) fn set_queue_gauges(families: &MetricHandles, look: &QueueSnapshot) {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    for name in look.layout.queues.keys() {
        let waiting = look.waiting.iter().filter(|job| job.demand.queue == *name).count();
        let running = look.running.iter().filter(|job| job.demand.queue == *name).count();
        families.queue_length.with_label_values(&[name]).set(number(waiting));
        families.queue_running.with_label_values(&[name]).set(number(running));
    }
    // Without shared records, the server is the only host.
    let is_alone = look.hosts.is_empty();
    for state in HostState::ALL {
        let alone = usize::from(is_alone && state == HostState::Ready);
        let count = look.hosts.iter().filter(|host| host.state == state).count() + alone;
        families.hosts.with_label_values(&[state.name()]).set(number(count));
    }
    let slots = |milli: u64| milli as f64 / 1000.0;
    for (name, pool) in &look.layout.pools {
        let used =
            look.running.iter().filter(|job| job.pool == *name).map(|job| u64::from(job.demand.slots_milli)).sum();
        families.pool_slots.with_label_values(&[name]).set(slots(pool.slots_milli.into()));
        families.pool_slots_used.with_label_values(&[name]).set(slots(used));
    }
}

/// Sets `saggar_jobs`. States without jobs are 0, not absent.
pub(crate) async fn set_state_gauges(shared: &Arc<SharedState>) {
    let Ok(counts) = shared.with_records(|records| records.count_by_state()).await else { return };
    let counts: HashMap<JobState, u64> = counts.into_iter().collect();
    for state in JobState::ALL {
        let count = counts.get(&state).copied().unwrap_or(0);
        let gauge = shared.metrics.families.jobs.with_label_values(&[state.name()]);
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
