//! Recovery from device loss. Requests that reach the lost device are refused as `device_lost` and can be retried.
//! Another device is opened, and every model that was loaded is loaded on it. If the driver gives this process no other
//! device, the server restarts ([`DeviceRecovery::Impossible`]).

use std::sync::Arc;
use std::time::Instant;

use saggar_plugin::FailureReason;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

use super::model_record::ReconcileCause;
use crate::lifecycle::ModelLifecycle;
use crate::limits::{DEVICE_LOSS_POLL, DEVICE_RECOVERY_RETRY_PAUSE, DEVICE_RECOVERY_TIME_MAX};
use crate::model_state::Residency;
use crate::shutdown::wait_for_shutdown;

/// The reason for which device recovery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceRecovery {
    /// The server shuts down.
    ShuttingDown,
    /// The device is lost, and the driver gives this process no other. A new process can get one.
    Impossible,
}

impl ModelLifecycle {
    /// Reloads the models of a lost device, each time one is lost, until `shutdown` is true.
    pub async fn recover_lost_devices(
        self: Arc<ModelLifecycle>,
        mut shutdown: watch::Receiver<bool>,
    ) -> DeviceRecovery {
        loop {
            tokio::select! {
                () = tokio::time::sleep(DEVICE_LOSS_POLL) => {}
                () = wait_for_shutdown(&mut shutdown) => return DeviceRecovery::ShuttingDown,
            }
            let Some((device, reason)) = self.host.lost_device() else { continue };
            self.metrics.families.device_lost.with_label_values(&[&device]).inc();
            tracing::error!(device, reason, "the device is lost; another one is opened");
            let began = Instant::now();
            if tokio::time::timeout(DEVICE_RECOVERY_TIME_MAX, self.reopen_device()).await.is_err() {
                tracing::error!("no other device can be opened in this process");
                return DeviceRecovery::Impossible;
            }
            self.reload_models(began).await;
            tracing::info!(device, seconds = began.elapsed().as_secs_f64(), "models are up again");
        }
    }

    /// Opens another device, and retries until the time limit is over.
    async fn reopen_device(&self) {
        loop {
            let host = Arc::clone(&self.host);
            match spawn_blocking(move || host.reopen_device()).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::warn!(%error, "no other device yet"),
                Err(error) => tracing::warn!(%error, "opening another device panicked"),
            }
            tokio::time::sleep(DEVICE_RECOVERY_RETRY_PAUSE).await;
        }
    }

    /// Reloads the models that were loaded, several at a time. Requests that arrive meanwhile wait for their model.
    async fn reload_models(self: &Arc<ModelLifecycle>, began: Instant) {
        let mut models = JoinSet::new();
        for status in self.router.list() {
            // An ensemble holds nothing on a device except its steps.
            if status.config.ensemble.is_some() {
                continue;
            }
            let lifecycle = Arc::clone(self);
            models.spawn(async move {
                let name = status.name;
                let entry = lifecycle.model_record(&name);
                let mut memory = entry.lock().await;
                // Versions that were refused because of the lost device are not at fault.
                memory.refused.retain(|_, refused| refused.plugin_failure != Some(FailureReason::DeviceLost));
                if lifecycle.router.status(&name).is_ok_and(|status| status.residency == Residency::Awake) {
                    lifecycle.take_out_of_service(&name, &mut memory, Residency::Asleep("DEVICE"), "DEVICE");
                    lifecycle
                        .reconcile(&name, &mut memory, ReconcileCause { began, ..ReconcileCause::new("DEVICE") })
                        .await;
                }
            });
        }
        while models.join_next().await.is_some() {}
        self.reconcile_ensembles().await;
    }
}
