//! `saggar tag` and `saggar note`: what users write about jobs.

use std::collections::BTreeMap;

use saggar_rest::jobs::{AnnotateJobRequest, JobDocument};

use crate::args::{NoteArgs, TagArgs};
use crate::client::{ApiClient, RequestBody};
use crate::commands::job_follow::job_path;
use crate::exit::CliError;
use crate::output::CliOutput;

pub(crate) fn tag(args: &TagArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let mut tags = BTreeMap::new();
    for text in &args.tags {
        let Some((name, value)) = text.split_once('=') else {
            return Err(CliError::invalid(format!("{text:?} is not a tag")).with_hint("tags are written NAME=VALUE"));
        };
        tags.insert(name.to_owned(), value.to_owned());
    }
    let change = AnnotateJobRequest { tags, remove: args.remove.clone(), note: None };
    let job = annotate(&args.job, &change, client)?;
    if output.json {
        output.print_json(&job);
    } else {
        output.print_line(&format!("{}  {}", job.name, format_tags(&job.tags)));
    }
    Ok(())
}

pub(crate) fn note(args: &NoteArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let change = AnnotateJobRequest { note: Some(args.text.clone()), ..AnnotateJobRequest::default() };
    let job = annotate(&args.job, &change, client)?;
    if output.json {
        output.print_json(&job);
    } else {
        output.print_line(&format!("{}  {}", job.name, if job.note.is_empty() { "no note" } else { &job.note }));
    }
    Ok(())
}

fn annotate(job: &str, change: &AnnotateJobRequest, client: &ApiClient) -> Result<JobDocument, CliError> {
    client.post(&format!("{}/annotate", job_path(job)), RequestBody::json(change))
}

/// Formats tags: `data=clean kind=baseline`, or `-` without any.
pub(super) fn format_tags(tags: &BTreeMap<String, String>) -> String {
    if tags.is_empty() {
        return "-".to_owned();
    }
    tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}
