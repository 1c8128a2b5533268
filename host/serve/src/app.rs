//! The server's state, which every handler shares, and its route table.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware;
use axum::routing::{MethodRouter, any, delete, get, post, put};
use saggar_jobs::{Jobs, Resolver};
use saggar_metrics::Metrics;
use saggar_store::checkpoint::Checkpoints;
use saggar_store::clock::Clock;
use saggar_store::dataset::Datasets;
use saggar_store::dataset::upload::Uploads;
use saggar_store::home::Home;
use saggar_store::objects::Objects;
use saggar_store::projects::Projects;
use saggar_store::usage::StorageQuota;
use tokio::sync::{RwLock, watch};

use crate::access::{Access, Door};
use crate::api::devices::Devices;
use crate::api::event_streams::EventStreams;
use crate::api::plugins::PluginInspector;
use crate::api::{
    datasets, devices, events, exports, health, import, index, jobs, keys, logs, model_commands, model_removal, models,
    outputs, plugins, projects, queues, quota, schedules, secrets, versions,
};
use crate::audit::Audit;
use crate::body::Bodies;
use crate::closed_series;
use crate::console;
use crate::error::ApiError;
use crate::memory::MemoryBudget;
use crate::models::{Lifecycle, ModelImporter, ModelRouter};
use crate::observe::{Entrance, observe};
use crate::oip;
use crate::openapi;
use crate::predict;
use crate::predictions::webhook::WebhookPrefix;
use crate::predictions::{self, Predictions};
use crate::storage::Counted;
use crate::tfs;

/// What a server is made of.
#[derive(Debug)]
pub struct Parts {
    /// The models that answer predictions.
    pub models: Arc<ModelRouter>,
    /// What decides which of them are up.
    pub lifecycle: Arc<Lifecycle>,
    /// Training jobs.
    pub jobs: Jobs,
    /// Every metric.
    pub metrics: Arc<Metrics>,
    /// The state directory.
    pub home: Home,
    /// The directory of model versions.
    pub models_dir: PathBuf,
    /// How much may be stored; none is no limit.
    pub storage_quota: Option<StorageQuota>,
    /// Plugins and checkpoints.
    pub objects: Objects,
    /// Datasets.
    pub datasets: Datasets,
    /// Datasets on their way.
    pub uploads: Uploads,
    /// Makes models of files.
    pub importer: Arc<dyn ModelImporter>,
    /// Looks into plugins that are uploaded.
    pub inspector: Arc<dyn PluginInspector>,
    /// The devices of this machine.
    pub devices: Arc<Devices>,
    /// Addresses that events of predictions may be sent to; none where they are not sent.
    pub webhooks: Vec<WebhookPrefix>,
    /// The keys of clients.
    pub access: Arc<Access>,
    /// Where it is written down who changed what.
    pub audit: Audit,
    /// The memory that requests may take.
    pub memory: MemoryBudget,
}

impl Parts {
    /// Which projects the models belong to.
    pub(crate) fn model_projects(&self) -> Projects {
        Projects::of_models(&self.models_dir)
    }

    /// Which projects the datasets belong to.
    pub(crate) fn dataset_projects(&self) -> Projects {
        Projects::of_datasets(self.home.datasets())
    }
}

/// The state of a server. Clones share it.
#[derive(Clone)]
pub struct App {
    shared: Arc<Shared>,
}

struct Shared {
    parts: Parts,
    checkpoints: Checkpoints,
    clock: Arc<dyn Clock>,
    bodies: Bodies,
    predictions: Predictions,
    streams: EventStreams,
    counted: Counted,
    references: RwLock<()>,
    shutdown: watch::Receiver<bool>,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("parts", &self.shared.parts).finish_non_exhaustive()
    }
}

