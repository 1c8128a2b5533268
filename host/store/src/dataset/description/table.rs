//! The description of a CSV file in `dataset.json`.

use std::collections::BTreeMap;

use saggar_tensor::{DType, Descriptor, Shape};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{DEFAULT_SPLIT, SHARES, description_error, parse_shares};
use crate::error::DatasetError;
use crate::limits::DATASET_NAMES_MAX;

/// A CSV file: one line per item, numbers and class names.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct CsvDescription {
    /// The file, relative to the folder; the folder's only CSV file if absent.
    #[serde(default)]
    pub(in super::super) file: Option<String>,
    /// Whether the first line has the names of the columns; detected if absent.
    #[serde(default)]
    pub(in super::super) header: Option<bool>,
    /// The character between two cells; detected if absent.
    #[serde(default)]
    pub(in super::super) delimiter: Option<char>,
    /// The fields. Without any, they are found from the columns.
    #[serde(default)]
    pub(in super::super) fields: Vec<CsvFieldDescription>,
    /// Without `fields`: the name of the column that is predicted.
    #[serde(default)]
    pub(in super::super) target: Option<String>,
    /// Without `fields`: the names of the columns that are left out.
    #[serde(default)]
    pub(in super::super) ignore: Vec<String>,
    /// What happens to rows with missing values.
    #[serde(default)]
    pub(in super::super) missing: MissingPolicy,
    /// The share of each split; together 1. Without any, all items are the split `train`.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, f64>")]
    pub(in super::super) splits: serde_json::Map<String, serde_json::Value>,
    /// A text for people.
    #[serde(default)]
    pub(in super::super) description: String,
}

/// What happens to rows with missing values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in super::super) enum MissingPolicy {
    /// The import fails at the first missing value.
    #[default]
    Refuse,
    /// Rows with a missing value are left out.
    Drop,
    /// A missing number becomes the mean of its column, a missing class the most frequent one. Rows without a value in
    /// the target are left out.
    Mean,
}

/// A field and its columns.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct CsvFieldDescription {
    /// The name of the field.
    pub(in super::super) name: String,
    /// The first column, from 0, and the one after the last; or the names of the columns.
    pub(in super::super) columns: ColumnSelection,
    /// The shape. If absent, one dimension, or a single number for a single column.
    pub(in super::super) shape: Option<Vec<usize>>,
    /// The data type, such as `float32`.
    pub(in super::super) dtype: String,
    /// Values are scaled from 0 to this maximum to 0 to 255.
    pub(in super::super) maximum: Option<u32>,
    /// The names of the classes.
    #[serde(default)]
    pub(in super::super) classes: Vec<String>,
}

/// Columns of a table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected `columns` as [first, last + 1] in numbers, or as a list of names")]
pub(in super::super) enum ColumnSelection {
    /// The first column, from 0, and the one after the last.
    Range(usize, usize),
    /// The names in the header.
    Names(Vec<String>),
}

impl ColumnSelection {
    /// Returns the number of columns, or `None` if a range is empty or reversed.
    fn width(&self) -> Option<usize> {
        match self {
            ColumnSelection::Range(start, end) => end.checked_sub(*start).filter(|width| *width > 0),
            ColumnSelection::Names(names) => Some(names.len()).filter(|width| *width > 0),
        }
    }
}

impl CsvFieldDescription {
    /// Returns the descriptor of an item if the field's properties are consistent.
    pub(in super::super) fn item_descriptor(&self) -> Result<Descriptor, DatasetError> {
        let name = &self.name;
        let columns = match &self.columns {
            ColumnSelection::Range(start, end) => format!("columns [{start}, {end}]"),
            ColumnSelection::Names(names) => format!("its {} columns", names.len()),
        };
        let width = self.columns.width().ok_or_else(|| {
            description_error(format!(
                "field {name}: {columns} are empty or reversed; expected [first, last + 1], or the names of columns"
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
                "field {name}: shape {shape} has {} elements, and {columns} are {width}",
                shape.elements()
            )));
        }
        self.check_type(dtype)?;
        Ok(Descriptor::new(dtype, shape))
    }

    fn check_type(&self, dtype: DType) -> Result<(), DatasetError> {
        let name = &self.name;
        let bad = |what| DatasetError::BadType { field: name.clone(), dtype, what };
        if dtype == DType::F16 {
            return Err(bad("read from text; say float32"));
        }
        match self.maximum {
            Some(_) if dtype != DType::U8 => return Err(bad("stretched to 0..255; `maximum` needs uint8")),
            Some(0) => return Err(description_error(format!("field {name}: maximum must be at least 1"))),
            Some(_) | None => {}
        }
        if !self.classes.is_empty() && dtype.is_float() {
            return Err(bad("a class number; `classes` needs an integer type"));
        }
        if self.classes.len() > DATASET_NAMES_MAX {
            return Err(description_error(format!("field {name}: more than {DATASET_NAMES_MAX} classes")));
        }
        Ok(())
    }
}

impl CsvDescription {
    /// Returns the splits and their shares. Without any, the only split is `train`.
    pub(in super::super) fn split_shares(&self) -> Result<Vec<(String, u64)>, DatasetError> {
        if self.splits.is_empty() {
            return Ok(vec![(DEFAULT_SPLIT.to_owned(), SHARES)]);
        }
        parse_shares(&self.splits)
    }

    /// Refuses keys that contradict each other.
    pub(in super::super) fn check_keys(&self) -> Result<(), DatasetError> {
        let described = !self.fields.is_empty();
        for (key, given) in [("target", self.target.is_some()), ("ignore", !self.ignore.is_empty())] {
            if described && given {
                return Err(description_error(format!(
                    "`{key}` and `fields` exclude each other; `fields` lists every column that is read"
                )));
            }
        }
        match self.delimiter {
            Some(delimiter) if !delimiter.is_ascii() || matches!(delimiter, '"' | '\n' | '\r' | '\0') => {
                Err(description_error(format!("delimiter {delimiter:?} must be one ASCII character, such as `;`")))
            }
            Some(_) | None => Ok(()),
        }
    }
}
