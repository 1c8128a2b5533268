//! Reading: the newest checkpoint of which every byte is as it was written, or one that is named.

use std::collections::{HashMap, hash_map};

use bytes::Bytes;

use super::export::Wanted;
use super::manifest::{FORMAT, Manifest, NotAManifest};
use super::pack;
use super::retention;
use super::save::{folder, part_name};
use super::{Checkpoint, CheckpointInfo, Checkpoints, Latest, SavedVariable, Skipped, Verified};
use crate::clock::Millis;
use crate::digest::Digest;
use crate::error::{CheckpointError, StoreError};
use crate::limits::MANIFEST_BYTES_MAX;
use crate::objects::Objects;
use crate::objects::files::Pin;

/// A manifest's name, taken apart. Orders by epoch, then by step.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) file: String,
    pub(super) size: u64,
    pub(super) written_ms: Millis,
}

impl Entry {
    /// The object name of a manifest.
    pub(super) fn name(folder: &str, step: u64, epoch: u64) -> String {
        format!("{folder}/{step:020}-{epoch}.json")
    }

    /// As a listing shows it.
    pub(super) fn info(&self, manifest: &Manifest, digest: Digest) -> CheckpointInfo {
        CheckpointInfo { written_ms: self.written_ms, ..manifest.info(digest, self.file.clone()) }
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
pub(super) enum Obstacle {
    Damage(String),
    Refusal(CheckpointError),
}

impl From<String> for Obstacle {
    fn from(reason: String) -> Obstacle {
        Obstacle::Damage(reason)
    }
}

impl Obstacle {
    /// As an error, where no other checkpoint will do.
    pub(super) fn of(self, entry: &Entry) -> CheckpointError {
        match self {
            Obstacle::Refusal(error) => error,
            Obstacle::Damage(reason) => CheckpointError::Damaged { file: entry.file.clone(), reason },
        }
    }
}

pub(super) async fn latest(
    checkpoints: &Checkpoints,
    job: &str,
    plugin: Option<&str>,
) -> Result<Latest, CheckpointError> {
    let folder = folder(job)?;
    let mut skipped = Vec::new();
    for entry in entries(checkpoints, &folder).await? {
        match load(checkpoints, &folder, job, &entry, plugin).await {
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

/// The job's checkpoint of this step; that of the latest attempt, where several did it.
pub(super) async fn find(
    checkpoints: &Checkpoints,
    folder: &str,
    job: &str,
    step: u64,
) -> Result<Entry, CheckpointError> {
    let found = entries(checkpoints, folder).await?.into_iter().find(|entry| entry.step == step);
    found.ok_or_else(|| missing(job, format!(" of step {step}")))
}

fn missing(job: &str, which: String) -> CheckpointError {
    CheckpointError::NotFound { job: job.to_owned(), which }
}

/// The checkpoint that is wanted, as far as manifests tell.
pub(super) async fn wanted(
    checkpoints: &Checkpoints,
    folder: &str,
    job: &str,
    wanted: &Wanted,
) -> Result<Entry, CheckpointError> {
    match wanted {
        Wanted::Step(step) => find(checkpoints, folder, job, *step).await,
        Wanted::Latest => {
            let newest = retention::newest(checkpoints, folder).await?;
            newest.ok_or_else(|| missing(job, String::new()))
        }
        Wanted::Best(by) => {
            let best = retention::best(checkpoints, job, by).await?.map(|best| best.file);
            let found =
                entries(checkpoints, folder).await?.into_iter().find(|entry| Some(&entry.file) == best.as_ref());
            found.ok_or_else(|| missing(job, format!(" with the metric `{}`", by.metric)))
        }
    }
}

/// Keeps a checkpoint from being pruned while it is read.
pub(super) fn pin(checkpoints: &Checkpoints, job: &str, entry: &Entry) -> Result<Pin, CheckpointError> {
    checkpoints.objects.pin(&entry.file).map_err(|error| match error {
        StoreError::NotFound { .. } => missing(job, format!(" of step {} any more", entry.step)),
        error => error.into(),
    })
}

pub(super) async fn at(
    checkpoints: &Checkpoints,
    job: &str,
    step: u64,
    plugin: Option<&str>,
) -> Result<(CheckpointInfo, Checkpoint), CheckpointError> {
    let folder = folder(job)?;
    let entry = find(checkpoints, &folder, job, step).await?;
    let _pin = pin(checkpoints, job, &entry)?;
    load(checkpoints, &folder, job, &entry, plugin).await.map_err(|obstacle| obstacle.of(&entry))
}

/// The manifest that stands under a name, if it is that checkpoint's.
pub(super) async fn own_manifest(
    checkpoints: &Checkpoints,
    job: &str,
    entry: &Entry,
) -> Result<(Manifest, Digest), Obstacle> {
    let (manifest, digest) = read_manifest(checkpoints, entry).await?;
    if (manifest.job.as_str(), manifest.step, manifest.epoch) != (job, entry.step, entry.epoch) {
        return Err(format!("{} is another checkpoint's manifest", entry.file).into());
    }
    manifest.check().map_err(|reason| format!("{}: {reason}", entry.file))?;
    Ok((manifest, digest))
}

async fn load(
    checkpoints: &Checkpoints,
    folder: &str,
    job: &str,
    entry: &Entry,
    plugin: Option<&str>,
) -> Result<(CheckpointInfo, Checkpoint), Obstacle> {
    let (manifest, digest) = own_manifest(checkpoints, job, entry).await?;
    if let Some(expected) = plugin.filter(|plugin| manifest.plugin != *plugin) {
        return Err(Obstacle::Refusal(CheckpointError::OtherPlugin {
            file: entry.file.clone(),
            found: manifest.plugin,
            expected: expected.to_owned(),
        }));
    }
    let mut parts: Vec<Bytes> = Vec::with_capacity(manifest.parts.len().min(1 << 16));
    for part in &manifest.parts {
        let name = part_name(folder, &part.sha256);
        parts.push(read(&checkpoints.objects, &name, Some(&part.sha256)).await?);
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
        ways: manifest.ways,
    };
    Ok((info, checkpoint))
}

async fn read_manifest(checkpoints: &Checkpoints, entry: &Entry) -> Result<(Manifest, Digest), Obstacle> {
    if entry.size > MANIFEST_BYTES_MAX {
        return Err(format!("{} has {} bytes", entry.file, entry.size).into());
    }
    let text = read(&checkpoints.objects, &entry.file, None).await?;
    Manifest::decode(&text).map_err(|error| match error {
        NotAManifest::Damaged(reason) => Obstacle::Damage(format!("{}: {reason}", entry.file)),
        NotAManifest::OtherFormat(found) => {
            Obstacle::Refusal(CheckpointError::OtherFormat { file: entry.file.clone(), found, expected: FORMAT })
        }
    })
}

/// Reads an object, once more where the first try failed: a checkpoint is worth a second look.
pub(super) async fn read(objects: &Objects, name: &str, digest: Option<&Digest>) -> Result<Bytes, String> {
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

pub(super) async fn list(checkpoints: &Checkpoints, job: &str) -> Result<Vec<CheckpointInfo>, CheckpointError> {
    let mut infos = Vec::new();
    for entry in entries(checkpoints, &folder(job)?).await? {
        if let Ok((manifest, digest)) = read_manifest(checkpoints, &entry).await {
            infos.push(entry.info(&manifest, digest));
        }
    }
    Ok(infos)
}

pub(super) async fn verify(checkpoints: &Checkpoints, job: &str) -> Result<Vec<Verified>, CheckpointError> {
    let folder = folder(job)?;
    // Checkpoints share parts; each is read once.
    let mut parts = HashMap::new();
    let mut verified = Vec::new();
    for entry in entries(checkpoints, &folder).await? {
        let outcome = verify_one(checkpoints, &folder, job, &entry, &mut parts).await;
        let outcome = outcome.map_err(|obstacle| obstacle.of(&entry).to_string());
        verified.push(Verified { step: entry.step, fencing_epoch: entry.epoch, file: entry.file, outcome });
    }
    Ok(verified)
}

/// Reads a checkpoint part by part, keeping none. `parts` is what is known of parts so far.
async fn verify_one(
    checkpoints: &Checkpoints,
    folder: &str,
    job: &str,
    entry: &Entry,
    parts: &mut HashMap<Digest, Result<(), String>>,
) -> Result<CheckpointInfo, Obstacle> {
    let (manifest, digest) = own_manifest(checkpoints, job, entry).await?;
    for part in &manifest.parts {
        let known = match parts.entry(part.sha256) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(unknown) => {
                let found = read(&checkpoints.objects, &part_name(folder, &part.sha256), Some(&part.sha256)).await;
                unknown.insert(found.map(drop))
            }
        };
        known.clone()?;
    }
    Ok(entry.info(&manifest, digest))
}
