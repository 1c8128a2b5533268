//! Sweeps as JSON.

use std::collections::{BTreeMap, HashMap};

use saggar_jobs::{CheckpointSelector, InitFrom, JobSpec};
use saggar_rest::sweeps::{
    LineageDocument, ParameterImportanceDocument, SweepDocument, TrialDocument, TrialParentDocument,
};
use saggar_store::checkpoint::MetricMode;
use saggar_store::records::{JobDetails, JobRecord, SweepRecord, TrialRecord, TrialState};
use saggar_sweeps::decision::BUDGET;
use saggar_sweeps::{SweepMethod, SweepSpec, ValidSweep, parameter_importance};
use serde_json::Value;

use crate::api::metric_values::finite_value;
use crate::app::AppState;
use crate::error::ApiError;

/// Returns a sweep without its trials.
pub(in crate::api) fn sweep_document(record: &SweepRecord, trials: &[TrialRecord]) -> SweepDocument {
    let mut states: BTreeMap<String, u64> = BTreeMap::new();
    trials.iter().for_each(|trial| *states.entry(trial.state.name().to_owned()).or_default() += 1);
    let document = SweepDocument {
        id: record.id.clone(),
        name: record.name.clone(),
        project: record.project.clone(),
        owner: record.owner.clone(),
        state: record.state.name().to_owned(),
        reason: record.reason.code.clone(),
        message: record.reason.sentence.clone(),
        trial_states: states,
        created_ms: record.created_ms,
        finished_ms: record.finished_ms,
        spec: serde_json::from_str(&record.spec).unwrap_or(Value::Null),
        ..SweepDocument::default()
    };
    let Some(sweep) = read_spec(record) else { return document };
    let best = best_trial(&sweep, trials);
    SweepDocument {
        method: sweep.spec().method.name().to_owned(),
        metric: sweep.metric().metric.clone(),
        direction: match sweep.metric().mode {
            MetricMode::Min => "min".to_owned(),
            MetricMode::Max => "max".to_owned(),
        },
        trials_target: sweep.trial_count(),
        best: best.map(|trial| trial.number),
        best_value: best.and_then(final_value),
        ..document
    }
}

/// Returns a sweep with its trials and the importance of its parameters.
pub(in crate::api) async fn sweep_with_trials(app: &AppState, record: &SweepRecord) -> Result<SweepDocument, ApiError> {
    let trials = app.sweeps().trials(&record.id).await?;
    let ids: Vec<String> = trials.iter().filter_map(|trial| trial.job.clone()).collect();
    let jobs = app.jobs().jobs_by_id(ids.clone()).await?;
    let details = app.jobs().details(ids).await?;
    let document = sweep_document(record, &trials);
    let trials: Vec<TrialDocument> =
        trials.iter().map(|trial| trial_document(trial, &document, &jobs, &details)).collect();
    // Trials that pause are compared at their first rung, which all of them reach after the same share of their steps.
    let sweep = read_spec(record);
    let has_rungs = sweep.as_ref().is_some_and(|sweep| sweep.pause_point(0).is_some());
    let compared = |trial: &TrialDocument| if has_rungs { *trial.rung_values.first()? } else { trial.value };
    // The first value of a copy belongs to the parameters of its parent.
    let own = trials.iter().filter(|trial| trial.parent.is_none());
    let rows: Vec<_> = own.filter_map(|trial| Some((trial.parameters.clone(), compared(trial)?))).collect();
    let is_population = sweep.is_some_and(|sweep| sweep.spec().method == SweepMethod::Pbt);
    let best_lineage = is_population.then(|| trial_lineage(&trials, document.best));
    let importance = parameter_importance(&rows).into_iter().map(|it| ParameterImportanceDocument {
        parameter: it.parameter,
        importance: it.importance,
        correlation: it.correlation,
    });
    Ok(SweepDocument { importance: Some(importance.collect()), trials: Some(trials), best_lineage, ..document })
}

