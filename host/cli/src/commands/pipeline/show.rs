//! Pipeline runs as tables.

use std::collections::HashMap;

use saggar_rest::pipelines::{PipelineAttemptDocument, PipelineRunDocument, PipelineStepDocument};

use crate::exit;
use crate::output::CliOutput;
use crate::units;

/// Prints runs, newest first.
pub(super) fn print_runs(runs: &[PipelineRunDocument], output: CliOutput) {
    let row = |run: &PipelineRunDocument| {
        vec![
            run.name.clone(),
            output.format_state(&run.state),
            run.project.clone(),
            units::format_time(run.created_ms),
            run.finished_ms.map_or("-".to_owned(), units::format_time),
            reason(&run.message),
        ]
    };
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    output.print_table(&["RUN", "STATE", "PROJECT", "STARTED", "ENDED", "REASON"], &rows);
}

fn reason(message: &str) -> String {
    if message.is_empty() { "-".to_owned() } else { message.to_owned() }
}

/// Prints a run with the attempts of its steps.
pub(super) fn print_run(run: &PipelineRunDocument, output: CliOutput) {
    if output.json {
        return output.print_json(run);
    }
    output.print_line(&format!("{}  {}  {}", run.name, output.format_state(&run.state), run.message));
    if let Some(earlier) = &run.reuse_from {
        output.print_line(&format!("  results of {earlier} are used where nothing changed"));
    }
    for (name, value) in run.params.as_object().into_iter().flatten() {
        output.print_line(&format!("  {name} = {value}"));
    }
    let mut rows = Vec::new();
    for step in run.steps.iter().flatten() {
        for attempt in &step.attempts {
            rows.push(vec![
                item_name(step, attempt),
                step.kind.clone(),
                attempt.attempt.to_string(),
                output.format_state(&attempt.state),
                attempt.job.clone().unwrap_or_else(|| "-".to_owned()),
                reason(&attempt.message),
            ]);
        }
    }
    output.print_table(&["STEP", "KIND", "ATTEMPT", "STATE", "JOB", "REASON"], &rows);
}

/// Returns the name of a step, with the item if it has items.
fn item_name(step: &PipelineStepDocument, attempt: &PipelineAttemptDocument) -> String {
    match &attempt.value {
        Some(value) => format!("{}[{value}]", step.name),
        None => step.name.clone(),
    }
}

/// Prints how a run ended, and returns the exit code.
pub(super) fn print_end(run: &PipelineRunDocument, output: CliOutput) -> i32 {
    match output.json {
        true => output.print_json_line(run),
        false => output.print_line(format!("{} {} {}", run.name, run.state, run.message).trim_end()),
    }
    match run.state.as_str() {
        "SUCCEEDED" => 0,
        "CANCELLED" => exit::JOB_CANCELLED,
        _ => exit::JOB_FAILED,
    }
}

/// The last previous state of each attempt.
#[derive(Default)]
pub(super) struct StepChanges(HashMap<(String, u32, u32), String>);

impl StepChanges {
    /// Prints the states that changed since the last call, to standard error.
    pub(super) fn print_new(&mut self, run: &PipelineRunDocument, output: CliOutput) {
        for step in run.steps.iter().flatten() {
            for attempt in &step.attempts {
                let key = (step.name.clone(), attempt.item, attempt.attempt);
                let previous = self.0.insert(key, attempt.state.clone());
                if attempt.state == "PENDING" || previous.as_ref() == Some(&attempt.state) {
                    continue;
                }
                let job = attempt.job.as_deref().unwrap_or_default();
                let line = format!("{} {} {job} {}", item_name(step, attempt), attempt.state, attempt.message);
                output.print_note(line.trim_end());
                if attempt.state == "WAITING" {
                    output.print_note(&format!("  saggar pipeline approve {} {}", run.name, step.name));
                }
            }
        }
    }
}
