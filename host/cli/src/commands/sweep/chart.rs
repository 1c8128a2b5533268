//! `saggar sweep results --png`: the metric of the best trials over steps, and all trials by their parameters.

use std::collections::BTreeSet;

use saggar_charts::{ChartPanel, LINES_MAX, ParallelChart, SeriesLine, TrialLine, TrialValue, format_number};
use saggar_rest::sweeps::{SweepDocument, TrialDocument};
use serde_json::Value;

use super::results::sorted_trials;
use crate::args::{ChartFileArgs, ChartLookArgs};
use crate::client::ApiClient;
use crate::commands::jobs::job_series::JobMetrics;
use crate::commands::series_charts::line_chart;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// Trials whose metric is drawn over steps, if no limit is given.
const CURVES_DEFAULT: usize = 8;
/// Parameters that are named beside a trial.
const NAMED_PARAMETERS: usize = 2;

/// Draws both charts into the files that the arguments name.
///
/// # Errors
/// No trial has a value yet; the server's errors; a file cannot be written.
pub(super) fn write(
    sweep: &SweepDocument,
    limit: Option<usize>,
    (files, look): (&ChartFileArgs, &ChartLookArgs),
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    let trials = sorted_trials(sweep);
    if trials.iter().all(|trial| trial.value.is_none()) {
        let message = format!("no trial of {} has a value of {} yet", sweep.name, sweep.metric);
        return Err(CliError::new(exit::NOT_FOUND, "no_series", message)
            .with_hint(format!("`saggar sweep status {}` shows its trials", sweep.name)));
    }
    let parameters = parameter_order(sweep);
    let count = limit.unwrap_or(CURVES_DEFAULT).clamp(1, LINES_MAX);
    let measured: Vec<&TrialDocument> =
        trials.iter().copied().filter(|trial| trial.value.is_some() && trial.job.is_some()).take(count).collect();
    let mut lines = Vec::new();
    for trial in measured {
        let job = trial.job.as_deref().unwrap_or_default();
        let points = match JobMetrics::fetch(job, std::slice::from_ref(&sweep.metric), 0, client) {
            Ok(mut measured) => measured.take_points(&sweep.metric),
            // A job can be removed while the sweep keeps its value.
            Err(failure) if failure.code == "not_found" => continue,
            Err(failure) => return Err(failure),
        };
        lines.push(SeriesLine { name: trial_name(trial, &parameters), points });
    }
    let mut curves = line_chart(&sweep.metric, lines, &[], look.curves);
    curves.title = format!("{}: the best {} of {} trials", curves.title, curves.lines.len(), trials.len());
    let panels = vec![ChartPanel::Lines(curves), ChartPanel::Parallel(parallel_chart(sweep, &trials, parameters))];
    files.write(look, (sweep.name.clone(), panels), output)
}

/// Returns the searched parameters, the most important ones first.
fn parameter_order(sweep: &SweepDocument) -> Vec<String> {
    let mut names: Vec<String> =
        sweep.importance.iter().flatten().map(|importance| importance.parameter.clone()).collect();
    let searched: BTreeSet<&String> = sweep.trials.iter().flatten().flat_map(|trial| trial.parameters.keys()).collect();
    names.extend(searched.into_iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>());
    names
}

fn trial_name(trial: &TrialDocument, parameters: &[String]) -> String {
    let known = parameters.iter().filter_map(|name| Some((name, trial.parameters.get(name)?)));
    let named = known.take(NAMED_PARAMETERS).map(|(name, value)| format!(" {name}={}", value_text(value)));
    format!("trial {}{}", trial.number, named.collect::<String>())
}

fn parallel_chart(sweep: &SweepDocument, trials: &[&TrialDocument], parameters: Vec<String>) -> ParallelChart {
    let line = |trial: &&TrialDocument| TrialLine {
        name: format!("trial {}", trial.number),
        values: parameters.iter().map(|name| axis_value(trial.parameters.get(name))).collect(),
        score: trial.value,
    };
    ParallelChart {
        title: format!("{} trials by their parameters", trials.len()),
        metric: sweep.metric.clone(),
        is_lowest_best: sweep.direction == "min",
        trials: trials.iter().map(line).collect(),
        parameters,
    }
}

fn axis_value(value: Option<&Value>) -> TrialValue {
    match value {
        None | Some(Value::Null) => TrialValue::Missing,
        Some(Value::Number(number)) => number.as_f64().map_or(TrialValue::Missing, TrialValue::Number),
        Some(value) => TrialValue::Text(value_text(value)),
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format_number(number.as_f64().unwrap_or(f64::NAN)),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use saggar_rest::sweeps::ParameterImportanceDocument;
    use serde_json::json;

    use super::*;

    fn sweep() -> SweepDocument {
        let trial = |number, value, parameters: Value| TrialDocument {
            number,
            value,
            parameters: parameters.as_object().unwrap().clone(),
            ..TrialDocument::default()
        };
        let importance = |name: &str| ParameterImportanceDocument { parameter: name.to_owned(), ..Default::default() };
        SweepDocument {
            metric: "loss".to_owned(),
            direction: "min".to_owned(),
            trials: Some(vec![
                trial(1, Some(0.5), json!({"lr": 0.1, "kind": "a"})),
                trial(2, None, json!({"lr": 0.2, "kind": null, "on": true})),
                trial(3, Some(0.25), json!({"lr": 0.3})),
            ]),
            importance: Some(vec![importance("lr")]),
            ..SweepDocument::default()
        }
    }

    #[test]
    fn axes_begin_with_the_most_important_parameter_and_trials_with_the_best() {
        let sweep = sweep();
        let trials = sorted_trials(&sweep);
        let chart = parallel_chart(&sweep, &trials, parameter_order(&sweep));
        assert_eq!(chart.parameters, ["lr", "kind", "on"]);
        assert!(chart.is_lowest_best);
        let names: Vec<&str> = chart.trials.iter().map(|trial| trial.name.as_str()).collect();
        assert_eq!(names, ["trial 3", "trial 1", "trial 2"]);
        let text = |text: &str| TrialValue::Text(text.to_owned());
        assert_eq!(chart.trials[1].values, [TrialValue::Number(0.1), text("a"), TrialValue::Missing]);
        assert_eq!(chart.trials[2].values, [TrialValue::Number(0.2), TrialValue::Missing, text("true")]);
        assert_eq!(trial_name(trials[1], &chart.parameters), "trial 1 lr=0.1 kind=a");
    }
}
