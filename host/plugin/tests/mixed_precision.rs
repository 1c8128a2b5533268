//! Mixed-precision trainings of plugins that do not know about it: on handwritten digits they reach the accuracy of
//! single precision, resume bit-identically, and publish the same variables.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test fails by panicking, and says what it skips")]

#[path = "support/recorder.rs"]
mod recorder;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use recorder::{JobRecording, RecordingJobContext, cpu};
use saggar_device::{Backend, Meter};
use saggar_plugin::{CompiledPlugin, PluginEngine, PluginEngineConfig, TrainLimits, TrainOutcome, train};
use saggar_store::checkpoint::digest_of_variables;
use saggar_store::{Checkpoint, ColumnarDataset, DatasetStore};
use saggar_tensor::DType;

/// Maximum difference of the final accuracies: five of the 359 held-out digits. Different rounding makes the training
/// different, so it errs on other digits.
const ACCURACY_DIFFERENCE_MAX: f64 = 0.015;

/// A plugin and the digits; cannot be created if the plugin is not built.
struct MixedPrecisionFixture {
    host: PluginEngine,
    plugin: CompiledPlugin,
    digits: Arc<ColumnarDataset>,
    _home: tempfile::TempDir,
}

impl MixedPrecisionFixture {
    fn new(name: &str) -> Option<MixedPrecisionFixture> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let Ok(wasm) = std::fs::read(root.join(format!("plugins/target/saggar/{name}.wasm"))) else {
            println!("SKIP: plugins/target/saggar/{name}.wasm is missing: `make guests` builds it");
            return None;
        };
        let home = tempfile::tempdir().unwrap();
        let datasets = DatasetStore::new(home.path());
        let info = datasets.ingest("digits", &root.join("examples/digits"), 0).unwrap();
        let host = PluginEngine::new(PluginEngineConfig::default()).unwrap();
        let plugin = host.compile(&wasm).unwrap();
        Some(MixedPrecisionFixture { host, plugin, digits: Arc::new(datasets.open(&info).unwrap()), _home: home })
    }

    fn train_on(&self, device: Arc<dyn Backend>, job: RecordingJobContext) -> TrainOutcome {
        let mounts = BTreeMap::from([("/data".to_owned(), Arc::clone(&self.digits))]);
        let meter = Meter::unlimited();
        let limits = TrainLimits::default();
        let outcome = train(&self.host, &self.plugin, device, meter.clone(), mounts, Box::new(job), limits);
        assert_eq!(meter.bytes(), 0, "a training leaves nothing on the device");
        outcome.unwrap()
    }

    fn train(&self, job: RecordingJobContext) -> TrainOutcome {
        self.train_on(cpu(), job)
    }

    /// Trains to the end, in single or mixed precision.
    fn train_to_end(&self, device: Arc<dyn Backend>, parameters: &str, is_mixed: bool) -> JobRecording {
        let record = JobRecording::default();
        let job = RecordingJobContext { is_mixed, ..job(&record, parameters) };
        assert_eq!(self.train_on(device, job), TrainOutcome::Finished);
        record
    }
}

fn job(record: &JobRecording, parameters: &str) -> RecordingJobContext {
    RecordingJobContext { record: record.clone(), parameters: parameters.to_owned(), ..RecordingJobContext::default() }
}

fn series(record: &JobRecording, name: &str) -> Vec<f64> {
    record.with(|calls| calls.metrics.iter().filter(|(_, it, _)| it == name).map(|(_, _, value)| *value).collect())
}

/// Prints the epoch tables of two trainings side by side.
fn print_side_by_side(name: &str, single: &JobRecording, mixed: &JobRecording) {
    println!("{name}: epoch, then loss and accuracy and those held out, in single precision | in mixed");
    let names = ["epoch/loss", "epoch/accuracy", "validation/loss", "validation/accuracy"];
    let columns = [single, mixed].map(|record| names.map(|name| series(record, name)));
    for epoch in 0..columns[0][0].len() {
        let cells = |of: &[Vec<f64>; 4]| {
            of.iter()
                .map(|column| column.get(epoch).map_or("-".to_owned(), |it| format!("{it:.5}")))
                .collect::<Vec<_>>()
        };
        println!("{:>5}  {} | {}", epoch + 1, cells(&columns[0]).join("  "), cells(&columns[1]).join("  "));
    }
}

