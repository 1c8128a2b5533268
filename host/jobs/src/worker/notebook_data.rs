//! The data of a notebook as files: a dataset is exported into a folder of the job once, and the output of another job is
//! used where it is.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use saggar_notebook::sandbox::SandboxMount;
use saggar_store::{DatasetStore, StateDir};

use super::{AttemptFailure, WorkerAttempt};
use crate::spec::DataSource;
use crate::storage_guard::StorageGuard;

/// The reason code of data that cannot be mounted.
const BAD_DATASET: &str = "BAD_DATASET";

impl WorkerAttempt<'_> {
    /// Returns the mounts of the notebook's data. Datasets are below `folder`, each in the folder of its number.
    pub(super) fn notebook_mounts(&self, home: &StateDir, folder: &Path) -> Result<Vec<SandboxMount>, AttemptFailure> {
        let mut mounts = Vec::new();
        for (number, mount) in self.start.spec.data.iter().enumerate() {
            let source = match &mount.source {
                DataSource::Dataset { name, version } => {
                    let version = version.unwrap_or(0);
                    self.log_notebook("info", format!("{name}/{version} is at {}", mount.mount));
                    self.export_dataset(home, name, version, &folder.join(number.to_string()))?
                }
                DataSource::Output { job, path } => {
                    let id = self.start.jobs.get(job).map_or(job.as_str(), String::as_str);
                    let outputs = home.job_files().output_directory(id).map_err(|error| bad_data(job, &error))?;
                    path.as_ref().map_or(outputs.clone(), |path| outputs.join(path))
                }
            };
            if !source.exists() {
                return Err(bad_data(&mount.source.to_string(), &"there are no such files"));
            }
            mounts.push(SandboxMount { source, target: mount.mount.clone() });
        }
        Ok(mounts)
    }

    /// Exports a dataset into a folder, unless an earlier attempt did.
    fn export_dataset(
        &self,
        home: &StateDir,
        name: &str,
        version: u64,
        folder: &Path,
    ) -> Result<PathBuf, AttemptFailure> {
        if folder.is_dir() {
            return Ok(folder.to_owned());
        }
        let export = DatasetStore::of_home(home).export(name, version).map_err(|error| bad_data(name, &error))?;
        let mut room = StorageGuard::new(self.locations.storage_quota, home.clone(), self.locations.models.clone());
        let bytes = export.files().iter().map(|file| file.bytes).sum();
        room.reserve(bytes).map_err(|error| bad_data(name, &error))?;
        let draft = folder.with_extension("part");
        let write = || -> io::Result<()> {
            if draft.exists() {
                fs::remove_dir_all(&draft)?;
            }
            fs::create_dir_all(&draft)?;
            for file in export.files() {
                let mut out = BufWriter::new(File::create_new(draft.join(&file.name))?);
                export.write(file, &mut out)?;
                out.flush()?;
            }
            fs::rename(&draft, folder)
        };
        write().map_err(|error| bad_data(name, &format!("{}: {error}", folder.display())))?;
        Ok(folder.to_owned())
    }
}

fn bad_data(name: &str, error: &dyn std::fmt::Display) -> AttemptFailure {
    AttemptFailure::permanent(BAD_DATASET, format!("{name}: {error}"))
}
