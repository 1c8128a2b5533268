//! Checkpoints: everything a job needs to go on as if it had never stopped.
//!
//! ```text
//! checkpoints/<job>/parts/<digest>            content-addressed; shared by the job's checkpoints
//! checkpoints/<job>/<step>-<epoch>.json       manifest, written last, created once
//! checkpoints/<job>/epochs/<epoch>            who may write; see Checkpoints::claim
//! ```
//!
//! A checkpoint exists when its manifest does. The manifest carries a digest of itself and of each
//! part, so damage is found, and [`CheckpointStore::latest`] goes back to the checkpoint before.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;

use bytes::Bytes;
use saggar_tensor::Descriptor;
use serde::{Deserialize, Serialize};

use crate::clock::UnixMillis;
use crate::digest::{Digest, Sha256Hasher};
use crate::error::CheckpointError;
use crate::objects::ObjectStorage;

mod export;
mod load;
mod manifest;
mod pack;
mod retention;
mod save;
#[cfg(test)]
mod tests;

pub use export::{CheckpointExport, CheckpointQuery};
pub use retention::{BestMetric, MetricMode, Retention};

/// What a variable is for. A model version carries parameters and statistics; a checkpoint all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VariableKind {
    /// Trained by gradients.
    Parameter,
    /// Learnt without gradients and needed to predict: running means.
    Statistic,
    /// Needed to go on training only: optimiser moments, step counters.
    Training,
}

/// A variable's state at a step.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedVariable {
    /// Its name, unique within the checkpoint.
    pub name: String,
    /// What it is for.
    pub kind: VariableKind,
    /// Data type and shape.
    pub descriptor: Descriptor,
    /// Elements, little-endian, row-major. Where they come from a file, they may not be aligned.
    pub bytes: Bytes,
}

/// Where a stream of batches stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetPosition {
    /// Digest of the dataset version, so that a resume on other data is noticed.
    pub dataset: String,
    /// The seed of the shuffle; none where the stored order is used.
    pub seed: Option<u64>,
    /// Items in a batch.
    pub batch: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The item in the epoch's order that comes next, from 0.
    pub item: u64,
}

impl DatasetPosition {
    /// Epochs that were begun, the one that is going on included.
    pub fn epochs_started(&self) -> u64 {
        self.epoch.saturating_add(u64::from(self.item > 0))
    }
}

/// Everything a job needs to go on after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Steps done.
    pub step: u64,
    /// The latest value of each of the training's series, by which [`Retention::keep_best`] tells the best. Those that
    /// are not finite are not saved.
    pub metrics: BTreeMap<String, f64>,
    /// Every variable. Loaded ones are sorted by name.
    pub variables: Vec<SavedVariable>,
    /// Where each stream of batches stands, in the plugin's order.
    pub positions: Vec<DatasetPosition>,
    /// The plugin's own state.
    pub state: Vec<u8>,
    /// Digest of the plugin's component.
    pub plugin_digest: String,
    /// The device and its driver, for people and for the claim of bit-identity.
    pub device: String,
    /// The build of this program, likewise.
    pub build: String,
    /// The ways in which the device computed kernels that it has several for, by what they compute: who goes on must take the
    /// same to come to the same bytes.
    pub kernel_tuning: BTreeMap<String, String>,
}

/// A checkpoint as a listing shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointInfo {
    /// Steps done.
    pub step: u64,
    /// Epoch of the lease under which it was written. This fences off writers, and has nothing to do with epochs of data.
    pub fencing_epoch: u64,
    /// The epoch of its data that the training was in, or had just ended, from 1: the largest of its streams of batches.
    /// `None` where it has none.
    pub epoch: Option<u64>,
    /// Bytes of variables and state.
    pub bytes: u64,
    /// Digest over everything in it.
    pub digest: Digest,
    /// The manifest's object name.
    pub file: String,
    /// When it was written, by the store's clock; 0 right after saving.
    pub written_ms: UnixMillis,
    /// The latest finite value of each series when it was saved; empty where an older build wrote it.
    pub metrics: BTreeMap<String, f64>,
    /// The ways in which the device computed kernels that it has several for, by what they compute.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ways: BTreeMap<String, String>,
}

