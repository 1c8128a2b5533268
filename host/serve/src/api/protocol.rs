//! The routes of the management interface.

use saggar_store::AccessAction;

use super::{
    audit, compare, datasets, devices, events, experiments, exports, health, history, import, index, jobs, keys,
    logged_items, logs, model_bundles, model_commands, model_push, model_removal, models, operations, outputs,
    pipelines, plugins, projects, queues, quota, schedules, secrets, sweeps, version_detail, version_graph, versions,
    workers,
};
use crate::access::route_scopes::RouteRequirement;
use crate::http_protocol::{HttpProtocol, HttpRoute};
use crate::openapi;
use crate::openapi::operation::OperationArea;

/// The management interface.
pub(crate) const MANAGEMENT: HttpProtocol = HttpProtocol {
    routes,
    areas: &[
        OperationArea { tag: "models", operations: operations::models::operations },
        OperationArea { tag: "jobs", operations: operations::jobs::operations },
        OperationArea { tag: "pipelines", operations: operations::pipelines::operations },
        OperationArea { tag: "sweeps", operations: operations::sweeps::operations },
        OperationArea { tag: "datasets", operations: operations::datasets::operations },
        OperationArea { tag: "server", operations: operations::server::operations },
    ],
};

fn routes() -> Vec<HttpRoute> {
    [server_routes(), job_routes(), pipeline_routes(), sweep_routes(), dataset_routes(), model_routes()]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the routes of the server itself: index, probes, devices and keys.
fn server_routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::new("/").get(RouteRequirement::Page, index::index),
        HttpRoute::new("/healthz").get(RouteRequirement::Nothing, health::livez),
        HttpRoute::new("/livez").get(RouteRequirement::Nothing, health::livez),
        HttpRoute::new("/readyz").get(RouteRequirement::Nothing, health::readyz),
        HttpRoute::new("/version").get(RouteRequirement::Nothing, health::version),
        HttpRoute::new("/metrics").get(RouteRequirement::Metrics, health::metrics),
        HttpRoute::new("/openapi.json").get(RouteRequirement::Key, openapi::openapi),
        HttpRoute::new("/api/v1/deprecations").get(RouteRequirement::Key, crate::deprecated_use::list),
        HttpRoute::new("/api/v1/devices").get(RouteRequirement::Key, devices::list),
        HttpRoute::new("/api/v1/history").get(RouteRequirement::Key, history::history),
        HttpRoute::new("/api/v1/keys")
            .get(AccessAction::ManageKeys, keys::list)
            .post(AccessAction::ManageKeys, keys::create),
        HttpRoute::new("/api/v1/keys/{name}").delete(AccessAction::ManageKeys, keys::revoke),
        HttpRoute::new("/api/v1/audit").get(AccessAction::ReadAudit, audit::list),
        HttpRoute::new("/api/v1/workers").get(AccessAction::ReadJob, workers::list),
        HttpRoute::new("/api/v1/workers/join")
            .post(RouteRequirement::SecretEffect(AccessAction::ManageWorkers), workers::join),
        HttpRoute::new("/api/v1/workers/{name}/drain").post(AccessAction::ManageWorkers, workers::drain),
        HttpRoute::new("/api/v1/workers/{name}/resume").post(AccessAction::ManageWorkers, workers::resume),
    ]
}

/// Returns the routes of sweeps.
fn sweep_routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::new("/api/v1/sweeps")
            .get(AccessAction::ReadJob, sweeps::list)
            .post(AccessAction::SubmitJob, sweeps::create),
        HttpRoute::new("/api/v1/sweeps/{sweep}").get(AccessAction::ReadJob, sweeps::get),
        HttpRoute::new("/api/v1/sweeps/{sweep}/stop").post(AccessAction::ControlJob, sweeps::stop),
        HttpRoute::new("/api/v1/sweeps/{sweep}/resume").post(AccessAction::ControlJob, sweeps::resume),
        HttpRoute::new("/api/v1/sweeps/{sweep}/publish").post(AccessAction::DeployModel, sweeps::publish),
    ]
}

