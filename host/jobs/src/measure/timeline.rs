//! The times of a training's steps, and estimates from them.
//!
//! The first step is measured separately, because it includes compiling graphs and allocating memory. Later steps take
//! the average step time, and the end of an epoch takes extra time, for example for a validation. The first epoch end
//! is separate too, because its work runs for the first time. Times are parameters, not read from a clock.

use std::time::Duration;

use serde_json::{Value, json};

/// Minimum for an estimate: this time after the first step, with two epoch ends in it ...
const STEADY_TIME_MIN: Duration = Duration::from_secs(3);
/// ... or this time without them ...
const STEADY_TIME_MAX: Duration = Duration::from_secs(20);
/// ... or this fraction of the steps to estimate, as a divisor: 2 is one half.
const STEPS_SHARE: u64 = 2;

/// A point in a training.
#[derive(Clone, Copy, Debug, PartialEq)]
struct StepMark {
    /// Time since the plugin was started.
    at: Duration,
    /// Steps done.
    step: u64,
    /// Epochs that ended before.
    epochs: u64,
    /// Steps done when the last of those epochs ended.
    epoch_ended_at: u64,
}

/// The measured progress of a training.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepTimeline {
    /// In step order; the first is that of the first step.
    marks: Vec<StepMark>,
    /// Whether the training draws batches, so that it has epochs.
    draws_batches: bool,
    epochs: u64,
    /// Steps done when the last epoch ended; those of the last report until the next one.
    epoch_ended_at: u64,
    /// Batches drawn since the last report.
    batches_drawn: u64,
    /// The number of those batches when an epoch ended after that report.
    batches_drawn_at_epoch_end: Option<u64>,
}

/// An estimate of the time of a training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingEstimate {
    /// The number of steps of the estimate.
    pub steps: u64,
    /// The time of these steps, from the plugin's start.
    pub time: Duration,
    /// The number of steps that the estimate is based on.
    pub measured_steps: u64,
    /// The time of the measured steps.
    pub measured_time: Duration,
    /// Steps per second after the first measured step.
    pub steps_per_second: Option<f64>,
    /// Whether more steps follow but no epoch end was measured, so that the time does not include epoch ends.
    pub lacks_epoch_end: bool,
}

impl TrainingEstimate {
    /// Returns the estimate as JSON fields, with times in seconds.
    pub fn to_json(&self) -> Value {
        json!({
            "steps": self.steps,
            "seconds": self.time.as_secs_f64(),
            "from_steps": self.measured_steps,
            "from_seconds": self.measured_time.as_secs_f64(),
            "steps_per_second": self.steps_per_second,
            "lacks_epoch_end": self.lacks_epoch_end,
        })
    }
}

impl StepTimeline {
    /// Records that `step` steps are done. A step that is not later than the last one is ignored.
    pub fn record_step(&mut self, step: u64, at: Duration) {
        if step > self.steps() {
            let mark = self.next_mark(step, at);
            self.epoch_ended_at = mark.epoch_ended_at;
            (self.batches_drawn, self.batches_drawn_at_epoch_end) = (0, None);
            self.marks.push(mark);
        }
    }

    /// Returns the mark of this report. If an epoch ended since the last report, it ended after the number of batches
    /// drawn by then, because batches of a validation are drawn after the end.
    fn next_mark(&self, step: u64, at: Duration) -> StepMark {
        let epoch_ended_at = match self.batches_drawn_at_epoch_end {
            Some(drawn) => self.steps().saturating_add(drawn).min(step),
            None => self.epoch_ended_at,
        };
        StepMark { at, step, epochs: self.epochs, epoch_ended_at }
    }

    /// Records that a batch was drawn.
    pub fn record_batch(&mut self) {
        self.draws_batches = true;
        self.batches_drawn += 1;
    }