/// A checkpoint that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedCheckpoint {
    /// The manifest's object name.
    pub file: String,
    /// What is wrong, naming the damaged object.
    pub reason: String,
}

/// What [`CheckpointStore::verify`] found out about a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointVerification {
    /// Steps done.
    pub step: u64,
    /// Epoch of the lease under which it was written.
    pub fencing_epoch: u64,
    /// The manifest's object name.
    pub file: String,
    /// Whole, or what is wrong, naming the damaged object.
    pub outcome: Result<CheckpointInfo, String>,
}

/// What [`CheckpointStore::latest`] found.
#[derive(Clone, Debug)]
pub struct LatestCheckpoint {
    /// The newest checkpoint that is whole; none where the job starts from the beginning.
    pub found: Option<(CheckpointInfo, Checkpoint)>,
    /// Newer ones that are not.
    pub skipped: Vec<SkippedCheckpoint>,
}

/// The checkpoints of all jobs in an object store.
///
/// Async because the store is; a thread outside of the runtime uses `Handle::block_on`.
#[derive(Debug)]
pub struct CheckpointStore {
    objects: ObjectStorage,
    /// Parts that this process knows to be whole and durable, by object name. It need not read
    /// them again to share them.
    durable_parts: Mutex<HashSet<String>>,
    /// Manifests that `prune` has read: it looks at all that are kept after each save, and they do not change.
    manifest_cache: Mutex<retention::ManifestCache>,
    /// `prune` must not take the parts of a `save` that has no manifest yet.
    prune_lock: tokio::sync::Mutex<()>,
}

impl CheckpointStore {
    /// The checkpoints in `objects`.
    pub fn new(objects: ObjectStorage) -> CheckpointStore {
        CheckpointStore {
            objects,
            durable_parts: Mutex::default(),
            manifest_cache: Mutex::default(),
            prune_lock: tokio::sync::Mutex::default(),
        }
    }

    /// Announces that the lease with this epoch writes now. From then on, `save` refuses every
    /// older epoch. Call before `latest`, once an attempt: it also takes away what a killed writer left half-written.
    ///
    /// # Errors
    /// `Fenced` where a newer epoch was announced; `BadJob`; `Store`.
    pub async fn claim(&self, job: &str, fencing_epoch: u64) -> Result<(), CheckpointError> {
        save::claim(self, job, fencing_epoch).await
    }

    /// Saves a checkpoint. When this returns it is durable; whenever it is cut off, the checkpoints
    /// before it are untouched. The same step again, with the same content, is fine.
    ///
    /// # Errors
    /// `Fenced` where a newer epoch is known: stop. `AlreadySaved`; `WrongSize`; `DuplicateName`;
    /// `BadJob`; `Store`, after which saving again is safe.
    pub async fn save(
        &self,
        job: &str,
        fencing_epoch: u64,
        checkpoint: &Checkpoint,
    ) -> Result<CheckpointInfo, CheckpointError> {
        let _turn = self.prune_lock.lock().await;
        save::save(self, job, fencing_epoch, checkpoint).await
    }

    /// The newest checkpoint that is whole, every byte of it verified. Newest means of the highest
    /// epoch, then of the highest step. Damaged ones are skipped, with a warning.
    ///
    /// # Errors
    /// `OtherPlugin` and `OtherFormat` where the newest whole one is not for this plugin or build;
    /// `BadJob`; `Store` where the listing fails.
    pub async fn latest(&self, job: &str, plugin_digest: &str) -> Result<LatestCheckpoint, CheckpointError> {
        load::latest(self, job, Some(plugin_digest)).await
    }

