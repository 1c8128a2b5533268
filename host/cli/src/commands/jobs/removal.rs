//! `saggar rm` and `saggar gc`.

use saggar_rest::jobs::{JobGcDocument, JobGcRequest, RemovedJobDocument, SweptJobDocument};

use crate::args::{GcArgs, RmArgs};
use crate::client::{ApiClient, RequestBody};
use crate::commands::job_follow::job_path;
use crate::exit::CliError;
use crate::output::{CliOutput, confirm};
use crate::units;

pub(crate) fn rm(args: &RmArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    if let Some(experiment) = &args.experiment {
        return remove_experiment(experiment, args.yes, client, output);
    }
    confirm(args.yes, &format!("Remove {} with logs, outputs and checkpoints?", args.jobs.join(", ")))?;
    let mut removed = Vec::new();
    for job in &args.jobs {
        let answer: RemovedJobDocument = client.delete(&job_path(job))?;
        if !output.json {
            let freed = units::format_bytes(answer.freed_bytes);
            output.print_line_ignoring_errors(&format!("{} removed, {freed} freed", answer.name));
        }
        removed.push(answer);
    }
    if output.json {
        output.print_json(&removed);
    }
    Ok(())
}

/// Removes the finished jobs of an experiment, after showing them and asking for confirmation.
pub(super) fn remove_experiment(
    experiment: &str,
    yes: bool,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    let sweep = JobGcRequest { experiment: Some(experiment.to_owned()), ..JobGcRequest::default() };
    collect_garbage(sweep, yes, false, client, output)
}

pub(crate) fn gc(args: &GcArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let sweep = JobGcRequest {
        keep_last: args.keep_last,
        failed_older_than_seconds: args.failed_older_than.map(|time| time.as_secs_f64()),
        project: args.project.clone(),
        ..JobGcRequest::default()
    };
    collect_garbage(sweep, args.yes, args.dry_run, client, output)
}

/// Shows what would be removed, asks for confirmation, and removes it.
fn collect_garbage(
    sweep: JobGcRequest,
    yes: bool,
    dry_run: bool,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    let preview = JobGcRequest { dry_run: true, ..sweep.clone() };
    let would: JobGcDocument = client.post("/api/v1/jobs/gc", RequestBody::json(&preview))?;
    if dry_run || would.jobs.is_empty() {
        print_removed(&would, output, "would be freed");
        return Ok(());
    }
    match (yes, output.json) {
        (true, _) => {}
        // A JSON reader expects one document with what was removed, so the preview goes to standard error.
        (false, true) => output.print_table_to_stderr(&REMOVED_HEADERS, &removed_rows(&would, output)),
        (false, false) => print_removed(&would, output, "would be freed"),
    }
    confirm(yes, "Remove them?")?;
    let done: JobGcDocument = client.post("/api/v1/jobs/gc", RequestBody::json(&sweep))?;
    print_removed(&done, output, "freed");
    Ok(())
}

fn print_removed(answer: &JobGcDocument, output: CliOutput, word: &str) {
    if output.json {
        output.print_json(answer);
        return;
    }
    output.print_table(&REMOVED_HEADERS, &removed_rows(answer, output));
    output.print_note(&format!("{} {word}", units::format_bytes(answer.freed_bytes)));
}

const REMOVED_HEADERS: [&str; 3] = ["JOB", "STATE", "SIZE"];

fn removed_rows(answer: &JobGcDocument, output: CliOutput) -> Vec<Vec<String>> {
    let row = |job: &SweptJobDocument| {
        vec![job.name.clone(), output.format_state(&job.state), units::format_bytes(job.bytes)]
    };
    answer.jobs.iter().map(row).collect()
}
