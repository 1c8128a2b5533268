//! The server of HTTP and gRPC: predictions, models that are replaced while they serve, jobs, datasets, health and metrics.
//!
//! [`ReconcileLoop`](saggar_serving::ReconcileLoop) detects model versions and passes them to the
//! [`ModelRouter`](saggar_serving::ModelRouter), from which [`serve`] answers requests. This crate does not depend on the
//! engine that runs plugins or on a device interface. Only [`error`] maps errors to HTTP status codes.

pub mod access;
pub mod access_log;
pub mod api;
pub mod app;
pub mod app_parts;
pub mod audit;
mod buffer_growth;
pub mod cog;
mod connection;
mod content_encoding;
mod deprecated_use;
pub mod device_inventory;
pub mod error;
pub mod graph_inspector;
mod grpc;
mod grpc_protocol;
mod handler_output;
mod history_sampler;
mod http_protocol;
mod initial_series;
mod inspected_graphs;
mod json_body;
pub mod limits;
mod low_priority;
mod mlflow;
mod multipart_form;
mod notebooks;
pub mod oip;
mod openapi;
mod pages;
mod pipeline_port;
pub mod plugin_inspector;
pub mod predict;
pub mod program_version;
pub mod recording;
mod request_body;
mod request_id;
mod request_memory;
mod request_middleware;
pub mod request_observer;
mod resource_access;
mod server;
mod server_history;
mod storage;
mod tensor_json;
#[cfg(test)]
mod tests;
pub mod tfs;

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

pub use access::{AccessControl, Actor, Principal};
pub use access_log::{AccessLog, AccessLogFormat};
pub use api::keys::key_document;
pub use api::workers::worker_job_settings;
pub use app::AppState;
pub use app_parts::AppParts;
pub use audit::{AuditAction, AuditLog};
pub use connection::file_descriptors::connections_max;
pub use connection::listener::ServerListener;
pub use connection::tls::{TlsCertificates, TlsError};
pub use device_inventory::{DeviceInventory, MachineDevice};
pub use error::ApiError;
pub use graph_inspector::{GraphInspectError, GraphInspector};
pub use oip::InferError;
pub use plugin_inspector::{PluginFacts, PluginInspector};
pub use predict::body_decoder::decode_sample;
pub use recording::{PredictionRecorder, RecordingPolicy};
pub use request_observer::RequestObserver;

use connection::{ConnectionTimeouts, file_descriptors};

/// Serves requests that arrive at `listeners` until `shutdown` is true. Then stops accepting connections, lets requests
/// in flight finish within `limits::DRAIN_TIME_MAX`, and returns.
///
/// # Errors
/// Returns the error of a listener that fails permanently.
pub async fn serve(listeners: Vec<ServerListener>, app: AppState, shutdown: watch::Receiver<bool>) -> io::Result<()> {
    tokio::spawn(Arc::clone(app.access()).run_key_loop(shutdown.clone()));
    let mut certificates: Vec<_> = listeners.iter().filter_map(ServerListener::certificates).cloned().collect();
    certificates.dedup();
    for certificates in certificates {
        tokio::spawn(certificates.watch_files(shutdown.clone()));
    }
    let entrances = listeners.into_iter().map(|listener| {
        let router = app.router_for(listener.listen_policy());
        (listener, router)
    });
    let capacity = file_descriptors::for_this_process();
    if capacity.connections_max < limits::CONNECTIONS_MAX {
        let most = capacity.connections_max;
        tracing::warn!(
            most,
            "few connections at once, because few files may be open: `saggar doctor` says how to mend it"
        );
    }
    let served = connection::serve(entrances.collect(), shutdown, ConnectionTimeouts::default(), capacity).await;
    app.access().save_key_usage();
    served
}
