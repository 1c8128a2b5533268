//! Job outputs as datasets: imported as a version, or cached by content for jobs that mount the output directly.
//!
//! Every access sweeps the cache: it keeps a limited number of datasets and removes old unfinished ones.

use std::fs::{self, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use saggar_clock::UnixMillis;

use super::manifest::DatasetManifest;
use super::staging::StagingArea;
use super::{ColumnarDataset, DatasetInfo, DatasetStore, ingest};
use crate::durable::{self, disk};
use crate::error::{DatasetError, StoreError};
use crate::limits::{OUTPUT_CACHE_DATASETS_MAX, OUTPUT_STAGING_SECONDS_MAX};
use crate::outputs;
use crate::state_dir::StateDir;

/// Prefix of the names of directories that are being written or removed.
const STAGING_PREFIX: &str = ".tmp-";

impl DatasetStore {
    /// Imports a folder or a file that a job wrote, or all its outputs, as the next version of `name`. `job` is the
    /// job's identifier. `room` checks the quota for a number of bytes before they are written.
    ///
    /// # Errors
    /// Returns `NotFound` if the job did not write this output; `BadPath`; all errors of [`DatasetStore::ingest`].
    pub fn ingest_output(
        &self,
        name: &str,
        home: &StateDir,
        job: &str,
        path: Option<&str>,
        now_ms: UnixMillis,
        room: impl Fn(u64) -> Result<(), StoreError>,
    ) -> Result<DatasetInfo, DatasetError> {
        super::check_name(name)?;
        let folder = OutputFolder::find(home, job, path)?;
        self.ingest_from(name, &folder.path, None, now_ms, &room)
    }
}

impl ColumnarDataset {
    /// Returns a folder or a file that a job wrote, or all its outputs, as a dataset. It is cached under its digest, so
    /// jobs that mount the same content share one copy. `job` is the job's identifier.
    ///
    /// # Errors
    /// The same as [`DatasetStore::ingest_output`].
    pub fn from_output(home: &StateDir, job: &str, path: Option<&str>) -> Result<ColumnarDataset, DatasetError> {
        let folder = OutputFolder::find(home, job, path)?;
        let cache_dir = output_cache_dir(home);
        durable::create_directories(&cache_dir).map_err(StoreError::io(&cache_dir))?;
        let directory = TemporaryDirectory::create_locked(&cache_dir)?;
        // Cached data can be recreated at any time and does not count towards the quota.
        let staging = StagingArea::new(&directory.path, &folder.path, &|_| Ok(()))?;
        let draft = ingest::read_folder(&folder.path, &staging)?;
        let manifest = draft.manifest(None, 0)?;
        let dir = cache_dir.join(manifest.digest().hex());
        if let Ok(dataset) = ColumnarDataset::open(&dir) {
            // Record the use. If this fails, the dataset is only evicted earlier.
            let _ = fs::File::open(&dir).and_then(|dir| dir.set_modified(SystemTime::now()));
            return Ok(dataset);
        }
        staging.complete(&manifest, draft.columns.iter().map(|column| &column.data))?;
        install_dataset(&directory.path, &dir, &manifest)?;
        ColumnarDataset::open(&dir)
    }
}

/// Returns the cache directory of mounted outputs, by digest.
fn output_cache_dir(home: &StateDir) -> PathBuf {
    home.cache().join("datasets")
}

/// Renames a written dataset into place, replacing a damaged one.
fn install_dataset(staging: &Path, dir: &Path, manifest: &DatasetManifest) -> Result<(), DatasetError> {
    let is_whole = || ColumnarDataset::open(dir).is_ok_and(|dataset| dataset.digest() == manifest.digest());
    if disk::rename(staging, dir).is_ok() || is_whole() {
        return Ok(());
    }
    let damaged = TemporaryDirectory::unique_in(dir.parent().unwrap_or(dir));
    disk::rename(dir, &damaged.path).map_err(StoreError::io(dir))?;
    match disk::rename(staging, dir) {
        // Another job has installed it first.
        Err(_) if is_whole() => Ok(()),
        renamed => Ok(renamed.map_err(StoreError::io(dir))?),
    }
}

/// Removes unfinished directories of killed writers, and evicts all but the `max` most recently used datasets. Readers
/// that have one open can still read it. What cannot be removed is retried the next time.
pub(super) fn evict_outputs(cache_dir: &Path, now: SystemTime, max: usize) {
    let Ok(listed) = disk::list(cache_dir) else { return };
    let mut datasets = Vec::new();
    for (path, _) in listed {
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(STAGING_PREFIX)) {
            datasets.push((modified_time(&path), path));
        } else if is_abandoned(&path, now) {
            drop(TemporaryDirectory { path, _lock: None });
        }
    }
    datasets.sort();
    let leaving = datasets.len().saturating_sub(max);
    for (_, path) in &datasets[..leaving] {
        // Renaming it first keeps readers from opening a partly removed one.
        let removed = TemporaryDirectory::unique_in(cache_dir);
        let _ = disk::rename(path, &removed.path);
    }
}

