//! The model registry: one directory for each immutable version.
//!
//! ```text
//! models/<name>/<version>/plugin.wasm  weights.safetensors  manifest.json
//! ```
//! A version may also be copied here by hand; until all files are there and as the manifest says,
//! it is [`VersionCompleteness::Incomplete`], and that is no error.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{SavedVariable, VariableKind, digest_of_variables};
use crate::clock::UnixMillis;
use crate::digest::Digest;
use crate::durable;
use crate::error::{FileProblem, ModelError, StoreError};
use crate::regular_file;
use crate::versions::{self, VersionDirectories};

mod removal;
#[cfg(test)]
mod tests;
pub(crate) mod weights;

pub(crate) use weights::safetensors_dtype;

/// The plugin's file name in a version.
pub const PLUGIN_FILE: &str = "plugin.wasm";
/// The weights' file name in a version.
pub const WEIGHTS_FILE: &str = "weights.safetensors";
/// The manifest's file name in a version; copied last.
pub const MANIFEST_FILE: &str = "manifest.json";

/// The version of the manifest's format.
const FORMAT: u64 = 1;
/// The most bytes of a file beside a model's versions.
pub const NOTE_BYTES_MAX: u64 = 16 << 20;
/// A manifest has a line for each file and each statistic: far less than this.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// The most series whose values a version keeps. The manifests of all versions are read at each look at the directory.
pub const VERSION_METRICS_MAX: usize = 32;

/// A file of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Its name, without folders.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: Digest,
}

/// What `manifest.json` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelManifest {
    /// The version of this format.
    pub format: u64,
    /// The files beside it.
    pub files: Vec<FileEntry>,
    /// Digest of the plugin's component.
    pub plugin: Digest,
    /// Digest of the weights: [`digest_of_variables`] over parameters and statistics.
    pub weights: Digest,
    /// Given to the plugin's `predictor.load`.
    pub config: String,
    /// Names of the variables that are statistics; the others are parameters.
    pub statistics: Vec<String>,
    /// When it was published.
    pub created_ms: UnixMillis,
    /// The job that published it; empty where none did.
    pub source_job: String,
    /// What the job had measured when it published: the latest value of each of its series.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

/// What is published.
#[derive(Clone, Debug)]
pub struct ModelPublication<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The plugin's component.
    pub plugin: &'a [u8],
    /// The weights. Variables for training only are left out.
    pub variables: &'a [SavedVariable],
    /// Given to the plugin's `predictor.load`.
    pub config: &'a str,
    /// The job's identifier; empty where none did it.
    pub source_job: &'a str,
    /// The time now.
    pub created_ms: UnixMillis,
    /// What the job measured: the latest value of each series. Values that JSON has no number for are left out, and series
    /// past [`VERSION_METRICS_MAX`].
    pub metrics: BTreeMap<String, f64>,
}

/// A published version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedVersion {
    /// Its number.
    pub version: u64,
    /// Whether it was made now; otherwise the same was published before.
    pub is_new: bool,
    /// Its directory.
    pub dir: PathBuf,
}

/// A version's directory, as a glance shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedVersion {
    /// The model.
    pub name: String,
    /// The version.
    pub version: u64,
    /// Its directory.
    pub dir: PathBuf,
    /// Whether it is all there.
    pub state: VersionCompleteness,
}

/// Whether a version is all there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionCompleteness {
    /// Every file has its size. Digests are for [`verify`] to check.
    Complete,
    /// Something is missing; the reason says what.
    Incomplete(String),
}

/// A version whose files were all checked against its manifest.
#[derive(Clone, Debug)]
pub struct VersionFiles {
    /// Its directory.
    pub dir: PathBuf,
    /// Its manifest.
    pub manifest: ModelManifest,
}

/// The models under one directory.
#[derive(Clone, Debug)]
pub struct ModelRegistry {
    versions: VersionDirectories,
}

impl ModelRegistry {
    /// The models under `version_dir`.
    pub fn new(dir: impl Into<PathBuf>) -> ModelRegistry {
        ModelRegistry { versions: VersionDirectories::new(dir) }
    }

