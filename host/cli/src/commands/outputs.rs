//! `saggar output`: the files that a job wrote, its checkpoints, and the model versions that it published.

mod file_tree;
mod step_values;
mod tail;

use std::path::PathBuf;

use saggar_rest::checkpoints::{CheckpointDocument, CheckpointListDocument};
use saggar_rest::jobs::{JobDocument, JobPublicationDocument};
use saggar_rest::models::{ModelDocument, ModelVersionDocument};
use saggar_rest::outputs::{OutputFileDocument, OutputListDocument};
use saggar_store::is_output_path;
use serde::Serialize;

use super::job_follow::job_path;
use crate::args::{CheckpointsArgs, OutputCommand, OutputGetArgs, OutputKind, OutputListArgs};
use crate::atomic_file::write_atomically;
use crate::client::{ApiClient, encode_path_segment};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::units;

pub(crate) fn outputs(args: &OutputCommand, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    match args {
        OutputCommand::Ls(args) => match args.kind {
            OutputKind::File => list_outputs(args, client, output),
            OutputKind::Model => list_published_versions(args, client, output),
            OutputKind::Value => step_values::list_step_values(&args.job, client, output),
        },
        OutputCommand::Tail(args) => tail::tail(args, client, output),
        OutputCommand::Get(get) => match &get.checkpoint {
            Some(which) => get_checkpoint(get, which, client, output),
            None => self::get_outputs(get, client, output),
        },
        OutputCommand::Checkpoints(args) => list_checkpoints(args, client, output),
    }
}

/// Lists the files that a job wrote.
fn list_job_files(job: &str, client: &ApiClient) -> Result<Vec<OutputFileDocument>, CliError> {
    let OutputListDocument { files } = client.get(&format!("{}/output", job_path(job)))?;
    Ok(files)
}

fn list_outputs(args: &OutputListArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let files = list_job_files(&args.job, client)?;
    let is_empty = files.is_empty();
    let files = file_tree::files_below(files, args.path.as_deref().unwrap_or_default());
    if let Some(path) = args.path.as_deref().filter(|_| files.is_empty() && !is_empty) {
        let message = format!("job {} wrote nothing below {path}", args.job);
        let hint = format!("`saggar output ls {}` lists what it wrote", args.job);
        return Err(CliError::new(exit::NOT_FOUND, "not_found", message).with_hint(hint));
    }
    if output.json {
        output.print_json(&files);
    } else if output.quiet {
        files.iter().for_each(|file| output.print_line(&file.path));
    } else {
        let row = |line: file_tree::TreeLine| {
            let count = line.files.map_or_else(String::new, |files| files.to_string());
            vec![line.name, units::format_bytes(line.bytes), count]
        };
        let rows: Vec<Vec<String>> = file_tree::tree_lines(&files).into_iter().map(row).collect();
        output.print_table(&["PATH", "SIZE", "FILES"], &rows);
        if rows.is_empty() {
            output.print_note(&format!("Job {} wrote nothing.", args.job));
        }
    }
    Ok(())
}

/// Lists the model versions that a job published, each with the command that makes it the default.
fn list_published_versions(args: &OutputListArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let job: JobDocument = client.get(&job_path(&args.job))?;
    let mut found = Vec::new();
    for JobPublicationDocument { model, version } in job.published.unwrap_or_default() {
        let path = format!("/api/v1/models/{}", encode_path_segment(&model));
        let stored = client.get::<ModelDocument>(&path).map(|model| model.versions).unwrap_or_default();
        // A version that was removed since has no size, weights and state.
        let stored = stored.into_iter().find(|stored| stored.version == version);
        let promote = format!("saggar models promote {model} {version}");
        found.push(PublishedVersion { model, version, stored, promote });
    }
    if output.json {
        output.print_json(&found.iter().map(PublishedVersion::document).collect::<Vec<_>>());
        return Ok(());
    }
    let row = |it: &PublishedVersion| {
        let stored = it.stored.as_ref();
        let weights = stored.and_then(|stored| stored.weights.as_deref());
        let bytes = stored.and_then(|stored| stored.bytes);
        vec![
            format!("{}@{}", it.model, it.version),
            bytes.map_or_else(|| "-".to_owned(), units::format_bytes),
            text_or_dash(weights).chars().take(12).collect(),
            output.format_state(text_or_dash(stored.map(|stored| stored.state.as_str()))),
            it.promote.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    output.print_table(&["MODEL", "SIZE", "WEIGHTS", "STATE", "TO DEPLOY IT"], &rows);
    Ok(())
}

/// A version that a job published, and the command that makes it the default.
struct PublishedVersion {
    model: String,
    version: u64,
    stored: Option<ModelVersionDocument>,
    promote: String,
}

/// A version that a job published as JSON.
#[derive(Serialize)]
struct PublishedVersionEntry<'a> {
    model: &'a str,
    version: u64,
    bytes: Option<u64>,
    weights: Option<&'a str>,
    state: Option<&'a str>,
    promote: &'a str,
}

impl PublishedVersion {
    fn document(&self) -> PublishedVersionEntry<'_> {
        let stored = self.stored.as_ref();
        PublishedVersionEntry {
            model: &self.model,
            version: self.version,
            bytes: stored.and_then(|stored| stored.bytes),
            weights: stored.and_then(|stored| stored.weights.as_deref()),
            state: stored.map(|stored| stored.state.as_str()),
            promote: &self.promote,
        }
    }
}

