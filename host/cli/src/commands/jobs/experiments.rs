//! `saggar experiment`: the labels that jobs share.

use saggar_rest::experiments::{ExperimentDocument, ExperimentListDocument};

use super::compare::compare_experiment;
use super::removal::remove_experiment;
use crate::args::ExperimentCommand;
use crate::client::ApiClient;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::units;

pub(crate) fn experiment(args: &ExperimentCommand, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    match args {
        ExperimentCommand::Ls => list_experiments(client, output),
        ExperimentCommand::Show { name } => compare_experiment(name, client, output),
        ExperimentCommand::Rm { name, yes } => remove_experiment(name, *yes, client, output),
    }
}

fn list_experiments(client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let ExperimentListDocument { experiments } = client.get("/api/v1/experiments")?;
    if output.json {
        output.print_json(&experiments);
        return Ok(());
    }
    if output.quiet {
        experiments.iter().for_each(|it| output.print_line(&it.name));
        return Ok(());
    }
    let row = |it: &ExperimentDocument| {
        let states = it.jobs.iter().map(|(state, count)| format!("{count} {state}"));
        vec![
            it.name.clone(),
            it.jobs.values().sum::<u64>().to_string(),
            states.collect::<Vec<_>>().join(", "),
            it.projects.join(", "),
            units::format_age(it.changed_ms, super::now_ms()),
        ]
    };
    let rows: Vec<Vec<String>> = experiments.iter().map(row).collect();
    output.print_table(&["EXPERIMENT", "JOBS", "STATES", "PROJECTS", "CHANGED"], &rows);
    if rows.is_empty() {
        output.print_note("No experiments. `saggar run --experiment NAME` puts a job into one.");
    }
    Ok(())
}
