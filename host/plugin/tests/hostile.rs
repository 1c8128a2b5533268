//! A plugin that misbehaves as it is told: each way has its error, and the host and other plugins live on.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test fails by panicking, and says what it skips")]

#[path = "support/recorder.rs"]
mod recorder;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use recorder::{Record, Recorder, cpu};
use saggar_device::Meter;
use saggar_plugin::limits::{LOG_LINES_MAX, METRIC_SERIES_MAX};
use saggar_plugin::{Host, HostConfig, LoadedModel, ModelLimits, Outcome, Plugin, PluginError, TrainLimits, train};
use saggar_tensor::{DType, Descriptor, Shape};

const PATIENCE: Duration = Duration::from_secs(60);
const DEVICE_BYTES: u64 = 64 << 20;

struct Bench {
    host: Host,
    plugin: Plugin,
}

impl Bench {
    fn new() -> Option<Bench> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let Ok(wasm) = std::fs::read(root.join("tests/guests/target/saggar/hostile.wasm")) else {
            println!("SKIP: tests/guests/target/saggar/hostile.wasm is missing: `make guests` builds it");
            return None;
        };
        let host = Host::new(HostConfig::default()).unwrap();
        let plugin = host.compile(&wasm).unwrap();
        Some(Bench { host, plugin })
    }

    fn train(&self, behaviour: &str, limits: TrainLimits, job: Recorder) -> Result<Outcome, PluginError> {
        let parameters = format!(r#"{{"train": "{behaviour}"}}"#);
        let job = Box::new(Recorder { parameters, ..job });
        let meter = Meter::new(DEVICE_BYTES);
        let outcome = train(&self.host, &self.plugin, cpu(), meter.clone(), BTreeMap::new(), job, limits);
        assert_eq!(meter.bytes(), 0, "{behaviour} left something on the device");
        outcome
    }

    fn load(&self, load: &str, predict: &str, limits: ModelLimits) -> Result<LoadedModel, PluginError> {
        let config = format!(r#"{{"load": "{load}", "predict": "{predict}"}}"#);
        let meter = Meter::new(DEVICE_BYTES);
        LoadedModel::load(&self.host, &self.plugin, Vec::new(), &config, cpu(), meter, limits)
    }
}

fn x(items: usize) -> Vec<(String, Descriptor, Vec<u8>)> {
    let descriptor = Descriptor::new(DType::F32, Shape::new([items, 4]).unwrap());
    let bytes = (0..items * 4).flat_map(|n| (n as f32).to_le_bytes()).collect();
    vec![("x".to_owned(), descriptor, bytes)]
}

/// The reasons that a misbehaviour may end with. Which of two limits is met first is the plugin's business.
const DAMAGES: [(&str, &[&str]); 12] = [
    ("loop", &["DEADLINE"]),
    ("trap", &["TRAP"]),
    ("panic", &["TRAP"]),
    // A Rust plugin keeps large frames in its own memory, below which there is none.
    ("recurse", &["STACK_OVERFLOW", "TRAP"]),
    ("memory", &["MEMORY_LIMIT"]),
    ("handles", &["HANDLE_LIMIT"]),
    ("operands", &["HANDLE_LIMIT", "OUT_OF_MEMORY"]),
    ("variables", &["OUT_OF_MEMORY"]),
    ("graph", &["OUT_OF_MEMORY"]),
    ("shapes", &["PLUGIN_ERROR"]),
    ("rank", &["PLUGIN_ERROR"]),
    ("strings", &["PLUGIN_ERROR"]),
];

#[test]
fn trainings_fail_by_their_own_fault() {
    let Some(bench) = Bench::new() else { return };
    for (damage, reasons) in DAMAGES {
        let time = if damage == "loop" { Duration::from_millis(200) } else { PATIENCE };
        let limits = TrainLimits { time: Some(time), ..TrainLimits::default() };
        let error = bench.train(damage, limits, Recorder::default()).unwrap_err();
        assert!(reasons.contains(&error.reason()), "{damage}: {} {error}", error.reason());
    }
    let refused = |behaviour| bench.train(behaviour, TrainLimits::default(), Recorder::default()).unwrap_err().reason();
    assert_eq!(refused("error"), "PLUGIN_ERROR");
    assert_eq!(refused("huge-state"), "OUT_OF_MEMORY");
    assert_eq!(bench.train("well", TrainLimits::default(), Recorder::default()).unwrap(), Outcome::Finished);
}

/// A gradient that cannot be had is refused when it is asked for, with the operator's name and the plugin's label.
#[test]
fn an_operator_without_a_gradient_is_named_to_the_plugin() {
    let Some(bench) = Bench::new() else { return };
    match bench.train("choice", TrainLimits::default(), Recorder::default()).unwrap_err() {
        PluginError::Guest { code, message, place, .. } => {
            assert_eq!(code, "invalid-argument");
            assert!(message.starts_with("arg-max: has no gradient, and input scores reaches the loss"), "{message}");
            assert_eq!(place.as_deref(), Some("node 1, before guess"));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn floods_are_counted_and_cut() {
    let Some(bench) = Bench::new() else { return };
    // Reporting is not asking for anything: such a training counts as hung.
    let limits = TrainLimits { quiet: Duration::from_secs(2), ..TrainLimits::default() };
    let flood = |behaviour| {
        let record = Record::default();
        let job = Recorder { record: record.clone(), ..Recorder::default() };
        assert_eq!(bench.train(behaviour, limits, job).unwrap_err().reason(), "HUNG");
        record
    };
    let lines = flood("log").with(|kept| kept.lines.len() as u64);
    assert!(lines <= LOG_LINES_MAX + 2, "{lines} lines");
    let metrics = flood("metrics").with(|kept| kept.metrics.len());
    assert_eq!(metrics, METRIC_SERIES_MAX);
}

#[test]
fn a_training_that_ignores_its_stop_is_ended_with_its_state_saved() {
    let Some(bench) = Bench::new() else { return };
    let record = Record::default();
    let job = Recorder { record: record.clone(), stop_at: 0, ..Recorder::default() };
    assert_eq!(bench.train("ignore-stop", TrainLimits::default(), job).unwrap(), Outcome::Stopped);
    assert_eq!(record.with(|kept| kept.checkpoints.len()), 1);
}

#[test]
fn models_that_do_not_load_are_told_apart() {
    let Some(bench) = Bench::new() else { return };
    let limits = ModelLimits { load_time: Duration::from_secs(20), ..ModelLimits::default() };
    for (damage, reasons) in DAMAGES {
        let load_time = if damage == "loop" { Duration::from_millis(200) } else { limits.load_time };
        let error = bench.load(damage, "well", ModelLimits { load_time, ..limits }).unwrap_err();
        assert!(reasons.contains(&error.reason()), "{damage}: {} {error}", error.reason());
    }
    let refused = |load| bench.load(load, "well", limits).unwrap_err().reason();
    assert_eq!(refused("error"), "PLUGIN_ERROR");
    assert_eq!(refused("falling-batch-sizes"), "BAD_SIGNATURE");
    assert_eq!(refused("huge-signature"), "BAD_SIGNATURE");
}

#[test]
fn a_model_without_batches_is_called_once_an_item() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.load("no-batch-sizes", "well", ModelLimits::default()).unwrap();
    model.warm().unwrap();
    for items in [1, 3] {
        let outputs = model.predict(x(items), PATIENCE).unwrap();
        assert_eq!((&outputs[0].1, &outputs[0].2), (&x(items)[0].1, &x(items)[0].2), "y is x");
    }
    let model = bench.load("no-batch-sizes", "wrong-shape", ModelLimits::default()).unwrap();
    assert_eq!(model.predict(x(1), PATIENCE).unwrap_err().reason(), "BAD_OUTPUT");
}

#[test]
fn a_failing_call_costs_its_instance_and_nothing_else() {
    let Some(bench) = Bench::new() else { return };
    let limits = ModelLimits { instances_max: 2, ..ModelLimits::default() };
    for (damage, reasons) in DAMAGES {
        let model = bench.load("well", damage, limits).unwrap();
        let time = if damage == "loop" { Duration::from_millis(200) } else { PATIENCE };
        for _ in 0..3 {
            let error = model.predict(x(2), time).unwrap_err();
            assert!(reasons.contains(&error.reason()), "{damage}: {} {error}", error.reason());
            assert!(model.instances() <= 1, "{damage}");
        }
    }
    let model = bench.load("well", "well", limits).unwrap();
    let outputs = model.predict(x(7), PATIENCE).unwrap();
    assert_eq!(outputs[0].2, x(7)[0].2, "y is x, through parts of 4, 2 and 1");
}

#[test]
fn answers_are_held_to_the_signature() {
    let Some(bench) = Bench::new() else { return };
    for behaviour in ["wrong-shape", "wrong-type", "wrong-batch", "missing", "twice"] {
        let model = bench.load("well", behaviour, ModelLimits::default()).unwrap();
        let error = model.predict(x(2), PATIENCE).unwrap_err();
        assert_eq!(error.reason(), "BAD_OUTPUT", "{behaviour}: {error}");
        assert_eq!(model.instances(), 1, "the instance is as good as before");
    }
    let model = bench.load("well", "error", ModelLimits::default()).unwrap();
    assert_eq!(model.predict(x(2), PATIENCE).unwrap_err().reason(), "PLUGIN_ERROR");
    // Not a number is a number as far as a host is concerned.
    let model = bench.load("well", "nan", ModelLimits::default()).unwrap();
    assert!(model.predict(x(2), PATIENCE).is_ok());
}