impl App {
    /// A server made of `parts`. Answers that go on for long end when `shutdown` is true.
    pub fn new(parts: Parts, clock: Arc<dyn Clock>, shutdown: watch::Receiver<bool>) -> App {
        let checkpoints = Checkpoints::new(parts.objects.clone());
        let predictions = Predictions::new(parts.webhooks.clone());
        let counted = Counted::default();
        let (bodies, streams) = (Bodies::new(parts.memory.clone()), EventStreams::default());
        let references = RwLock::default();
        let shared = Shared { parts, checkpoints, clock, bodies, predictions, streams, counted, references, shutdown };
        let app = App { shared: Arc::new(shared) };
        closed_series::begin(&app.metrics().families);
        app.jobs().resolve_by(app.resolver());
        let audit = app.audit().clone();
        app.jobs().log_effects_to(Box::new(move |effect| audit.record_effect(effect)));
        let lifecycle = Arc::downgrade(app.lifecycle());
        app.jobs().note_publications_by(Box::new(move |model, version| {
            lifecycle.upgrade().map(|lifecycle| lifecycle.publication_notes(model, version)).unwrap_or_default()
        }));
        app
    }

    /// Looks up what the jobs of schedules refer to. The jobs are a part of this server and must not keep it alive.
    fn resolver(&self) -> Resolver {
        let shared = Arc::downgrade(&self.shared);
        Box::new(move |spec, rights| {
            let shared = shared.upgrade();
            Box::pin(async move {
                let shared = shared.ok_or_else(|| std::io::Error::other("the server is stopping"))?;
                jobs::submit::resolved(&App { shared }, spec, rights).await
            })
        })
    }

    /// Held for reading while something is recorded that refers to datasets, jobs or checkpoints, and for writing while
    /// such are removed, from the question who refers to them on.
    pub(crate) fn references(&self) -> &RwLock<()> {
        &self.shared.references
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.shared.parts
    }

    pub(crate) fn models(&self) -> &Arc<ModelRouter> {
        &self.shared.parts.models
    }

