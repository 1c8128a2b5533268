//! Checkpoints: the state from which a job resumes as if it had never stopped.
//!
//! ```text
//! checkpoints/<job>/parts/<digest>          content-addressed; shared by the job's checkpoints
//! checkpoints/<job>/parts/<epoch>/<digest>  the same; shared by those of one epoch, see CheckpointStore::with_parts_by_epoch
//! checkpoints/<job>/<step>-<epoch>.json     manifest, written last, created once
//! checkpoints/<job>/epochs/<epoch>          the fencing epochs; see CheckpointStore::claim
//! ```
//!
//! A checkpoint exists if its manifest does. The manifest contains a digest of itself and of each part, so damage is
//! detected, and [`CheckpointStore::latest`] falls back to the previous checkpoint.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use parking_lot::Mutex;
use saggar_clock::UnixMillis;
use saggar_tensor::Descriptor;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Sha256Hasher};
use crate::error::CheckpointError;
use crate::objects::ObjectStorage;

mod export;
mod listing;
mod load;
pub(crate) mod manifest;
mod pack;
mod retention;
mod save;
#[cfg(test)]
mod tests;

pub use export::{CheckpointExport, CheckpointQuery};
pub use retention::{BestMetric, MetricMode, Retention};

/// Returns the names of the parts that a manifest names, whose object has this name. `None` if it is damaged.
pub(crate) fn parts_of_manifest(object: &str, text: &[u8]) -> Option<Vec<String>> {
    let (folder, _) = object.rsplit_once('/')?;
    let (manifest, _) = manifest::CheckpointManifest::decode(text).ok()?;
    Some(manifest.parts.iter().map(|part| listing::part_object_name(folder, part)).collect())
}

/// The role of a variable. A model version contains parameters and statistics; a checkpoint contains all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VariableKind {
    /// Trained by gradients.
    Parameter,
    /// Updated without gradients and needed for inference, such as running means.
    Statistic,
    /// Needed only to continue training: optimizer moments, step counters.
    Training,
}

/// A variable's state at a step.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedVariable {
    /// Its name, unique within the checkpoint.
    pub name: String,
    /// Its role.
    pub kind: VariableKind,
    /// Data type and shape.
    pub descriptor: Descriptor,
    /// Elements, little-endian, row-major. Bytes read from a file can be unaligned.
    pub bytes: Bytes,
}

/// The position in a stream of batches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetPosition {
    /// Digest of the dataset version, so that resuming on other data is detected.
    pub dataset: String,
    /// The seed of the shuffle; `None` for the stored order.
    pub seed: Option<u64>,
    /// Items in a batch.
    pub batch: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The next item in the epoch's order, from 0.
    pub item: u64,
}

impl DatasetPosition {
    /// Returns the number of epochs started, including the current one.
    pub fn epochs_started(&self) -> u64 {
        self.epoch.saturating_add(u64::from(self.item > 0))
    }
}

/// The state of a job after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Steps done.
    pub step: u64,
    /// The latest value of each of the job's metric series, by which [`Retention::keep_best`] selects the best. Values
    /// that are not finite are not saved.
    pub metrics: BTreeMap<String, f64>,
    /// Every variable. Loaded ones are sorted by name.
    pub variables: Vec<SavedVariable>,
    /// The position of each stream of batches, in the plugin's order.
    pub positions: Vec<DatasetPosition>,
    /// The plugin's own state.
    pub state: Vec<u8>,
    /// Digest of the plugin's component.
    pub plugin_digest: String,
    /// The device and its driver. Informative, and required for the guarantee of bit-identical results.
    pub device: String,
    /// The build of this program, for the same reasons.
    pub build: String,
    /// The autotuned choice for each kernel that has several candidates, keyed by the computation. Resuming must use
    /// the same candidates to produce the same bytes.
    pub kernel_tuning: BTreeMap<String, String>,
}

/// An entry of a listing of checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointInfo {
    /// Steps done.
    pub step: u64,
    /// Epoch of the lease under which it was written. It fences writers and is unrelated to epochs of data.
    pub fencing_epoch: u64,
    /// The epoch of data that the training was in, or had just ended, from 1: the largest of its streams of batches.
    /// `None` if it has no streams.
    pub epoch: Option<u64>,
    /// Bytes of variables and state.
    pub bytes: u64,
    /// Digest over everything in it.
    pub digest: Digest,
    /// The manifest's object name.
    pub file: String,
    /// The time it was written, by the store's clock; 0 right after saving.
    pub written_ms: UnixMillis,
    /// The latest finite value of each series when it was saved; empty if an older build wrote it.
    pub metrics: BTreeMap<String, f64>,
    /// The autotuned choice for each kernel that has several candidates, keyed by the computation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ways: BTreeMap<String, String>,
}

