//! The routes of MLflow's pages.

use saggar_rest::mlflow::graphql::GraphqlRequest;
use saggar_rest::mlflow::{
    CreateExperimentRequest, CreateRunRequest, LogTextRequest, RunReferenceRequest, SearchExperimentsRequest,
    SearchRunsRequest, UpdateRunRequest,
};
use saggar_store::AccessAction;

use super::super::{artifacts, experiments, history, logging, runs, search};
use super::{bulk_history, files, graphql, page_data};
use crate::access::route_scopes::RouteRequirement;
use crate::http_protocol::{HttpProtocol, HttpRoute};
use crate::openapi::operation::{OpenApiOperation, OperationArea, ParameterType};
use crate::openapi::operation_response::SchemaSource;

/// MLflow's pages.
pub(crate) const MLFLOW_UI: HttpProtocol =
    HttpProtocol { routes, areas: &[OperationArea { tag: "mlflow pages", operations }] };

const READ_ERRORS: &[u16] = &[400, 404];
const BODY_ERRORS: &[u16] = &[400, 403, 404, 408, 409, 413, 507];

/// The paths of the pages' data, which is that of the REST interface.
macro_rules! ajax {
    ($path:literal) => {
        concat!("/mlflow/ajax-api/2.0/mlflow/", $path)
    };
}

fn routes() -> Vec<HttpRoute> {
    let (read, write) = (AccessAction::ReadJob, AccessAction::SubmitJob);
    let open = || RouteRequirement::Nothing;
    vec![
        HttpRoute::new("/mlflow").get(open(), files::redirect),
        HttpRoute::new("/mlflow/").get(open(), files::page),
        HttpRoute::new("/mlflow/static-files/{*path}").get(open(), files::file),
        HttpRoute::new("/mlflow/graphql").post(read, graphql::query),
        HttpRoute::new("/mlflow/get-artifact").get(read, page_data::artifact),
        HttpRoute::new("/mlflow/ajax-api/3.0/mlflow/server-info").get(read, page_data::server_info),
        HttpRoute::new(ajax!("experiments/search")).post(read, experiments::search).get(read, experiments::list),
        HttpRoute::new(ajax!("experiments/get")).get(read, experiments::get),
        HttpRoute::new(ajax!("experiments/create")).post(write, experiments::create),
        HttpRoute::new(ajax!("experiments/search-datasets")).post(read, page_data::datasets),
        HttpRoute::new(ajax!("runs/search")).post(read, search::search),
        HttpRoute::new(ajax!("runs/get")).get(read, runs::get),
        HttpRoute::new(ajax!("runs/create")).post(write, logging::create_run),
        HttpRoute::new(ajax!("runs/update")).post(write, logging::update_run),
        HttpRoute::new(ajax!("runs/delete")).post(AccessAction::DeleteJob, logging::delete_run),
        HttpRoute::new(ajax!("runs/restore")).post(AccessAction::DeleteJob, logging::restore_run),
        HttpRoute::new(ajax!("runs/set-tag")).post(write, logging::set_tag),
        HttpRoute::new(ajax!("runs/delete-tag")).post(write, logging::delete_tag),
        HttpRoute::new(ajax!("metrics/get-history")).get(read, history::get_history),
        HttpRoute::new(ajax!("metrics/get-history-bulk-interval")).get(read, bulk_history::get_bulk_history),
        HttpRoute::new(ajax!("artifacts/list")).get(read, artifacts::list_of_run),
        HttpRoute::new(ajax!("gateway-proxy")).get(read, page_data::gateway),
        HttpRoute::new(ajax!("logged-models/search")).post(read, page_data::logged_models),
        HttpRoute::new(ajax!("model-versions/search")).get(read, page_data::model_versions),
    ]
}

fn operations() -> Vec<OpenApiOperation> {
    [file_operations(), data_operations(), change_operations()].into_iter().flatten().collect()
}

