//! The specification of a prediction job: a published version's answer for every item of a dataset.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::JobSpec;
use crate::error::SpecError;
use saggar_project::is_valid_name;

/// The predictions of a job. The job mounts the dataset, whose fields are the model's inputs of the same names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictionSpec {
    /// The model.
    pub model: String,
    /// Its version; the newest at submission if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The split of the dataset; all of it if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// The dataset in which the answers become a version, once every item has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
}

impl PredictionSpec {
    /// Checks everything that needs no lookup.
    ///
    /// # Errors
    /// `Prediction`; `Name`.
    pub(super) fn validate(&self, spec: &JobSpec) -> Result<(), SpecError> {
        let refuse = |reason| Err(SpecError::Prediction { reason });
        if spec.data.len() != 1 {
            return refuse("expected one dataset in `data`, whose items are predicted");
        }
        if spec.replicas > 1 || spec.shards.is_some() {
            return refuse("predictions run in one process; leave `replicas` and `shards` out");
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
