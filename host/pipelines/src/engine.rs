//! The decisions of a run: a pure function of the plan and the recorded states.
//!
//! A step starts when every step that it depends on has succeeded or was skipped. Rules:
//! - A step whose condition is false is skipped, whatever happens to the others. A condition on outputs is decided once
//!   the steps that it names have succeeded; if one of them failed or was skipped, the step is too.
//! - A step that uses an output of a skipped step is skipped too; one that only comes after it starts.
//! - A step that depends on a step that failed or was stopped fails; other branches go on.
//! - The items of a step are independent: the step fails after all of them ended, if any failed.
//! - After a request to stop, nothing starts, and what waits is cancelled.

use saggar_project::{ConditionState, PipelinePlan, StepDependencies, StepKind};
use saggar_store::records::{PipelineRunState, PipelineStepState, StateReason};
use serde_json::{Map, Value};

/// The reason of a step whose condition is false.
pub const CONDITION_FALSE: &str = "CONDITION_FALSE";
/// The reason of a step whose condition cannot be computed.
pub const CONDITION_INVALID: &str = "CONDITION_INVALID";
/// The reason of a step that uses an output of a skipped step.
pub const INPUT_SKIPPED: &str = "INPUT_SKIPPED";
/// The reason of a step without items.
pub const NO_ITEMS: &str = "NO_ITEMS";
/// The reason of a step that depends on one that did not succeed.
pub const UPSTREAM_FAILED: &str = "UPSTREAM_FAILED";
/// The reason of a run with a failed step.
pub const STEP_FAILED: &str = "STEP_FAILED";
/// The reason of what was stopped by a user.
pub const STOPPED: &str = "STOPPED";

/// The state of a run, as far as decisions depend on it.
#[derive(Clone, Debug)]
pub struct RunState<'a> {
    /// The plan, which was checked.
    pub plan: &'a PipelinePlan,
    /// The steps that each step depends on.
    pub dependencies: &'a StepDependencies,
    /// The values of all parameters.
    pub params: &'a Map<String, Value>,
    /// Whether the conditions of each step are true, by position.
    pub conditions: &'a [ConditionState],
    /// The state of each item of each step, by position. A step without items has one.
    pub items: &'a [Vec<PipelineStepState>],
    /// Whether the run was asked to stop.
    pub is_stopping: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunDecision {
    /// Start a pending item.
    Start {
        /// The position of the step.
        position: usize,
        /// The number of the item.
        item: usize,
    },
    /// Change a pending or waiting item to a final state.
    Settle {
        /// The position of the step.
        position: usize,
        /// The number of the item.
        item: usize,
        /// `Skipped`, `Failed` or `Cancelled`.
        state: PipelineStepState,
        /// The reason.
        reason: StateReason,
    },
    /// End the run.
    Finish {
        /// The final state.
        state: PipelineRunState,
        /// The reason.
        reason: StateReason,
    },
}

/// Returns the state of a step with these items: that of the worst, or `None` if an item is not over.
pub fn step_outcome(items: &[PipelineStepState]) -> Option<PipelineStepState> {
    use PipelineStepState::{Cancelled, Failed, Skipped, Succeeded};
    if items.iter().any(|state| !state.is_final()) {
        return None;
    }
    [Failed, Cancelled, Succeeded].into_iter().find(|state| items.contains(state)).or(Some(Skipped))
}

/// Returns the state of a step for people, also if an item is not over.
pub fn step_summary(items: &[PipelineStepState]) -> PipelineStepState {
    use PipelineStepState::{Pending, Running, Waiting};
    step_outcome(items).unwrap_or_else(|| {
        let has_started = items.iter().any(|state| *state != Pending);
        match [Waiting, Running].into_iter().find(|state| items.contains(state)) {
            Some(state) => state,
            None if has_started => Running,
            None => Pending,
        }
    })
}

/// Returns what to do next. An empty list means to wait.
pub fn decide(run: &RunState<'_>) -> Vec<RunDecision> {
    let outcomes: Vec<Option<PipelineStepState>> = run.items.iter().map(|items| step_outcome(items)).collect();
    let mut decisions = Vec::new();
    for position in 0..run.items.len() {
        decide_step(run, &outcomes, position, &mut decisions);
    }
    if outcomes.iter().all(Option::is_some) {
        decisions.push(finish(run, &outcomes));
    }
    decisions
}

fn decide_step(
    run: &RunState<'_>,
    outcomes: &[Option<PipelineStepState>],
    position: usize,
    decisions: &mut Vec<RunDecision>,
) {
    let items = &run.items[position];
    let pending = || items.iter().enumerate().filter(|(_, state)| **state == PipelineStepState::Pending);
    let mut settle_all = |state: PipelineStepState, reason: StateReason, waiting: bool| {
        let concerned = items
            .iter()
            .enumerate()
            .filter(|(_, it)| **it == PipelineStepState::Pending || (waiting && **it == PipelineStepState::Waiting));
        for (item, _) in concerned {
            decisions.push(RunDecision::Settle { position, item, state, reason: reason.clone() });
        }
    };
    if run.is_stopping {
        let reason = StateReason::new(STOPPED, "the run was stopped");
        return settle_all(PipelineStepState::Cancelled, reason, true);
    }
    if pending().next().is_none() {
        return;
    }
    if let Some((state, reason)) = outcome_without_running(run, outcomes, position) {
        return settle_all(state, reason, false);
    }
    if run.dependencies[position].iter().any(|dependency| outcomes[dependency.step].is_none()) {
        return;
    }
    if let ConditionState::Undecided(sentence) | ConditionState::Invalid(sentence) = &run.conditions[position] {
        let reason = StateReason::new(CONDITION_INVALID, sentence);
        return settle_all(PipelineStepState::Failed, reason, false);
    }
    let step = &run.plan.steps[position];
    let active =
        items.iter().filter(|it| matches!(it, PipelineStepState::Running | PipelineStepState::Waiting)).count();
    let free = step.max_parallel.map_or(usize::MAX, |max| (max as usize).saturating_sub(active));
    decisions.extend(pending().take(free).map(|(item, _)| RunDecision::Start { position, item }));
}

