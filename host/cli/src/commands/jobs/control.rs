//! `saggar restart`, `preempt`, `pause`, `resume` and `wait`.

use std::time::Instant;

use saggar_rest::jobs::{JobDocument, PauseRequest, RestartRequest};
use saggar_store::JobState;
use serde_json::{Map, Value};

use super::change_each;
use crate::args::{JobNamesArgs, PauseArgs, RestartArgs, WaitArgs};
use crate::client::{ApiClient, RequestBody};
use crate::commands::job_follow::{POLL_INTERVAL, is_over, job_path};
use crate::commands::run;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::reconnect::ReconnectState;

pub(crate) fn restart(args: &RestartArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let resume = match (args.resume, args.from_scratch) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        (false, false) => None,
    };
    let (parameters, overrides) = (run::parse_parameters(&args.parameters)?, parse_overrides(&args.set)?);
    let changes = RestartRequest { parameters, overrides, resume };
    let job: JobDocument = client.post(&format!("{}/restart", job_path(&args.job)), RequestBody::json(&changes))?;
    let name = job.name.clone();
    if args.follow || args.wait {
        return run::wait_and_report(client, output, &name, args.follow);
    }
    if output.json {
        output.print_json(&job);
    } else {
        output.print_line(&name);
        let from = job.spec_summary().init_from;
        let from = from.map_or("from the beginning".to_owned(), |from| format!("from {from}"));
        output.print_note(&format!("  starts {from}"));
        output.print_note(&format!("Next: saggar logs -f {name} | saggar diff {} {name}", args.job));
    }
    Ok(0)
}

/// Parses fields of a specification. A value is JSON if it parses as JSON, else text.
fn parse_overrides(words: &[String]) -> Result<Map<String, Value>, CliError> {
    let field = |word: &String| {
        let (name, value) = word.split_once('=').ok_or_else(|| {
            CliError::invalid(format!("--set {word}: expected a field and its value"))
                .with_hint("for example --set device=cpu")
        })?;
        Ok((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))))
    };
    words.iter().map(field).collect()
}

pub(crate) fn preempt(args: &JobNamesArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    change_each(&args.jobs, output, |name| {
        let job: JobDocument = client.post(&format!("{}/preempt", job_path(name)), RequestBody::Empty)?;
        Ok((format!("{} saves its state and is queued again", job.name), job))
    })
}

pub(crate) fn pause(args: &PauseArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let request = PauseRequest { at_step: args.at_step, metric: args.metric.clone() };
    change_each(&args.jobs, output, |name| {
        let job: JobDocument = client.post(&format!("{}/pause", job_path(name)), RequestBody::json(&request))?;
        let line = match (job.paused, args.at_step) {
            (true, _) => format!("{} is paused at step {}", job.name, job.step),
            (false, Some(step)) => {
                format!("{} saves its state and pauses at step {step} or the next boundary", job.name)
            }
            (false, None) => format!("{} saves its state and pauses", job.name),
        };
        Ok((line, job))
    })
}

pub(crate) fn resume(args: &JobNamesArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    change_each(&args.jobs, output, |name| {
        let job: JobDocument = client.post(&format!("{}/resume", job_path(name)), RequestBody::Empty)?;
        Ok((format!("{} continues from step {}", job.name, job.step), job))
    })
}

pub(crate) fn wait(args: &WaitArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let wanted = args.state.as_deref().map(parse_job_state).transpose()?;
    let began = Instant::now();
    let mut reconnect = ReconnectState::new(output);
    let mut job: JobDocument = client.get(&job_path(&args.job))?;
    loop {
        let state = &job.state;
        // Reaching the requested state is a success, whatever the state.
        let got = wanted.is_some_and(|wanted| wanted.name() == *state);
        if got || is_over(&job) {
            if output.json {
                output.print_json(&job);
            } else {
                output.print_line(&format!("{} {}", job.name, output.format_state(state)));
            }
            return Ok(if got { 0 } else { exit::code_for_job(state, &job.reason) });
        }
        let is_too_late = || args.timeout.is_some_and(|most| began.elapsed() >= most);
        let timed_out = || {
            let message = format!("{} is still {state}", job.name);
            CliError::new(exit::COMMAND_TIMED_OUT, "timeout", message).with_hint("the job keeps running")
        };
        if is_too_late() {
            return Err(timed_out());
        }
        std::thread::sleep(POLL_INTERVAL);
        let next = loop {
            match client.get(&job_path(&args.job)) {
                Ok(job) => break job,
                Err(_) if is_too_late() => return Err(timed_out()),
                Err(failure) => reconnect.wait_for_retry(failure)?,
            }
        };
        reconnect.note_connected();
        job = next;
    }
}

/// Parses a job state. An unknown word is rejected, because it would be waited for until the end.
fn parse_job_state(word: &str) -> Result<JobState, CliError> {
    word.to_uppercase().parse().map_err(|_| {
        let known: Vec<&str> = JobState::ALL.iter().map(|state| state.name()).collect();
        CliError::invalid(format!("--for {word}: this is not a state of a job"))
            .with_hint(format!("the states are: {}", known.join(", ")))
    })
}
