//! Reading: the newest checkpoint of which every byte is as it was written.

use bytes::Bytes;

use super::manifest::{FORMAT, Manifest, NotAManifest};
use super::pack;
use super::save::{folder, part_name};
use super::{Checkpoint, CheckpointInfo, Checkpoints, Latest, SavedVariable, Skipped};
use crate::clock::Millis;
use crate::digest::Digest;
use crate::error::{CheckpointError, StoreError};
use crate::limits::MANIFEST_BYTES_MAX;

/// A manifest's name, taken apart. Orders by epoch, then by step.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) file: String,
    size: u64,
    written_ms: Millis,
}

impl Entry {
    /// The object name of a manifest.
    pub(super) fn name(folder: &str, step: u64, epoch: u64) -> String {
        format!("{folder}/{step:020}-{epoch}.json")
    }
}

/// The job's manifests, newest first.
pub(super) async fn entries(checkpoints: &Checkpoints, folder: &str) -> Result<Vec<Entry>, CheckpointError> {
    let prefix = format!("{folder}/");
    let entry = |info: crate::objects::ObjectInfo| {
        let (step, epoch) = info.name.strip_prefix(&prefix)?.strip_suffix(".json")?.split_once('-')?;
        let (step, epoch) = (step.parse().ok()?, epoch.parse().ok()?);
        let (size, written_ms) = (info.size, info.written_ms);
        (Entry::name(folder, step, epoch) == info.name).then_some(Entry {
            epoch,
            step,
            file: info.name,
            size,
            written_ms,
        })
    };
    let listed = checkpoints.objects.list_flat(folder).await?;
    let mut entries: Vec<_> = listed.into_iter().filter_map(entry).collect();
    entries.sort_by(|a, b| b.cmp(a));
    Ok(entries)
}

/// Why a checkpoint cannot be had.
enum Obstacle {
    Damage(String),
    Refusal(CheckpointError),
}

impl From<String> for Obstacle {
    fn from(reason: String) -> Obstacle {
        Obstacle::Damage(reason)
    }
}

pub(super) async fn latest(
    checkpoints: &Checkpoints,
    job: &str,
    plugin_digest: &str,
) -> Result<Latest, CheckpointError> {
    let folder = folder(job)?;
    let mut skipped = Vec::new();
    for entry in entries(checkpoints, &folder).await? {
        match load(checkpoints, &folder, job, &entry, plugin_digest).await {
            Ok(found) => return Ok(Latest { found: Some(found), skipped }),
            Err(Obstacle::Refusal(error)) => return Err(error),
            Err(Obstacle::Damage(reason)) => {
                tracing::warn!(job, file = entry.file, reason, "damaged checkpoint skipped");
                skipped.push(Skipped { file: entry.file, reason });
            }
        }
    }
    Ok(Latest { found: None, skipped })
}

async fn load(
    checkpoints: &Checkpoints,
    folder: &str,
    job: &str,
    entry: &Entry,
    plugin_digest: &str,
) -> Result<(CheckpointInfo, Checkpoint), Obstacle> {
    let (manifest, digest) = read_manifest(checkpoints, entry).await?;
    if (manifest.job.as_str(), manifest.step, manifest.epoch) != (job, entry.step, entry.epoch) {
        return Err(format!("{} is another checkpoint's manifest", entry.file).into());
    }
    if manifest.plugin != plugin_digest {
        return Err(Obstacle::Refusal(CheckpointError::OtherPlugin {
            file: entry.file.clone(),
            found: manifest.plugin,
            expected: plugin_digest.to_owned(),
        }));
    }
    let mut parts: Vec<Bytes> = Vec::with_capacity(manifest.parts.len().min(1 << 16));
    for part in &manifest.parts {
        let name = part_name(folder, &part.sha256);
        parts.push(read(checkpoints, &name, Some(&part.sha256)).await?);
    }
    let mut info = manifest.info(digest, entry.file.clone());
    info.written_ms = entry.written_ms;
    let variables = manifest.variables.into_iter().map(|variable| {
        let bytes = pack::unpack(&parts, &variable.pieces)?;
        if bytes.len() != variable.tensor.bytes() {
            return Err(format!("variable {} has {} bytes", variable.name, bytes.len()));
        }
        Ok(SavedVariable { name: variable.name, kind: variable.kind, descriptor: variable.tensor, bytes })
    });
    let variables = variables.collect::<Result<_, String>>()?;
    let state = pack::unpack(&parts, &manifest.state)?.to_vec();
    let checkpoint = Checkpoint {
        step: manifest.step,
        variables,
        positions: manifest.positions,
        state,
        plugin_digest: manifest.plugin,
        device: manifest.device,
        build: manifest.build,
    };
    Ok((info, checkpoint))
}

async fn read_manifest(checkpoints: &Checkpoints, entry: &Entry) -> Result<(Manifest, Digest), Obstacle> {
    if entry.size > MANIFEST_BYTES_MAX {
        return Err(format!("{} has {} bytes", entry.file, entry.size).into());
    }
    let text = read(checkpoints, &entry.file, None).await?;
    Manifest::decode(&text).map_err(|error| match error {
        NotAManifest::Damaged(reason) => Obstacle::Damage(format!("{}: {reason}", entry.file)),
        NotAManifest::OtherFormat(found) => {
            Obstacle::Refusal(CheckpointError::OtherFormat { file: entry.file.clone(), found, expected: FORMAT })
        }
    })
}

/// Reads an object, once more where the first try failed: a checkpoint is worth a second look.
async fn read(checkpoints: &Checkpoints, name: &str, digest: Option<&Digest>) -> Result<Bytes, String> {
    let once = || async {
        match digest {
            Some(digest) => checkpoints.objects.get_verified(name, digest).await,
            None => checkpoints.objects.get(name).await,
        }
    };
    match once().await {
        Ok(bytes) => Ok(bytes),
        Err(StoreError::NotFound { name }) => Err(format!("object {name} is missing")),
        Err(_) => once().await.map_err(|error| error.to_string()),
    }
}

pub(super) async fn list(checkpoints: &Checkpoints, job: &str) -> Result<Vec<CheckpointInfo>, CheckpointError> {
    let mut infos = Vec::new();
    for entry in entries(checkpoints, &folder(job)?).await? {
        if let Ok((manifest, digest)) = read_manifest(checkpoints, &entry).await {
            let mut info = manifest.info(digest, entry.file);
            info.written_ms = entry.written_ms;
            infos.push(info);
        }
    }
    Ok(infos)
}
