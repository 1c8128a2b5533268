//! Noticing new model versions: a change below the models directory, or the passing of time, becomes a tick; what changed
//! is found by looking. Events are hints only: systems drop, merge and invent them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use crate::error::PluginError;
use crate::limits::{WATCH_DEBOUNCE, WATCH_RESCAN};

/// Ticks when the models directory should be looked at. Dropping it ends the watching.
#[derive(Debug)]
pub struct ModelWatch {
    ticks: mpsc::Receiver<()>,
    /// The only owner: with it go the sender of hints and the thread that waits for them.
    _watcher: Arc<Mutex<RecommendedWatcher>>,
}

impl ModelWatch {
    /// Watches `models_dir`, which must exist, and notices where it is replaced as a whole.
    ///
    /// # Errors
    /// `Watch` where the system gives no watcher or no thread.
    pub fn start(models_dir: &Path) -> Result<ModelWatch, PluginError> {
        ModelWatch::start_with(models_dir, WATCH_DEBOUNCE, WATCH_RESCAN)
    }

    fn start_with(models_dir: &Path, debounce: Duration, rescan: Duration) -> Result<ModelWatch, PluginError> {
        let dir = models_dir.canonicalize().map_err(watch_error)?;
        // One waiting hint is as good as many.
        let (hint, hints) = sync_channel(1);
        let replaced = Arc::new(AtomicBool::new(false));
        let forward = forward(dir.clone(), hint, Arc::clone(&replaced));
        let mut watcher = notify::recommended_watcher(forward).map_err(watch_error)?;
        watcher.watch(&dir, RecursiveMode::Recursive).map_err(watch_error)?;
        if let Some(parent) = dir.parent() {
            // Only to see the directory itself replaced: what else is below the parent is none of ours.
            watcher.watch(parent, RecursiveMode::NonRecursive).map_err(watch_error)?;
        }
        let watcher = Arc::new(Mutex::new(watcher));
        let (tick, ticks) = mpsc::channel(1);
        let settle = WatchDebouncer { hints, tick, debounce, rescan, dir, replaced, watcher: Arc::downgrade(&watcher) };
        std::thread::Builder::new().name("model-watch".to_owned()).spawn(move || settle.run()).map_err(watch_error)?;
        Ok(ModelWatch { ticks, _watcher: watcher })
    }

    /// Waits for the next tick; none where watching has ended.
    pub async fn changed(&mut self) -> Option<()> {
        self.ticks.recv().await
    }

    /// As [`ModelWatch::changed`], for threads outside of a runtime.
    pub fn blocking_changed(&mut self) -> Option<()> {
        self.ticks.blocking_recv()
    }
}

fn watch_error(error: impl std::fmt::Display) -> PluginError {
    PluginError::Watch { reason: error.to_string() }
}

/// Passes on that something happened at or below `dir`, or that events were lost.
fn forward(
    dir: PathBuf,
    hint: SyncSender<()>,
    replaced: Arc<AtomicBool>,
) -> impl FnMut(notify::Result<notify::Event>) + Send + 'static {
    move |event| {
        let concerns = match event {
            // Reading is no change, and looking at the models is reading.
            Ok(event) if event.kind.is_access() => false,
            Ok(event) => {
                if event.paths.contains(&dir) {
                    replaced.store(true, Ordering::Release);
                }
                event.paths.is_empty() || event.paths.iter().any(|path| path.starts_with(&dir))
            }
            Err(error) => {
                tracing::warn!(%error, "watching the models directory");
                true
            }
        };
        if concerns {
            // A full channel holds a hint already.
            let _ = hint.try_send(());
        }
    }
}

/// Turns hints into ticks: one when they have ceased for a while, and one now and then without any.
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
                    // A writer that never pauses does not hold ticks up for ever.
                    let latest = Instant::now() + 10 * self.debounce;
                    while Instant::now() < latest && self.hints.recv_timeout(self.debounce).is_ok() {}
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Before the tick: what happens between looking and watching would be missed.
            if self.replaced.swap(false, Ordering::AcqRel) {
                self.rewatch();
            }
            // A full channel holds a tick already.
            if let Err(mpsc::error::TrySendError::Closed(())) = self.tick.try_send(()) {
                return;
            }
        }
    }

    /// Follows the path to the directory that is there now.
    fn rewatch(&self) {
        let Some(watcher) = self.watcher.upgrade() else { return };
        let mut watcher = watcher.lock().unwrap_or_else(PoisonError::into_inner);
        // The old directory may be gone, and its watch with it.
        let _ = watcher.unwatch(&self.dir);
        if let Err(error) = watcher.watch(&self.dir, RecursiveMode::Recursive) {
            tracing::warn!(%error, "the models directory is not watched; it is looked at now and then");
            self.replaced.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
