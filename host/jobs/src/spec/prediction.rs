//! What a prediction job computes: a published version's answer for every item of a dataset.

use serde::{Deserialize, Serialize};

use super::JobSpec;
use crate::error::SpecError;
use saggar_project::is_valid_name;

/// See the module. The job mounts the dataset; its fields are the model's inputs by their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PredictionSpec {
    /// The model.
    pub model: String,
    /// Its version; the newest at submission where none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The part of the dataset; all of it where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// The dataset that the answers become a version of, when there is one for every item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
}

impl PredictionSpec {
    /// Checks what can be checked without looking anything up.
    ///
    /// # Errors
    /// `PredictionSpec`; `Name`.
    pub(super) fn validate(&self, spec: &JobSpec) -> Result<(), SpecError> {
        let refuse = |reason| Err(SpecError::Prediction { reason });
        if spec.data.len() != 1 {
            return refuse("expected one dataset in `data`, whose items are predicted");
        }
        if spec.replicas > 1 || spec.shards.is_some() {
            return refuse("one process predicts; leave `replicas` and `shards` out");
        }
        if spec.init_from.is_some() || !spec.parameters.is_empty() || !spec.secrets.is_empty() {
            return refuse("nothing is trained; leave `init_from`, `parameters` and `secrets` out");
        }
        match &self.out {
            Some(name) if !is_valid_name(name) => Err(SpecError::Name { field: "predict.out", name: name.clone() }),
            _ => Ok(()),
        }
    }
}
