//! A server in a temporary directory, whose models behave as their input says.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request;
use axum::response::Response;
use parking_lot::Mutex;
use saggar_device::meter::MeterCharge;
use saggar_device::{DeviceInfo, Meter};
use saggar_jobs::{JobError, JobService, LaunchRequest, SchedulerConfig, WorkerHandle, WorkerLauncher};
use saggar_metrics::MetricsRegistry;
use saggar_pipelines::PipelineService;
use saggar_plugin::{
    DeclaredWeights, GuestErrorCode, ModelPort, ModelSignature, NamedTensor, PluginError, PredictionOptions,
};
use saggar_rest::model_graphs::{GraphKernelDocument, ModelGraphDocument};
use saggar_serving::{
    CandidateContent, DeviceUsageAccount, ImportError, LoadError, LoadKind, LoadPhase, LoadedVersion, ModelFiles,
    ModelHost, ModelImporter, ModelLifecycle, ModelPredictor, ModelRouter, ReconcileLoop, RequestMemoryBudget,
    VersionCandidate,
};
use saggar_store::checkpoint::{SavedVariable, VariableKind};
use saggar_store::dataset::DatasetStore;
use saggar_store::dataset::upload::UploadStore;
use saggar_store::digest::Digest;
use saggar_store::models::{ModelPublication, ModelRegistry, PublishedVersion};
use saggar_store::records::{ClaimedJob, JobRecords};
use saggar_store::{ExternalRunStore, ObjectStorage, ProjectAssignments, StateDir};
use saggar_tensor::{DType, Descriptor, Shape};
use tokio::sync::watch;
use tower::ServiceExt;

use super::formula_model::FormulaPredictor;
use super::prediction_gate::PredictionGate;
use super::serving_options::ServingOptions;
use super::streaming_model::StreamingPredictor;
pub(super) use super::test_response::TestResponse;
use crate::{
    AccessControl, AppParts, AppState, AuditLog, DeviceInventory, GraphInspectError, GraphInspector, MachineDevice,
    PluginFacts, PluginInspector, RequestObserver, decode_sample,
};

/// First pixels that make the model misbehave.
pub(super) const TRAP: u8 = 200;
pub(super) const REJECT: u8 = 201;
pub(super) const BLOCK: u8 = 202;
pub(super) const SLOW: u8 = 203;
pub(super) const PANIC: u8 = 204;
pub(super) const BAD_OUTPUT: u8 = 205;

/// The bytes that each model occupies on its device.
pub(super) const MODEL_BYTES: u64 = 4096;

pub(super) struct ServerFixture {
    directory: Arc<tempfile::TempDir>,
    pub(super) home: StateDir,
    pub(super) records: Arc<dyn JobRecords>,
    pub(super) models: ModelRegistry,
    pub(super) loader: ReconcileLoop,
    pub(super) host: Arc<FakeModelHost>,
    pub(super) app: AppState,
    pub(super) router: Router,
    pub(super) stop: watch::Sender<bool>,
}

impl ServerFixture {
    pub(super) fn new() -> ServerFixture {
        ServerFixture::in_directory(Arc::new(tempfile::tempdir().unwrap()), ServingOptions::default())
    }

    /// Returns a server whose models occupy at most `bytes_max` bytes of their device.
    pub(super) fn with_model_memory(bytes_max: u64) -> ServerFixture {
        let memory = ServingOptions { models_bytes: bytes_max, ..ServingOptions::default() };
        ServerFixture::in_directory(Arc::new(tempfile::tempdir().unwrap()), memory)
    }

    pub(super) fn with_options(options: ServingOptions) -> ServerFixture {
        ServerFixture::in_directory(Arc::new(tempfile::tempdir().unwrap()), options)
    }

    /// Like [`ServerFixture::restarted`], with other options.
    pub(super) fn restarted_with(&self, options: ServingOptions) -> ServerFixture {
        ServerFixture::in_directory(Arc::clone(&self.directory), options)
    }

    /// Returns another server in the same directory, as after a restart.
    pub(super) fn restarted(&self) -> ServerFixture {
        ServerFixture::in_directory(Arc::clone(&self.directory), ServingOptions::default())
    }

