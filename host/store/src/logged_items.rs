//! Images, tables and histograms that trainings log: their keys, their files and their limits. [`crate::job_files`]
//! stores the files.
//!
//! An item is identified by its step, its kind and its name. Logging one with the same key replaces it, so a training
//! that repeats steps after an interruption leaves each item once.

use std::fmt;
use std::str::FromStr;

use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::outputs::is_output_path;
use crate::png_encoder::encode_png;

/// The folder of logged items among a job's files.
pub(crate) const LOGGED_FOLDER: &str = "logged";

/// The kind of a logged item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoggedKind {
    /// A histogram.
    Histogram,
    /// An image.
    Image,
    /// A table.
    Table,
}

impl LoggedKind {
    /// Every kind, by name.
    pub const ALL: [LoggedKind; 3] = [LoggedKind::Histogram, LoggedKind::Image, LoggedKind::Table];

    /// Returns `histogram`, `image` or `table`.
    pub fn name(self) -> &'static str {
        match self {
            LoggedKind::Histogram => "histogram",
            LoggedKind::Image => "image",
            LoggedKind::Table => "table",
        }
    }

    /// Returns the end of the name of a file of this kind. None is the end of another.
    pub fn file_suffix(self) -> &'static str {
        match self {
            LoggedKind::Histogram => ".histogram.json",
            LoggedKind::Image => ".png",
            LoggedKind::Table => ".table.json",
        }
    }

    /// Returns the media type of a file of this kind.
    pub fn media_type(self) -> &'static str {
        match self {
            LoggedKind::Image => "image/png",
            LoggedKind::Histogram | LoggedKind::Table => "application/json",
        }
    }
}

impl FromStr for LoggedKind {
    type Err = ();

    fn from_str(text: &str) -> Result<LoggedKind, ()> {
        LoggedKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or(())
    }
}

/// What identifies an item of a job. The order is that of listings: by step first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoggedKey {
    /// The step at which it was logged.
    pub step: u64,
    /// Its kind.
    pub kind: LoggedKind,
    /// Its name, such as `validation/wrong`, which satisfies [`is_output_path`].
    pub name: String,
}

impl LoggedKey {
    /// Returns the name of the item's file: `00000000000000000120-validation+wrong.png`. A name of an item contains no
    /// `+`, so different keys have different files.
    pub(crate) fn file_name(&self) -> String {
        format!("{:020}-{}{}", self.step, self.name.replace('/', "+"), self.kind.file_suffix())
    }

    /// Returns the key of a file, or `None` if no item has this file name.
    pub(crate) fn from_file_name(file: &str) -> Option<LoggedKey> {
        let (step, rest) = file.split_once('-')?;
        let found = |kind: LoggedKind| Some((kind, rest.strip_suffix(kind.file_suffix())?));
        let (kind, name) = LoggedKind::ALL.into_iter().find_map(found)?;
        let key = LoggedKey { step: step.parse().ok()?, kind, name: name.replace('+', "/") };
        (is_output_path(&key.name) && key.file_name() == file).then_some(key)
    }
}

/// The text of a key in the REST interface: `120/image/validation/wrong`.
impl fmt::Display for LoggedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.step, self.kind.name(), self.name)
    }
}

impl FromStr for LoggedKey {
    type Err = ();

    fn from_str(text: &str) -> Result<LoggedKey, ()> {
        let mut parts = text.splitn(3, '/');
        let mut next = || parts.next().ok_or(());
        let (step, kind, name) = (next()?.parse().map_err(drop)?, next()?.parse()?, next()?.to_owned());
        if is_output_path(&name) { Ok(LoggedKey { step, kind, name }) } else { Err(()) }
    }
}

/// A stored item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredItem {
    /// Its key.
    pub key: LoggedKey,
    /// The size of its file in bytes.
    pub bytes: u64,
    /// When it was written.
    pub logged_ms: UnixMillis,
}

/// An item that a training logs. Its values were checked.
#[derive(Clone, Debug, PartialEq)]
pub enum LoggedItem {
    /// An image.
    Image(LoggedImage),
    /// A table.
    Table(LoggedTable),
    /// A histogram.
    Histogram(LoggedHistogram),
}

/// An image with 8 bits per channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedImage {
    /// The height in pixels.
    pub height: usize,
    /// The width in pixels.
    pub width: usize,
    /// 1 for grey, 3 for RGB.
    pub channels: usize,
    /// The pixels. Shape: `[height, width, channels]`, row-major.
    pub pixels: Vec<u8>,
}

