//! `saggar rm` and `saggar gc`.

use serde_json::{Value, json};

use super::{job_path, number, text};
use crate::args::{GcArgs, RmArgs};
use crate::client::{ApiClient, RequestBody};
use crate::exit::CliError;
use crate::output::{CliOutput, confirm};
use crate::units;

pub(crate) fn rm(args: &RmArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    if let Some(experiment) = &args.experiment {
        return collect_garbage(json!({ "experiment": experiment }), args.yes, false, client, output);
    }
    confirm(args.yes, &format!("Remove {} with logs, outputs and checkpoints?", args.jobs.join(", ")))?;
    let mut removed = Vec::new();
    for job in &args.jobs {
        let answer = client.delete(&job_path(job))?;
        if !output.json {
            let freed = units::format_bytes(number(&answer, "freed_bytes"));
            output.print_line_ignoring_errors(&format!("{} removed, {freed} freed", text(&answer, "name")));
        }
        removed.push(answer);
    }
    if output.json {
        output.print_json(&Value::Array(removed));
    }
    Ok(())
}

pub(crate) fn gc(args: &GcArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let what = json!({
        "keep_last": args.keep_last,
        "failed_older_than_seconds": args.failed_older_than.map(|time| time.as_secs_f64()),
        "project": args.project,
    });
    collect_garbage(what, args.yes, args.dry_run, client, output)
}

/// Shows what would be removed, asks for confirmation, and removes it.
fn collect_garbage(
    mut what: Value,
    yes: bool,
    dry_run: bool,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    what["dry_run"] = json!(true);
    let would = client.post("/api/v1/jobs/gc", RequestBody::Json(&what))?;
    let nothing = would["jobs"].as_array().is_none_or(Vec::is_empty);
    if dry_run || nothing {
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
    what["dry_run"] = json!(false);
    let done = client.post("/api/v1/jobs/gc", RequestBody::Json(&what))?;
    print_removed(&done, output, "freed");
    Ok(())
}

fn print_removed(answer: &Value, output: CliOutput, word: &str) {
    if output.json {
        output.print_json(answer);
        return;
    }
    output.print_table(&REMOVED_HEADERS, &removed_rows(answer, output));
    output.print_note(&format!("{} {word}", units::format_bytes(number(answer, "freed_bytes"))));
}

const REMOVED_HEADERS: [&str; 3] = ["JOB", "STATE", "SIZE"];

fn removed_rows(answer: &Value, output: CliOutput) -> Vec<Vec<String>> {
    let jobs = answer["jobs"].as_array().into_iter().flatten();
    let row = |job: &Value| {
        vec![
            text(job, "name").to_owned(),
            output.format_state(text(job, "state")),
            units::format_bytes(number(job, "bytes")),
        ]
    };
    jobs.map(row).collect()
}
