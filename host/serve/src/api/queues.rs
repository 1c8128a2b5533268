//! `GET /api/v1/queues`: pools, the jobs that hold their slots, and the jobs that wait.

use axum::Json;
use axum::extract::State;
use saggar_rest::queues::{PoolDocument, QueueDocument, QueueListDocument};

use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /api/v1/queues`.
pub(crate) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
) -> Result<Json<QueueListDocument>, ApiError> {
    let layout = app.jobs().scheduler_config();
    let running = app.jobs().running_jobs().await?;
    let waiting = app.jobs().queue_lengths().await?;
    let queues = layout.queues.iter().map(|(name, queue)| QueueDocument {
        name: name.clone(),
        pools: queue.pools.clone(),
        spill: queue.spill,
        max_running_jobs: queue.max_running_jobs,
        running: running.iter().filter(|job| job.demand.queue == *name).count(),
        waiting: waiting.get(name).copied().unwrap_or(0),
    });
    let slots = |milli: u32| f64::from(milli) / 1000.0;
    let pools = layout.pools.iter().map(|(name, pool)| {
        let held = || running.iter().filter(|job| job.pool == *name);
        PoolDocument {
            name: name.clone(),
            device: pool.device.clone(),
            slots: slots(pool.slots_milli),
            used: slots(held().map(|job| job.demand.slots_milli).sum()),
            // Every client sees how many slots are used, but only the jobs of the projects it can see.
            jobs: held().filter(|job| sight.contains_project(&job.project)).map(|job| job.name.clone()).collect(),
        }
    });
    Ok(Json(QueueListDocument { queues: queues.collect(), pools: pools.collect() }))
}
