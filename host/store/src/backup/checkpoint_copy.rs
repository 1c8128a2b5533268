//! Copies the checkpoints of jobs while workers save and prune them.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::BackupError;
use super::archive_writer::{ArchiveWriter, list, open_optional};
use crate::error::StoreError;
use crate::state_dir::StateDir;

/// Adds the checkpoints of every job.
pub(super) fn copy_checkpoints(home: &StateDir, archive: &mut ArchiveWriter) -> Result<(), BackupError> {
    let jobs = list(&home.objects().join("checkpoints"))?;
    jobs.iter().filter(|job| job.is_dir()).try_for_each(|job| copy_job(job, archive))
}

/// Adds the checkpoints that one job has now. Manifests stay locked until their parts are copied, as those of a reader
/// do, so that they are not pruned. Parts without a manifest belong to a checkpoint that is being saved.
fn copy_job(job: &Path, archive: &mut ArchiveWriter) -> Result<(), BackupError> {
    let mut manifests: Vec<(PathBuf, File)> = Vec::new();
    for path in list(job)?.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "json")) {
        let Some(file) = open_optional(&path)? else { continue };
        match file.try_lock_shared() {
            // It is being pruned.
            Err(TryLockError::WouldBlock) => continue,
            // On a file system without locks, a part that is pruned meanwhile is left out.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        if file.metadata().map_err(StoreError::io(&path))?.nlink() > 0 {
            manifests.push((path, file));
        }
    }
    archive.add_directory(&job.join("parts"))?;
    // The epochs after the parts: an epoch that is claimed meanwhile is in the database, which is copied later.
    archive.add_directory(&job.join("epochs"))?;
    for (path, file) in &manifests {
        let copy = file.try_clone().map_err(StoreError::io(path))?;
        archive.add_open_file(path, copy)?;
    }
    Ok(())
}