    /// Makes a version, unless the same job published the same plugin, weights and config before.
    /// Durable when it returns; two processes never make one number or one publication twice.
    ///
    /// # Errors
    /// `BadName`; `Weights` where a name or shape cannot be stored; `Store`.
    pub fn publish(&self, it: &ModelPublication<'_>) -> Result<PublishedVersion, ModelError> {
        if !versions::is_name(it.model) {
            return Err(ModelError::BadName { name: it.model.to_owned() });
        }
        let mut kept: Vec<_> = it.variables.iter().filter(|it| it.kind != VariableKind::Training).collect();
        kept.sort_by(|a, b| a.name.cmp(&b.name));
        let weights = weights::encode(&kept)?;
        let statistics = kept.iter().filter(|it| it.kind == VariableKind::Statistic);
        let file = |name: &str, bytes: &[u8]| FileEntry {
            name: name.to_owned(),
            bytes: bytes.len() as u64,
            sha256: Digest::of(bytes),
        };
        let finite = it.metrics.iter().filter(|(_, value)| value.is_finite());
        let manifest = ModelManifest {
            format: FORMAT,
            files: vec![file(PLUGIN_FILE, it.plugin), file(WEIGHTS_FILE, &weights)],
            plugin: Digest::of(it.plugin),
            weights: digest_of_variables(kept.iter().copied()),
            config: it.config.to_owned(),
            statistics: statistics.map(|it| it.name.clone()).collect(),
            created_ms: it.created_ms,
            source_job: it.source_job.to_owned(),
            metrics: finite.take(VERSION_METRICS_MAX).map(|(name, value)| (name.clone(), *value)).collect(),
        };
        let text =
            serde_json::to_vec_pretty(&manifest).map_err(|error| ModelError::Weights { reason: error.to_string() })?;
        let same = |versions: &[u64]| {
            let find = |version: &&u64| self.is_same_publication(it.model, **version, &manifest);
            Ok::<_, ModelError>(versions.iter().rev().find(find).copied())
        };
        let fill = |dir: &Path| {
            let files = [(PLUGIN_FILE, it.plugin), (WEIGHTS_FILE, &weights), (MANIFEST_FILE, &text)];
            for (name, bytes) in files {
                let path = dir.join(name);
                durable::write_new_shared(&path, bytes).map_err(StoreError::io(&path))?;
            }
            Ok(())
        };
        let placed = self.versions.publish(it.model, same, fill)?;
        let dir = self.versions.directory(it.model, placed.version);
        Ok(PublishedVersion { version: placed.version, is_new: placed.is_new, dir })
    }

    /// Whether a version is this publication, and whole.
    fn is_same_publication(&self, model: &str, version: u64, wanted: &ModelManifest) -> bool {
        let dir = self.versions.directory(model, version);
        let key = |it: &ModelManifest| (it.source_job.clone(), it.plugin, it.weights, it.config.clone());
        read_manifest(&dir).is_ok_and(|found| key(&found) == key(wanted)) && verify(&dir).is_ok()
    }

    /// The versions of all models, by name and number. Cheap: it looks at sizes, not at contents.
    ///
    /// # Errors
    /// `Store` where a directory cannot be listed.
    pub fn scan(&self) -> Result<Vec<ScannedVersion>, ModelError> {
        let mut found = Vec::new();
        for name in self.versions.names()? {
            for version in self.versions.versions(&name)? {
                let dir = self.versions.directory(&name, version);
                let state = match check_sizes(&dir) {
                    Ok(_) => VersionCompleteness::Complete,
                    Err(error) => VersionCompleteness::Incomplete(error.to_string()),
                };
                found.push(ScannedVersion { name: name.clone(), version, dir, state });
            }
        }
        Ok(found)
    }

