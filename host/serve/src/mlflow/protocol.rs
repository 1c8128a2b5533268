//! The routes of MLflow's interface.

use saggar_store::AccessAction;

use super::operations::operations;
use super::{artifacts, experiments, history, logged_models, logging, runs, search};
use crate::http_protocol::{HttpProtocol, HttpRoute};
use crate::openapi::operation::OperationArea;

/// MLflow's REST interface.
pub(crate) const MLFLOW: HttpProtocol = HttpProtocol { routes, areas: &[OperationArea { tag: "mlflow", operations }] };

fn routes() -> Vec<HttpRoute> {
    let read = AccessAction::ReadJob;
    let write = AccessAction::SubmitJob;
    vec![
        HttpRoute::new("/api/2.0/mlflow/experiments/search")
            .post(read, experiments::search)
            .get(read, experiments::list),
        HttpRoute::new("/api/2.0/mlflow/experiments/get").get(read, experiments::get),
        HttpRoute::new("/api/2.0/mlflow/experiments/get-by-name").get(read, experiments::get_by_name),
        HttpRoute::new("/api/2.0/mlflow/experiments/create").post(write, experiments::create),
        HttpRoute::new("/api/2.0/mlflow/runs/search").post(read, search::search),
        HttpRoute::new("/api/2.0/mlflow/logged-models/search").post(read, logged_models::search),
        HttpRoute::new("/api/2.0/mlflow/runs/get").get(read, runs::get),
        HttpRoute::new("/api/2.0/mlflow/metrics/get-history").get(read, history::get_history),
        HttpRoute::new("/api/2.0/mlflow/artifacts/list").get(read, artifacts::list_of_run),
        HttpRoute::new("/api/2.0/mlflow-artifacts/artifacts").get(read, artifacts::list),
        HttpRoute::new("/api/2.0/mlflow-artifacts/artifacts/{*path}").get(read, artifacts::download),
        HttpRoute::new("/api/2.0/mlflow/runs/create").post(write, logging::create_run),
        HttpRoute::new("/api/2.0/mlflow/runs/update").post(write, logging::update_run),
        HttpRoute::new("/api/2.0/mlflow/runs/delete").post(AccessAction::DeleteJob, logging::delete_run),
        HttpRoute::new("/api/2.0/mlflow/runs/restore").post(AccessAction::DeleteJob, logging::restore_run),
        HttpRoute::new("/api/2.0/mlflow/runs/log-metric").post(write, logging::log_metric),
        HttpRoute::new("/api/2.0/mlflow/runs/log-parameter").post(write, logging::log_parameter),
        HttpRoute::new("/api/2.0/mlflow/runs/set-tag").post(write, logging::set_tag),
        HttpRoute::new("/api/2.0/mlflow/runs/delete-tag").post(write, logging::delete_tag),
        HttpRoute::new("/api/2.0/mlflow/runs/log-batch").post(write, logging::log_batch),
    ]
}
