//! The server's state, which all handlers share, and its route table.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware;
use axum::routing::{MethodRouter, any, delete, get, post, put};
use saggar_jobs::{JobService, SpecResolver};
use saggar_metrics::MetricsRegistry;
use saggar_serving::{ModelImporter, ModelLifecycle, ModelRouter, PredictionService, RequestMemoryBudget};
use saggar_store::checkpoint::CheckpointStore;
use saggar_store::clock::Clock;
use saggar_store::dataset::DatasetStore;
use saggar_store::dataset::upload::UploadStore;
use saggar_store::objects::ObjectStorage;
use saggar_store::projects::ProjectAssignments;
use saggar_store::state_dir::StateDir;
use saggar_store::storage_usage::StorageQuota;
use tokio::sync::{RwLock, watch};

use crate::access::{AccessControl, ListenPolicy};
use crate::api::devices::DeviceInventory;
use crate::api::event_streams::EventStreams;
use crate::api::plugins::PluginInspector;
use crate::api::{
    datasets, devices, events, exports, health, import, index, jobs, keys, logs, model_commands, model_removal, models,
    outputs, plugins, projects, queues, quota, schedules, secrets, versions,
};
use crate::audit::AuditLog;
use crate::cog::webhook::WebhookPrefix;
use crate::cog::{self, CogPredictions};
use crate::console;
use crate::docs;
use crate::error::ApiError;
use crate::initial_series;
use crate::oip;
use crate::openapi;
use crate::predict;
use crate::request_body::BodyReader;
use crate::request_middleware::{AuthLayer, admit_and_observe};
use crate::storage::StorageCounter;
use crate::tfs;

/// The components of a server.
#[derive(Debug)]
pub struct AppParts {
    /// The models that answer predictions.
    pub models: Arc<ModelRouter>,
    /// Decides which models and versions are loaded.
    pub lifecycle: Arc<ModelLifecycle>,
    /// Training jobs.
    pub jobs: JobService,
    /// Every metric.
    pub metrics: Arc<MetricsRegistry>,
    /// The state directory.
    pub home: StateDir,
    /// The directory of model versions.
    pub models_dir: PathBuf,
    /// The limit for stored bytes, or `None` if there is no limit.
    pub storage_quota: Option<StorageQuota>,
    /// Plugins and checkpoints.
    pub objects: ObjectStorage,
    /// Datasets.
    pub datasets: DatasetStore,
    /// Datasets that are being uploaded.
    pub uploads: UploadStore,
    /// Imports models from files.
    pub importer: Arc<dyn ModelImporter>,
    /// Inspects uploaded plugins.
    pub inspector: Arc<dyn PluginInspector>,
    /// The devices of this machine.
    pub devices: Arc<DeviceInventory>,
    /// URL prefixes that events of predictions can be sent to. Empty disables webhooks.
    pub webhooks: Vec<WebhookPrefix>,
    /// The keys of clients, and who can do what.
    pub access: Arc<AccessControl>,
    /// The audit log.
    pub audit: AuditLog,
    /// The memory budget of requests.
    pub memory: RequestMemoryBudget,
}

impl AppParts {
    /// Returns the assignments of models to projects.
    pub(crate) fn model_projects(&self) -> ProjectAssignments {
        ProjectAssignments::of_models(&self.models_dir)
    }

    /// Returns the assignments of datasets to projects.
    pub(crate) fn dataset_projects(&self) -> ProjectAssignments {
        ProjectAssignments::of_datasets(self.home.datasets())
    }
}

/// The state of a server. Clones share it.
#[derive(Clone)]
pub struct AppState {
    shared: Arc<AppStateInner>,
}

struct AppStateInner {
    parts: AppParts,
    checkpoints: CheckpointStore,
    clock: Arc<dyn Clock>,
    body_reader: BodyReader,
    predictions: CogPredictions,
    prediction_service: PredictionService,
    event_streams: EventStreams,
    storage_counter: StorageCounter,
    reference_lock: RwLock<()>,
    shutdown: watch::Receiver<bool>,
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("parts", &self.shared.parts).finish_non_exhaustive()
    }
}

