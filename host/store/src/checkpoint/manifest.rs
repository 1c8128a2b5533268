//! The checkpoint manifest: one JSON object that contains its own digest.
//!
//! ```json
//! {"format":3,"sha256":"…","body":{"job":"…","step":100,…}}
//! ```
//!
//! Format 4 is format 3 with parts that belong to one epoch; it is written only if there are such parts. Format 2 is format 3 without the autotuned kernel choices, and format 1 is format 2 without metrics. Both are read
//! but no longer written.
//!
//! The digest covers the format's number and the body's text, so a flipped bit in either is detected as damage, and
//! another number with a valid digest is another format.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use saggar_tensor::Descriptor;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::pack::PartRange;
use super::{CheckpointInfo, DatasetPosition, VariableKind};
use crate::digest::{Digest, Sha256Hasher};

/// The newest version of the format that this build writes.
pub(crate) const FORMAT: u64 = 4;
/// The version that it writes if no part belongs to an epoch.
const FORMAT_WITHOUT_EPOCHS: u64 = 3;
/// The format versions that this build reads.
pub(crate) const FORMATS_READ: RangeInclusive<u64> = 1..=FORMAT;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestEnvelope {
    format: u64,
    sha256: Digest,
    body: Box<RawValue>,
}

/// A stored part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckpointPart {
    pub(super) sha256: Digest,
    pub(super) bytes: u64,
    /// The fencing epoch whose parts it is among; `None` among those that all epochs share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<u64>,
}

/// A variable without its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckpointVariable {
    pub(super) name: String,
    pub(super) kind: VariableKind,
    #[serde(with = "crate::tensor_text")]
    pub(super) tensor: Descriptor,
    pub(super) pieces: Vec<PartRange>,
}

/// A checkpoint without its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckpointManifest {
    pub(super) job: String,
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) plugin: String,
    pub(super) device: String,
    pub(super) build: String,
    pub(super) positions: Vec<DatasetPosition>,
    pub(super) state: Vec<PartRange>,
    pub(super) variables: Vec<CheckpointVariable>,
    pub(super) parts: Vec<CheckpointPart>,
    #[serde(default, deserialize_with = "exact_numbers")]
    pub(super) metrics: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) ways: BTreeMap<String, String>,
}

/// The reason why a manifest cannot be decoded.
#[derive(Debug, PartialEq)]
pub(super) enum ManifestDecodeError {
    Damaged(String),
    OtherFormat(u64),
}

impl CheckpointManifest {
    /// Encodes the manifest, and returns the text and the digest in it.
    pub(super) fn encode(&self) -> Result<(Vec<u8>, Digest), serde_json::Error> {
        let body = serde_json::value::to_raw_value(self)?;
        let has_epochs = self.parts.iter().any(|part| part.epoch.is_some());
        let format = if has_epochs { FORMAT } else { FORMAT_WITHOUT_EPOCHS };
        let sha256 = body_digest(format, body.get());
        let mut text = serde_json::to_vec(&ManifestEnvelope { format, sha256, body })?;
        text.push(b'\n');
        Ok((text, sha256))
    }

    /// Decodes a manifest's text and verifies its digest.
    pub(super) fn decode(text: &[u8]) -> Result<(CheckpointManifest, Digest), ManifestDecodeError> {
        let damaged = |error: serde_json::Error| ManifestDecodeError::Damaged(error.to_string());
        let envelope: ManifestEnvelope = serde_json::from_slice(text).map_err(damaged)?;
        let found = body_digest(envelope.format, envelope.body.get());
        if found != envelope.sha256 {
            let reason = format!("SHA-256 is {found}, written as {}", envelope.sha256);
            return Err(ManifestDecodeError::Damaged(reason));
        }
        if !FORMATS_READ.contains(&envelope.format) {
            return Err(ManifestDecodeError::OtherFormat(envelope.format));
        }
        let manifest = serde_json::from_str(envelope.body.get()).map_err(damaged)?;
        Ok((manifest, found))
    }

