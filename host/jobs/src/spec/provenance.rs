//! What the model versions that a job publishes are made from.

use saggar_store::models::ModelProvenance;

use super::JobSpec;

/// Returns what a version is made from that a job with this specification publishes at `step`, on `device`.
pub fn model_provenance(spec: &JobSpec, device: &str, step: Option<u64>) -> ModelProvenance {
    ModelProvenance {
        data: spec.data.iter().map(|mount| (mount.mount.clone(), mount.source.to_string())).collect(),
        parameters: spec.parameters.clone(),
        seed: Some(spec.seed),
        step,
        device: device.to_owned(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
