//! Pipeline runs and sweeps side by side: a column each, and a row for each thing that differs or was measured.

use std::collections::BTreeSet;

use saggar_rest::comparisons::{
    ComparedSweepDocument, ComparedValuesDocument, PipelineRunComparisonDocument, SweepComparisonDocument,
};
use saggar_rest::pipelines::PipelineOutputDocument;
use serde_json::Value;

use super::run_chart::step_name;
use crate::output::CliOutput;
use crate::units;

/// The hexadecimal digits of a digest that are shown.
const DIGEST_DIGITS_SHOWN: usize = 12;

/// Prints pipeline runs: states and times, the parameters that differ, every step with its state and time, the outputs
/// that differ, and the last metrics.
pub(super) fn print_runs(comparison: &PipelineRunComparisonDocument, output: CliOutput) {
    let runs = &comparison.runs;
    let mut rows = Rows::default();
    rows.push("state", runs.iter().map(|run| output.format_state(&run.state)));
    rows.push(
        "time",
        runs.iter().map(|run| match run.finished_ms {
            Some(ended) => units::format_duration(ended.saturating_sub(run.created_ms) as f64 / 1000.0),
            None => "-".to_owned(),
        }),
    );
    rows.push_differing("params.", &comparison.params);
    let mut same = 0;
    for step in &comparison.steps {
        let name = step_name(step);
        let cell = |attempt: &Option<_>| attempt.as_ref().map_or("-".to_owned(), |it| format_attempt(it, output));
        rows.push(&name, step.attempts.iter().map(cell));
        for out in &step.outputs {
            if out.differs {
                rows.push(&format!("{name}.{}", out.name), out.outputs.iter().map(format_output));
            } else {
                same += 1;
            }
        }
        rows.push_all(&format!("{name}."), &step.metrics);
    }
    let mut headers = vec!["FIELD"];
    headers.extend(runs.iter().map(|run| run.name.as_str()));
    output.print_table(&headers, &rows.0);
    if same > 0 {
        output.print_note(&format!("{same} outputs are the same."));
    }
}

fn format_attempt(attempt: &saggar_rest::comparisons::ComparedAttemptDocument, output: CliOutput) -> String {
    let mut text = output.format_state(&attempt.state);
    if let Some(seconds) = attempt.seconds {
        text.push_str(&format!(" {}", units::format_duration(seconds)));
    }
    if attempt.attempt > 1 {
        text.push_str(&format!(", attempt {}", attempt.attempt));
    }
    match (&attempt.cached_from, &attempt.job) {
        (Some(run), _) => text.push_str(&format!(", cached from {run}")),
        (None, Some(job)) => text.push_str(&format!(", {job}")),
        (None, None) => {}
    }
    text
}

fn format_output(output: &Option<PipelineOutputDocument>) -> String {
    let Some(output) = output else { return "-".to_owned() };
    let value = match &output.value {
        Value::String(text) => text.escape_debug().to_string(),
        other => other.to_string(),
    };
    match &output.digest {
        None => value,
        Some(digest) => {
            let digits: String = digest.chars().take(DIGEST_DIGITS_SHOWN).collect();
            format!("{value} {}", digits.escape_debug())
        }
    }
}

/// Prints sweeps: how they searched, the ranges, what differs in their settings, and what came of them.
pub(super) fn print_sweeps(comparison: &SweepComparisonDocument, output: CliOutput) {
    let sweeps = &comparison.sweeps;
    let mut rows = Rows::default();
    let text = |name: &str, of: fn(&ComparedSweepDocument) -> String| (name.to_owned(), of);
    rows.push("state", sweeps.iter().map(|sweep| output.format_state(&sweep.state)));
    for (name, of) in [
        text("method", |sweep| sweep.method.clone()),
        text("metric", |sweep| format!("{} ({})", sweep.metric.escape_debug(), sweep.direction)),
    ] {
        rows.push(&name, sweeps.iter().map(of));
    }
    rows.push_all("space.", &comparison.space);
    rows.push_differing("", &comparison.settings);
    for (name, of) in [
        text("trial states", |sweep| {
            let states = sweep.trial_states.iter().map(|(state, count)| format!("{count} {state}"));
            format!("{} of {}", states.collect::<Vec<_>>().join(", "), sweep.trials_target)
        }),
        text("steps", |sweep| sweep.steps.to_string()),
        text("gpu-sec", |sweep| format!("{:.2}", sweep.gpu_seconds)),
        text("time", |sweep| units::format_duration(sweep.seconds)),
        text("best value", |sweep| sweep.best_value.map_or("-".to_owned(), |value| format!("{value:.4}"))),
        text("best job", |sweep| sweep.best_job.clone().unwrap_or_else(|| "-".to_owned())),
    ] {
        rows.push(&name, sweeps.iter().map(of));
    }
    rows.push_all("best ", &comparison.best_parameters);
    let mut headers = vec!["FIELD"];
    headers.extend(sweeps.iter().map(|sweep| sweep.name.as_str()));
    output.print_table(&headers, &rows.0);
    // Values of different series say nothing about each other.
    let metrics: BTreeSet<(&str, &str)> =
        sweeps.iter().map(|sweep| (sweep.metric.as_str(), sweep.direction.as_str())).collect();
    if metrics.len() > 1 {
        output.print_note("The sweeps have different metrics, so their best values cannot be compared.");
    }
}

/// The rows of a table.
#[derive(Default)]
struct Rows(Vec<Vec<String>>);

impl Rows {
    fn push(&mut self, name: &str, cells: impl Iterator<Item = String>) {
        self.0.push([name.escape_debug().to_string()].into_iter().chain(cells).collect());
    }

    fn push_all(&mut self, prefix: &str, values: &[ComparedValuesDocument]) {
        values.iter().for_each(|it| self.push(&format!("{prefix}{}", it.name), it.values.iter().map(format_value)));
    }

    fn push_differing(&mut self, prefix: &str, values: &[ComparedValuesDocument]) {
        values.iter().filter(|it| it.differs).for_each(|it| self.push_all(prefix, std::slice::from_ref(it)));
    }
}

fn format_value(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.escape_debug().to_string(),
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if number.abs() >= 0.001 { format!("{number:.4}") } else { format!("{number}") }
        }
        value => value.to_string().escape_debug().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_have_a_cell_for_each_and_leave_out_what_is_the_same() {
        let values = |name: &str, values: [Value; 2]| ComparedValuesDocument {
            name: name.to_owned(),
            differs: values[0] != values[1],
            values: values.to_vec(),
        };
        let given = [values("epochs", [json!(1), json!(3)]), values("seed", [json!(7), json!(7)])];
        let mut rows = Rows::default();
        rows.push_differing("params.", &given);
        rows.push_all(
            "",
            &[values("lr", [json!(0.00012), json!(0.123_456)]), values("kind", [json!("a\nb"), Value::Null])],
        );
        assert_eq!(rows.0, [["params.epochs", "1", "3"], ["lr", "0.00012", "0.1235"], ["kind", "a\\nb", "-"],]);
    }

    #[test]
    fn outputs_are_shown_with_the_first_digits_of_their_digest() {
        let output = |digest: Option<&str>| {
            let digest = digest.map(str::to_owned);
            Some(PipelineOutputDocument { value: json!("model:a@1"), kind: None, digest })
        };
        assert_eq!(format_output(&output(Some(&"ab".repeat(32)))), "model:a@1 abababababab");
        assert_eq!(format_output(&output(None)), "model:a@1");
        assert_eq!(format_output(&None), "-");
    }
}