    fn in_directory(directory: Arc<tempfile::TempDir>, options: ServingOptions) -> ServerFixture {
        let home = StateDir::open(directory.path().join("home")).unwrap();
        let metrics = Arc::new(MetricsRegistry::new());
        let records = saggar_store::records::open(home.database()).unwrap();
        let models = ModelRegistry::new(home.models());
        let host = Arc::new(FakeModelHost::default());
        let router = ModelRouter::new(Arc::clone(&metrics));
        let router = Arc::new(if options.loads_on_demand { router.with_on_demand_loading() } else { router });
        let as_host: Arc<dyn ModelHost> = Arc::<FakeModelHost>::clone(&host);
        let graphs_of_host: Arc<dyn GraphInspector> = Arc::<FakeModelHost>::clone(&host);
        let clock = Arc::clone(&options.clock);
        let lifecycle = ModelLifecycle::new(
            models.clone(),
            as_host,
            Arc::clone(&router),
            Arc::clone(&metrics),
            clock.clone(),
            options.models_bytes,
            decode_sample,
        );
        let lifecycle = Arc::new(lifecycle.with_follow_policy(options.follow));
        let loader = ReconcileLoop::new(Arc::clone(&lifecycle));
        let (workers, layout) = (Arc::new(PanickingLauncher), SchedulerConfig::single_queue(1));
        let jobs = JobService::new(
            Arc::clone(&records),
            clock.clone(),
            Arc::clone(&metrics),
            workers,
            home.job_files(),
            layout,
        );
        let pipelines = PipelineService::new(jobs.records(), clock.clone(), &metrics);
        let datasets = DatasetStore::new(home.datasets());
        let (stop, stopping) = watch::channel(false);
        let parts = AppParts {
            models: router,
            lifecycle,
            jobs,
            pipelines,
            metrics: Arc::clone(&metrics),
            home: home.clone(),
            models_dir: home.models(),
            model_projects: ProjectAssignments::of_models(&home, home.models()),
            dataset_projects: ProjectAssignments::of_datasets(&home),
            storage_quota: None,
            trusted_keys: Vec::new(),
            objects: ObjectStorage::local(&home.objects()).unwrap(),
            uploads: UploadStore::new(home.uploads(), datasets.clone()),
            datasets,
            importer: Arc::new(UnavailableImporter),
            inspector: Arc::new(TextPluginInspector),
            graphs: graphs_of_host,
            devices: Arc::new(DeviceInventory::new(vec![device()])),
            fetcher: saggar_fetch::RemoteFetcher::new(saggar_fetch::FetchPolicy::default()),
            webhooks: Vec::new(),
            mlflow_ui: None,
            access: Arc::new(AccessControl::new(home.keys(), home.key_usage(), clock.clone(), Arc::clone(&metrics))),
            memory: RequestMemoryBudget::new(options.requests_bytes),
            external_runs: ExternalRunStore::new(home.external_runs()),
            sampler: None,
            join_settings: None,
            observer: RequestObserver::default(),
            secrets: home.secrets(),
            audit: AuditLog::new(home.audit_log(), clock.clone()),
        };
        let app = AppState::new(parts, clock, stopping);
        let router = app.router();
        ServerFixture { directory, home, records, models, loader, host, app, router, stop }
    }

    /// Returns a server with version 1 of `digits` serving, whose requests hold at most `bytes_max` bytes of memory.
    pub(super) async fn with_request_memory(bytes_max: u64) -> ServerFixture {
        let memory = ServingOptions { requests_bytes: bytes_max, ..ServingOptions::default() };
        ServerFixture::in_directory(Arc::new(tempfile::tempdir().unwrap()), memory).publish_digits().await
    }

    /// Returns a server with version 1 of `digits` serving.
    pub(super) async fn with_digits_serving() -> ServerFixture {
        ServerFixture::new().publish_digits().await
    }

    async fn publish_digits(self) -> ServerFixture {
        let fixture = self;
        fixture.publish("digits", "plugin", 1);
        fixture.loader.run_once().await;
        fixture
    }

