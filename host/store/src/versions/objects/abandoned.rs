//! Parts of versions that never became visible, because the process that published them ended.

use std::collections::{BTreeMap, BTreeSet};

use saggar_clock::UnixMillis;

use super::{ObjectVersions, parts_folder};
use crate::error::StoreError;

/// The identifiers of versions, and when the newest part of each was written.
type PartTimes = BTreeMap<String, UnixMillis>;

impl ObjectVersions {
    /// Removes parts that belong to no version and of which the newest was written before a time, except those of the
    /// publications with these identifiers. Returns the number of removed folders. An index is read only of names that have more
    /// folders of parts than versions.
    pub(crate) fn remove_abandoned_parts(
        &self,
        before_ms: UnixMillis,
        registered: &BTreeSet<String>,
    ) -> Result<usize, StoreError> {
        let parts = self.list_parts()?;
        // Listed afterwards, so that a version that became visible meanwhile is among them.
        let mut versions: BTreeMap<String, usize> = BTreeMap::new();
        for (name, _) in self.numbers(None)?.existing.into_keys() {
            *versions.entry(name).or_default() += 1;
        }
        let mut removed = 0;
        for (name, mut ids) in parts {
            if ids.len() <= versions.get(&name).copied().unwrap_or(0) {
                continue;
            }
            // An index that cannot be read could name any parts.
            let indexes = self.listing(Some(&name))?.existing.into_values().collect::<Result<Vec<_>, _>>()?;
            let used: BTreeSet<&str> = indexes.iter().map(|index| index.id()).collect();
            ids.retain(|id, written| *written < before_ms && !registered.contains(id) && !used.contains(id.as_str()));
            for id in ids.keys() {
                let folder = parts_folder(&self.folder, &name, id);
                self.objects.wait(|objects| async move { objects.delete_folder(&folder).await })?;
            }
            removed += ids.len();
        }
        Ok(removed)
    }

    /// Lists the parts of all versions, by name.
    fn list_parts(&self) -> Result<BTreeMap<String, PartTimes>, StoreError> {
        let prefix = format!("{}-parts", self.folder);
        let listed = self.objects.wait(|objects| async move { objects.list(&prefix).await })?;
        let mut parts: BTreeMap<String, PartTimes> = BTreeMap::new();
        for object in listed {
            let [_, name, id, _] = object.name.split('/').collect::<Vec<_>>()[..] else { continue };
            let written = parts.entry(name.to_owned()).or_default().entry(id.to_owned()).or_default();
            *written = object.written_ms.max(*written);
        }
        Ok(parts)
    }
}