/// A checkpoint that was skipped because it is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedCheckpoint {
    /// The manifest's object name.
    pub file: String,
    /// The error, naming the damaged object.
    pub reason: String,
}

/// The result of [`CheckpointStore::verify`] for one checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointVerification {
    /// Steps done.
    pub step: u64,
    /// Epoch of the lease under which it was written.
    pub fencing_epoch: u64,
    /// The manifest's object name.
    pub file: String,
    /// The checkpoint if it is intact, or the error, naming the damaged object.
    pub outcome: Result<CheckpointInfo, String>,
}

/// The result of [`CheckpointStore::latest`].
#[derive(Clone, Debug)]
pub struct LatestCheckpoint {
    /// The newest intact checkpoint; `None` if the job starts from the beginning.
    pub found: Option<(CheckpointInfo, Checkpoint)>,
    /// Newer checkpoints that are damaged.
    pub skipped: Vec<SkippedCheckpoint>,
}

/// The checkpoints of all jobs in an object store.
///
/// Async because the store is; a thread outside the runtime uses `Handle::block_on`.
#[derive(Debug)]
pub struct CheckpointStore {
    objects: ObjectStorage,
    /// Object names of parts that this process knows to be intact and durable, so that it can share them without
    /// reading them again.
    durable_parts: Mutex<HashSet<String>>,
    /// Manifests that `prune` has read. After each save it examines all that are kept, and they do not change.
    manifest_cache: Mutex<retention::ManifestCache>,
    /// Whether each epoch has its own parts.
    has_parts_by_epoch: bool,
    /// Keeps `prune` from deleting the parts of a `save` that has not written its manifest yet.
    prune_lock: tokio::sync::Mutex<()>,
}

impl CheckpointStore {
    /// Returns the checkpoints in `objects`.
    pub fn new(objects: ObjectStorage) -> CheckpointStore {
        CheckpointStore {
            objects,
            durable_parts: Mutex::default(),
            manifest_cache: Mutex::default(),
            has_parts_by_epoch: false,
            prune_lock: tokio::sync::Mutex::default(),
        }
    }

    /// Shares no parts with other epochs if this is `true`. Then a writer that was replaced, and does not know it yet,
    /// cannot delete parts of its successor whose manifest is not written yet. Needed if attempts of one job can run on
    /// several servers at once.
    #[must_use]
    pub fn with_parts_by_epoch(mut self, has_parts_by_epoch: bool) -> CheckpointStore {
        self.has_parts_by_epoch = has_parts_by_epoch;
        self
    }

    /// Checks that no newer fencing epoch was announced.
    ///
    /// # Errors
    /// Returns `Fenced`; `BadJob`; `Store`.
    pub async fn check_epoch(&self, job: &str, fencing_epoch: u64) -> Result<(), CheckpointError> {
        save::check_fencing_epoch(self, job, &listing::checkpoint_folder(job)?, fencing_epoch).await
    }

    /// Announces the fencing epoch of the current writer. From then on, `save` refuses every older epoch. Call once per
    /// attempt, before `latest`: it also removes what a killed writer left unfinished.
    ///
    /// # Errors
    /// Returns `Fenced` if a newer epoch was announced; `BadJob`; `Store`.
    pub async fn claim(&self, job: &str, fencing_epoch: u64) -> Result<(), CheckpointError> {
        save::claim(self, job, fencing_epoch).await
    }

    /// Saves a checkpoint. It is durable when this returns. An interrupted save does not affect earlier checkpoints.
    /// Saving the same step again with the same content succeeds.
    ///
    /// # Errors
    /// Returns `Fenced` if a newer epoch is known, and the writer must stop; `AlreadySaved`; `WrongSize`;
    /// `DuplicateName`; `BadJob`; `Store`, after which saving again is safe.
    pub async fn save(
        &self,
        job: &str,
        fencing_epoch: u64,
        checkpoint: &Checkpoint,
    ) -> Result<CheckpointInfo, CheckpointError> {
        let _turn = self.prune_lock.lock().await;
        save::save(self, job, fencing_epoch, checkpoint).await
    }

    /// Returns the newest intact checkpoint; every byte is verified. The newest is the one with the highest fencing
    /// epoch, then the highest step. Damaged ones are skipped with a warning.
    ///
    /// # Errors
    /// Returns `OtherPlugin` or `OtherFormat` if the newest intact one is of another plugin or format; `BadJob`;
    /// `Store` if the listing fails.
    pub async fn latest(&self, job: &str, plugin_digest: &str) -> Result<LatestCheckpoint, CheckpointError> {
        load::latest(self, job, Some(plugin_digest)).await
    }

