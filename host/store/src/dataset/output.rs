//! What a job wrote, as a dataset: as a version of its own, or kept by its content for jobs that mount the output itself.
//!
//! What is kept is swept whenever something is asked for: the cache holds so many datasets and nothing half-written that is
//! old.

use std::fs::{self, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::manifest::DatasetManifest;
use super::staging::StagingArea;
use super::{ColumnarDataset, DatasetInfo, DatasetStore, ingest};
use crate::clock::UnixMillis;
use crate::durable::{self, disk};
use crate::error::{DatasetError, StoreError};
use crate::limits::{OUTPUT_CACHE_DATASETS_MAX, OUTPUT_STAGING_SECONDS_MAX};
use crate::outputs;
use crate::state_dir::StateDir;

/// What the names of directories begin with that are being written, or removed.
const STAGING_PREFIX: &str = ".tmp-";

impl DatasetStore {
    /// Takes in a folder or a file that a job wrote, or all that it wrote, as the next version of `name`. `job` is the
    /// job's identifier; `room` says whether so many bytes more may be stored, before they are written.
    ///
    /// # Errors
    /// `NotFound` where the job wrote no such thing; `BadPath`; everything that [`DatasetStore::ingest`] finds.
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
    /// A folder or a file that a job wrote, or all that it wrote, as a dataset. It is kept in the cache under its digest, so
    /// any number of jobs that mount the same content share one copy. `job` is the job's identifier.
    ///
    /// # Errors
    /// As [`DatasetStore::ingest_output`].
    pub fn from_output(home: &StateDir, job: &str, path: Option<&str>) -> Result<ColumnarDataset, DatasetError> {
        let folder = OutputFolder::find(home, job, path)?;
        let kept = output_cache_dir(home);
        durable::create_directories(&kept).map_err(StoreError::io(&kept))?;
        let directory = TemporaryDirectory::create_locked(&kept)?;
        // What can be made again at any time counts towards no limit.
        let staging = StagingArea::new(&directory.path, &folder.path, &|_| Ok(()))?;
        let draft = ingest::read_folder(&folder.path, &staging)?;
        let manifest = draft.manifest(None, 0)?;
        let dir = kept.join(manifest.digest().hex());
        if let Ok(dataset) = ColumnarDataset::open(&dir) {
            // It was used just now; where this cannot be noted, it goes from the cache early.
            let _ = fs::File::open(&dir).and_then(|dir| dir.set_modified(SystemTime::now()));
            return Ok(dataset);
        }
        staging.complete(&manifest, &draft)?;
        install_dataset(&directory.path, &dir, &manifest)?;
        ColumnarDataset::open(&dir)
    }
}

/// Outputs that are mounted, by their digests.
fn output_cache_dir(home: &StateDir) -> PathBuf {
    home.cache().join("datasets")
}

/// Gives a written dataset its name, in the place of one that is damaged.
fn install_dataset(staging: &Path, dir: &Path, manifest: &DatasetManifest) -> Result<(), DatasetError> {
    let is_whole = || ColumnarDataset::open(dir).is_ok_and(|dataset| dataset.digest() == manifest.digest());
    if disk::rename(staging, dir).is_ok() || is_whole() {
        return Ok(());
    }
    let damaged = TemporaryDirectory::unique_in(dir.parent().unwrap_or(dir));
    disk::rename(dir, &damaged.path).map_err(StoreError::io(dir))?;
    match disk::rename(staging, dir) {
        // Another job was quicker.
        Err(_) if is_whole() => Ok(()),
        renamed => Ok(renamed.map_err(StoreError::io(dir))?),
    }
}

/// Removes what killed writers left half-written, and of the datasets all but the `max` that were used last. What has one
/// open goes on reading it. What cannot be removed stays until the next time.
pub(super) fn evict_outputs(kept: &Path, now: SystemTime, max: usize) {
    let Ok(listed) = disk::list(kept) else { return };
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
        // It loses its name first: nobody opens half of one.
        let removed = TemporaryDirectory::unique_in(kept);
        let _ = disk::rename(path, &removed.path);
    }
}

/// Whether nothing was written there for long, and nobody is at it: where the clock was set forward, everything is old. A
/// directory's own time tells of new files only.
fn is_abandoned(staging: &Path, now: SystemTime) -> bool {
    let files = disk::list(staging).unwrap_or_default();
    let newest = files.iter().map(|(path, _)| modified_time(path)).chain([modified_time(staging)]).max().flatten();
    let idle = newest.and_then(|newest| now.duration_since(newest).ok());
    idle.is_some_and(|idle| idle > Duration::from_secs(OUTPUT_STAGING_SECONDS_MAX)) && !is_locked(staging)
}

/// Whether a writer that lives has locked the directory. File systems without locks tell of none.
fn is_locked(staging: &Path) -> bool {
    fs::File::open(staging).is_ok_and(|directory| matches!(directory.try_lock(), Err(TryLockError::WouldBlock)))
}

fn modified_time(path: &Path) -> Option<SystemTime> {
    fs::symlink_metadata(path).and_then(|data| data.modified()).ok()
}

/// A folder to be taken in.
struct OutputFolder {
    path: PathBuf,
    /// Where it stands for a file: a folder that holds it alone.
    _alone: Option<TemporaryDirectory>,
}

impl OutputFolder {
    fn find(home: &StateDir, job: &str, path: Option<&str>) -> Result<OutputFolder, DatasetError> {
        evict_outputs(&output_cache_dir(home), SystemTime::now(), OUTPUT_CACHE_DATASETS_MAX);
        let path = path.unwrap_or_default();
        if !path.is_empty() && !outputs::is_output_path(path) {
            return Err(DatasetError::BadPath { path: path.to_owned() });
        }
        let place = outputs::output_directory(&home.job(job)).join(path);
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

/// A file in a folder of its own. Outputs are replaced and never changed, so a second name is as good as a copy.
fn with_single_file(home: &StateDir, file: &Path) -> Result<OutputFolder, DatasetError> {
    let kept = output_cache_dir(home);
    durable::create_directories(&kept).map_err(StoreError::io(&kept))?;
    let staging = TemporaryDirectory::create_locked(&kept)?;
    let target = staging.path.join(file.file_name().unwrap_or_default());
    let linked = fs::hard_link(file, &target).or_else(|_| fs::copy(file, &target).map(drop));
    linked.map_err(StoreError::io(file))?;
    Ok(OutputFolder { path: staging.path.clone(), _alone: Some(staging) })
}

/// A directory that goes when this does.
struct TemporaryDirectory {
    path: PathBuf,
    /// The directory itself, locked as long as this process writes there.
    _lock: Option<fs::File>,
}

impl TemporaryDirectory {
    /// A name for one that is not there yet.
    fn unique_in(kept: &Path) -> TemporaryDirectory {
        TemporaryDirectory { path: kept.join(format!("{STAGING_PREFIX}{}", durable::unique_suffix())), _lock: None }
    }

    /// One to write to, which no other process sweeps meanwhile.
    fn create_locked(kept: &Path) -> Result<TemporaryDirectory, StoreError> {
        let mut made = TemporaryDirectory::unique_in(kept);
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