/// Returns the loss scale in a checkpoint and the number of skipped steps.
fn scale(checkpoint: &Checkpoint) -> Option<(f32, i32)> {
    let bytes = |name: &str| {
        let saved = checkpoint.variables.iter().find(|it| it.name == name)?;
        saved.bytes.first_chunk::<4>().copied()
    };
    let left_out = bytes("saggar/steps-left-out").map(i32::from_le_bytes)?;
    Some((f32::from_le_bytes(bytes("saggar/loss-scale")?), left_out))
}

/// Checks that the final accuracies agree and that both losses decrease.
fn check_similar_accuracy(name: &str, single: &JobRecording, mixed: &JobRecording) {
    print_side_by_side(name, single, mixed);
    let last = |record, name| *series(record, name).last().unwrap();
    let [a, b] = [single, mixed].map(|record| last(record, "validation/accuracy"));
    assert!((a - b).abs() <= ACCURACY_DIFFERENCE_MAX, "{name}: {a} in single precision, {b} in mixed");
    for record in [single, mixed] {
        let losses = series(record, "epoch/loss");
        assert!(*losses.last().unwrap() < 0.5 * losses[0], "{name}: {losses:?}");
    }
    assert_ne!(series(single, "epoch/loss"), series(mixed, "epoch/loss"), "{name}: nothing was rounded");
    let published = |record: &JobRecording| {
        record.with(|calls| {
            let kind = |it: &saggar_store::SavedVariable| (it.name.clone(), it.kind, it.descriptor.clone());
            calls.published.last().unwrap().1.iter().map(kind).collect::<Vec<_>>()
        })
    };
    assert_eq!(published(single), published(mixed), "both publish the same variables");
    assert!(published(mixed).iter().all(|(_, _, descriptor)| descriptor.dtype == DType::F32));
}

