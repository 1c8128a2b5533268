//! Checkpoint retention: keeps the newest checkpoints and the best by a metric. Manifests are deleted before parts, so
//! an interruption leaves only intact checkpoints and unused parts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::MutexGuard;
use serde::{Deserialize, Serialize};

use super::listing::{ManifestEntry, checkpoint_folder, list_entries, part_epoch, part_object_name};
use super::manifest::{CheckpointManifest, CheckpointPart};
use super::save::check_newest_epoch;
use super::{CheckpointInfo, CheckpointStore};
use crate::error::CheckpointError;
use crate::limits::CHECKPOINT_CACHE_ENTRIES_MAX;

/// The direction in which a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricMode {
    /// Lower is better, as for a loss.
    Min,
    /// Higher is better, as for an accuracy.
    Max,
}

/// The metric that decides which checkpoint is the best.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BestMetric {
    /// The name of the series, such as `validation/loss`.
    pub metric: String,
    /// The direction in which it improves.
    pub mode: MetricMode,
}

/// The checkpoints that pruning keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The number of newest intact checkpoints to keep; 0 counts as 1.
    pub keep_last: usize,
    /// Also keep the best intact checkpoint by this metric.
    pub keep_best: Option<BestMetric>,
    /// Also keep the checkpoints of these steps.
    pub keep_steps: Vec<u64>,
}

impl Retention {
    /// Returns a retention of the newest `keep_last` only.
    pub fn last(keep_last: usize) -> Retention {
        Retention { keep_last, keep_best: None, keep_steps: Vec::new() }
    }
}

impl BestMetric {
    /// Returns the best of these. A checkpoint in which the metric is missing or NaN is never the best; of equal ones,
    /// the earlier wins.
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
                // Of one step, prefer the later attempt, which is also the one that a reader of that step gets.
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

    /// Returns whether all parts of a manifest exist with the right size.
    fn contains_parts_of(&self, folder: &str, manifest: &ManifestSummary) -> bool {
        manifest.parts.iter().all(|part| self.0.get(&part_object_name(folder, part)) == Some(&part.bytes))
    }
}

/// The fields of a manifest that retention needs.
#[derive(Debug)]
struct ManifestSummary {
    /// Size of its text in bytes.
    size: u64,
    info: CheckpointInfo,
    parts: Vec<CheckpointPart>,
}

impl ManifestSummary {
    /// Returns its cost in the cache, as a number of parts and metrics.
    fn cached_entries(&self) -> usize {
        1 + self.parts.len() + self.info.metrics.len()
    }
}

/// A cache of manifests by object name.
#[derive(Debug, Default)]
pub(super) struct ManifestCache {
    manifests: HashMap<String, Arc<ManifestSummary>>,
    /// The sum of their entries.
    entries: usize,
}

impl ManifestCache {
    /// Returns the cached manifest if its size and time are unchanged. Damage that changes neither is detected when the
    /// checkpoint is read.
    fn get(&self, entry: &ManifestEntry) -> Option<Arc<ManifestSummary>> {
        let found = self.manifests.get(&entry.file)?;
        let is_same = (found.size, found.info.written_ms) == (entry.size, entry.written_ms);
        is_same.then(|| Arc::clone(found))
    }

    /// Caches a manifest unless the cache is full; then it is read again.
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

    /// Removes the manifests in a folder from the cache, except these.
    fn retain_in_folder(&mut self, folder: &str, files: &HashSet<&str>) {
        let prefix = format!("{folder}/");
        self.manifests.retain(|file, _| !file.starts_with(&prefix) || files.contains(file.as_str()));
        self.entries = self.manifests.values().map(|manifest| manifest.cached_entries()).sum();
    }
}

fn lock_manifest_cache(checkpoints: &CheckpointStore) -> MutexGuard<'_, ManifestCache> {
    checkpoints.manifest_cache.lock()
}

