//! Errors of MLflow's interface.

use saggar_rest::errors::ErrorCode;
use saggar_store::external_runs::ExternalRunError;
use thiserror::Error;

use crate::error::{ErrorMapping, ProtocolError};

/// Returns whether a route is one of MLflow's, whose errors have MLflow's members too.
pub(crate) fn is_mlflow_route(route: &str) -> bool {
    route.starts_with("/api/2.0/mlflow") || route.starts_with("/mlflow/")
}

/// Why a request to MLflow's interface is refused.
#[derive(Debug, Error)]
pub(crate) enum MlflowError {
    /// A filter that cannot be parsed.
    #[error("filter at character {at}: expected {expected}, got {got:?}")]
    Filter {
        /// The position, from 1.
        at: usize,
        /// What is expected there.
        expected: &'static str,
        /// What is there.
        got: String,
    },
    /// An order that cannot be parsed.
    #[error("order_by {got:?}: expected a field such as `metrics.loss`, alone or with ASC or DESC")]
    Order {
        /// The order as sent.
        got: String,
    },
    /// A parameter that is missing or not valid.
    #[error("{name}: expected {expected}, got {got:?}")]
    Parameter {
        /// The name.
        name: &'static str,
        /// What is expected.
        expected: &'static str,
        /// What was sent.
        got: String,
    },
    /// The experiment does not exist, or the key does not see it.
    #[error("there is no experiment {name}")]
    NoExperiment {
        /// Its name or identifier.
        name: String,
    },
    /// The run does not exist, or the key does not see it.
    #[error("there is no run {id}")]
    NoRun {
        /// Its identifier.
        id: String,
    },
    /// More runs match than can be answered.
    #[error("more than {runs} runs match, which take too much memory")]
    TooLarge {
        /// The runs so far.
        runs: usize,
    },
    /// A job cannot be changed by a client.
    #[error("{job} is a job of this server: its plugin logs, and clients only read")]
    IsJob {
        /// The job.
        job: String,
    },
    /// An external run cannot be read or written.
    #[error(transparent)]
    Store(#[from] ExternalRunError),
}

impl ProtocolError for MlflowError {
    fn mapping(&self) -> ErrorMapping {
        match self {
            MlflowError::Filter { .. } => {
                let hint = "for example: metrics.loss < 0.1 and params.lr = '0.05'";
                ErrorMapping::bad_request(ErrorCode::BadParameter, hint)
            }
            MlflowError::Order { .. } | MlflowError::Parameter { .. } => {
                ErrorMapping::bad_request(ErrorCode::BadParameter, "")
            }
            MlflowError::NoExperiment { .. } => {
                ErrorMapping::not_found(ErrorCode::NotFound, "mlflow.search_experiments() lists the experiments")
            }
            MlflowError::NoRun { .. } | MlflowError::Store(ExternalRunError::NoRun { .. }) => {
                ErrorMapping::not_found(ErrorCode::NotFound, "mlflow.search_runs() lists the runs")
            }
            MlflowError::TooLarge { .. } => {
                let hint = "name fewer experiments, or a filter such as metrics.loss < 0.1";
                ErrorMapping::bad_request(ErrorCode::BadParameter, hint)
            }
            MlflowError::IsJob { .. } => ErrorMapping::conflict("log to a run that mlflow.start_run() created"),
            MlflowError::Store(ExternalRunError::ExperimentExists { .. }) => ErrorMapping::conflict(""),
            MlflowError::Store(
                ExternalRunError::ParameterChanged { .. }
                | ExternalRunError::Length { .. }
                | ExternalRunError::TooMany { .. },
            ) => ErrorMapping::bad_request(ErrorCode::BadParameter, ""),
            MlflowError::Store(_) => ErrorMapping::server_error(ErrorCode::Internal, "the server's log has the cause"),
        }
    }
}
