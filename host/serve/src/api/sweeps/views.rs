//! Sweeps as JSON.

use std::collections::{BTreeMap, HashMap};

use saggar_rest::sweeps::{ParameterImportanceDocument, SweepDocument, TrialDocument};
use saggar_store::checkpoint::MetricMode;
use saggar_store::records::{JobDetails, JobRecord, SweepRecord, TrialRecord, TrialState};
use saggar_sweeps::{SweepSpec, ValidSweep, parameter_importance};
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
        trials.iter().map(|trial| trial_document(trial, &document.metric, &jobs, &details)).collect();
    // Trials that pause are compared at their first rung, which all of them reach after the same share of their steps.
    let has_rungs = read_spec(record).is_some_and(|sweep| sweep.pause_point(0).is_some());
    let compared = |trial: &TrialDocument| if has_rungs { *trial.rung_values.first()? } else { trial.value };
    let rows: Vec<_> = trials.iter().filter_map(|trial| Some((trial.parameters.clone(), compared(trial)?))).collect();
    let importance = parameter_importance(&rows).into_iter().map(|it| ParameterImportanceDocument {
        parameter: it.parameter,
        importance: it.importance,
        correlation: it.correlation,
    });
    Ok(SweepDocument { importance: Some(importance.collect()), trials: Some(trials), ..document })
}

fn trial_document(
    trial: &TrialRecord,
    metric: &str,
    jobs: &HashMap<String, JobRecord>,
    details: &HashMap<String, JobDetails>,
) -> TrialDocument {
    let job = trial.job.as_ref().and_then(|job| jobs.get(job));
    let details = trial.job.as_ref().and_then(|job| details.get(job));
    let gpu_seconds = details.map_or(0.0, |details| {
        details.attempts.iter().map(|attempt| attempt.usage.gpu_seconds).fold(0.0, |sum, it| sum + it)
    });
    let latest = details.and_then(|details| details.latest.iter().find(|point| point.name == metric));
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
    }
}

/// Returns the best completed trial with a finite value.
pub(super) fn best_trial<'a>(sweep: &ValidSweep, trials: &'a [TrialRecord]) -> Option<&'a TrialRecord> {
    let mut completed: Vec<&TrialRecord> =
        trials.iter().filter(|trial| trial.state == TrialState::Completed && final_value(trial).is_some()).collect();
    let score = |trial: &TrialRecord| sweep.score(final_value(trial));
    completed.sort_by(|one, other| score(other).total_cmp(&score(one)));
    completed.first().copied()
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
