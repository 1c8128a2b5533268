//! `saggar run --mode serve`: from a plugin to the address that answers.

use std::time::Duration;

use serde_json::{Value, json};

use super::{add, ended, exit_code, stay};
use crate::args::Run;
use crate::client::Client;
use crate::commands::standing::{VersionStanding, published_by, wait_for_version};
use crate::exit::{self, Failure};
use crate::output::Output;

/// How long a version that was published may take until it serves.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until the job is over and the server answers from what it published. Prints the address alone.
pub(super) fn until_served(
    args: &Run,
    client: &Client,
    output: Output,
    job_name: &str,
    estimate: Option<Value>,
) -> Result<i32, Failure> {
    let job = stay(client, output, job_name, args.follow)?;
    let sentence = ended(&job, job_name, output);
    let code = exit_code(&job);
    if code != 0 {
        output.line(&sentence);
        return Ok(code);
    }
    output.note(&sentence);
    let (model, version) = wait_until_served(client, &job, PATIENCE)?;
    let url = client.url(&format!("/models/{model}/predict"));
    if output.json {
        let mut document = json!({ "job": job_name, "model": model, "version": version, "url": url });
        add(&mut document, estimate);
        output.json_line(&document);
    } else {
        output.line(&url);
    }
    output.note("Opened, it tells what the model takes; posted to, it predicts.");
    Ok(0)
}

/// Waits until the server answers from what the job published that is over. The model and its version.
///
/// # Errors
/// It published nothing, what it published was refused or is not to serve, or nothing serves after `patience`.
pub(crate) fn wait_until_served(client: &Client, job: &Value, patience: Duration) -> Result<(String, u64), Failure> {
    let job_name = job["name"].as_str().unwrap_or_default();
    let published = published_by(job);
    if published.is_empty() {
        let message = format!("{job_name} published nothing, so nothing serves");
        let hint = "a plugin publishes what is to be served with `job.publish`";
        return Err(Failure::new(exit::UNEXPECTED, "not_served", message).hint(hint));
    }
    let mut failure = None;
    // The one that was published last is what the job made; the others are looked at where that one does not serve.
    for (model, version) in published.into_iter().rev() {
        let standing = wait_for_version(client, &model, version, patience)?;
        if standing == VersionStanding::Serves {
            return Ok((model, version));
        }
        failure = failure.or(Some(not_served(&model, version, standing, patience)));
    }
    Err(failure.unwrap_or_else(|| Failure::new(exit::UNEXPECTED, "not_served", "nothing serves")))
}

/// Why a version does not serve, and what helps.
fn not_served(model: &str, version: u64, standing: VersionStanding, patience: Duration) -> Failure {
    match standing {
        VersionStanding::Refused(reason) => {
            let message = format!("{model}@{version} is refused: {reason}");
            Failure::new(exit::INVALID, "refused", message).hint(format!("see `saggar models show {model}`"))
        }
        VersionStanding::Stored(reason) => {
            let message = format!("{model}@{version} is stored and does not serve: {reason}");
            Failure::new(exit::CONFLICT, "not_served", message).hint(format!("see `saggar models show {model}`"))
        }
        VersionStanding::Serves | VersionStanding::Waits => {
            let message = format!("{model}@{version} does not serve after {} s", patience.as_secs());
            Failure::new(exit::UNEXPECTED, "not_served", message).hint("see `saggar models ls`")
        }
    }
}

/// Says how what a job published stands, once that is known: a command that followed the job to its end leaves nothing to
/// wait for. What cannot be asked for is left out: the job has ended, whatever the server says here.
pub(super) fn say_what_serves(client: &Client, output: Output, job: &Value) {
    for (model, version) in published_by(job) {
        match wait_for_version(client, &model, version, PATIENCE) {
            Ok(VersionStanding::Serves) => output.note(&format!("{model}@{version} serves")),
            Ok(standing) => output.note(&not_served(&model, version, standing, PATIENCE).message),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_does_not_serve_has_its_reason_and_exit_code() {
        let of = |standing| {
            let failure = not_served("m", 3, standing, Duration::from_secs(2));
            (failure.exit, failure.message)
        };
        let refused = of(VersionStanding::Refused("BAD".to_owned()));
        assert_eq!(refused, (exit::INVALID, "m@3 is refused: BAD".to_owned()));
        let stored = of(VersionStanding::Stored("version 2 stays".to_owned()));
        assert_eq!(stored, (exit::CONFLICT, "m@3 is stored and does not serve: version 2 stays".to_owned()));
        assert_eq!(of(VersionStanding::Waits), (exit::UNEXPECTED, "m@3 does not serve after 2 s".to_owned()));
    }
}