impl AppState {
    /// Creates a server from `parts`. Streaming responses end when `shutdown` is true.
    pub fn new(parts: AppParts, clock: Arc<dyn Clock>, shutdown: watch::Receiver<bool>) -> AppState {
        let checkpoints = CheckpointStore::new(parts.objects.clone());
        let predictions = CogPredictions::new(parts.webhooks.clone());
        let (models, metrics) = (Arc::clone(&parts.models), Arc::clone(&parts.metrics));
        let prediction_service = PredictionService::new(models, metrics, Arc::clone(&clock));
        let counted = StorageCounter::default();
        let (bodies, streams) = (BodyReader::new(parts.memory.clone()), EventStreams::default());
        let references = RwLock::default();
        let shared = AppStateInner {
            parts,
            checkpoints,
            clock,
            body_reader: bodies,
            predictions,
            prediction_service,
            event_streams: streams,
            storage_counter: counted,
            reference_lock: references,
            shutdown,
        };
        let app = AppState { shared: Arc::new(shared) };
        initial_series::create_initial_series(&app.metrics().families);
        app.jobs().set_spec_resolver(app.job_spec_resolver());
        let audit = app.audit().clone();
        app.jobs().set_effect_log(Box::new(move |effect| audit.record_effect(effect)));
        let lifecycle = Arc::downgrade(app.lifecycle());
        app.jobs().set_publication_notes(Box::new(move |model, version| {
            lifecycle.upgrade().map(|lifecycle| lifecycle.publication_notes(model, version)).unwrap_or_default()
        }));
        app
    }

    /// Returns the function that resolves the references in job specs of schedules. It holds a weak reference, because
    /// the jobs belong to this server and must not keep it alive.
    fn job_spec_resolver(&self) -> SpecResolver {
        let shared = Arc::downgrade(&self.shared);
        Box::new(move |spec, rights| {
            let shared = shared.upgrade();
            Box::pin(async move {
                let shared = shared.ok_or_else(|| std::io::Error::other("the server is stopping"))?;
                jobs::submit::resolve_scheduled_spec(&AppState { shared }, spec, rights).await
            })
        })
    }

    /// Returns the lock that protects references. It is held for reading while a reference to a dataset, job or
    /// checkpoint is recorded. It is held for writing during a removal of any of these, from the search for references
    /// onward.
    pub(crate) fn reference_lock(&self) -> &RwLock<()> {
        &self.shared.reference_lock
    }

    pub(crate) fn parts(&self) -> &AppParts {
        &self.shared.parts
    }

    pub(crate) fn models(&self) -> &Arc<ModelRouter> {
        &self.shared.parts.models
    }

    pub(crate) fn lifecycle(&self) -> &Arc<ModelLifecycle> {
        &self.shared.parts.lifecycle
    }

    pub(crate) fn jobs(&self) -> &JobService {
        &self.shared.parts.jobs
    }

    pub(crate) fn access(&self) -> &Arc<AccessControl> {
        &self.shared.parts.access
    }

    /// Returns the audit log, for handlers that change something.
    pub(crate) fn audit(&self) -> &AuditLog {
        &self.shared.parts.audit
    }

    pub(crate) fn metrics(&self) -> &Arc<MetricsRegistry> {
        &self.shared.parts.metrics
    }

    pub(crate) fn storage_counter(&self) -> &StorageCounter {
        &self.shared.storage_counter
    }

    pub(crate) fn checkpoints(&self) -> &CheckpointStore {
        &self.shared.checkpoints
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.shared.clock.now_ms()
    }

    pub(crate) fn body_reader(&self) -> &BodyReader {
        &self.shared.body_reader
    }

    pub(crate) fn prediction_service(&self) -> &PredictionService {
        &self.shared.prediction_service
    }

