//! Samples the state of the server for the history of devices, models and jobs, once a second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use saggar_metrics::MetricsRegistry;
use saggar_metrics::history::{
    HistoryKey, HistoryQuantity, HistoryResolution, HistorySnapshot, HistorySubject, MetricHistory,
};
use saggar_store::RecordError;
use saggar_store::records::JobRecords;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::app::AppState;

/// The history of the server.
#[derive(Debug, Default)]
pub(crate) struct ServerHistory {
    pub(crate) samples: MetricHistory,
    jobs: Mutex<ActiveJobs>,
}

/// The jobs that run or wait, as the records were at the last change of a job.
#[derive(Debug, Default)]
struct ActiveJobs {
    /// The numbers of running and of queued jobs by project, for projects that have any.
    counts: BTreeMap<String, (u32, u32)>,
    /// The project of each running job.
    projects: BTreeMap<String, String>,
}

impl ActiveJobs {
    /// Reads the records. Blocks.
    fn read(records: &dyn JobRecords) -> Result<ActiveJobs, RecordError> {
        let (active, queued) = (records.active_jobs()?, records.queued_jobs()?);
        let mut counts: BTreeMap<String, (u32, u32)> = BTreeMap::new();
        active.iter().for_each(|job| counts.entry(job.project.clone()).or_default().0 += 1);
        queued.iter().for_each(|job| counts.entry(job.project.clone()).or_default().1 += 1);
        Ok(ActiveJobs { counts, projects: active.into_iter().map(|job| (job.name, job.project)).collect() })
    }

    fn gauges(&self) -> impl Iterator<Item = (HistoryKey, f64)> {
        self.counts.iter().flat_map(|(project, &(running, queued))| {
            let key = |quantity| (quantity, HistorySubject::Project(project.clone()));
            [
                (key(HistoryQuantity::JobsRunning), f64::from(running)),
                (key(HistoryQuantity::JobsQueued), f64::from(queued)),
            ]
        })
    }
}

impl ServerHistory {
    /// Adds a snapshot of the server, `elapsed` after its start. `jobs_changed` is whether any job changed since the one
    /// before.
    pub(crate) async fn sample(&self, app: &AppState, elapsed: Duration, jobs_changed: bool) {
        if jobs_changed {
            let shared = app.clone();
            let read = move || ActiveJobs::read(&*shared.jobs().records());
            match tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string()) {
                Ok(Ok(jobs)) => *self.jobs.lock() = jobs,
                Ok(Err(error)) => tracing::debug!(%error, "the jobs are not sampled"),
                Err(error) => tracing::debug!(error, "the jobs are not sampled"),
            }
        }
        let metrics = app.metrics();
        let jobs = self.jobs.lock();
        let gauges = jobs.gauges().chain(usage_gauges(metrics, &jobs.projects)).collect();
        self.samples.add(&HistorySnapshot {
            elapsed,
            now_ms: app.now_ms(),
            traffic: metrics.traffic.counts(),
            device_busy_seconds: metrics.device_busy_seconds(),
            gauges,
        });
    }
}

/// Returns the queues of models, and the memory that models and running jobs hold.
fn usage_gauges(metrics: &MetricsRegistry, projects: &BTreeMap<String, String>) -> Vec<(HistoryKey, f64)> {
    let queues = metrics.queued_predictions().into_iter();
    let queues =
        queues.map(|(model, value)| ((HistoryQuantity::ModelQueueLength, HistorySubject::Model(model)), value));
    let models = metrics.model_memory_bytes().into_iter();
    let models =
        models.map(|(device, value)| ((HistoryQuantity::DeviceMemory, HistorySubject::ModelMemory(device)), value));
    // The metric of a job stays for a while after its end.
    let jobs = metrics.job_memory_bytes().into_iter().filter_map(|((device, job), value)| {
        let project = projects.get(&job)?.clone();
        Some(((HistoryQuantity::DeviceMemory, HistorySubject::JobMemory { device, job, project }), value))
    });
    queues.chain(models).chain(jobs).collect()
}

impl AppState {
    /// Samples the server for its history until it stops.
    pub async fn sample_history(self, mut shutdown: watch::Receiver<bool>) {
        let began = Instant::now();
        let mut changes = self.jobs().subscribe_changes();
        let mut ticks = tokio::time::interval(HistoryResolution::Second.interval());
        // After a suspension of the machine one sample covers it.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut jobs_changed = true;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = shutdown.wait_for(|&stop| stop) => return,
            }
            jobs_changed |= changes.has_changed().unwrap_or(false);
            changes.mark_unchanged();
            self.history().sample(&self, began.elapsed(), jobs_changed).await;
            jobs_changed = false;
        }
    }
}
