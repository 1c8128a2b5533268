//! State shared by the scheduler, its supervisors and the server's requests.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use saggar_clock::{Clock, UnixMillis};
use saggar_fetch::FetchPolicy;
use saggar_metrics::{JobSeries, MetricHandles, MetricsRegistry};
use saggar_store::error::{RecordError, StoreError};
use saggar_store::records::{HostOffer, JobOrders, JobRecords, ServerIdentity, StateReason};
use saggar_store::{AccessRights, JobFiles, KeyFile};
use saggar_telemetry::SpanTracer;
use tokio::sync::{Notify, watch};

use crate::attempt_control::AttemptControl;
use crate::effects::{EffectLog, JobEffect, PublicationNotes};
use crate::engine_pools::EnginePools;
use crate::error::JobError;
use crate::gateway::WorkerGateway;
use crate::held_leases::HeldLeases;
use crate::key_limits::KeyLimits;
use crate::launcher::WorkerLauncher;
use crate::limits::{SERIES_RETENTION_TIME, STOP_GRACE, WORKER_SILENCE_MAX};
use crate::notebooks::RunningNotebooks;
use crate::rank_network::RankNetwork;
use crate::scheduler_config::SchedulerConfig;
use crate::spec::JobSpec;
use crate::storage_guard::StorageGuard;
use crate::transport::WorkerListener;
use saggar_store::bucket_usage::BucketCount;

/// Resolves the references of a specification to current versions, such as `mnist` to `mnist/3`, with the given access
/// rights.
pub type SpecResolver =
    Box<dyn Fn(JobSpec, AccessRights) -> Pin<Box<dyn Future<Output = Result<JobSpec, JobError>> + Send>> + Send + Sync>;

/// The shared state of one server's jobs.
pub(crate) struct SharedState {
    pub(crate) records: Arc<dyn JobRecords>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<MetricsRegistry>,
    pub(crate) launcher: Arc<dyn WorkerLauncher>,
    pub(crate) job_files: Arc<dyn JobFiles>,
    scheduler_config: Mutex<Arc<SchedulerConfig>>,
    key_limits: Mutex<Option<KeyLimits>>,
    storage_guard: Mutex<Option<StorageGuard>>,
    series: Mutex<JobSeries>,
    running: Mutex<HashMap<String, watch::Sender<AttemptControl>>>,
    /// The time of the last step, or of the start, of each attempt that runs here.
    advanced: Mutex<HashMap<String, UnixMillis>>,
    pub(crate) wake: Notify,
    closing: AtomicBool,
    resolver: OnceLock<SpecResolver>,
    worker_silence_max: OnceLock<Duration>,
    fetch_policy: OnceLock<FetchPolicy>,
    effects: OnceLock<EffectLog>,
    publication_notes: OnceLock<PublicationNotes>,
    gateway: OnceLock<WorkerGateway>,
    tracer: OnceLock<SpanTracer>,
    pub(crate) notebooks: RunningNotebooks,
    /// The leases of the attempts that run here.
    pub(crate) leases: HeldLeases,
    /// The engines of pools, and what they say about waiting jobs.
    pub(crate) engines: EnginePools,
    host: Mutex<Arc<HostOffer>>,
    /// Notified when the host offers something else.
    pub(crate) host_changed: Notify,
    /// Whether this host's row was removed, because the host ends. Held while the row is written, so that a registration that
    /// takes long does not come after the removal.
    pub(crate) is_host_removed: Arc<Mutex<bool>>,
    /// Whether the host is drained: it takes no jobs and runs none.
    pub(crate) drained: watch::Sender<bool>,
    stop_grace: OnceLock<Duration>,
    rank_network: OnceLock<RankNetwork>,
    /// The jobs of which this host has a part and that other hosts lead.
    pub(crate) led_elsewhere: Mutex<Vec<String>>,
    /// When this state was created.
    pub(crate) created_ms: UnixMillis,
    server: OnceLock<ServerIdentity>,
    changed: watch::Sender<u64>,
}

impl SharedState {
    pub(crate) fn new(
        records: Arc<dyn JobRecords>,
        clock: Arc<dyn Clock>,
        metrics: Arc<MetricsRegistry>,
        launcher: Arc<dyn WorkerLauncher>,
        job_files: Arc<dyn JobFiles>,
        layout: SchedulerConfig,
    ) -> SharedState {
        let changed = watch::Sender::new(0);
        let (series, running, wake) = (Mutex::default(), Mutex::default(), Notify::new());
        let (layout, owners, advanced) = (Mutex::new(Arc::new(layout)), Mutex::default(), Mutex::default());
        let room = Mutex::default();
        let (closing, resolver, effects) = (AtomicBool::new(false), OnceLock::new(), OnceLock::new());
        let worker_silence_max = OnceLock::new();
        let created_ms = clock.now_ms();
        SharedState {
            records,
            clock,
            metrics,
            launcher,
            job_files,
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
            fetch_policy: OnceLock::new(),
            effects,
            publication_notes: OnceLock::new(),
            gateway: OnceLock::new(),
            tracer: OnceLock::new(),
            notebooks: RunningNotebooks::default(),
            leases: HeldLeases::default(),
            engines: EnginePools::default(),
            host: Mutex::default(),
            host_changed: Notify::new(),
            is_host_removed: Arc::default(),
            drained: watch::Sender::new(false),
            stop_grace: OnceLock::new(),
            rank_network: OnceLock::new(),
            led_elsewhere: Mutex::default(),
            created_ms,
            server: OnceLock::new(),
            changed,
        }
    }

