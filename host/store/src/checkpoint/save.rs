//! Saves checkpoints: parts first, the manifest last.

use std::collections::BTreeMap;

use bytes::Bytes;
use object_store::PutPayload;
use saggar_tensor::limits::NAME_BYTES_MAX;

use super::listing::{ManifestEntry, checkpoint_folder, list_entries, part_object_name};
use super::manifest::{CheckpointManifest, CheckpointPart, CheckpointVariable};
use super::pack::PartPacker;
use super::{Checkpoint, CheckpointInfo, CheckpointStore, SavedVariable};
use crate::digest::{Digest, Sha256Hasher};
use crate::error::{CheckpointError, StoreError};
use crate::limits::CHECKPOINT_METRICS_MAX;
use crate::objects::PutOutcome;

pub(super) async fn claim(checkpoints: &CheckpointStore, job: &str, epoch: u64) -> Result<(), CheckpointError> {
    let folder = checkpoint_folder(job)?;
    check_fencing_epoch(checkpoints, job, &folder, epoch).await?;
    let name = format!("{folder}/epochs/{epoch:020}");
    if checkpoints.objects.create(&name, PutPayload::from_static(b"{}\n")).await? == PutOutcome::Taken {
        checkpoints.objects.sync(&name).await?;
    }
    checkpoints.objects.sweep(&folder)?;
    // Of two concurrent claims, the lower epoch detects the higher one here or at its first save.
    check_fencing_epoch(checkpoints, job, &folder, epoch).await
}

/// Returns `Fenced` unless this epoch is the newest.
pub(super) async fn check_fencing_epoch(
    checkpoints: &CheckpointStore,
    job: &str,
    folder: &str,
    epoch: u64,
) -> Result<(), CheckpointError> {
    let saved = list_entries(checkpoints, folder).await?;
    check_newest_epoch(checkpoints, job, folder, epoch, &saved).await
}

/// Returns `Fenced` unless this epoch is the newest. `saved` are the job's manifests.
pub(super) async fn check_newest_epoch(
    checkpoints: &CheckpointStore,
    job: &str,
    folder: &str,
    epoch: u64,
    saved: &[ManifestEntry],
) -> Result<(), CheckpointError> {
    let prefix = format!("{folder}/epochs/");
    let claims = checkpoints.objects.list(&format!("{folder}/epochs")).await?;
    let claimed = claims.iter().filter_map(|it| it.name.strip_prefix(&prefix)?.parse().ok());
    let newest = claimed.chain(saved.iter().map(|entry| entry.epoch)).max().unwrap_or(0);
    if newest > epoch {
        return Err(CheckpointError::Fenced { job: job.to_owned(), epoch, newest });
    }
    Ok(())
}

pub(super) async fn save(
    checkpoints: &CheckpointStore,
    job: &str,
    epoch: u64,
    checkpoint: &Checkpoint,
) -> Result<CheckpointInfo, CheckpointError> {
    let folder = checkpoint_folder(job)?;
    let sorted = validate_variables(&checkpoint.variables)?;
    check_fencing_epoch(checkpoints, job, &folder, epoch).await?;
    let mut packer = PartPacker::default();
    let variables = sorted.into_iter().map(|variable| CheckpointVariable {
        name: variable.name.clone(),
        kind: variable.kind,
        tensor: variable.descriptor.clone(),
        pieces: packer.add(&variable.bytes),
    });
    let variables = variables.collect();
    let state = packer.add(&Bytes::copy_from_slice(&checkpoint.state));
    let part_epoch = checkpoints.has_parts_by_epoch.then_some(epoch);
    let mut parts = Vec::with_capacity(packer.parts.len());
    for stretches in packer.parts {
        parts.push(put_part(checkpoints, &folder, part_epoch, stretches).await?);
    }
    let manifest = CheckpointManifest {
        job: job.to_owned(),
        step: checkpoint.step,
        epoch,
        plugin: checkpoint.plugin_digest.clone(),
        device: checkpoint.device.clone(),
        build: checkpoint.build.clone(),
        positions: checkpoint.positions.clone(),
        state,
        variables,
        parts,
        metrics: finite_metrics(&checkpoint.metrics),
        ways: checkpoint.kernel_tuning.clone(),
    };
    // Writing the parts takes long, and the job may have been claimed meanwhile.
    check_fencing_epoch(checkpoints, job, &folder, epoch).await?;
    let file = ManifestEntry::object_name(&folder, checkpoint.step, epoch);
    let digest = write_manifest(checkpoints, &file, &manifest).await?;
    Ok(manifest.info(digest, file))
}

