//! The serving status of a published or imported version: whether it serves, or why not.

use std::time::{Duration, Instant};

use saggar_rest::errors::ErrorCode;
use saggar_rest::jobs::{JobDocument, JobPublicationDocument};
use saggar_rest::models::ModelDocument;

use crate::client::{ApiClient, encode_path_segment};
use crate::exit::CliError;

/// How often the server is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The serving status of a model version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServingStatus {
    /// It answers requests.
    Serving,
    /// It is stored but does not serve until a user acts; the text is the reason.
    NotServing(String),
    /// It could not be loaded; the text is the reason.
    Refused(String),
    /// It is loading, or the server has not found it yet.
    Pending,
}

/// Returns the status of version `number` in the server's response about its model.
pub(crate) fn serving_status(model: &ModelDocument, number: u64) -> ServingStatus {
    let version = model.versions.iter().find(|version| version.version == number);
    let Some(version) = version else { return ServingStatus::Pending };
    let reason = version.reason.clone();
    match (version.state.as_str(), version.reason_code.as_deref()) {
        ("READY", _) => ServingStatus::Serving,
        ("FAILED", _) => ServingStatus::Refused(reason),
        (_, Some("MODEL_UNLOADED" | "NOT_PROMOTED" | "CONDITION_NOT_MET" | "SUPERSEDED" | "ASLEEP")) => {
            ServingStatus::NotServing(reason)
        }
        _ => ServingStatus::Pending,
    }
}

/// Waits until the version serves or has a final reason not to, at most for `patience`.
///
/// # Errors
/// Fails if the server does not answer, or if this key may not see the model. Waits for a model that the server does
/// not know yet.
pub(crate) fn wait_for_version(
    client: &ApiClient,
    model: &str,
    version: u64,
    patience: Duration,
) -> Result<ServingStatus, CliError> {
    let began = Instant::now();
    loop {
        let standing = match client.get(&format!("/api/v1/models/{}", encode_path_segment(model))) {
            Ok(model) => serving_status(&model, version),
            Err(failure) if failure.is(ErrorCode::UnknownModel) => ServingStatus::Pending,
            Err(failure) => return Err(failure),
        };
        if standing != ServingStatus::Pending || began.elapsed() > patience {
            return Ok(standing);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the newest version of each model that a job published, in publication order.
pub(crate) fn newest_published_versions(job: &JobDocument) -> Vec<(String, u64)> {
    let mut published: Vec<(String, u64)> = Vec::new();
    for JobPublicationDocument { model, version } in job.published.iter().flatten() {
        published.retain(|(name, _)| name != model);
        published.push((model.clone(), *version));
    }
    published
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_final_serving_status_ends_the_wait() {
        let model = |state: &str, code: Value| {
            let version = json!({ "version": 3, "state": state, "reason": "why", "reason_code": code });
            let model = json!({ "versions": [{ "version": 2, "state": "READY" }, version] });
            serde_json::from_value::<ModelDocument>(model).unwrap()
        };
        let of = |state: &str, code: Value| serving_status(&model(state, code), 3);
        assert_eq!(of("READY", Value::Null), ServingStatus::Serving);
        assert_eq!(of("FAILED", Value::Null), ServingStatus::Refused("why".to_owned()));
        for code in ["MODEL_UNLOADED", "NOT_PROMOTED", "CONDITION_NOT_MET", "SUPERSEDED", "ASLEEP"] {
            assert_eq!(of("UNLOADED", json!(code)), ServingStatus::NotServing("why".to_owned()), "{code}");
        }
        for (state, code) in [("LOADING", Value::Null), ("UNLOADED", json!("PENDING")), ("UNLOADED", Value::Null)] {
            assert_eq!(of(state, code), ServingStatus::Pending, "{state}");
        }
        assert_eq!(serving_status(&model("READY", Value::Null), 4), ServingStatus::Pending, "it was not seen yet");
    }

    #[test]
    fn only_the_newest_published_version_of_each_model_is_listed() {
        let it = |model: &str, version| JobPublicationDocument { model: model.to_owned(), version };
        let published = Some(vec![it("a", 1), it("b", 4), it("a", 2)]);
        let job = JobDocument { published, ..JobDocument::default() };
        assert_eq!(newest_published_versions(&job), [("b".to_owned(), 4), ("a".to_owned(), 2)]);
        assert_eq!(newest_published_versions(&JobDocument::default()), []);
    }
}
