//! `saggar ps --workers`: the hosts that run jobs.

use saggar_rest::workers::{WorkerDocument, WorkerListDocument};

use crate::client::ApiClient;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::units;

pub(in crate::commands) fn list_workers(client: &ApiClient) -> Result<WorkerListDocument, CliError> {
    client.get("/api/v1/workers")
}

pub(in crate::commands) fn print_workers(listed: &WorkerListDocument, output: CliOutput) {
    if output.json {
        output.print_json(&listed.workers);
    } else if output.quiet {
        listed.workers.iter().for_each(|worker| output.print_line(&worker.name));
    } else {
        let rows: Vec<Vec<String>> = listed.workers.iter().map(worker_row).collect();
        output.print_table(&["NAME", "KIND", "STATE", "SLOTS", "SEEN", "LABELS", "JOBS"], &rows);
    }
}

fn worker_row(worker: &WorkerDocument) -> Vec<String> {
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let labels = worker.labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",");
    let reserve = if worker.reserve == "none" { String::new() } else { format!(" ({})", worker.reserve) };
    vec![
        worker.name.clone(),
        worker.kind.clone(),
        worker.state.clone(),
        format!("{} of {}", worker.used, worker.slots),
        last_seen(worker.unseen_seconds),
        format!("{}{reserve}", or_none(labels)),
        or_none(worker.jobs.join(", ")),
    ]
}

/// A host renews its row every 5 s.
fn last_seen(seconds: f64) -> String {
    if seconds < 10.0 { "now".to_owned() } else { format!("{} ago", units::format_duration(seconds)) }
}
