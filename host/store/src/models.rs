//! The model registry: one directory for each immutable version.
//!
//! ```text
//! models/<name>/<version>/plugin.wasm  weights.safetensors  manifest.json
//! ```
//!
//! A version can also be copied here by hand. Until all files exist and match the manifest, it is
//! [`VersionCompleteness::Incomplete`], which is not an error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use saggar_clock::UnixMillis;

use crate::bucket_folders::MODELS_FOLDER;
use crate::checkpoint::{SavedVariable, VariableKind, digest_of_variables};
use crate::digest::Digest;
use crate::durable;
use crate::error::{FileProblem, ModelError, StoreError};
use crate::image_preprocessing::ImageInputs;
use crate::objects::BlockingObjects;
use crate::regular_file;
use crate::state_dir::StateDir;
use crate::versions::directories::VersionDirectories;
use crate::versions::mirrored::MirroredVersions;
use crate::versions::objects::ObjectVersions;
use crate::versions::{self, ManifestSource, VersionStore};

pub mod bundle;
mod card;
pub mod manifest;
mod mirror;
mod notes;
pub mod provenance;
mod publications;
mod removal;
mod shared_notes;
#[cfg(test)]
mod tests;
mod weights;

pub use crate::versions::mirrored::MirrorChanges;
pub use crate::versions::publication_fence::PublicationFence;
pub use card::{LineageOrigin, StepOrigin, TrainingOrigin, TrialOrigin};
pub use manifest::{FORMAT, FileEntry, ModelManifest};
pub use notes::NOTE_BYTES_MAX;
pub use provenance::ModelProvenance;

use manifest::{check_sizes, decode_manifest, read_manifest};
use shared_notes::SharedNotes;

/// The plugin's file name in a version.
pub const PLUGIN_FILE: &str = "plugin.wasm";
/// The weights' file name in a version.
pub const WEIGHTS_FILE: &str = "weights.safetensors";
/// The file name of the card in a version: Markdown for people. A version can have none.
pub const CARD_FILE: &str = "card.md";
/// The manifest's file name in a version; copied last.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Limit on the series whose values a version stores. Every scan of the directory reads the manifests of all versions.
pub const VERSION_METRICS_MAX: usize = 32;

/// A version to publish.
#[derive(Clone, Debug)]
pub struct ModelPublication<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The plugin's component.
    pub plugin: &'a [u8],
    /// The weights. Variables that only training needs are omitted.
    pub variables: &'a [SavedVariable],
    /// The configuration passed to the plugin's `predictor.load`.
    pub config: &'a str,
    /// The preprocessing of its image inputs.
    pub inputs: ImageInputs,
    /// The job's identifier; empty if no job publishes it.
    pub source_job: &'a str,
    /// The current time.
    pub created_ms: UnixMillis,
    /// The job's metrics: the latest value of each series. Values that JSON cannot represent are omitted, and so are
    /// series beyond [`VERSION_METRICS_MAX`].
    pub metrics: BTreeMap<String, f64>,
    /// Markdown about the version for people, or `None`.
    pub card: Option<&'a str>,
    /// What the version is made from.
    pub provenance: ModelProvenance,
}

/// A published version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedVersion {
    /// Its number.
    pub version: u64,
    /// Whether this call created it; otherwise the same content was published before.
    pub is_new: bool,
    /// Its directory.
    pub dir: PathBuf,
}

/// A version as found by a scan, without reading its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedVersion {
    /// The model.
    pub name: String,
    /// The version.
    pub version: u64,
    /// Its directory.
    pub dir: PathBuf,
    /// Whether all its files exist.
    pub state: VersionCompleteness,
}

/// Whether all files of a version exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionCompleteness {
    /// Every file has the right size. Only [`verify`] checks digests.
    Complete,
    /// A file is missing or has the wrong size; the text is the reason.
    Incomplete(String),
}

/// A version whose files were all verified against its manifest.
#[derive(Clone, Debug)]
pub struct VersionFiles {
    /// Its directory.
    pub dir: PathBuf,
    /// Its manifest.
    pub manifest: ModelManifest,
}

/// The models of one installation. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ModelRegistry {
    versions: Arc<dyn VersionStore>,
    /// The directory of the files beside the versions, and of the versions that this machine has.
    dir: PathBuf,
    /// The same versions, if they are in a bucket.
    mirror: Option<Arc<MirroredVersions>>,
    /// The files beside the versions that servers have in common.
    shared_notes: Option<Arc<SharedNotes>>,
}

