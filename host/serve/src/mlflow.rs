//! MLflow's REST interface: experiments, runs, their metrics, parameters, tags and artefacts.
//!
//! A project is an experiment, and its jobs are runs, which clients only read. Clients can create other experiments, and
//! runs in every experiment: external runs, which are records of programs that are no jobs of this server
//! ([`saggar_store::external_runs`]). An experiment belongs to the project of its name, which decides who sees it.
//!
//! Source: MLflow's REST API, version 2.0.

mod artifacts;
pub(crate) mod error;
mod experiments;
mod filter;
mod history;
mod logged_artifacts;
mod logged_models;
mod logging;
mod operations;
mod order;
mod page;
pub(crate) mod protocol;
mod runs;
mod search;
mod text_pattern;
pub(crate) mod ui;

pub(crate) use error::is_mlflow_route;