/// Returns the routes of jobs and of what they use: plugins, queues, schedules and secrets.
fn job_routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::new("/api/v1/plugins")
            .get(AccessAction::ReadPlugin, plugins::list)
            .post(AccessAction::UploadPlugin, plugins::upload),
        HttpRoute::new("/api/v1/plugins/fetch").post(AccessAction::UploadPlugin, plugins::fetch::fetch),
        HttpRoute::new("/api/v1/plugins/{digest}/resume-test")
            .post(AccessAction::UploadPlugin, plugins::resume::record_resume_test),
        HttpRoute::new("/api/v1/jobs")
            .get(AccessAction::ReadJob, jobs::list)
            .post(AccessAction::SubmitJob, jobs::submit::submit),
        HttpRoute::new("/api/v1/jobs/{job}")
            .get(AccessAction::ReadJob, jobs::get)
            .delete(AccessAction::DeleteJob, jobs::removal::remove),
        HttpRoute::new("/api/v1/jobs/gc").post(AccessAction::DeleteJob, jobs::removal::collect_garbage),
        HttpRoute::new("/api/v1/jobs/{job}/stop").post(AccessAction::ControlJob, jobs::commands::stop),
        HttpRoute::new("/api/v1/jobs/{job}/checkpoint").post(AccessAction::ControlJob, jobs::commands::checkpoint),
        HttpRoute::new("/api/v1/jobs/{job}/preempt").post(AccessAction::ControlJob, jobs::commands::preempt),
        HttpRoute::new("/api/v1/jobs/{job}/pause").post(AccessAction::ControlJob, jobs::commands::pause),
        HttpRoute::new("/api/v1/jobs/{job}/resume").post(AccessAction::ControlJob, jobs::commands::resume),
        HttpRoute::new("/api/v1/jobs/{job}/annotate").post(AccessAction::ControlJob, jobs::commands::annotate),
        HttpRoute::new("/api/v1/experiments").get(AccessAction::ReadJob, experiments::list),
        HttpRoute::new("/api/v1/experiments/{experiment}").get(AccessAction::ReadJob, experiments::get),
        HttpRoute::new("/api/v1/compare").get(AccessAction::ReadJob, compare::compare),
        HttpRoute::new("/api/v1/jobs/{job}/restart").post(AccessAction::SubmitJob, jobs::submit::restart),
        HttpRoute::new("/api/v1/jobs/{job}/replay").post(AccessAction::SubmitJob, jobs::submit::replay),
        HttpRoute::new("/api/v1/queues").get(AccessAction::ReadJob, queues::list),
        HttpRoute::new("/api/v1/quota").get(AccessAction::ReadJob, quota::quota),
        HttpRoute::new("/api/v1/schedules")
            .get(AccessAction::ReadJob, schedules::list)
            .post(AccessAction::SetSchedule, schedules::set),
        HttpRoute::new("/api/v1/schedules/{name}").delete(AccessAction::SetSchedule, schedules::remove),
        HttpRoute::new("/api/v1/secrets").get(AccessAction::ListSecrets, secrets::list),
        HttpRoute::new("/api/v1/secrets/{name}")
            .put(AccessAction::SetSecret, secrets::set)
            .delete(AccessAction::SetSecret, secrets::remove),
        HttpRoute::new("/api/v1/jobs/{job}/logs").get(AccessAction::ReadJob, logs::logs),
        HttpRoute::new("/api/v1/jobs/{job}/metrics").get(AccessAction::ReadJob, jobs::metrics::metrics),
        HttpRoute::new("/api/v1/jobs/{job}/attempts").get(AccessAction::ReadJob, jobs::attempts),
        HttpRoute::new("/api/v1/jobs/{job}/events").get(AccessAction::ReadJob, jobs::events),
        HttpRoute::new("/api/v1/jobs/{job}/checkpoints").get(AccessAction::ReadJob, jobs::checkpoints::list),
        HttpRoute::new("/api/v1/jobs/{job}/checkpoints/{which}")
            .get(AccessAction::ReadJob, jobs::checkpoints::download),
        HttpRoute::new("/api/v1/jobs/{job}/notebook").get(AccessAction::SubmitJob, jobs::notebook::get),
        HttpRoute::new("/api/v1/jobs/{job}/output").get(AccessAction::ReadJob, outputs::list),
        HttpRoute::new("/api/v1/jobs/{job}/output/{*path}").get(AccessAction::ReadJob, outputs::download),
        HttpRoute::new("/api/v1/jobs/{job}/logged").get(AccessAction::ReadJob, logged_items::list),
        HttpRoute::new("/api/v1/jobs/{job}/logged/{step}/{kind}/{*name}")
            .get(AccessAction::ReadJob, logged_items::download),
        HttpRoute::new("/api/v1/events").get(AccessAction::ReadJob, events::events),
    ]
}

