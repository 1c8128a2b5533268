//! `dataset.json`: the user's description of a folder's files.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use saggar_tensor::{DType, Descriptor, Shape};
use serde::{Deserialize, Serialize};

use super::manifest::{SplitRange, file_name};
use crate::error::{DatasetError, StoreError};
use crate::limits::{DATASET_NAMES_MAX, DESCRIPTION_BYTES_MAX, SHARES_MAX};
use crate::regular_file;

/// The split of items that neither a description nor a name assigns to a split.
pub(super) const DEFAULT_SPLIT: &str = "train";

/// `dataset.json`, tagged by its `format`.
#[derive(Debug, Deserialize)]
#[serde(tag = "format", rename_all = "lowercase")]
pub(super) enum DatasetDescription {
    Csv(CsvDescription),
    Idx(NamedFilesDescription),
    Cifar10(NamedFilesDescription),
    Text(TextFilesDescription),
    Npy(ArrayFilesDescription),
    Npz(NamedFilesDescription),
    Safetensors(NamedFilesDescription),
    Images(NamedFilesDescription),
    Parquet(ParquetDescription),
}

/// A folder whose file names determine the content.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedFilesDescription {
    #[serde(default)]
    pub(super) description: String,
}

/// Text files: one line per item.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextFilesDescription {
    /// For each split, the file of each field.
    pub(super) parts: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) description: String,
}

/// `.npy` files, one per field. An exported dataset has this description.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArrayFilesDescription {
    pub(super) fields: Vec<ArrayField>,
    /// For each split, its first item and the one after its last. If empty, all items are the split `train`.
    #[serde(default)]
    pub(super) splits: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub(super) description: String,
}

/// A field and its file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArrayField {
    pub(super) name: String,
    pub(super) file: String,
    #[serde(default)]
    pub(super) classes: Vec<String>,
}

/// Parquet files: one field per listed column, or per column if none are listed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ParquetDescription {
    #[serde(default)]
    pub(super) fields: Vec<ColumnField>,
    /// Shares of items, as of a CSV file. If empty, file names determine the splits.
    #[serde(default)]
    pub(super) splits: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub(super) description: String,
}

/// A field and its column of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ColumnField {
    pub(super) name: String,
    /// The name of the column, if it differs from the field's.
    #[serde(default)]
    column: Option<String>,
    /// The shape in which the numbers of a list are arranged.
    #[serde(default)]
    pub(super) shape: Option<Vec<usize>>,
    #[serde(default)]
    pub(super) classes: Vec<String>,
}

impl ColumnField {
    /// Returns the default field of a column.
    pub(super) fn from_column_name(name: String) -> ColumnField {
        ColumnField { name, column: None, shape: None, classes: Vec::new() }
    }

    /// Returns the column's name.
    pub(super) fn column(&self) -> &str {
        self.column.as_deref().unwrap_or(&self.name)
    }
}

/// A CSV file: one line per item, numbers and class names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CsvDescription {
    pub(super) file: String,
    /// Whether the first line is a header; detected if `None`.
    #[serde(default)]
    pub(super) header: Option<bool>,
    pub(super) fields: Vec<CsvFieldDescription>,
    #[serde(default)]
    pub(super) splits: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub(super) description: String,
}

/// A field and its range of columns.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CsvFieldDescription {
    pub(super) name: String,
    /// The first column, from 0, and the one after the last.
    pub(super) columns: (usize, usize),
    /// The shape. If `None`, one dimension, or a scalar for a single column.
    pub(super) shape: Option<Vec<usize>>,
    pub(super) dtype: String,
    /// Values are scaled from 0 to this maximum to 0 to 255.
    pub(super) maximum: Option<u32>,
    #[serde(default)]
    pub(super) classes: Vec<String>,
}

/// The unit of shares: one ten-thousandth.
const SHARES: u64 = 10_000;

fn description_error(reason: impl Into<String>) -> DatasetError {
    DatasetError::Description { reason: reason.into() }
}

/// Returns the folder's description, or `None` if it has no `dataset.json`.
pub(super) fn read(folder: &Path) -> Result<Option<DatasetDescription>, DatasetError> {
    let path = folder.join("dataset.json");
    let text = match regular_file::read(&path, DESCRIPTION_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            let what = "dataset.json".to_owned();
            return Err(DatasetError::TooLarge { what, max: DESCRIPTION_BYTES_MAX, unit: "bytes" });
        }
        Err(error) => return Err(StoreError::io(&path)(error).into()),
    };
    let parsed = serde_json::from_slice(&text).map_err(|error| description_error(error.to_string()));
    parsed.map(Some)
}

