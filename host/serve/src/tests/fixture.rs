//! A server over a directory of its own, whose models do as their input says.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use saggar_device::meter::MeterCharge;
use saggar_device::{DeviceInfo, Meter};
use saggar_jobs::{JobError, Jobs, Launcher, Layout};
use saggar_metrics::Metrics;
use saggar_plugin::{ModelPort, PluginError, Signature, Terms};
use saggar_store::checkpoint::{SavedVariable, VariableKind};
use saggar_store::dataset::Datasets;
use saggar_store::dataset::upload::Uploads;
use saggar_store::digest::Digest;
use saggar_store::home::Home;
use saggar_store::models::{Models, Publication, Published};
use saggar_store::objects::Objects;
use saggar_store::records::sqlite::SqliteRecords;
use saggar_store::records::{Claim, Records};
use saggar_tensor::{DType, Descriptor, Shape};
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt;

use super::formula::Formula;
use super::serving_options::ServingOptions;
use super::speaker::Speaker;
use crate::models::{
    Account, Candidate, ImportError, Kind, Lifecycle, LoadError, Loaded, Loader, ModelFiles, ModelHost, ModelImporter,
    ModelRouter, Phase, Predictor,
};
use crate::predict::decode::Tensor;
use crate::{Access, App, Audit, Device, Devices, MemoryBudget, Parts, PluginFacts, PluginInspector};

/// First pixels that make the model misbehave.
pub(super) const TRAP: u8 = 200;
pub(super) const REJECT: u8 = 201;
pub(super) const BLOCK: u8 = 202;
pub(super) const SLOW: u8 = 203;
pub(super) const PANIC: u8 = 204;
pub(super) const BAD_OUTPUT: u8 = 205;

/// What each model holds of its device.
pub(super) const BYTES: u64 = 4096;

