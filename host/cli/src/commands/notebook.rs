//! `saggar notebook`: the address of a running notebook.

use std::time::Duration;

use saggar_rest::jobs::NotebookDocument;
use saggar_store::JobState;
use serde::Serialize;

use super::job_follow::job_path;
use crate::args::NotebookArgs;
use crate::client::ApiClient;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// The time between two requests for the address of a notebook that starts.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// A running notebook as JSON.
#[derive(Serialize)]
struct NotebookUrl<'a> {
    job: &'a str,
    url: &'a str,
}

/// Prints the address of a notebook. Fails if it does not run.
pub(crate) fn notebook(args: &NotebookArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let found = read_notebook(&args.job, client)?;
    match &found.path {
        Some(path) => print_address(&found.job, path, client, output),
        None => return Err(not_running(&found)),
    }
    Ok(())
}

/// Waits until a notebook runs, and prints its address.
///
/// # Errors
/// Fails if its job ends before.
pub(super) fn wait_and_print_address(job: &str, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let mut reported = String::new();
    loop {
        let found = read_notebook(job, client)?;
        if let Some(path) = &found.path {
            print_address(&found.job, path, client, output);
            return Ok(());
        }
        if is_over(&found) {
            return Err(not_running(&found));
        }
        if found.state != reported {
            let waits = if found.reason.is_empty() { String::new() } else { format!(": {}", found.reason) };
            output.print_note(&format!("{job} {}{waits}", found.state));
            reported.clone_from(&found.state);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn read_notebook(job: &str, client: &ApiClient) -> Result<NotebookDocument, CliError> {
    client.get(&format!("{}/notebook", job_path(job)))
}

fn is_over(found: &NotebookDocument) -> bool {
    found.state.parse::<JobState>().is_ok_and(JobState::is_final)
}

fn not_running(found: &NotebookDocument) -> CliError {
    let NotebookDocument { job, state, reason, .. } = found;
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let hint = match is_over(found) {
        true => format!("`saggar logs {job}` prints its log; `saggar run --mode notebook` starts another one"),
        false => format!("`saggar logs -f {job}` follows its start"),
    };
    CliError::new(
        exit::CONFLICT,
        "not_running",
        format!("the notebook {job} does not run; its job is {state}{because}"),
    )
    .with_hint(hint)
}

fn print_address(job: &str, path: &str, client: &ApiClient, output: CliOutput) {
    let url = client.url(path);
    if output.json {
        output.print_json_line(&NotebookUrl { job, url: &url });
    } else {
        output.print_line(&url);
    }
    output.print_note(&format!(
        "Everyone with this address can run programs in the notebook. `saggar stop {job}` ends it."
    ));
}