    /// Records the end of an epoch's batches. Several batch streams can end at one step; of the ends between two
    /// reports, the first counts.
    pub fn record_epoch_end(&mut self) {
        if self.steps() > self.epoch_ended_at && self.batches_drawn_at_epoch_end.is_none() {
            self.epochs += 1;
            self.epoch_ended_at = self.steps();
            self.batches_drawn_at_epoch_end = Some(self.batches_drawn);
        }
    }

    /// Returns the number of steps done.
    pub fn steps(&self) -> u64 {
        self.marks.last().map_or(0, |mark| mark.step)
    }

    /// Returns the time from the start to the end of the first step, or of the first reported steps.
    pub fn first_step_time(&self) -> Option<Duration> {
        self.marks.first().map(|mark| mark.at)
    }

    /// Returns the steps per second after the first report, epoch ends included, or `None` if there was only one
    /// report.
    pub fn steps_per_second(&self) -> Option<f64> {
        let (first, last) = (self.marks.first()?, self.marks.last()?);
        let time = last.at.saturating_sub(first.at).as_secs_f64();
        (time > 0.0).then(|| (last.step - first.step) as f64 / time)
    }

    /// Returns the seconds of a step in at most `parts` consecutive parts of the reports after the first one.
    pub fn part_step_seconds(&self, parts: usize) -> Vec<f64> {
        let length = self.marks.len().saturating_sub(1).div_ceil(parts.max(1)).max(1);
        // Each part ends with the mark that the next one begins with.
        let ends: Vec<&StepMark> = self.marks.iter().step_by(length).chain(self.marks.last()).collect();
        let seconds = |pair: &[&StepMark]| {
            let steps = pair[1].step - pair[0].step;
            (steps > 0).then(|| pair[1].at.saturating_sub(pair[0].at).as_secs_f64() / steps as f64)
        };
        ends.windows(2).filter_map(seconds).collect()
    }

    /// Returns the time at which `steps` steps were done, interpolated between two reports, or `None` if they were not
    /// done.
    pub fn time_at_step(&self, steps: u64) -> Option<Duration> {
        let after = self.marks.iter().position(|mark| mark.step >= steps)?;
        let end = self.marks[after];
        let start = after.checked_sub(1).map(|before| self.marks[before]);
        let Some(start) = start.filter(|_| end.step > steps) else { return Some(end.at) };
        let share = (steps - start.step) as f64 / (end.step - start.step) as f64;
        Some(start.at + end.at.saturating_sub(start.at).mul_f64(share))
    }

    /// Returns whether the measurement suffices for an estimate of `steps`.
    pub fn has_enough_samples(&self, steps: u64) -> bool {
        self.marks.last().is_some_and(|&last| self.has_enough_samples_at(last, steps))
    }

    /// Returns whether this report makes the measurement suffice for an estimate of `steps`, which it did not before.
    pub fn reaches_enough_samples(&self, step: u64, at: Duration, steps: u64) -> bool {
        step > self.steps()
            && !self.has_enough_samples(steps)
            && self.has_enough_samples_at(self.next_mark(step, at), steps)
    }

    fn has_enough_samples_at(&self, last: StepMark, steps: u64) -> bool {
        let first = self.marks.first().copied().unwrap_or(last);
        let steady = last.at.saturating_sub(first.at);
        let has_epoch_ends = last.epochs > 1 || !self.draws_batches;
        last.step >= steps.div_ceil(STEPS_SHARE)
            || steady >= STEADY_TIME_MAX
            || (steady >= STEADY_TIME_MIN && has_epoch_ends)
    }

    /// Returns the shortest prefix that suffices for an estimate of `steps`, or the whole timeline if none does.
    pub fn shortest_sufficient_prefix(&self, steps: u64) -> StepTimeline {
        let mut beginning = StepTimeline { draws_batches: self.draws_batches, ..StepTimeline::default() };
        for &mark in &self.marks {
            (beginning.epochs, beginning.epoch_ended_at) = (mark.epochs, mark.epoch_ended_at);
            beginning.marks.push(mark);
            if beginning.has_enough_samples(steps) {
                break;
            }
        }
        beginning
    }

