//! Pipeline runs side by side: parameters, steps, outputs, and the last metrics of the steps' jobs.

use std::collections::{BTreeMap, HashMap, HashSet};

use saggar_rest::comparisons::{
    COMPARED_RUNS, ComparedAttemptDocument, ComparedOutputDocument, ComparedStepDocument, ComparisonDocument,
    PipelineRunComparisonDocument,
};
use saggar_rest::pipelines::{PipelineAttemptDocument, PipelineOutputDocument, PipelineRunDocument};
use saggar_store::records::PipelineRunRecord;
use serde_json::{Map, Value};

use super::values::{compared_values, members};
use crate::api::metric_values::finite_value;
use crate::api::pipelines::run_with_steps;
use crate::app::AppState;
use crate::error::ApiError;

/// The last metrics of jobs, by the job's name.
type JobMetrics = HashMap<String, Map<String, Value>>;

/// Compares runs, in this order.
pub(super) async fn compare_runs(app: &AppState, runs: &[PipelineRunRecord]) -> Result<ComparisonDocument, ApiError> {
    let mut documents = Vec::with_capacity(runs.len());
    for run in runs {
        documents.push(run_with_steps(app, run).await?);
    }
    let metrics = job_metrics(app, &documents).await?;
    let comparison = comparison(documents, &metrics, app.now_ms());
    let kind = COMPARED_RUNS.to_owned();
    Ok(ComparisonDocument { kind, pipeline_runs: Some(comparison), ..ComparisonDocument::default() })
}

/// Returns the last metrics of the jobs of all current attempts. Removed jobs have none.
async fn job_metrics(app: &AppState, runs: &[PipelineRunDocument]) -> Result<JobMetrics, ApiError> {
    let attempts = runs.iter().flat_map(|run| current_attempts(run).into_values());
    let names: Vec<String> = attempts.filter_map(|attempt| attempt.job.clone()).collect();
    let jobs = app.jobs().jobs_by_id(names).await?;
    let details = app.jobs().details(jobs.values().map(|job| job.id.clone()).collect()).await?;
    let metrics = |id: &str| {
        let latest = details.get(id).into_iter().flat_map(|details| &details.latest);
        latest.map(|point| (point.name.clone(), finite_value(point.value).into())).collect()
    };
    Ok(jobs.values().map(|job| (job.name.clone(), metrics(&job.id))).collect())
}

/// Identifies an item of a step: the step's name, and the item as JSON if the step has items.
type StepItem = (String, Option<String>);

/// Returns the last attempt of each item of each step.
fn current_attempts(run: &PipelineRunDocument) -> BTreeMap<StepItem, &PipelineAttemptDocument> {
    let mut current: BTreeMap<StepItem, &PipelineAttemptDocument> = BTreeMap::new();
    for step in run.steps.iter().flatten() {
        for attempt in &step.attempts {
            let item = (step.name.clone(), attempt.value.as_ref().map(Value::to_string));
            // Attempts are in order.
            current.insert(item, attempt);
        }
    }
    current
}

/// Returns the items of all steps: in the order of the first run, and then those that only others have.
fn step_items(runs: &[PipelineRunDocument]) -> Vec<StepItem> {
    let mut items = Vec::new();
    let mut known = HashSet::new();
    for run in runs {
        for step in run.steps.iter().flatten() {
            let of_step = step.attempts.iter().map(|attempt| attempt.value.as_ref().map(Value::to_string));
            for value in of_step {
                let item = (step.name.clone(), value);
                if known.insert(item.clone()) {
                    items.push(item);
                }
            }
        }
    }
    items
}

fn comparison(runs: Vec<PipelineRunDocument>, metrics: &JobMetrics, now_ms: u64) -> PipelineRunComparisonDocument {
    let current: Vec<_> = runs.iter().map(current_attempts).collect();
    let step = |item: StepItem| {
        let attempts: Vec<Option<&PipelineAttemptDocument>> =
            current.iter().map(|run| run.get(&item).copied()).collect();
        let of_jobs = attempts.iter().map(|attempt| {
            let job = attempt.and_then(|attempt| attempt.job.as_ref());
            job.and_then(|job| metrics.get(job)).cloned().unwrap_or_default()
        });
        let metrics = compared_values(&of_jobs.collect::<Vec<_>>());
        ComparedStepDocument {
            name: item.0,
            item: item.1.and_then(|text| serde_json::from_str(&text).ok()),
            outputs: compared_outputs(&attempts),
            metrics,
            attempts: attempts.into_iter().map(|attempt| Some(attempt_document(attempt?, now_ms))).collect(),
        }
    };
    let steps = step_items(&runs).into_iter().map(step).collect();
    let params = compared_values(&runs.iter().map(|run| members(&run.params)).collect::<Vec<_>>());
    let runs = runs.into_iter().map(|run| PipelineRunDocument { steps: None, ..run }).collect();
    PipelineRunComparisonDocument { runs, params, steps }
}

fn attempt_document(attempt: &PipelineAttemptDocument, now_ms: u64) -> ComparedAttemptDocument {
    let seconds = |started: u64| attempt.finished_ms.unwrap_or(now_ms).saturating_sub(started) as f64 / 1000.0;
    ComparedAttemptDocument {
        state: attempt.state.clone(),
        attempt: attempt.attempt,
        seconds: attempt.started_ms.map(seconds),
        job: attempt.job.clone(),
        cached_from: attempt.cached_from.clone(),
    }
}

