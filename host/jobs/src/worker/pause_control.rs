//! Decides at step boundaries whether the job has reached the point at which it is to pause.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use saggar_store::limits::SERIES_MAX;
use saggar_store::records::PausePoint;

/// Where the job pauses, and what the attempt has reported so far. The supervisor can change the point at any time.
#[derive(Debug, Default)]
pub(crate) struct PauseControl {
    state: Mutex<PauseState>,
}

#[derive(Debug, Default)]
struct PauseState {
    point: Option<PausePoint>,
    steps_target: u64,
    /// The last step of each series.
    metric_steps: BTreeMap<String, u64>,
    /// The point for which the attempt was asked to save and return.
    due: Option<PausePoint>,
    saved_step: Option<u64>,
}

/// How an attempt that was asked to save and return for a pause has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PauseResult {
    /// It was not asked to.
    NotDue,
    /// Its state is saved.
    Saved {
        /// The step.
        step: u64,
        /// The point that was reached.
        point: PausePoint,
    },
    /// Its state could not be saved.
    NotSaved,
}

impl PauseControl {
    /// Sets where the job pauses; `None` if it does not.
    pub(crate) fn set_point(&self, point: Option<PausePoint>) {
        self.state.lock().point = point;
    }

    /// Records the number of steps that the training has to do.
    pub(super) fn record_target(&self, steps_target: u64) {
        self.state.lock().steps_target = steps_target;
    }

    /// Records that a series has a value at `step`.
    pub(super) fn record_metric(&self, name: &str, step: u64) {
        let mut state = self.state.lock();
        // A job has no more series than this.
        let count = state.metric_steps.len();
        match state.metric_steps.get_mut(name) {
            Some(last) => *last = step,
            None if count < SERIES_MAX as usize => drop(state.metric_steps.insert(name.to_owned(), step)),
            None => {}
        }
    }

    /// Returns whether the attempt has to save its state at this step boundary and return.
    pub(super) fn is_due(&self, step: u64) -> bool {
        let mut state = self.state.lock();
        let Some(point) = &state.point else { return false };
        let Some(at) = point.at.resolve(state.steps_target).filter(|at| step >= *at) else { return false };
        let has_metric = |name: &String| state.metric_steps.get(name).is_some_and(|last| *last >= at);
        if !point.metric.as_ref().is_none_or(has_metric) {
            return false;
        }
        state.due = Some(point.clone());
        true
    }

    /// Records that the state is saved at `step`.
    pub(super) fn record_saved(&self, step: u64) {
        self.state.lock().saved_step = Some(step);
    }

    /// Records that a checkpoint of an earlier attempt, at `step`, is the state to pause with.
    pub(super) fn pause_at_checkpoint(&self, step: u64, point: PausePoint) {
        let mut state = self.state.lock();
        (state.due, state.saved_step) = (Some(point), Some(step));
    }

    /// Records that saving begins: only what is saved from now on counts.
    pub(super) fn begin_save(&self) {
        self.state.lock().saved_step = None;
    }

    /// Returns how the attempt has ended.
    pub(super) fn result(&self) -> PauseResult {
        let state = self.state.lock();
        match (&state.due, state.saved_step) {
            (None, _) => PauseResult::NotDue,
            (Some(point), Some(step)) => PauseResult::Saved { step, point: point.clone() },
            (Some(_), None) => PauseResult::NotSaved,
        }
    }
}

#[cfg(test)]
mod tests {
    use saggar_store::records::PauseStep;

    use super::*;

    fn control(at: PauseStep, metric: Option<&str>) -> PauseControl {
        let control = PauseControl::default();
        control.set_point(Some(PausePoint { at, metric: metric.map(str::to_owned) }));
        control
    }

    #[test]
    fn a_pause_is_due_at_the_first_boundary_at_or_after_its_step() {
        let control = control(PauseStep::Step(10), None);
        assert_eq!([0, 8, 16].map(|step| control.is_due(step)), [false, false, true]);
        assert_eq!(control.result(), PauseResult::NotSaved);
        control.record_saved(16);
        let point = PausePoint { at: PauseStep::Step(10), metric: None };
        assert_eq!(control.result(), PauseResult::Saved { step: 16, point });
        control.set_point(None);
        assert!(!control.is_due(24));
    }

    #[test]
    fn a_pause_waits_for_a_value_of_its_metric_at_its_step() {
        let control = control(PauseStep::Share { part: 1, of: 3 }, Some("validation/loss"));
        control.record_metric("validation/loss", 50);
        assert!(!control.is_due(50), "the number of steps is not known");
        control.record_target(150);
        control.record_metric("validation/loss", 49);
        control.record_metric("loss", 60);
        assert!(!control.is_due(60));
        control.record_metric("validation/loss", 50);
        assert!(control.is_due(60));
    }

    #[test]
    fn an_older_checkpoint_is_not_the_state_of_a_pause() {
        let control = control(PauseStep::Step(1), None);
        control.record_saved(0);
        assert_eq!(control.result(), PauseResult::NotDue);
        assert!(control.is_due(1));
        control.begin_save();
        assert_eq!(control.result(), PauseResult::NotSaved);
    }
}
