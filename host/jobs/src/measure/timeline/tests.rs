use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A training by a clock of its own: what its first step, each other step and the end of each epoch take.
#[derive(Debug)]
struct Course {
    first: Duration,
    step: Duration,
    epoch_end: Duration,
    /// What the first epoch's end takes more than the others'.
    first_end: Duration,
    steps_per_epoch: u64,
    /// Steps between two reports.
    report: u64,
    /// Batches that are drawn for a validation at the end of each epoch; none has reports at its end, too.
    validation: u64,
}

impl Course {
    fn run(&self, steps: u64) -> Timeline {
        let (mut now, mut timeline) = (Duration::ZERO, Timeline::default());
        for step in 1..=steps {
            now += if step == 1 { self.first } else { self.step };
            timeline.drawn();
            let ends = step.is_multiple_of(self.steps_per_epoch);
            let reports_ends = ends && self.validation == 0;
            if step == 1 || reports_ends || step.is_multiple_of(self.report) || step == steps {
                timeline.step(step, now);
            }
            if ends {
                timeline.epoch_ended();
                (0..self.validation).for_each(|_| timeline.drawn());
                timeline.epoch_ended();
                now += self.epoch_end + if step == self.steps_per_epoch { self.first_end } else { Duration::ZERO };
            }
        }
        timeline
    }
}

fn within(estimate: Duration, real: Duration, share: f64) -> bool {
    (estimate.as_secs_f64() / real.as_secs_f64() - 1.0).abs() <= share
}

#[test]
fn fh_38_the_estimate_of_a_short_beginning_is_within_a_tenth_of_the_whole() {
    // A slow first step; steps that are long or short, reported one by one or by tens; epochs that end often, seldom, never.
    // The last ones report every so many steps alone, and validate with batches of their own.
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
        let course = Course { first, step, epoch_end, first_end: epoch_end * 2, steps_per_epoch, report, validation };
        for steps in [500, 5_000, 60_000] {
            let whole = course.run(steps);
            let beginning = whole.beginning(steps);
            let (estimate, real) = (beginning.estimate(steps, false).unwrap(), whole.time_of(steps).unwrap());
            assert!(beginning.steps() <= steps.div_ceil(2) + steps_per_epoch.min(report), "{}", beginning.steps());
            assert!(within(estimate.time, real, 0.1), "{course:?}, {steps} steps: {estimate:?}, really {real:?}");
        }
    }
}

#[test]
fn the_first_step_counts_once() {
    let course = Course {
        first: ms(10_000),
        step: ms(10),
        epoch_end: ms(0),
        first_end: ms(0),
        steps_per_epoch: 100,
        report: 10,
        validation: 0,
    };
    let timeline = course.run(500);
    assert_eq!(timeline.first_step(), Some(ms(10_000)));
    assert_eq!(timeline.steps_per_second().unwrap().round(), 100.0);
    assert_eq!(timeline.estimate(1_000, false).unwrap().time, ms(10_000 + 999 * 10));
}

#[test]
fn a_whole_training_ends_with_its_last_epoch() {
    let course = Course {
        first: ms(10),
        step: ms(10),
        epoch_end: ms(500),
        first_end: ms(0),
        steps_per_epoch: 50,
        report: 10,
        validation: 0,
    };
    let timeline = course.run(120);
    let time = |to_the_end| timeline.estimate(200, to_the_end).unwrap().time;
    assert!(within(time(false), ms(2_000 + 3 * 500), 1e-6), "{:?}", time(false));
    assert!(within(time(true), ms(2_000 + 4 * 500), 1e-6), "{:?}", time(true));
}

#[test]
fn an_epoch_whose_end_was_not_seen_is_said_to_be_missing() {
    let course = Course {
        first: ms(10),
        step: ms(10),
        epoch_end: ms(500),
        first_end: ms(0),
        steps_per_epoch: 300,
        report: 10,
        validation: 0,
    };
    assert!(course.run(200).estimate(400, false).unwrap().lacks_epoch_end);
    assert!(!course.run(310).estimate(400, false).unwrap().lacks_epoch_end);
    // Without batches there are no epochs.
    let mut timeline = Timeline::default();
    (1..=20).for_each(|step| timeline.step(step, ms(10 * step)));
    assert!(!timeline.estimate(400, false).unwrap().lacks_epoch_end);
}

#[test]
fn enough_is_some_seconds_with_the_ends_of_two_epochs_or_half_of_the_steps() {
    let course = Course {
        first: ms(1_000),
        step: ms(10),
        epoch_end: ms(0),
        first_end: ms(0),
        steps_per_epoch: 190,
        report: 10,
        validation: 0,
    };
    assert!(!course.run(200).suffices(100_000), "two seconds");
    assert!(!course.run(380).suffices(100_000), "one end of an epoch");
    assert!(course.run(410).suffices(100_000));
    assert!(course.run(50).suffices(100), "half of the steps");
    let endless = Course { steps_per_epoch: 1_000_000, ..course };
    assert!(!endless.run(1_900).suffices(100_000));
    assert!(endless.run(2_010).suffices(100_000), "twenty seconds");
    assert!(!Timeline::default().suffices(1));
}

#[test]
fn an_epoch_that_ends_between_two_reports_ended_there() {
    let course = Course {
        first: ms(10),
        step: ms(10),
        epoch_end: ms(500),
        first_end: ms(0),
        steps_per_epoch: 140,
        report: 100,
        validation: 20,
    };
    for timeline in [course.run(1_000), course.run(1_000).beginning(100_000)] {
        assert_eq!(timeline.steps_per_epoch(), Some(140.0), "{timeline:?}");
    }
    // More batches than steps were drawn for the steps.
    let mut timeline = Timeline::default();
    timeline.step(10, ms(10));
    (0..30).for_each(|_| timeline.drawn());
    timeline.epoch_ended();
    timeline.step(20, ms(20));
    assert_eq!(timeline.steps_per_epoch(), Some(20.0));
}

#[test]
fn the_report_is_known_with_which_it_begins_to_suffice() {
    let mut timeline = Timeline::default();
    timeline.step(1, ms(1_000));
    assert!(!timeline.begins_to_suffice(49, ms(1_100), 100));
    assert!(timeline.begins_to_suffice(50, ms(1_100), 100), "half of the steps");
    assert!(timeline.begins_to_suffice(2, ms(4_000), 100), "three seconds");
    timeline.step(50, ms(1_100));
    assert!(!timeline.begins_to_suffice(51, ms(1_110), 100), "it did before");
}

#[test]
fn times_between_reports_are_in_proportion() {
    let mut timeline = Timeline::default();
    assert_eq!((timeline.time_of(1), timeline.estimate(5, false), timeline.steps_per_second()), (None, None, None));
    timeline.step(10, ms(1_000));
    assert_eq!(timeline.estimate(20, false).unwrap().time, ms(2_000), "all that is known is what ten steps took");
    timeline.step(20, ms(1_400));
    timeline.step(20, ms(1_500));
    timeline.step(15, ms(1_600));
    assert_eq!((timeline.steps(), timeline.time_of(15), timeline.time_of(20)), (20, Some(ms(1_200)), Some(ms(1_400))));
    assert_eq!((timeline.time_of(3), timeline.time_of(21)), (Some(ms(1_000)), None));
}
