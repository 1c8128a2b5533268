//! The operations of the management interface, for the OpenAPI document.

pub(super) mod datasets;
pub(super) mod jobs;
pub(super) mod models;
pub(super) mod pipelines;
pub(super) mod server;
pub(super) mod sweeps;
