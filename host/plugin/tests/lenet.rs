//! End-to-end test of the reference plugin on the CPU: it trains on handwritten digits, is stopped and resumed, and
//! predicts.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test fails by panicking, and says what it skips")]

#[path = "support/recorder.rs"]
mod recorder;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use recorder::{JobRecording, RecordingJobContext, cpu};
use saggar_device::Meter;
use saggar_plugin::{
    CompiledPlugin, LoadedModel, ModelLimits, ModelParts, NamedTensor, PluginEngine, PluginEngineConfig,
    PredictionOptions, TrainLimits, TrainOutcome, train,
};
use saggar_store::checkpoint::digest_of_variables;
use saggar_store::{ColumnarDataset, DatasetStore, VariableKind};
use saggar_tensor::{DType, Descriptor, Shape};

const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The plugin and the digits; cannot be created if the plugin is not built.
struct LenetFixture {
    host: PluginEngine,
    plugin: CompiledPlugin,
    digits: Arc<ColumnarDataset>,
    _home: tempfile::TempDir,
}

impl LenetFixture {
    fn new() -> Option<LenetFixture> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let Ok(wasm) = std::fs::read(root.join("plugins/target/saggar/lenet.wasm")) else {
            println!("SKIP: plugins/target/saggar/lenet.wasm is missing: `make guests` builds it");
            return None;
        };
        let home = tempfile::tempdir().unwrap();
        let datasets = DatasetStore::new(home.path());
        let info = datasets.ingest("digits", &root.join("examples/digits"), 0).unwrap();
        let host = PluginEngine::new(PluginEngineConfig::default()).unwrap();
        let plugin = host.compile(&wasm).unwrap();
        Some(LenetFixture { host, plugin, digits: Arc::new(datasets.open(&info).unwrap()), _home: home })
    }

    fn train(&self, job: RecordingJobContext) -> TrainOutcome {
        let mounts = BTreeMap::from([("/data".to_owned(), Arc::clone(&self.digits))]);
        let meter = Meter::unlimited();
        let outcome =
            train(&self.host, &self.plugin, cpu(), meter.clone(), mounts, Box::new(job), TrainLimits::default());
        assert_eq!(meter.bytes(), 0, "a training leaves nothing on the device");
        outcome.unwrap()
    }

    fn load(&self, record: &JobRecording, limits: ModelLimits) -> LoadedModel {
        let (_, variables, config) = record.with(|calls| calls.published.last().cloned().unwrap());
        let parts = ModelParts {
            plugin: self.plugin.clone(),
            variables,
            config,
            inputs: Default::default(),
            weights_meter: Meter::unlimited(),
            meter: Meter::unlimited(),
            limits,
            on_instance_start: None,
        };
        LoadedModel::load(&self.host, parts, cpu()).unwrap()
    }

    /// Returns the first images of the test split, and their labels.
    fn test_images(&self, count: usize) -> (Vec<u8>, Vec<u8>) {
        let items: Vec<u64> = self.digits.items(Some("test")).unwrap().take(count).collect();
        (self.digits.read("image", &items).unwrap(), self.digits.read("label", &items).unwrap())
    }
}

fn job(record: &JobRecording, parameters: &str) -> RecordingJobContext {
    RecordingJobContext { record: record.clone(), parameters: parameters.to_owned(), ..RecordingJobContext::default() }
}

fn images(count: usize, bytes: &[u8]) -> Vec<NamedTensor> {
    let descriptor = Descriptor::new(DType::U8, Shape::new([count, 8, 8]).unwrap());
    vec![NamedTensor { name: "image".to_owned(), descriptor, bytes: bytes[..count * 64].to_vec() }]
}

fn labels(outputs: &[NamedTensor]) -> Vec<u8> {
    let label = outputs.iter().find(|output| output.name == "label").unwrap();
    assert_eq!(label.descriptor.dtype, DType::I32);
    label.bytes.chunks_exact(4).map(|bytes| bytes[0]).collect()
}

