//! How a version that was published or imported stands: whether it serves, or why it does not.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{Client, segment};
use crate::exit::Failure;

/// How often the server is asked.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Where a version of a model stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VersionStanding {
    /// It answers requests.
    Serves,
    /// It is stored, and does not serve before somebody does something: what, the reason says.
    Stored(String),
    /// It could not be brought up.
    Refused(String),
    /// It is being brought up, or was not seen yet.
    Waits,
}

/// How version `number` stands in the answer about its model.
pub(crate) fn standing(model: &Value, number: u64) -> VersionStanding {
    let mut versions = model["versions"].as_array().into_iter().flatten();
    let Some(version) = versions.find(|version| version["version"] == number) else { return VersionStanding::Waits };
    let reason = version["reason"].as_str().unwrap_or_default().to_owned();
    match (version["state"].as_str(), version["reason_code"].as_str()) {
        (Some("READY"), _) => VersionStanding::Serves,
        (Some("FAILED"), _) => VersionStanding::Refused(reason),
        (_, Some("MODEL_UNLOADED" | "NOT_PROMOTED" | "SUPERSEDED" | "ASLEEP")) => VersionStanding::Stored(reason),
        _ => VersionStanding::Waits,
    }
}

/// Waits until the version serves or does not serve for a reason that stays, at most for `patience`.
///
/// # Errors
/// The server does not answer, or does not show the model to this key. A model that it does not know yet is waited for.
pub(crate) fn wait_for_version(
    client: &Client,
    model: &str,
    version: u64,
    patience: Duration,
) -> Result<VersionStanding, Failure> {
    let began = Instant::now();
    loop {
        let standing = match client.get(&format!("/api/v1/models/{}", segment(model))) {
            Ok(model) => standing(&model, version),
            Err(failure) if failure.code == "unknown_model" => VersionStanding::Waits,
            Err(failure) => return Err(failure),
        };
        if standing != VersionStanding::Waits || began.elapsed() > patience {
            return Ok(standing);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The newest version of each model that a job published, in the order in which they were published.
pub(crate) fn published_by(job: &Value) -> Vec<(String, u64)> {
    let mut published: Vec<(String, u64)> = Vec::new();
    for it in job["published"].as_array().into_iter().flatten() {
        let (Some(model), Some(version)) = (it["model"].as_str(), it["version"].as_u64()) else { continue };
        published.retain(|(name, _)| name != model);
        published.push((model.to_owned(), version));
    }
    published
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_stays_so_ends_the_wait() {
        let model = |state: &str, code: Value| {
            let version = json!({ "version": 3, "state": state, "reason": "why", "reason_code": code });
            json!({ "versions": [{ "version": 2, "state": "READY" }, version] })
        };
        let of = |state: &str, code: Value| standing(&model(state, code), 3);
        assert_eq!(of("READY", Value::Null), VersionStanding::Serves);
        assert_eq!(of("FAILED", Value::Null), VersionStanding::Refused("why".to_owned()));
        for code in ["MODEL_UNLOADED", "NOT_PROMOTED", "SUPERSEDED", "ASLEEP"] {
            assert_eq!(of("UNLOADED", json!(code)), VersionStanding::Stored("why".to_owned()), "{code}");
        }
        for (state, code) in [("LOADING", Value::Null), ("UNLOADED", json!("PENDING")), ("UNLOADED", Value::Null)] {
            assert_eq!(of(state, code), VersionStanding::Waits, "{state}");
        }
        assert_eq!(standing(&model("READY", Value::Null), 4), VersionStanding::Waits, "it was not seen yet");
    }

    #[test]
    fn the_newest_version_of_each_model_counts() {
        let it = |model: &str, version: u64| json!({ "model": model, "version": version });
        let job = json!({ "published": [it("a", 1), it("b", 4), it("a", 2)] });
        assert_eq!(published_by(&job), [("b".to_owned(), 4), ("a".to_owned(), 2)]);
        assert_eq!(published_by(&json!({})), []);
    }
}
