//! What happens when the driver gives up the device that models run on: requests that reach it are refused as `device_lost`
//! and told to come again, another device is opened, and every model that was up comes up on it. A driver that gives this
//! process no other device has the server begin anew ([`Revival::Impossible`]).

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

use super::lifecycle::{Cause, Lifecycle};
use super::state::Rest;
use crate::connection::told;
use crate::limits::{DEVICE_LOOK, DEVICE_RENEWAL, DEVICE_RENEWAL_PAUSE};

/// How looking after the device ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revival {
    /// The server shuts down.
    Over,
    /// The device is lost, and the driver gives this process no other: a new process may get one.
    Impossible,
}

impl Lifecycle {
    /// Brings up anew what a lost device took along, as often as one is lost, until `shutdown` is true.
    pub async fn keep_device(self: Arc<Lifecycle>, mut shutdown: watch::Receiver<bool>) -> Revival {
        loop {
            tokio::select! {
                () = tokio::time::sleep(DEVICE_LOOK) => {}
                () = told(&mut shutdown) => return Revival::Over,
            }
            let Some((device, reason)) = self.host.lost() else { continue };
            self.metrics.families.gpu_device_lost.with_label_values(&[&device]).inc();
            tracing::error!(device, reason, "the device is lost; another one is opened");
            let began = Instant::now();
            if tokio::time::timeout(DEVICE_RENEWAL, self.renew()).await.is_err() {
                tracing::error!("no other device is to be had in this process");
                return Revival::Impossible;
            }
            self.revive(began).await;
            tracing::info!(device, seconds = began.elapsed().as_secs_f64(), "models are up again");
        }
    }

    /// Opens another device, as soon as one is to be had.
    async fn renew(&self) {
        loop {
            let host = Arc::clone(&self.host);
            match spawn_blocking(move || host.renew()).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::warn!(%error, "no other device yet"),
                Err(error) => tracing::warn!(%error, "opening another device panicked"),
            }
            tokio::time::sleep(DEVICE_RENEWAL_PAUSE).await;
        }
    }

    /// Brings up what was up, several models at a time. Requests that come meanwhile wait for theirs.
    async fn revive(self: &Arc<Lifecycle>, began: Instant) {
        let mut models = JoinSet::new();
        for status in self.router.list() {
            // An ensemble has nothing on a device but its steps.
            if status.settings.ensemble.is_some() {
                continue;
            }
            let lifecycle = Arc::clone(self);
            models.spawn(async move {
                let name = status.name;
                let entry = lifecycle.entry(&name);
                let mut memory = entry.lock().await;
                // What was refused for the device's sake was never wrong.
                memory.refused.retain(|_, (_, reason)| !reason.starts_with("DEVICE_LOST"));
                if lifecycle.router.status(&name).is_ok_and(|status| status.rest == Rest::Awake) {
                    lifecycle.put_down(&name, &mut memory, Rest::Asleep("DEVICE"), "DEVICE");
                    lifecycle.settle(&name, &mut memory, Cause { began, ..Cause::new("DEVICE") }).await;
                }
            });
        }
        while models.join_next().await.is_some() {}
        self.connect_ensembles().await;
    }
}
