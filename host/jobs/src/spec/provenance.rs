//! What the model versions that a job publishes are made from.

use std::collections::BTreeMap;

use saggar_store::models::ModelProvenance;

use super::JobSpec;

/// Returns what a version is made from that a job with this specification publishes at `step`, on `device`. `data_sha256`
/// are the digests of the datasets by mount, as far as they are known.
pub fn model_provenance(
    spec: &JobSpec,
    data_sha256: BTreeMap<String, String>,
    device: &str,
    step: Option<u64>,
) -> ModelProvenance {
    ModelProvenance {
        data: spec.data.iter().map(|mount| (mount.mount.clone(), mount.source.to_string())).collect(),
        data_sha256,
        parameters: spec.parameters.clone(),
        seed: Some(spec.seed),
        step,
        device: device.to_owned(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
