//! Versions that were registered and are to become visible.

use bytes::Bytes;

use super::{ObjectVersions, VersionIndex, VersionNumbers, parts_folder};
use crate::error::StoreError;
use crate::objects::PutOutcome;
use crate::versions::publication_fence::PendingPublication;

/// The name of the index of a version among its parts, from before its registration on.
pub(crate) const PENDING_INDEX_NAME: &str = "index.json";

/// Changes the number of a publication's version. Returns `false` if somebody else has changed it.
pub(crate) type RenumberPublication<'a> = &'a dyn Fn(&PendingPublication, u64) -> Result<bool, StoreError>;

impl ObjectVersions {
    /// Stores the index of a version beside its parts, so that others can make the version visible.
    pub(super) fn store_pending_index(&self, index: &VersionIndex) -> Result<(), StoreError> {
        let (name, text) = (format!("{}/{PENDING_INDEX_NAME}", index.parts), Bytes::from(index.encode()));
        self.objects.wait(|objects| async move { objects.create_unique(&name, text).await })?;
        Ok(())
    }

    /// Makes a version visible whose files were sent and whose publication was registered, unless it is visible. Returns its
    /// number, or `None` if it was removed, or somebody else makes it visible.
    pub(crate) fn complete_publication(
        &self,
        publication: &PendingPublication,
        renumber: RenumberPublication<'_>,
    ) -> Result<Option<u64>, StoreError> {
        let PendingPublication { id, model, .. } = publication;
        let pending = format!("{}/{PENDING_INDEX_NAME}", parts_folder(&self.folder, model, id));
        let Some(text) = self.objects.wait(|objects| async move { objects.find(&pending).await })? else {
            return Ok(None);
        };
        let mut publication = publication.clone();
        loop {
            let VersionNumbers { existing, removed } = self.numbers(Some(model))?;
            let last = existing.keys().chain(removed.keys()).map(|key| key.1).max().unwrap_or(0);
            if let Some(version) = self.find_parts(model, existing.keys().map(|key| key.1), id)? {
                return Ok(Some(version));
            }
            let version = publication.version;
            if !removed.contains_key(&(model.clone(), version)) {
                let (object, text) = (self.index_name(model, version), text.clone());
                let put = self.objects.wait(|objects| async move { objects.create_unique(&object, text).await })?;
                if put == PutOutcome::Created {
                    return Ok(Some(version));
                }
            }
            let next = last.max(version).saturating_add(1);
            if !renumber(&publication, next)? {
                return Ok(None);
            }
            publication.version = next;
        }
    }

    /// Returns the version among these that has the parts of this name.
    fn find_parts(
        &self,
        model: &str,
        versions: impl Iterator<Item = u64>,
        id: &str,
    ) -> Result<Option<u64>, StoreError> {
        for version in versions {
            if self.index(model, version)?.is_some_and(|index| index.id() == id) {
                return Ok(Some(version));
            }
        }
        Ok(None)
    }
}