/// Returns the finite metrics, up to the maximum of a manifest.
fn finite_metrics(metrics: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let finite = metrics.iter().filter(|(name, value)| value.is_finite() && name.len() <= NAME_BYTES_MAX);
    finite.take(CHECKPOINT_METRICS_MAX).map(|(name, value)| (name.clone(), *value)).collect()
}

/// Returns the variables sorted by name, if each has the size of its descriptor and a unique name.
fn validate_variables(variables: &[SavedVariable]) -> Result<Vec<&SavedVariable>, CheckpointError> {
    let mut sorted: Vec<_> = variables.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(CheckpointError::DuplicateName { name: pair[0].name.clone() });
    }
    let wrong = |it: &&&SavedVariable| it.descriptor.bytes() != it.bytes.len();
    match sorted.iter().find(wrong) {
        None => Ok(sorted),
        Some(variable) => Err(CheckpointError::WrongSize {
            name: variable.name.clone(),
            descriptor: variable.descriptor.to_string(),
            expected: variable.descriptor.bytes(),
            found: variable.bytes.len(),
        }),
    }
}

async fn put_part(
    checkpoints: &CheckpointStore,
    folder: &str,
    epoch: Option<u64>,
    stretches: Vec<Bytes>,
) -> Result<CheckpointPart, CheckpointError> {
    let objects = &checkpoints.objects;
    let bytes = stretches.iter().map(|stretch| stretch.len() as u64).sum();
    let hashed = tokio::task::spawn_blocking(move || {
        let mut hasher = Sha256Hasher::new();
        stretches.iter().for_each(|stretch| hasher.update(stretch));
        (hasher.finish(), stretches)
    });
    let interrupted = |_| StoreError::Interrupted { name: folder.to_owned() };
    let (sha256, stretches) = hashed.await.map_err(interrupted)?;
    let part = CheckpointPart { sha256, bytes, epoch };
    let name = part_object_name(folder, &part);
    let is_known = || checkpoints.durable_parts.lock().contains(&name);
    if !is_known() || objects.size(&name).await? != Some(bytes) {
        objects.ensure(&name, &sha256, stretches.into_iter().collect()).await?;
        checkpoints.durable_parts.lock().insert(name);
    }
    Ok(part)
}

/// Writes the manifest, which makes the checkpoint exist.
async fn write_manifest(
    checkpoints: &CheckpointStore,
    file: &str,
    manifest: &CheckpointManifest,
) -> Result<Digest, CheckpointError> {
    let objects = &checkpoints.objects;
    let encoded = manifest.encode().map_err(|error| StoreError::Io { path: file.into(), source: error.into() });
    let (text, digest) = encoded?;
    let text = Bytes::from(text);
    if objects.create(file, text.clone().into()).await? == PutOutcome::Created {
        return Ok(digest);
    }
    let there = objects.get(file).await?;
    if there != text && CheckpointManifest::decode(&there).is_ok() {
        return Err(CheckpointError::AlreadySaved { file: file.to_owned() });
    }
    // The existing manifest is this one, from a save whose result was lost, or it is damaged and useless.
    objects.ensure(file, &Digest::of(&text), text.into()).await?;
    Ok(digest)
}
