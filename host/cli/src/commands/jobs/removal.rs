//! `saggar rm` and `saggar gc`.

use serde_json::{Value, json};

use super::{job_path, number, text};
use crate::args::{Gc, Rm};
use crate::client::{Client, Payload};
use crate::exit::Failure;
use crate::output::{Output, agree};
use crate::units;

pub(crate) fn rm(args: &Rm, client: &Client, output: Output) -> Result<(), Failure> {
    if let Some(experiment) = &args.experiment {
        return sweep(json!({ "experiment": experiment }), args.yes, false, client, output);
    }
    agree(args.yes, &format!("Remove {} with logs, outputs and checkpoints?", args.jobs.join(", ")))?;
    let mut removed = Vec::new();
    for job in &args.jobs {
        let answer = client.delete(&job_path(job))?;
        if !output.json {
            let freed = units::show_bytes(number(&answer, "freed_bytes"));
            output.line_amid_work(&format!("{} removed, {freed} freed", text(&answer, "name")));
        }
        removed.push(answer);
    }
    if output.json {
        output.json(&Value::Array(removed));
    }
    Ok(())
}

pub(crate) fn gc(args: &Gc, client: &Client, output: Output) -> Result<(), Failure> {
    let what = json!({
        "keep_last": args.keep_last,
        "failed_older_than_seconds": args.failed_older_than.map(|time| time.as_secs_f64()),
        "project": args.project,
    });
    sweep(what, args.yes, args.dry_run, client, output)
}

/// Shows what goes, asks, and has it removed.
fn sweep(mut what: Value, yes: bool, dry_run: bool, client: &Client, output: Output) -> Result<(), Failure> {
    what["dry_run"] = json!(true);
    let would = client.post("/api/v1/jobs/gc", Payload::Json(&what))?;
    let nothing = would["jobs"].as_array().is_none_or(Vec::is_empty);
    if dry_run || nothing {
        show(&would, output, "would be freed");
        return Ok(());
    }
    match (yes, output.json) {
        (true, _) => {}
        // Programs read one document: what was removed. What is asked about is for people.
        (false, true) => output.table_aside(&HEADERS, &rows(&would, output)),
        (false, false) => show(&would, output, "would be freed"),
    }
    agree(yes, "Remove them?")?;
    what["dry_run"] = json!(false);
    let done = client.post("/api/v1/jobs/gc", Payload::Json(&what))?;
    show(&done, output, "freed");
    Ok(())
}

fn show(answer: &Value, output: Output, word: &str) {
    if output.json {
        output.json(answer);
        return;
    }
    output.table(&HEADERS, &rows(answer, output));
    output.note(&format!("{} {word}", units::show_bytes(number(answer, "freed_bytes"))));
}

const HEADERS: [&str; 3] = ["JOB", "STATE", "SIZE"];

fn rows(answer: &Value, output: Output) -> Vec<Vec<String>> {
    let jobs = answer["jobs"].as_array().into_iter().flatten();
    let row = |job: &Value| {
        vec![text(job, "name").to_owned(), output.state(text(job, "state")), units::show_bytes(number(job, "bytes"))]
    };
    jobs.map(row).collect()
}
