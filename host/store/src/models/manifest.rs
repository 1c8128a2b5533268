//! `manifest.json`: the files of a version with their digests, and what the version was made from.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};

use super::provenance::ModelProvenance;
use super::{CARD_FILE, MANIFEST_FILE, PLUGIN_FILE, WEIGHTS_FILE};
use crate::digest::Digest;
use crate::error::{FileProblem, ModelError, StoreError};
use crate::format_number::read_format_number;
use crate::image_preprocessing::{ImageInputs, check_image_inputs};
use crate::regular_file;

/// The version of the manifest's format that this build writes and reads.
pub const FORMAT: u64 = 1;
/// Limit on the bytes of a manifest. It has a line for each file and each statistic, far less than this.
pub(super) const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// A file of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Its name, without folders.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: Digest,
}

/// The content of `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelManifest {
    /// The version of this format.
    pub format: u64,
    /// The files of the version, except the manifest.
    pub files: Vec<FileEntry>,
    /// Digest of the plugin's component.
    pub plugin: Digest,
    /// Digest of the weights: [`digest_of_variables`] over parameters and statistics.
    pub weights: Digest,
    /// The configuration passed to the plugin's `predictor.load`.
    pub config: String,
    /// The preprocessing of its image inputs. An input that is not here gets what clients send.
    #[serde(default, skip_serializing_if = "ImageInputs::is_empty")]
    pub inputs: ImageInputs,
    /// Names of the variables that are statistics; the others are parameters.
    pub statistics: Vec<String>,
    /// The time of publication.
    pub created_ms: UnixMillis,
    /// The job that published it; empty if no job did.
    pub source_job: String,
    /// The metrics of the job at publication: the latest value of each of its series.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// What it was made from, as far as its publisher knew.
    #[serde(default, skip_serializing_if = "ModelProvenance::is_empty")]
    pub provenance: ModelProvenance,
}

impl ModelManifest {
    /// Returns the entry of a file, or `None` if the version has no such file.
    pub fn file(&self, name: &str) -> Option<&FileEntry> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Returns the bytes of the version's files together, without the manifest.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }

    /// Returns whether both describe the same content from the same source. The time of publication does not count.
    pub(super) fn is_same_publication(&self, other: &ModelManifest) -> bool {
        let card = |it: &ModelManifest| it.file(CARD_FILE).map(|file| file.sha256);
        self.source_job == other.source_job
            && (self.plugin, self.weights, &self.config) == (other.plugin, other.weights, &other.config)
            && self.inputs == other.inputs
            && card(self) == card(other)
    }
}

/// Returns a version's manifest if the files beside it have the sizes in it.
pub(super) fn check_sizes(dir: &Path) -> Result<ModelManifest, ModelError> {
    let manifest = read_manifest(dir)?;
    for file in &manifest.files {
        let path = dir.join(&file.name);
        let problem = match fs::metadata(&path) {
            Ok(meta) if meta.is_file() && meta.len() == file.bytes => continue,
            Ok(meta) if !meta.is_file() => FileProblem::Unreadable { reason: "it is not a regular file".to_owned() },
            Ok(meta) => FileProblem::WrongSize { expected: file.bytes, found: meta.len() },
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileProblem::Missing,
            Err(error) => return Err(StoreError::io(&path)(error).into()),
        };
        return Err(ModelError::Incomplete { file: path, problem });
    }
    Ok(manifest)
}

pub(super) fn read_manifest(dir: &Path) -> Result<ModelManifest, ModelError> {
    if !dir.is_dir() {
        return Err(ModelError::NotFound { dir: dir.to_owned() });
    }
    let file = dir.join(MANIFEST_FILE);
    let incomplete = |problem| ModelError::Incomplete { file: file.clone(), problem };
    let unreadable = |reason: String| incomplete(FileProblem::Unreadable { reason });
    let size = match fs::metadata(&file) {
        Ok(meta) => meta.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(incomplete(FileProblem::Missing));
        }
        Err(error) => return Err(StoreError::io(&file)(error).into()),
    };
    if size > MANIFEST_BYTES_MAX {
        return Err(unreadable(format!("it has {size} bytes")));
    }
    let text = regular_file::read(&file, MANIFEST_BYTES_MAX).map_err(StoreError::io(&file))?;
    decode_manifest(&file, &text)
}

/// Parses the content of a version's manifest, which is that of `file`.
pub(super) fn decode_manifest(file: &Path, text: &[u8]) -> Result<ModelManifest, ModelError> {
    parse_manifest(text).map_err(|error| {
        let problem = match error {
            ManifestError::Unreadable(reason) => FileProblem::Unreadable { reason },
            ManifestError::OtherFormat(found) => FileProblem::OtherFormat { found, expected: FORMAT },
        };
        ModelError::Incomplete { file: file.to_owned(), problem }
    })
}

/// The reason for which the text of a manifest is refused.
#[derive(Debug)]
pub(super) enum ManifestError {
    /// It is malformed, or lists other files than a version has.
    Unreadable(String),
    /// It has another version of the format.
    OtherFormat(u64),
}

/// Parses a manifest and checks the names of its files and the preprocessing of its inputs.
pub(super) fn parse_manifest(text: &[u8]) -> Result<ModelManifest, ManifestError> {
    let unreadable = |error: serde_json::Error| ManifestError::Unreadable(error.to_string());
    let format = read_format_number(text).map_err(unreadable)?;
    if format != FORMAT {
        return Err(ManifestError::OtherFormat(format));
    }
    let manifest: ModelManifest = serde_json::from_slice(text).map_err(unreadable)?;
    let mut names: Vec<&str> = manifest.files.iter().map(|file| file.name.as_str()).collect();
    names.sort_unstable();
    if names != [PLUGIN_FILE, WEIGHTS_FILE] && names != [CARD_FILE, PLUGIN_FILE, WEIGHTS_FILE] {
        let reason = format!("it lists {names:?}, expected {PLUGIN_FILE}, {WEIGHTS_FILE} and at most {CARD_FILE}");
        return Err(ManifestError::Unreadable(reason));
    }
    check_image_inputs(&manifest.inputs).map_err(|error| ManifestError::Unreadable(error.to_string()))?;
    Ok(manifest)
}
