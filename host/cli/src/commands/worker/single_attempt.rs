//! `saggar worker run`: one attempt of one job.

use saggar_jobs::{BatchTask, JobError, SingleAttempt};
use saggar_store::records::{JobRecord, JobState};
use serde::Serialize;

use super::host::WorkerHost;
use super::locked_home;
use crate::args::WorkerRunArgs;
use crate::commands::serve::unexpected_error;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// The exit code of an attempt after which the job is queued again (`EX_TEMPFAIL` of sysexits.h).
const TRY_AGAIN: i32 = 75;

/// Runs the attempt and returns the exit code.
pub(super) fn run(args: &WorkerRunArgs, output: CliOutput) -> Result<i32, CliError> {
    let home = match &args.homes {
        Some(folder) => locked_home::open_free(folder)?,
        None => locked_home::open(&args.host.offer.home)?,
    };
    let host = WorkerHost::open(&args.host, home)?;
    let (jobs, shutdown) = (host.jobs.clone(), host.shutdown.subscribe());
    let task = BatchTask::from_variables(|name| std::env::var(name).ok());
    let ran = host.block_on(async { jobs.run_single_attempt(&args.job, task, shutdown).await });
    let ran = ran.map_err(|error| match &error {
        JobError::NotFound { .. } => CliError::new(exit::NOT_FOUND, "not_found", error.to_string()),
        _ => unexpected_error(error),
    })?;
    let report = match ran {
        SingleAttempt::NotQueued(job) => AttemptReport::new(&job, false, 0),
        SingleAttempt::MustWait(job, reason) => AttemptReport { reason, ..AttemptReport::new(&job, false, TRY_AGAIN) },
        SingleAttempt::Ran(job) => AttemptReport::new(&job, true, exit_code(&job)),
    };
    if output.json {
        output.print_json(&report);
    } else {
        let what = if report.ran { "the attempt ran" } else { "no attempt ran" };
        output.print_note(&format!("{}: {what}; the job is {} {}", report.job, report.state, report.reason));
    }
    Ok(report.exit_code)
}

/// What became of the attempt.
#[derive(Debug, Serialize)]
struct AttemptReport {
    job: String,
    /// Whether this process ran an attempt.
    ran: bool,
    /// The state of the job.
    state: &'static str,
    /// The reason of the state, or why the job has to wait.
    reason: String,
    exit_code: i32,
}

impl AttemptReport {
    fn new(job: &JobRecord, ran: bool, exit_code: i32) -> AttemptReport {
        let reason = job.reason.code.clone();
        AttemptReport { job: job.name.clone(), ran, state: job.state.name(), reason, exit_code }
    }
}

fn exit_code(job: &JobRecord) -> i32 {
    match job.state {
        JobState::Queued => TRY_AGAIN,
        state => exit::code_for_job(state.name(), &job.reason.code),
    }
}