/// A table of typed columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedTable {
    /// The columns, which all have the same number of values.
    pub columns: Vec<LoggedColumn>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedColumn {
    /// Its name.
    pub name: String,
    /// Its values, one for each row.
    #[serde(flatten)]
    pub values: ColumnValues,
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "values", rename_all = "kebab-case")]
pub enum ColumnValues {
    /// Numbers; infinities and NaN, which JSON cannot represent, are `None`.
    Number(Vec<Option<f64>>),
    /// Whole numbers.
    Integer(Vec<i64>),
    /// Texts.
    Text(Vec<String>),
    /// Truth values.
    Boolean(Vec<bool>),
}

impl ColumnValues {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        match self {
            ColumnValues::Number(values) => values.len(),
            ColumnValues::Integer(values) => values.len(),
            ColumnValues::Text(values) => values.len(),
            ColumnValues::Boolean(values) => values.len(),
        }
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A histogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedHistogram {
    /// The edges of the bins, rising: one more than there are bins.
    pub edges: Vec<f64>,
    /// The number of values in each bin.
    pub counts: Vec<u64>,
}

impl LoggedItem {
    /// Returns the item's kind.
    pub fn kind(&self) -> LoggedKind {
        match self {
            LoggedItem::Image(_) => LoggedKind::Image,
            LoggedItem::Table(_) => LoggedKind::Table,
            LoggedItem::Histogram(_) => LoggedKind::Histogram,
        }
    }

    /// Returns the item's file: a PNG file, or JSON.
    ///
    /// # Errors
    /// The encoder's message if an image does not match its shape.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        match self {
            LoggedItem::Image(LoggedImage { height, width, channels, pixels }) => {
                encode_png(pixels, *height, *width, *channels)
            }
            LoggedItem::Table(table) => serde_json::to_vec(table).map_err(|error| error.to_string()),
            LoggedItem::Histogram(histogram) => serde_json::to_vec(histogram).map_err(|error| error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(step: u64, kind: LoggedKind, name: &str) -> LoggedKey {
        LoggedKey { step, kind, name: name.to_owned() }
    }

    #[test]
    fn every_key_has_its_own_file() {
        let names = ["a", "a.table", "x.png", "y.table.json", "validation/wrong", "a-b/c_d", "0-1"];
        let mut files = std::collections::BTreeSet::new();
        for (name, kind) in names.iter().flat_map(|name| LoggedKind::ALL.map(|kind| (name, kind))) {
            for step in [0, 12, u64::MAX] {
                let key = key(step, kind, name);
                assert_eq!(LoggedKey::from_file_name(&key.file_name()), Some(key.clone()));
                assert_eq!(key.to_string().parse(), Ok(key.clone()));
                assert!(files.insert(key.file_name()), "{key}");
            }
        }
    }

    #[test]
    fn files_of_no_item_are_skipped() {
        let good = key(7, LoggedKind::Image, "a/b").file_name();
        assert_eq!(good, "00000000000000000007-a+b.png");
        for file in ["", "7-a.png", "x-a.png", "00000000000000000007-.png", "00000000000000000007-a.gif", ".a.0123"] {
            assert_eq!(LoggedKey::from_file_name(file), None, "{file}");
        }
        for text in ["", "1", "1/image", "1/image/", "1/picture/a", "x/image/a", "1/image/../a", "-1/image/a"] {
            assert_eq!(text.parse::<LoggedKey>(), Err(()), "{text}");
        }
    }

    #[test]
    fn a_table_is_stored_as_typed_columns() {
        let columns = vec![
            LoggedColumn { name: "loss".to_owned(), values: ColumnValues::Number(vec![Some(0.5), None]) },
            LoggedColumn { name: "class".to_owned(), values: ColumnValues::Text(vec!["a".to_owned(), "b".to_owned()]) },
        ];
        let item = LoggedItem::Table(LoggedTable { columns });
        let text = String::from_utf8(item.encode().unwrap()).unwrap();
        assert_eq!(
            text,
            r#"{"columns":[{"name":"loss","type":"number","values":[0.5,null]},{"name":"class","type":"text","values":["a","b"]}]}"#
        );
        let LoggedItem::Table(table) = item else { unreachable!() };
        assert_eq!(serde_json::from_str::<LoggedTable>(&text).unwrap(), table);
    }
}
