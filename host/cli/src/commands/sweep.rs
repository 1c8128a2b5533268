//! `saggar sweep`: searches for parameters of a training.

mod chart;
mod results;
mod start;

use std::time::Duration;

use saggar_rest::sweeps::{
    PublishTrialRequest, SweepDocument, SweepListDocument, SweepPublicationDocument, TrialDocument, TrialParentDocument,
};
use serde_json::{Map, Value};

use crate::args::{SweepArgs, SweepCommand};
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::commands::jobs::change_each;
use crate::exit::{self, CliError};
use crate::interrupt;
use crate::output::{CliOutput, print_to_stderr};
use crate::reconnect::ReconnectState;

/// How often a followed sweep is read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Runs the command and returns its exit code.
pub(crate) fn sweep(args: SweepArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    match &args.command {
        None => return start::start(*args.start, client, output),
        Some(SweepCommand::Ls) => list(client, output)?,
        Some(SweepCommand::Status { sweep }) => {
            let sweep: SweepDocument = client.get(&sweep_path(sweep))?;
            show_status(&sweep, output);
        }
        Some(SweepCommand::Stop { sweeps }) => change_each(sweeps, output, |name| {
            let sweep: SweepDocument = client.post(&format!("{}/stop", sweep_path(name)), RequestBody::Empty)?;
            Ok((format!("{} is stopped; `saggar sweep resume {}` continues it", sweep.name, sweep.name), sweep))
        })?,
        Some(SweepCommand::Resume { sweeps }) => change_each(sweeps, output, |name| {
            let sweep: SweepDocument = client.post(&format!("{}/resume", sweep_path(name)), RequestBody::Empty)?;
            Ok((format!("{} continues", sweep.name), sweep))
        })?,
        Some(SweepCommand::Publish { sweep, model }) => publish(sweep, model.clone(), client, output)?,
        Some(SweepCommand::Results { sweep, limit, save_task, files, look }) => {
            files.check_look(look)?;
            files.check_absent(look)?;
            let sweep: SweepDocument = client.get(&sweep_path(sweep))?;
            if let Some(task) = save_task {
                results::save_task(&sweep, task, output)?;
            }
            if files.is_requested() {
                chart::write(&sweep, *limit, (files, look), client, output)?;
            } else {
                results::show(&sweep, *limit, output);
            }
        }
    }
    Ok(0)
}

fn sweep_path(name: &str) -> String {
    format!("/api/v1/sweeps/{}", encode_path_segment(name))
}

/// Publishes the result of the best trial.
fn publish(sweep: &str, model: Option<String>, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let body = RequestBody::json(&PublishTrialRequest { model });
    let done: SweepPublicationDocument = client.post(&format!("{}/publish", sweep_path(sweep)), body)?;
    if output.json {
        output.print_json(&done);
        return Ok(());
    }
    output.print_line(&format!("{}@{}", done.model, done.version));
    let value = done.value.map_or_else(String::new, |value| format!(", {}", format_value(value)));
    output.print_note(&format!(
        "  trial {} of {} ({}{value}), from {}; it is the default of {} now",
        done.trial, done.sweep, done.job, done.source, done.model
    ));
    output.print_note(&format!("Next: saggar predict {} | saggar models rollback {}", done.model, done.model));
    Ok(())
}

