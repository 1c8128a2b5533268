//! The objects of a job's checkpoints: their names, and the listing of manifests.

use saggar_clock::UnixMillis;

use super::manifest::{CheckpointManifest, CheckpointPart};
use super::{CheckpointInfo, CheckpointStore};
use crate::digest::Digest;
use crate::error::CheckpointError;
use crate::objects::ObjectInfo;

/// Returns the folder of a job's checkpoints.
pub(super) fn checkpoint_folder(job: &str) -> Result<String, CheckpointError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if job.is_empty() || job.len() > 128 || !job.bytes().all(plain) {
        return Err(CheckpointError::BadJob { job: job.to_owned() });
    }
    Ok(format!("checkpoints/{job}"))
}

/// Returns the object name of a part.
pub(super) fn part_object_name(folder: &str, part: &CheckpointPart) -> String {
    let digest = &part.sha256;
    match part.epoch {
        None => format!("{folder}/parts/{digest}"),
        Some(epoch) => format!("{folder}/parts/{epoch:020}/{digest}"),
    }
}

/// Returns the epoch that the part of this object name belongs to; `None` if all epochs share it.
pub(super) fn part_epoch(folder: &str, name: &str) -> Option<u64> {
    name.strip_prefix(folder)?.strip_prefix("/parts/")?.split_once('/')?.0.parse().ok()
}

/// The parsed name of a manifest. Orders by epoch, then by step.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ManifestEntry {
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) file: String,
    pub(super) size: u64,
    pub(super) written_ms: UnixMillis,
}

impl ManifestEntry {
    /// Returns the object name of a manifest.
    pub(super) fn object_name(folder: &str, step: u64, epoch: u64) -> String {
        format!("{folder}/{step:020}-{epoch}.json")
    }

    /// Returns the entry for a listing.
    pub(super) fn info(&self, manifest: &CheckpointManifest, digest: Digest) -> CheckpointInfo {
        CheckpointInfo { written_ms: self.written_ms, ..manifest.info(digest, self.file.clone()) }
    }
}

/// Returns the job's manifests, newest first.
pub(super) async fn list_entries(
    checkpoints: &CheckpointStore,
    folder: &str,
) -> Result<Vec<ManifestEntry>, CheckpointError> {
    let prefix = format!("{folder}/");
    let entry = |info: ObjectInfo| {
        let (step, epoch) = info.name.strip_prefix(&prefix)?.strip_suffix(".json")?.split_once('-')?;
        let (step, epoch) = (step.parse().ok()?, epoch.parse().ok()?);
        let (size, written_ms) = (info.size, info.written_ms);
        (ManifestEntry::object_name(folder, step, epoch) == info.name).then_some(ManifestEntry {
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
