//! Sweeps side by side: methods, ranges, settings, and what came of them.

use saggar_rest::comparisons::{COMPARED_SWEEPS, ComparedSweepDocument, ComparisonDocument, SweepComparisonDocument};
use saggar_rest::sweeps::{SweepDocument, TrialDocument};
use saggar_store::records::SweepRecord;
use serde_json::{Map, Value};

use super::values::{compared_values, members};
use crate::api::sweeps::sweep_with_trials;
use crate::app::AppState;
use crate::error::ApiError;

/// Compares sweeps, in this order.
pub(super) async fn compare_sweeps(app: &AppState, sweeps: &[SweepRecord]) -> Result<ComparisonDocument, ApiError> {
    let mut documents = Vec::with_capacity(sweeps.len());
    for sweep in sweeps {
        documents.push(sweep_with_trials(app, sweep).await?);
    }
    let comparison = comparison(&documents, app.now_ms());
    let kind = COMPARED_SWEEPS.to_owned();
    Ok(ComparisonDocument { kind, sweeps: Some(comparison), ..ComparisonDocument::default() })
}

fn comparison(sweeps: &[SweepDocument], now_ms: u64) -> SweepComparisonDocument {
    let of =
        |part: fn(&SweepDocument) -> Map<String, Value>| compared_values(&sweeps.iter().map(part).collect::<Vec<_>>());
    SweepComparisonDocument {
        sweeps: sweeps.iter().map(|sweep| sweep_summary(sweep, now_ms)).collect(),
        space: of(|sweep| members(&sweep.spec["space"])),
        settings: of(settings),
        best_parameters: of(|sweep| best_trial(sweep).map(|trial| trial.parameters.clone()).unwrap_or_default()),
    }
}

fn best_trial(sweep: &SweepDocument) -> Option<&TrialDocument> {
    sweep.trials.iter().flatten().find(|trial| Some(trial.number) == sweep.best)
}

/// Returns the specification without the space and what the summary has: `eta`, `job.data`, `job.parameters.epochs`.
fn settings(sweep: &SweepDocument) -> Map<String, Value> {
    let mut settings = Map::new();
    for (name, value) in members(&sweep.spec) {
        match name.as_str() {
            "space" | "method" | "metric" => {}
            "job" => {
                for (field, value) in members(&value) {
                    match (field.as_str(), value) {
                        ("parameters", Value::Object(parameters)) => settings
                            .extend(parameters.into_iter().map(|(key, it)| (format!("job.parameters.{key}"), it))),
                        (_, value) => drop(settings.insert(format!("job.{field}"), value)),
                    }
                }
            }
            _ => drop(settings.insert(name, value)),
        }
    }
    settings
}

fn sweep_summary(sweep: &SweepDocument, now_ms: u64) -> ComparedSweepDocument {
    let trials = || sweep.trials.iter().flatten();
    ComparedSweepDocument {
        name: sweep.name.clone(),
        project: sweep.project.clone(),
        state: sweep.state.clone(),
        method: sweep.method.clone(),
        metric: sweep.metric.clone(),
        direction: sweep.direction.clone(),
        trials_target: sweep.trials_target,
        trial_states: sweep.trial_states.clone(),
        steps: trials().map(|trial| trial.own_steps()).fold(0, u64::saturating_add),
        gpu_seconds: trials().map(|trial| trial.gpu_seconds).fold(0.0, |sum, it| sum + it),
        seconds: sweep.finished_ms.unwrap_or(now_ms).saturating_sub(sweep.created_ms) as f64 / 1000.0,
        best: sweep.best,
        best_value: sweep.best_value,
        best_job: best_trial(sweep).and_then(|trial| trial.job.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sweeps_are_compared_by_space_settings_and_best_trial() {
        let sweep = |range: &str, epochs: u64, best: u32| {
            let trial = |number: u32| TrialDocument {
                number,
                step: 10 * u64::from(number),
                gpu_seconds: 0.5,
                parameters: members(&json!({"lr": f64::from(number) / 10.0})),
                job: Some(format!("digits-{number}")),
                ..TrialDocument::default()
            };
            SweepDocument {
                spec: json!({"space": {"lr": range}, "method": "asha", "metric": "loss", "eta": 3,
                             "job": {"parameters": {"epochs": epochs}, "seed": 7}}),
                trials: Some(vec![trial(1), trial(2)]),
                best: Some(best),
                created_ms: 1_000,
                ..SweepDocument::default()
            }
        };
        let compared = comparison(&[sweep("log(1e-4,1e-1)", 3, 1), sweep("0.1,0.2", 3, 2)], 5_000);
        let summary = &compared.sweeps[0];
        assert_eq!((summary.steps, summary.gpu_seconds, summary.seconds), (30, 1.0, 4.0));
        assert_eq!(summary.best_job.as_deref(), Some("digits-1"));
        assert_eq!(compared.space[0].values, [json!("log(1e-4,1e-1)"), json!("0.1,0.2")]);
        let settings: Vec<_> = compared.settings.iter().map(|it| (it.name.as_str(), it.differs)).collect();
        assert_eq!(settings, [("eta", false), ("job.parameters.epochs", false), ("job.seed", false)]);
        assert_eq!(compared.best_parameters[0].values, [json!(0.1), json!(0.2)]);
        assert!(compared.best_parameters[0].differs);
    }
}
