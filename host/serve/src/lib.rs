//! The HTTP server: predictions, models that are swapped while they serve, jobs, datasets, health and metrics.
//!
//! [`Loader`](models::Loader) takes up model versions and hands them to the [`ModelRouter`](models::ModelRouter);
//! [`serve`] answers requests from there. Nothing here knows the engine that runs plugins or the interface of a device;
//! only [`error`] knows HTTP status codes.

pub mod api;
pub mod app;
mod body;
mod coding;
mod connection;
mod console;
pub mod error;
pub mod limits;
pub mod models;
mod observe;
mod oip;
mod openapi;
pub mod predict;
pub mod predictions;
#[cfg(test)]
mod tests;
pub mod tfs;

use std::io;

use tokio::net::TcpListener;
use tokio::sync::watch;

pub use api::devices::{Device, Devices};
pub use api::plugins::{PluginFacts, PluginInspector};
pub use app::{App, Parts};
pub use error::ApiError;
pub use oip::InferError;
pub use predictions::webhook::WebhookPrefix;

use connection::Patience;

/// Answers requests on `listener` until `shutdown` is true; then accepts no more, lets requests in flight finish within
/// `limits::DRAIN_TIME_MAX`, and returns.
///
/// # Errors
/// Where the listener fails for good.
pub async fn serve(listener: TcpListener, app: App, shutdown: watch::Receiver<bool>) -> io::Result<()> {
    connection::serve(listener, app.router(), shutdown, Patience::default()).await
}
