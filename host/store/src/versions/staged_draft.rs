//! The draft of a version that is prepared in a local directory and sent to a store as a whole.

use std::path::PathBuf;

use super::{StagedVersion, VersionDraft, VersionStore};
use crate::error::StoreError;

/// A store that commits directories.
pub(super) trait DirectoryCommit: VersionStore {
    /// Makes a staged directory the next version of a name, and returns its number.
    fn commit_staged(&self, name: &str, staged: &StagedVersion) -> Result<u64, StoreError>;
}

/// A version that is being created.
#[derive(Debug)]
pub(super) struct StagedDraft<'a> {
    store: &'a dyn DirectoryCommit,
    name: String,
    versions: Vec<u64>,
    staging: DraftStaging<'a>,
}

/// Where a draft's files are.
#[derive(Debug)]
enum DraftStaging<'a> {
    /// Nowhere yet.
    None,
    /// In a directory of the draft.
    Own(StagedVersion),
    /// In a directory of the caller.
    Caller(&'a StagedVersion),
}

impl<'a> StagedDraft<'a> {
    /// Begins to create the next version of a name, from a staged directory if there is one.
    pub(super) fn begin(
        store: &'a dyn DirectoryCommit,
        name: &str,
        staged: Option<&'a StagedVersion>,
    ) -> Result<Box<dyn VersionDraft + 'a>, StoreError> {
        let versions = store.versions(name)?;
        let staging = staged.map_or(DraftStaging::None, DraftStaging::Caller);
        Ok(Box::new(StagedDraft { store, name: name.to_owned(), versions, staging }))
    }
}

impl VersionDraft for StagedDraft<'_> {
    fn versions(&self) -> &[u64] {
        &self.versions
    }

    fn directory(&mut self) -> Result<PathBuf, StoreError> {
        if let DraftStaging::Caller(staged) = &self.staging {
            return Ok(staged.path().to_owned());
        }
        let staged = self.store.stage(&self.name)?;
        let path = staged.path().to_owned();
        self.staging = DraftStaging::Own(staged);
        Ok(path)
    }

    fn commit(self: Box<Self>) -> Result<u64, StoreError> {
        let staged = match &self.staging {
            DraftStaging::Own(staged) => staged,
            DraftStaging::Caller(staged) => staged,
            DraftStaging::None => unreachable!("`directory` is called before `commit`"),
        };
        self.store.commit_staged(&self.name, staged)
    }
}
