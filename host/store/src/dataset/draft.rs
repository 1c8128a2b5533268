//! An imported dataset before it becomes a version: staged columns and splits. Every format produces one.

use saggar_clock::UnixMillis;
use saggar_tensor::Descriptor;

use super::manifest::{DatasetManifest, FORMAT, ManifestColumn, SplitRange, file_name};
use super::staging::StagedColumn;
use crate::digest::Digest;
use crate::error::DatasetError;
use crate::limits::DATASET_NOTES_MAX;

/// An imported column.
pub(super) struct DraftColumn {
    pub(super) name: String,
    pub(super) item: Descriptor,
    pub(super) classes: Vec<String>,
    pub(super) data: StagedColumn,
}

/// An imported dataset: columns with the same number of items, and splits that cover them in order.
pub(super) struct DatasetDraft {
    pub(super) columns: Vec<DraftColumn>,
    pub(super) splits: Vec<SplitRange>,
    pub(super) items: u64,
    pub(super) description: String,
    /// Messages for the user about what was inferred, left out or replaced.
    pub(super) notes: Vec<String>,
}

impl DatasetDraft {
    /// Returns the version's manifest. Reads every column to compute its digest.
    pub(super) fn manifest(
        &self,
        source: Option<Digest>,
        created_ms: UnixMillis,
    ) -> Result<DatasetManifest, DatasetError> {
        let mut columns = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let (sha256, bytes) = Digest::of_reader(&column.data.open()?).map_err(column.data.read_error())?;
            columns.push(ManifestColumn {
                name: column.name.clone(),
                item: column.item.clone(),
                classes: column.classes.clone(),
                file: file_name(&column.name),
                bytes,
                sha256,
            });
        }
        let (splits, description) = (self.splits.clone(), self.description.clone());
        let mut notes = self.notes.clone();
        if notes.len() > DATASET_NOTES_MAX {
            let more = notes.len() - (DATASET_NOTES_MAX - 1);
            notes.truncate(DATASET_NOTES_MAX - 1);
            notes.push(format!("{more} more notes are omitted"));
        }
        Ok(DatasetManifest {
            format: FORMAT,
            items: self.items,
            columns,
            splits,
            description,
            notes,
            created_ms,
            source,
        })
    }
}