    /// Claims the job that is next in the queue.
    pub(super) fn claim(&self, now_ms: u64) -> ClaimedJob {
        let id = self.records.queued_jobs().unwrap().remove(0).id;
        self.records.claim(&id, "any", now_ms).unwrap().unwrap()
    }

    /// Publishes a version whose outputs contain `mark`. The plugin's text determines how it loads.
    pub(super) fn publish(&self, model: &str, plugin: &str, mark: i32) -> u64 {
        let bias = SavedVariable {
            name: "mark".to_owned(),
            kind: VariableKind::Parameter,
            descriptor: Descriptor::new(DType::I32, Shape::scalar()),
            bytes: Bytes::copy_from_slice(&mark.to_le_bytes()),
        };
        let publication = ModelPublication {
            model,
            plugin: plugin.as_bytes(),
            variables: &[bias],
            config: "",
            inputs: Default::default(),
            source_job: "job",
            created_ms: 1_000 + mark as u64,
            metrics: BTreeMap::from([("accuracy".to_owned(), f64::from(mark) / 10.0)]),
            card: None,
            provenance: Default::default(),
        };
        self.models.publish(&publication).unwrap().version
    }

    pub(super) fn version_dir(&self, model: &str, version: u64) -> PathBuf {
        self.models.version_dir(model, version).unwrap()
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(super) async fn get(&self, path: &str) -> TestResponse {
        TestResponse::from_response(self.send(Request::get(path).body(Body::empty()).unwrap()).await).await
    }

    pub(super) async fn post(&self, path: &str, content_type: &str, body: impl Into<Body>) -> TestResponse {
        let request = Request::post(path).header("content-type", content_type).body(body.into()).unwrap();
        TestResponse::from_response(self.send(request).await).await
    }

    pub(super) async fn post_json(&self, path: &str, body: &str) -> TestResponse {
        self.post(path, "application/json", body.to_owned()).await
    }

    /// Requests a prediction for an image whose first pixel is `first`.
    pub(super) async fn predict(&self, first: u8) -> TestResponse {
        self.post_json("/predict", &image_json(first)).await
    }

    pub(super) async fn metric(&self, line: &str) -> Option<f64> {
        let text = self.get("/metrics").await.text();
        text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
    }

    /// Waits until a metric has this value.
    pub(super) async fn metric_becomes(&self, line: &str, value: Option<f64>) {
        while self.metric(line).await != value {
            tokio::task::yield_now().await;
        }
    }
}

pub(super) fn image_json(first: u8) -> String {
    format!("{{\"image\": [[{first}, 2], [3, 4]]}}")
}

fn device() -> MachineDevice {
    let info = DeviceInfo {
        name: "cpu".to_owned(),
        adapter: "processor".to_owned(),
        vendor: String::new(),
        driver: String::new(),
        backend: "cpu".to_owned(),
        software: false,
        exact_seconds: false,
        limits: vec![("buffer_bytes_max".to_owned(), 1 << 20)],
        features: vec!["shader_f16".to_owned()],
    };
    MachineDevice { info, serves: true, job_slots: 2 }
}

#[derive(Debug)]
struct PanickingLauncher;

impl WorkerLauncher for PanickingLauncher {
    fn launch(&self, _request: &LaunchRequest) -> Result<Box<dyn WorkerHandle>, JobError> {
        panic!("these tests run no jobs")
    }
}

/// Inspects plugins by their text.
#[derive(Debug)]
struct TextPluginInspector;

impl PluginInspector for TextPluginInspector {
    fn inspect(&self, wasm: &[u8]) -> Result<PluginFacts, PluginError> {
        let text = String::from_utf8_lossy(wasm);
        if !text.starts_with("plugin") {
            return Err(PluginError::NotComponent { reason: "it does not begin as one".to_owned() });
        }
        let (trains, predicts) = (text.contains("trains"), text.contains("predicts"));
        // The text after a bar is the plugin's declarations.
        let declares = text.split_once('|').map(|(_, declared)| serde_json::from_str(declared).unwrap());
        let declares = declares.unwrap_or_default();
        Ok(PluginFacts {
            digest: Digest::of(wasm),
            trains,
            predicts,
            is_step: false,
            bytes: wasm.len() as u64,
            declares,
        })
    }
}

/// Loads models that behave as their input says.
#[derive(Debug, Default)]
pub(super) struct FakeModelHost {
    pub(super) gate: Arc<PredictionGate>,
    /// The number of models not freed yet.
    pub(super) alive: Arc<AtomicUsize>,
    /// The number of versions loaded or refused.
    pub(super) load_attempts: AtomicUsize,
    /// The number of graphs that were inspected.
    pub(super) inspections: AtomicUsize,
    /// Whether the device is lost, and how many attempts to renew it fail.
    pub(super) lost: AtomicBool,
    pub(super) renew_failures: AtomicUsize,
    /// The plugin text of each model's most recently loaded version.
    plugins: Mutex<BTreeMap<String, String>>,
}

/// A version has two graphs, of one kernel each.
impl GraphInspector for FakeModelHost {
    fn inspect(&self, version_dir: &Path, graph: usize) -> Result<ModelGraphDocument, GraphInspectError> {
        self.inspections.fetch_add(1, Ordering::SeqCst);
        assert!(version_dir.join("plugin.wasm").is_file());
        if !(1..=2).contains(&graph) {
            return Err(GraphInspectError::NoGraph { count: 2 });
        }
        let kernel = GraphKernelDocument { label: format!("matmul {graph}"), ..GraphKernelDocument::default() };
        Ok(ModelGraphDocument { graph, kernels: vec![kernel], ..ModelGraphDocument::default() })
    }
}

impl ModelHost for FakeModelHost {
    fn check_content(&self, it: CandidateContent<'_>) -> Result<DeclaredWeights, LoadError> {
        if it.plugin == b"refused" {
            return Err(PluginError::NotComponent { reason: "it is text".to_owned() }.into());
        }
        Ok(DeclaredWeights { variables: it.variables.to_vec(), unread: Vec::new() })
    }