#[test]
fn mixed_precision_reaches_the_accuracy_of_single_precision() {
    for (name, parameters) in [("lenet", r#"{"epochs": 10}"#), ("mlp", r#"{"epochs": 10}"#)] {
        let Some(bench) = MixedPrecisionFixture::new(name) else { continue };
        let [single, mixed] = [false, true].map(|is_mixed| bench.train_to_end(cpu(), parameters, is_mixed));
        check_similar_accuracy(name, &single, &mixed);
        let last = *series(&mixed, "validation/accuracy").last().unwrap();
        assert!(last >= 0.95, "{name}: {last}");
        mixed.with(|calls| {
            calls
                .lines
                .iter()
                .filter(|(_, line)| line.starts_with("mixed precision"))
                .for_each(|it| println!("{it:?}"));
        });
    }
}

#[test]
fn a_gpu_reaches_the_same_accuracy_in_mixed_precision() {
    let Some(bench) = MixedPrecisionFixture::new("lenet") else { return };
    if saggar_gpu::adapters().is_empty() {
        assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1"), "no GPU adapter");
        println!("SKIP: no GPU adapter");
        return;
    }
    let trained =
        [false, true].map(|is_mixed| bench.train_to_end(saggar_gpu::open(0).unwrap(), r#"{"epochs": 3}"#, is_mixed));
    check_similar_accuracy("lenet on an adapter", &trained[0], &trained[1]);
}

#[test]
fn a_resumed_mixed_precision_training_is_bit_identical() {
    let Some(bench) = MixedPrecisionFixture::new("lenet") else { return };
    let parameters = r#"{"epochs": 2}"#;
    let whole = JobRecording::default();
    assert_eq!(
        bench.train(RecordingJobContext { is_mixed: true, every: 20, ..job(&whole, parameters) }),
        TrainOutcome::Finished
    );
    let cut = JobRecording::default();
    let mut stops = 0;
    loop {
        let stop_at = (stops + 1) * 17;
        let attempt = RecordingJobContext { stop_at, every: 5, is_mixed: true, ..job(&cut, parameters) };
        match bench.train(attempt) {
            TrainOutcome::Stopped => stops += 1,
            TrainOutcome::Finished => break,
        }
    }
    assert!(stops >= 2, "{stops} stops");
    let digest = |record: &JobRecording| record.with(|calls| digest_of_variables(&calls.published[0].1));
    assert_eq!(digest(&whole), digest(&cut));
    // Checkpoints at the same step are equal, including the scale and counts.
    let saved = |record: &JobRecording| {
        record.with(|calls| {
            let all = calls.checkpoints.iter();
            all.map(|it| (it.step, (digest_of_variables(&it.variables), scale(it)))).collect::<BTreeMap<_, _>>()
        })
    };
    let (whole, cut) = (saved(&whole), saved(&cut));
    let both: Vec<u64> = whole.keys().filter(|step| cut.contains_key(step)).copied().collect();
    assert!(!both.is_empty(), "{:?} and {:?}", whole.keys(), cut.keys());
    for step in both {
        assert_eq!(whole[&step], cut[&step], "at step {step}");
        assert!(whole[&step].1.is_some(), "the scale is saved");
    }
}

#[test]
fn a_checkpoint_of_one_precision_can_be_resumed_in_the_other() {
    let Some(bench) = MixedPrecisionFixture::new("mlp") else { return };
    let parameters = r#"{"epochs": 2}"#;
    for is_mixed in [false, true] {
        let record = JobRecording::default();
        let first = RecordingJobContext { stop_at: 10, every: 5, is_mixed, ..job(&record, parameters) };
        assert_eq!(bench.train(first), TrainOutcome::Stopped);
        let has_loss_scale = record.with(|calls| scale(calls.checkpoints.last().unwrap()).is_some());
        assert_eq!(has_loss_scale, is_mixed);
        let second = RecordingJobContext { every: 1, is_mixed: !is_mixed, ..job(&record, parameters) };
        assert_eq!(bench.train(second), TrainOutcome::Finished);
        let has_loss_scale = record.with(|calls| scale(calls.checkpoints.last().unwrap()).is_some());
        assert_eq!(has_loss_scale, !is_mixed);
    }
}

#[test]
fn mixed_precision_works_with_shards_and_skipped_updates() {
    let Some(bench) = MixedPrecisionFixture::new("lenet") else { return };
    let parameters = r#"{"epochs": 3}"#;
    let plain = bench.train_to_end(cpu(), parameters, true);
    let accuracy = |record: &JobRecording| *series(record, "validation/accuracy").last().unwrap();
    let weights = |record: &JobRecording| record.with(|calls| digest_of_variables(&calls.published[0].1));
    for (shards, skips_nonfinite) in [(1, true), (2, false), (2, true)] {
        let record = JobRecording::default();
        let job = RecordingJobContext { is_mixed: true, shards, skips_nonfinite, ..job(&record, parameters) };
        assert_eq!(bench.train(job), TrainOutcome::Finished);
        let (found, expected) = (accuracy(&record), accuracy(&plain));
        assert!((found - expected).abs() < 0.03, "{shards} shards, {skips_nonfinite}: {found}, not {expected}");
        if shards == 1 {
            assert_eq!(weights(&record), weights(&plain), "a step that mixed precision skips is skipped once");
        }
    }
}

#[test]
fn an_overflowing_step_is_logged() {
    let Some(bench) = MixedPrecisionFixture::new("mlp") else { return };
    let record = JobRecording::default();
    // With one item per batch, the gradients overflow float16 at the first scales.
    let job = RecordingJobContext { is_mixed: true, every: 10, ..job(&record, r#"{"epochs": 1, "batch": 1}"#) };
    assert_eq!(bench.train(job), TrainOutcome::Finished);
    record.with(|calls| {
        let warnings: Vec<&String> =
            calls.lines.iter().map(|(_, line)| line).filter(|line| line.starts_with("mixed precision: ")).collect();
        let (scale, left_out) = scale(calls.checkpoints.last().unwrap()).unwrap();
        assert!(left_out > 0 && scale < 65536.0, "{scale}, {left_out}");
        assert!(
            warnings[0].contains("left out, ") && warnings[0].contains("the loss scale is "),
            "after {left_out} skipped steps at {scale}"
        );
    });
}
