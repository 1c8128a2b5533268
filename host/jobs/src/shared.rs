//! What the scheduler, its supervisors and the server's requests share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use saggar_metrics::{JobSeries, MetricHandles, MetricsRegistry};
use saggar_store::clock::{Clock, UnixMillis};
use saggar_store::error::{RecordError, StoreError};
use saggar_store::records::JobRecords;
use saggar_store::{AccessRights, KeyFile};
use tokio::sync::{Notify, watch};

use crate::effects::{EffectLog, JobEffect, PublicationNotes};
use crate::error::JobError;
use crate::key_limits::KeyLimits;
use crate::launcher::WorkerLauncher;
use crate::limits::{SERIES_RETENTION_TIME, WORKER_SILENCE_MAX};
use crate::scheduler_config::SchedulerConfig;
use crate::spec::JobSpec;
use crate::storage_guard::StorageGuard;
use crate::supervisor::AttemptControl;

/// Replaces what a specification refers to by what that is now: `mnist` by `mnist/3`; for whoever has these rights.
pub type SpecResolver =
    Box<dyn Fn(JobSpec, AccessRights) -> Pin<Box<dyn Future<Output = Result<JobSpec, JobError>> + Send>> + Send + Sync>;

/// See the module.
pub(crate) struct SharedState {
    pub(crate) records: Arc<dyn JobRecords>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<MetricsRegistry>,
    pub(crate) launcher: Arc<dyn WorkerLauncher>,
    pub(crate) jobs_dir: PathBuf,
    scheduler_config: Mutex<Arc<SchedulerConfig>>,
    key_limits: Mutex<Option<KeyLimits>>,
    storage_guard: Mutex<Option<StorageGuard>>,
    series: Mutex<JobSeries>,
    running: Mutex<HashMap<String, watch::Sender<AttemptControl>>>,
    /// When the attempts that run here did their last step, or began.
    advanced: Mutex<HashMap<String, UnixMillis>>,
    pub(crate) wake: Notify,
    closing: AtomicBool,
    resolver: OnceLock<SpecResolver>,
    worker_silence_max: OnceLock<Duration>,
    effects: OnceLock<EffectLog>,
    publication_notes: OnceLock<PublicationNotes>,
    changed: watch::Sender<u64>,
}

impl SharedState {
    pub(crate) fn new(
        records: Arc<dyn JobRecords>,
        clock: Arc<dyn Clock>,
        metrics: Arc<MetricsRegistry>,
        launcher: Arc<dyn WorkerLauncher>,
        jobs_dir: PathBuf,
        layout: SchedulerConfig,
    ) -> SharedState {
        let changed = watch::Sender::new(0);
        let (series, running, wake) = (Mutex::default(), Mutex::default(), Notify::new());
        let (layout, owners, advanced) = (Mutex::new(Arc::new(layout)), Mutex::default(), Mutex::default());
        let room = Mutex::default();
        let (closing, resolver, effects) = (AtomicBool::new(false), OnceLock::new(), OnceLock::new());
        let worker_silence_max = OnceLock::new();
        SharedState {
            records,
            clock,
            metrics,
            launcher,
            jobs_dir,
            scheduler_config: layout,
            key_limits: owners,
            storage_guard: room,
            series,
            running,
            advanced,
            wake,
            closing,
            resolver,
            worker_silence_max,
            effects,
            publication_notes: OnceLock::new(),
            changed,
        }
    }

    /// Has the jobs of schedules resolved by this. Only the first one counts.
    pub(crate) fn set_spec_resolver(&self, resolver: SpecResolver) {
        let _ = self.resolver.set(resolver);
    }

    /// Has effects written down by this. Only the first one counts.
    pub(crate) fn set_effect_log(&self, log: EffectLog) {
        let _ = self.effects.set(log);
    }

    /// Has what there is to say of published versions told by this. Only the first one counts.
    pub(crate) fn set_publication_notes(&self, notes: PublicationNotes) {
        let _ = self.publication_notes.set(notes);
    }

    /// What there is to say of a version that a job published.
    pub(crate) fn publication_notes(&self, model: &str, version: u64) -> Vec<String> {
        self.publication_notes.get().map(|notes| notes(model, version)).unwrap_or_default()
    }

    /// Writes an effect down.
    pub(crate) fn log_effect(&self, effect: &JobEffect) {
        if let Some(log) = self.effects.get() {
            log(effect);
        }
    }