    fn load_version(
        &self,
        it: VersionCandidate<'_>,
        phase: &mut dyn FnMut(LoadPhase, Duration),
    ) -> Result<LoadedVersion, LoadError> {
        let files = it.files;
        self.load_attempts.fetch_add(1, Ordering::SeqCst);
        let plugin = String::from_utf8(files.load_plugin()?).unwrap();
        phase(LoadPhase::Compile, Duration::from_millis(1));
        match plugin.as_str() {
            "refused" | "plugin refused" => {
                return Err(PluginError::NotComponent { reason: "it is text".to_owned() }.into());
            }
            "panics" => panic!("as the test requested"),
            _ => {}
        }
        let mark = it.variables[0].bytes.as_ref().try_into().map(i32::from_le_bytes).unwrap();
        let meter = Meter::unlimited();
        if plugin == "plugin that speaks" {
            let speaker = StreamingPredictor::new(Arc::clone(&self.gate));
            return Ok(loaded_model(Arc::new(speaker), meter, LoadKind::Full));
        }
        if let Some(formula) = plugin.strip_prefix("plugin that computes ") {
            return Ok(loaded_model(Arc::new(FormulaPredictor::from_name(formula)), meter, LoadKind::Full));
        }
        let charge = meter.charge(MODEL_BYTES).unwrap();
        self.alive.fetch_add(1, Ordering::SeqCst);
        let model = EchoPredictor {
            _charge: charge,
            mark,
            calls_driver: plugin == "plugin that calls a driver",
            signature: image_signature(),
            gate: Arc::clone(&self.gate),
            alive: Arc::clone(&self.alive),
        };
        let before = self.plugins.lock().insert(it.model.to_owned(), plugin.clone());
        let kind = if before.as_ref() == Some(&plugin) { LoadKind::Weights } else { LoadKind::Full };
        Ok(loaded_model(Arc::new(model), meter, kind))
    }

