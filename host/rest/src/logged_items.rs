//! `GET /api/v1/jobs/{job}/logged`: the images, tables and histograms that a job logged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The items that a job logged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "LoggedItems")]
pub struct LoggedItemListDocument {
    /// The items, by rising step; those of a step by kind and name.
    pub items: Vec<LoggedItemDocument>,
    /// The `after` with which to request the items that did not fit into this response.
    pub next: Option<String>,
}

/// An item that a job logged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "LoggedItem")]
pub struct LoggedItemDocument {
    /// The step at which it was logged.
    pub step: u64,
    /// `image`, `table` or `histogram`.
    pub kind: String,
    /// Its name, such as `validation/wrong`.
    pub name: String,
    /// The size of its file in bytes.
    pub bytes: u64,
    /// When it was logged, in Unix milliseconds.
    pub logged_ms: u64,
    /// The histogram, if `values` was requested and the item is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram: Option<HistogramDocument>,
}

/// The file of a logged histogram or table. Their members are required, so that one is not read as the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "LoggedValue")]
pub enum LoggedValueDocument {
    /// A histogram.
    Histogram(HistogramDocument),
    /// A table.
    Table(TableDocument),
}

/// A logged histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LoggedHistogram")]
pub struct HistogramDocument {
    /// The edges of the bins, rising: one more than there are bins.
    pub edges: Vec<f64>,
    /// The number of values in each bin.
    pub counts: Vec<u64>,
}

/// A logged table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LoggedTable")]
pub struct TableDocument {
    /// The columns, which all have the same number of values.
    pub columns: Vec<TableColumnDocument>,
}

/// A column of a logged table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LoggedTableColumn")]
pub struct TableColumnDocument {
    /// Its name.
    pub name: String,
    /// Its values.
    #[serde(flatten)]
    pub values: TableValuesDocument,
}

/// The values of a column, one for each row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "values", rename_all = "kebab-case")]
#[schemars(rename = "LoggedTableValues")]
pub enum TableValuesDocument {
    /// Numbers. Infinities and NaN, which JSON cannot represent, are null.
    Number(Vec<Option<f64>>),
    /// Whole numbers.
    Integer(Vec<i64>),
    /// Texts.
    Text(Vec<String>),
    /// Truth values.
    Boolean(Vec<bool>),
}

impl TableDocument {
    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.columns.first().map_or(0, |column| match &column.values {
            TableValuesDocument::Number(values) => values.len(),
            TableValuesDocument::Integer(values) => values.len(),
            TableValuesDocument::Text(values) => values.len(),
            TableValuesDocument::Boolean(values) => values.len(),
        })
    }
}

impl TableValuesDocument {
    /// Returns the value of a row as text; empty if it is missing.
    pub fn cell_text(&self, row: usize) -> String {
        match self {
            TableValuesDocument::Number(values) => {
                values.get(row).copied().flatten().map_or_else(String::new, |value| value.to_string())
            }
            TableValuesDocument::Integer(values) => values.get(row).map_or_else(String::new, ToString::to_string),
            TableValuesDocument::Text(values) => values.get(row).cloned().unwrap_or_default(),
            TableValuesDocument::Boolean(values) => values.get(row).map_or_else(String::new, ToString::to_string),
        }
    }
}
