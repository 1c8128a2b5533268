//! A run as its plan and records describe it.

use saggar_project::{ConditionState, PipelinePlan, StepDependencies};
use saggar_store::records::{PipelineRunRecord, PipelineStepRecord, PipelineStepState};
use serde_json::{Map, Value};

use crate::engine::RunState;
use crate::error::PipelineError;

/// The plan of a run, parsed, with the order of its steps.
#[derive(Clone, Debug)]
pub struct RunGraph {
    /// The plan.
    pub plan: PipelinePlan,
    /// The steps that each step depends on.
    pub dependencies: StepDependencies,
    /// The values of all parameters.
    pub params: Map<String, Value>,
}

impl RunGraph {
    /// Reads the plan of a recorded run.
    ///
    /// # Errors
    /// `Io` if the record is damaged, which the check at its creation excludes.
    pub fn read(run: &PipelineRunRecord) -> Result<RunGraph, PipelineError> {
        let damaged = |what: String| std::io::Error::other(format!("the record of {} is damaged: {what}", run.name));
        let plan: PipelinePlan = serde_json::from_str(&run.plan).map_err(|error| damaged(error.to_string()))?;
        let params = serde_json::from_str(&run.params).map_err(|error| damaged(error.to_string()))?;
        let dependencies = plan.check().map_err(|mistakes| {
            damaged(mistakes.first().map_or_else(String::new, |mistake| mistake.message.clone()))
        })?;
        Ok(RunGraph { plan, dependencies, params })
    }

    /// Returns the state of each item of each step.
    pub fn item_states(&self, attempts: &[PipelineStepRecord]) -> Vec<Vec<PipelineStepState>> {
        let mut states = vec![Vec::new(); self.plan.steps.len()];
        for attempt in current_attempts(attempts) {
            if let Some(items) = states.get_mut(attempt.position as usize) {
                items.push(attempt.state);
            }
        }
        states
    }

    /// Returns the state of the run for decisions.
    pub fn state<'a>(
        &'a self,
        items: &'a [Vec<PipelineStepState>],
        conditions: &'a [ConditionState],
        is_stopping: bool,
    ) -> RunState<'a> {
        let RunGraph { plan, dependencies, params } = self;
        RunState { plan, dependencies, params, conditions, items, is_stopping }
    }
}

/// Returns the newest attempt of each item, in their order. The attempts are sorted by position, item and attempt.
pub fn current_attempts(attempts: &[PipelineStepRecord]) -> impl Iterator<Item = &PipelineStepRecord> {
    let is_current = |at: &usize| {
        let same =
            |next: &PipelineStepRecord| (next.position, next.item) == (attempts[*at].position, attempts[*at].item);
        !attempts.get(at + 1).is_some_and(same)
    };
    (0..attempts.len()).filter(is_current).map(|at| &attempts[at])
}
