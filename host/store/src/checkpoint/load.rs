//! Loads checkpoints: the newest intact one, or that of a step. Every byte is verified.

use std::collections::{HashMap, hash_map};

use bytes::Bytes;

use super::listing::{ManifestEntry, checkpoint_folder, list_entries, part_object_name};
use super::manifest::{CheckpointManifest, FORMAT, ManifestDecodeError};
use super::pack;
use super::{
    Checkpoint, CheckpointInfo, CheckpointStore, CheckpointVerification, LatestCheckpoint, SavedVariable,
    SkippedCheckpoint,
};
use crate::digest::Digest;
use crate::error::{CheckpointError, StoreError};
use crate::limits::MANIFEST_BYTES_MAX;
use crate::objects::ObjectStorage;
use crate::objects::files::ObjectPin;

/// The reason why a checkpoint cannot be loaded.
pub(super) enum CheckpointLoadError {
    Damage(String),
    Refusal(CheckpointError),
}

impl From<String> for CheckpointLoadError {
    fn from(reason: String) -> CheckpointLoadError {
        CheckpointLoadError::Damage(reason)
    }
}

impl CheckpointLoadError {
    /// Converts to an error, for when no other checkpoint can replace this one.
    pub(super) fn into_checkpoint_error(self, entry: &ManifestEntry) -> CheckpointError {
        match self {
            CheckpointLoadError::Refusal(error) => error,
            CheckpointLoadError::Damage(reason) => CheckpointError::Damaged { file: entry.file.clone(), reason },
        }
    }
}

pub(super) async fn latest(
    checkpoints: &CheckpointStore,
    job: &str,
    plugin: Option<&str>,
) -> Result<LatestCheckpoint, CheckpointError> {
    let folder = checkpoint_folder(job)?;
    let mut skipped = Vec::new();
    for entry in list_entries(checkpoints, &folder).await? {
        match load(checkpoints, &folder, job, &entry, plugin).await {
            Ok(found) => return Ok(LatestCheckpoint { found: Some(found), skipped }),
            Err(CheckpointLoadError::Refusal(error)) => return Err(error),
            Err(CheckpointLoadError::Damage(reason)) => {
                tracing::warn!(job, file = entry.file, reason, "damaged checkpoint skipped");
                skipped.push(SkippedCheckpoint { file: entry.file, reason });
            }
        }
    }
    Ok(LatestCheckpoint { found: None, skipped })
}

/// Returns the job's checkpoint of this step; if several attempts saved it, the latest attempt's.
pub(super) async fn find(
    checkpoints: &CheckpointStore,
    folder: &str,
    job: &str,
    step: u64,
) -> Result<ManifestEntry, CheckpointError> {
    let found = list_entries(checkpoints, folder).await?.into_iter().find(|entry| entry.step == step);
    found.ok_or_else(|| not_found_error(job, format!(" of step {step}")))
}

/// Returns the error for a job without this checkpoint. `which` describes it, such as ` of step 3`; empty for any.
pub(super) fn not_found_error(job: &str, which: String) -> CheckpointError {
    CheckpointError::NotFound { job: job.to_owned(), which }
}

/// Keeps a checkpoint from being pruned while it is read.
pub(super) fn pin(
    checkpoints: &CheckpointStore,
    job: &str,
    entry: &ManifestEntry,
) -> Result<ObjectPin, CheckpointError> {
    checkpoints.objects.pin(&entry.file).map_err(|error| match error {
        StoreError::NotFound { .. } => not_found_error(job, format!(" of step {} any more", entry.step)),
        error => error.into(),
    })
}

pub(super) async fn load_step(
    checkpoints: &CheckpointStore,
    job: &str,
    step: u64,
    plugin: Option<&str>,
) -> Result<(CheckpointInfo, Checkpoint), CheckpointError> {
    let folder = checkpoint_folder(job)?;
    let entry = find(checkpoints, &folder, job, step).await?;
    let _pin = pin(checkpoints, job, &entry)?;
    load(checkpoints, &folder, job, &entry, plugin).await.map_err(|obstacle| obstacle.into_checkpoint_error(&entry))
}

/// Returns the manifest with this name if its job, step and epoch match the name.
pub(super) async fn read_own_manifest(
    checkpoints: &CheckpointStore,
    job: &str,
    entry: &ManifestEntry,
) -> Result<(CheckpointManifest, Digest), CheckpointLoadError> {
    let (manifest, digest) = read_manifest(checkpoints, entry).await?;
    if (manifest.job.as_str(), manifest.step, manifest.epoch) != (job, entry.step, entry.epoch) {
        return Err(format!("{} is another checkpoint's manifest", entry.file).into());
    }
    manifest.validate().map_err(|reason| format!("{}: {reason}", entry.file))?;
    Ok((manifest, digest))
}

