//! `saggar run --mode serve`: from a plugin to the address that answers.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{add, ended, exit_code, stay};
use crate::args::Run;
use crate::client::Client;
use crate::exit::{self, Failure};
use crate::output::Output;

/// How long a version that was published may take until it serves.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the server is asked.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

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
/// It published nothing, the version was refused, or nothing serves after `patience`.
pub(crate) fn wait_until_served(client: &Client, job: &Value, patience: Duration) -> Result<(String, u64), Failure> {
    let job_name = job["name"].as_str().unwrap_or_default();
    if job["published"].as_array().is_some_and(Vec::is_empty) {
        let message = format!("{job_name} published nothing, so nothing serves");
        let hint = "a plugin publishes what is to be served with `job.publish`";
        return Err(Failure::new(exit::UNEXPECTED, "not_served", message).hint(hint));
    }
    let began = Instant::now();
    loop {
        let models = client.get("/api/v1/models")?;
        if let Some(found) = served(&models, job_name)? {
            return Ok(found);
        }
        if began.elapsed() > patience {
            let message = format!("nothing that {job_name} published serves after {} s", patience.as_secs());
            return Err(Failure::new(exit::UNEXPECTED, "not_served", message).hint("see `saggar models ls`"));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The model and the version that serve of those the job published; none as long as there are none.
///
/// # Errors
/// Why the version was refused.
fn served(models: &Value, job: &str) -> Result<Option<(String, u64)>, Failure> {
    let mut refused = None;
    for model in models["models"].as_array().into_iter().flatten() {
        let name = model["name"].as_str().unwrap_or_default();
        for version in model["versions"].as_array().into_iter().flatten() {
            let number = version["version"].as_u64().unwrap_or_default();
            match version["state"].as_str() {
                _ if version["source_job"] != job => {}
                Some("READY") => return Ok(Some((name.to_owned(), number))),
                Some("FAILED") => {
                    let reason = version["reason"].as_str().unwrap_or_default();
                    refused = Some(format!("{name}@{number} is refused: {reason}"));
                }
                _ => {}
            }
        }
    }
    match refused {
        Some(message) => Err(Failure::new(exit::INVALID, "refused", message).hint("see `saggar models show`")),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_job_published_counts() {
        let models = |state: &str| {
            let version = |job: &str| json!({ "version": 3, "state": state, "source_job": job, "reason": "BAD" });
            json!({ "models": [{ "name": "a", "versions": [version("other-1"), version("mine-2")] }] })
        };
        assert_eq!(served(&models("READY"), "mine-2").unwrap(), Some(("a".to_owned(), 3)));
        assert_eq!(served(&models("READY"), "mine-1").unwrap(), None);
        assert_eq!(served(&models("LOADING"), "mine-2").unwrap(), None);
        assert_eq!(served(&models("FAILED"), "mine-1").unwrap(), None);
        assert!(served(&models("FAILED"), "mine-2").is_err());
    }
}
