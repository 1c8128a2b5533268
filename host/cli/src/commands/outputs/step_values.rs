//! `saggar output ls JOB --kind value`: the values that a step returned.

use std::collections::BTreeMap;

use saggar_rest::jobs::{JobDocument, StepOutputDocument};

use super::text_or_dash;
use crate::client::ApiClient;
use crate::commands::job_follow::job_path;
use crate::commands::jobs::format_step_value;
use crate::exit::CliError;
use crate::output::CliOutput;

/// Lists the values that a step returned, with their types.
pub(super) fn list_step_values(job: &str, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let document: JobDocument = client.get(&job_path(job))?;
    let values: BTreeMap<String, StepOutputDocument> = document.step_outputs.unwrap_or_default();
    if output.json {
        output.print_json(&values);
        return Ok(());
    }
    if output.quiet {
        values.keys().for_each(|name| output.print_line(name));
        return Ok(());
    }
    let row = |(name, it): (&String, &StepOutputDocument)| {
        let digest = text_or_dash(it.sha256.as_deref()).chars().take(12).collect();
        vec![name.clone(), it.kind.clone(), format_step_value(it), digest]
    };
    let rows: Vec<Vec<String>> = values.iter().map(row).collect();
    output.print_table(&["OUTPUT", "TYPE", "VALUE", "SHA-256"], &rows);
    if rows.is_empty() {
        output.print_note(&format!("Job {job} is {} and returned no values.", document.state));
    }
    Ok(())
}
