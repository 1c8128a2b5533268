//! The values of a table's cells as the elements of a field.

use saggar_tensor::DType;

use super::cell::{is_missing_marker, quoted_cell};
use super::lines::CsvLineReader;
use super::plan::TableField;
use crate::error::DatasetError;

/// Maximum number of classes that an error lists.
const CLASSES_NAMED: usize = 10;

impl TableField {
    /// Returns whether a cell has no value. The name of a class is a value.
    pub(super) fn is_missing(&self, cell: &str) -> bool {
        is_missing_marker(cell) && !self.class_indices.contains_key(cell)
    }

    /// Returns the index of the class with this name, or this number if the file contains numbers.
    pub(super) fn class_index(&self, cell: &str) -> Option<usize> {
        let named = self.class_indices.get(cell).copied();
        named.or_else(|| cell.parse().ok()).filter(|class| *class < self.classes.len())
    }

    /// Appends the element that a cell means.
    pub(super) fn append_cell(&self, cell: &str, data: &mut Vec<u8>) -> Option<()> {
        if let Some(maximum) = self.maximum {
            append_scaled(cell, maximum, data)
        } else if self.classes.is_empty() {
            append_number(cell, self.item.dtype, data)
        } else {
            append_number(&self.class_index(cell)?.to_string(), self.item.dtype, data)
        }
    }

    /// Returns the error of a cell that the field cannot contain.
    pub(super) fn bad_value(&self, lines: &CsvLineReader, column: usize) -> DatasetError {
        let expected = match (self.maximum, self.classes.len()) {
            (Some(maximum), _) => format!("a number from 0 to {maximum}"),
            (None, 0) => format!("a number of type {}", self.item.dtype),
            (None, classes) => {
                let names = self.classes.iter().take(CLASSES_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
                let more = if classes > CLASSES_NAMED { ", ..." } else { "" };
                format!("a class: {names}{more}, or its number from 0 to {}", classes - 1)
            }
        };
        DatasetError::BadValue {
            file: lines.file().to_owned(),
            line: lines.line(),
            column: column + 1,
            value: quoted_cell(lines.cell(column)),
            expected: format!("{expected} (field {})", self.name),
        }
    }
}

/// Maps `0..=maximum` to `0..=255`, rounding half up.
fn append_scaled(text: &str, maximum: u32, data: &mut Vec<u8>) -> Option<()> {
    let value: f64 = text.parse().ok()?;
    let maximum = f64::from(maximum);
    (0.0..=maximum).contains(&value).then_some(())?;
    data.push((value * 255.0 / maximum).round() as u8);
    Some(())
}

fn append_number(text: &str, dtype: DType, data: &mut Vec<u8>) -> Option<()> {
    fn bytes<T: std::str::FromStr, const N: usize>(
        text: &str,
        data: &mut Vec<u8>,
        to_bytes: impl Fn(T) -> [u8; N],
    ) -> Option<()> {
        data.extend_from_slice(&to_bytes(text.parse().ok()?));
        Some(())
    }
    match dtype {
        // An infinite feature would make every statistic and every gradient infinite.
        DType::F32 => {
            let value = text.parse::<f32>().ok().filter(|value| value.is_finite())?;
            data.extend_from_slice(&value.to_le_bytes());
            Some(())
        }
        // The description refuses this type, because the standard library cannot parse 16-bit floats.
        DType::F16 => None,
        DType::I64 => bytes(text, data, i64::to_le_bytes),
        DType::U64 => bytes(text, data, u64::to_le_bytes),
        DType::I32 => bytes(text, data, i32::to_le_bytes),
        DType::U32 => bytes(text, data, u32::to_le_bytes),
        DType::I8 => bytes(text, data, i8::to_le_bytes),
        DType::U8 => bytes(text, data, u8::to_le_bytes),
    }
}