    /// As [`latest`](Self::latest), whatever plugin wrote it: for reading, not for a resume.
    ///
    /// # Errors
    /// `OtherFormat`; `BadJob`; `Store` where the listing fails.
    pub async fn latest_of_any_plugin(&self, job: &str) -> Result<LatestCheckpoint, CheckpointError> {
        load::latest(self, job, None).await
    }

    /// The checkpoint of this step, every byte of it verified; where several attempts saved it, the latest's. With a
    /// plugin's digest, only where that plugin wrote it.
    ///
    /// # Errors
    /// `NotFound`; `Damaged`; `OtherPlugin`; `OtherFormat`; `BadJob`; `Store`.
    pub async fn load_step(
        &self,
        job: &str,
        step: u64,
        plugin_digest: Option<&str>,
    ) -> Result<(CheckpointInfo, Checkpoint), CheckpointError> {
        load::load_step(self, job, step, plugin_digest).await
    }

    /// The job's checkpoints with a readable manifest, newest first. Parts are not verified.
    ///
    /// # Errors
    /// `BadJob`; `Store`.
    pub async fn list(&self, job: &str) -> Result<Vec<CheckpointInfo>, CheckpointError> {
        load::list(self, job).await
    }

    /// The best checkpoint of which all parts are there; none where none has the metric. Reads manifests only.
    ///
    /// # Errors
    /// `BadJob`; `Store`.
    pub async fn best(&self, job: &str, by: &BestMetric) -> Result<Option<CheckpointInfo>, CheckpointError> {
        retention::best(self, job, by).await
    }

    /// A checkpoint's variables as one safetensors file, to be read in pieces. The job may go on meanwhile, and its
    /// checkpoints may be pruned.
    ///
    /// # Errors
    /// `NotFound`; `Damaged`; `OtherFormat`; `BadJob`; `Store`.
    pub async fn export(&self, job: &str, wanted: &CheckpointQuery) -> Result<CheckpointExport, CheckpointError> {
        export::export(self, job, wanted).await
    }

    /// Reads every byte of every checkpoint of the job; newest first. Holds one part in memory at a time.
    ///
    /// # Errors
    /// `BadJob`; `Store` where the listing fails. What is wrong with a checkpoint stands in its [`CheckpointVerification`].
    pub async fn verify(&self, job: &str) -> Result<Vec<CheckpointVerification>, CheckpointError> {
        load::verify(self, job).await
    }

    /// Bytes that the job's checkpoints take: parts, manifests and what killed writers left.
    ///
    /// # Errors
    /// `BadJob`; `Store`.
    pub async fn stored_bytes(&self, job: &str) -> Result<u64, CheckpointError> {
        retention::stored_bytes(self, job).await
    }

    /// Deletes the checkpoints that are not to be kept, and the parts that none of the kept ones uses. A newer one that
    /// is damaged neither counts nor goes: it stays for people to look at. Only the job's own writer, or nobody, may be
    /// saving meanwhile. Returns the number of checkpoints deleted.
    ///
    /// # Errors
    /// `BadJob`; `Store`, after which the kept checkpoints are whole and pruning again is safe.
    pub async fn prune(&self, job: &str, retention: &Retention) -> Result<usize, CheckpointError> {
        let _turn = self.prune_lock.lock().await;
        retention::prune(self, job, retention).await
    }

    /// Deletes all that is kept of a job's checkpoints; nobody may be writing them any more. Returns the bytes that
    /// this freed, 0 where there was nothing.
    ///
    /// # Errors
    /// `BadJob`; `Store`, after which removing again is safe.
    pub async fn remove_all(&self, job: &str) -> Result<u64, CheckpointError> {
        let _turn = self.prune_lock.lock().await;
        retention::remove_all(self, job).await
    }
}

/// SHA-256 over names, descriptors and elements, in the order of names: equal digests are equal
/// weights, wherever and in whatever order they were stored.
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
