//! `saggar worker host`: places and runs jobs of shared records until it is stopped or drained. It serves no requests.

use std::sync::Arc;
use std::time::Duration;

use saggar_clock::{Clock, SystemClock};
use saggar_jobs::JobService;
use saggar_metrics::MetricsRegistry;
use saggar_serve::AuditLog;
use saggar_store::StateDirLock;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::host_settings;
use super::locked_home::{self, LockedHome};
use crate::args::WorkerHostArgs;
use crate::commands::serve::job_host::JobHostParts;
use crate::commands::serve::object_storage;
use crate::commands::serve::shared_records::ServerRecords;
use crate::commands::serve::shutdown::{ShutdownProgress, ShutdownWatch, THREADS_TIME_MAX};
use crate::commands::serve::unexpected_error;
use crate::exit::CliError;

/// Maximum time for attempts to save their state. Batch systems and clouds give a machine 25 to 30 s to end.
const STOP_GRACE: Duration = Duration::from_secs(20);
/// Maximum time from a signal to the end of the process.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(24);

const _: () = assert!(SHUTDOWN_TIME_MAX.as_secs() > STOP_GRACE.as_secs() + THREADS_TIME_MAX.as_secs());

/// A process that runs jobs, before it runs.
pub(super) struct WorkerHost {
    pub(super) jobs: JobService,
    runtime: Runtime,
    /// Becomes true when the process is to end.
    pub(super) shutdown: watch::Sender<bool>,
    /// The lock of the state directory.
    _lock: StateDirLock,
}

/// Runs jobs until a signal comes or the host is drained.
pub(super) fn run(args: &WorkerHostArgs) -> Result<(), CliError> {
    let host = WorkerHost::open(args, locked_home::open(&args.offer.home)?)?;
    let (jobs, shutdown) = (host.jobs.clone(), host.shutdown.clone());
    host.block_on(async move {
        let (mut drained, drain_ends) = (jobs.subscribe_drained(), shutdown.clone());
        tokio::spawn(async move {
            // An error means that the jobs are gone.
            if drained.wait_for(|&drained| drained).await.is_ok() {
                tracing::info!("the host is drained, and ends");
                drain_ends.send_replace(true);
            }
        });
        jobs.run(shutdown.subscribe()).await.map_err(unexpected_error)
    })
}

impl WorkerHost {
    /// Opens the records and the store of objects.
    ///
    /// # Errors
    /// Fails if there is no database, or the database or the store of objects cannot be used.
    pub(super) fn open(args: &WorkerHostArgs, home: LockedHome) -> Result<WorkerHost, CliError> {
        if !args.database.is_set() {
            let message = "a worker needs the database of its server: SAGGAR_DATABASE_URL is not set";
            let hint = "`saggar worker join URL --key KEY` asks the server for it; set it for `saggar worker run`";
            return Err(CliError::invalid(message).with_hint(hint));
        }
        let objects_address = args.objects.as_deref().filter(|address| !address.is_empty());
        let LockedHome { home, lock } = home;
        let (home, objects) = object_storage::open(objects_address, home)?;
        let models_dir = home.models();
        std::fs::create_dir_all(&models_dir).map_err(unexpected_error)?;
        let models_dir = models_dir.canonicalize().map_err(unexpected_error)?;
        let settings = host_settings::job_settings()?;
        let settings = settings.as_ref();
        let program = std::env::current_exe().map_err(unexpected_error)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let parts = JobHostParts {
            home: &home,
            models_dir: &models_dir,
            database: &args.database,
            objects: &objects,
            objects_address,
            records: ServerRecords::open(&args.database, &home)?,
            scheduler_config: host_settings::scheduler_config(settings, &args.offer)?,
            storage_quota: settings.and_then(|settings| settings.storage_quota),
            fetch: host_settings::fetch_policy(settings)?,
            worker_silence: host_settings::worker_silence(settings),
            offer: host_settings::host_offer(&args.offer, &program),
            ranks: &args.offer.ranks,
            clock: Arc::clone(&clock),
            metrics: Arc::new(MetricsRegistry::new()),
        };
        let jobs = parts.assemble(&program)?.with_stop_grace(STOP_GRACE);
        let audit = AuditLog::new(home.audit_log(), Arc::clone(&clock));
        jobs.set_effect_log(Box::new(move |effect| audit.record_effect(effect)));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(unexpected_error)?;
        runtime.block_on(object_storage::check(objects_address, &objects, &*clock))?;
        Ok(WorkerHost { jobs, runtime, shutdown: watch::channel(false).0, _lock: lock })
    }

    /// Runs a future to its end, and sets `shutdown` when a signal comes.
    pub(super) fn block_on<T>(self, work: impl Future<Output = T>) -> T {
        let waits = ShutdownProgress::new();
        waits.set_waiting_for("jobs");
        let watch = ShutdownWatch { shutdown: self.shutdown.clone(), input_ends: false, waits };
        watch.spawn(SHUTDOWN_TIME_MAX, Vec::new);
        let done = self.runtime.block_on(work);
        self.runtime.shutdown_timeout(THREADS_TIME_MAX);
        done
    }
}