pub(super) struct Fixture {
    directory: Arc<tempfile::TempDir>,
    pub(super) home: Home,
    pub(super) records: Arc<SqliteRecords>,
    pub(super) models: Models,
    pub(super) loader: Loader,
    pub(super) host: Arc<Double>,
    pub(super) app: App,
    pub(super) router: Router,
    pub(super) stop: watch::Sender<bool>,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        Fixture::within(Arc::new(tempfile::tempdir().unwrap()), ServingOptions::default())
    }

    /// Whose models hold at most so many bytes of their device.
    pub(super) fn with_memory(bytes_max: u64) -> Fixture {
        let memory = ServingOptions { models_bytes: bytes_max, ..ServingOptions::default() };
        Fixture::within(Arc::new(tempfile::tempdir().unwrap()), memory)
    }

    pub(super) fn with_options(options: ServingOptions) -> Fixture {
        Fixture::within(Arc::new(tempfile::tempdir().unwrap()), options)
    }

    /// As [`Fixture::again`], with other options.
    pub(super) fn again_with(&self, options: ServingOptions) -> Fixture {
        Fixture::within(Arc::clone(&self.directory), options)
    }

    /// Another server over the same directory, as after a restart.
    pub(super) fn again(&self) -> Fixture {
        Fixture::within(Arc::clone(&self.directory), ServingOptions::default())
    }

    fn within(directory: Arc<tempfile::TempDir>, options: ServingOptions) -> Fixture {
        let home = Home::open(directory.path().join("home")).unwrap();
        let metrics = Arc::new(Metrics::new());
        let records = Arc::new(SqliteRecords::open(&home.database()).unwrap());
        let models = Models::new(home.models());
        let host = Arc::new(Double::default());
        let router = ModelRouter::new(Arc::clone(&metrics));
        let router = Arc::new(if options.loads_on_demand { router.loading_on_demand() } else { router });
        let as_host: Arc<dyn ModelHost> = Arc::<Double>::clone(&host);
        let clock = Arc::clone(&options.clock);
        let lifecycle = Lifecycle::new(
            models.clone(),
            as_host,
            Arc::clone(&router),
            Arc::clone(&metrics),
            clock.clone(),
            options.models_bytes,
        );
        let lifecycle = Arc::new(lifecycle.following(options.follow));
        let loader = Loader::new(Arc::clone(&lifecycle));
        let as_records: Arc<dyn Records> = Arc::<SqliteRecords>::clone(&records);
        let (workers, layout) = (Arc::new(NoWorkers), Layout::simple(1));
        let jobs = Jobs::new(as_records, clock.clone(), Arc::clone(&metrics), workers, home.jobs(), layout);
        let datasets = Datasets::new(home.datasets());
        let (stop, stopping) = watch::channel(false);
        let parts = Parts {
            models: router,
            lifecycle,
            jobs,
            metrics: Arc::clone(&metrics),
            home: home.clone(),
            models_dir: home.models(),
            storage_quota: None,
            objects: Objects::local(&home.objects()).unwrap(),
            uploads: Uploads::new(home.uploads(), datasets.clone()),
            datasets,
            importer: Arc::new(NoImporter),
            inspector: Arc::new(Words),
            devices: Arc::new(Devices::new(vec![device()])),
            webhooks: Vec::new(),
            access: Arc::new(Access::new(home.keys(), home.key_usage(), clock.clone(), Arc::clone(&metrics))),
            memory: MemoryBudget::new(options.requests_bytes),
            audit: Audit::new(home.audit_log(), clock.clone()),
        };
        let app = App::new(parts, clock, stopping);
        let router = app.router();
        Fixture { directory, home, records, models, loader, host, app, router, stop }
    }

    /// With version 1 of `digits` serving, whose requests hold at most so many bytes of memory.
    pub(super) async fn with_request_memory(bytes_max: u64) -> Fixture {
        let memory = ServingOptions { requests_bytes: bytes_max, ..ServingOptions::default() };
        Fixture::within(Arc::new(tempfile::tempdir().unwrap()), memory).with_digits().await
    }

    /// With version 1 of `digits` serving.
    pub(super) async fn serving() -> Fixture {
        Fixture::new().with_digits().await
    }

    async fn with_digits(self) -> Fixture {
        let fixture = self;
        fixture.publish("digits", "plugin", 1);
        fixture.loader.look().await;
        fixture
    }

    /// Claims the job whose turn it is.
    pub(super) fn claim(&self, now_ms: u64) -> Claim {
        let id = self.records.queued().unwrap().remove(0).id;
        self.records.claim(&id, "any", now_ms).unwrap().unwrap()
    }

    /// Publishes a version whose outputs carry `mark`. The plugin's text says how it loads.
    pub(super) fn publish(&self, model: &str, plugin: &str, mark: i32) -> u64 {
        let bias = SavedVariable {
            name: "mark".to_owned(),
            kind: VariableKind::Parameter,
            descriptor: Descriptor::new(DType::I32, Shape::scalar()),
            bytes: Bytes::copy_from_slice(&mark.to_le_bytes()),
        };
        let publication = Publication {
            model,
            plugin: plugin.as_bytes(),
            variables: &[bias],
            config: "",
            source_job: "job",
            created_ms: 1_000 + mark as u64,
            metrics: BTreeMap::from([("accuracy".to_owned(), f64::from(mark) / 10.0)]),
        };
        self.models.publish(&publication).unwrap().version
    }

    pub(super) fn version_dir(&self, model: &str, version: u64) -> PathBuf {
        self.models.dir(model, version).unwrap()
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.send(Request::get(path).body(Body::empty()).unwrap()).await).await
    }

    pub(super) async fn post(&self, path: &str, content_type: &str, body: impl Into<Body>) -> Answer {
        let request = Request::post(path).header("content-type", content_type).body(body.into()).unwrap();
        Answer::of(self.send(request).await).await
    }

    pub(super) async fn post_json(&self, path: &str, body: &str) -> Answer {
        self.post(path, "application/json", body.to_owned()).await
    }

    /// A prediction for a picture that begins with `first`.
    pub(super) async fn predict(&self, first: u8) -> Answer {
        self.post_json("/predict", &picture(first)).await
    }

    pub(super) async fn metric(&self, line: &str) -> Option<f64> {
        let text = self.get("/metrics").await.text();
        text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
    }

    /// Waits until a line of the metrics has a value.
    pub(super) async fn metric_becomes(&self, line: &str, value: Option<f64>) {
        while self.metric(line).await != value {
            tokio::task::yield_now().await;
        }
    }
}