    /// A version whose files were all checked, as [`load`] does, and its weights: the version that is named, or the
    /// newest that is whole.
    ///
    /// # Errors
    /// `BadName`; `NotFound` where there is none; `Incomplete`; `Store`.
    pub fn open(&self, model: &str, version: Option<u64>) -> Result<(VersionFiles, Vec<SavedVariable>), ModelError> {
        if let Some(version) = version {
            return load(&self.version_dir(model, version)?);
        }
        // Named by its directory where there is none, as a version is.
        let mut result = Err(ModelError::NotFound { dir: self.version_dir(model, 1)? });
        for version in self.versions.versions(model)?.into_iter().rev() {
            result = load(&self.versions.directory(model, version));
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// The manifest of a version, of which nothing else is looked at.
    ///
    /// # Errors
    /// `BadName`; `NotFound`; `Incomplete` where it cannot be read; `Store`.
    pub fn manifest(&self, model: &str, version: u64) -> Result<ModelManifest, ModelError> {
        read_manifest(&self.version_dir(model, version)?)
    }

    /// Every model that has a directory, sorted.
    ///
    /// # Errors
    /// `Store` where the directory cannot be listed.
    pub fn names(&self) -> Result<Vec<String>, ModelError> {
        Ok(self.versions.names()?)
    }

    /// A small file beside a model's versions, if it is there.
    ///
    /// # Errors
    /// `BadName`; `Store` where it is there and cannot be read, or has more than [`NOTE_BYTES_MAX`] bytes.
    pub fn read_note(&self, model: &str, file: &str) -> Result<Option<Vec<u8>>, ModelError> {
        let path = self.note_path(model, file)?;
        match regular_file::read(&path, NOTE_BYTES_MAX) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io(&path)(error).into()),
        }
    }

    /// Replaces a small file beside a model's versions, in one durable step.
    ///
    /// # Errors
    /// `BadName`; `Store`.
    pub fn write_note(&self, model: &str, file: &str, bytes: &[u8]) -> Result<(), ModelError> {
        let path = self.note_path(model, file)?;
        let directory = path.parent().unwrap_or(Path::new("."));
        self.versions.create_directory(directory)?;
        durable::replace_shared(&path, bytes).map_err(StoreError::io(&path))?;
        Ok(())
    }

    fn note_path(&self, model: &str, file: &str) -> Result<PathBuf, ModelError> {
        // Beside the versions: never within one, nor anywhere else.
        let plain = !file.starts_with('.') && Path::new(file).components().count() == 1 && !file.contains('\\');
        if !versions::is_name(model) || !plain {
            let name = if plain { model } else { file };
            return Err(ModelError::BadName { name: name.to_owned() });
        }
        Ok(self.versions.directory(model, 1).with_file_name(file))
    }

    /// The directory of a version, whether or not it exists.
    ///
    /// # Errors
    /// `BadName`.
    pub fn version_dir(&self, model: &str, version: u64) -> Result<PathBuf, ModelError> {
        if !versions::is_name(model) {
            return Err(ModelError::BadName { name: model.to_owned() });
        }
        Ok(self.versions.directory(model, version))
    }
}

/// The versions of all models under a directory; see [`ModelRegistry::scan`].
///
/// # Errors
/// As there.
pub fn scan(models_dir: &Path) -> Result<Vec<ScannedVersion>, ModelError> {
    ModelRegistry::new(models_dir).scan()
}

/// Checks a version's directory: manifest, sizes, digests, and the header of the weights.
///
/// # Errors
/// `NotFound`; `Incomplete` naming the first file that is not right; `Store`.
pub fn verify(dir: &Path) -> Result<VersionFiles, ModelError> {
    load(dir).map(|(files, _)| files)
}

/// Checks a version's directory as [`verify`] does, and gives the weights that were read for it, sorted by name.
///
/// # Errors
/// As there.
pub fn load(dir: &Path) -> Result<(VersionFiles, Vec<SavedVariable>), ModelError> {
    let manifest = check_sizes(dir)?;
    for file in manifest.files.iter().filter(|file| file.name != WEIGHTS_FILE) {
        let path = dir.join(&file.name);
        let (found, _) = Digest::of_file(&path).map_err(StoreError::io(&path))?;
        if found != file.sha256 {
            let problem = FileProblem::WrongDigest { expected: file.sha256, found };
            return Err(ModelError::Incomplete { file: path, problem });
        }
    }
    let files = VersionFiles { dir: dir.to_owned(), manifest };
    let variables = files.load_weights()?;
    Ok((files, variables))
}

