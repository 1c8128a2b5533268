//! What the scheduler, its supervisors and the server's requests share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use saggar_metrics::{Families, JobSeries, Metrics};
use saggar_store::clock::{Clock, Millis};
use saggar_store::error::{RecordError, StoreError};
use saggar_store::records::Records;
use saggar_store::{KeyFile, Rights};
use tokio::sync::{Notify, watch};

use crate::effects::{EffectLog, JobEffect, PublicationNotes};
use crate::error::JobError;
use crate::launcher::Launcher;
use crate::layout::Layout;
use crate::limits::{SERIES_LINGER, WORKER_SILENCE_MAX};
use crate::owners::Owners;
use crate::room::Room;
use crate::spec::JobSpec;
use crate::supervisor::Orders;

/// Replaces what a specification refers to by what that is now: `mnist` by `mnist/3`; for whoever has these rights.
pub type Resolver =
    Box<dyn Fn(JobSpec, Rights) -> Pin<Box<dyn Future<Output = Result<JobSpec, JobError>> + Send>> + Send + Sync>;

/// See the module.
pub(crate) struct Shared {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) jobs_dir: PathBuf,
    layout: Mutex<Arc<Layout>>,
    owners: Mutex<Option<Owners>>,
    room: Mutex<Option<Room>>,
    series: Mutex<JobSeries>,
    running: Mutex<HashMap<String, watch::Sender<Orders>>>,
    /// When the attempts that run here did their last step, or began.
    advanced: Mutex<HashMap<String, Millis>>,
    pub(crate) wake: Notify,
    closing: AtomicBool,
    resolver: OnceLock<Resolver>,
    worker_silence_max: OnceLock<Duration>,
    effects: OnceLock<EffectLog>,
    publication_notes: OnceLock<PublicationNotes>,
    changed: watch::Sender<u64>,
}

impl Shared {
    pub(crate) fn new(
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        launcher: Arc<dyn Launcher>,
        jobs_dir: PathBuf,
        layout: Layout,
    ) -> Shared {
        let changed = watch::Sender::new(0);
        let (series, running, wake) = (Mutex::default(), Mutex::default(), Notify::new());
        let (layout, owners, advanced) = (Mutex::new(Arc::new(layout)), Mutex::default(), Mutex::default());
        let room = Mutex::default();
        let (closing, resolver, effects) = (AtomicBool::new(false), OnceLock::new(), OnceLock::new());
        let worker_silence_max = OnceLock::new();
        Shared {
            records,
            clock,
            metrics,
            launcher,
            jobs_dir,
            layout,
            owners,
            room,
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
    pub(crate) fn resolve_by(&self, resolver: Resolver) {
        let _ = self.resolver.set(resolver);
    }

    /// Has effects written down by this. Only the first one counts.
    pub(crate) fn log_effects_to(&self, log: EffectLog) {
        let _ = self.effects.set(log);
    }

    /// Has what there is to say of published versions told by this. Only the first one counts.
    pub(crate) fn note_publications_by(&self, notes: PublicationNotes) {
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
    pub(crate) async fn resolved(&self, spec: JobSpec, rights: Rights) -> Result<JobSpec, JobError> {
        match self.resolver.get() {
            Some(resolve) => resolve(spec, rights).await,
            None => Ok(spec),
        }
    }

    /// Has workers killed that are silent for so long. Only the first one counts.
    pub(crate) fn limit_worker_silence(&self, max: Duration) {
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
    pub(crate) fn follow_keys(&self, keys: KeyFile) {
        *self.owners.lock().unwrap_or_else(PoisonError::into_inner) = Some(Owners::new(keys));
    }

    /// Has what is recorded of attempts count towards a limit on what is stored.
    pub(crate) fn limit_storage(&self, room: Room) {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = Some(room);
    }

    /// Takes room for so many bytes of records. May wait for the disk.
    pub(crate) fn take_room(&self, bytes: u64) -> Result<(), StoreError> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        room.as_mut().map_or(Ok(()), |room| room.take(bytes))
    }

    /// Pools, queues and allowances as they were at the last look.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Pools, queues and allowances as they are now. May wait for the disk.
    pub(crate) fn layout_now(&self) -> Arc<Layout> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let mut layout = self.layout.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(changed) = owners.as_mut().and_then(Owners::changed) {
            Arc::make_mut(&mut layout).owners = changed;
        }
        Arc::clone(&layout)
    }

    /// Tells followers that something about some job changed.
    pub(crate) fn touch(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// A receiver that hears of every [`Shared::touch`] from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Has the queue looked at now.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Notes that the job's attempt did a step now, or began.
    pub(crate) fn advance(&self, id: &str) {
        let now_ms = self.clock.now_ms();
        self.advanced().insert(id.to_owned(), now_ms);
    }

    /// When the attempts that run here did their last step.
    pub(crate) fn advanced(&self) -> MutexGuard<'_, HashMap<String, Millis>> {
        self.advanced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the jobs' series.
    pub(crate) fn series(&self, use_them: impl FnOnce(&mut JobSeries, &Families)) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        use_them(&mut series, &self.metrics.families);
    }

    /// Removes a finished job's series when people have had time to scrape them.
    pub(crate) fn forget_series_later(self: &Arc<Self>, name: String) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(SERIES_LINGER).await;
            shared.series(|series, families| series.forget(families, &name));
        });
    }

    /// Uses the records on a thread that may wait for the disk.
    pub(crate) async fn records<T: Send + 'static>(
        self: &Arc<Self>,
        use_them: impl FnOnce(&dyn Records) -> Result<T, RecordError> + Send + 'static,
    ) -> Result<T, JobError> {
        let records = Arc::clone(&self.records);
        let done = tokio::task::spawn_blocking(move || use_them(&*records)).await;
        done.map_err(|error| JobError::Io(std::io::Error::other(error)))?.map_err(JobError::from)
    }

    /// Changes what the supervisor of a running job was told. False where the job is not running here.
    pub(crate) fn order(&self, id: &str, change: impl FnOnce(&mut Orders)) -> bool {
        self.running().get(id).map(|orders| orders.send_modify(change)).is_some()
    }

    pub(crate) fn running(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Orders>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
