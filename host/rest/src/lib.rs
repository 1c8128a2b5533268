//! The documents of the REST interface: every request and response body of the management routes, of health and the
//! index, of errors, events and predictions, and of the two other protocols, one resource a file.
//!
//! The server serializes these types and clients parse them, so both agree by construction. The order of the fields is
//! the order of the members in JSON. Their doc comments become the descriptions in `/openapi.json`, which is generated
//! from their schemas.
//!
//! Responses are read leniently, because a client can be one minor version older or newer than its server: unknown members
//! are ignored, and missing ones have the default of their type. Closed sets that clients only display, such as states,
//! are text for the same reason. Requests are read strictly: an unknown member is an error.
//!
//! Deliberately elsewhere: a job's specification (`saggar_jobs::JobSpec`) and a model's configuration, which are stored as
//! they are sent, and the tensors of predictions.

pub mod audit;
pub mod checkpoints;
pub mod comparisons;
pub mod datasets;
pub mod deprecations;
pub mod devices;
pub mod errors;
pub mod events;
pub mod experiments;
pub mod history;
pub mod job_metrics;
pub mod jobs;
pub mod keys;
pub mod logged_items;
pub mod mlflow;
pub mod model_commands;
pub mod model_graphs;
pub mod model_versions;
pub mod models;
pub mod oip;
pub mod outputs;
pub mod pipelines;
pub mod plugins;
pub mod predictions;
pub mod projects;
pub mod queues;
pub mod quota;
pub mod schedules;
pub mod secrets;
pub mod server;
pub mod sweeps;
pub mod tfs;
pub mod workers;

/// The pattern of a SHA-256 as text.
pub const SHA256_PATTERN: &str = "^[0-9a-f]{64}$";
