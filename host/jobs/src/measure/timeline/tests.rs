use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A training with simulated time: the durations of its first step, each other step and each epoch end.
#[derive(Debug)]
struct SimulatedTraining {
    first: Duration,
    step: Duration,
    epoch_end: Duration,
    /// The extra time of the first epoch's end.
    first_end: Duration,
    steps_per_epoch: u64,
    /// Steps between two reports.
    report: u64,
    /// Batches drawn for a validation at the end of each epoch; with 0, a report follows each epoch end too.
    validation: u64,
}

impl SimulatedTraining {
    fn simulate(&self, steps: u64) -> StepTimeline {
        let (mut now, mut timeline) = (Duration::ZERO, StepTimeline::default());
        for step in 1..=steps {
            now += if step == 1 { self.first } else { self.step };
            timeline.record_batch();
            let ends = step.is_multiple_of(self.steps_per_epoch);
            let reports_ends = ends && self.validation == 0;
            if step == 1 || reports_ends || step.is_multiple_of(self.report) || step == steps {
                timeline.record_step(step, now);
            }
            if ends {
                timeline.record_epoch_end();
                (0..self.validation).for_each(|_| timeline.record_batch());
                timeline.record_epoch_end();
                now += self.epoch_end + if step == self.steps_per_epoch { self.first_end } else { Duration::ZERO };
            }
        }
        timeline
    }
}

#[test]
fn parts_of_a_training_have_their_own_step_times() {
    let mut timeline = StepTimeline::default();
    assert!(timeline.part_step_seconds(4).is_empty());
    // Ten steps of 10 ms, then ten of 20 ms, reported two by two.
    let mut now = ms(500);
    timeline.record_step(1, now);
    assert!(timeline.part_step_seconds(4).is_empty());
    for step in 2..=21 {
        now += if step <= 11 { ms(10) } else { ms(20) };
        if step % 2 == 1 {
            timeline.record_step(step, now);
        }
    }
    let parts = |count| -> Vec<u64> {
        timeline.part_step_seconds(count).iter().map(|seconds| (seconds * 1e3).round() as u64).collect()
    };
    assert_eq!((parts(2), parts(1)), (vec![10, 20], vec![15]));
    assert_eq!(parts(100), [[10; 5], [20; 5]].concat());
    // Five reports in each of three parts would be more than ten: the last part is shorter.
    assert_eq!(parts(3), [10, 18, 20]);
}

fn within(estimate: Duration, real: Duration, share: f64) -> bool {
    (estimate.as_secs_f64() / real.as_secs_f64() - 1.0).abs() <= share
}

#[test]
fn an_estimate_from_a_short_prefix_is_within_ten_percent() {
    // A slow first step; long or short steps, reported one by one or by tens; epochs that end often, rarely or never.
    // The last ones report only every several steps, and draw separate batches for validation.
    for (first, step, epoch_end, steps_per_epoch, report, validation) in [
        (5_000, 8, 0, 1_000_000, 10, 0),
        (300, 40, 900, 14, 10, 0),
        (900, 2, 250, 600, 10, 0),
        (20, 100, 50, 7, 1, 0),
        (70, 1, 0, 1, 3, 0),
        (300, 10, 900, 140, 100, 20),
        (300, 10, 900, 14, 10, 3),
    ] {
        let (first, step, epoch_end) = (ms(first), ms(step), ms(epoch_end));
        let course =
            SimulatedTraining { first, step, epoch_end, first_end: epoch_end * 2, steps_per_epoch, report, validation };
        for steps in [500, 5_000, 60_000] {
            let whole = course.simulate(steps);
            let beginning = whole.shortest_sufficient_prefix(steps);
            let (estimate, real) = (beginning.estimate(steps, false).unwrap(), whole.time_at_step(steps).unwrap());
            assert!(beginning.steps() <= steps.div_ceil(2) + steps_per_epoch.min(report), "{}", beginning.steps());
            assert!(within(estimate.time, real, 0.1), "{course:?}, {steps} steps: {estimate:?}, really {real:?}");
        }
    }
}

#[test]
fn the_first_step_time_is_counted_once_in_an_estimate() {
    let course = SimulatedTraining {
        first: ms(10_000),
        step: ms(10),
        epoch_end: ms(0),
        first_end: ms(0),
        steps_per_epoch: 100,
        report: 10,
        validation: 0,
    };
    let timeline = course.simulate(500);
    assert_eq!(timeline.first_step_time(), Some(ms(10_000)));
    assert_eq!(timeline.steps_per_second().unwrap().round(), 100.0);
    assert_eq!(timeline.estimate(1_000, false).unwrap().time, ms(10_000 + 999 * 10));
}