    pub(crate) fn predictions(&self) -> &CogPredictions {
        &self.shared.predictions
    }

    /// Returns the open event streams.
    pub(crate) fn event_streams(&self) -> &EventStreams {
        &self.shared.event_streams
    }

    pub(crate) fn shutdown(&self) -> watch::Receiver<bool> {
        self.shared.shutdown.clone()
    }

    /// Runs `work`, which can wait for the disk, on a blocking thread.
    pub(crate) async fn run_blocking<T, E>(
        &self,
        work: impl FnOnce(&AppParts) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiError>
    where
        T: Send + 'static,
        E: Into<ApiError> + Send + 'static,
    {
        let app = self.clone();
        let done = tokio::task::spawn_blocking(move || work(app.parts())).await;
        done.map_err(|error| ApiError::Internal { cause: error.to_string() })?.map_err(Into::into)
    }

    /// Returns every route with its methods, in the order of the index.
    pub(crate) fn routes() -> Vec<(&'static str, MethodRouter<AppState>)> {
        let mut routes = vec![
            ("/", get(index::index).post(predict::predict_default)),
            ("/console/{fingerprint}/{*name}", get(console::console_asset)),
            ("/docs", get(docs::docs_index)),
            ("/docs/{*path}", get(docs::docs_page)),
            ("/predict", get(predict::describe::describe_default).post(predict::predict_default)),
            ("/models/{model}/predict", get(predict::describe::describe_named).post(predict::predict_named)),
            (
                "/models/{model}/{*path}",
                get(predict::model_routes::predict_named_by_path).post(predict::model_routes::predict_named_by_path),
            ),
            ("/predictions", post(cog::create)),
            ("/predictions/{id}", get(cog::show).put(cog::put)),
            ("/predictions/{id}/cancel", post(cog::cancel)),
            ("/v1/", any(tfs::handle)),
            ("/v1/{*path}", any(tfs::handle)),
            ("/V1/{*path}", any(tfs::handle)),
            ("/healthz", get(health::livez)),
            ("/livez", get(health::livez)),
            ("/readyz", get(health::readyz)),
            ("/version", get(health::version)),
            ("/metrics", get(health::metrics)),
            ("/openapi.json", get(openapi::openapi)),
            ("/api/v1/plugins", get(plugins::list).post(plugins::upload)),
            ("/api/v1/plugins/{digest}/resume-test", post(plugins::resume::record_resume_test)),
            ("/api/v1/jobs", get(jobs::list).post(jobs::submit::submit)),
            ("/api/v1/jobs/{job}", get(jobs::get).delete(jobs::removal::remove)),
            ("/api/v1/jobs/gc", post(jobs::removal::collect_garbage)),
            ("/api/v1/jobs/{job}/stop", post(jobs::commands::stop)),
            ("/api/v1/jobs/{job}/checkpoint", post(jobs::commands::checkpoint)),
            ("/api/v1/jobs/{job}/preempt", post(jobs::commands::preempt)),
            ("/api/v1/jobs/{job}/restart", post(jobs::submit::restart)),
            ("/api/v1/queues", get(queues::list)),
            ("/api/v1/quota", get(quota::quota)),
            ("/api/v1/schedules", get(schedules::list).post(schedules::set)),
            ("/api/v1/schedules/{name}", delete(schedules::remove)),
            ("/api/v1/secrets", get(secrets::list)),
            ("/api/v1/secrets/{name}", put(secrets::set).delete(secrets::remove)),
            ("/api/v1/jobs/{job}/logs", get(logs::logs)),
            ("/api/v1/jobs/{job}/metrics", get(jobs::metrics::metrics)),
            ("/api/v1/jobs/{job}/attempts", get(jobs::attempts)),
            ("/api/v1/jobs/{job}/events", get(jobs::events)),
            ("/api/v1/jobs/{job}/checkpoints", get(jobs::checkpoints::list)),
            ("/api/v1/jobs/{job}/checkpoints/{which}", get(jobs::checkpoints::download)),
            ("/api/v1/jobs/{job}/output", get(outputs::list)),
            ("/api/v1/jobs/{job}/output/{*path}", get(outputs::download)),
            ("/api/v1/events", get(events::events)),
            ("/api/v1/datasets", get(datasets::list).post(datasets::begin_upload)),
            ("/api/v1/datasets/{name}/uploads/{id}/chunks/{sha256}", put(datasets::put_chunk)),
            ("/api/v1/datasets/{name}/uploads/{id}/commit", post(datasets::commit_upload)),
            ("/api/v1/datasets/{name}/{version}", delete(datasets::remove)),
            ("/api/v1/datasets/{name}/{version}/export", get(exports::tar)),
            ("/api/v1/datasets/{name}/from-job", post(datasets::create_from_job)),
            ("/api/v1/devices", get(devices::list)),
            ("/api/v1/keys", get(keys::list).post(keys::create)),
            ("/api/v1/keys/{name}", delete(keys::revoke)),
        ];
        routes.extend(AppState::model_routes());
        routes.extend(oip::routes().into_iter().chain(projects::routes()));
        routes
    }

    /// Returns the routes of models and their versions.
    fn model_routes() -> Vec<(&'static str, MethodRouter<AppState>)> {
        vec![
            ("/api/v1/models", get(models::list)),
            ("/api/v1/models/{model}", get(models::get).delete(model_removal::remove_model)),
            ("/api/v1/models/{model}/import", post(import::import)),
            ("/api/v1/models/{model}/versions", post(versions::publish)),
            ("/api/v1/models/{model}/versions/{version}", delete(model_removal::remove_version)),
            ("/api/v1/models/{model}/load", post(model_commands::load)),
            ("/api/v1/models/{model}/unload", post(model_commands::unload)),
            ("/api/v1/models/{model}/warm", post(model_commands::warm)),
            ("/api/v1/models/{model}/promote", post(model_commands::promote)),
            ("/api/v1/models/{model}/rollback", post(model_commands::roll_back)),
            (
                "/api/v1/models/{model}/aliases/{alias}",
                put(model_commands::set_alias).delete(model_commands::remove_alias),
            ),
            ("/api/v1/models/{model}/traffic", put(model_commands::set_traffic)),
            ("/api/v1/models/{model}/shadow", put(model_commands::set_shadow).delete(model_commands::remove_shadow)),
            ("/api/v1/models/{model}/config", get(model_commands::get_config).put(model_commands::replace_config)),
        ]
    }

    /// Returns the paths of all routes.
    pub(crate) fn route_paths() -> Vec<&'static str> {
        AppState::routes().into_iter().map(|(path, _)| path).collect()
    }

    /// Returns the server as a service for requests from this process, which need no key.
    pub fn router(&self) -> Router {
        self.router_for(ListenPolicy::IN_PROCESS)
    }

    /// Returns the server as a service for requests that arrive under `policy`: its routes, wrapped in the admission
    /// and metrics layer.
    pub(crate) fn router_for(&self, door: ListenPolicy) -> Router {
        let entrance = AuthLayer {
            policy: door,
            access: Arc::clone(self.access()),
            metrics: Arc::clone(self.metrics()),
            memory: self.parts().memory.clone(),
        };
        let mut router = Router::new();
        for (path, methods) in AppState::routes() {
            router = router.route(path, methods);
        }
        router
            .fallback(predict::model_routes::predict_default_by_path)
            .method_not_allowed_fallback(method_not_allowed)
            // Handlers read bodies with `BodyReader`, each with its own limit.
            .layer(DefaultBodyLimit::disable())
            .layer(middleware::from_fn_with_state(entrance, admit_and_observe))
            .with_state(self.clone())
    }
}

async fn method_not_allowed(request: Request) -> ApiError {
    let path = request.uri().path().chars().take(200).collect();
    ApiError::Method { method: request.method().as_str().chars().take(40).collect(), path }
}
