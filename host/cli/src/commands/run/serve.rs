//! `saggar run --mode serve`: runs a job and prints the address of the model that it publishes.

use std::time::Duration;

use saggar_rest::jobs::JobDocument;
use serde::Serialize;

use super::estimate::RunEstimate;
use super::follow_or_wait;
use crate::args::RunArgs;
use crate::client::ApiClient;
use crate::commands::job_follow::{describe_end, exit_code};
use crate::commands::serving_status::{ServingStatus, newest_published_versions, wait_for_version};
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// Maximum time until a published version serves.
const SERVE_TIME_MAX: Duration = Duration::from_secs(120);

/// The model that a job published as JSON, with the estimate of the training if one was requested.
#[derive(Serialize)]
struct ServedJob<'a> {
    job: &'a str,
    model: &'a str,
    version: u64,
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<RunEstimate>,
}

/// Waits until the job is over and the server serves the model that it published. Prints only the address.
pub(super) fn wait_and_print_url(
    args: &RunArgs,
    client: &ApiClient,
    output: CliOutput,
    job_name: &str,
    estimate: Option<RunEstimate>,
) -> Result<i32, CliError> {
    let job = follow_or_wait(client, output, job_name, args.follow)?;
    let sentence = describe_end(&job, job_name, output);
    let code = exit_code(&job);
    if code != 0 {
        output.print_line(&sentence);
        return Ok(code);
    }
    output.print_note(&sentence);
    let (model, version) = wait_until_served(client, &job, SERVE_TIME_MAX)?;
    let url = client.url(&format!("/models/{model}/predict"));
    if output.json {
        output.print_json_line(&ServedJob { job: job_name, model: &model, version, url: &url, estimate });
    } else {
        output.print_line(&url);
    }
    output.print_note("GET returns the model's inputs; POST predicts.");
    Ok(0)
}

/// Waits until the server serves a version that the finished job published. Returns the model and its version.
///
/// # Errors
/// Fails if the job published nothing, its versions were rejected or are not to serve, or none serves after `patience`.
pub(crate) fn wait_until_served(
    client: &ApiClient,
    job: &JobDocument,
    patience: Duration,
) -> Result<(String, u64), CliError> {
    let job_name = &job.name;
    let published = newest_published_versions(job);
    if published.is_empty() {
        let message = format!("{job_name} published nothing, so nothing serves");
        let hint = "the plugin must publish a model with `job.publish`";
        return Err(CliError::new(exit::UNEXPECTED, "not_served", message).with_hint(hint));
    }
    let mut failure = None;
    // The version published last is the job's result; earlier ones are tried if it does not serve.
    for (model, version) in published.into_iter().rev() {
        let standing = wait_for_version(client, &model, version, patience)?;
        if standing == ServingStatus::Serving {
            return Ok((model, version));
        }
        failure = failure.or(Some(not_served_error(&model, version, standing, patience)));
    }
    Err(failure.unwrap_or_else(|| CliError::new(exit::UNEXPECTED, "not_served", "nothing serves")))
}

/// Returns the error for a version that does not serve, with a hint.
fn not_served_error(model: &str, version: u64, standing: ServingStatus, patience: Duration) -> CliError {
    match standing {
        ServingStatus::Refused(reason) => {
            let message = format!("{model}@{version} is refused: {reason}");
            CliError::new(exit::INVALID, "refused", message).with_hint(format!("see `saggar models show {model}`"))
        }
        ServingStatus::NotServing(reason) => {
            let message = format!("{model}@{version} is stored but does not serve: {reason}");
            CliError::new(exit::CONFLICT, "not_served", message).with_hint(format!("see `saggar models show {model}`"))
        }
        ServingStatus::Serving | ServingStatus::Pending => {
            let message = format!("{model}@{version} does not serve after {} s", patience.as_secs());
            CliError::new(exit::UNEXPECTED, "not_served", message).with_hint("see `saggar models ls`")
        }
    }
}

/// Prints the serving status of the versions that a job published, once it is known. Errors of these requests are
/// ignored, because the job has ended either way.
pub(super) fn print_serving_status(client: &ApiClient, output: CliOutput, job: &JobDocument) {
    for (model, version) in newest_published_versions(job) {
        match wait_for_version(client, &model, version, SERVE_TIME_MAX) {
            Ok(ServingStatus::Serving) => output.print_note(&format!("{model}@{version} serves")),
            Ok(standing) => output.print_note(&not_served_error(&model, version, standing, SERVE_TIME_MAX).message),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_does_not_serve_is_an_error_with_reason_and_exit_code() {
        let of = |standing| {
            let failure = not_served_error("m", 3, standing, Duration::from_secs(2));
            (failure.exit_code, failure.message)
        };
        let refused = of(ServingStatus::Refused("BAD".to_owned()));
        assert_eq!(refused, (exit::INVALID, "m@3 is refused: BAD".to_owned()));
        let stored = of(ServingStatus::NotServing("version 2 stays".to_owned()));
        assert_eq!(stored, (exit::CONFLICT, "m@3 is stored but does not serve: version 2 stays".to_owned()));
        assert_eq!(of(ServingStatus::Pending), (exit::UNEXPECTED, "m@3 does not serve after 2 s".to_owned()));
    }
}