pub(super) fn picture(first: u8) -> String {
    format!("{{\"image\": [[{first}, 2], [3, 4]]}}")
}

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: axum::http::HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) async fn of(response: Response) -> Answer {
        let (parts, body) = response.into_parts();
        Answer { status: parts.status, headers: parts.headers, body: to_bytes(body, usize::MAX).await.unwrap() }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The error's status, code and text, after checking that its form is whole.
    #[track_caller]
    pub(super) fn error(&self) -> (u16, String, String) {
        let body = self.json();
        let text = |key: &str| body[key].as_str().unwrap().to_owned();
        assert_eq!(text("request_id"), self.header("x-request-id"));
        assert_eq!(self.header("content-type"), "application/json");
        assert!(body["hint"].is_string());
        (self.status.as_u16(), text("code"), text("error"))
    }
}

fn device() -> Device {
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
    Device { info, serves: true, job_slots: 2 }
}

#[derive(Debug)]
struct NoWorkers;

impl Launcher for NoWorkers {
    fn launch(&self) -> Result<tokio::process::Child, JobError> {
        panic!("these tests run no jobs")
    }
}

/// Judges plugins by their text.
#[derive(Debug)]
struct Words;

impl PluginInspector for Words {
    fn inspect(&self, wasm: &[u8]) -> Result<PluginFacts, PluginError> {
        let text = String::from_utf8_lossy(wasm);
        if !text.starts_with("plugin") {
            return Err(PluginError::NotComponent { reason: "it does not begin as one".to_owned() });
        }
        let (trains, predicts) = (text.contains("trains"), text.contains("predicts"));
        // What is behind a bar is what it declares.
        let declares = text.split_once('|').map(|(_, declared)| serde_json::from_str(declared).unwrap());
        let declares = declares.unwrap_or_default();
        Ok(PluginFacts { digest: Digest::of(wasm), trains, predicts, bytes: wasm.len() as u64, declares })
    }
}

/// Brings up models that do as their input says.
#[derive(Debug, Default)]
pub(super) struct Double {
    pub(super) gate: Arc<Gate>,
    /// Models that are not freed yet.
    pub(super) alive: Arc<AtomicUsize>,
    /// Versions brought up or refused.
    pub(super) tries: AtomicUsize,
    /// Whether the device is lost, and how often no other one is to be had.
    pub(super) lost: AtomicBool,
    pub(super) refusals: AtomicUsize,
    /// The plugin of each model that came up last.
    plugins: Mutex<BTreeMap<String, String>>,
}

/// Holds predictions back until it is opened.
#[derive(Debug, Default)]
pub(super) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(super) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    pub(super) fn wait(&self) {
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }
}

impl ModelHost for Double {
    fn bring_up(&self, it: Candidate<'_>, phase: &mut dyn FnMut(Phase, Duration)) -> Result<Loaded, LoadError> {
        let files = it.files;
        self.tries.fetch_add(1, Ordering::SeqCst);
        let plugin = String::from_utf8(files.load_plugin()?).unwrap();
        phase(Phase::Compile, Duration::from_millis(1));
        match plugin.as_str() {
            "refused" | "plugin refused" => {
                return Err(PluginError::NotComponent { reason: "it is text".to_owned() }.into());
            }
            "panics" => panic!("as it was told"),
            _ => {}
        }
        let mark = it.variables[0].bytes.as_ref().try_into().map(i32::from_le_bytes).unwrap();
        let meter = Meter::unlimited();
        if plugin == "plugin that speaks" {
            let speaker = Speaker::new(Arc::clone(&self.gate));
            return Ok(loaded(Arc::new(speaker), meter, Kind::Full));
        }
        if let Some(formula) = plugin.strip_prefix("plugin that computes ") {
            return Ok(loaded(Arc::new(Formula::named(formula)), meter, Kind::Full));
        }
        let charge = meter.charge(BYTES).unwrap();
        self.alive.fetch_add(1, Ordering::SeqCst);
        let model = Echo {
            _charge: charge,
            mark,
            calls_driver: plugin == "plugin that calls a driver",
            signature: signature(),
            gate: Arc::clone(&self.gate),
            alive: Arc::clone(&self.alive),
        };
        let before = self.plugins.lock().unwrap().insert(it.model.to_owned(), plugin.clone());
        let kind = if before.as_ref() == Some(&plugin) { Kind::Weights } else { Kind::Full };
        Ok(loaded(Arc::new(model), meter, kind))
    }

