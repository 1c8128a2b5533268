//! The mounts of a measured training: dataset versions of the state directory, or folders, which are ingested into
//! temporary files that are removed again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saggar_clock::{Clock, SystemClock};
use saggar_jobs::{DataMount, DataSource};
use saggar_store::{ColumnarDataset, DatasetStore, StateDir};

use crate::exit::{self, CliError};
use crate::temp_directory::TempDirectory;

/// A folder and its mount point.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DataFolder {
    path: PathBuf,
    mount: String,
}

/// Splits `data` into folders and datasets. A name that the state directory contains is a dataset, any other path of a
/// folder is a folder, and the rest is treated as datasets, which fail later as missing.
pub(super) fn split_folders(data: &[String], home: Option<&StateDir>) -> (Vec<DataFolder>, Vec<String>) {
    let (mut folders, mut datasets) = (Vec::new(), Vec::new());
    for text in data {
        let (from, mount) = match text.rsplit_once(":/") {
            Some((from, to)) => (from, format!("/{to}")),
            None => (text.as_str(), "/data".to_owned()),
        };
        let is_dataset = || home.is_some_and(|home| DatasetStore::new(home.datasets()).resolve(from).is_ok());
        if Path::new(from).is_dir() && !is_dataset() {
            folders.push(DataFolder { path: PathBuf::from(from), mount });
        } else {
            datasets.push(text.clone());
        }
    }
    (folders, datasets)
}

/// Opens datasets and ingests folders, and returns them by mount point. A folder replaces a dataset at the same mount
/// point.
///
/// # Errors
/// Fails if a folder or dataset is missing or invalid, or if two folders have the same mount point.
pub(super) fn open_datasets(
    mounts: &[DataMount],
    folders: &[DataFolder],
    home: Option<&StateDir>,
) -> Result<BTreeMap<String, Arc<ColumnarDataset>>, CliError> {
    let mut places: BTreeMap<&str, &Path> = BTreeMap::new();
    for DataFolder { path, mount } in folders {
        if let Some(other) = places.insert(mount, path) {
            let message = format!("{} and {} are both mounted at {mount}", other.display(), path.display());
            let hint = format!("name another place for one of them: --data {}:/other", path.display());
            return Err(CliError::new(exit::USAGE, "mounted_twice", message).with_hint(hint));
        }
    }
    let mut datasets = BTreeMap::new();
    for mount in mounts.iter().filter(|mount| !places.contains_key(mount.mount.as_str())) {
        datasets.insert(mount.mount.clone(), Arc::new(open_dataset(&mount.source, home)?));
    }
    for (mount, path) in places {
        datasets.insert(mount.to_owned(), Arc::new(ingest_folder(path)?));
    }
    Ok(datasets)
}

/// Ingests the files of a folder. The dataset's columns are mapped files, which stay readable after they are deleted,
/// so nothing remains however the command ends.
fn ingest_folder(folder: &Path) -> Result<ColumnarDataset, CliError> {
    let refuse = |error| CliError::invalid(format!("{}: {error}", folder.display()));
    let place = TempDirectory::create("bench")?;
    let datasets = DatasetStore::new(place.path());
    let info = datasets.ingest("folder", folder, SystemClock.now_ms()).map_err(refuse)?;
    datasets.open(&info).map_err(refuse)
}

fn open_dataset(source: &DataSource, home: Option<&StateDir>) -> Result<ColumnarDataset, CliError> {
    let DataSource::Dataset { .. } = source else {
        let message = format!("{source} cannot be measured with: what jobs wrote is the server's");
        return Err(CliError::invalid(message).with_hint("name a folder, or make a dataset of it: `saggar data add`"));
    };
    let missing = |reason: &dyn std::fmt::Display| {
        let hint = "name a folder such as examples/digits, or the state directory that has the dataset: --home DIR";
        CliError::new(exit::NOT_FOUND, "no_dataset", reason.to_string()).with_hint(hint)
    };
    let home = home.ok_or_else(|| missing(&format!("there is no folder {source}, and no state directory")))?;
    let datasets = DatasetStore::new(home.datasets());
    let info = datasets.resolve(&source.to_string()).map_err(|error| missing(&error))?;
    datasets.open(&info).map_err(|error| CliError::invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_path_is_used_unless_a_dataset_has_that_name() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().to_str().unwrap();
        let (found, rest) = split_folders(&[format!("{path}:/a/b"), "mnist/1".to_owned(), path.to_owned()], None);
        let folder = |mount: &str| DataFolder { path: path.into(), mount: mount.to_owned() };
        assert_eq!((found, rest), (vec![folder("/a/b"), folder("/data")], vec!["mnist/1".to_owned()]));
    }

    #[test]
    fn two_folders_with_one_mount_point_are_refused() {
        let [one, other] = ["a", "b"].map(|path| DataFolder { path: path.into(), mount: "/data".to_owned() });
        let failure = open_datasets(&[], &[one, other], None).unwrap_err();
        assert_eq!((failure.exit_code, failure.message.as_str()), (exit::USAGE, "a and b are both mounted at /data"));
        assert!(failure.hint.unwrap().contains("b:/other"));
    }

    #[test]
    fn an_ingested_folder_is_readable_after_its_copy_is_removed() {
        let place = tempfile::tempdir().unwrap();
        // A NumPy array of two numbers.
        let header = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }");
        let array = [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes(), &[0; 8]].concat();
        std::fs::write(place.path().join("x.npy"), array).unwrap();
        let folder = DataFolder { path: place.path().to_owned(), mount: "/data".to_owned() };
        let datasets = open_datasets(&[], &[folder], None).unwrap();
        assert_eq!(datasets["/data"].len(None).unwrap(), 2);
    }

    #[test]
    fn a_missing_dataset_is_reported_with_a_hint() {
        let mount = DataMount {
            source: DataSource::Dataset { name: "mnist".to_owned(), version: None },
            mount: "/data".to_owned(),
        };
        let failure = open_datasets(&[mount], &[], None).unwrap_err();
        assert_eq!(failure.exit_code, exit::NOT_FOUND);
        assert!(failure.message.contains("mnist") && failure.hint.unwrap().contains("--home"));
    }
}