/// Returns a manifest, or `None` if it is damaged or deleted.
async fn read_manifest_summary(
    checkpoints: &CheckpointStore,
    entry: &ManifestEntry,
) -> Result<Option<ManifestSummary>, CheckpointError> {
    let text = checkpoints.objects.find(&entry.file).await?;
    Ok(text.and_then(|text| CheckpointManifest::decode(&text).ok()).map(|(manifest, digest)| {
        let info = entry.info(&manifest, digest);
        ManifestSummary { size: entry.size, info, parts: manifest.parts }
    }))
}

/// Returns the same as [`read_manifest_summary`], from the cache if possible. For the job's own writer, which prunes
/// repeatedly.
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

/// Returns the newest checkpoint whose parts all exist.
pub(super) async fn newest_complete(
    checkpoints: &CheckpointStore,
    folder: &str,
) -> Result<Option<ManifestEntry>, CheckpointError> {
    let parts = StoredParts::list(checkpoints, folder).await?;
    for entry in list_entries(checkpoints, folder).await? {
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
    for entry in list_entries(checkpoints, &folder).await? {
        let manifest = read_manifest_summary(checkpoints, &entry).await?;
        whole.extend(
            manifest.filter(|manifest| parts.contains_parts_of(&folder, manifest)).map(|manifest| manifest.info),
        );
    }
    Ok(by.select_best(&whole).cloned())
}

/// Returns the object name of the checkpoint that [`best`] returns. For the job's own writer.
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
    epoch: u64,
    retention: &Retention,
) -> Result<usize, CheckpointError> {
    let folder = checkpoint_folder(job)?;
    let objects = &checkpoints.objects;
    let parts = StoredParts::list(checkpoints, &folder).await?;
    let entries = list_entries(checkpoints, &folder).await?;
    check_newest_epoch(checkpoints, job, &folder, epoch, &entries).await?;
    let best = match &retention.keep_best {
        Some(by) => best_manifest_name(checkpoints, &folder, &parts, &entries, by).await?,
        None => None,
    };
    let (mut used, mut stay) = (HashSet::new(), HashSet::new());
    let (mut resumable, mut deleted) = (0, 0);
    for entry in &entries {
        let is_best = best.as_ref() == Some(&entry.file);
        // A pinned checkpoint is deleted the next time.
        let is_kept = is_best || retention.keep_steps.contains(&entry.step);
        let goes = resumable >= retention.keep_last.max(1) && !is_kept && entry.epoch <= epoch;
        if goes && objects.delete_unless_pinned(&entry.file).await? {
            deleted += 1;
            continue;
        }
        stay.insert(entry.file.as_str());
        // Only resumable checkpoints count as kept. A newer, damaged one stays so that it can be examined.
        let Some(manifest) = cached_manifest_summary(checkpoints, entry).await? else { continue };
        if parts.contains_parts_of(&folder, &manifest) {
            resumable += 1;
        }
        used.extend(manifest.parts.iter().map(|part| part_object_name(&folder, part)));
    }
    lock_manifest_cache(checkpoints).retain_in_folder(&folder, &stay);
    if deleted > 0 {
        // After a power loss, a manifest without its parts would be listed but useless.
        objects.sync_folder(&folder)?;
    }
    // A newer attempt can have written parts whose manifest does not exist yet.
    let is_own = |part: &String| part_epoch(&folder, part).is_none_or(|of| of <= epoch);
    for part in parts.0.keys().filter(|part| !used.contains(*part) && is_own(part)) {
        checkpoints.durable_parts.lock().remove(part);
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
    // Deleting the manifests first makes a half-deleted checkpoint invisible.
    for entry in list_entries(checkpoints, &folder).await? {
        checkpoints.objects.delete(&entry.file).await?;
    }
    let prefix = format!("{folder}/");
    checkpoints.durable_parts.lock().retain(|part| !part.starts_with(&prefix));
    lock_manifest_cache(checkpoints).retain_in_folder(&folder, &HashSet::new());
    checkpoints.objects.delete_folder(&folder).await?;
    Ok(freed)
}