    fn lost(&self) -> Option<(String, String)> {
        self.lost.load(Ordering::SeqCst).then(|| ("cpu".to_owned(), "as a test wants it".to_owned()))
    }

    fn renew(&self) -> Result<(), LoadError> {
        let less = |left: usize| left.checked_sub(1);
        if self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(LoadError::Panicked);
        }
        self.lost.store(false, Ordering::SeqCst);
        Ok(())
    }
}

fn loaded(predictor: Arc<dyn Predictor>, meter: Meter, kind: Kind) -> Loaded {
    let accounts = vec![Arc::new(Account::new(meter))];
    Loaded { predictor, device: "cpu".to_owned(), accounts, kind }
}

pub(super) fn port(name: &str, dtype: DType, shape: &[usize], semantics: Option<&str>) -> ModelPort {
    let item = Descriptor::new(dtype, Shape::new(shape).unwrap());
    ModelPort {
        name: name.to_owned(),
        item,
        semantics: semantics.map(str::to_owned),
        classes: Vec::new(),
        default: None,
    }
}

fn signature() -> Signature {
    Signature {
        inputs: vec![port("image", DType::U8, &[2, 2], Some("image"))],
        outputs: vec![port("sum", DType::F32, &[], None), port("mark", DType::I32, &[], None)],
        batch_sizes: vec![1, 8],
        routes: Vec::new(),
    }
}

/// Answers the sum of the pixels and the mark of its weights.
#[derive(Debug)]
struct Echo {
    _charge: MeterCharge,
    mark: i32,
    calls_driver: bool,
    signature: Signature,
    gate: Arc<Gate>,
    alive: Arc<AtomicUsize>,
}

impl Predictor for Echo {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn bytes(&self) -> u64 {
        BYTES
    }

    fn calls_driver(&self) -> bool {
        self.calls_driver
    }

    fn predict(&self, inputs: Vec<Tensor>, terms: &Terms) -> Result<Vec<Tensor>, PluginError> {
        let limit = terms.deadline;
        let pixels = &inputs[0].bytes;
        let items = inputs[0].descriptor.shape[0];
        let during = "predict";
        match pixels[0] {
            TRAP => return Err(PluginError::Trap { during, reason: "unreachable at /secret/path".to_owned() }),
            REJECT => {
                let message = "the picture is blank".to_owned();
                return Err(PluginError::Guest { during, code: "invalid-argument", message, place: None });
            }
            BLOCK => self.gate.wait(),
            SLOW => return Err(PluginError::Deadline { during, limit_ms: limit.as_millis() as u64 }),
            PANIC => panic!("as it was told"),
            BAD_OUTPUT => return Ok(Vec::new()),
            _ => {}
        }
        let sum = |item: &[u8]| item.iter().map(|&pixel| f32::from(pixel)).sum::<f32>().to_le_bytes();
        let sums = pixels.chunks_exact(4).flat_map(sum).collect();
        let marks = std::iter::repeat_n(self.mark.to_le_bytes(), items).flatten().collect();
        let output = |name: &str, dtype, bytes| {
            let descriptor = Descriptor::new(dtype, Shape::new([items]).unwrap());
            Tensor { name: name.to_owned(), descriptor, bytes }
        };
        Ok(vec![output("mark", DType::I32, marks), output("sum", DType::F32, sums)])
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Imports nothing: the plugin that would is not here.
#[derive(Debug)]
struct NoImporter;

impl ModelImporter for NoImporter {
    fn import(&self, _: &str, _: &ModelFiles, _: &str) -> Result<Published, ImportError> {
        Err(ImportError::NoPlugin { looked: "nowhere".to_owned() })
    }
}