/// Returns the routes of pipelines, which need the rights of their jobs.
fn pipeline_routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::new("/api/v1/pipelines")
            .get(AccessAction::ReadJob, pipelines::list_schedules)
            .post(AccessAction::SetSchedule, pipelines::set_schedule),
        HttpRoute::new("/api/v1/pipelines/{name}").delete(AccessAction::SetSchedule, pipelines::remove_schedule),
        HttpRoute::new("/api/v1/pipelines/check").post(AccessAction::SubmitJob, pipelines::check),
        HttpRoute::new("/api/v1/pipeline-runs")
            .get(AccessAction::ReadJob, pipelines::list)
            .post(AccessAction::SubmitJob, pipelines::start),
        HttpRoute::new("/api/v1/pipeline-runs/{run}")
            .get(AccessAction::ReadJob, pipelines::get)
            .delete(AccessAction::DeleteJob, pipelines::remove),
        HttpRoute::new("/api/v1/pipeline-runs/{run}/stop").post(AccessAction::ControlJob, pipelines::stop),
        HttpRoute::new("/api/v1/pipeline-runs/{run}/approve").post(AccessAction::ControlJob, pipelines::approve),
        HttpRoute::new("/api/v1/pipeline-runs/{run}/restart").post(AccessAction::SubmitJob, pipelines::restart),
    ]
}

/// Returns the routes of datasets.
fn dataset_routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::new("/api/v1/datasets")
            .get(AccessAction::ReadDataset, datasets::list)
            .post(AccessAction::PushDataset, datasets::begin_upload),
        HttpRoute::new("/api/v1/datasets/{name}/uploads/{id}/chunks/{sha256}")
            .put(AccessAction::PushDataset, datasets::put_chunk),
        HttpRoute::new("/api/v1/datasets/{name}/uploads/{id}/commit")
            .post(AccessAction::PushDataset, datasets::commit_upload),
        HttpRoute::new("/api/v1/datasets/{name}/{version}").delete(AccessAction::DeleteDataset, datasets::remove),
        HttpRoute::new("/api/v1/datasets/{name}/{version}/export").get(AccessAction::ReadDataset, exports::tar),
        HttpRoute::new("/api/v1/datasets/{name}/from-job").post(AccessAction::PushDataset, datasets::create_from_job),
        HttpRoute::new("/api/v1/datasets/{name}/projects").put(AccessAction::AssignProjects, projects::assign_dataset),
    ]
}

/// Returns the routes of models and their versions.
fn model_routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::new("/api/v1/models").get(RouteRequirement::Key, models::list),
        HttpRoute::new("/api/v1/models/{model}")
            .get(RouteRequirement::Key, models::get)
            .delete(AccessAction::DeleteModel, model_removal::remove_model),
        HttpRoute::new("/api/v1/models/{model}/import").post(AccessAction::PublishModel, import::import),
        HttpRoute::new("/api/v1/models/{model}/push").post(AccessAction::PublishModel, model_push::push),
        HttpRoute::new("/api/v1/models/{model}/bundle").post(AccessAction::PublishModel, model_bundles::import),
        HttpRoute::new("/api/v1/models/{model}/versions").post(AccessAction::PublishModel, versions::publish),
        HttpRoute::new("/api/v1/models/{model}/versions/{version}")
            .get(RouteRequirement::Key, version_detail::get)
            .delete(AccessAction::DeleteModel, model_removal::remove_version),
        HttpRoute::new("/api/v1/models/{model}/versions/{version}/graph")
            .get(RouteRequirement::Key, version_graph::get),
        HttpRoute::new("/api/v1/models/{model}/versions/{version}/bundle")
            .get(AccessAction::ReadWeights, model_bundles::export),
        HttpRoute::new("/api/v1/models/{model}/load").post(AccessAction::LoadModel, model_commands::load),
        HttpRoute::new("/api/v1/models/{model}/unload").post(AccessAction::UnloadModel, model_commands::unload),
        HttpRoute::new("/api/v1/models/{model}/warm").post(AccessAction::LoadModel, model_commands::warm),
        HttpRoute::new("/api/v1/models/{model}/promote").post(AccessAction::DeployModel, model_commands::promote),
        HttpRoute::new("/api/v1/models/{model}/rollback").post(AccessAction::DeployModel, model_commands::roll_back),
        HttpRoute::new("/api/v1/models/{model}/aliases/{alias}")
            .put(AccessAction::DeployModel, model_commands::set_alias)
            .delete(AccessAction::DeployModel, model_commands::remove_alias),
        HttpRoute::new("/api/v1/models/{model}/traffic").put(AccessAction::DeployModel, model_commands::set_traffic),
        HttpRoute::new("/api/v1/models/{model}/shadow")
            .put(AccessAction::DeployModel, model_commands::set_shadow)
            .delete(AccessAction::DeployModel, model_commands::remove_shadow),
        HttpRoute::new("/api/v1/models/{model}/config")
            .get(RouteRequirement::Key, model_commands::get_config)
            .put(AccessAction::ConfigureModel, model_commands::replace_config),
        HttpRoute::new("/api/v1/models/{model}/projects").put(AccessAction::AssignProjects, projects::assign_model),
    ]
}
