//! Nulls of columns: rows that are left out, or numbers that get the mean of their column.

use std::io::Read;

use saggar_tensor::DType;

use super::super::description::{DEFAULT_SPLIT, MissingPolicy, SplitAssigner};
use super::super::draft::DraftColumn;
use super::super::manifest::SplitRange;
use super::super::staging::StagingArea;
use super::ColumnResult;
use crate::error::DatasetError;
use crate::limits::TABLE_NULL_ROWS_MAX;

/// The rows of a column without a value, as a bit for each row up to the last of them.
#[derive(Clone, Debug, Default)]
pub(super) struct NullRows {
    words: Vec<u64>,
    count: u64,
    /// The first of them, from 0.
    first: u64,
}

impl NullRows {
    /// Adds a row.
    pub(super) fn add(&mut self, row: u64) -> ColumnResult<()> {
        if row >= TABLE_NULL_ROWS_MAX {
            return Err(format!("a null after {TABLE_NULL_ROWS_MAX} rows; fill it, or split the dataset"));
        }
        let (word, bit) = ((row / 64) as usize, row % 64);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        if self.count == 0 {
            self.first = row;
        }
        self.count += 1;
        self.words[word] |= 1 << bit;
        Ok(())
    }

    fn contains(&self, row: u64) -> bool {
        self.words.get((row / 64) as usize).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Adds the rows of another column.
    fn merge(&mut self, other: &NullRows) {
        if other.count > 0 && (self.count == 0 || other.first < self.first) {
            self.first = other.first;
        }
        self.words.resize(self.words.len().max(other.words.len()), 0);
        self.words.iter_mut().zip(&other.words).for_each(|(word, more)| *word |= more);
        self.count = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
    }
}

/// A table whose columns have placeholders in place of nulls.
pub(super) struct NullableTable<'t> {
    pub(super) staging: &'t StagingArea<'t>,
    /// Names its files, for messages.
    pub(super) files: String,
    pub(super) columns: &'t mut [DraftColumn],
    /// The nulls of each column.
    pub(super) nulls: Vec<NullRows>,
    pub(super) splits: Vec<SplitRange>,
    pub(super) items: u64,
}