    /// Estimates the time of `steps` steps; `to_the_end` includes the epoch end at the last step. Returns `None` before
    /// the first step.
    pub fn estimate(&self, steps: u64, to_the_end: bool) -> Option<TrainingEstimate> {
        let (first, last) = (self.marks.first()?, self.marks.last()?);
        let StepCosts { step, first_end, later_end } = self.step_costs();
        let after_first = steps.saturating_sub(first.step) as f64;
        // The work of an epoch end comes after its last step.
        let before_end = if to_the_end { steps } else { steps.saturating_sub(1) };
        let ends = match self.steps_per_epoch() {
            Some(steps_per_epoch) => (before_end as f64 / steps_per_epoch).floor(),
            None => 0.0,
        };
        let at_ends = if ends > 0.0 { first_end + (ends - 1.0) * later_end } else { 0.0 };
        let seconds = first.at.as_secs_f64() + after_first * step + at_ends;
        Some(TrainingEstimate {
            steps,
            steps_per_second: self.steps_per_second(),
            time: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
            measured_steps: last.step,
            measured_time: last.at,
            lacks_epoch_end: self.draws_batches && last.epochs == 0 && steps > last.step,
        })
    }

    /// Returns the average number of steps per epoch, or `None` if no epoch ended.
    fn steps_per_epoch(&self) -> Option<f64> {
        (self.epochs > 0).then(|| self.epoch_ended_at as f64 / self.epochs as f64)
    }

    fn step_costs(&self) -> StepCosts {
        let [mut plain, mut first, mut later] = [IntervalSum::default(); 3];
        for pair in self.marks.windows(2) {
            let sum = match (pair[0].epochs, pair[1].epochs) {
                (before, after) if before == after => &mut plain,
                (0, _) => &mut first,
                (_, _) => &mut later,
            };
            sum.add(pair[0], pair[1]);
        }
        let Some(step) = plain.seconds_per_step() else {
            // Every report coincides with an epoch end, or there is only one report: a step takes its share of the
            // total.
            let alone = self.marks.first().map_or(0.0, |mark| mark.at.as_secs_f64() / mark.step.max(1) as f64);
            let step = later.seconds_per_step().or(first.seconds_per_step()).unwrap_or(alone);
            return StepCosts { step, first_end: first.seconds_per_epoch_end(step).unwrap_or(0.0), later_end: 0.0 };
        };
        let first_end = first.seconds_per_epoch_end(step).unwrap_or(0.0);
        StepCosts { step, first_end, later_end: later.seconds_per_epoch_end(step).unwrap_or(first_end) }
    }
}

/// Seconds of the parts of a training.
#[derive(Clone, Copy, Debug)]
struct StepCosts {
    step: f64,
    /// The end of the first epoch, besides steps.
    first_end: f64,
    /// The end of each later epoch.
    later_end: f64,
}

/// Steps between reports.
#[derive(Clone, Copy, Debug, Default)]
struct IntervalSum {
    seconds: f64,
    steps: u64,
    epochs: u64,
}

impl IntervalSum {
    fn add(&mut self, from: StepMark, to: StepMark) {
        self.seconds += to.at.saturating_sub(from.at).as_secs_f64();
        self.steps += to.step - from.step;
        self.epochs += to.epochs - from.epochs;
    }

    /// Returns the seconds of an epoch end, besides those of steps.
    fn seconds_per_epoch_end(&self, step: f64) -> Option<f64> {
        (self.epochs > 0).then(|| (self.seconds - step * self.steps as f64).max(0.0) / self.epochs as f64)
    }

    fn seconds_per_step(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.seconds / self.steps as f64)
    }
}

#[cfg(test)]
mod tests;
