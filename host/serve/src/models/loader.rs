//! The one loop that looks at the models directory: at every tick it takes in files that models are made of, and has the
//! lifecycle look at the versions.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::import::DroppedFiles;
use super::lifecycle::Lifecycle;
use crate::connection::told;

/// Looks whenever something may have changed.
#[derive(Debug)]
pub struct Loader {
    lifecycle: Arc<Lifecycle>,
    /// Files that models are made of, where such are watched for.
    dropped: Arc<Mutex<Option<DroppedFiles>>>,
}

/// What wakes the loader.
pub trait Ticks: Send {
    /// Waits for the next reason to look; none where there will be no more.
    fn next(&mut self) -> impl Future<Output = Option<()>> + Send;
}

impl Ticks for saggar_plugin::ModelWatch {
    async fn next(&mut self) -> Option<()> {
        self.changed().await
    }
}

impl Loader {
    /// A loop around the lifecycle.
    pub fn new(lifecycle: Arc<Lifecycle>) -> Loader {
        Loader { lifecycle, dropped: Arc::default() }
    }

    /// Makes models of files that are dropped beside the versions, too.
    #[must_use]
    pub fn with_dropped(self, dropped: DroppedFiles) -> Loader {
        Loader { dropped: Arc::new(Mutex::new(Some(dropped))), ..self }
    }

    /// Looks at once, and then at every tick, until `shutdown` is true or there are no more ticks. A version that takes
    /// long to come up holds up its own model alone.
    pub async fn run(self, mut ticks: impl Ticks, mut shutdown: watch::Receiver<bool>) {
        loop {
            let look = self.look();
            tokio::select! {
                () = look => {}
                () = told(&mut shutdown) => return,
            }
            tokio::select! {
                tick = ticks.next() => if tick.is_none() { return },
                () = told(&mut shutdown) => return,
            }
        }
    }

    /// Looks once.
    pub async fn look(&self) {
        let dropped = Arc::clone(&self.dropped);
        let take_in = move || {
            // Where taking in panics, the panic is logged and files are no longer looked for.
            let taken = dropped.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(mut files) = taken {
                files.take_in();
                *dropped.lock().unwrap_or_else(PoisonError::into_inner) = Some(files);
            }
        };
        let _ = tokio::task::spawn_blocking(take_in).await;
        self.lifecycle.look().await;
    }
}
