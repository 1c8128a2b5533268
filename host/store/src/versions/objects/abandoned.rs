//! Parts of versions that never became visible, because the process that published them ended.

use std::collections::{BTreeMap, BTreeSet};

use saggar_clock::UnixMillis;

use super::{ObjectVersions, VersionIndex};
use crate::error::StoreError;

impl ObjectVersions {
    /// Removes parts that belong to no version and of which the newest was written before a time, except those of the
    /// publications with these identifiers. Returns the number of removed folders.
    pub(crate) fn remove_abandoned_parts(
        &self,
        before_ms: UnixMillis,
        registered: &BTreeSet<String>,
    ) -> Result<usize, StoreError> {
        let prefix = format!("{}-parts", self.folder);
        let listed = self.objects.wait(|objects| async move { objects.list(&prefix).await })?;
        let mut newest: BTreeMap<&str, UnixMillis> = BTreeMap::new();
        for object in &listed {
            let Some((folder, _)) = object.name.rsplit_once('/') else { continue };
            let written = newest.entry(folder).or_default();
            *written = object.written_ms.max(*written);
        }
        newest.retain(|folder, written| {
            let id = folder.rsplit('/').next().unwrap_or(folder);
            *written < before_ms && !registered.contains(id)
        });
        if newest.is_empty() {
            return Ok(0);
        }
        // Listed afterwards, so that a version that became visible meanwhile is among them. An index that cannot be read could
        // name any parts.
        let indexes = self.listing(None)?.existing.into_values().collect::<Result<Vec<_>, _>>()?;
        let used: BTreeSet<&str> =
            indexes.iter().map(|index: &std::sync::Arc<VersionIndex>| index.parts.as_str()).collect();
        newest.retain(|folder, _| !used.contains(folder));
        for folder in newest.keys() {
            let folder = (*folder).to_owned();
            self.objects.wait(|objects| async move { objects.delete_folder(&folder).await })?;
        }
        Ok(newest.len())
    }
}
