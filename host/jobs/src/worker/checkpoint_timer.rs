//! Decides when the next checkpoint of an attempt is due. Times are parameters, so that tests can simulate a clock.

use std::time::{Duration, Instant};

use crate::limits::{CHECKPOINT_COST_PERCENT, CHECKPOINT_FIRST, CHECKPOINT_INTERVAL_MAX, CHECKPOINT_INTERVAL_MIN};
use crate::spec::CheckpointEvery;

/// Maximum share of its time that an attempt may lose when it is killed, as a divisor: 20 is 5 %.
const LOST_SHARE: u32 = 20;

/// A timer that decides at step boundaries whether a checkpoint is due, from the measured cost of saving.
#[derive(Debug)]
pub(super) struct CheckpointTimer {
    every: CheckpointEvery,
    /// The first boundary: the training begins there, after the device was opened and the graphs were compiled.
    began: Option<Instant>,
    /// When a checkpoint was last saved, or failed.
    last: Option<Instant>,
    /// The step of that checkpoint.
    last_step: u64,
    /// When the checkpoint that is being saved was requested.
    requested_at: Option<Instant>,
    /// The cost of the last checkpoint; `None` before the first one.
    cost: Option<Duration>,
    /// After a failed save: when the next one can be tried.
    next_try: Option<Instant>,
}

impl CheckpointTimer {
    pub(super) fn new(every: CheckpointEvery) -> CheckpointTimer {
        CheckpointTimer { every, began: None, last: None, last_step: 0, requested_at: None, cost: None, next_try: None }
    }

    /// Starts counting steps from `step`, which a checkpoint already includes.
    pub(super) fn resume_at(&mut self, step: u64) {
        self.last_step = step;
    }

    /// Returns whether a checkpoint is due at the boundary after `step`. `forced` makes it due regardless of the
    /// interval.
    pub(super) fn is_due(&mut self, now: Instant, step: u64, forced: bool) -> bool {
        let began = *self.began.get_or_insert(now);
        let since = now.saturating_duration_since(self.last.unwrap_or(began));
        let due = forced
            || self.next_try.is_none_or(|next| now >= next)
                && match self.every {
                    CheckpointEvery::Auto => since >= interval(self.cost, now.saturating_duration_since(began)),
                    CheckpointEvery::Milliseconds(ms) => since >= Duration::from_millis(ms),
                    CheckpointEvery::Steps(steps) => step.saturating_sub(self.last_step) >= steps,
                };
        self.requested_at = due.then_some(now);
        due
    }

    /// Records that a checkpoint was saved. `began` is the start of saving, for one that was not requested by
    /// [`Self::is_due`].
    pub(super) fn record_saved(&mut self, began: Instant, now: Instant, step: u64) {
        // Reading variables back from the device is part of the cost.
        let began = self.requested_at.take().unwrap_or(began);
        self.cost = Some(now.saturating_duration_since(began));
        self.next_try = None;
        (self.last, self.last_step) = (Some(now), step);
    }

    /// Records that a checkpoint could not be saved. The next try waits for a full interval, because a full disk stays
    /// full for a while, and at least as long as this one took: a store that does not answer takes at most half of the
    /// time. `began` is as for [`Self::record_saved`].
    pub(super) fn record_failed(&mut self, began: Instant, now: Instant, step: u64) {
        let began = self.requested_at.take().unwrap_or(began);
        self.next_try = Some(now + now.saturating_duration_since(began));
        self.cost = Some(Duration::MAX);
        (self.last, self.last_step) = (Some(now), step);
    }
}