/// Returns whether a directory has had no write for long and has no active writer. The lock is needed because every
/// time seems old after the clock was set forward. A directory's own time changes only with new files, so the files are
/// checked too.
fn is_abandoned(staging: &Path, now: SystemTime) -> bool {
    let files = disk::list(staging).unwrap_or_default();
    let newest = files.iter().map(|(path, _)| modified_time(path)).chain([modified_time(staging)]).max().flatten();
    let idle = newest.and_then(|newest| now.duration_since(newest).ok());
    idle.is_some_and(|idle| idle > Duration::from_secs(OUTPUT_STAGING_SECONDS_MAX)) && !is_locked(staging)
}

/// Returns whether a running writer has locked the directory. Returns `false` on file systems without locks.
fn is_locked(staging: &Path) -> bool {
    fs::File::open(staging).is_ok_and(|directory| matches!(directory.try_lock(), Err(TryLockError::WouldBlock)))
}

fn modified_time(path: &Path) -> Option<SystemTime> {
    fs::symlink_metadata(path).and_then(|data| data.modified()).ok()
}

/// A folder to import.
struct OutputFolder {
    path: PathBuf,
    /// For a single file, the temporary folder that contains only it.
    _alone: Option<TemporaryDirectory>,
}

impl OutputFolder {
    fn find(home: &StateDir, job: &str, path: Option<&str>) -> Result<OutputFolder, DatasetError> {
        evict_outputs(&output_cache_dir(home), SystemTime::now(), OUTPUT_CACHE_DATASETS_MAX);
        let path = path.unwrap_or_default();
        if !path.is_empty() && !outputs::is_output_path(path) {
            return Err(DatasetError::BadPath { path: path.to_owned() });
        }
        let directory = home.job_files().output_directory(job).map_err(StoreError::io(path))?;
        let place = directory.join(path);
        match fs::symlink_metadata(&place) {
            Ok(data) if data.is_dir() => Ok(OutputFolder { path: place, _alone: None }),
            Ok(data) if data.is_file() => with_single_file(home, &place),
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(StoreError::io(&place)(error).into())
            }
            Ok(_) | Err(_) if path.is_empty() => {
                Err(DatasetError::NotFound { kind: "output", name: "of the job: it wrote nothing".to_owned() })
            }
            Ok(_) | Err(_) => Err(DatasetError::NotFound { kind: "output", name: path.to_owned() }),
        }
    }
}

/// Returns a folder that contains only this file. Outputs are replaced and never changed, so a hard link is as good as
/// a copy.
fn with_single_file(home: &StateDir, file: &Path) -> Result<OutputFolder, DatasetError> {
    let cache_dir = output_cache_dir(home);
    durable::create_directories(&cache_dir).map_err(StoreError::io(&cache_dir))?;
    let staging = TemporaryDirectory::create_locked(&cache_dir)?;
    let target = staging.path.join(file.file_name().unwrap_or_default());
    let linked = fs::hard_link(file, &target).or_else(|_| fs::copy(file, &target).map(drop));
    linked.map_err(StoreError::io(file))?;
    Ok(OutputFolder { path: staging.path.clone(), _alone: Some(staging) })
}

/// A directory that is removed when this is dropped.
struct TemporaryDirectory {
    path: PathBuf,
    /// The directory itself, locked while this process writes to it.
    _lock: Option<fs::File>,
}

impl TemporaryDirectory {
    /// Returns an unused name.
    fn unique_in(cache_dir: &Path) -> TemporaryDirectory {
        TemporaryDirectory {
            path: cache_dir.join(format!("{STAGING_PREFIX}{}", durable::unique_suffix())),
            _lock: None,
        }
    }

    /// Creates a directory for writing, which no other process sweeps meanwhile.
    fn create_locked(cache_dir: &Path) -> Result<TemporaryDirectory, StoreError> {
        let mut made = TemporaryDirectory::unique_in(cache_dir);
        disk::make_directory(&made.path).map_err(StoreError::io(&made.path))?;
        let locked = fs::File::open(&made.path).and_then(|directory| directory.lock().map(|()| directory));
        made._lock = locked.ok();
        Ok(made)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = disk::remove_tree(&self.path);
    }
}
