//! The reconciliation loop: at every tick it imports new model files from the models directory and reconciles the
//! models.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::import::DroppedFiles;
use crate::lifecycle::ModelLifecycle;
use crate::shutdown::wait_for_shutdown;

/// Reconciles models whenever something can have changed.
#[derive(Debug)]
pub struct ReconcileLoop {
    lifecycle: Arc<ModelLifecycle>,
    /// Files to import, if the directory is watched for them.
    dropped: Arc<Mutex<Option<DroppedFiles>>>,
}

/// The source of ticks of the reconciliation loop.
pub trait ReconcileTriggers: Send {
    /// Waits for the next trigger. Returns `None` if there will be no more.
    fn next_trigger(&mut self) -> impl Future<Output = Option<()>> + Send;
}

impl ReconcileLoop {
    /// Creates a loop around the lifecycle.
    pub fn new(lifecycle: Arc<ModelLifecycle>) -> ReconcileLoop {
        ReconcileLoop { lifecycle, dropped: Arc::default() }
    }

    /// Also imports model files that are copied into the models directory.
    #[must_use]
    pub fn with_dropped(self, dropped: DroppedFiles) -> ReconcileLoop {
        ReconcileLoop { dropped: Arc::new(Mutex::new(Some(dropped))), ..self }
    }

    /// Reconciles immediately and then at every tick, until `shutdown` is true or there are no more ticks. A slow load
    /// delays only its own model, and a slow import delays only other imports.
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

    /// Imports and reconciles once.
    pub async fn run_once(&self) {
        join_if_running(&mut Some(self.import_dropped())).await;
        self.lifecycle.reconcile_all().await;
    }

    /// Imports dropped files on a blocking thread.
    fn import_dropped(&self) -> JoinHandle<()> {
        let dropped = Arc::clone(&self.dropped);
        let take_in = move || {
            // If the import panics, the panic is logged and the directory is no longer watched for files.
            let dropped_files = dropped.lock().take();
            if let Some(mut files) = dropped_files {
                files.import_changed();
                *dropped.lock() = Some(files);
            }
        };
        tokio::task::spawn_blocking(take_in)
    }
}

/// Waits until the task has ended, or forever if there is no task.
async fn join_if_running(task: &mut Option<JoinHandle<()>>) {
    match task {
        Some(running) => {
            let _ = running.await;
            *task = None;
        }
        None => std::future::pending().await,
    }
}
