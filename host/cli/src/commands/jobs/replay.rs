//! `saggar replay`: repeats steps of a training on the server, as a separate job, and prints its report.

use saggar_jobs::REPLAY_FILE;
use saggar_replay::ReplayReport;
use saggar_rest::jobs::{JobDocument, ReplayJobRequest};
use saggar_store::JobState;
use serde::Serialize;

use crate::args::ReplayArgs;
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::commands::job_follow::{self, describe_end, detach_on_interrupt, exit_code, job_path};
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// The report, and the job that computed it.
#[derive(Serialize)]
struct ReplayDocument {
    /// The name of the replaying job.
    job: String,
    #[serde(flatten)]
    report: ReplayReport,
}

/// Runs the command. The exit code is that of a failed job if the replay differs or found a number that is not finite.
pub(crate) fn replay(args: &ReplayArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let ReplayArgs { job, from_step, to, print, device } = args;
    let request =
        ReplayJobRequest { from_step: *from_step, to_step: *to, print: print.clone(), device: device.clone() };
    let started: JobDocument = client.post(&format!("{}/replay", job_path(job)), RequestBody::json(&request))?;
    let name = started.name;
    output.print_note(&format!("{name} replays {job}"));
    detach_on_interrupt(name.clone());
    let ended = job_follow::wait_until_over(client, output, &name)?;
    if ended.state != JobState::Succeeded.name() {
        let message = describe_end(&ended, &name, output);
        let error = CliError::new(exit_code(&ended), "not_replayed", message);
        return Err(error.with_hint(format!("see `saggar logs {name}`")));
    }
    let path = format!("/api/v1/jobs/{}/output/{REPLAY_FILE}", encode_path_segment(&name));
    let report: ReplayReport = client.get(&path)?;
    let is_equal = report.is_equal();
    if output.json {
        output.print_json(&ReplayDocument { job: name, report });
    } else {
        report.lines().iter().for_each(|line| output.print_line(line));
    }
    Ok(if is_equal { 0 } else { exit::JOB_FAILED })
}
