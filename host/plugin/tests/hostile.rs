//! A plugin that misbehaves in a requested way: each way has its error, and the host and other plugins survive.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test fails by panicking, and says what it skips")]

#[path = "support/recorder.rs"]
mod recorder;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use recorder::{JobRecording, RecordingJobContext, cpu};
use saggar_device::Meter;
use saggar_plugin::limits::{LOG_LINES_MAX, METRIC_SERIES_MAX, PIECES_MAX};
use saggar_plugin::{
    CancelToken, CompiledPlugin, LoadedModel, ModelLimits, ModelParts, NamedTensor, OutputPiece, PieceSink,
    PluginEngine, PluginEngineConfig, PluginError, PredictionOptions, SendPieceError, TrainLimits, TrainOutcome, train,
};
use saggar_tensor::{DType, Descriptor, Shape};

const CALL_TIMEOUT: Duration = Duration::from_secs(60);
const DEVICE_BYTES: u64 = 64 << 20;

struct HostilePluginFixture {
    host: PluginEngine,
    plugin: CompiledPlugin,
}

impl HostilePluginFixture {
    fn new() -> Option<HostilePluginFixture> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let Ok(wasm) = std::fs::read(root.join("tests/guests/target/saggar/hostile.wasm")) else {
            println!("SKIP: tests/guests/target/saggar/hostile.wasm is missing: `make guests` builds it");
            return None;
        };
        let host = PluginEngine::new(PluginEngineConfig::default()).unwrap();
        let plugin = host.compile(&wasm).unwrap();
        Some(HostilePluginFixture { host, plugin })
    }

    fn train(
        &self,
        behaviour: &str,
        limits: TrainLimits,
        job: RecordingJobContext,
    ) -> Result<TrainOutcome, PluginError> {
        let parameters = format!(r#"{{"train": "{behaviour}"}}"#);
        let job = Box::new(RecordingJobContext { parameters, ..job });
        let meter = Meter::new(DEVICE_BYTES);
        let outcome = train(&self.host, &self.plugin, cpu(), meter.clone(), BTreeMap::new(), job, limits);
        assert_eq!(meter.bytes(), 0, "{behaviour} left device memory allocated");
        outcome
    }

    fn load(&self, load: &str, predict: &str, limits: ModelLimits) -> Result<LoadedModel, PluginError> {
        let config = format!(r#"{{"load": "{load}", "predict": "{predict}"}}"#);
        let parts = ModelParts {
            plugin: self.plugin.clone(),
            variables: Vec::new(),
            config,
            inputs: Default::default(),
            weights_meter: Meter::unlimited(),
            meter: Meter::new(DEVICE_BYTES),
            limits,
            on_instance_start: None,
        };
        LoadedModel::load(&self.host, parts, cpu())
    }
}

fn x(items: usize) -> Vec<NamedTensor> {
    let descriptor = Descriptor::new(DType::F32, Shape::new([items, 4]).unwrap());
    let bytes = (0..items * 4).flat_map(|n| (n as f32).to_le_bytes()).collect();
    vec![NamedTensor { name: "x".to_owned(), descriptor, bytes }]
}

/// The possible reasons of each failure. The plugin decides which of two limits it reaches first.
const TRAINING_FAULTS: [(&str, &[&str]); 14] = [
    ("loop", &["DEADLINE"]),
    ("trap", &["TRAP"]),
    ("drop", &["TRAP"]),
    ("panic", &["TRAP"]),
    // A Rust plugin keeps large frames in its linear memory; a stack overflow there is an access below address 0.
    ("recurse", &["STACK_OVERFLOW", "TRAP"]),
    ("memory", &["MEMORY_LIMIT"]),
    ("handles", &["HANDLE_LIMIT"]),
    ("operands", &["HANDLE_LIMIT", "OUT_OF_MEMORY"]),
    ("variables", &["OUT_OF_MEMORY"]),
    ("graph", &["OUT_OF_MEMORY"]),
    ("enormous", &["OUT_OF_MEMORY"]),
    ("shapes", &["PLUGIN_ERROR"]),
    ("rank", &["PLUGIN_ERROR"]),
    ("strings", &["PLUGIN_ERROR"]),
];

#[test]
fn each_misbehaving_training_fails_with_its_own_reason() {
    let Some(bench) = HostilePluginFixture::new() else { return };
    for (damage, reasons) in TRAINING_FAULTS {
        let time = if damage == "loop" { Duration::from_millis(200) } else { CALL_TIMEOUT };
        let limits = TrainLimits { time: Some(time), ..TrainLimits::default() };
        let error = bench.train(damage, limits, RecordingJobContext::default()).unwrap_err();
        assert!(reasons.contains(&error.reason().as_str()), "{damage}: {} {error}", error.reason().as_str());
    }
    let refused = |behaviour| {
        bench.train(behaviour, TrainLimits::default(), RecordingJobContext::default()).unwrap_err().reason().as_str()
    };
    assert_eq!(refused("error"), "PLUGIN_ERROR");
    assert_eq!(refused("huge-state"), "OUT_OF_MEMORY");
    for (behaviour, expected) in [
        ("emit", "pieces are sent during `predict` alone"),
        ("column", "field x: 15 bytes, and 2 items take 16 (invalid-argument, at hostile/src/train.rs:"),
        (
            "phase",
            "a phase's name is letters, digits, `.`, `_` and `-`, not beginning with `.` (invalid-argument, at ../post, \
             hostile/src/train.rs:",
        ),
    ] {
        let error =
            bench.train(behaviour, TrainLimits::default(), RecordingJobContext::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{behaviour}: {error}");
    }
    assert_eq!(
        bench.train("well", TrainLimits::default(), RecordingJobContext::default()).unwrap(),
        TrainOutcome::Finished
    );
}

/// A missing gradient is refused when it is requested, with the operator's name and the plugin's label.
#[test]
fn a_missing_gradient_error_names_the_operator_and_its_label() {
    let Some(bench) = HostilePluginFixture::new() else { return };
    match bench.train("choice", TrainLimits::default(), RecordingJobContext::default()).unwrap_err() {
        PluginError::Guest { code, message, place, .. } => {
            assert_eq!(code.as_str(), "invalid-argument");
            assert!(message.starts_with("arg-max: has no gradient, and input scores reaches the loss"), "{message}");
            let place = place.unwrap();
            assert!(place.starts_with("node 1, before guess, hostile/src/damage.rs:"), "{place}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn floods_of_log_lines_and_metrics_are_truncated() {
    let Some(bench) = HostilePluginFixture::new() else { return };
    // Logging and reporting metrics do not reset the watchdog, so this training counts as hung.
    let limits = TrainLimits { watchdog_timeout: Duration::from_secs(2), ..TrainLimits::default() };
    let flood = |behaviour| {
        let record = JobRecording::default();
        let job = RecordingJobContext { record: record.clone(), ..RecordingJobContext::default() };
        assert_eq!(bench.train(behaviour, limits, job).unwrap_err().reason().as_str(), "HUNG");
        record
    };
    let lines = flood("log").with(|calls| calls.lines.len() as u64);
    assert!(lines <= LOG_LINES_MAX + 2, "{lines} lines");
    let metrics = flood("metrics").with(|calls| calls.metrics.len());
    assert_eq!(metrics, METRIC_SERIES_MAX);
}

#[test]
fn a_training_that_ignores_its_stop_is_ended_with_its_state_saved() {
    let Some(bench) = HostilePluginFixture::new() else { return };
    let record = JobRecording::default();
    let job = RecordingJobContext { record: record.clone(), stop_at: 0, ..RecordingJobContext::default() };
    assert_eq!(bench.train("ignore-stop", TrainLimits::default(), job).unwrap(), TrainOutcome::Stopped);
    assert_eq!(record.with(|calls| calls.checkpoints.len()), 1);
}

#[test]
fn each_model_load_failure_has_its_own_reason() {
    let Some(bench) = HostilePluginFixture::new() else { return };
    let limits = ModelLimits { load_time: Duration::from_secs(20), ..ModelLimits::default() };
    for (damage, reasons) in TRAINING_FAULTS {
        let load_time = if damage == "loop" { Duration::from_millis(200) } else { limits.load_time };
        let error = bench.load(damage, "well", ModelLimits { load_time, ..limits }).unwrap_err();
        assert!(reasons.contains(&error.reason().as_str()), "{damage}: {} {error}", error.reason().as_str());
    }
    let refused = |load| bench.load(load, "well", limits).unwrap_err().reason().as_str();
    assert_eq!(refused("error"), "PLUGIN_ERROR");
    assert_eq!(refused("falling-batch-sizes"), "BAD_SIGNATURE");
    assert_eq!(refused("huge-signature"), "BAD_SIGNATURE");
    let error = bench.load("million-outputs", "well", limits).unwrap_err();
    assert_eq!(error.reason().as_str(), "BAD_SIGNATURE", "{error}");
    assert!(error.to_string().contains("it has 1000000 outputs, not 1 to 256"), "{error}");
    let error = bench.load("emit", "well", limits).unwrap_err().to_string();
    assert!(error.contains("pieces are sent during `predict` alone"), "{error}");
}

#[test]
fn a_model_without_batch_sizes_is_called_once_per_item() {
    let Some(bench) = HostilePluginFixture::new() else { return };
    let model = bench.load("no-batch-sizes", "well", ModelLimits::default()).unwrap();
    model.warm_up(CALL_TIMEOUT).unwrap();
    for items in [1, 3] {
        let outputs = model.predict(x(items), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap();
        let (y, x) = (&outputs[0], &x(items)[0]);
        assert_eq!((&y.descriptor, &y.bytes), (&x.descriptor, &x.bytes), "y is x");
    }
    let model = bench.load("no-batch-sizes", "wrong-shape", ModelLimits::default()).unwrap();
    assert_eq!(
        model.predict(x(1), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap_err().reason().as_str(),
        "BAD_OUTPUT"
    );
}

#[test]
fn a_failing_call_drops_only_its_instance() {
    let Some(bench) = HostilePluginFixture::new() else { return };
    let limits = ModelLimits { instances_max: 2, ..ModelLimits::default() };
    for (damage, reasons) in TRAINING_FAULTS {
        let model = bench.load("well", damage, limits).unwrap();
        let time = if damage == "loop" { Duration::from_millis(200) } else { CALL_TIMEOUT };
        for _ in 0..3 {
            let error = model.predict(x(1), &PredictionOptions::with_deadline(time)).unwrap_err();
            assert!(reasons.contains(&error.reason().as_str()), "{damage}: {} {error}", error.reason().as_str());
            assert!(model.instance_count() <= 1, "{damage}");
        }
    }
    let model = bench.load("well", "well", limits).unwrap();
    let outputs = model.predict(x(7), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap();
    assert_eq!(outputs[0].bytes, x(7)[0].bytes, "y is x, through parts");
}

#[test]
fn larger_batch_sizes_are_built_when_requests_fill_them() {
    let Some(bench) = HostilePluginFixture::new() else { return };
    let limits = ModelLimits { instances_max: 1, ..ModelLimits::default() };
    let model = bench.load("well", "well", limits).unwrap();
    model.warm_up(CALL_TIMEOUT).unwrap();
    assert_eq!(model.batch_sizes_for(1), [1], "one item fills the smallest");
    let built = |model: &LoadedModel, items: usize| {
        let until = Instant::now() + CALL_TIMEOUT;
        while !model.batch_sizes_for(items).contains(&items) {
            assert!(Instant::now() < until, "a size for {items} items is never built");
            std::thread::yield_now();
        }
        model.batch_sizes_for(1)
    };
    assert_eq!(
        model.predict(x(4), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap()[0].bytes,
        x(4)[0].bytes,
        "y is x, item by item"
    );
    assert_eq!(built(&model, 4), [1, 4]);
    assert_eq!(built(&model, 2), [1, 2, 4]);
    assert_eq!(
        model.predict(x(7), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap()[0].bytes,
        x(7)[0].bytes,
        "y is x, through 4, 2 and 1"
    );
    assert_eq!(model.instance_count(), 1, "the instance that built them is dropped: the pool is full");

    // A size that fails to build is not used: the other sizes serve.
    let model = bench.load("well", "wrong-batch", limits).unwrap();
    let until = Instant::now() + CALL_TIMEOUT;
    assert_eq!(model.batch_sizes_for(4), [1]);
    while model.is_building_size() {
        assert!(Instant::now() < until, "building never ends");
        std::thread::yield_now();
    }
    assert_eq!(model.batch_sizes_for(4), [1]);
    assert!(!model.is_building_size(), "it is not tried again");
}

/// No instruction of the plugin runs in these cases, so the host itself must check the deadline.
#[test]
fn host_work_for_a_plugin_stops_at_the_call_deadline() {
    let Some(bench) = HostilePluginFixture::new() else { return };
    let late = Duration::from_secs(20);
    for slow in ["slow-graphs", "slow-dispatches"] {
        let began = Instant::now();
        let limits = ModelLimits { load_time: Duration::from_secs(1), ..ModelLimits::default() };
        let error = bench.load(slow, "well", limits).unwrap_err();
        assert_eq!(error.reason().as_str(), "DEADLINE", "{slow}: {error}");
        assert!(began.elapsed() < late, "{slow}: loading ended after {:?}", began.elapsed());

        let model = bench.load("well", slow, ModelLimits::default()).unwrap();
        let began = Instant::now();
        let error = model.predict(x(1), &PredictionOptions::with_deadline(Duration::from_secs(1))).unwrap_err();
        assert_eq!(error.reason().as_str(), "DEADLINE", "{slow}: {error}");
        assert!(began.elapsed() < late, "{slow}: predicting ended after {:?}", began.elapsed());

        let began = Instant::now();
        let cancel = CancelToken::new(move || began.elapsed() > Duration::from_millis(500));
        let terms = PredictionOptions { cancel: Some(cancel), ..PredictionOptions::with_deadline(CALL_TIMEOUT) };
        let error = model.predict(x(1), &terms).unwrap_err();
        // Between two dispatches the plugin gets the error `cancelled` and returns.
        assert!(matches!(error.reason().as_str(), "CANCELLED" | "PLUGIN_ERROR"), "{slow}: {error}");
        assert!(began.elapsed() < late, "{slow}: a cancelled prediction ended after {:?}", began.elapsed());

        let began = Instant::now();
        let limits = TrainLimits { time: Some(Duration::from_secs(1)), ..TrainLimits::default() };
        let error = bench.train(slow, limits, RecordingJobContext::default()).unwrap_err();
        assert_eq!(error.reason().as_str(), "DEADLINE", "{slow}: {error}");
        assert!(began.elapsed() < late, "{slow}: a training ended after {:?}", began.elapsed());
    }
}

#[test]
fn a_prediction_that_requires_an_idle_instance_does_not_wait() {
    let Some(bench) = HostilePluginFixture::new() else { return };
    let model = bench.load("well", "fragile", ModelLimits::default()).unwrap();
    let prompt = PredictionOptions { requires_idle_instance: true, ..PredictionOptions::with_deadline(CALL_TIMEOUT) };
    assert!(model.predict(x(1), &prompt).is_ok(), "the first instance is loaded");
    let mut broken = x(1);
    broken[0].bytes = [-1.0f32, 0.0, 0.0, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(model.predict(broken, &prompt).unwrap_err().reason().as_str(), "TRAP");
    assert_eq!(
        model.predict(x(1), &prompt).unwrap_err().reason().as_str(),
        "DEADLINE",
        "another one would have to be loaded"
    );
    assert!(model.predict(x(1), &PredictionOptions::with_deadline(CALL_TIMEOUT)).is_ok());
}

#[test]
fn outputs_that_break_the_signature_are_refused() {
    let Some(bench) = HostilePluginFixture::new() else { return };
    for behaviour in ["wrong-shape", "wrong-type", "wrong-batch", "missing", "twice"] {
        let model = bench.load("well", behaviour, ModelLimits::default()).unwrap();
        let error = model.predict(x(1), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap_err();
        assert_eq!(error.reason().as_str(), "BAD_OUTPUT", "{behaviour}: {error}");
        assert_eq!(model.instance_count(), 1, "the instance can be reused");
    }
    let predict = |behaviour| {
        let model = bench.load("well", behaviour, ModelLimits::default()).unwrap();
        let error = model.predict(x(1), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap_err();
        (error.reason().as_str(), error.to_string(), model.instance_count())
    };
    let (reason, says, instances) = predict("many-outputs");
    assert_eq!((reason, instances), ("BAD_OUTPUT", 1), "{says}");
    assert_eq!(says, "output y0: the signature promises 1 outputs, and the plugin gave 40000 outputs");
    // Creating them fails, and the instance that holds them is dropped.
    let (reason, says, instances) = predict("million-outputs");
    assert_eq!((reason, instances), ("HANDLE_LIMIT", 0), "{says}");
    assert!(says.contains("the plugin holds 50000 handles, which is the limit (predict)"), "{says}");
    let (reason, says, instances) = predict("long-names");
    assert_eq!((reason, instances), ("BAD_OUTPUT", 1));
    assert!(says.len() < 1000, "a message of {} bytes", says.len());
    let (reason, says, instances) = predict("long-error");
    assert_eq!((reason, instances), ("PLUGIN_ERROR", 1));
    assert!(says.len() < 20_000, "a message of {} bytes", says.len());
    assert_eq!(predict("error").0, "PLUGIN_ERROR");
    // NaN is a valid output for the host.
    let model = bench.load("well", "nan", ModelLimits::default()).unwrap();
    assert!(model.predict(x(1), &PredictionOptions::with_deadline(CALL_TIMEOUT)).is_ok());
}

/// A sink that accepts `accepted_max` pieces and then returns an error.
#[derive(Debug)]
struct LimitedPieceSink {
    piece_count: AtomicUsize,
    accepted_max: usize,
    then: SendPieceError,
}

impl PieceSink for LimitedPieceSink {
    fn send_piece(&self, _: OutputPiece, _: Instant) -> Result<(), SendPieceError> {
        if self.piece_count.fetch_add(1, Ordering::Relaxed) < self.accepted_max { Ok(()) } else { Err(self.then) }
    }

    fn is_gone(&self) -> bool {
        self.then == SendPieceError::Gone && self.piece_count.load(Ordering::Relaxed) > self.accepted_max
    }
}

#[test]
fn invalid_output_pieces_are_refused_and_valid_ones_are_counted() {
    let Some(bench) = HostilePluginFixture::new() else { return };
    let send = |behaviour, accepted_max, then| {
        let model = bench.load("well", behaviour, ModelLimits::default()).unwrap();
        let listener = Arc::new(LimitedPieceSink { piece_count: AtomicUsize::new(0), accepted_max, then });
        let sink: Arc<dyn PieceSink> = Arc::<LimitedPieceSink>::clone(&listener);
        let error = model
            .predict(x(1), &PredictionOptions { sink: Some(sink), ..PredictionOptions::with_deadline(CALL_TIMEOUT) })
            .unwrap_err();
        let without = model.predict(x(1), &PredictionOptions::with_deadline(CALL_TIMEOUT)).unwrap_err();
        let instances = model.instance_count();
        assert_eq!(Arc::strong_count(&listener), 1, "{behaviour}: the instance dropped the sink");
        (error, without.to_string(), listener.piece_count.load(Ordering::Relaxed), instances)
    };
    for (behaviour, says) in [
        ("emit-unknown", "the model has no such output: there are y (invalid-argument, at x, hostile/src/predict.rs:"),
        ("emit-type", "the output is float32, not int8 (invalid-argument, at y, hostile/src/predict.rs:"),
        ("emit-half", "6 bytes are no whole number of float32"),
        ("emit-item", "there is no item 1 in a batch of 1 (invalid-argument, at hostile/src/predict.rs:"),
        (
            "emit-large",
            "y: a piece has at most 16384 bytes, not 16388; send it in several (out-of-memory, at hostile/src/predict.rs:",
        ),
    ] {
        let (error, without, piece_count, instances) = send(behaviour, usize::MAX, SendPieceError::Gone);
        assert!(error.to_string().contains(says), "{behaviour}: {error}");
        assert_eq!(
            (error.to_string(), piece_count, instances),
            (without, 0, 1),
            "{behaviour}: refused with a sink or without"
        );
    }
    let (error, without, piece_count, instances) = send("emit-million", usize::MAX, SendPieceError::Gone);
    assert!(error.to_string().contains("a prediction sends at most 65536 pieces"), "{error}");
    assert_eq!((error.to_string(), piece_count, instances), (without, PIECES_MAX, 1));

    let (error, _, piece_count, instances) = send("emit-million", 10, SendPieceError::Gone);
    // A cancelled prediction is not a failure of the plugin.
    assert!(matches!(error, PluginError::Cancelled { .. }), "{error}");
    assert_eq!((piece_count, instances), (11, 1), "after one error it returned, and its instance can be reused");
    let (error, _, piece_count, _) = send("emit-million", 10, SendPieceError::Late);
    assert_eq!((error.reason().as_str(), piece_count), ("DEADLINE", 11));
}
