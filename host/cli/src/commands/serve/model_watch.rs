//! Watches the models directory for new versions. Each change below it, and the passing of time, becomes a tick; the
//! receiver scans the directory for the changes. Events are only hints: systems drop, merge and invent them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use saggar_serving::ReconcileTriggers;
use tokio::sync::mpsc;

use super::unexpected_error;
use crate::exit::CliError;

/// Time without changes in the models directory after which a change counts as complete.
const WATCH_DEBOUNCE: Duration = Duration::from_millis(200);
/// Interval at which the models directory is scanned even if no event was reported.
const WATCH_RESCAN: Duration = Duration::from_secs(30);

/// A receiver of ticks, each of which means that the models directory should be scanned. Dropping it ends the watching.
#[derive(Debug)]
pub(super) struct ModelWatch {
    ticks: mpsc::Receiver<()>,
    /// The only strong reference: dropping it drops the sender of hints and so ends the thread that waits for them.
    _watcher: Arc<Mutex<RecommendedWatcher>>,
}

impl ModelWatch {
    /// Watches `models_dir`, which must exist. Also detects that the whole directory is replaced.
    ///
    /// # Errors
    /// Fails if the system refuses a watcher or a thread.
    pub(super) fn start(models_dir: &Path) -> Result<ModelWatch, CliError> {
        ModelWatch::start_with(models_dir, WATCH_DEBOUNCE, WATCH_RESCAN)
    }

    fn start_with(models_dir: &Path, debounce: Duration, rescan: Duration) -> Result<ModelWatch, CliError> {
        let dir = models_dir.canonicalize().map_err(watch_error)?;
        // One pending hint is enough.
        let (hint, hints) = sync_channel(1);
        let replaced = Arc::new(AtomicBool::new(false));
        let forward = forward(dir.clone(), hint, Arc::clone(&replaced));
        let mut watcher = notify::recommended_watcher(forward).map_err(watch_error)?;
        watcher.watch(&dir, RecursiveMode::Recursive).map_err(watch_error)?;
        if let Some(parent) = dir.parent() {
            // Only to detect that the directory itself is replaced; other files of the parent are ignored.
            watcher.watch(parent, RecursiveMode::NonRecursive).map_err(watch_error)?;
        }
        let watcher = Arc::new(Mutex::new(watcher));
        let (tick, ticks) = mpsc::channel(1);
        let settle = WatchDebouncer { hints, tick, debounce, rescan, dir, replaced, watcher: Arc::downgrade(&watcher) };
        std::thread::Builder::new().name("model-watch".to_owned()).spawn(move || settle.run()).map_err(watch_error)?;
        Ok(ModelWatch { ticks, _watcher: watcher })
    }
}

impl ReconcileTriggers for ModelWatch {
    async fn next_trigger(&mut self) -> Option<()> {
        self.ticks.recv().await
    }
}

fn watch_error(error: impl std::fmt::Display) -> CliError {
    unexpected_error(format!("the models directory cannot be watched: {error}"))
}

/// Returns an event handler that sends a hint if something changed at or below `dir`, or if events were lost.
fn forward(
    dir: PathBuf,
    hint: SyncSender<()>,
    replaced: Arc<AtomicBool>,
) -> impl FnMut(notify::Result<notify::Event>) + Send + 'static {
    move |event| {
        let concerns = match event {
            // Reading is not a change; scanning the models reads them.
            Ok(event) if event.kind.is_access() => false,
            Ok(event) => {
                if event.paths.contains(&dir) {
                    replaced.store(true, Ordering::Release);
                }
                event.paths.is_empty() || event.paths.iter().any(|path| path.starts_with(&dir))
            }
            Err(error) => {
                tracing::warn!(%error, "an error while watching the models directory: it is scanned");
                true
            }
        };
        if concerns {
            // If the channel is full, it already holds a hint.
            let _ = hint.try_send(());
        }
    }
}

/// Debounces hints into ticks: one tick when hints have paused, and one per rescan interval without hints.
struct WatchDebouncer {
    hints: Receiver<()>,
    tick: mpsc::Sender<()>,
    debounce: Duration,
    rescan: Duration,
    dir: PathBuf,
    replaced: Arc<AtomicBool>,
    watcher: Weak<Mutex<RecommendedWatcher>>,
}

impl WatchDebouncer {
    fn run(self) {
        loop {
            match self.hints.recv_timeout(self.rescan) {
                Ok(()) => {
                    // A writer that never pauses must not delay ticks forever.
                    let latest = Instant::now() + 10 * self.debounce;
                    while Instant::now() < latest && self.hints.recv_timeout(self.debounce).is_ok() {}
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Watch the new directory before the tick, so that no change between the scan and the watch is missed.
            if self.replaced.swap(false, Ordering::AcqRel) {
                self.rewatch();
            }
            // If the channel is full, it already holds a tick.
            if let Err(mpsc::error::TrySendError::Closed(())) = self.tick.try_send(()) {
                return;
            }
        }
    }

    /// Watches the directory that the path now refers to.
    fn rewatch(&self) {
        let Some(watcher) = self.watcher.upgrade() else { return };
        let mut watcher = watcher.lock();
        // The old directory and its watch are possibly gone.
        let _ = watcher.unwatch(&self.dir);
        if let Err(error) = watcher.watch(&self.dir, RecursiveMode::Recursive) {
            tracing::warn!(%error, "cannot watch the models directory: it is only scanned at intervals");
            self.replaced.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