/// Returns the final state of a step that does not run, if that is certain already.
fn outcome_without_running(
    run: &RunState<'_>,
    outcomes: &[Option<PipelineStepState>],
    position: usize,
) -> Option<(PipelineStepState, StateReason)> {
    let step = &run.plan.steps[position];
    if run.conditions[position] == ConditionState::False {
        let reason = StateReason::new(CONDITION_FALSE, "its condition is false");
        return Some((PipelineStepState::Skipped, reason));
    }
    if PipelinePlan::items(step, run.params).is_some_and(<[Value]>::is_empty) {
        let reason = StateReason::new(NO_ITEMS, "its list is empty");
        return Some((PipelineStepState::Skipped, reason));
    }
    let name = |at: usize| &run.plan.steps[at].name;
    for dependency in &run.dependencies[position] {
        let what = match outcomes[dependency.step] {
            Some(PipelineStepState::Failed) => "failed",
            Some(PipelineStepState::Cancelled) => "was stopped",
            _ => continue,
        };
        let sentence = format!("step {} {what}", name(dependency.step));
        return Some((PipelineStepState::Failed, StateReason::new(UPSTREAM_FAILED, sentence)));
    }
    let skipped = run.dependencies[position]
        .iter()
        .find(|it| it.uses_output && outcomes[it.step] == Some(PipelineStepState::Skipped))?;
    let sentence = format!("step {}, whose output it uses, was skipped", name(skipped.step));
    Some((PipelineStepState::Skipped, StateReason::new(INPUT_SKIPPED, sentence)))
}

fn finish(run: &RunState<'_>, outcomes: &[Option<PipelineStepState>]) -> RunDecision {
    let with = |state: PipelineStepState| {
        let steps = outcomes.iter().zip(&run.plan.steps).filter(move |(outcome, _)| **outcome == Some(state));
        steps.map(|(_, step)| step.name.as_str()).collect::<Vec<_>>()
    };
    let (failed, cancelled) = (with(PipelineStepState::Failed), with(PipelineStepState::Cancelled));
    let (state, reason) = match (failed.is_empty(), cancelled.is_empty() && !run.is_stopping) {
        (false, true) => (PipelineRunState::Failed, StateReason::new(STEP_FAILED, list_steps(&failed, "failed"))),
        (_, false) => {
            (PipelineRunState::Cancelled, StateReason::new(STOPPED, list_steps(&cancelled, "stopped before their end")))
        }
        (true, true) => (PipelineRunState::Succeeded, StateReason::default()),
    };
    RunDecision::Finish { state, reason }
}

/// Returns a sentence that names the first few steps.
fn list_steps(names: &[&str], what: &str) -> String {
    const SHOWN: usize = 5;
    let listed = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "the run was stopped".to_owned(),
        1..=SHOWN => format!("{what}: {listed}"),
        more => format!("{what}: {listed} and {} more", more - SHOWN),
    }
}

/// Returns the items of steps, as position and item, that a restart of an ended run repeats: those that did not
/// succeed and, with `from`, the step and everything that depends on it. Steps whose condition is false stay skipped.
pub fn items_to_restart(run: &RunState<'_>, from: Option<usize>) -> Vec<(usize, usize)> {
    let mut is_repeated = vec![false; run.items.len()];
    if let Some(from) = from {
        is_repeated[from] = true;
        // Dependencies can be listed in any order, so the marks spread until nothing changes.
        let mut has_changed = true;
        while std::mem::take(&mut has_changed) {
            for position in 0..run.items.len() {
                let depends = run.dependencies[position].iter().any(|it| is_repeated[it.step]);
                if depends && !is_repeated[position] {
                    is_repeated[position] = true;
                    has_changed = true;
                }
            }
        }
    }
    let mut items = Vec::new();
    for (position, states) in run.items.iter().enumerate() {
        for (item, state) in states.iter().enumerate() {
            let has_ended_badly = matches!(state, PipelineStepState::Failed | PipelineStepState::Cancelled);
            if is_repeated[position] || has_ended_badly {
                items.push((position, item));
            }
        }
    }
    items
}

/// Returns the state of an item that was started: an approval waits for a person, everything else runs.
pub fn started_state(kind: StepKind) -> PipelineStepState {
    match kind {
        StepKind::Approve => PipelineStepState::Waiting,
        StepKind::Train
        | StepKind::Predict
        | StepKind::Plugin
        | StepKind::Data
        | StepKind::Deploy
        | StepKind::Pipeline => PipelineStepState::Running,
    }
}
