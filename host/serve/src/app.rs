//! The server's state, which all handlers share.

use std::sync::{Arc, Weak};

use saggar_clock::Clock;
use saggar_jobs::JobService;
use saggar_metrics::MetricsRegistry;
use saggar_pipelines::PipelineService;
use saggar_serving::{ModelLifecycle, ModelRouter, PredictionService};
use saggar_store::abandoned_content::{RemovedContent, remove_abandoned_content};
use saggar_store::checkpoint::CheckpointStore;
use saggar_sweeps::SweepService;
use tokio::sync::{RwLock, watch};

use crate::access::AccessControl;
use crate::api::event_streams::EventStreams;
use crate::app_parts::AppParts;
use crate::audit::AuditLog;
use crate::cog::predictions::CogPredictions;
use crate::error::ApiError;
use crate::inspected_graphs::InspectedGraphs;
use crate::openapi::described_response::HandlerResponses;
use crate::openapi::operation::OperationArea;
use crate::request_body::BodyReader;
use crate::server_history::ServerHistory;
use crate::storage::{LoggedBytes, StorageCounter};

/// The state of a server. Clones share it.
#[derive(Clone)]
pub struct AppState {
    shared: Arc<AppStateInner>,
}

struct AppStateInner {
    parts: AppParts,
    index: InterfaceIndex,
    checkpoints: CheckpointStore,
    clock: Arc<dyn Clock>,
    body_reader: BodyReader,
    sweeps: SweepService,
    predictions: CogPredictions,
    prediction_service: PredictionService,
    event_streams: EventStreams,
    storage_counter: StorageCounter,
    logged_bytes: LoggedBytes,
    history: ServerHistory,
    inspected_graphs: InspectedGraphs,
    reference_lock: RwLock<()>,
    shutdown: watch::Receiver<bool>,
}

/// What the server tells clients about its interface.
#[derive(Debug)]
pub(crate) struct InterfaceIndex {
    /// The paths of all routes, in the order of the index.
    pub(crate) route_paths: Vec<&'static str>,
    /// The areas of the OpenAPI document.
    pub(crate) areas: Vec<OperationArea>,
    /// The responses that the types of handlers describe.
    pub(crate) responses: HandlerResponses,
}

/// A reference to a server's state that does not keep it alive.
pub(crate) struct WeakAppState(Weak<AppStateInner>);

impl WeakAppState {
    /// Returns the state, or `None` if the server has stopped.
    pub(crate) fn upgrade(&self) -> Option<AppState> {
        self.0.upgrade().map(|shared| AppState { shared })
    }
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("parts", &self.shared.parts).finish_non_exhaustive()
    }
}

impl AppState {
    /// Creates the state of a server from `parts`. `index` describes its interface. Streaming responses end when
    /// `shutdown` is true.
    pub(crate) fn from_parts(
        parts: AppParts,
        index: InterfaceIndex,
        clock: Arc<dyn Clock>,
        shutdown: watch::Receiver<bool>,
    ) -> AppState {
        let checkpoints = CheckpointStore::new(parts.objects.clone());
        let sweeps = SweepService::new(parts.jobs.clone());
        let predictions = CogPredictions::new(parts.webhooks.clone(), &parts.jobs, &parts.objects);
        let (models, metrics) = (Arc::clone(&parts.models), Arc::clone(&parts.metrics));
        let prediction_service =
            PredictionService::new(models, metrics, Arc::clone(&clock)).with_sampler(parts.sampler.clone());
        let counted = StorageCounter::default();
        let (bodies, streams) = (BodyReader::new(parts.memory.clone()), EventStreams::default());
        let references = RwLock::default();
        let shared = AppStateInner {
            parts,
            index,
            checkpoints,
            clock,
            body_reader: bodies,
            sweeps,
            predictions,
            prediction_service,
            event_streams: streams,
            storage_counter: counted,
            logged_bytes: LoggedBytes::default(),
            history: ServerHistory::default(),
            inspected_graphs: InspectedGraphs::default(),
            reference_lock: references,
            shutdown,
        };
        AppState { shared: Arc::new(shared) }
    }

    /// Returns a reference that does not keep the server alive, for functions that its own components hold.
    pub(crate) fn downgrade(&self) -> WeakAppState {
        WeakAppState(Arc::downgrade(&self.shared))
    }

    /// Returns the lock that protects references. It is held for reading while a reference to a dataset, job or
    /// checkpoint is recorded. It is held for writing during a removal of any of these, from the search for references
    /// onward.
    pub(crate) fn reference_lock(&self) -> &RwLock<()> {
        &self.shared.reference_lock
    }

    /// Returns the paths of all routes, in the order of the index.
    pub(crate) fn route_paths(&self) -> &[&'static str] {
        &self.shared.index.route_paths
    }

    /// Returns the areas of the OpenAPI document.
    pub(crate) fn operation_areas(&self) -> &[OperationArea] {
        &self.shared.index.areas
    }

    /// Returns the responses that the types of handlers describe.
    pub(crate) fn handler_responses(&self) -> &HandlerResponses {
        &self.shared.index.responses
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

    /// Removes uploads and parts of versions that nobody is going to finish. Blocks.
    ///
    /// # Errors
    /// Those of [`remove_abandoned_content`].
    pub fn remove_abandoned_content(&self) -> Result<RemovedContent, Box<dyn std::error::Error + Send + Sync>> {
        let parts = &self.shared.parts;
        remove_abandoned_content(&parts.home, &parts.uploads, &*parts.jobs.records(), self.now_ms())
    }

    /// Returns the jobs.
    pub fn jobs(&self) -> &JobService {
        &self.shared.parts.jobs
    }

    pub(crate) fn pipelines(&self) -> &PipelineService {
        &self.shared.parts.pipelines
    }

    /// Returns the sweeps, whose loop the program runs.
    pub fn sweeps(&self) -> &SweepService {
        &self.shared.sweeps
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

    pub(crate) fn logged_bytes(&self) -> &LoggedBytes {
        &self.shared.logged_bytes
    }

    /// Returns the graphs that were inspected last.
    pub(crate) fn inspected_graphs(&self) -> &InspectedGraphs {
        &self.shared.inspected_graphs
    }

    /// Returns the samples of the past.
    pub(crate) fn history(&self) -> &ServerHistory {
        &self.shared.history
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
}