#[test]
fn lenet_learns_digits_and_predicts_them() {
    let Some(bench) = LenetFixture::new() else { return };
    let record = JobRecording::default();
    let began = Instant::now();
    assert_eq!(bench.train(job(&record, r#"{"epochs": 10}"#)), TrainOutcome::Finished);
    println!("trained in {:.2} s", began.elapsed().as_secs_f64());
    let losses: Vec<f64> = record
        .with(|calls| calls.metrics.iter().filter(|(_, name, _)| name == "loss").map(|(_, _, value)| *value).collect());
    assert!(losses.last() < losses.first(), "{losses:?}");
    record.with(|calls| {
        assert!(calls.samples >= 10 * 1400, "{} samples", calls.samples);
        let (model, variables, _) = &calls.published[0];
        assert_eq!(model, "digits");
        assert!(variables.iter().all(|variable| variable.kind != VariableKind::Training));
        assert_eq!(variables.len(), 8, "four layers, each with weights and biases");
    });

    let model = bench.load(&record, ModelLimits::default());
    assert_eq!(model.signature().outputs[0].classes.len(), 10);
    model.warm_up(CALL_TIMEOUT).unwrap();
    // An odd number, so that the batch is split and padded.
    let count = 355;
    let (pixels, truth) = bench.test_images(count);
    let outputs = model.predict(images(count, &pixels), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap();
    let found = labels(&outputs);
    let right = found.iter().zip(&truth).filter(|(a, b)| a == b).count();
    println!("{right} of {count} right");
    // The project's minimum accuracy of this plugin on these digits.
    assert!(right as f64 >= 0.95 * count as f64, "{right} of {count}");
    assert_eq!(outputs[2].descriptor.shape.dims(), [count, 10]);

    // A model whose larger programs would exceed their memory limit keeps the smallest batch size.
    let small = bench.load(&record, ModelLimits { batch_bytes_max: 1, ..ModelLimits::default() });
    small.warm_up(CALL_TIMEOUT).unwrap();
    assert_eq!(
        labels(&small.predict(images(40, &pixels), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap()),
        found[..40]
    );
    assert_eq!(small.batch_sizes_for(1), [1]);

    // Each image alone gets the result of the batch: padding and other items have no influence.
    for at in 0..20 {
        let alone =
            model.predict(images(1, &pixels[at * 64..]), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap();
        assert_eq!(labels(&alone), found[at..=at]);
    }
    check_concurrent_predictions(&model, &pixels, &found);
    let (calls, began) = (500, Instant::now());
    for _ in 0..calls {
        model.predict(images(1, &pixels), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap();
    }
    println!("{:.0} us a prediction of one image", began.elapsed().as_secs_f64() * 1e6 / f64::from(calls));
}

/// With more threads than instances, every request gets the result for its image.
fn check_concurrent_predictions(model: &LoadedModel, pixels: &[u8], found: &[u8]) {
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for round in 0..10 {
                    let at = thread * 10 + round;
                    let outputs = model
                        .predict(images(3, &pixels[at * 64..]), &PredictionOptions::with_deadline(CALL_TIMEOUT))
                        .unwrap();
                    assert_eq!(labels(&outputs), found[at..at + 3]);
                }
            });
        }
    });
    assert!(model.instance_count() <= ModelLimits::default().instances_max);
}

#[test]
fn a_resumed_training_is_bit_identical() {
    let Some(bench) = LenetFixture::new() else { return };
    let parameters = r#"{"epochs": 2}"#;
    let whole = JobRecording::default();
    assert_eq!(bench.train(job(&whole, parameters)), TrainOutcome::Finished);
    let cut = JobRecording::default();
    let mut stops = 0;
    loop {
        let stop_at = (stops + 1) * 17;
        let attempt = RecordingJobContext { stop_at, every: 5, ..job(&cut, parameters) };
        match bench.train(attempt) {
            TrainOutcome::Stopped => stops += 1,
            TrainOutcome::Finished => break,
        }
        let last = cut.with(|calls| calls.checkpoints.last().unwrap().step);
        assert!(last >= stop_at, "the last checkpoint is at step {last}, the stop was at {stop_at}");
    }
    assert!(stops >= 3, "{stops} stops");
    let digest = |record: &JobRecording| record.with(|calls| digest_of_variables(&calls.published[0].1));
    assert_eq!(digest(&whole), digest(&cut));
}

#[test]
fn requests_that_break_the_signature_are_refused_before_the_plugin_runs() {
    let Some(bench) = LenetFixture::new() else { return };
    let record = JobRecording::default();
    bench.train(job(&record, r#"{"epochs": 1}"#));
    let model = bench.load(&record, ModelLimits { instances_max: 1, ..ModelLimits::default() });
    let (pixels, _) = bench.test_images(4);
    let mut wrong = images(4, &pixels);
    wrong[0].descriptor = Descriptor::new(DType::I8, wrong[0].descriptor.shape.clone());
    assert_eq!(
        model.predict(wrong, &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap_err().reason().as_str(),
        "BAD_INPUT"
    );
    assert_eq!(
        model.predict(Vec::new(), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap_err().reason().as_str(),
        "BAD_INPUT"
    );
    // A request whose deadline has passed before the call begins uses no instance.
    let late = model.predict(images(4, &pixels), &PredictionOptions::with_deadline(Duration::ZERO)).unwrap_err();
    assert_eq!(late.reason().as_str(), "DEADLINE", "{late}");
    assert_eq!(model.instance_count(), 1);
    assert!(model.predict(images(4, &pixels), &PredictionOptions::with_deadline(CALL_TIMEOUT)).is_ok());
}
