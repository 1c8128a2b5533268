//! The first answer of a version: predicts the model's example as a client would, until the expected version answers.

use std::time::{Duration, Instant};

use saggar_rest::predictions::ModelDescription;

use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::exit::{self, CliError};

/// The first answer.
pub(super) struct FirstAnswer {
    /// The version that answered: `digits@3`.
    pub(super) model_version: String,
    /// The time of the answer.
    pub(super) answered_at: Instant,
    /// The plugin's error for the example, or `None` if it predicted.
    pub(super) complaint: Option<String>,
}

/// Sends requests to `model` until `version` answers, or any version if it is `None`.
///
/// # Errors
/// Fails if another version still answers after `patience`, or if the server fails.
pub(super) fn wait_for_first_answer(
    client: &ApiClient,
    model: &str,
    version: Option<u64>,
    patience: Duration,
    interval: Duration,
) -> Result<FirstAnswer, CliError> {
    let began = Instant::now();
    let path = format!("/models/{}/predict", encode_path_segment(model));
    loop {
        let last = match client.get::<ModelDescription>(&path) {
            Err(failure) => failure,
            Ok(described) => {
                let whence = format!("{model}@{}", described.version);
                if version.is_none_or(|version| described.version == version) {
                    match client.post_for_text(&path, RequestBody::json(&described.example)) {
                        Ok(_) => {
                            return Ok(FirstAnswer {
                                model_version: whence,
                                answered_at: Instant::now(),
                                complaint: None,
                            });
                        }
                        // The example may be invalid for the plugin; its rejection is an answer of the version too.
                        Err(failure) if failure.exit_code == exit::INVALID => {
                            return Ok(FirstAnswer {
                                model_version: whence,
                                answered_at: Instant::now(),
                                complaint: Some(failure.message),
                            });
                        }
                        Err(failure) => failure,
                    }
                } else {
                    let message = format!("{whence} still serves after {} s", patience.as_secs());
                    let hint = format!("`saggar models promote {model} newest` lets new versions serve");
                    CliError::new(exit::UNEXPECTED, "not_served", message).with_hint(hint)
                }
            }
        };
        if began.elapsed() > patience {
            return Err(last);
        }
        std::thread::sleep(interval);
    }
}
