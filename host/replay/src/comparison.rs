//! Compares the calls of a replayed training with the recorded ones, and decides when the replay is over.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::host_call::HostCall;
use crate::non_finite::NonFiniteOperand;
use crate::recorded_calls::RecordedCalls;
use crate::report::{PrintedOperand, ReplayDifference};

/// Maximum values of operands in a report.
const PRINTED_VALUES_MAX: usize = 10_000;

/// The steps that a replay is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRange {
    /// The first step that is looked at. Earlier steps are only computed and compared.
    pub from_step: u64,
    /// The last step; `None` replays to the end.
    pub to_step: Option<u64>,
}

/// The comparison of one replay. Shared by the parts that see the calls.
#[derive(Debug)]
pub(crate) struct CallComparison {
    range: ReplayRange,
    recorded: RecordedCalls,
    state: Mutex<ComparisonState>,
}

/// What a replay has found so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct ComparisonState {
    after_step: Option<u64>,
    /// Steps since the last boundary: dispatches that changed variables.
    steps_since: u64,
    occurrences: HashMap<String, u32>,
    /// Steps that were replayed.
    pub(crate) steps: u64,
    /// Calls that were compared.
    pub(crate) compared: u64,
    /// Calls that nothing was recorded about.
    pub(crate) unrecorded: u64,
    /// Calls that differ.
    pub(crate) different: u64,
    /// The first call that differs.
    pub(crate) first_difference: Option<ReplayDifference>,
    /// The first operand that is infinite or not a number.
    pub(crate) non_finite: Option<NonFiniteOperand>,
    /// Operands that were printed.
    pub(crate) printed: Vec<PrintedOperand>,
    /// Values that were not kept, because there were too many.
    pub(crate) printed_left_out: u64,
    /// Names of operands that graphs have.
    pub(crate) known_operands: Vec<String>,
    is_over: bool,
}

impl CallComparison {
    pub(crate) fn new(range: ReplayRange, recorded: RecordedCalls) -> CallComparison {
        CallComparison { range, recorded, state: Mutex::default() }
    }

    /// Sets the step of the boundary that further calls follow.
    pub(crate) fn set_step(&self, step: u64) {
        let mut state = self.state.lock();
        if state.after_step == Some(step) {
            return;
        }
        state.after_step = Some(step);
        state.steps_since = 0;
        state.occurrences.clear();
        state.is_over |= self.range.to_step.is_some_and(|to| step >= to);
    }

    /// Returns the step that the next dispatch belongs to, from 1.
    pub(crate) fn next_step(&self) -> u64 {
        let state = self.state.lock();
        state.after_step.unwrap_or(0) + state.steps_since + 1
    }

    /// Returns whether a step is looked at.
    pub(crate) fn is_in_range(&self, step: u64) -> bool {
        step >= self.range.from_step && self.range.to_step.is_none_or(|to| step <= to)
    }

    /// Returns whether the replay is over.
    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// Returns whether a checkpoint was recorded at the last boundary.
    pub(crate) fn has_checkpoint(&self) -> bool {
        let key = (self.state.lock().after_step, HostCall::Checkpoint { variables: String::new() }.subject(), 0);
        self.recorded.find(&key).is_some()
    }

    /// Returns the recorded call that the next call of this subject is compared with.
    pub(crate) fn recorded(&self, call: &HostCall) -> Option<HostCall> {
        let (state, subject) = (self.state.lock(), call.subject());
        let occurrence = state.occurrences.get(&subject).copied().unwrap_or(0);
        self.recorded.find(&(state.after_step, subject, occurrence)).cloned()
    }

    /// Compares a call with the recorded one.
    pub(crate) fn compare(&self, call: &HostCall) {
        let recorded = self.recorded(call);
        let mut state = self.state.lock();
        *state.occurrences.entry(call.subject()).or_default() += 1;
        let Some(recorded) = recorded else {
            state.unrecorded += 1;
            return;
        };
        state.compared += 1;
        if let Some(difference) = recorded.difference(call) {
            state.different += 1;
            let step = state.after_step.unwrap_or(0) + state.steps_since + 1;
            state.first_difference.get_or_insert(ReplayDifference { step, difference });
        }
    }

    /// Records that a dispatch changed variables, and so ended a step.
    pub(crate) fn end_step(&self) {
        let mut state = self.state.lock();
        state.steps_since += 1;
        state.steps += 1;
        let step = state.after_step.unwrap_or(0) + state.steps_since;
        state.is_over |= self.range.to_step.is_some_and(|to| step >= to);
    }

    /// Ends the replay with an operand that is infinite or not a number.
    pub(crate) fn end_with(&self, operand: NonFiniteOperand) {
        let mut state = self.state.lock();
        state.non_finite.get_or_insert(operand);
        state.is_over = true;
    }

    /// Records what was printed.
    pub(crate) fn add_printed(&self, printed: Vec<PrintedOperand>) {
        let mut state = self.state.lock();
        let room = PRINTED_VALUES_MAX.saturating_sub(state.printed.len());
        state.printed_left_out += printed.len().saturating_sub(room) as u64;
        state.printed.extend(printed.into_iter().take(room));
    }

    /// Records names of operands that a graph has.
    pub(crate) fn add_known_operands(&self, names: Vec<String>) {
        let mut state = self.state.lock();
        state.known_operands.extend(names);
        state.known_operands.sort();
        state.known_operands.dedup();
    }

    /// Returns what the replay has found so far.
    pub(crate) fn state(&self) -> ComparisonState {
        self.state.lock().clone()
    }

    /// Returns the recorded calls.
    pub(crate) fn recorded_calls(&self) -> &RecordedCalls {
        &self.recorded
    }
}
