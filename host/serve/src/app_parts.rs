//! The components of a server.

use std::path::PathBuf;
use std::sync::Arc;

use saggar_fetch::{RemoteFetcher, UrlPrefix};
use saggar_jobs::JobService;
use saggar_metrics::MetricsRegistry;
use saggar_pipelines::PipelineService;
use saggar_rest::workers::WorkerSettingsDocument;
use saggar_serving::{ModelImporter, ModelLifecycle, ModelRouter, PredictionSampler, RequestMemoryBudget};
use saggar_store::dataset::DatasetStore;
use saggar_store::dataset::upload::UploadStore;
use saggar_store::objects::ObjectStorage;
use saggar_store::projects::ProjectAssignments;
use saggar_store::signature::VerifyingKey;
use saggar_store::state_dir::StateDir;
use saggar_store::storage_usage::StorageQuota;
use saggar_store::{ExternalRunStore, ModelRegistry, SecretStore};

use crate::access::AccessControl;
use crate::audit::AuditLog;
use crate::device_inventory::DeviceInventory;
use crate::graph_inspector::GraphInspector;
use crate::plugin_inspector::PluginInspector;
use crate::request_observer::RequestObserver;

/// The components of a server.
#[derive(Debug)]
pub struct AppParts {
    /// The models that answer predictions.
    pub models: Arc<ModelRouter>,
    /// Decides which models and versions are loaded.
    pub lifecycle: Arc<ModelLifecycle>,
    /// Training jobs.
    pub jobs: JobService,
    /// Pipeline runs.
    pub pipelines: PipelineService,
    /// Every metric.
    pub metrics: Arc<MetricsRegistry>,
    /// The state directory.
    pub home: StateDir,
    /// The directory of model versions.
    pub models_dir: PathBuf,
    /// The assignments of models to projects.
    pub model_projects: ProjectAssignments,
    /// The assignments of datasets to projects.
    pub dataset_projects: ProjectAssignments,
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
    /// The keys that can sign bundles. If there are any, models from outside are accepted only as bundles that one of
    /// them has signed.
    pub trusted_keys: Vec<VerifyingKey>,
    /// Inspects uploaded plugins.
    pub inspector: Arc<dyn PluginInspector>,
    /// Inspects the graphs of model versions.
    pub graphs: Arc<dyn GraphInspector>,
    /// The devices of this machine.
    pub devices: Arc<DeviceInventory>,
    /// Fetches files of other servers, as far as the operator allows it.
    pub fetcher: RemoteFetcher,
    /// URL prefixes that events of predictions can be sent to. Empty disables webhooks.
    pub webhooks: Vec<UrlPrefix>,
    /// The keys of clients, and who can do what.
    pub access: Arc<AccessControl>,
    /// Secrets that jobs can be granted.
    pub secrets: SecretStore,
    /// The audit log.
    pub audit: AuditLog,
    /// The memory budget of requests.
    pub memory: RequestMemoryBudget,
    /// Runs of programs that are not jobs.
    pub external_runs: ExternalRunStore,
    /// The directory with the files of MLflow's pages, or `None` if they are not served.
    pub mlflow_ui: Option<PathBuf>,
    /// Draws predictions to be recorded.
    pub sampler: Option<Arc<dyn PredictionSampler>>,
    /// The settings of hosts that join the server's workers, without pools, queues and limits; `None` if no other host can
    /// use its records.
    pub join_settings: Option<WorkerSettingsDocument>,
    /// The access log and the traces of requests.
    pub observer: RequestObserver,
}

impl AppParts {
    /// Returns the registry of the model versions.
    pub(crate) fn model_registry(&self) -> ModelRegistry {
        ModelRegistry::of_home(&self.home, &self.models_dir)
    }

    /// Returns the assignments of models to projects.
    pub(crate) fn model_projects(&self) -> ProjectAssignments {
        self.model_projects.clone()
    }

    /// Returns the assignments of datasets to projects.
    pub(crate) fn dataset_projects(&self) -> ProjectAssignments {
        self.dataset_projects.clone()
    }
}