async fn load(
    checkpoints: &CheckpointStore,
    folder: &str,
    job: &str,
    entry: &ManifestEntry,
    plugin: Option<&str>,
) -> Result<(CheckpointInfo, Checkpoint), CheckpointLoadError> {
    let (manifest, digest) = read_own_manifest(checkpoints, job, entry).await?;
    if let Some(expected) = plugin.filter(|plugin| manifest.plugin != *plugin) {
        return Err(CheckpointLoadError::Refusal(CheckpointError::OtherPlugin {
            file: entry.file.clone(),
            found: manifest.plugin,
            expected: expected.to_owned(),
        }));
    }
    let mut parts: Vec<Bytes> = Vec::with_capacity(manifest.parts.len().min(1 << 16));
    for part in &manifest.parts {
        let name = part_object_name(folder, part);
        parts.push(read_with_retry(&checkpoints.objects, &name, Some(&part.sha256)).await?);
    }
    let info = entry.info(&manifest, digest);
    let variables = manifest.variables.into_iter().map(|variable| {
        let bytes = pack::unpack(&parts, &variable.pieces)?;
        Ok(SavedVariable { name: variable.name, kind: variable.kind, descriptor: variable.tensor, bytes })
    });
    let variables = variables.collect::<Result<_, String>>()?;
    let state = pack::unpack(&parts, &manifest.state)?.to_vec();
    let checkpoint = Checkpoint {
        step: manifest.step,
        metrics: manifest.metrics,
        variables,
        positions: manifest.positions,
        state,
        plugin_digest: manifest.plugin,
        device: manifest.device,
        build: manifest.build,
        kernel_tuning: manifest.ways,
    };
    Ok((info, checkpoint))
}

async fn read_manifest(
    checkpoints: &CheckpointStore,
    entry: &ManifestEntry,
) -> Result<(CheckpointManifest, Digest), CheckpointLoadError> {
    if entry.size > MANIFEST_BYTES_MAX {
        return Err(format!("{} has {} bytes", entry.file, entry.size).into());
    }
    let text = read_with_retry(&checkpoints.objects, &entry.file, None).await?;
    CheckpointManifest::decode(&text).map_err(|error| match error {
        ManifestDecodeError::Damaged(reason) => CheckpointLoadError::Damage(format!("{}: {reason}", entry.file)),
        ManifestDecodeError::OtherFormat(found) => CheckpointLoadError::Refusal(CheckpointError::OtherFormat {
            file: entry.file.clone(),
            found,
            expected: FORMAT,
        }),
    })
}

/// Reads an object, with one retry, because one failed read must not discard a checkpoint.
pub(super) async fn read_with_retry(
    objects: &ObjectStorage,
    name: &str,
    digest: Option<&Digest>,
) -> Result<Bytes, String> {
    let once = || async {
        match digest {
            Some(digest) => objects.get_verified(name, digest).await,
            None => objects.get(name).await,
        }
    };
    match once().await {
        Ok(bytes) => Ok(bytes),
        Err(StoreError::NotFound { name }) => Err(format!("object {name} is missing")),
        Err(_) => once().await.map_err(|error| error.to_string()),
    }
}

pub(super) async fn list(checkpoints: &CheckpointStore, job: &str) -> Result<Vec<CheckpointInfo>, CheckpointError> {
    let mut infos = Vec::new();
    for entry in list_entries(checkpoints, &checkpoint_folder(job)?).await? {
        if let Ok((manifest, digest)) = read_manifest(checkpoints, &entry).await {
            infos.push(entry.info(&manifest, digest));
        }
    }
    Ok(infos)
}

pub(super) async fn verify(
    checkpoints: &CheckpointStore,
    job: &str,
) -> Result<Vec<CheckpointVerification>, CheckpointError> {
    let folder = checkpoint_folder(job)?;
    // Checkpoints share parts; read each once.
    let mut parts = HashMap::new();
    let mut verified = Vec::new();
    for entry in list_entries(checkpoints, &folder).await? {
        let outcome = verify_one(checkpoints, &folder, job, &entry, &mut parts).await;
        // A running job removes checkpoints meanwhile, the manifest before the parts.
        if outcome.is_err() && !list_entries(checkpoints, &folder).await?.iter().any(|it| it.file == entry.file) {
            continue;
        }
        let outcome = outcome.map_err(|obstacle| obstacle.into_checkpoint_error(&entry).to_string());
        verified.push(CheckpointVerification {
            step: entry.step,
            fencing_epoch: entry.epoch,
            file: entry.file,
            outcome,
        });
    }
    Ok(verified)
}

/// Verifies a checkpoint part by part, keeping no part in memory. `parts` caches the result for each part.
async fn verify_one(
    checkpoints: &CheckpointStore,
    folder: &str,
    job: &str,
    entry: &ManifestEntry,
    parts: &mut HashMap<String, Result<(), String>>,
) -> Result<CheckpointInfo, CheckpointLoadError> {
    let (manifest, digest) = read_own_manifest(checkpoints, job, entry).await?;
    for part in &manifest.parts {
        let name = part_object_name(folder, part);
        let known = match parts.entry(name.clone()) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(unknown) => {
                let found = read_with_retry(&checkpoints.objects, &name, Some(&part.sha256)).await;
                unknown.insert(found.map(drop))
            }
        };
        known.clone()?;
    }
    Ok(entry.info(&manifest, digest))
}