/// Returns the time until the next checkpoint: long enough that saving takes at most 1 % of the time, but short enough
/// that a kill loses at most 5 % of the work, within fixed bounds. `cost` is the time of the last checkpoint.
fn interval(cost: Option<Duration>, trained: Duration) -> Duration {
    let Some(cost) = cost else { return CHECKPOINT_FIRST };
    let affordable = cost.saturating_mul(100 / CHECKPOINT_COST_PERCENT);
    affordable.max(trained / LOST_SHARE).clamp(CHECKPOINT_INTERVAL_MIN, CHECKPOINT_INTERVAL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Trains for `whole` with a boundary every 100 ms, and returns when checkpoints were due. Each costs `cost`.
    fn due_times(every: CheckpointEvery, whole: Duration, cost: Duration) -> Vec<Duration> {
        let start = Instant::now();
        let mut timer = CheckpointTimer::new(every);
        let (mut now, mut step, mut at) = (start, 0, Vec::new());
        while now < start + whole {
            if timer.is_due(now, step, false) {
                at.push(now - start);
                timer.record_saved(now, now + cost, step);
                now += cost;
            }
            (now, step) = (now + ms(100), step + 10);
        }
        at
    }

    #[test]
    fn the_first_checkpoint_comes_within_two_seconds() {
        for cost in [ms(0), ms(3), ms(500), ms(5000)] {
            let first = due_times(CheckpointEvery::Auto, ms(60_000), cost)[0];
            assert!(first <= ms(2000), "{first:?}");
        }
    }

    #[test]
    fn saving_costs_at_most_one_percent() {
        for cost in [ms(0), ms(3), ms(20), ms(100), ms(290)] {
            let whole = ms(3_600_000);
            let at = due_times(CheckpointEvery::Auto, whole, cost);
            // The first one is saved before its cost is known.
            let spent = cost * (u32::try_from(at.len()).unwrap() - 1);
            assert!(spent * 100 <= whole, "{cost:?}: {spent:?} for {} checkpoints", at.len());
        }
    }

    #[test]
    fn the_checkpoint_interval_never_exceeds_thirty_seconds() {
        for cost in [ms(0), ms(300), ms(20_000)] {
            let at = due_times(CheckpointEvery::Auto, ms(3_600_000), cost);
            let longest = at.windows(2).map(|pair| pair[1] - pair[0] - cost).max().unwrap();
            assert!(longest <= ms(30_100), "{cost:?}: {longest:?}");
        }
    }

    #[test]
    fn an_interrupted_short_training_loses_at_most_a_few_seconds() {
        let at = due_times(CheckpointEvery::Auto, ms(60_000), ms(5));
        for cut in [ms(6000), ms(17_800), ms(59_000)] {
            let newest = at.iter().rfind(|at| **at <= cut).unwrap();
            assert!(cut - *newest <= ms(3200), "cut off at {cut:?}, newest at {newest:?}");
        }
        // Checkpoints are frequent only at the beginning.
        assert!(due_times(CheckpointEvery::Auto, ms(86_400_000), ms(5)).len() < 3200);
    }

    #[test]
    fn a_configured_interval_overrides_the_automatic_one() {
        let at = due_times(CheckpointEvery::Milliseconds(10_000), ms(35_000), ms(1));
        assert_eq!(at.iter().map(Duration::as_secs).collect::<Vec<_>>(), [10, 20, 30]);
        assert_eq!(due_times(CheckpointEvery::Steps(1000), ms(35_000), ms(0)), [ms(10_000), ms(20_000), ms(30_000)]);
    }

    #[test]
    fn time_before_the_first_step_boundary_does_not_count() {
        let mut timer = CheckpointTimer::new(CheckpointEvery::Auto);
        let compiled = Instant::now() + ms(90_000);
        assert!(!timer.is_due(compiled, 1, false));
        assert!(timer.is_due(compiled + ms(2000), 20, false));
    }

    #[test]
    fn the_step_interval_counts_from_the_resumed_checkpoint() {
        let mut timer = CheckpointTimer::new(CheckpointEvery::Steps(100));
        timer.resume_at(950);
        let now = Instant::now();
        assert!(!timer.is_due(now, 1000, false));
        assert!(timer.is_due(now, 1000, true));
        assert!(timer.is_due(now, 1050, false));
    }

    #[test]
    fn a_failed_checkpoint_is_retried_after_the_longest_interval() {
        let mut timer = CheckpointTimer::new(CheckpointEvery::Auto);
        let start = Instant::now();
        assert!(!timer.is_due(start, 0, false));
        assert!(timer.is_due(start + ms(1000), 10, false));
        timer.record_failed(start + ms(1000), start + ms(1000), 10);
        assert!(!timer.is_due(start + ms(30_900), 300, false));
        assert!(timer.is_due(start + ms(31_000), 310, false));
    }

    #[test]
    fn a_save_that_took_long_and_failed_is_tried_again_after_the_same_time() {
        let mut timer = CheckpointTimer::new(CheckpointEvery::Steps(10));
        let start = Instant::now();
        assert!(timer.is_due(start, 10, false));
        timer.record_failed(start, start + ms(20_000), 10);
        assert!(!timer.is_due(start + ms(39_000), 200, false));
        assert!(timer.is_due(start + ms(39_000), 200, true), "it was asked for");
        timer.record_failed(start + ms(39_000), start + ms(39_001), 200);
        assert!(timer.is_due(start + ms(39_100), 210, false));
    }
}