impl CsvFieldDescription {
    /// Returns the descriptor of an item if the field's properties are consistent.
    pub(super) fn item_descriptor(&self) -> Result<Descriptor, DatasetError> {
        let name = &self.name;
        let (start, end) = self.columns;
        let width = end.checked_sub(start).filter(|width| *width > 0);
        let width = width.ok_or_else(|| {
            description_error(format!(
                "field {name}: columns [{start}, {end}] are empty or reversed; expected [first, last + 1]"
            ))
        })?;
        let dims = match &self.shape {
            Some(dims) => dims.clone(),
            None if width == 1 => Vec::new(),
            None => vec![width],
        };
        let dtype = DType::from_name(&self.dtype).ok_or_else(|| {
            let known = DType::ALL.map(DType::name).join(", ");
            description_error(format!("field {name}: no dtype is called `{}`; there are {known}", self.dtype))
        })?;
        let shape = Shape::new(dims).map_err(|error| description_error(format!("field {name}: {error}")))?;
        if shape.elements() != width {
            return Err(description_error(format!(
                "field {name}: shape {shape} has {} elements, and columns [{start}, {end}] are \
                 {width}",
                shape.elements()
            )));
        }
        let is_byte = dtype == DType::U8;
        let bad = |what| DatasetError::BadType { field: name.clone(), dtype, what };
        if dtype == DType::F16 {
            return Err(bad("read from text; say float32"));
        }
        match self.maximum {
            Some(_) if !is_byte => return Err(bad("stretched to 0..255; `maximum` needs uint8")),
            Some(0) => return Err(description_error(format!("field {name}: maximum must be at least 1"))),
            Some(_) | None => {}
        }
        if !self.classes.is_empty() && dtype.is_float() {
            return Err(bad("a class number; `classes` needs an integer type"));
        }
        if self.classes.len() > DATASET_NAMES_MAX {
            return Err(description_error(format!("field {name}: more than {DATASET_NAMES_MAX} classes")));
        }
        Ok(Descriptor::new(dtype, shape))
    }
}

/// Refuses duplicate field names and names that are not valid file names.
pub(super) fn check_field_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Result<(), DatasetError> {
    let mut files: Vec<_> = names.clone().map(file_name).collect();
    if files.is_empty() {
        return Err(description_error("`fields` is empty; a dataset has at least one"));
    }
    files.sort();
    if let Some(pair) = files.windows(2).find(|pair| pair[0] == pair[1]) {
        let name = pair[0].trim_end_matches(".bin");
        return Err(description_error(format!("two fields are called `{name}`")));
    }
    let bad = |name: &&str| name.is_empty() || name.len() > 63;
    match names.clone().find(bad) {
        Some(name) => Err(description_error(format!("field name `{name}` must have 1 to 63 bytes"))),
        None => Ok(()),
    }
}

impl ArrayFilesDescription {
    /// Returns the splits as ranges of items.
    pub(super) fn split_ranges(&self, items: u64) -> Result<Vec<SplitRange>, DatasetError> {
        if self.splits.is_empty() {
            return Ok(vec![(DEFAULT_SPLIT.to_owned(), 0, items)]);
        }
        let range = |(name, value): (&String, &serde_json::Value)| {
            let parsed = <(u64, u64)>::deserialize(value).ok();
            let range = parsed.filter(|(start, end)| start <= end && *end <= items);
            let (start, end) = range.ok_or_else(|| {
                description_error(format!("split {name}: {value} must be [first item, last + 1] of {items} items"))
            })?;
            Ok((name.clone(), start, end))
        };
        self.splits.iter().map(range).collect()
    }
}

impl CsvDescription {
    /// Returns the splits and their shares. Without any, the only split is `train`.
    pub(super) fn split_shares(&self) -> Result<Vec<(String, u64)>, DatasetError> {
        if self.splits.is_empty() {
            return Ok(vec![(DEFAULT_SPLIT.to_owned(), SHARES)]);
        }
        parse_shares(&self.splits)
    }
}

/// Parses splits and their shares, which must add up to [`SHARES`].
pub(super) fn parse_shares(
    splits: &serde_json::Map<String, serde_json::Value>,
) -> Result<Vec<(String, u64)>, DatasetError> {
    if splits.len() > SHARES_MAX {
        return Err(description_error(format!("{} splits, expected at most {SHARES_MAX}", splits.len())));
    }
    let mut shares = Vec::new();
    for (name, value) in splits {
        let share = value.as_f64().filter(|share| *share > 0.0 && *share <= 1.0);
        let share = share
            .ok_or_else(|| description_error(format!("split {name}: {value} must be a number above 0, at most 1")))?;
        shares.push((name.clone(), (share * SHARES as f64).round() as u64));
    }
    let sum: u64 = shares.iter().map(|(_, share)| share).sum();
    if sum != SHARES {
        let sum = sum as f64 / SHARES as f64;
        return Err(description_error(format!("splits add up to {sum}, and should add up to 1")));
    }
    Ok(shares)
}

/// Assigns items to splits: each item goes to the split that is furthest below its share, the first one if equal. With
/// shares 0.8 and 0.2, the third of every five items goes to the second split. The assignment depends only on the order
/// of items, so the same file always gives the same splits.
pub(super) struct SplitAssigner {
    shares: Vec<u64>,
    dealt: Vec<u64>,
    items: u64,
}

impl SplitAssigner {
    pub(super) fn new(shares: impl IntoIterator<Item = u64>) -> SplitAssigner {
        let shares: Vec<_> = shares.into_iter().collect();
        let dealt = vec![0; shares.len()];
        SplitAssigner { shares, dealt, items: 0 }
    }

    /// Returns the index of the next item's split.
    pub(super) fn next_split(&mut self) -> usize {
        self.items += 1;
        let lag = |part: usize| {
            i128::from(self.shares[part]) * i128::from(self.items) - i128::from(self.dealt[part]) * i128::from(SHARES)
        };
        let mut most = 0;
        for part in 1..self.shares.len() {
            if lag(part) > lag(most) {
                most = part;
            }
        }
        self.dealt[most] += 1;
        most
    }
}
