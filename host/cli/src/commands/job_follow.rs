//! Follows a job until it is over, for every command that waits for one.

use std::time::Duration;

use saggar_rest::jobs::JobDocument;
use saggar_store::JobState;

use super::job_log;
use crate::client::{ApiClient, encode_path_segment};
use crate::exit::{self, CliError};
use crate::interrupt;
use crate::output::{CliOutput, print_to_stderr};
use crate::progress::ProgressDisplay;
use crate::project;
use crate::reconnect::ReconnectState;
use crate::units;

/// How often a waiting command polls its job.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Returns the job's path in the REST interface. In a project's directory a number alone selects a job of the project.
pub(super) fn job_path(name: &str) -> String {
    format!("/api/v1/jobs/{}", encode_path_segment(&project::resolve_job_name(name)))
}

/// Returns whether a job's state is final.
pub(super) fn is_over(job: &JobDocument) -> bool {
    job.state.parse().is_ok_and(JobState::is_final)
}

/// Returns the last value of the metric `loss`.
pub(super) fn loss(job: &JobDocument) -> Option<f64> {
    job.metrics.get("loss").copied().flatten()
}

/// Prints the job's log until the job is over.
pub(super) fn follow_log(client: &ApiClient, output: CliOutput, name: &str) -> Result<(), CliError> {
    job_log::follow_log(client, output, &format!("/api/v1/jobs/{}/logs?follow=1", encode_path_segment(name)))
}

/// Waits until the job is over, showing its progress and each state change. Waits across restarts of the server.
pub(super) fn wait_until_over(client: &ApiClient, output: CliOutput, name: &str) -> Result<JobDocument, CliError> {
    let mut progress = ProgressDisplay::for_steps(name, output);
    let mut last = String::new();
    let mut reconnect = ReconnectState::new(output);
    let mut job: JobDocument = client.get(&job_path(name))?;
    loop {
        if is_over(&job) {
            return Ok(job);
        }
        if job.state != last {
            progress.print_note(&format!("{name} {}", job.state));
            last.clone_from(&job.state);
        }
        let loss = loss(&job).map_or_else(String::new, |loss| format!("loss {loss:.4}"));
        progress.set(job.step, job.steps_target, &loss);
        std::thread::sleep(POLL_INTERVAL);
        job = loop {
            match client.get(&job_path(name)) {
                Ok(job) => break job,
                Err(failure) => reconnect.wait_for_retry(failure)?,
            }
        };
        reconnect.note_connected();
    }
}

/// Installs a Ctrl-C handler that ends this command but not the job, and says so.
pub(super) fn detach_on_interrupt(job: String) {
    interrupt::set_interrupt_action(move || {
        print_to_stderr(&format!(
            "\n{job} keeps running. `saggar logs -f {job}` follows it, `saggar stop {job}` ends it."
        ));
    });
}

/// Describes in one sentence how a job ended.
pub(super) fn describe_end(job: &JobDocument, name: &str, output: CliOutput) -> String {
    let state = output.format_state(&job.state);
    let duration = units::format_duration(job.wall_seconds);
    let because = if job.message.is_empty() { String::new() } else { format!(": {}", job.message) };
    format!("Job {name} {state} after {duration}, attempts: {}{because}", job.attempt)
}

/// Returns the exit code for a job that is over.
pub(super) fn exit_code(job: &JobDocument) -> i32 {
    exit::code_for_job(&job.state, &job.reason)
}