fn list(client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let listed: SweepListDocument = client.get("/api/v1/sweeps")?;
    if output.json {
        output.print_json(&listed.sweeps);
        return Ok(());
    }
    if listed.sweeps.is_empty() {
        output.print_note(
            "No sweeps. `saggar sweep lenet --data digits --grid lr=0.1,0.01 --metric accuracy` starts one.",
        );
        return Ok(());
    }
    let row = |sweep: &SweepDocument| {
        let over = trials_over(sweep);
        vec![
            sweep.name.clone(),
            output.format_state(&sweep.state),
            sweep.method.clone(),
            format!("{over}/{}", trials_in_all(sweep)),
            format!("{} {}", sweep.direction, sweep.metric),
            sweep.best_value.map_or_else(|| "-".to_owned(), format_value),
            sweep.reason.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = listed.sweeps.iter().map(row).collect();
    output.print_table(&["SWEEP", "STATE", "METHOD", "TRIALS", "METRIC", "BEST", "REASON"], &rows);
    Ok(())
}

/// Returns the number of trials that are over.
fn trials_over(sweep: &SweepDocument) -> u64 {
    let over = ["COMPLETED", "STOPPED", "FAILED"];
    over.iter().filter_map(|state| sweep.trial_states.get(*state)).sum()
}

/// Returns the number of trials that the sweep is to have, with the copies of a population so far.
fn trials_in_all(sweep: &SweepDocument) -> u64 {
    sweep.trial_states.values().sum::<u64>().max(sweep.trials_target.into())
}

fn show_status(sweep: &SweepDocument, output: CliOutput) {
    if output.json {
        return output.print_json(sweep);
    }
    let because = if sweep.message.is_empty() { String::new() } else { format!(": {}", sweep.message) };
    output.print_line(&format!("{} {}{because}", sweep.name, output.format_state(&sweep.state)));
    let (method, metric) = (&sweep.method, format!("{} {}", sweep.direction, sweep.metric));
    let trials = sweep.trials.as_deref().unwrap_or_default();
    let target = match trials.iter().any(|trial| trial.member.is_some()) {
        true => format!("a population of {}", sweep.trials_target),
        false => format!("{} trials", sweep.trials_target),
    };
    output.print_line(&format!("  method {method}, metric {metric}, {target}"));
    print_trials(&trials.iter().collect::<Vec<_>>(), output);
}

/// Prints trials as a table; those of a population with their member and the state that they continue from.
fn print_trials(trials: &[&TrialDocument], output: CliOutput) {
    let has_members = trials.iter().any(|trial| trial.member.is_some());
    let headers = ["TRIAL", "MEMBER", "FROM", "STATE", "JOB", "STEP", "VALUE", "PARAMETERS", "REASON"];
    let columns = |cells: Vec<String>| -> Vec<String> {
        let is_shown = |(index, _): &(usize, String)| has_members || ![1, 2].contains(index);
        cells.into_iter().enumerate().filter(is_shown).map(|(_, cell)| cell).collect()
    };
    let header_row = columns(headers.map(str::to_owned).to_vec());
    let rows: Vec<Vec<String>> = trials.iter().map(|trial| columns(trial_cells(trial, output))).collect();
    output.print_table(&header_row.iter().map(String::as_str).collect::<Vec<_>>(), &rows);
}

fn trial_cells(trial: &TrialDocument, output: CliOutput) -> Vec<String> {
    let reason = if trial.message.is_empty() { trial.reason.clone() } else { trial.message.clone() };
    vec![
        trial.number.to_string(),
        trial.member.map_or_else(String::new, |member| member.to_string()),
        trial.parent.as_ref().map_or_else(|| "-".to_owned(), format_parent),
        output.format_state(&trial.state),
        trial.job.clone().unwrap_or_else(|| "-".to_owned()),
        format!("{}/{}", trial.step, trial.steps_target),
        trial.value.map_or_else(|| "-".to_owned(), format_value),
        format_parameters(&trial.parameters),
        reason,
    ]
}

/// Formats the state that a copy continues from: `4@120`, trial 4 at step 120.
fn format_parent(parent: &TrialParentDocument) -> String {
    match parent.step {
        Some(step) => format!("{}@{step}", parent.trial),
        None => parent.trial.to_string(),
    }
}

fn format_value(value: f64) -> String {
    format!("{value:.6}")
}

fn format_parameters(parameters: &Map<String, Value>) -> String {
    let word = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={text}"),
        value => format!("{name}={value}"),
    };
    parameters.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Prints how trials change until the sweep is over or stopped, and then its results. Returns the exit code.
fn follow(client: &ApiClient, output: CliOutput, name: &str) -> Result<i32, CliError> {
    let interrupted = name.to_owned();
    interrupt::set_interrupt_action(move || {
        print_to_stderr(&format!(
            "\n{interrupted} keeps running. `saggar sweep status {interrupted}` shows it, `saggar sweep stop {interrupted}` stops it."
        ));
    });
    let mut reconnect = ReconnectState::new(output);
    let mut printed_trials: Vec<TrialDocument> = Vec::new();
    loop {
        let sweep: SweepDocument = loop {
            match client.get(&sweep_path(name)) {
                Ok(sweep) => break sweep,
                Err(failure) => reconnect.wait_for_retry(failure)?,
            }
        };
        reconnect.note_connected();
        let trials = sweep.trials.clone().unwrap_or_default();
        for (index, trial) in trials.iter().enumerate() {
            let before = printed_trials.get(index);
            if before.is_none_or(|before| (&before.state, before.rung) != (&trial.state, trial.rung)) {
                let value = trial.value.map_or_else(String::new, |value| format!("  {}", format_value(value)));
                let parent = trial.parent.as_ref().map(|parent| format!(" from {}", format_parent(parent)));
                let (parent, parameters) = (parent.unwrap_or_default(), format_parameters(&trial.parameters));
                let line = format!("trial {}{parent} {} {parameters}{value}", trial.number, trial.state);
                output.print_note(&line);
            }
        }
        printed_trials = trials;
        if sweep.state != "RUNNING" {
            results::show(&sweep, None, output);
            return Ok(if sweep.state == "FAILED" { exit::JOB_FAILED } else { 0 });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
