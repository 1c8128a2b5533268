//! Waiting for the server's shutdown.

use tokio::sync::watch;

/// Returns once the server has been asked to stop, or the sender is gone.
pub async fn wait_for_shutdown(shutdown: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone.
    let _ = shutdown.wait_for(|&stop| stop).await;
}
