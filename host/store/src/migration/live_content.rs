//! The content of a bucket that servers change while it is copied.

use std::path::Path;

use super::bucket_content::{self, BucketPart, RecordedLogs};
use super::content::{ContentKind, ContentLedger, ContentPlan};
use crate::checkpoint;
use crate::durable::disk;
use crate::error::StoreError;
use crate::objects::BlockingObjects;

/// How often the checkpoints are listed again, if some were pruned meanwhile.
const ROUNDS_MAX: u32 = 10;

/// Writes the files of a plan, and returns those whose objects were removed meanwhile.
type WriteContent<'a> = dyn Fn(&ContentPlan, &mut ContentLedger) -> Result<Vec<String>, StoreError> + 'a;

/// Copies checkpoints with `write`. Those whose parts were pruned meanwhile are left out, and newer ones are copied instead.
///
/// # Errors
/// Returns any error of the files and the store.
pub(super) fn copy_checkpoints(
    bucket: &BlockingObjects,
    root: &Path,
    ledger: &mut ContentLedger,
    write: &WriteContent<'_>,
) -> Result<(), StoreError> {
    for _ in 0..ROUNDS_MAX {
        let mut plan = bucket_content::plan(bucket, BucketPart::Checkpoints, &RecordedLogs::new())?;
        // The parts, and then the manifests that name them.
        plan.items.sort_by_key(|item| item.target.ends_with(".json"));
        let gone = write(&plan, ledger)?;
        if !remove_incomplete_checkpoints(root, ledger)? && gone.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Removes manifests that name a part that is not there. Returns whether there were any.
fn remove_incomplete_checkpoints(root: &Path, ledger: &mut ContentLedger) -> Result<bool, StoreError> {
    let is_manifest = |target: &&String| target.ends_with(".json");
    let of_checkpoints = ledger.0.iter().filter(|(_, (kind, ..))| *kind == ContentKind::Checkpoints);
    let manifests: Vec<String> = of_checkpoints.map(|(target, _)| target).filter(is_manifest).cloned().collect();
    let mut is_any = false;
    for target in manifests {
        let path = root.join(&target);
        let text = disk::read(&path).map_err(StoreError::io(&path))?;
        // A damaged manifest is copied as it is. Readers ignore it.
        let parts = checkpoint::parts_of_manifest(&target, &text).unwrap_or_default();
        if parts.iter().any(|part| !ledger.0.contains_key(part)) {
            disk::remove_file(&path).map_err(StoreError::io(&path))?;
            ledger.0.remove(&target);
            is_any = true;
        }
    }
    Ok(is_any)
}

/// Removes the rest of versions of which a file was removed meanwhile.
///
/// # Errors
/// Returns `Io`.
pub(super) fn remove_incomplete_versions(
    root: &Path,
    gone: &[String],
    ledger: &mut ContentLedger,
) -> Result<(), StoreError> {
    for target in gone.iter().filter(|target| target.starts_with("datasets/") || target.starts_with("models/")) {
        let Some((version, _)) = target.rsplit_once('/') else { continue };
        let directory = root.join(version);
        if directory.is_dir() && !version.ends_with(".projects") {
            disk::remove_tree(&directory).map_err(StoreError::io(&directory))?;
        }
        let prefix = format!("{version}/");
        ledger.0.retain(|name, _| !name.starts_with(&prefix) || version.ends_with(".projects"));
    }
    Ok(())
}
