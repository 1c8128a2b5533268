//! `saggar data`: datasets and their versions. Transfers are in separate files.

mod data_job;
mod described;
mod export;
mod fetch;
mod ignore_file;
pub(in crate::commands) mod push;
mod recipe;
mod show;

use saggar_jobs::{DataStepFetch, DataStepOutput, DataStepSource};
use saggar_rest::datasets::{DatasetDocument, DatasetFromJobRequest, DatasetListDocument, RemovedDatasetDocument};
use saggar_rest::projects::AssignProjectsRequest;
use serde::Serialize;

use crate::args::{DataAddArgs, DataCommand, DataFetchArgs, DataRmArgs};
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::commands::models::print_projects;
use crate::exit::{self, CliError};
use crate::output::{CliOutput, confirm};
use crate::project;
use crate::units;

/// Runs a command about datasets, and returns its exit code.
pub(crate) fn data(args: &DataCommand, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    match args {
        DataCommand::Fetch(fetch) if fetch.on_server => {
            let DataFetchArgs { url, sha256, name, detach, .. } = fetch;
            let from = DataStepSource::Fetch(DataStepFetch { url: url.clone(), sha256: sha256.clone() });
            data_job::submit_data_step(name, from, *detach, client, output)
        }
        DataCommand::Add(add) if add.as_job => {
            let (job, path) = output_of_job(&add.job);
            let from = DataStepSource::Output(DataStepOutput { job, path });
            data_job::submit_data_step(&add.name, from, add.detach, client, output)
        }
        other => run_at_once(other, client, output).map(|()| 0),
    }
}

/// Runs a command that submits no job.
fn run_at_once(args: &DataCommand, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    match args {
        DataCommand::Recipe(recipe) => recipe::recipe(recipe, client, output),
        DataCommand::Push(push) => push::push(push, client, output),
        DataCommand::Fetch(fetch) => fetch::fetch(fetch, client, output),
        DataCommand::Ls { name } => list_datasets(name.as_deref(), client, output),
        DataCommand::Show { dataset } => show::show(dataset, client, output),
        DataCommand::Export(export) => export::export(export, client, output),
        DataCommand::Add(add) => self::add_from_job(add, client, output),
        DataCommand::Schema => {
            output.print_json(&saggar_store::dataset_description_schema());
            Ok(())
        }
        DataCommand::Rm(rm) => remove_versions(rm, client, output),
        DataCommand::Projects { name, projects } => {
            let path = format!("/api/v1/datasets/{}/projects", encode_path_segment(name));
            let request = AssignProjectsRequest { projects: projects.clone() };
            print_projects(&client.put_json(&path, &request)?, output);
            Ok(())
        }
    }
}

/// Fields that are listed when a version was stored.
const FIELDS_NOTED: usize = 20;

/// Prints which version was stored, with a detail.
fn print_stored_version(stored: &DatasetDocument, detail: &str, output: CliOutput) {
    if output.json {
        output.print_json(stored);
        return;
    }
    output.print_line(&version_reference(stored));
    let splits: Vec<String> = stored.splits.iter().map(|(name, items)| format!("{name} {items}")).collect();
    output.print_note(&format!("  {} items ({}), {detail}", stored.items, splits.join(", ")));
    for field in stored.fields.iter().take(FIELDS_NOTED) {
        output.print_note(&format!("  {}", show::describe_field(field)));
    }
    if stored.fields.len() > FIELDS_NOTED {
        let more = stored.fields.len() - FIELDS_NOTED;
        output.print_note(&format!("  and {more} more fields: saggar data show {}", version_reference(stored)));
    }
    stored.notes.iter().for_each(|note| output.print_note(&format!("  note: {note}")));
}

/// Formats a reference to a version: `digits/2`.
fn version_reference(dataset: &DatasetDocument) -> String {
    format!("{}/{}", dataset.name, dataset.version)
}