/// A file that was downloaded as JSON.
#[derive(Serialize)]
struct FetchedFile<'a> {
    path: &'a str,
    bytes: u64,
    file: String,
}

/// A checkpoint that was downloaded as JSON.
#[derive(Serialize)]
struct FetchedCheckpoint<'a> {
    checkpoint: &'a str,
    bytes: u64,
    file: String,
}

fn text_or_dash(text: Option<&str>) -> &str {
    text.unwrap_or("-")
}

fn get_outputs(args: &OutputGetArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let paths: Vec<String> = match &args.path {
        Some(path) => vec![path.clone()],
        None => list_job_files(&args.job, client)?.into_iter().map(|file| file.path).collect(),
    };
    if paths.is_empty() {
        return Err(CliError::new(exit::NOT_FOUND, "not_found", format!("job {} wrote nothing", args.job)));
    }
    let mut fetched = Vec::new();
    for path in &paths {
        let (place, bytes) = fetch_file(args, path, client)?;
        if !output.json {
            output.print_line_ignoring_errors(&place.display().to_string());
        }
        fetched.push(FetchedFile { path, bytes, file: place.display().to_string() });
    }
    if output.json {
        output.print_json(&fetched);
    }
    Ok(())
}

/// Downloads a checkpoint into a file named after its job.
fn get_checkpoint(args: &OutputGetArgs, which: &str, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let content = client.get_stream(&format!("{}/checkpoints/{}", job_path(&args.job), encode_path_segment(which)))?;
    let place =
        args.output.join(format!("{}-{}.safetensors", encode_path_segment(&args.job), encode_path_segment(which)));
    let bytes = write_atomically(content, &place)?;
    if output.json {
        output.print_json(&FetchedCheckpoint { checkpoint: which, bytes, file: place.display().to_string() });
    } else {
        output.print_line(&place.display().to_string());
    }
    Ok(())
}

/// Lists checkpoints. If they are verified, a damaged one is an error.
fn list_checkpoints(args: &CheckpointsArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let verify = if args.verify { "?verify=1" } else { "" };
    let path = format!("{}/checkpoints{verify}", job_path(&args.job));
    let CheckpointListDocument { checkpoints: list } = client.get(&path)?;
    let damaged = list.iter().filter(|it| it.whole == Some(false)).count();
    if output.json {
        output.print_json(&list);
    } else {
        let row = |it: &CheckpointDocument| {
            let size = it.bytes.map_or_else(|| "-".to_owned(), units::format_bytes);
            let mark = match (it.whole, it.best) {
                (Some(true), _) => "whole".to_owned(),
                (Some(false), _) => format!("damaged: {}", text_or_dash(it.reason.as_deref())),
                (None, Some(true)) => "best".to_owned(),
                (None, _) => String::new(),
            };
            vec![it.step.to_string(), size, text_or_dash(it.digest.as_deref()).chars().take(12).collect(), mark]
        };
        let rows: Vec<Vec<String>> = list.iter().map(row).collect();
        output.print_table(&["STEP", "SIZE", "DIGEST", ""], &rows);
    }
    match damaged {
        0 => Ok(()),
        count => Err(CliError::invalid(format!("{count} checkpoints of {} are damaged", args.job))
            .with_hint("a resume uses the newest intact one")),
    }
}

/// Downloads a file and returns its local path and its size in bytes.
fn fetch_file(args: &OutputGetArgs, path: &str, client: &ApiClient) -> Result<(PathBuf, u64), CliError> {
    // The path comes from a server and becomes a local file name.
    if !is_output_path(path) {
        return Err(CliError::invalid(format!("{path:?} cannot be the path of an output"))
            .with_hint(format!("`saggar output ls {}` lists them", args.job)));
    }
    let content = client.get_stream(&format!("{}/output/{path}", job_path(&args.job)))?;
    let place = args.output.join(path);
    let bytes = write_atomically(content, &place)?;
    Ok((place, bytes))
}
