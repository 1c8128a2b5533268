//! Pipeline runs as JSON.

use std::collections::BTreeMap;

use saggar_clock::UnixMillis;
use saggar_pipelines::engine::step_summary;
use saggar_pipelines::{OutputReference, RunGraph, StepInput};
use saggar_project::PipelinePlan;
use saggar_rest::pipelines::{
    PipelineAttemptDocument, PipelineInputDocument, PipelineOutputDocument, PipelineRunDocument,
    PipelineScheduleDocument, PipelineStepDocument,
};
use saggar_store::records::{PipelineRunRecord, PipelineSchedule, PipelineStepRecord};
use serde_json::Value;

use crate::app::AppState;
use crate::error::ApiError;

/// Returns a run without its steps.
pub(super) fn run_document(run: &PipelineRunRecord) -> PipelineRunDocument {
    PipelineRunDocument {
        id: run.id.clone(),
        name: run.name.clone(),
        pipeline: run.pipeline.clone(),
        project: run.project.clone(),
        state: run.state.name().to_owned(),
        reason: run.reason.code.clone(),
        message: run.reason.sentence.clone(),
        owner: run.owner.clone(),
        created_ms: run.created_ms,
        finished_ms: run.finished_ms,
        params: serde_json::from_str(&run.params).unwrap_or(Value::Null),
        reuse_from: run.reuse_from.clone(),
        steps: None,
    }
}

/// Returns a run with its steps.
pub(in crate::api) async fn run_with_steps(
    app: &AppState,
    run: &PipelineRunRecord,
) -> Result<PipelineRunDocument, ApiError> {
    let attempts = app.pipelines().steps(&run.id).await?;
    let graph = RunGraph::read(run)?;
    let states = graph.item_states(&attempts);
    let step = |(position, states): (usize, &Vec<_>)| {
        let step = &graph.plan.steps[position];
        let items = PipelinePlan::items(step, &graph.params);
        let after = graph.dependencies[position].iter().map(|it| graph.plan.steps[it.step].name.clone());
        let of_step = attempts.iter().filter(|attempt| attempt.position as usize == position);
        PipelineStepDocument {
            name: step.name.clone(),
            kind: step.kind.name().to_owned(),
            after: after.collect(),
            state: step_summary(states).name().to_owned(),
            attempts: of_step.map(|attempt| attempt_document(attempt, items)).collect(),
        }
    };
    let steps = states.iter().enumerate().map(step).collect();
    Ok(PipelineRunDocument { steps: Some(steps), ..run_document(run) })
}

fn attempt_document(attempt: &PipelineStepRecord, items: Option<&[Value]>) -> PipelineAttemptDocument {
    let inputs: Vec<StepInput> = serde_json::from_str(&attempt.inputs).unwrap_or_default();
    let outputs: BTreeMap<String, OutputReference> = serde_json::from_str(&attempt.outputs).unwrap_or_default();
    let input = |StepInput { name, reference, digest }| PipelineInputDocument { name, reference, digest };
    let output = |(name, OutputReference { value, kind, digest })| {
        let kind = kind.and_then(|kind| serde_json::to_value(kind).ok()?.as_str().map(str::to_owned));
        (name, PipelineOutputDocument { value, kind, digest })
    };
    PipelineAttemptDocument {
        item: attempt.item,
        value: items.and_then(|items| items.get(attempt.item as usize)).cloned(),
        attempt: attempt.attempt,
        state: attempt.state.name().to_owned(),
        reason: attempt.reason.code.clone(),
        message: attempt.reason.sentence.clone(),
        job: attempt.job.clone(),
        cached_from: attempt.cached_from.clone(),
        inputs: inputs.into_iter().map(input).collect(),
        outputs: outputs.into_iter().map(output).collect(),
        started_ms: attempt.started_ms,
        finished_ms: attempt.finished_ms,
    }
}

/// Returns a schedule.
pub(super) fn schedule_document(schedule: &PipelineSchedule, next_ms: Option<UnixMillis>) -> PipelineScheduleDocument {
    PipelineScheduleDocument {
        name: schedule.name.clone(),
        project: schedule.project.clone(),
        cron: schedule.cron.clone(),
        owner: schedule.owner.clone(),
        created_ms: schedule.created_ms,
        next_ms,
        last_run: schedule.last_run.clone(),
    }
}