/// Returns the versions that `NAME` or `NAME/VERSION` refers to, lowest first; at least one.
fn find_versions(dataset: &str, client: &ApiClient) -> Result<Vec<DatasetDocument>, CliError> {
    let (name, version) = dataset.split_once('/').map_or((dataset, None), |(name, version)| (name, Some(version)));
    let DatasetListDocument { datasets: mut found } = client.get("/api/v1/datasets")?;
    found.retain(|it| it.name == name && version.is_none_or(|version| Some(it.version) == version.parse().ok()));
    if found.is_empty() {
        return Err(CliError::new(exit::NOT_FOUND, "not_found", format!("there is no dataset {dataset}"))
            .with_hint("`saggar data ls` lists them"));
    }
    found.sort_by_key(|it| it.version);
    Ok(found)
}

/// Returns the job and the path that `JOB` or `JOB/PATH` means.
fn output_of_job(text: &str) -> (String, Option<String>) {
    let (job, path) = text.split_once('/').map_or((text, None), |(job, path)| (job, Some(path)));
    (project::resolve_job_name(job).to_string(), path.filter(|path| !path.is_empty()).map(str::to_owned))
}

fn add_from_job(args: &DataAddArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let (job, path) = output_of_job(&args.job);
    let request = DatasetFromJobRequest { job: job.clone(), path };
    let route = format!("/api/v1/datasets/{}/from-job", encode_path_segment(&args.name));
    let dataset: DatasetDocument = client.post(&route, RequestBody::json(&request))?;
    let bytes = units::format_bytes(dataset.bytes);
    print_stored_version(&dataset, &format!("{bytes} written by {job}"), output);
    Ok(())
}

/// Removed versions of datasets as JSON.
#[derive(Serialize)]
struct RemovedDatasets<'a> {
    removed: &'a [String],
    freed_bytes: u64,
}

fn remove_versions(args: &DataRmArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let versions = find_versions(&args.dataset, client)?;
    let names: Vec<String> = versions.iter().map(version_reference).collect();
    let bytes: u64 = versions.iter().map(|it| it.bytes).sum();
    confirm(args.yes, &format!("Remove {} ({})?", names.join(", "), units::format_bytes(bytes)))?;
    let mut freed = 0;
    for version in &versions {
        let name = encode_path_segment(&version.name);
        let removed: RemovedDatasetDocument = client.delete(&format!("/api/v1/datasets/{name}/{}", version.version))?;
        freed += removed.freed_bytes;
    }
    if output.json {
        output.print_json(&RemovedDatasets { removed: &names, freed_bytes: freed });
    } else {
        names.iter().for_each(|name| output.print_line(name));
        output.print_note(&format!("  {} freed", units::format_bytes(freed)));
    }
    Ok(())
}

fn list_datasets(name: Option<&str>, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let DatasetListDocument { datasets: mut matching } = client.get("/api/v1/datasets")?;
    matching.retain(|dataset| name.is_none_or(|name| dataset.name == name));
    if output.json {
        output.print_json(&matching);
        return Ok(());
    }
    if let (true, Some(name)) = (matching.is_empty(), name) {
        return Err(CliError::new(exit::NOT_FOUND, "not_found", format!("there is no dataset {name}"))
            .with_hint("`saggar data ls` lists them"));
    }
    let rows: Vec<Vec<String>> = matching
        .iter()
        .map(|dataset| {
            let fields: Vec<&str> = dataset.fields.iter().map(|field| field.name.as_str()).collect();
            vec![
                version_reference(dataset),
                dataset.items.to_string(),
                units::format_bytes(dataset.bytes),
                fields.join(", "),
            ]
        })
        .collect();
    output.print_table(&["DATASET", "ITEMS", "SIZE", "FIELDS"], &rows);
    if rows.is_empty() {
        output.print_note("No datasets. Store one with `saggar data push DIR --name NAME`.");
    }
    Ok(())
}