    /// Sets where rank 0 of an attempt with several hosts listens. Only the first call has an effect.
    pub(crate) fn set_rank_network(&self, network: RankNetwork) {
        let _ = self.rank_network.set(network);
    }

    /// Returns where rank 0 of an attempt with several hosts listens.
    pub(crate) fn rank_network(&self) -> RankNetwork {
        self.rank_network.get().copied().unwrap_or_default()
    }

    /// Sets the resolver of scheduled jobs. Only the first call has an effect.
    pub(crate) fn set_spec_resolver(&self, resolver: SpecResolver) {
        let _ = self.resolver.set(resolver);
    }

    /// Sets the log of effects. Only the first call has an effect.
    pub(crate) fn set_effect_log(&self, log: EffectLog) {
        let _ = self.effects.set(log);
    }

    /// Sets the source of notes about published versions. Only the first call has an effect.
    pub(crate) fn set_publication_notes(&self, notes: PublicationNotes) {
        let _ = self.publication_notes.set(notes);
    }

    /// Returns the notes about a version that a job published.
    pub(crate) fn publication_notes(&self, model: &str, version: u64) -> Vec<String> {
        self.publication_notes.get().map(|notes| notes(model, version)).unwrap_or_default()
    }

    /// Sets the receiver of the jobs' spans. Only the first call has an effect.
    pub(crate) fn set_tracer(&self, tracer: SpanTracer) {
        let _ = self.tracer.set(tracer);
    }

    /// Returns the receiver of the jobs' spans, if there is one.
    pub(crate) fn tracer(&self) -> Option<&SpanTracer> {
        self.tracer.get()
    }

    /// Records an effect.
    pub(crate) fn log_effect(&self, effect: &JobEffect) {
        if let Some(log) = self.effects.get() {
            log(effect);
        }
    }

    /// Resolves the references of a specification to current versions, with the given access rights.
    pub(crate) async fn resolve_spec(&self, spec: JobSpec, rights: AccessRights) -> Result<JobSpec, JobError> {
        match self.resolver.get() {
            Some(resolve) => resolve(spec, rights).await,
            None => Ok(spec),
        }
    }

    /// Sets what data steps can fetch. Only the first call has an effect.
    pub(crate) fn set_fetch_policy(&self, policy: FetchPolicy) {
        let _ = self.fetch_policy.set(policy);
    }

    /// Returns what data steps can fetch.
    pub(crate) fn fetch_policy(&self) -> FetchPolicy {
        self.fetch_policy.get().cloned().unwrap_or_default()
    }

    /// Sets the maximum silence of a worker before it is killed. Only the first call has an effect.
    pub(crate) fn set_worker_silence_max(&self, max: Duration) {
        let _ = self.worker_silence_max.set(max);
    }

    /// Returns the maximum silence of a worker.
    pub(crate) fn worker_silence_max(&self) -> Duration {
        self.worker_silence_max.get().copied().unwrap_or(WORKER_SILENCE_MAX)
    }

    /// Sets which of several servers this is. Only the first call has an effect.
    pub(crate) fn set_server(&self, server: ServerIdentity) {
        let _ = self.server.set(server);
    }

    /// Returns which of several servers this is. All fields are empty if it is the only one.
    pub(crate) fn server(&self) -> &ServerIdentity {
        self.server.get_or_init(ServerIdentity::default)
    }

    /// Sets what this host offers to jobs.
    pub(crate) fn set_host_offer(&self, offer: HostOffer) {
        *self.host.lock() = Arc::new(offer);
        self.host_changed.notify_one();
    }

    /// Returns what this host offers to jobs.
    pub(crate) fn host_offer(&self) -> Arc<HostOffer> {
        Arc::clone(&self.host.lock())
    }

    /// Sets the maximum time for workers to save their state. Only the first call has an effect.
    pub(crate) fn set_stop_grace(&self, max: Duration) {
        let _ = self.stop_grace.set(max);
    }

    /// Returns the maximum time for a worker to save its state after a stop request.
    pub(crate) fn stop_grace(&self) -> Duration {
        self.stop_grace.get().copied().unwrap_or(STOP_GRACE)
    }

    /// Accepts workers on `listener`. Only the first call has an effect.
    pub(crate) fn accept_workers(&self, listener: Box<dyn WorkerListener>) {
        self.gateway.get_or_init(|| WorkerGateway::start(listener));
    }

    /// Returns the gateway that accepts workers.
    ///
    /// # Errors
    /// `Io` if no workers are accepted yet.
    pub(crate) fn gateway(&self) -> Result<&WorkerGateway, JobError> {
        self.gateway.get().ok_or_else(|| JobError::Io(std::io::Error::other("the server accepts no workers yet")))
    }

