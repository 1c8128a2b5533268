//! Immutable versions: groups of files with a name and a number, such as `mnist/3`. Datasets and models are versions.
//!
//! One trait, [`VersionStore`], for every place where they can be. [`directories`] is a directory that readers and
//! watchers can use as it is. [`objects`] is an object store; files that are read are first fetched into a directory of
//! this machine. A version is committed in one step, after all its files, so every version is complete.

use std::fmt::Debug;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::durable::disk;
use crate::error::StoreError;
use crate::limits::NAME_BYTES_MAX;

pub(crate) mod directories;
pub(crate) mod fetch_cache;
pub(crate) mod mirrored;
pub(crate) mod objects;
pub(crate) mod publication_fence;
mod staged_draft;
#[cfg(test)]
pub(crate) mod tests;

/// The rule that [`is_name`] checks, as text.
pub(crate) const NAME_RULE: &str = "must have 1 to 63 lower-case letters, digits, `.`, `_` or \
    `-`, beginning with a letter or digit";

/// Returns whether this is a valid name of a model, dataset or project: a directory name on every system, never a path.
pub(crate) fn is_name(name: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= NAME_BYTES_MAX
        && name.bytes().next().is_some_and(alphanumeric)
        && name.bytes().all(|byte| alphanumeric(byte) || b"._-".contains(&byte))
}

/// Returns the version that a directory's name means: a decimal number from 1, without leading zeros.
pub(crate) fn parse_version(name: &str) -> Option<u64> {
    let version = name.parse::<u64>().ok()?;
    (version > 0 && version.to_string() == name).then_some(version)
}

/// The file that describes a version, by convention of datasets and models.
const MANIFEST_FILE: &str = "manifest.json";

/// Where a version's `manifest.json` is.
#[derive(Clone, Debug)]
pub(crate) enum ManifestSource {
    /// In this directory, which does not exist if the version does not.
    Directory(PathBuf),
    /// Here. The path is for messages.
    Text { path: PathBuf, text: String },
}

/// A version of a listing.
#[derive(Debug)]
pub(crate) struct ListedVersion {
    pub(crate) name: String,
    pub(crate) version: u64,
    /// Its manifest, or the reason why it cannot be read.
    pub(crate) manifest: Result<ManifestSource, StoreError>,
}

/// A place for named, numbered versions. Shared by threads and processes. Every method can block on a disk or a network,
/// so call it from a thread that can block.
pub(crate) trait VersionStore: Debug + Send + Sync {
    /// Returns every name that has versions, sorted. Can include names whose versions were all removed.
    fn names(&self) -> Result<Vec<String>, StoreError>;

    /// Returns the versions of a name in ascending order; empty if the name does not exist.
    fn versions(&self, name: &str) -> Result<Vec<u64>, StoreError>;

    /// Returns a directory of this machine with the files of a version, which can be mapped and do not change. The directory
    /// does not exist if the version does not.
    fn local_directory(&self, name: &str, version: u64) -> Result<PathBuf, StoreError>;

    /// Returns where the manifest of a version is. No other file is fetched.
    fn manifest(&self, name: &str, version: u64) -> Result<ManifestSource, StoreError> {
        Ok(ManifestSource::Directory(self.local_directory(name, version)?))
    }

    /// Returns the versions of a name, or of all names, with their manifests, sorted by name and number.
    fn list(&self, name: Option<&str>) -> Result<Vec<ListedVersion>, StoreError> {
        let names = name.map_or_else(|| self.names(), |name| Ok(vec![name.to_owned()]))?;
        let mut listed = Vec::new();
        for name in names {
            for version in self.versions(&name)? {
                let manifest = self.manifest(&name, version);
                listed.push(ListedVersion { name: name.clone(), version, manifest });
            }
        }
        Ok(listed)
    }

    /// Keeps a directory that [`local_directory`](Self::local_directory) returned until the result is dropped, if the store
    /// could remove it. Its files can be read in any case once they are open.
    fn pin(&self, directory: &Path) -> Option<File> {
        let _ = directory;
        None
    }

    /// Removes a directory that [`local_directory`](Self::local_directory) returned and whose files are damaged, if it is
    /// only a copy. Returns whether it was.
    fn discard_copy(&self, directory: &Path) -> bool {
        let _ = directory;
        false
    }

    /// Makes the existing versions of a name durable, because their creator may have died before syncing them.
    fn sync_versions(&self, name: &str) -> Result<(), StoreError>;

    /// Begins to create the next version of a name.
    fn begin(&self, name: &str) -> Result<Box<dyn VersionDraft + '_>, StoreError>;

    /// Creates a local directory in which the next version of a name is prepared, for as long as that takes. Dropping
    /// the returned value removes it, unless it became a version.
    fn stage(&self, name: &str) -> Result<StagedVersion, StoreError>;

    /// Begins to create the next version of a name from a staged directory.
    fn begin_staged<'a>(
        &'a self,
        name: &str,
        staged: &'a StagedVersion,
    ) -> Result<Box<dyn VersionDraft + 'a>, StoreError>;

    /// Removes a version; returns `false` if it does not exist. Its number is not reused, and processes that have its
    /// files open can still read them.
    fn remove(&self, name: &str, version: u64) -> Result<bool, StoreError>;

    /// Removes what is left of a name that has no versions. Does nothing if it has versions.
    fn remove_rest(&self, name: &str) -> Result<(), StoreError>;
}

/// A version that is being created. Dropping it creates nothing and leaves nothing behind. The methods are called in
/// the order in which they are listed.
pub(crate) trait VersionDraft {
    /// Returns the existing versions, in ascending order.
    fn versions(&self) -> &[u64];

    /// Returns the local directory for the version's files, which the caller writes and syncs. Called at most once.
    fn directory(&mut self) -> Result<PathBuf, StoreError>;

    /// Makes the directory the next version, durably, and returns its number. Numbers are never reused.
    fn commit(self: Box<Self>) -> Result<u64, StoreError>;
}

/// A version that [`publish`] created or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedVersion {
    pub(crate) version: u64,
    /// Whether it was created by this call.
    pub(crate) is_new: bool,
}

/// Creates the next version of `name` from a draft, unless `find` finds it among the existing versions.
///
/// `fill` writes and syncs files into the draft's directory. If it fails, nothing is left behind.
pub(crate) fn publish<E: From<StoreError>>(
    store: &dyn VersionStore,
    name: &str,
    mut draft: Box<dyn VersionDraft + '_>,
    find: impl FnOnce(&[u64]) -> Result<Option<u64>, E>,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<PlacedVersion, E> {
    if let Some(version) = find(draft.versions())? {
        store.sync_versions(name)?;
        return Ok(PlacedVersion { version, is_new: false });
    }
    let directory = draft.directory()?;
    fill(&directory)?;
    Ok(PlacedVersion { version: draft.commit()?, is_new: true })
}

/// A local directory in which a version is prepared.
#[derive(Debug)]
pub(crate) struct StagedVersion {
    path: PathBuf,
    /// The parent directory, which has the version's name.
    directory: PathBuf,
    /// The lock that marks the directory as in use.
    lock: Option<File>,
}

impl StagedVersion {
    /// Returns the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StagedVersion {
    fn drop(&mut self) {
        if self.path.is_dir() {
            let _ = disk::remove_tree(&self.path);
            // Also removes the name's directory if this would have been its first version.
            let _ = disk::remove_directory(&self.directory);
        }
    }
}