impl ModelRegistry {
    /// Returns the registry of the models under `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> ModelRegistry {
        ModelRegistry::of_directory(dir.into(), None)
    }

    fn of_directory(dir: PathBuf, fence: Option<Arc<dyn PublicationFence>>) -> ModelRegistry {
        let versions = Arc::new(VersionDirectories::new(&dir).with_fence(fence));
        ModelRegistry { versions, dir, mirror: None, shared_notes: None }
    }

    /// Returns the registry of an installation: the models in its bucket, of which this machine has copies under `dir`, or
    /// those under `dir` without one.
    pub fn of_home(home: &StateDir, dir: impl Into<PathBuf>) -> ModelRegistry {
        ModelRegistry::of_home_fenced(home, dir, None)
    }

    /// Returns the registry of the models in an object store. This machine has copies of them under `dir`, where the files
    /// beside them are.
    pub fn in_objects(objects: BlockingObjects, dir: impl Into<PathBuf>) -> ModelRegistry {
        ModelRegistry::of_bucket(objects, dir.into(), None)
    }

    fn of_bucket(objects: BlockingObjects, dir: PathBuf, fence: Option<Arc<dyn PublicationFence>>) -> ModelRegistry {
        // Versions are fetched into `dir`; the other directory is not used.
        let remote = ObjectVersions::new(objects, MODELS_FOLDER, dir.join(".fetched")).with_fence(fence);
        let mirror = Arc::new(MirroredVersions::new(remote, &dir));
        ModelRegistry { versions: Arc::clone(&mirror) as _, dir, mirror: Some(mirror), shared_notes: None }
    }

    /// Creates a version, unless the same job already published the same plugin, weights and config. The version is
    /// durable when this returns. Two processes never create the same number or the same publication twice.
    ///
    /// # Errors
    /// Returns `BadName`; `Weights` if a name or shape cannot be stored; `Store`.
    pub fn publish(&self, it: &ModelPublication<'_>) -> Result<PublishedVersion, ModelError> {
        check_name(it.model)?;
        let mut saved_variables: Vec<_> = it.variables.iter().filter(|it| it.kind != VariableKind::Training).collect();
        saved_variables.sort_by(|a, b| a.name.cmp(&b.name));
        let weights = weights::encode(&saved_variables, &BTreeMap::new())?;
        let statistics = saved_variables.iter().filter(|it| it.kind == VariableKind::Statistic);
        let file = |name: &str, bytes: &[u8]| FileEntry {
            name: name.to_owned(),
            bytes: bytes.len() as u64,
            sha256: Digest::of(bytes),
        };
        let finite = it.metrics.iter().filter(|(_, value)| value.is_finite());
        let card = it.card.map(|card| file(CARD_FILE, card.as_bytes()));
        let manifest = ModelManifest {
            format: FORMAT,
            files: [file(PLUGIN_FILE, it.plugin), file(WEIGHTS_FILE, &weights)].into_iter().chain(card).collect(),
            plugin: Digest::of(it.plugin),
            weights: digest_of_variables(saved_variables.iter().copied()),
            config: it.config.to_owned(),
            inputs: it.inputs.clone(),
            statistics: statistics.map(|it| it.name.clone()).collect(),
            created_ms: it.created_ms,
            source_job: it.source_job.to_owned(),
            metrics: finite.take(VERSION_METRICS_MAX).map(|(name, value)| (name.clone(), *value)).collect(),
            provenance: it.provenance.clone(),
        };
        let text =
            serde_json::to_vec_pretty(&manifest).map_err(|error| ModelError::Weights { reason: error.to_string() })?;
        let card = it.card.map(|card| (CARD_FILE, card.as_bytes()));
        let files = [(PLUGIN_FILE, it.plugin), (WEIGHTS_FILE, &weights[..])].into_iter().chain(card);
        self.place_version(it.model, &manifest, files.chain([(MANIFEST_FILE, &text[..])]))
    }

    /// Creates a version of these files, the manifest last, unless a version with the same publication exists.
    fn place_version<'a>(
        &self,
        model: &str,
        manifest: &ModelManifest,
        files: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<PublishedVersion, ModelError> {
        let same = |versions: &[u64]| {
            let find = |version: &&u64| self.is_same_publication(model, **version, manifest);
            Ok::<_, ModelError>(versions.iter().rev().find(find).copied())
        };
        let fill = |dir: &Path| {
            for (name, bytes) in files {
                let path = dir.join(name);
                durable::write_new_shared(&path, bytes).map_err(StoreError::io(&path))?;
            }
            Ok(())
        };
        let placed = versions::publish(&*self.versions, model, self.versions.begin(model)?, same, fill)?;
        let dir = self.versions.local_directory(model, placed.version)?;
        Ok(PublishedVersion { version: placed.version, is_new: placed.is_new, dir })
    }

    /// Returns whether a version is complete and has the content of this publication.
    fn is_same_publication(&self, model: &str, version: u64, wanted: &ModelManifest) -> bool {
        // The manifest first, because most versions differ.
        self.manifest(model, version).is_ok_and(|found| found.is_same_publication(wanted))
            && self.versions.local_directory(model, version).is_ok_and(|dir| verify(&dir).is_ok())
    }

    /// Returns the versions of all models that this machine has, sorted by name and number. Cheap: it checks sizes, not
    /// contents.
    ///
    /// # Errors
    /// Returns `Store` if a directory cannot be listed.
    pub fn scan(&self) -> Result<Vec<ScannedVersion>, ModelError> {
        let (mut found, local) = (Vec::new(), VersionDirectories::new(&self.dir));
        for name in local.names()? {
            for version in local.versions(&name)? {
                let dir = local.directory(&name, version);
                let state = match check_sizes(&dir) {
                    Ok(_) => VersionCompleteness::Complete,
                    Err(error) => VersionCompleteness::Incomplete(error.to_string()),
                };
                found.push(ScannedVersion { name: name.clone(), version, dir, state });
            }
        }
        Ok(found)
    }

    /// Returns a version whose files were all verified, as by [`load`], and its weights: the given version, or the
    /// newest complete one.
    ///
    /// # Errors
    /// Returns `BadName`; `NotFound` if it does not exist; `Incomplete`; `Store`.
    pub fn open(&self, model: &str, version: Option<u64>) -> Result<(VersionFiles, Vec<SavedVariable>), ModelError> {
        if let Some(version) = version {
            return load(&self.version_dir(model, version)?);
        }
        check_name(model)?;
        // Like a missing version, a model without versions is named by a directory.
        let mut result = Err(ModelError::NotFound { dir: self.dir.join(model).join("1") });
        for version in self.versions.versions(model)?.into_iter().rev() {
            result = load(&self.version_dir(model, version)?);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Returns the manifest of a version. No other file is read.
    ///
    /// # Errors
    /// Returns `BadName`; `NotFound`; `Incomplete` if it cannot be read; `Store`.
    pub fn manifest(&self, model: &str, version: u64) -> Result<ModelManifest, ModelError> {
        check_name(model)?;
        read_manifest_from(&self.versions.manifest(model, version)?)
    }

    /// Returns every model that has a directory on this machine, sorted.
    ///
    /// # Errors
    /// Returns `Store` if the directory cannot be listed.
    pub fn names(&self) -> Result<Vec<String>, ModelError> {
        Ok(VersionDirectories::new(&self.dir).names()?)
    }

    /// Returns the directory of this machine with the files of a version. It does not exist if the version does not.
    ///
    /// # Errors
    /// Returns `BadName`; `Store` if the files cannot be fetched.
    pub fn version_dir(&self, model: &str, version: u64) -> Result<PathBuf, ModelError> {
        check_name(model)?;
        Ok(self.versions.local_directory(model, version)?)
    }
}

fn check_name(model: &str) -> Result<(), ModelError> {
    if versions::is_name(model) {
        return Ok(());
    }
    Err(ModelError::BadName { name: model.to_owned() })
}

/// Verifies a version's directory: manifest, sizes, digests, and the header of the weights.
///
/// # Errors
/// Returns `NotFound`; `Incomplete`, naming the first invalid file; `Store`.
pub fn verify(dir: &Path) -> Result<VersionFiles, ModelError> {
    load(dir).map(|(files, _)| files)
}

/// Returns a version's files after their sizes were checked, as by [`ModelRegistry::scan`]. Their contents are not read.
///
/// # Errors
/// Returns `NotFound`; `Incomplete`, naming the first invalid file; `Store`.
pub fn check_files(dir: &Path) -> Result<VersionFiles, ModelError> {
    Ok(VersionFiles { dir: dir.to_owned(), manifest: check_sizes(dir)? })
}

/// Verifies a version's directory as [`verify`] does, and also returns its weights, sorted by name.
///
/// # Errors
/// The same as [`verify`].
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

/// Encodes variables as a safetensors file. The same variables give the same bytes.
///
/// # Errors
/// Returns `Weights` if two variables have the same name, or one has a name that the format reserves.
pub fn encode_weights(variables: &[SavedVariable]) -> Result<Vec<u8>, ModelError> {
    encode_tensors(variables, &BTreeMap::new())
}

/// Encodes variables as a safetensors file whose metadata are these texts by name. The same arguments give the same
/// bytes.
///
/// # Errors
/// The same as [`encode_weights`].
pub fn encode_tensors(variables: &[SavedVariable], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, ModelError> {
    let mut sorted: Vec<&SavedVariable> = variables.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    weights::encode(&sorted, metadata)
}

/// Returns a version's manifest, wherever it is. No other file is read.
pub(crate) fn read_manifest_from(source: &ManifestSource) -> Result<ModelManifest, ModelError> {
    match source {
        ManifestSource::Directory(dir) => read_manifest(dir),
        ManifestSource::Text { path, text } => decode_manifest(path, text.as_bytes()),
    }
}

/// Returns the digest of the plugin of the version in `dir`. Only the manifest is read.
///
/// # Errors
/// Returns `Incomplete` if it cannot be read; `Store`.
pub fn plugin_digest(dir: &Path) -> Result<Digest, ModelError> {
    Ok(read_manifest(dir)?.plugin)
}

/// Decodes the variables of a safetensors file, sorted by name, sharing its bytes. Those named in `statistics` become
/// statistics.
///
/// # Errors
/// Returns `Weights` if the bytes are not a safetensors file, or a tensor has an unsupported data type or a shape over
/// the limits.
pub fn read_weights(file: &Bytes, statistics: &[String]) -> Result<Vec<SavedVariable>, ModelError> {
    weights::decode(file, statistics).map_err(|reason| ModelError::Weights { reason })
}

impl VersionFiles {
    /// Returns the path of the plugin's component.
    pub fn plugin(&self) -> PathBuf {
        self.dir.join(PLUGIN_FILE)
    }

    /// Returns the path of the weights.
    pub fn weights(&self) -> PathBuf {
        self.dir.join(WEIGHTS_FILE)
    }

    /// Returns the plugin's component, verified after it was read.
    ///
    /// # Errors
    /// Returns `Incomplete`; `Store`.
    pub fn load_plugin(&self) -> Result<Vec<u8>, ModelError> {
        self.read(PLUGIN_FILE)
    }

    /// Returns the number of tensors of the weights and of their elements together. Only the file's header is read.
    ///
    /// # Errors
    /// Returns `Incomplete` if it is malformed; `Store`.
    pub fn count_elements(&self) -> Result<(u64, u64), ModelError> {
        let path = self.weights();
        let file = regular_file::open(&path).map_err(StoreError::io(&path))?;
        let count = weights::count_elements(file).map_err(StoreError::io(&path))?;
        count.map_err(|reason| ModelError::Incomplete { file: path, problem: FileProblem::Unreadable { reason } })
    }

    /// Returns the card, verified after it was read, or `None` if the version has none.
    ///
    /// # Errors
    /// Returns `Incomplete` if it is damaged or not text; `Store`.
    pub fn load_card(&self) -> Result<Option<String>, ModelError> {
        if self.manifest.file(CARD_FILE).is_none() {
            return Ok(None);
        }
        String::from_utf8(self.read(CARD_FILE)?).map(Some).map_err(|error| {
            let problem = FileProblem::Unreadable { reason: error.to_string() };
            ModelError::Incomplete { file: self.dir.join(CARD_FILE), problem }
        })
    }

    /// Returns the weights, sorted by name, verified after they were read.
    ///
    /// # Errors
    /// Returns `Incomplete` if the file is damaged or not a safetensors file; `Store`.
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
        let problem = match self.manifest.file(name) {
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