#[test]
fn an_estimate_to_the_end_includes_the_last_epoch_end() {
    let course = SimulatedTraining {
        first: ms(10),
        step: ms(10),
        epoch_end: ms(500),
        first_end: ms(0),
        steps_per_epoch: 50,
        report: 10,
        validation: 0,
    };
    let timeline = course.simulate(120);
    let time = |to_the_end| timeline.estimate(200, to_the_end).unwrap().time;
    assert!(within(time(false), ms(2_000 + 3 * 500), 1e-6), "{:?}", time(false));
    assert!(within(time(true), ms(2_000 + 4 * 500), 1e-6), "{:?}", time(true));
}

#[test]
fn an_estimate_without_an_epoch_end_says_so() {
    let course = SimulatedTraining {
        first: ms(10),
        step: ms(10),
        epoch_end: ms(500),
        first_end: ms(0),
        steps_per_epoch: 300,
        report: 10,
        validation: 0,
    };
    assert!(course.simulate(200).estimate(400, false).unwrap().lacks_epoch_end);
    assert!(!course.simulate(310).estimate(400, false).unwrap().lacks_epoch_end);
    // Without batches there are no epochs.
    let mut timeline = StepTimeline::default();
    (1..=20).for_each(|step| timeline.record_step(step, ms(10 * step)));
    assert!(!timeline.estimate(400, false).unwrap().lacks_epoch_end);
}

#[test]
fn enough_samples_are_seconds_with_two_epoch_ends_or_half_of_the_steps() {
    let course = SimulatedTraining {
        first: ms(1_000),
        step: ms(10),
        epoch_end: ms(0),
        first_end: ms(0),
        steps_per_epoch: 190,
        report: 10,
        validation: 0,
    };
    assert!(!course.simulate(200).has_enough_samples(100_000), "two seconds");
    assert!(!course.simulate(380).has_enough_samples(100_000), "one end of an epoch");
    assert!(course.simulate(410).has_enough_samples(100_000));
    assert!(course.simulate(50).has_enough_samples(100), "half of the steps");
    let endless = SimulatedTraining { steps_per_epoch: 1_000_000, ..course };
    assert!(!endless.simulate(1_900).has_enough_samples(100_000));
    assert!(endless.simulate(2_010).has_enough_samples(100_000), "twenty seconds");
    assert!(!StepTimeline::default().has_enough_samples(1));
}

#[test]
fn an_epoch_end_between_two_reports_is_placed_by_the_batches_drawn() {
    let course = SimulatedTraining {
        first: ms(10),
        step: ms(10),
        epoch_end: ms(500),
        first_end: ms(0),
        steps_per_epoch: 140,
        report: 100,
        validation: 20,
    };
    for timeline in [course.simulate(1_000), course.simulate(1_000).shortest_sufficient_prefix(100_000)] {
        assert_eq!(timeline.steps_per_epoch(), Some(140.0), "{timeline:?}");
    }
    // More batches than steps were drawn for the steps.
    let mut timeline = StepTimeline::default();
    timeline.record_step(10, ms(10));
    (0..30).for_each(|_| timeline.record_batch());
    timeline.record_epoch_end();
    timeline.record_step(20, ms(20));
    assert_eq!(timeline.steps_per_epoch(), Some(20.0));
}

#[test]
fn the_report_that_first_reaches_enough_samples_is_recognized() {
    let mut timeline = StepTimeline::default();
    timeline.record_step(1, ms(1_000));
    assert!(!timeline.reaches_enough_samples(49, ms(1_100), 100));
    assert!(timeline.reaches_enough_samples(50, ms(1_100), 100), "half of the steps");
    assert!(timeline.reaches_enough_samples(2, ms(4_000), 100), "three seconds");
    timeline.record_step(50, ms(1_100));
    assert!(!timeline.reaches_enough_samples(51, ms(1_110), 100), "it did before");
}

#[test]
fn times_between_reports_are_interpolated() {
    let mut timeline = StepTimeline::default();
    assert_eq!(
        (timeline.time_at_step(1), timeline.estimate(5, false), timeline.steps_per_second()),
        (None, None, None)
    );
    timeline.record_step(10, ms(1_000));
    assert_eq!(timeline.estimate(20, false).unwrap().time, ms(2_000), "all that is known is what ten steps took");
    timeline.record_step(20, ms(1_400));
    timeline.record_step(20, ms(1_500));
    timeline.record_step(15, ms(1_600));
    assert_eq!(
        (timeline.steps(), timeline.time_at_step(15), timeline.time_at_step(20)),
        (20, Some(ms(1_200)), Some(ms(1_400)))
    );
    assert_eq!((timeline.time_at_step(3), timeline.time_at_step(21)), (Some(ms(1_000)), None));
}
