//! `saggar restart`, `preempt` and `wait`.

use std::time::Instant;

use saggar_store::JobState;
use serde_json::{Map, Value, json};

use super::{LOOK_INTERVAL, for_each, is_over, job_path, text};
use crate::args::{JobNames, Restart, Wait};
use crate::client::{Client, Payload};
use crate::commands::run;
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::reconnect::Reconnect;

pub(crate) fn restart(args: &Restart, client: &Client, output: Output) -> Result<i32, Failure> {
    let resume = match (args.resume, args.from_scratch) {
        (true, _) => json!(true),
        (_, true) => json!(false),
        (false, false) => Value::Null,
    };
    let body =
        json!({ "parameters": run::parameters(&args.parameters)?, "overrides": fields(&args.set)?, "resume": resume });
    let job = client.post(&format!("{}/restart", job_path(&args.job)), Payload::Json(&body))?;
    let name = text(&job, "name").to_owned();
    if args.follow || args.wait {
        return run::stay_until_over(client, output, &name, args.follow);
    }
    if output.json {
        output.json(&job);
    } else {
        output.line(&name);
        let from =
            job["spec"]["init_from"].as_str().map_or("from the beginning".to_owned(), |from| format!("from {from}"));
        output.note(&format!("  starts {from}"));
        output.note(&format!("Next: saggar logs -f {name} | saggar diff {} {name}", args.job));
    }
    Ok(0)
}

/// Fields of a specification: JSON where it is some, else text.
fn fields(words: &[String]) -> Result<Map<String, Value>, Failure> {
    let field = |word: &String| {
        let (name, value) = word.split_once('=').ok_or_else(|| {
            Failure::invalid(format!("--set {word}: expected a field and its value")).hint("such as --set device=cpu")
        })?;
        Ok((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| json!(value))))
    };
    words.iter().map(field).collect()
}

pub(crate) fn preempt(args: &JobNames, client: &Client, output: Output) -> Result<(), Failure> {
    for_each(&args.jobs, output, |name| {
        let job = client.post(&format!("{}/preempt", job_path(name)), Payload::Nothing)?;
        Ok((format!("{} saves its state and is queued again", text(&job, "name")), job))
    })
}

pub(crate) fn wait(args: &Wait, client: &Client, output: Output) -> Result<i32, Failure> {
    let wanted = args.state.as_deref().map(job_state).transpose()?;
    let began = Instant::now();
    let mut reconnect = Reconnect::new(output);
    let mut job = client.get(&job_path(&args.job))?;
    loop {
        let state = text(&job, "state");
        // Who waited for a state and got it has what was wanted, whatever the state.
        let got = wanted.is_some_and(|wanted| wanted.name() == state);
        if got || is_over(&job) {
            if output.json {
                output.json(&job);
            } else {
                output.line(&format!("{} {}", text(&job, "name"), output.state(state)));
            }
            return Ok(if got { 0 } else { exit::of_job(state, text(&job, "reason")) });
        }
        let is_too_late = || args.timeout.is_some_and(|most| began.elapsed() >= most);
        let timed_out = || {
            let message = format!("{} is still {state}", text(&job, "name"));
            Failure::new(exit::TIMED_OUT_HERE, "timeout", message).hint("the job goes on")
        };
        if is_too_late() {
            return Err(timed_out());
        }
        std::thread::sleep(LOOK_INTERVAL);
        let next = loop {
            match client.get(&job_path(&args.job)) {
                Ok(job) => break job,
                Err(_) if is_too_late() => return Err(timed_out()),
                Err(failure) => reconnect.wait_for_retry(failure)?,
            }
        };
        reconnect.connected();
        job = next;
    }
}

/// The state of a job that is meant: a word that is none would be waited for to the end.
fn job_state(word: &str) -> Result<JobState, Failure> {
    word.to_uppercase().parse().map_err(|_| {
        let known: Vec<&str> = JobState::ALL.iter().map(|state| state.name()).collect();
        Failure::invalid(format!("--for {word}: there is no such state of a job"))
            .hint(format!("there are: {}", known.join(", ")))
    })
}