    /// The specification with what it refers to as that is now, for whoever has these rights.
    pub(crate) async fn resolve_spec(&self, spec: JobSpec, rights: AccessRights) -> Result<JobSpec, JobError> {
        match self.resolver.get() {
            Some(resolve) => resolve(spec, rights).await,
            None => Ok(spec),
        }
    }

    /// Has workers killed that are silent for so long. Only the first one counts.
    pub(crate) fn set_worker_silence_max(&self, max: Duration) {
        let _ = self.worker_silence_max.set(max);
    }

    /// How long a worker may be silent.
    pub(crate) fn worker_silence_max(&self) -> Duration {
        self.worker_silence_max.get().copied().unwrap_or(WORKER_SILENCE_MAX)
    }

    /// From now on no attempt begins.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Has the jobs of each key held to what the file of keys says.
    pub(crate) fn watch_keys(&self, keys: KeyFile) {
        *self.key_limits.lock().unwrap_or_else(PoisonError::into_inner) = Some(KeyLimits::new(keys));
    }

    /// Has what is recorded of attempts count towards a limit on what is stored.
    pub(crate) fn set_storage_guard(&self, room: StorageGuard) {
        *self.storage_guard.lock().unwrap_or_else(PoisonError::into_inner) = Some(room);
    }

    /// Takes room for so many bytes of records. May wait for the disk.
    pub(crate) fn reserve_storage(&self, bytes: u64) -> Result<(), StoreError> {
        let mut room = self.storage_guard.lock().unwrap_or_else(PoisonError::into_inner);
        room.as_mut().map_or(Ok(()), |room| room.reserve(bytes))
    }

    /// Pools, queues and allowances as they were at the last look.
    pub(crate) fn scheduler_config(&self) -> Arc<SchedulerConfig> {
        Arc::clone(&self.scheduler_config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Pools, queues and allowances as they are now. May wait for the disk.
    pub(crate) fn reload_scheduler_config(&self) -> Arc<SchedulerConfig> {
        let mut owners = self.key_limits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut layout = self.scheduler_config.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(changed) = owners.as_mut().and_then(KeyLimits::reload_if_changed) {
            Arc::make_mut(&mut layout).owners = changed;
        }
        Arc::clone(&layout)
    }

    /// Tells followers that something about some job changed.
    pub(crate) fn notify_change(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// A receiver that hears of every [`SharedState::notify_change`] from now on.
    pub(crate) fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Has the queue looked at now.
    pub(crate) fn wake_scheduler(&self) {
        self.wake.notify_one();
    }

    /// Notes that the job's attempt did a step now, or began.
    pub(crate) fn record_progress(&self, id: &str) {
        let now_ms = self.clock.now_ms();
        self.last_progress().insert(id.to_owned(), now_ms);
    }

    /// When the attempts that run here did their last step.
    pub(crate) fn last_progress(&self) -> MutexGuard<'_, HashMap<String, UnixMillis>> {
        self.advanced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the jobs' series.
    pub(crate) fn with_series(&self, use_them: impl FnOnce(&mut JobSeries, &MetricHandles)) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        use_them(&mut series, &self.metrics.families);
    }

    /// Removes a finished job's series when people have had time to scrape them.
    pub(crate) fn remove_series_later(self: &Arc<Self>, name: String) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(SERIES_RETENTION_TIME).await;
            shared.with_series(|series, families| series.remove_job(families, &name));
        });
    }

    /// Uses the records on a thread that may wait for the disk.
    pub(crate) async fn with_records<T: Send + 'static>(
        self: &Arc<Self>,
        use_them: impl FnOnce(&dyn JobRecords) -> Result<T, RecordError> + Send + 'static,
    ) -> Result<T, JobError> {
        let records = Arc::clone(&self.records);
        let done = tokio::task::spawn_blocking(move || use_them(&*records)).await;
        done.map_err(|error| JobError::Io(std::io::Error::other(error)))?.map_err(JobError::from)
    }

    /// Changes what the supervisor of a running job was told. False where the job is not running here.
    pub(crate) fn update_control(&self, id: &str, change: impl FnOnce(&mut AttemptControl)) -> bool {
        self.running_attempts().get(id).map(|orders| orders.send_modify(change)).is_some()
    }

    pub(crate) fn running_attempts(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<AttemptControl>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
