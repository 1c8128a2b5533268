//! `saggar rm` and `saggar gc`.

use std::io::{IsTerminal, Write};

use serde_json::{Value, json};

use super::{job_path, number, text};
use crate::args::{Gc, Rm};
use crate::client::{Client, Payload};
use crate::exit::{self, Failure};
use crate::output::Output;
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
            output.line(&format!("{} removed, {freed} freed", text(&answer, "name")));
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
    if !yes {
        show(&would, Output { json: false, ..output }, "would be freed");
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
    let jobs = answer["jobs"].as_array().into_iter().flatten();
    let row = |job: &Value| {
        vec![text(job, "name").to_owned(), output.state(text(job, "state")), units::show_bytes(number(job, "bytes"))]
    };
    let rows: Vec<Vec<String>> = jobs.map(row).collect();
    output.table(&["JOB", "STATE", "SIZE"], &rows);
    output.note(&format!("{} {word}", units::show_bytes(number(answer, "freed_bytes"))));
}

/// Asks at a terminal; elsewhere only `--yes` will do.
fn agree(yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(exit::USAGE, "not_agreed", "nothing was removed: this must be agreed to")
            .hint("--yes agrees in scripts"));
    }
    eprint!("{question} [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(exit::INTERRUPTED, "not_agreed", "nothing was removed"))
}