    /// Prevents further attempts from starting.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Limits the jobs of each key as the key file says.
    pub(crate) fn watch_keys(&self, keys: KeyFile) {
        *self.key_limits.lock() = Some(KeyLimits::new(keys));
    }

    /// Counts the records of attempts towards a storage limit.
    pub(crate) fn set_storage_guard(&self, room: StorageGuard) {
        *self.storage_guard.lock() = Some(room);
    }

    /// Returns the newest count of the bytes in the bucket, or `None` if they do not count.
    pub(crate) fn bucket_count(&self) -> Option<BucketCount> {
        self.storage_guard.lock().as_ref().and_then(StorageGuard::bucket_count)
    }

    /// Reserves storage for `bytes` bytes of records. May wait for the disk.
    pub(crate) fn reserve_storage(&self, bytes: u64) -> Result<(), StoreError> {
        let mut room = self.storage_guard.lock();
        room.as_mut().map_or(Ok(()), |room| room.reserve(bytes))
    }

    /// Returns the pools, queues and limits as last loaded.
    pub(crate) fn scheduler_config(&self) -> Arc<SchedulerConfig> {
        Arc::clone(&self.scheduler_config.lock())
    }

    /// Changes the pools, queues and limits.
    pub(crate) fn change_scheduler_config(&self, change: impl FnOnce(&mut SchedulerConfig)) {
        change(Arc::make_mut(&mut self.scheduler_config.lock()));
    }

    /// Reloads and returns the pools, queues and limits. May wait for the disk.
    pub(crate) fn reload_scheduler_config(&self) -> Arc<SchedulerConfig> {
        let mut owners = self.key_limits.lock();
        let mut layout = self.scheduler_config.lock();
        if let Some(changed) = owners.as_mut().and_then(KeyLimits::reload_if_changed) {
            Arc::make_mut(&mut layout).owners = changed;
        }
        Arc::clone(&layout)
    }

    /// Notifies subscribers that a job changed.
    pub(crate) fn notify_change(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns a receiver of every further [`SharedState::notify_change`].
    pub(crate) fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Makes the scheduler read the queue now.
    pub(crate) fn wake_scheduler(&self) {
        self.wake.notify_one();
    }

    /// Records that the job's attempt did a step now, or began.
    pub(crate) fn record_progress(&self, id: &str) {
        let now_ms = self.clock.now_ms();
        self.last_progress().insert(id.to_owned(), now_ms);
    }

    /// Returns the times of the last steps of the attempts that run here.
    pub(crate) fn last_progress(&self) -> MutexGuard<'_, HashMap<String, UnixMillis>> {
        self.advanced.lock()
    }

    /// Calls `use_them` with the jobs' series.
    pub(crate) fn with_series(&self, use_them: impl FnOnce(&mut JobSeries, &MetricHandles)) {
        let mut series = self.series.lock();
        use_them(&mut series, &self.metrics.families);
    }

    /// Removes a finished job's series after [`SERIES_RETENTION_TIME`], so that they can still be scraped.
    pub(crate) fn remove_series_later(self: &Arc<Self>, name: String) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(SERIES_RETENTION_TIME).await;
            shared.with_series(|series, families| series.remove_job(families, &name));
        });
    }

    /// Runs a function on the records, on a thread that may wait for the disk.
    pub(crate) async fn with_records<T: Send + 'static>(
        self: &Arc<Self>,
        use_them: impl FnOnce(&dyn JobRecords) -> Result<T, RecordError> + Send + 'static,
    ) -> Result<T, JobError> {
        let records = Arc::clone(&self.records);
        let done = tokio::task::spawn_blocking(move || use_them(&*records)).await;
        done.map_err(|error| JobError::Io(std::io::Error::other(error)))?.map_err(JobError::from)
    }

    /// Changes the control state of a running job. Returns `false` if the job does not run here.
    pub(crate) fn update_control(&self, id: &str, change: impl FnOnce(&mut AttemptControl)) -> bool {
        self.running_attempts().get(id).map(|orders| orders.send_modify(change)).is_some()
    }

    /// Asks a running job's supervisor to save the job's state and queue it again. Returns `false` if the job does not
    /// run here.
    pub(crate) fn request_requeue(&self, id: &str, reason: StateReason) -> bool {
        self.update_control(id, |orders| {
            orders.requeue.get_or_insert(reason);
        })
    }

    /// Passes what the records order of a running attempt to its supervisor.
    pub(crate) fn apply_orders(&self, id: &str, orders: &JobOrders, is_stopped: bool) {
        if let Some(control) = self.running_attempts().get(id) {
            control.send_if_modified(|control| {
                let before = control.clone();
                control.stop |= is_stopped;
                if control.requeue.is_none() {
                    control.requeue.clone_from(&orders.preempt);
                }
                control.checkpoints = control.checkpoints.max(orders.checkpoints);
                *control != before
            });
        }
    }

    pub(crate) fn running_attempts(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<AttemptControl>>> {
        self.running.lock()
    }
}
