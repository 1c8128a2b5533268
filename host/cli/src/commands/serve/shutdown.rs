//! Shutdown of `saggar serve`. The first Ctrl-C or SIGTERM starts a graceful shutdown: requests finish and jobs save
//! their state. A second signal, or the end of the grace period, terminates the process at once. A dedicated thread
//! enforces this even if every runtime thread is blocked.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saggar_serve::limits::DRAIN_TIME_MAX;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::exit;
use crate::logging;
use crate::signals::ShutdownSignals;

/// Maximum time of a graceful shutdown: requests finish and jobs save their state at the same time, each within
/// [`DRAIN_TIME_MAX`].
pub(super) const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(35);
/// Maximum time to wait for blocked threads after requests and jobs are done.
pub(in crate::commands) const THREADS_TIME_MAX: Duration = Duration::from_secs(1);
/// Maximum time of the system's own process exit, with driver threads in the process.
const EXIT_TIME_MAX: Duration = Duration::from_secs(2);

const _: () = assert!(SHUTDOWN_TIME_MAX.as_secs() > DRAIN_TIME_MAX.as_secs() + THREADS_TIME_MAX.as_secs());
const _: () = assert!(SHUTDOWN_TIME_MAX.as_secs() > saggar_jobs::limits::STOP_GRACE.as_secs());

/// What a graceful shutdown is waiting for, to be logged if it does not finish.
#[derive(Clone, Debug)]
pub(in crate::commands) struct ShutdownProgress(Arc<Mutex<&'static str>>);

impl ShutdownProgress {
    pub(in crate::commands) fn new() -> ShutdownProgress {
        ShutdownProgress(Arc::new(Mutex::new("requests")))
    }

    pub(in crate::commands) fn set_waiting_for(&self, what: &'static str) {
        *self.0.lock() = what;
    }

    fn waiting_for(&self) -> &'static str {
        *self.0.lock()
    }
}

/// A process that is to end when a signal comes.
#[derive(Clone, Debug)]
pub(in crate::commands) struct ShutdownWatch {
    /// Becomes true when the shutdown begins.
    pub(in crate::commands) shutdown: watch::Sender<bool>,
    /// Whether the end of standard input also begins it.
    pub(in crate::commands) input_ends: bool,
    /// What the shutdown waits for.
    pub(in crate::commands) waits: ShutdownProgress,
}

impl ShutdownWatch {
    /// Sets `shutdown` when a signal comes or, if `input_ends`, when standard input ends. Ends the process if it still runs
    /// after the next signal or `max`; then logs what `running` returns. Returns when signals are watched, so that none ends a
    /// server that has said that it listens.
    pub(in crate::commands) fn spawn(self, max: Duration, running: impl FnOnce() -> Vec<String> + Send + 'static) {
        let (installed, is_installed) = std::sync::mpsc::channel();
        let watch = move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(run_shutdown(self, max, running, installed));
        };
        // Without the thread, signals end the process at once.
        match std::thread::Builder::new().name("shutdown".to_owned()).spawn(watch) {
            // An error means that the thread has ended, which has said why.
            Ok(_) => drop(is_installed.recv()),
            Err(error) => {
                tracing::warn!(%error, "signals cannot be watched: a signal ends the process without a graceful shutdown");
            }
        }
    }
}

async fn run_shutdown(
    watch: ShutdownWatch,
    max: Duration,
    running: impl FnOnce() -> Vec<String> + Send + 'static,
    installed: std::sync::mpsc::Sender<()>,
) {
    let ShutdownWatch { shutdown, input_ends, waits } = watch;
    let mut signals = match ShutdownSignals::install() {
        Ok(signals) => signals,
        Err(error) => return tracing::warn!(%error, "a signal ends the server without a graceful shutdown"),
    };
    let _ = installed.send(());
    let mut requests = shutdown.subscribe();
    tokio::select! {
        _ = signals.recv() => {}
        () = wait_for_stdin_end(), if input_ends => {}
        // An error means that the sender is gone.
        _ = requests.wait_for(|&stop| stop) => {}
    }
    tracing::info!("shutting down: requests finish, jobs save their state; a second signal ends the server at once");
    shutdown.send_replace(true);
    let code = match timeout(max, signals.recv()).await {
        Ok(code) => {
            tracing::warn!(waits = waits.waiting_for(), "a second signal: the server ends at once");
            code
        }
        Err(_) => {
            let seconds = max.as_secs();
            tracing::error!(
                waits = waits.waiting_for(),
                "the shutdown did not finish within {seconds} s: the server ends at once"
            );
            exit::UNEXPECTED
        }
    };
    // On a separate thread, because whatever blocks the server may block this too.
    let look = std::thread::Builder::new().name("running".to_owned()).spawn(move || {
        for running in running() {
            tracing::warn!(running, "work cut off by the end of the server");
        }
    });
    let _ = std::thread::Builder::new().name("exit".to_owned()).spawn(|| {
        std::thread::sleep(EXIT_TIME_MAX);
        std::process::abort();
    });
    while look.as_ref().is_ok_and(|look| !look.is_finished()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    logging::flush_log();
    std::process::exit(code);
}

/// Waits for end of file on standard input. A dedicated thread reads it, because a blocked runtime thread would prevent
/// the runtime's shutdown.
async fn wait_for_stdin_end() {
    let (ended, end) = oneshot::channel();
    let read = move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = ended.send(());
    };
    if let Err(error) = std::thread::Builder::new().name("input".to_owned()).spawn(read) {
        tracing::warn!(%error, "standard input is not read; only a signal ends the server");
        std::future::pending::<()>().await;
    }
    let _ = end.await;
}
