//! Keeps this host's row in shared records, and drains the host when an operator asks for it.

use std::sync::Arc;

use saggar_store::records::{HOST_RENEWAL_INTERVAL, HostDrain, HostOffer, JobRecords, StateReason};
use saggar_telemetry::RepeatedFailure;

use crate::error::JobError;
use crate::rank_keeper;
use crate::shared::SharedState;
use crate::spec::HOST_SHUTDOWN;

/// Registers the host and renews its row until the task is aborted.
pub(crate) async fn keep_registered(shared: Arc<SharedState>) {
    let mut registered = None;
    let failure = RepeatedFailure::new("the row of this host cannot be renewed");
    loop {
        let offer = shared.host_offer();
        // What the host offers can change, for example when its devices are found.
        let renewed = if registered.as_ref() == Some(&offer) { renew(&shared).await } else { Ok(None) };
        let drain = match renewed {
            Ok(Some(drain)) => Ok(drain),
            Ok(None) => register(&shared).await.map(|()| HostDrain::No),
            Err(error) => Err(error),
        };
        match drain {
            Ok(drain) => {
                registered = Some(offer);
                apply_drain(&shared, drain).await;
                failure.log(Ok::<_, JobError>(()));
            }
            Err(error) => failure.log(Err(error)),
        }
        tokio::select! {
            () = tokio::time::sleep(HOST_RENEWAL_INTERVAL) => {}
            () = shared.host_changed.notified() => {}
        }
    }
}

async fn register(shared: &Arc<SharedState>) -> Result<(), JobError> {
    let server = shared.server().clone();
    let offer = HostOffer { storage: server.storage.clone(), ..HostOffer::clone(&shared.host_offer()) };
    tracing::info!(name = server.name, labels = ?offer.labels, devices = ?offer.devices, "this host takes jobs");
    let is_removed = Arc::clone(&shared.is_host_removed);
    let register = move |records: &dyn JobRecords| {
        let is_removed = is_removed.lock();
        if *is_removed { Ok(()) } else { records.register_host(&server.id, &server.name, &offer) }
    };
    shared.with_records(register).await
}

async fn renew(shared: &Arc<SharedState>) -> Result<Option<HostDrain>, JobError> {
    let id = shared.server().id.clone();
    shared.with_records(move |records: &dyn JobRecords| records.renew_host(&id)).await
}

/// Removes the host's row, because it ends and has saved its jobs.
pub(crate) async fn unregister(shared: &Arc<SharedState>) {
    let id = shared.server().id.clone();
    let is_removed = Arc::clone(&shared.is_host_removed);
    let remove = move |records: &dyn JobRecords| {
        let mut is_removed = is_removed.lock();
        *is_removed = true;
        records.remove_host(&id)
    };
    if let Err(error) = shared.with_records(remove).await {
        tracing::warn!(%error, "the row of this host was not removed; it will be listed as lost");
    }
}

/// Asks running jobs to save their state if the host is to be drained, and reports when none is left.
async fn apply_drain(shared: &Arc<SharedState>, drain: HostDrain) {
    if drain == HostDrain::Requeue {
        rank_keeper::leave_parts(shared).await;
        let running: Vec<String> = shared.running_attempts().keys().cloned().collect();
        for id in running {
            let sentence = format!("host {} is drained", shared.server().name);
            shared.request_requeue(&id, StateReason::new(HOST_SHUTDOWN, sentence));
        }
    }
    let is_drained =
        drain != HostDrain::No && shared.running_attempts().is_empty() && shared.led_elsewhere.lock().is_empty();
    shared.drained.send_if_modified(|drained| std::mem::replace(drained, is_drained) != is_drained);
}
