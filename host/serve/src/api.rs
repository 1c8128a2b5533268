//! HTTP handlers: the management interface under `/api/v1`, health, metrics, and the index.

pub(crate) mod datasets;
pub(crate) mod devices;
pub(crate) mod event_streams;
pub(crate) mod events;
pub(crate) mod exports;
mod file_stream;
pub(crate) mod health;
pub(crate) mod import;
pub(crate) mod index;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod logs;
pub(crate) mod model_commands;
pub(crate) mod model_removal;
pub(crate) mod models;
pub(crate) mod outputs;
pub(crate) mod plugins;
pub(crate) mod projects;
pub(crate) mod protocol;
mod query;
pub(crate) mod queues;
pub(crate) mod quota;
pub(crate) mod schedules;
pub(crate) mod secrets;
pub(crate) mod versions;
