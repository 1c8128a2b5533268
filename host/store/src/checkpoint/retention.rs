//! Which checkpoints stay: the newest, and the best by a metric. Taking away: manifests first, then parts, so that
//! whatever cuts it off leaves whole checkpoints and parts that nobody uses.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::load::{self, ManifestEntry};
use super::manifest::{CheckpointManifest, CheckpointPart};
use super::save::{checkpoint_folder, lock_durable_parts, part_object_name};
use super::{CheckpointInfo, CheckpointStore};
use crate::error::{CheckpointError, StoreError};
use crate::limits::CHECKPOINT_CACHE_ENTRIES_MAX;

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricMode {
    /// The lower the better: a loss.
    Min,
    /// The higher the better: an accuracy.
    Max,
}

/// By what a checkpoint is the best.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BestMetric {
    /// The name of the series: `validation/loss`.
    pub metric: String,
    /// Which way it is better.
    pub mode: MetricMode,
}

/// Which checkpoints stay when the others are taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// So many of the newest whole ones; 0 counts as 1.
    pub keep_last: usize,
    /// Besides, the best whole one by this.
    pub keep_best: Option<BestMetric>,
}

impl Retention {
    /// The newest `keep_last`, and no more.
    pub fn last(keep_last: usize) -> Retention {
        Retention { keep_last, keep_best: None }
    }
}

impl BestMetric {
    /// The best of these. A checkpoint without the metric, or of which it is no number, is never it; of equals, the
    /// earlier is.
    pub fn select_best<'a>(&self, infos: impl IntoIterator<Item = &'a CheckpointInfo>) -> Option<&'a CheckpointInfo> {
        let value = |info: &CheckpointInfo| info.metrics.get(&self.metric).copied().filter(|value| !value.is_nan());
        let mut best: Option<(f64, &CheckpointInfo)> = None;
        for info in infos {
            let Some(value) = value(info) else { continue };
            let is_better = best.is_none_or(|(than, there)| {
                let better = match self.mode {
                    MetricMode::Min => value < than,
                    MetricMode::Max => value > than,
                };
                // The same step in a later attempt is the one that a reader gets who names the step.
                let earlier =
                    info.step < there.step || info.step == there.step && info.fencing_epoch > there.fencing_epoch;
                better || value == than && earlier
            });
            if is_better {
                best = Some((value, info));
            }
        }
        best.map(|(_, info)| info)
    }
}

/// The parts of a job, by name, with their sizes.
struct StoredParts(HashMap<String, u64>);

impl StoredParts {
    async fn list(checkpoints: &CheckpointStore, folder: &str) -> Result<StoredParts, CheckpointError> {
        let listed = checkpoints.objects.list(&format!("{folder}/parts")).await?;
        Ok(StoredParts(listed.into_iter().map(|part| (part.name, part.size)).collect()))
    }

    /// Whether all parts of a manifest are there, as far as a glance shows.
    fn contains_parts_of(&self, folder: &str, manifest: &ManifestSummary) -> bool {
        manifest.parts.iter().all(|part| self.0.get(&part_object_name(folder, &part.sha256)) == Some(&part.bytes))
    }
}

/// What is needed of a manifest here.
#[derive(Debug)]
struct ManifestSummary {
    /// Bytes of its text.
    size: u64,
    info: CheckpointInfo,
    parts: Vec<CheckpointPart>,
}

impl ManifestSummary {
    /// What it takes in memory, in parts and metrics.
    fn cached_entries(&self) -> usize {
        1 + self.parts.len() + self.info.metrics.len()
    }
}

/// Manifests that were read, by their object names.
#[derive(Debug, Default)]
pub(super) struct ManifestCache {
    manifests: HashMap<String, Arc<ManifestSummary>>,
    /// The sum of their entries.
    entries: usize,
}

impl ManifestCache {
    /// The manifest, if it is the one that was read. Whether it was damaged since, its size and time tell, and else whoever
    /// reads the checkpoint finds out.
    fn get(&self, entry: &ManifestEntry) -> Option<Arc<ManifestSummary>> {
        let found = self.manifests.get(&entry.file)?;
        let is_same = (found.size, found.info.written_ms) == (entry.size, entry.written_ms);
        is_same.then(|| Arc::clone(found))
    }

    /// Remembers a manifest, unless there are too many: such a one is read again.
    fn insert(&mut self, manifest: &Arc<ManifestSummary>) {
        self.remove(&manifest.info.file);
        if self.entries + manifest.cached_entries() <= CHECKPOINT_CACHE_ENTRIES_MAX {
            self.entries += manifest.cached_entries();
            self.manifests.insert(manifest.info.file.clone(), Arc::clone(manifest));
        }
    }

    fn remove(&mut self, file: &str) {
        if let Some(removed) = self.manifests.remove(file) {
            self.entries -= removed.cached_entries();
        }
    }

    /// Forgets the manifests in a folder, but for these.
    fn retain_in_folder(&mut self, folder: &str, files: &HashSet<&str>) {
        let prefix = format!("{folder}/");
        self.manifests.retain(|file, _| !file.starts_with(&prefix) || files.contains(file.as_str()));
        self.entries = self.manifests.values().map(|manifest| manifest.cached_entries()).sum();
    }
}

fn lock_manifest_cache(checkpoints: &CheckpointStore) -> MutexGuard<'_, ManifestCache> {
    checkpoints.manifest_cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A manifest, or none where it is damaged or gone.