/// The bytes of a safetensors file of these variables. The same variables give the same bytes.
///
/// # Errors
/// `Weights` where two have one name, or one that the format keeps for itself.
pub fn encode_weights(variables: &[SavedVariable]) -> Result<Vec<u8>, ModelError> {
    let mut sorted: Vec<&SavedVariable> = variables.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    weights::encode(&sorted)
}

/// The manifest of a version in `version_dir`, of which nothing else is looked at.
pub(crate) fn read_manifest_in(dir: &Path) -> Result<ModelManifest, ModelError> {
    read_manifest(dir)
}

/// The digest of the plugin of a version in `version_dir`. Only the manifest is read.
///
/// # Errors
/// `Incomplete` where it cannot be; `Store`.
pub fn plugin_digest(dir: &Path) -> Result<Digest, ModelError> {
    Ok(read_manifest(dir)?.plugin)
}

/// The variables of a safetensors file, sorted by name, sharing its bytes; those named in `statistics` are statistics.
///
/// # Errors
/// `Weights` for bytes that are no such file, a data type that tensors here do not have, or a shape past their limits.
pub fn read_weights(file: &Bytes, statistics: &[String]) -> Result<Vec<SavedVariable>, ModelError> {
    weights::decode(file, statistics).map_err(|reason| ModelError::Weights { reason })
}

impl VersionFiles {
    /// Where the plugin's component lies.
    pub fn plugin(&self) -> PathBuf {
        self.dir.join(PLUGIN_FILE)
    }

    /// Where the weights lie.
    pub fn weights(&self) -> PathBuf {
        self.dir.join(WEIGHTS_FILE)
    }

    /// The plugin's component: bytes that were checked after they were read.
    ///
    /// # Errors
    /// `Incomplete`; `Store`.
    pub fn load_plugin(&self) -> Result<Vec<u8>, ModelError> {
        self.read(PLUGIN_FILE)
    }

    /// The weights, sorted by name: bytes that were checked after they were read.
    ///
    /// # Errors
    /// `Incomplete` where the file is damaged or no safetensors file; `Store`.
    pub fn load_weights(&self) -> Result<Vec<SavedVariable>, ModelError> {
        let bytes = Bytes::from(self.read(WEIGHTS_FILE)?);
        let refuse =
            |reason| ModelError::Incomplete { file: self.weights(), problem: FileProblem::Unreadable { reason } };
        let variables = weights::decode(&bytes, &self.manifest.statistics).map_err(refuse)?;
        let found = digest_of_variables(&variables);
        if found == self.manifest.weights {
            return Ok(variables);
        }
        let expected = self.manifest.weights;
        Err(refuse(format!("its weights have digest {found}, manifest.json says {expected}")))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, ModelError> {
        let path = self.dir.join(name);
        let bytes = regular_file::read(&path, u64::MAX).map_err(StoreError::io(&path))?;
        let problem = match self.manifest.files.iter().find(|file| file.name == name) {
            None => FileProblem::Missing,
            Some(file) => {
                let found = Digest::of(&bytes);
                if found == file.sha256 {
                    return Ok(bytes);
                }
                FileProblem::WrongDigest { expected: file.sha256, found }
            }
        };
        Err(ModelError::Incomplete { file: path, problem })
    }
}

/// A version's manifest, if the files beside it have the sizes that it says.
fn check_sizes(dir: &Path) -> Result<ModelManifest, ModelError> {
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

fn read_manifest(dir: &Path) -> Result<ModelManifest, ModelError> {
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
    let manifest: ModelManifest = serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
    if manifest.format != FORMAT {
        let found = manifest.format;
        return Err(incomplete(FileProblem::OtherFormat { found, expected: FORMAT }));
    }
    let mut names: Vec<&str> = manifest.files.iter().map(|file| file.name.as_str()).collect();
    names.sort_unstable();
    if names != [PLUGIN_FILE, WEIGHTS_FILE] {
        let reason = format!("it lists {names:?}, expected {PLUGIN_FILE} and {WEIGHTS_FILE}");
        return Err(unreadable(reason));
    }
    Ok(manifest)
}
