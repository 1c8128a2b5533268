//! The one loop that looks at the models directory: at every tick it takes in files that models are made of, and has the
//! lifecycle look at the versions.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::import::DroppedFiles;
use super::lifecycle::ModelLifecycle;
use crate::connection::wait_for_shutdown;

/// Looks whenever something may have changed.
#[derive(Debug)]
pub struct ReconcileLoop {
    lifecycle: Arc<ModelLifecycle>,
    /// Files that models are made of, where such are watched for.
    dropped: Arc<Mutex<Option<DroppedFiles>>>,
}

/// What wakes the loader.
pub trait ReconcileTriggers: Send {
    /// Waits for the next reason to look; none where there will be no more.
    fn next_trigger(&mut self) -> impl Future<Output = Option<()>> + Send;
}

impl ReconcileTriggers for saggar_plugin::ModelWatch {
    async fn next_trigger(&mut self) -> Option<()> {
        self.changed().await
    }
}

impl ReconcileLoop {
    /// A loop around the lifecycle.
    pub fn new(lifecycle: Arc<ModelLifecycle>) -> ReconcileLoop {
        ReconcileLoop { lifecycle, dropped: Arc::default() }
    }

    /// Makes models of files that are dropped beside the versions, too.
    #[must_use]
    pub fn with_dropped(self, dropped: DroppedFiles) -> ReconcileLoop {
        ReconcileLoop { dropped: Arc::new(Mutex::new(Some(dropped))), ..self }
    }

    /// Looks at once, and then at every tick, until `shutdown` is true or there are no more ticks. A version that takes
    /// long to come up holds up its own model alone, and a file that takes long to import holds up other files alone.
    pub async fn run(self, mut ticks: impl ReconcileTriggers, mut shutdown: watch::Receiver<bool>) {
        let mut importing = Some(self.import_dropped());
        let mut ticked_meanwhile = false;
        loop {
            tokio::select! {
                () = self.lifecycle.reconcile_all() => {}
                () = wait_for_shutdown(&mut shutdown) => return,
            }
            tokio::select! {
                tick = ticks.next_trigger() => match tick {
                    Some(()) if importing.is_none() => importing = Some(self.import_dropped()),
                    Some(()) => ticked_meanwhile = true,
                    None => return,
                },
                () = join_if_running(&mut importing) => {
                    importing = std::mem::take(&mut ticked_meanwhile).then(|| self.import_dropped());
                }
                () = wait_for_shutdown(&mut shutdown) => return,
            }
        }
    }

    /// Looks once.
    pub async fn run_once(&self) {
        join_if_running(&mut Some(self.import_dropped())).await;
        self.lifecycle.reconcile_all().await;
    }

    /// Imports dropped files on a thread that may block.
    fn import_dropped(&self) -> JoinHandle<()> {
        let dropped = Arc::clone(&self.dropped);
        let take_in = move || {
            // Where taking in panics, the panic is logged and files are no longer looked for.
            let taken = dropped.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(mut files) = taken {
                files.import_changed();
                *dropped.lock().unwrap_or_else(PoisonError::into_inner) = Some(files);
            }
        };
        tokio::task::spawn_blocking(take_in)
    }
}

/// Waits until the task has ended, for ever where there is none.
async fn join_if_running(task: &mut Option<JoinHandle<()>>) {
    match task {
        Some(running) => {
            let _ = running.await;
            *task = None;
        }
        None => std::future::pending().await,
    }
}
