//! What a measured training mounts: versions of datasets of the state directory, or folders, which are taken in for as long
//! as the command runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saggar_jobs::{Mount, Source};
use saggar_store::{Clock, Dataset, Datasets, Home, SystemClock};

use crate::exit::{self, Failure};

/// A folder, and where the plugin finds what is in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Folder {
    path: PathBuf,
    mount: String,
}

/// Tells folders from datasets: a name that the state directory has is a dataset, and any other path of a folder a folder.
/// What is neither stays a dataset, whose absence is told later.
pub(super) fn folders(data: &[String], home: Option<&Home>) -> (Vec<Folder>, Vec<String>) {
    let (mut folders, mut datasets) = (Vec::new(), Vec::new());
    for text in data {
        let (from, mount) = match text.rsplit_once(":/") {
            Some((from, to)) => (from, format!("/{to}")),
            None => (text.as_str(), "/data".to_owned()),
        };
        let is_dataset = || home.is_some_and(|home| Datasets::new(home.datasets()).resolve(from).is_ok());
        if Path::new(from).is_dir() && !is_dataset() {
            folders.push(Folder { path: PathBuf::from(from), mount });
        } else {
            datasets.push(text.clone());
        }
    }
    (folders, datasets)
}

/// Datasets by mount point, and the folder that some of them lie in while this lives.
#[derive(Debug, Default)]
pub(super) struct Mounted {
    pub(super) datasets: BTreeMap<String, Arc<Dataset>>,
    _taken_in: Option<Temporary>,
}

impl Mounted {
    /// Opens datasets and takes folders in. A folder has the place of a dataset that is mounted there.
    ///
    /// # Errors
    /// What is not there, or is no dataset.
    pub(super) fn open(mounts: &[Mount], folders: &[Folder], home: Option<&Home>) -> Result<Mounted, Failure> {
        let mut datasets = BTreeMap::new();
        for mount in mounts.iter().filter(|mount| folders.iter().all(|folder| folder.mount != mount.mount)) {
            datasets.insert(mount.mount.clone(), Arc::new(dataset(&mount.source, home)?));
        }
        let taken_in = if folders.is_empty() { None } else { Some(Temporary::new()?) };
        for folder in folders {
            let Some(Temporary(place)) = &taken_in else { break };
            let refuse = |error| Failure::invalid(format!("{}: {error}", folder.path.display()));
            let info = Datasets::new(place).ingest("folder", &folder.path, SystemClock.now_ms()).map_err(refuse)?;
            datasets.insert(folder.mount.clone(), Arc::new(Dataset::open(&info.dir).map_err(refuse)?));
        }
        Ok(Mounted { datasets, _taken_in: taken_in })
    }
}

fn dataset(source: &Source, home: Option<&Home>) -> Result<Dataset, Failure> {
    let Source::Dataset { .. } = source else {
        let message = format!("{source} cannot be measured with: what jobs wrote is the server's");
        return Err(Failure::invalid(message).hint("name a folder, or make a dataset of it: `saggar data add`"));
    };
    let missing = |reason: &dyn std::fmt::Display| {
        let hint = "name a folder such as examples/digits, or the state directory that has the dataset: --home DIR";
        Failure::new(exit::NOT_FOUND, "no_dataset", reason.to_string()).hint(hint)
    };
    let home = home.ok_or_else(|| missing(&format!("there is no folder {source}, and no state directory")))?;
    let info = Datasets::new(home.datasets()).resolve(&source.to_string()).map_err(|error| missing(&error))?;
    Dataset::open(&info.dir).map_err(|error| Failure::invalid(error.to_string()))
}

/// A directory of this process, removed with it.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Result<Temporary, Failure> {
        let path = std::env::temp_dir().join(format!("saggar-bench-{}", std::process::id()));
        let made = std::fs::create_dir(&path);
        made.map_err(|error| Failure::new(exit::UNEXPECTED, "write", format!("{}: {error}", path.display())))?;
        Ok(Temporary(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_a_folder_is_one_unless_a_dataset_has_its_name() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().to_str().unwrap();
        let (found, rest) = folders(&[format!("{path}:/a/b"), "mnist/1".to_owned(), path.to_owned()], None);
        let folder = |mount: &str| Folder { path: path.into(), mount: mount.to_owned() };
        assert_eq!((found, rest), (vec![folder("/a/b"), folder("/data")], vec!["mnist/1".to_owned()]));
    }

    #[test]
    fn what_is_not_there_is_said_with_what_helps() {
        let mount =
            Mount { source: Source::Dataset { name: "mnist".to_owned(), version: None }, mount: "/data".to_owned() };
        let failure = Mounted::open(&[mount], &[], None).unwrap_err();
        assert_eq!(failure.exit, exit::NOT_FOUND);
        assert!(failure.message.contains("mnist") && failure.hint.unwrap().contains("--home"));
    }
}
