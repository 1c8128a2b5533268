//! The HTTP server: predictions, models that are swapped while they serve, jobs, datasets, health and metrics.
//!
//! [`Loader`](models::Loader) takes up model versions and hands them to the [`ModelRouter`](models::ModelRouter);
//! [`serve`] answers requests from there. Nothing here knows the engine that runs plugins or the interface of a device;
//! only [`error`] knows HTTP status codes.

pub mod access;
pub mod api;
pub mod app;
pub mod audit;
mod body;
mod closed_series;
mod coding;
mod connection;
mod console;
pub mod error;
mod form;
mod json_body;
pub mod limits;
mod low_priority;
pub mod memory;
pub mod models;
mod observe;
mod oip;
mod openapi;
pub mod predict;
pub mod predictions;
mod storage;
#[cfg(test)]
mod tests;
pub mod tfs;
pub mod version;

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

pub use access::{Access, Actor, Who};
pub use api::devices::{Device, Devices};
pub use api::plugins::{PluginFacts, PluginInspector};
pub use app::{App, Parts};
pub use audit::{Action, Audit};
pub use connection::descriptors::connections_max;
pub use connection::listener::Listener;
pub use connection::tls::{Certificates, TlsError};
pub use error::ApiError;
pub use memory::MemoryBudget;
pub use oip::InferError;
pub use predictions::webhook::WebhookPrefix;

use connection::{Patience, descriptors};

/// Answers requests that come in by `listeners` until `shutdown` is true; then accepts no more, lets requests in flight
/// finish within `limits::DRAIN_TIME_MAX`, and returns.
///
/// # Errors
/// Where a listener fails for good.
pub async fn serve(listeners: Vec<Listener>, app: App, shutdown: watch::Receiver<bool>) -> io::Result<()> {
    tokio::spawn(Arc::clone(app.access()).keep(shutdown.clone()));
    let mut certificates: Vec<_> = listeners.iter().filter_map(Listener::certificates).cloned().collect();
    certificates.dedup();
    for certificates in certificates {
        tokio::spawn(certificates.follow(shutdown.clone()));
    }
    let entrances = listeners.into_iter().map(|listener| {
        let router = app.router_at(listener.door());
        (listener, router)
    });
    let capacity = descriptors::of_this_process();
    if capacity.connections_max < limits::CONNECTIONS_MAX {
        let most = capacity.connections_max;
        tracing::warn!(
            most,
            "few connections at once, because few files may be open: `saggar doctor` says how to mend it"
        );
    }
    let served = connection::serve(entrances.collect(), shutdown, Patience::default(), capacity).await;
    app.access().save();
    served
}