    fn lost_device(&self) -> Option<(String, String)> {
        self.lost.load(Ordering::SeqCst).then(|| ("cpu".to_owned(), "simulated by a test".to_owned()))
    }

    fn reopen_device(&self) -> Result<(), LoadError> {
        let less = |left: usize| left.checked_sub(1);
        if self.renew_failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(LoadError::Panicked);
        }
        self.lost.store(false, Ordering::SeqCst);
        Ok(())
    }
}

fn loaded_model(predictor: Arc<dyn ModelPredictor>, meter: Meter, kind: LoadKind) -> LoadedVersion {
    let accounts = vec![Arc::new(DeviceUsageAccount::new(meter))];
    LoadedVersion { predictor, device: "cpu".to_owned(), device_usage: accounts, kind }
}

pub(super) fn test_port(name: &str, dtype: DType, shape: &[usize], semantics: Option<&str>) -> ModelPort {
    let item = Descriptor::new(dtype, Shape::new(shape).unwrap());
    ModelPort {
        name: name.to_owned(),
        item,
        semantics: semantics.map(str::to_owned),
        classes: Vec::new(),
        default: None,
        preprocessing: None,
    }
}

fn image_signature() -> ModelSignature {
    ModelSignature {
        inputs: vec![test_port("image", DType::U8, &[2, 2], Some("image"))],
        outputs: vec![test_port("sum", DType::F32, &[], None), test_port("mark", DType::I32, &[], None)],
        batch_sizes: vec![1, 8],
        routes: Vec::new(),
        handlers: Vec::new(),
    }
}

/// Returns the sum of the pixels and the mark of its weights.
#[derive(Debug)]
struct EchoPredictor {
    _charge: MeterCharge,
    mark: i32,
    calls_driver: bool,
    signature: ModelSignature,
    gate: Arc<PredictionGate>,
    alive: Arc<AtomicUsize>,
}

impl ModelPredictor for EchoPredictor {
    fn signature(&self) -> &ModelSignature {
        &self.signature
    }

    fn device_bytes(&self) -> u64 {
        MODEL_BYTES
    }

    fn calls_driver(&self) -> bool {
        self.calls_driver
    }

    fn predict(&self, inputs: Vec<NamedTensor>, terms: &PredictionOptions) -> Result<Vec<NamedTensor>, PluginError> {
        let limit = terms.deadline;
        let pixels = &inputs[0].bytes;
        let items = inputs[0].descriptor.shape[0];
        let during = "predict";
        match pixels[0] {
            TRAP => return Err(PluginError::Trap { during, reason: "unreachable at /secret/path".to_owned() }),
            REJECT => {
                let message = "the picture is blank".to_owned();
                return Err(PluginError::Guest { during, code: GuestErrorCode::InvalidArgument, message, place: None });
            }
            BLOCK => self.gate.wait(),
            SLOW => return Err(PluginError::Deadline { during, limit_ms: limit.as_millis() as u64 }),
            PANIC => panic!("as the test requested"),
            BAD_OUTPUT => return Ok(Vec::new()),
            _ => {}
        }
        let sum = |item: &[u8]| item.iter().map(|&pixel| f32::from(pixel)).sum::<f32>().to_le_bytes();
        let sums = pixels.chunks_exact(4).flat_map(sum).collect();
        let marks = std::iter::repeat_n(self.mark.to_le_bytes(), items).flatten().collect();
        let output = |name: &str, dtype, bytes| {
            let descriptor = Descriptor::new(dtype, Shape::new([items]).unwrap());
            NamedTensor { name: name.to_owned(), descriptor, bytes }
        };
        Ok(vec![output("mark", DType::I32, marks), output("sum", DType::F32, sums)])
    }
}

impl Drop for EchoPredictor {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An importer that always fails, like a server without the ONNX plugin.
#[derive(Debug)]
struct UnavailableImporter;

impl ModelImporter for UnavailableImporter {
    fn import(&self, _: &str, _: &ModelFiles, _: &str) -> Result<PublishedVersion, ImportError> {
        Err(ImportError::NoPlugin { path: "nowhere".into(), reason: "not there".to_owned() })
    }
}
