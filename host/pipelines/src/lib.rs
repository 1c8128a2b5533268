//! Pipelines: runs whose steps are jobs, deployments and approvals, in an order.
//!
//! What happens next in a run is a pure function of its plan and the recorded states ([`engine`]). The driver applies
//! its decisions through [`PipelinePort`], one record at a time, so a server that is killed at any instant continues
//! where it was: a job is submitted under an idempotency key of its attempt, and a deployment of a version that is
//! deployed already changes nothing.
//!
//! Deliberately elsewhere: the check of plans (`saggar_project`), the records (`saggar_store::records`), the queue in
//! which the jobs wait (`saggar_jobs`), and the resolution of references and deployments, which need the whole server
//! (`saggar_serve`).

mod driver;
pub mod engine;
mod error;
mod port;
mod required_outputs;
mod run_loop;
mod run_metrics;
mod run_view;
mod schedules;
mod service;
mod step_conditions;
mod step_job;
mod step_values;
#[cfg(test)]
mod tests;

pub use error::PipelineError;
pub use port::{
    DeployRequest, JobObservation, OutputReference, PLUGIN_INPUT, PipelinePort, PreparedJob, StepFailure, StepInput,
};
pub use run_view::{RunGraph, current_attempts};
pub use service::{CheckedRun, PipelineService, RunRequest};
