use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::measure::start_step;
use crate::spec::JobSpec;

/// Reports steps from 1 on until the measurement is complete or the training is over. Returns the steps at which the
/// device was waited for, and the measurement.
fn run_measurement(spec: JobSpec, until: MeasureUntil, of: u64) -> (Vec<u64>, TrainingMeasurement) {
    let times = Arc::new(AtomicUsize::new(0));
    let measured =
        Arc::new(Mutex::new(TrainingMeasurement { start_step: start_step(&spec), ..TrainingMeasurement::default() }));
    let trial = MeasurementConfig {
        spec,
        datasets: Default::default(),
        secrets: Default::default(),
        models: None,
        rights: None,
        until,
    };
    let counted = Arc::clone(&times);
    let wait = Box::new(move || {
        counted.fetch_add(1, Ordering::AcqRel);
    });
    let go_on = Box::new(|_, _| true);
    let mut measuring = MeasuringContext::new(trial, wait, Meter::unlimited(), Arc::clone(&measured), go_on);
    let mut waited = Vec::new();
    for step in 1..=of {
        let before = times.load(Ordering::Acquire);
        measuring.progress(step, of);
        if times.load(Ordering::Acquire) > before {
            waited.push(step);
        }
        if measuring.stop_requested(step) {
            break;
        }
    }
    let measured = measuring.lock_measurement().clone();
    (waited, measured)
}

fn spec() -> JobSpec {
    JobSpec::new("p", "0".repeat(64))
}

#[test]
fn the_device_is_synchronized_only_where_a_measurement_begins_and_ends() {
    // Half of the steps suffice; a slow machine needs fewer.
    let (waited, measured) = run_measurement(spec(), MeasureUntil::EnoughSamples, 10);
    assert_eq!(waited, [1, measured.timeline.steps()]);
    assert_eq!(measured.total_steps(), Some(10));
    let (waited, measured) = run_measurement(spec(), MeasureUntil::Steps(8), 100);
    assert!(waited.len() == 3 && waited[0] == 1 && waited[1] <= 4 && waited[2] == 8, "{waited:?}");
    assert_eq!(measured.timeline.steps(), 8);
    let (waited, measured) = run_measurement(spec(), MeasureUntil::Steps(100), 6);
    assert!(waited.len() == 3 && waited[2] == 6, "a training ends with its last step: {waited:?}");
    assert_eq!(measured.total_steps(), Some(6));
}

#[test]
fn a_resumed_training_counts_only_the_steps_after_its_checkpoint() {
    let spec = JobSpec { init_from: Some("job:a-1/checkpoint@4000".parse().unwrap()), ..spec() };
    let (_, measured) = run_measurement(spec.clone(), MeasureUntil::EnoughSamples, 5000);
    assert_eq!((measured.steps_to_do, measured.total_steps()), (Some(5000), Some(1000)));
    assert!(measured.timeline.steps() <= 500, "half of what is left suffices: {}", measured.timeline.steps());
    let (_, measured) = run_measurement(spec, MeasureUntil::EnoughSamples, 3000);
    assert_eq!(measured.total_steps(), Some(0), "it is over already");
    let spec = JobSpec { init_from: Some("model:digits@1".parse().unwrap()), ..self::spec() };
    assert_eq!(start_step(&spec), 0);
}
