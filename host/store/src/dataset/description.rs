//! `dataset.json`: the user's description of a folder's files.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::manifest::{SplitRange, file_name};
use crate::error::{DatasetError, StoreError};
use crate::limits::{DESCRIPTION_BYTES_MAX, IMAGE_BYTES_MAX, IMAGE_SIDE_MAX, SHARES_MAX};
use crate::regular_file;

pub(super) mod schema;
mod table;

pub(super) use table::{ColumnSelection, CsvDescription, CsvFieldDescription, MissingPolicy};

/// The split of items that neither a description nor a name assigns to a split.
pub(super) const DEFAULT_SPLIT: &str = "train";

/// `dataset.json`, tagged by its `format`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "format", rename_all = "lowercase")]
pub(super) enum DatasetDescription {
    Csv(CsvDescription),
    Idx(NamedFilesDescription),
    Cifar10(NamedFilesDescription),
    Text(TextFilesDescription),
    Npy(ArrayFilesDescription),
    Npz(NamedFilesDescription),
    Safetensors(NamedFilesDescription),
    Images(ImageFoldersDescription),
    Parquet(ColumnFilesDescription),
    Arrow(ColumnFilesDescription),
    JsonLines(JsonLinesDescription),
    WebDataset(WebDatasetDescription),
}

/// A folder whose file names determine the content.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedFilesDescription {
    #[serde(default)]
    pub(super) description: String,
}

/// A folder of images for each class.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ImageFoldersDescription {
    /// The size that all images are converted to. Without it, all must have the same size.
    #[serde(default)]
    pub(super) resize: Option<ImageSize>,
    #[serde(default)]
    pub(super) description: String,
}

/// A size in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ImageSize {
    pub(super) width: usize,
    pub(super) height: usize,
}

impl ImageSize {
    /// Refuses a size that an image cannot have.
    pub(super) fn checked(self) -> Result<ImageSize, DatasetError> {
        let ImageSize { width, height } = self;
        let is_side = |side: usize| (1..=IMAGE_SIDE_MAX).contains(&side);
        if is_side(width) && is_side(height) && 3 * width * height <= IMAGE_BYTES_MAX {
            return Ok(self);
        }
        let most = format!("1 to {IMAGE_SIDE_MAX} a side and {IMAGE_BYTES_MAX} bytes in all are stored");
        Err(description_error(format!("resize: {width} x {height} pixels; {most}")))
    }
}

/// Text files: one line per item.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TextFilesDescription {
    /// For each split, the file of each field.
    pub(super) parts: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) description: String,
}

/// `.npy` files, one per field. An exported dataset has this description.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ArrayFilesDescription {
    pub(super) fields: Vec<ArrayField>,
    /// For each split, its first item and the one after its last. If empty, all items are the split `train`.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, (u64, u64)>")]
    pub(super) splits: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub(super) description: String,
}

/// A field and its file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ArrayField {
    pub(super) name: String,
    pub(super) file: String,
    #[serde(default)]
    pub(super) classes: Vec<String>,
}

/// Files of typed columns: one field per listed column, or per column if none are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ColumnFilesDescription {
    #[serde(default)]
    pub(super) fields: Vec<ColumnField>,
    /// What happens to rows with nulls.
    #[serde(default)]
    pub(super) missing: MissingPolicy,
    /// The size that images are converted to, in RGB. Without it, all must have the same size.
    #[serde(default)]
    pub(super) resize: Option<ImageSize>,
    /// Shares of items, as of a CSV file. If empty, file names determine the splits.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, f64>")]
    pub(super) splits: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub(super) description: String,
}

/// JSON lines: one field per listed member, or per member of the first object if none are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonLinesDescription {
    #[serde(default)]
    pub(super) fields: Vec<ColumnField>,
    /// What happens to objects without a value of a member.
    #[serde(default)]
    pub(super) missing: MissingPolicy,
    /// Shares of items, as of a CSV file. If empty, file names determine the splits.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, f64>")]
    pub(super) splits: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub(super) description: String,
}

/// WebDataset archives: consecutive entries with one name are an item.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WebDatasetDescription {
    /// The names of the classes of the field `label`.
    #[serde(default)]
    pub(super) classes: Vec<String>,
    /// The size that images are converted to, in RGB. Without it, all must have the same size.
    #[serde(default)]
    pub(super) resize: Option<ImageSize>,
    /// Shares of items, as of a CSV file. If empty, names of archives determine the splits.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, f64>")]
    pub(super) splits: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub(super) description: String,
}

/// A field and its column of a table.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
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
