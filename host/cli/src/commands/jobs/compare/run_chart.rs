//! `saggar compare --png` of pipeline runs: one series of their steps' jobs as lines of a chart.

use saggar_charts::{LINES_MAX, SeriesLine};
use saggar_rest::comparisons::{ComparedStepDocument, PipelineRunComparisonDocument};
use serde_json::Value;

use super::series_choice;
use crate::args::CompareArgs;
use crate::client::ApiClient;
use crate::commands::jobs::job_series::JobMetrics;
use crate::exit::CliError;
use crate::output::CliOutput;

/// Draws the chart into the files that the arguments name: a line for each step of each run whose job has the series.
///
/// # Errors
/// No step has the series; the server's errors; a file cannot be written.
pub(super) fn write(
    args: &CompareArgs,
    comparison: &PipelineRunComparisonDocument,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    let known = comparison.steps.iter().flat_map(|step| step.metrics.iter().map(|it| it.name.clone())).collect();
    let series = series_choice::choose_series(args.metric.as_deref(), known, ("pipeline run", "saggar pipeline ls"))?;
    let measured = measured_jobs(comparison, &series);
    if measured.len() > LINES_MAX {
        output.print_note(&format!("{LINES_MAX} of {} steps are drawn; compare fewer runs", measured.len()));
    }
    let mut lines = Vec::new();
    for (name, job) in measured {
        // Only counted in the legend.
        if lines.len() >= LINES_MAX {
            lines.push(SeriesLine { name, points: Vec::new() });
            continue;
        }
        match JobMetrics::fetch(job, std::slice::from_ref(&series), 0, client) {
            Ok(mut metrics) => lines.push(SeriesLine { name, points: metrics.take_points(&series) }),
            // A job can be removed while the run keeps the last values of its metrics.
            Err(failure) if failure.code == "not_found" => {
                output.print_note(&format!("{name} is not drawn: its job {job} was removed"));
            }
            Err(failure) => return Err(failure),
        }
    }
    let title = format!("{series} of {} pipeline runs", comparison.runs.len());
    series_choice::write_series(args, &title, (&series, lines), output)
}

/// Returns the jobs of steps that have the series, each with the name of its line: `nightly-2 train`.
fn measured_jobs<'a>(comparison: &'a PipelineRunComparisonDocument, series: &str) -> Vec<(String, &'a str)> {
    let mut jobs = Vec::new();
    for step in &comparison.steps {
        let Some(values) = step.metrics.iter().find(|it| it.name == series) else { continue };
        for ((run, attempt), value) in comparison.runs.iter().zip(&step.attempts).zip(&values.values) {
            let job = attempt.as_ref().and_then(|attempt| attempt.job.as_deref());
            if let Some(job) = job.filter(|_| !value.is_null()) {
                jobs.push((format!("{} {}", run.name, step_name(step)), job));
            }
        }
    }
    jobs
}

/// Returns a step's name, with its item: `train[{"lr":0.1}]`.
pub(super) fn step_name(step: &ComparedStepDocument) -> String {
    match &step.item {
        Some(Value::String(text)) => format!("{}[{text}]", step.name),
        Some(item) => format!("{}[{item}]", step.name),
        None => step.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use saggar_rest::comparisons::{ComparedAttemptDocument, ComparedValuesDocument};
    use saggar_rest::pipelines::PipelineRunDocument;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_step_of_each_run_that_has_the_series_is_a_line() {
        let run = |name: &str| PipelineRunDocument { name: name.to_owned(), ..Default::default() };
        let attempt = |job: Option<&str>| {
            Some(ComparedAttemptDocument { job: job.map(str::to_owned), ..ComparedAttemptDocument::default() })
        };
        let step =
            |name: &str, item: Option<Value>, jobs: [Option<&str>; 2], values: [Value; 2]| ComparedStepDocument {
                name: name.to_owned(),
                item,
                attempts: jobs.map(attempt).to_vec(),
                metrics: vec![ComparedValuesDocument {
                    name: "loss".to_owned(),
                    values: values.to_vec(),
                    ..ComparedValuesDocument::default()
                }],
                ..ComparedStepDocument::default()
            };
        let comparison = PipelineRunComparisonDocument {
            runs: vec![run("n-1"), run("n-2")],
            steps: vec![
                step("train", None, [Some("a-1"), Some("a-2")], [json!(0.5), json!(0.25)]),
                step("tune", Some(json!(0.1)), [Some("a-3"), None], [json!(0.5), json!(0.5)]),
                step("push", None, [Some("a-4"), Some("a-5")], [Value::Null, json!(1)]),
            ],
            ..PipelineRunComparisonDocument::default()
        };
        let named = |name: &str, job| (name.to_owned(), job);
        assert_eq!(
            measured_jobs(&comparison, "loss"),
            [
                named("n-1 train", "a-1"),
                named("n-2 train", "a-2"),
                named("n-1 tune[0.1]", "a-3"),
                named("n-2 push", "a-5"),
            ]
        );
        assert_eq!(measured_jobs(&comparison, "accuracy"), []);
    }
}