    /// Checks that variables and parts are consistent; returns the first inconsistency.
    pub(super) fn validate(&self) -> Result<(), String> {
        let lengths = |pieces: &[PartRange]| {
            pieces.iter().try_fold(0u64, |sum, &(part, offset, length)| {
                let part_bytes = self.parts.get(part).map(|part| part.bytes);
                let end = offset.checked_add(length).filter(|end| part_bytes.is_some_and(|bytes| *end <= bytes));
                end.and_then(|_| sum.checked_add(length))
            })
        };
        lengths(&self.state).ok_or("its state does not lie in its parts")?;
        for variable in &self.variables {
            if lengths(&variable.pieces) != Some(variable.tensor.bytes() as u64) {
                return Err(format!("the pieces of variable {} are not those of {}", variable.name, variable.tensor));
            }
        }
        Ok(())
    }

    /// Returns the entry for a listing.
    pub(super) fn info(&self, digest: Digest, file: String) -> CheckpointInfo {
        let pieces = self.variables.iter().flat_map(|it| &it.pieces).chain(&self.state);
        let bytes = pieces.fold(0u64, |sum, piece| sum.saturating_add(piece.2));
        let (metrics, ways) = (self.metrics.clone(), self.ways.clone());
        let (step, fencing_epoch) = (self.step, self.epoch);
        let epoch = self.positions.iter().map(DatasetPosition::epochs_started).max();
        CheckpointInfo { step, fencing_epoch, epoch, bytes, digest, file, written_ms: 0, metrics, ways }
    }
}

/// Deserializes numbers exactly: `serde_json` can parse a fraction to the neighbouring float.
fn exact_numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let texts = BTreeMap::<String, Box<RawValue>>::deserialize(deserializer)?;
    let exact = texts.into_iter().map(|(name, text)| Ok((name, text.get().parse().map_err(D::Error::custom)?)));
    exact.collect()
}

fn body_digest(format: u64, body: &str) -> Digest {
    let mut hasher = Sha256Hasher::new();
    hasher.update(format!("saggar checkpoint {format}\n").as_bytes());
    hasher.update(body.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_manifest() -> CheckpointManifest {
        CheckpointManifest {
            job: "j".to_owned(),
            step: 7,
            epoch: 2,
            plugin: "p".to_owned(),
            device: "cpu".to_owned(),
            build: "b".to_owned(),
            ways: [("matmul 1x [8, 8]".to_owned(), "lanes 32x32".to_owned())].into(),
            positions: vec![DatasetPosition { seed: Some(u64::MAX), ..DatasetPosition::default() }],
            state: vec![(0, 0, 3)],
            variables: Vec::new(),
            parts: vec![CheckpointPart { sha256: Digest::of(b"x"), bytes: 3, epoch: None }],
            metrics: [("loss".to_owned(), 1.0 / 102.0)].into(),
        }
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let (text, digest) = sample_manifest().encode().unwrap();
        assert_eq!(CheckpointManifest::decode(&text), Ok((sample_manifest(), digest)));
        for at in 0..text.len() {
            // The trailing line break is not part of the manifest.
            let cut = CheckpointManifest::decode(&text[..at]);
            assert_eq!(cut.is_ok(), at == text.len() - 1, "cut at {at}");
            for bit in 0..8 {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << bit;
                let read = CheckpointManifest::decode(&flipped);
                assert!(matches!(read, Err(ManifestDecodeError::Damaged(_))), "{at}.{bit}: {read:?}");
            }
        }
    }

    #[test]
    fn the_previous_manifest_format_is_read() {
        let before = CheckpointManifest { ways: BTreeMap::new(), ..sample_manifest() };
        let body = serde_json::value::to_raw_value(&before).unwrap();
        assert!(!body.get().contains("ways"), "as a build without them wrote it");
        let envelope = ManifestEnvelope { format: 2, sha256: body_digest(2, body.get()), body };
        let (read, _) = CheckpointManifest::decode(&serde_json::to_vec(&envelope).unwrap()).unwrap();
        assert_eq!(read, before);
    }

    #[test]
    fn an_unknown_format_is_distinguished_from_damage() {
        let body = RawValue::from_string(r#"{"whatever":true}"#.to_owned()).unwrap();
        let envelope = ManifestEnvelope { format: 5, sha256: body_digest(5, body.get()), body };
        let text = serde_json::to_vec(&envelope).unwrap();
        assert_eq!(CheckpointManifest::decode(&text), Err(ManifestDecodeError::OtherFormat(5)));
    }
}