    /// Returns the same as [`latest`](Self::latest), whatever plugin wrote it: for reading, not for resuming.
    ///
    /// # Errors
    /// Returns `OtherFormat`; `BadJob`; `Store` if the listing fails.
    pub async fn latest_of_any_plugin(&self, job: &str) -> Result<LatestCheckpoint, CheckpointError> {
        load::latest(self, job, None).await
    }

    /// Returns the checkpoint of this step; every byte is verified. If several attempts saved the step, the latest
    /// attempt wins. If a plugin's digest is given, that plugin must have written it.
    ///
    /// # Errors
    /// Returns `NotFound`; `Damaged`; `OtherPlugin`; `OtherFormat`; `BadJob`; `Store`.
    pub async fn load_step(
        &self,
        job: &str,
        step: u64,
        plugin_digest: Option<&str>,
    ) -> Result<(CheckpointInfo, Checkpoint), CheckpointError> {
        load::load_step(self, job, step, plugin_digest).await
    }

    /// Returns the job's checkpoints with a readable manifest, newest first. Parts are not verified.
    ///
    /// # Errors
    /// Returns `BadJob`; `Store`.
    pub async fn list(&self, job: &str) -> Result<Vec<CheckpointInfo>, CheckpointError> {
        load::list(self, job).await
    }

    /// Returns the best checkpoint whose parts all exist, or `None` if none has the metric. Reads manifests only.
    ///
    /// # Errors
    /// Returns `BadJob`; `Store`.
    pub async fn best(&self, job: &str, by: &BestMetric) -> Result<Option<CheckpointInfo>, CheckpointError> {
        retention::best(self, job, by).await
    }

    /// Returns a checkpoint's variables as one safetensors file, to be read in chunks. Meanwhile the job can continue,
    /// and its checkpoints can be pruned.
    ///
    /// # Errors
    /// Returns `NotFound`; `Damaged`; `OtherFormat`; `BadJob`; `Store`.
    pub async fn export(&self, job: &str, wanted: &CheckpointQuery) -> Result<CheckpointExport, CheckpointError> {
        export::export(self, job, wanted).await
    }

    /// Verifies every byte of every checkpoint of the job, newest first, except those that are removed meanwhile. Holds
    /// one part in memory at a time.
    ///
    /// # Errors
    /// Returns `BadJob`; `Store` if the listing fails. The errors of a checkpoint are in its
    /// [`CheckpointVerification`].
    pub async fn verify(&self, job: &str) -> Result<Vec<CheckpointVerification>, CheckpointError> {
        load::verify(self, job).await
    }

    /// Returns the bytes that the job's checkpoints take: parts, manifests and leftovers of killed writers.
    ///
    /// # Errors
    /// Returns `BadJob`; `Store`.
    pub async fn stored_bytes(&self, job: &str) -> Result<u64, CheckpointError> {
        retention::stored_bytes(self, job).await
    }

    /// Deletes the checkpoints that the retention does not keep, and the parts that none of the kept ones uses. A
    /// damaged checkpoint that is newer than those is not counted and not deleted, so that it can be examined. While
    /// this runs, no process except the job's own writer can save. Nothing of a newer epoch is deleted. Returns the number
    /// of deleted checkpoints.
    ///
    /// # Errors
    /// Returns `Fenced` if a newer epoch was announced; `BadJob`; `Store`, after which the kept checkpoints are intact and pruning again is safe.
    pub async fn prune(&self, job: &str, fencing_epoch: u64, retention: &Retention) -> Result<usize, CheckpointError> {
        let _turn = self.prune_lock.lock().await;
        retention::prune(self, job, fencing_epoch, retention).await
    }

    /// Deletes all checkpoints of a job, which must have no writer any more. Returns the bytes that this freed, 0 if
    /// there were none.
    ///
    /// # Errors
    /// Returns `BadJob`; `Store`, after which removing again is safe.
    pub async fn remove_all(&self, job: &str) -> Result<u64, CheckpointError> {
        let _turn = self.prune_lock.lock().await;
        retention::remove_all(self, job).await
    }
}

/// Returns the SHA-256 over names, descriptors and elements, in the order of names. Equal digests mean equal weights,
/// in whatever order and place they are stored.
pub fn digest_of_variables<'a>(variables: impl IntoIterator<Item = &'a SavedVariable>) -> Digest {
    let mut sorted: Vec<_> = variables.into_iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut hasher = Sha256Hasher::new();
    for variable in sorted {
        hasher.update_field(variable.name.as_bytes());
        hasher.update_field(variable.descriptor.dtype.name().as_bytes());
        hasher.update_u64(variable.descriptor.shape.rank() as u64);
        for &dim in variable.descriptor.shape.dims() {
            hasher.update_u64(dim as u64);
        }
        hasher.update_field(&variable.bytes);
    }
    hasher.finish()
}