    pub(crate) fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.shared.parts.lifecycle
    }

    pub(crate) fn jobs(&self) -> &Jobs {
        &self.shared.parts.jobs
    }

    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.shared.parts.access
    }

    /// Where handlers that change something write it down.
    pub(crate) fn audit(&self) -> &Audit {
        &self.shared.parts.audit
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.parts.metrics
    }

    pub(crate) fn counted(&self) -> &Counted {
        &self.shared.counted
    }

    pub(crate) fn checkpoints(&self) -> &Checkpoints {
        &self.shared.checkpoints
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.shared.clock.now_ms()
    }

    pub(crate) fn bodies(&self) -> &Bodies {
        &self.shared.bodies
    }

    pub(crate) fn predictions(&self) -> &Predictions {
        &self.shared.predictions
    }

    /// The streams of events that are open.
    pub(crate) fn streams(&self) -> &EventStreams {
        &self.shared.streams
    }

    pub(crate) fn shutdown(&self) -> watch::Receiver<bool> {
        self.shared.shutdown.clone()
    }

    /// Runs `work`, which may wait for the disk, on a thread that may.
    pub(crate) async fn blocking<T, E>(
        &self,
        work: impl FnOnce(&Parts) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiError>
    where
        T: Send + 'static,
        E: Into<ApiError> + Send + 'static,
    {
        let app = self.clone();
        let done = tokio::task::spawn_blocking(move || work(app.parts())).await;
        done.map_err(|error| ApiError::Internal { cause: error.to_string() })?.map_err(Into::into)
    }

    /// Every route, and the methods it has, as the index shows them.
    pub(crate) fn routes() -> Vec<(&'static str, MethodRouter<App>)> {
        let mut routes = vec![
            ("/", get(index::index).post(predict::by_default)),
            ("/console/{fingerprint}/{*name}", get(console::asset)),
            ("/predict", get(predict::describe::by_default).post(predict::by_default)),
            ("/models/{model}/predict", get(predict::describe::by_name).post(predict::by_name)),
            ("/models/{model}/{*path}", get(predict::route::by_name).post(predict::route::by_name)),
            ("/predictions", post(predictions::create)),
            ("/predictions/{id}", get(predictions::one).put(predictions::put)),
            ("/predictions/{id}/cancel", post(predictions::cancel)),
            ("/v1/", any(tfs::handle)),
            ("/v1/{*path}", any(tfs::handle)),
            ("/V1/{*path}", any(tfs::handle)),
            ("/healthz", get(health::alive)),
            ("/livez", get(health::alive)),
            ("/readyz", get(health::ready)),
            ("/version", get(health::version)),
            ("/metrics", get(health::metrics)),
            ("/openapi.json", get(openapi::openapi)),
            ("/api/v1/plugins", get(plugins::list).post(plugins::upload)),
            ("/api/v1/plugins/{digest}/resume-test", post(plugins::resume::mark)),
            ("/api/v1/jobs", get(jobs::list).post(jobs::submit::submit)),
            ("/api/v1/jobs/{job}", get(jobs::one).delete(jobs::removal::remove)),
            ("/api/v1/jobs/gc", post(jobs::removal::sweep)),
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
            ("/api/v1/jobs/{job}/checkpoints/{which}", get(jobs::checkpoints::one)),
            ("/api/v1/jobs/{job}/output", get(outputs::list)),
            ("/api/v1/jobs/{job}/output/{*path}", get(outputs::one)),
            ("/api/v1/events", get(events::events)),
            ("/api/v1/datasets", get(datasets::list).post(datasets::begin)),
            ("/api/v1/datasets/{name}/uploads/{id}/chunks/{sha256}", put(datasets::chunk)),
            ("/api/v1/datasets/{name}/uploads/{id}/commit", post(datasets::commit)),
            ("/api/v1/datasets/{name}/{version}", delete(datasets::remove)),
            ("/api/v1/datasets/{name}/{version}/export", get(exports::tar)),
            ("/api/v1/datasets/{name}/from-job", post(datasets::of_job)),
            ("/api/v1/devices", get(devices::list)),
            ("/api/v1/keys", get(keys::list).post(keys::create)),
            ("/api/v1/keys/{name}", delete(keys::revoke)),
        ];
        routes.extend(App::model_routes());
        routes.extend(oip::routes().into_iter().chain(projects::routes()));
        routes
    }

    /// Routes of models and their versions.
    fn model_routes() -> Vec<(&'static str, MethodRouter<App>)> {
        vec![
            ("/api/v1/models", get(models::list)),
            ("/api/v1/models/{model}", get(models::one).delete(model_removal::remove_model)),
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
            ("/api/v1/models/{model}/config", get(model_commands::configuration).put(model_commands::configure)),
        ]
    }

    /// The paths of all routes.
    pub(crate) fn paths() -> Vec<&'static str> {
        App::routes().into_iter().map(|(path, _)| path).collect()
    }

    /// The server as a service for requests of this process, which need no key.
    pub fn router(&self) -> Router {
        self.router_at(Door::INSIDE)
    }

    /// The server as a service for requests that come in at `door`: routes, with the observing layer around everything.
    pub(crate) fn router_at(&self, door: Door) -> Router {
        let entrance = Entrance {
            door,
            access: Arc::clone(self.access()),
            metrics: Arc::clone(self.metrics()),
            memory: self.parts().memory.clone(),
        };
        let mut router = Router::new();
        for (path, methods) in App::routes() {
            router = router.route(path, methods);
        }
        router
            .fallback(predict::route::by_default)
            .method_not_allowed_fallback(no_method)
            // Handlers read bodies through `Bodies`, each with its own maximum.
            .layer(DefaultBodyLimit::disable())
            .layer(middleware::from_fn_with_state(entrance, observe))
            .with_state(self.clone())
    }
}

async fn no_method(request: Request) -> ApiError {
    let path = request.uri().path().chars().take(200).collect();
    ApiError::Method { method: request.method().as_str().chars().take(40).collect(), path }
}