fn trial_document(
    trial: &TrialRecord,
    sweep: &SweepDocument,
    jobs: &HashMap<String, JobRecord>,
    details: &HashMap<String, JobDetails>,
) -> TrialDocument {
    let job = trial.job.as_ref().and_then(|job| jobs.get(job));
    let details = trial.job.as_ref().and_then(|job| details.get(job));
    let gpu_seconds = details.map_or(0.0, |details| {
        details.attempts.iter().map(|attempt| attempt.usage.gpu_seconds).fold(0.0, |sum, it| sum + it)
    });
    let latest = details.and_then(|details| details.latest.iter().find(|point| point.name == sweep.metric));
    // The records of a removed job are gone; the values at its rungs stay.
    let value = latest.map_or_else(|| final_value(trial), |point| finite_value(point.value));
    TrialDocument {
        number: trial.number,
        state: trial.state.name().to_owned(),
        reason: trial.reason.code.clone(),
        message: trial.reason.sentence.clone(),
        parameters: serde_json::from_str(&trial.parameters).unwrap_or_default(),
        job: job.map(|job| job.name.clone()),
        job_state: job.map(|job| job.state.name().to_owned()),
        step: job.map_or(0, |job| job.step),
        steps_target: job.map_or(0, |job| job.steps_target),
        gpu_seconds,
        rung: trial.rung,
        rung_values: trial.rung_values.clone(),
        value,
        member: (sweep.method == SweepMethod::Pbt.name()).then(|| trial.member()),
        parent: trial.parent.as_ref().map(|parent| TrialParentDocument {
            trial: parent.trial,
            rung: parent.rung,
            step: job.and_then(start_step),
        }),
    }
}

/// Returns the step of the checkpoint that a job starts from.
fn start_step(job: &JobRecord) -> Option<u64> {
    match serde_json::from_str::<JobSpec>(&job.spec).ok()?.init_from? {
        InitFrom::Checkpoint { which: CheckpointSelector::Step(step), .. } => Some(step),
        InitFrom::Checkpoint { .. } | InitFrom::Model { .. } => None,
    }
}

/// Returns the trials whose training led to the trial with this number, oldest first.
pub(in crate::api) fn trial_lineage(trials: &[TrialDocument], number: Option<u32>) -> Vec<LineageDocument> {
    let find = |number: u32| trials.iter().find(|trial| trial.number == number);
    // A parent is older than its copy, so this ends.
    let older =
        |trial: &&TrialDocument| find(trial.parent.as_ref()?.trial).filter(|parent| parent.number < trial.number);
    let mut path: Vec<LineageDocument> = std::iter::successors(number.and_then(find), older)
        .map(|trial| LineageDocument {
            trial: trial.number,
            job: trial.job.clone(),
            from_step: trial.parent.as_ref().map_or(Some(0), |parent| parent.step),
            parameters: trial.parameters.clone(),
        })
        .collect();
    path.reverse();
    path
}

/// Returns the best completed trial with a finite value. In a population that ended before its last generation, because its
/// budget is used up, it is the best of the trials that got furthest.
pub(super) fn best_trial<'a>(sweep: &ValidSweep, trials: &'a [TrialRecord]) -> Option<&'a TrialRecord> {
    let best_of = |is_candidate: &dyn Fn(&TrialRecord) -> bool| {
        let mut found: Vec<&TrialRecord> =
            trials.iter().filter(|trial| is_candidate(trial) && final_value(trial).is_some()).collect();
        let score = |trial: &TrialRecord| sweep.score(final_value(trial));
        found.sort_by(|one, other| score(other).total_cmp(&score(one)));
        found.first().copied()
    };
    let completed = best_of(&|trial| trial.state == TrialState::Completed);
    let is_population = sweep.spec().method == SweepMethod::Pbt;
    // A copy that no job was submitted for has only the values of its parent.
    let is_cut_off = |trial: &TrialRecord| is_population && trial.reason.code == BUDGET && trial.job.is_some();
    let furthest = trials.iter().filter(|trial| is_cut_off(trial)).map(|trial| trial.rung_values.len()).max();
    completed.or_else(|| best_of(&|trial| is_cut_off(trial) && Some(trial.rung_values.len()) == furthest))
}

/// Returns the value at the last rung that the trial reached, or at its end.
pub(super) fn final_value(trial: &TrialRecord) -> Option<f64> {
    trial.rung_values.last().copied().flatten()
}

/// Returns the specification of a sweep, or `None` if the records contain another form.
pub(super) fn read_spec(record: &SweepRecord) -> Option<ValidSweep> {
    serde_json::from_str::<SweepSpec>(&record.spec).ok()?.validate().ok()
}

#[cfg(test)]
mod tests {
    use saggar_rest::sweeps::{SWEEP_STATES, TRIAL_STATES};
    use saggar_store::records::SweepState;

    use super::*;

    #[test]
    fn the_states_of_the_documents_are_those_of_the_records() {
        assert_eq!(SWEEP_STATES, SweepState::ALL.map(SweepState::name));
        assert_eq!(TRIAL_STATES, TrialState::ALL.map(TrialState::name));
    }
}