fn compared_outputs(attempts: &[Option<&PipelineAttemptDocument>]) -> Vec<ComparedOutputDocument> {
    let mut names: Vec<&String> = attempts.iter().flatten().flat_map(|attempt| attempt.outputs.keys()).collect();
    names.sort();
    names.dedup();
    let content = |output: &Option<PipelineOutputDocument>| {
        output.as_ref().map(|output| output.digest.clone().map_or_else(|| output.value.clone(), Value::String))
    };
    let compared = |name: &String| {
        let outputs: Vec<_> =
            attempts.iter().map(|attempt| attempt.and_then(|it| it.outputs.get(name)).cloned()).collect();
        let differs = outputs.iter().any(|output| content(output) != content(&outputs[0]));
        ComparedOutputDocument { name: name.clone(), outputs, differs }
    };
    names.into_iter().map(compared).collect()
}

#[cfg(test)]
mod tests {
    use saggar_rest::pipelines::PipelineStepDocument;
    use serde_json::json;

    use super::*;

    fn attempt(number: u32, state: &str, job: Option<&str>, value: Option<Value>) -> PipelineAttemptDocument {
        PipelineAttemptDocument {
            attempt: number,
            state: state.to_owned(),
            job: job.map(str::to_owned),
            value,
            started_ms: Some(1_000),
            finished_ms: Some(3_500),
            ..PipelineAttemptDocument::default()
        }
    }

    fn run(params: Value, steps: Vec<(&str, Vec<PipelineAttemptDocument>)>) -> PipelineRunDocument {
        let step = |(name, attempts): (&str, Vec<_>)| PipelineStepDocument {
            name: name.to_owned(),
            attempts,
            ..PipelineStepDocument::default()
        };
        let steps = steps.into_iter().map(step).collect();
        PipelineRunDocument { params, steps: Some(steps), ..PipelineRunDocument::default() }
    }

    #[test]
    fn current_attempts_are_compared_by_step_and_item() {
        let first = run(
            json!({"epochs": 1, "seed": 2}),
            vec![
                ("train", vec![attempt(1, "FAILED", Some("a-1"), None), attempt(2, "SUCCEEDED", Some("a-2"), None)]),
                ("try", vec![attempt(1, "SUCCEEDED", Some("a-3"), Some(json!(0.1)))]),
            ],
        );
        let running = PipelineAttemptDocument { finished_ms: None, ..attempt(1, "RUNNING", Some("b-1"), None) };
        let second = run(
            json!({"epochs": 3, "seed": 2}),
            vec![("train", vec![running]), ("try", vec![attempt(1, "SUCCEEDED", None, Some(json!(0.2)))])],
        );
        let metrics = JobMetrics::from([
            ("a-1".to_owned(), members(&json!({"loss": 9.0}))),
            ("a-2".to_owned(), members(&json!({"loss": 0.5}))),
            ("b-1".to_owned(), members(&json!({"loss": 0.25, "accuracy": null}))),
        ]);
        let compared = comparison(vec![first, second], &metrics, 11_000);
        let differing: Vec<(&str, bool)> = compared.params.iter().map(|it| (it.name.as_str(), it.differs)).collect();
        assert_eq!(differing, [("epochs", true), ("seed", false)]);
        let items: Vec<_> = compared.steps.iter().map(|step| (step.name.as_str(), step.item.clone())).collect();
        assert_eq!(items, [("train", None), ("try", Some(json!(0.1))), ("try", Some(json!(0.2)))]);
        let train = &compared.steps[0];
        let seconds: Vec<_> = train.attempts.iter().map(|it| it.as_ref().and_then(|it| it.seconds)).collect();
        assert_eq!(seconds, [Some(2.5), Some(10.0)], "a running step has its time so far");
        assert_eq!(train.metrics[0].values, [json!(0.5), json!(0.25)], "of the last attempts");
        assert_eq!(compared.steps[1].attempts[1], None);
    }

    #[test]
    fn outputs_differ_by_their_digests_and_else_by_their_references() {
        let with = |value: &str, digest: Option<&str>| {
            let mut attempt = attempt(1, "SUCCEEDED", None, None);
            let output = PipelineOutputDocument { value: json!(value), kind: None, digest: digest.map(str::to_owned) };
            attempt.outputs.insert("model".to_owned(), output);
            attempt
        };
        let differs = |first: &PipelineAttemptDocument, second: &PipelineAttemptDocument| {
            compared_outputs(&[Some(first), Some(second)])[0].differs
        };
        assert!(!differs(&with("model:a@1", Some("ab")), &with("model:a@2", Some("ab"))));
        assert!(differs(&with("model:a@1", Some("ab")), &with("model:a@1", Some("cd"))));
        assert!(differs(&with("model:a@1", None), &with("model:a@2", None)));
        let missing = compared_outputs(&[Some(&with("model:a@1", None)), None]);
        assert!(missing[0].differs && missing[0].outputs[1].is_none());
    }
}