async fn read_manifest_summary(
    checkpoints: &CheckpointStore,
    entry: &ManifestEntry,
) -> Result<Option<ManifestSummary>, CheckpointError> {
    match checkpoints.objects.get(&entry.file).await {
        Ok(text) => Ok(CheckpointManifest::decode(&text).ok().map(|(manifest, digest)| {
            let info = entry.info(&manifest, digest);
            ManifestSummary { size: entry.size, info, parts: manifest.parts }
        })),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// As [`read_manifest_summary`], from memory where it was read before. For the job's own writer, who prunes again and again.
async fn cached_manifest_summary(
    checkpoints: &CheckpointStore,
    entry: &ManifestEntry,
) -> Result<Option<Arc<ManifestSummary>>, CheckpointError> {
    let found = lock_manifest_cache(checkpoints).get(entry);
    if found.is_some() {
        return Ok(found);
    }
    let read = read_manifest_summary(checkpoints, entry).await?.map(Arc::new);
    if let Some(manifest) = &read {
        lock_manifest_cache(checkpoints).insert(manifest);
    }
    Ok(read)
}

/// The newest checkpoint of which all parts are there.
pub(super) async fn newest_complete(
    checkpoints: &CheckpointStore,
    folder: &str,
) -> Result<Option<ManifestEntry>, CheckpointError> {
    let parts = StoredParts::list(checkpoints, folder).await?;
    for entry in load::list_entries(checkpoints, folder).await? {
        if read_manifest_summary(checkpoints, &entry)
            .await?
            .is_some_and(|manifest| parts.contains_parts_of(folder, &manifest))
        {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

pub(super) async fn best(
    checkpoints: &CheckpointStore,
    job: &str,
    by: &BestMetric,
) -> Result<Option<CheckpointInfo>, CheckpointError> {
    let folder = checkpoint_folder(job)?;
    let parts = StoredParts::list(checkpoints, &folder).await?;
    let mut whole = Vec::new();
    for entry in load::list_entries(checkpoints, &folder).await? {
        let manifest = read_manifest_summary(checkpoints, &entry).await?;
        whole.extend(
            manifest.filter(|manifest| parts.contains_parts_of(&folder, manifest)).map(|manifest| manifest.info),
        );
    }
    Ok(by.select_best(&whole).cloned())
}

/// As [`best`], for the job's own writer: the object name.
async fn best_manifest_name(
    checkpoints: &CheckpointStore,
    folder: &str,
    parts: &StoredParts,
    entries: &[ManifestEntry],
    by: &BestMetric,
) -> Result<Option<String>, CheckpointError> {
    let mut whole = Vec::with_capacity(entries.len());
    for entry in entries {
        let manifest = cached_manifest_summary(checkpoints, entry).await?;
        whole.extend(manifest.filter(|manifest| parts.contains_parts_of(folder, manifest)));
    }
    Ok(by.select_best(whole.iter().map(|manifest| &manifest.info)).map(|info| info.file.clone()))
}

pub(super) async fn prune(
    checkpoints: &CheckpointStore,
    job: &str,
    retention: &Retention,
) -> Result<usize, CheckpointError> {
    let folder = checkpoint_folder(job)?;
    let objects = &checkpoints.objects;
    let parts = StoredParts::list(checkpoints, &folder).await?;
    let entries = load::list_entries(checkpoints, &folder).await?;
    let best = match &retention.keep_best {
        Some(by) => best_manifest_name(checkpoints, &folder, &parts, &entries, by).await?,
        None => None,
    };
    let (mut used, mut stay) = (HashSet::new(), HashSet::new());
    let (mut kept, mut deleted) = (0, 0);
    for entry in &entries {
        let is_best = best.as_ref() == Some(&entry.file);
        // One that somebody reads goes the next time.
        let goes = kept >= retention.keep_last.max(1) && !is_best;
        if goes && objects.delete_unless_pinned(&entry.file).await? {
            deleted += 1;
            continue;
        }
        stay.insert(entry.file.as_str());
        // Only what could be resumed from counts as kept. A damaged one newer than those stays,
        // for people to look at.
        let Some(manifest) = cached_manifest_summary(checkpoints, entry).await? else { continue };
        if parts.contains_parts_of(&folder, &manifest) {
            kept += 1;
        }
        used.extend(manifest.parts.iter().map(|part| part_object_name(&folder, &part.sha256)));
    }
    lock_manifest_cache(checkpoints).retain_in_folder(&folder, &stay);
    if deleted > 0 {
        // A manifest that came back without its parts would be listed, and of no use.
        objects.sync_folder(&folder)?;
    }
    for part in parts.0.keys().filter(|part| !used.contains(*part)) {
        lock_durable_parts(checkpoints).remove(part);
        objects.delete(part).await?;
    }
    Ok(deleted)
}

pub(super) async fn stored_bytes(checkpoints: &CheckpointStore, job: &str) -> Result<u64, CheckpointError> {
    let listed = checkpoints.objects.list(&checkpoint_folder(job)?).await?;
    Ok(listed.iter().fold(0, |sum, object| sum.saturating_add(object.size)))
}

pub(super) async fn remove_all(checkpoints: &CheckpointStore, job: &str) -> Result<u64, CheckpointError> {
    let folder = checkpoint_folder(job)?;
    let freed = stored_bytes(checkpoints, job).await?;
    // Without its manifests a checkpoint is none: nobody finds one that is half gone.
    for entry in load::list_entries(checkpoints, &folder).await? {
        checkpoints.objects.delete(&entry.file).await?;
    }
    let prefix = format!("{folder}/");
    lock_durable_parts(checkpoints).retain(|part| !part.starts_with(&prefix));
    lock_manifest_cache(checkpoints).retain_in_folder(&folder, &HashSet::new());
    checkpoints.objects.delete_folder(&folder).await?;
    Ok(freed)
}
