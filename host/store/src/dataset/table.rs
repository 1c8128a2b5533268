//! Tables whose files have typed columns: what importing them has in common, whatever the format of the files.
//!
//! A format's module parses a file's schema to [`SchemaColumn`]s and appends decoded values to [`TableColumn`]s. Which
//! columns become fields, missing values, texts and class names are handled here.

mod builder;
mod classes;
mod column;
mod features;
mod finish;
mod nulls;

pub(super) use builder::{SchemaColumn, TableBuilder, TableFormat, check_items, read_table};
pub(super) use classes::{DictionaryBudget, text_memory_bytes};
pub(super) use column::{TableColumn, ValueKind, check_list_length, null_value_error};

/// The result of reading a part of a file; the error is the reason, as text.
pub(super) type ColumnResult<T> = Result<T, String>;
