//! The history of a server: samples of its devices, models and jobs. Who takes them, and when, is deliberately elsewhere
//! (`history_sampler`).

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use saggar_clock::UnixMillis;
use saggar_jobs::JobService;
use saggar_metrics::MetricsRegistry;
use saggar_metrics::history::{HistoryKey, HistoryQuantity, HistorySnapshot, HistorySubject, MetricHistory};
use saggar_store::RecordError;
use saggar_store::records::JobRecords;

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
    counts: BTreeMap<String, (u64, u64)>,
    /// The project of each running job.
    projects: BTreeMap<String, String>,
}

impl ActiveJobs {
    /// Reads the records. Blocks.
    fn read(records: &dyn JobRecords) -> Result<ActiveJobs, RecordError> {
        let (active, queues) = (records.active_jobs()?, records.queue_counts()?);
        let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for queue in queues {
            let (running, queued) = counts.entry(queue.project).or_default();
            *running += queue.running;
            *queued += queue.waiting;
        }
        Ok(ActiveJobs { counts, projects: active.into_iter().map(|job| (job.name, job.project)).collect() })
    }

    fn gauges(&self) -> impl Iterator<Item = (HistoryKey, f64)> {
        self.counts.iter().flat_map(|(project, &(running, queued))| {
            let key = |quantity| (quantity, HistorySubject::Project(project.clone()));
            [(key(HistoryQuantity::JobsRunning), running as f64), (key(HistoryQuantity::JobsQueued), queued as f64)]
        })
    }
}

impl ServerHistory {
    /// Reads the jobs that run and wait, for the next snapshots. If they cannot be read, those of before stay.
    pub(crate) async fn read_jobs(&self, jobs: &JobService) {
        let records = jobs.records();
        let read = tokio::task::spawn_blocking(move || ActiveJobs::read(&*records)).await;
        match read.map_err(|error| error.to_string()) {
            Ok(Ok(jobs)) => *self.jobs.lock() = jobs,
            Ok(Err(error)) => tracing::debug!(%error, "the jobs are not sampled"),
            Err(error) => tracing::debug!(error, "the jobs are not sampled"),
        }
    }

    /// Adds a snapshot of the server, `elapsed` after its start.
    pub(crate) fn add_snapshot(&self, metrics: &MetricsRegistry, now_ms: UnixMillis, elapsed: Duration) {
        let jobs = self.jobs.lock();
        let gauges = jobs.gauges().chain(usage_gauges(metrics, &jobs.projects)).collect();
        self.samples.add(&HistorySnapshot {
            elapsed,
            now_ms,
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