impl NullableTable<'_> {
    /// Leaves rows out or fills them, as the policy says. Returns notes about it.
    ///
    /// # Errors
    /// Returns `Column` for a null that has no mean; `Malformed` if no row is left; the errors of the disk.
    pub(super) fn apply(
        &mut self,
        policy: MissingPolicy,
        shares: &[(String, u64)],
    ) -> Result<Vec<String>, DatasetError> {
        match policy {
            MissingPolicy::Refuse => Ok(Vec::new()),
            MissingPolicy::Drop => self.drop_rows(),
            MissingPolicy::Mean => self.fill_means(shares),
        }
    }

    fn drop_rows(&mut self) -> Result<Vec<String>, DatasetError> {
        let mut dropped = NullRows::default();
        self.nulls.iter().for_each(|nulls| dropped.merge(nulls));
        if dropped.count == 0 {
            return Ok(Vec::new());
        }
        for column in &mut *self.columns {
            let size = column.item.bytes() as u64;
            let mut reader = column.data.reader()?;
            let mut remaining = self.staging.writer(1)?;
            let mut item = vec![0; size as usize];
            for row in 0..self.items {
                reader.read_exact(&mut item).map_err(column.data.read_error())?;
                if !dropped.contains(row) {
                    remaining.push(&item)?;
                }
            }
            self.staging.remove(std::mem::replace(&mut column.data, remaining.finish()?))?;
        }
        let mut rows_before = 0;
        for (_, begin, end) in &mut self.splits {
            let rows = (*begin..*end).filter(|row| !dropped.contains(*row)).count() as u64;
            (*begin, *end) = (rows_before, rows_before + rows);
            rows_before += rows;
        }
        let (count, total, first) = (dropped.count, self.items, dropped.first + 1);
        let note = format!("{count} of {total} rows were dropped: values are missing (first in row {first})");
        self.items -= count;
        if self.items == 0 {
            return Err(DatasetError::Malformed { file: self.files.clone(), reason: note });
        }
        Ok(vec![note])
    }

    /// Fills nulls with the mean over the rows of the split `train`, or over all rows if there is no such split.
    fn fill_means(&mut self, shares: &[(String, u64)]) -> Result<Vec<String>, DatasetError> {
        let train = self.splits.iter().find(|(name, ..)| name == DEFAULT_SPLIT).map(|(_, begin, end)| *begin..*end);
        let share = shares.iter().position(|(name, _)| name == DEFAULT_SPLIT);
        let mut notes = Vec::new();
        for (column, nulls) in self.columns.iter_mut().zip(&self.nulls) {
            if nulls.count == 0 {
                continue;
            }
            let (dtype, size) = (column.item.dtype, column.item.bytes());
            let mut dealer = SplitAssigner::new(shares.iter().map(|(_, share)| *share));
            let (mut sum, mut count) = (0.0, 0_u64);
            let mut item = vec![0; size];
            let mut reader = column.data.reader()?;
            for row in 0..self.items {
                reader.read_exact(&mut item).map_err(column.data.read_error())?;
                let counts = if shares.is_empty() {
                    train.as_ref().is_none_or(|train| train.contains(&row))
                } else {
                    let split = dealer.next_split();
                    share.is_none_or(|share| share == split)
                };
                if counts && !nulls.contains(row) {
                    sum += decode_number(dtype, &item).unwrap_or(0.0);
                    count += 1;
                }
            }
            let mean = sum / count as f64;
            let is_number = column.item.shape.dims().is_empty() && column.classes.is_empty();
            let filled = encode_number(dtype, mean).filter(|_| is_number && count > 0 && mean.is_finite());
            let Some(filled) = filled else {
                let (file, first) = (self.files.clone(), nulls.first + 1);
                let reason = format!("row {first}: a null, and the column has no mean; push with `--missing drop`");
                return Err(DatasetError::Column { file, column: column.name.clone(), reason });
            };
            let mut reader = column.data.reader()?;
            let mut whole = self.staging.writer(1)?;
            for row in 0..self.items {
                reader.read_exact(&mut item).map_err(column.data.read_error())?;
                whole.push(if nulls.contains(row) { &filled } else { &item })?;
            }
            self.staging.remove(std::mem::replace(&mut column.data, whole.finish()?))?;
            let (name, count, first) = (&column.name, nulls.count, nulls.first + 1);
            notes
                .push(format!("column {name}: {count} missing values became their mean {mean} (first in row {first})"));
        }
        Ok(notes)
    }
}

/// Returns the number of an element, little-endian.
fn decode_number(dtype: DType, bytes: &[u8]) -> Option<f64> {
    Some(match dtype {
        DType::F32 => f64::from(f32::from_le_bytes(bytes.try_into().ok()?)),
        DType::I64 => i64::from_le_bytes(bytes.try_into().ok()?) as f64,
        DType::U64 => u64::from_le_bytes(bytes.try_into().ok()?) as f64,
        DType::I32 => f64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        DType::U32 => f64::from(u32::from_le_bytes(bytes.try_into().ok()?)),
        DType::I8 => f64::from(i8::from_le_bytes(bytes.try_into().ok()?)),
        DType::U8 => f64::from(u8::from_le_bytes(bytes.try_into().ok()?)),
        DType::F16 => return None,
    })
}

/// Returns the element nearest to a number, little-endian. `None` for 16-bit floats.
fn encode_number(dtype: DType, number: f64) -> Option<Vec<u8>> {
    let whole = number.round();
    Some(match dtype {
        DType::F32 => (number as f32).to_le_bytes().to_vec(),
        DType::I64 => (whole as i64).to_le_bytes().to_vec(),
        DType::U64 => (whole as u64).to_le_bytes().to_vec(),
        DType::I32 => (whole as i32).to_le_bytes().to_vec(),
        DType::U32 => (whole as u32).to_le_bytes().to_vec(),
        DType::I8 => (whole as i8).to_le_bytes().to_vec(),
        DType::U8 => (whole as u8).to_le_bytes().to_vec(),
        DType::F16 => return None,
    })
}
