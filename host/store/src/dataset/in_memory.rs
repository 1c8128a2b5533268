//! Datasets in memory, created by a training that preprocesses its input.

use std::sync::Arc;

use super::description::check_field_names;
use super::manifest::{DatasetManifest, FORMAT, ManifestColumn, SplitRange, file_name};
use super::map::ColumnBytes;
use super::{ColumnarDataset, DatasetField, LoadedDataset};
use crate::digest::Digest;
use crate::error::DatasetError;
use crate::limits::{DATASET_ITEMS_MAX, DATASET_NAMES_MAX};

impl ColumnarDataset {
    /// Returns a dataset of these columns. Each must have as many items as the splits in total, in the order of the
    /// splits. Nothing is stored. Equal columns and splits give equal digests.
    ///
    /// # Errors
    /// Returns `Description` for duplicate or invalid names; `ColumnSize`; `TooLarge` for too many fields or splits.
    pub fn from_columns(
        columns: Vec<(DatasetField, Vec<u8>)>,
        parts: &[(String, u64)],
    ) -> Result<ColumnarDataset, DatasetError> {
        for (count, unit) in [(columns.len(), "fields"), (parts.len(), "parts")] {
            if count > DATASET_NAMES_MAX {
                let what = "the dataset".to_owned();
                return Err(DatasetError::TooLarge { what, max: DATASET_NAMES_MAX as u64, unit });
            }
        }
        check_field_names(columns.iter().map(|(field, _)| field.name.as_str()))?;
        let mut items = 0u64;
        let mut splits: Vec<SplitRange> = Vec::with_capacity(parts.len());
        for (name, count) in parts {
            if splits.iter().any(|(other, ..)| other == name) {
                return Err(DatasetError::Description { reason: format!("two parts are called `{name}`") });
            }
            let end = items.checked_add(*count).filter(|end| *end <= DATASET_ITEMS_MAX);
            let end = end.ok_or_else(|| DatasetError::TooLarge {
                what: format!("part {name}"),
                max: DATASET_ITEMS_MAX,
                unit: "items with the parts before it",
            })?;
            splits.push((name.clone(), items, end));
            items = end;
        }
        for (field, data) in &columns {
            let expected = (field.item.bytes() as u64).saturating_mul(items);
            if data.len() as u64 != expected {
                let (field, found) = (field.name.clone(), data.len() as u64);
                return Err(DatasetError::ColumnSize { field, found, expected, items });
            }
        }
        let column = |(field, data): &(DatasetField, Vec<u8>)| ManifestColumn {
            name: field.name.clone(),
            item: field.item.clone(),
            classes: field.classes.clone(),
            file: file_name(&field.name),
            bytes: data.len() as u64,
            sha256: Digest::of(data),
        };
        let manifest = DatasetManifest {
            format: FORMAT,
            items,
            columns: columns.iter().map(column).collect(),
            splits,
            description: String::new(),
            notes: Vec::new(),
            created_ms: 0,
            source: None,
        };
        Ok(ColumnarDataset(Arc::new(LoadedDataset {
            fields: manifest.fields(),
            columns: columns.into_iter().map(|(_, data)| ColumnBytes::Owned(data)).collect(),
            splits: manifest.splits(),
            items,
            digest: manifest.digest(),
            _pin: None,
        })))
    }
}
