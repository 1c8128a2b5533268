//! Work that a server does at intervals until it stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// Does the work now and at intervals, on a thread that can block, until the server stops.
pub(super) fn repeat(mut down: watch::Receiver<bool>, interval: Duration, work: impl Fn() + Send + Sync + 'static) {
    let work = Arc::new(work);
    tokio::spawn(async move {
        while !*down.borrow() {
            let work = Arc::clone(&work);
            if let Err(error) = tokio::task::spawn_blocking(move || work()).await {
                tracing::error!(%error, "work that a server repeats has failed");
            }
            if let Ok(Err(_)) = tokio::time::timeout(interval, down.changed()).await {
                // The server is gone.
                return;
            }
        }
    });
}