fn file_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/mlflow", "Redirects to the page").with_empty_response(308),
        OpenApiOperation::get("/mlflow/", "MLflow's page, if the server was started with its directory")
            .with_content(200, "text/html", SchemaSource::Text)
            .with_errors(&[404]),
        OpenApiOperation::get("/mlflow/static-files/{path}", "A file of MLflow's page")
            .with_content(200, "application/octet-stream", SchemaSource::Binary)
            .with_errors(&[404]),
        OpenApiOperation::get("/mlflow/get-artifact", "An artefact of a run")
            .with_query("run_uuid", ParameterType::Text)
            .with_query("path", ParameterType::Text)
            .with_content(200, "application/octet-stream", SchemaSource::Binary)
            .with_errors(READ_ERRORS),
    ]
}

fn data_operations() -> Vec<OpenApiOperation> {
    let get = OpenApiOperation::get;
    let text = || ParameterType::Text;
    vec![
        OpenApiOperation::post("/mlflow/graphql", "A run or an experiment, by the name of a query of MLflow's pages")
            .with_body::<GraphqlRequest>()
            .with_errors(&[400, 408, 413]),
        get("/mlflow/ajax-api/3.0/mlflow/server-info", "What MLflow's pages read first"),
        get(ajax!("experiments/search"), "Experiments")
            .with_query("max_results", ParameterType::Integer { min: 1 })
            .with_query("page_token", text())
            .with_query("filter", text())
            .with_errors(READ_ERRORS),
        OpenApiOperation::post(ajax!("experiments/search"), "Experiments, filtered and ordered")
            .with_body::<SearchExperimentsRequest>()
            .with_errors(&[400, 408, 413]),
        get(ajax!("experiments/get"), "An experiment").with_query("experiment_id", text()).with_errors(READ_ERRORS),
        OpenApiOperation::post(ajax!("experiments/search-datasets"), "An empty list"),
        OpenApiOperation::post(ajax!("runs/search"), "Runs, filtered and ordered")
            .with_body::<SearchRunsRequest>()
            .with_errors(&[400, 404, 408, 413]),
        get(ajax!("runs/get"), "A run").with_query("run_id", text()).with_errors(READ_ERRORS),
        get(ajax!("metrics/get-history"), "The values of a run's metric, by step")
            .with_query("run_id", text())
            .with_query("metric_key", text())
            .with_query("max_results", ParameterType::Integer { min: 1 })
            .with_query("page_token", text())
            .with_errors(READ_ERRORS),
        get(ajax!("metrics/get-history-bulk-interval"), "Values of a metric of several runs, evenly sampled")
            .with_query("run_ids", text())
            .with_query("metric_key", text())
            .with_query("start_step", text())
            .with_query("end_step", text())
            .with_query("max_results", ParameterType::Integer { min: 1 })
            .with_errors(READ_ERRORS),
        get(ajax!("artifacts/list"), "The artefacts of a run")
            .with_query("run_id", text())
            .with_query("path", text())
            .with_errors(READ_ERRORS),
        OpenApiOperation::post(ajax!("logged-models/search"), "An empty list"),
        get(ajax!("model-versions/search"), "An empty list"),
        get(ajax!("gateway-proxy"), "An empty list"),
    ]
}

fn change_operations() -> Vec<OpenApiOperation> {
    let post =
        |path: &'static str, summary: &'static str| OpenApiOperation::post(path, summary).with_errors(BODY_ERRORS);
    vec![
        post(ajax!("experiments/create"), "Creates an experiment").with_body::<CreateExperimentRequest>(),
        post(ajax!("runs/create"), "Creates an external run").with_body::<CreateRunRequest>(),
        post(ajax!("runs/update"), "Changes an external run").with_body::<UpdateRunRequest>(),
        post(ajax!("runs/delete"), "Deletes an external run, which can be undone").with_body::<RunReferenceRequest>(),
        post(ajax!("runs/restore"), "Restores a deleted external run").with_body::<RunReferenceRequest>(),
        post(ajax!("runs/set-tag"), "Sets a tag").with_body::<LogTextRequest>(),
        post(ajax!("runs/delete-tag"), "Removes a tag").with_body::<LogTextRequest>(),
    ]
}
