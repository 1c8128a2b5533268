//! Appends numbers, bytes of a fixed length and lists of them: pieces of a buffer are read, converted and written.

use saggar_tensor::DType;

use super::super::table::{ColumnResult, TableColumn, ValueKind, check_list_length, null_value_error};
use super::batch::{BatchParts, RecordBatch};
use super::buffers::{BitReader, BufferReader, DecodeBudget};
use super::schema::{FixedType, OffsetWidth};

/// Bytes of values that are read at once, unless one value is larger.
const PIECE_BYTES: usize = 128 << 10;
/// Rows whose offsets are read at once.
const PIECE_ROWS: u64 = 1 << 14;

/// The rows of a column in a record batch, and the rows before it.
#[derive(Clone, Copy)]
pub(super) struct BatchColumn<'a, 'b> {
    pub(super) batch: &'b RecordBatch<'a>,
    /// The number of its field.
    pub(super) field: usize,
    pub(super) parts: BatchParts,
    /// Rows of earlier batches of the file.
    pub(super) before: u64,
    /// Rows of earlier files.
    pub(super) earlier: u64,
    /// Limit on the bytes of the column after the batch is read, for texts and images.
    pub(super) bytes_max: u64,
}

impl BatchColumn<'_, '_> {
    /// Returns the number of a row in the file, from 1.
    pub(super) fn row(&self, at: u64) -> u64 {
        self.before + at + 1
    }

    /// Appends one value of each row.
    pub(super) fn append_fixed(
        &self,
        fixed: FixedType,
        column: &mut TableColumn<'_>,
        budget: &mut DecodeBudget,
    ) -> ColumnResult<()> {
        let (batch, BatchParts { node, buffer, .. }) = (self.batch, self.parts);
        let mut valid = batch.validity(node, buffer, budget)?;
        let mut values = FixedReader::new(fixed, batch.buffer(buffer + 1, budget)?);
        let (mut pieces, mut bits) = (ValuePieces::new(fixed), Vec::new());
        let width = fixed.bytes();
        let mut done = 0;
        while done < batch.rows {
            let count = (batch.rows - done).min(pieces.values) as usize;
            values.fill(count, &mut pieces.raw)?;
            if let Some(valid) = &mut valid {
                valid.fill(count, &mut bits)?;
                for at in (0..count).filter(|at| bits[*at] == 0) {
                    column.add_null(self.row(done + at as u64), self.earlier)?;
                    // What is stored in place of a null can be anything.
                    pieces.raw[at * width..(at + 1) * width].fill(0);
                }
            }
            pieces.convert(|at| self.row(done + at as u64))?;
            column.write(pieces.converted())?;
            done += count as u64;
        }
        Ok(())
    }

    /// Appends the lists between two offsets of each row.
    pub(super) fn append_lists(
        &self,
        offsets: OffsetWidth,
        item: FixedType,
        column: &mut TableColumn<'_>,
        budget: &mut DecodeBudget,
    ) -> ColumnResult<()> {
        let (batch, BatchParts { node, buffer, .. }) = (self.batch, self.parts);
        let mut valid = batch.validity(node, buffer, budget)?;
        let mut offsets = OffsetReader::open(batch.buffer(buffer + 1, budget)?, offsets)?;
        let mut items = ListItems::open(self, item, buffer + 2, budget)?;
        items.skip(offsets.last)?;
        self.append_list_rows(valid.as_mut(), &mut items, column, |row, column| {
            let length = usize::try_from(offsets.next_length()?).unwrap_or(usize::MAX);
            check_list_length(row, length, &mut column.length)
        })
    }

    /// Appends lists of one length.
    pub(super) fn append_fixed_lists(
        &self,
        length: usize,
        item: FixedType,
        column: &mut TableColumn<'_>,
        budget: &mut DecodeBudget,
    ) -> ColumnResult<()> {
        let (batch, BatchParts { node, buffer, .. }) = (self.batch, self.parts);
        let mut valid = batch.validity(node, buffer, budget)?;
        let mut items = ListItems::open(self, item, buffer + 1, budget)?;
        check_list_length(self.row(0), length, &mut column.length)?;
        self.append_list_rows(valid.as_mut(), &mut items, column, |_, _| Ok(()))
    }

    /// Appends the lists of all rows, none of which is null. `check_row` is called with each row before its list.
    fn append_list_rows(
        &self,
        mut valid: Option<&mut BitReader<'_>>,
        items: &mut ListItems<'_, '_, '_>,
        column: &mut TableColumn<'_>,
        mut check_row: impl FnMut(u64, &mut TableColumn<'_>) -> ColumnResult<()>,
    ) -> ColumnResult<()> {
        let (rows, mut done, mut bits) = (self.batch.rows, 0, Vec::new());
        while done < rows {
            let count = (rows - done).min(PIECE_ROWS);
            self.refuse_null_lists(valid.as_deref_mut(), done, count, &mut bits)?;
            for at in done..done + count {
                check_row(self.row(at), column)?;
            }
            items.append(done, count, column)?;
            done += count;
        }
        Ok(())
    }

    fn refuse_null_lists(
        &self,
        valid: Option<&mut BitReader<'_>>,
        done: u64,
        count: u64,
        bits: &mut Vec<u8>,
    ) -> ColumnResult<()> {
        let Some(valid) = valid else { return Ok(()) };
        valid.fill(count as usize, bits)?;
        match bits.iter().position(|bit| *bit == 0) {
            Some(at) => Err(null_value_error(self.row(done + at as u64))),
            None => Ok(()),
        }
    }
}

/// The values inside the lists of a column, in order.
struct ListItems<'c, 'a, 'b> {
    column: &'c BatchColumn<'a, 'b>,
    valid: Option<BitReader<'a>>,
    values: FixedReader<'a>,
    pieces: ValuePieces,
    bits: Vec<u8>,
    /// Values that are left.
    left: u64,
}

impl<'c, 'a, 'b> ListItems<'c, 'a, 'b> {
    /// Opens the values, whose first buffer is `buffer`.
    fn open(
        column: &'c BatchColumn<'a, 'b>,
        item: FixedType,
        buffer: usize,
        budget: &mut DecodeBudget,
    ) -> ColumnResult<ListItems<'c, 'a, 'b>> {
        let node = column.parts.node + 1;
        Ok(ListItems {
            column,
            valid: column.batch.validity(node, buffer, budget)?,
            values: FixedReader::new(item, column.batch.buffer(buffer + 1, budget)?),
            pieces: ValuePieces::new(item),
            bits: Vec::new(),
            left: column.batch.node_length(node)?,
        })
    }

    fn take(&mut self, count: u64) -> ColumnResult<()> {
        self.left = self.left.checked_sub(count).ok_or("its lists have more values than the column")?;
        Ok(())
    }

    /// Skips values that no list has.
    fn skip(&mut self, count: u64) -> ColumnResult<()> {
        self.take(count)?;
        self.values.skip(count)?;
        self.valid.as_mut().map_or(Ok(()), |valid| valid.skip(count))
    }

    /// Appends the values of the lists of `rows` rows after `done` rows.
    fn append(&mut self, done: u64, rows: u64, column: &mut TableColumn<'_>) -> ColumnResult<()> {
        let length = column.length.unwrap_or(1).max(1) as u64;
        let values = rows.checked_mul(length).ok_or("its lists have more values than the column")?;
        self.take(values)?;
        let source = self.column;
        let mut read = 0;
        while read < values {
            let count = (values - read).min(self.pieces.values);
            let row = |at: usize| source.row(done + (read + at as u64) / length);
            self.values.fill(count as usize, &mut self.pieces.raw)?;
            if let Some(valid) = &mut self.valid {
                valid.fill(count as usize, &mut self.bits)?;
                if let Some(at) = self.bits.iter().position(|bit| *bit == 0) {
                    return Err(null_value_error(row(at)));
                }
            }
            self.pieces.convert(row)?;
            column.write(self.pieces.converted())?;
            read += count;
        }
        Ok(())
    }
}

/// Offsets of a buffer, which must not go backwards.
pub(super) struct OffsetReader<'f> {
    reader: BufferReader<'f>,
    width: OffsetWidth,
    /// The last offset that was read.
    pub(super) last: u64,
}

impl<'f> OffsetReader<'f> {
    /// Reads the first offset.
    pub(super) fn open(reader: BufferReader<'f>, width: OffsetWidth) -> ColumnResult<OffsetReader<'f>> {
        let mut offsets = OffsetReader { reader, width, last: 0 };
        offsets.last = offsets.read()?;
        Ok(offsets)
    }

    /// Returns the length up to the next offset.
    pub(super) fn next_length(&mut self) -> ColumnResult<u64> {
        let next = self.read()?;
        let length = next.checked_sub(self.last).ok_or("its offsets go backwards; is the file damaged?")?;
        self.last = next;
        Ok(length)
    }

    fn read(&mut self) -> ColumnResult<u64> {
        let mut bytes = [0; 8];
        let offset = match self.width {
            OffsetWidth::Four => {
                self.reader.fill(&mut bytes[..4])?;
                i64::from(i64::from_le_bytes(bytes) as i32)
            }
            OffsetWidth::Eight => {
                self.reader.fill(&mut bytes)?;
                i64::from_le_bytes(bytes)
            }
        };
        u64::try_from(offset).map_err(|_| "an offset below zero; is the file damaged?".to_owned())
    }
}

/// Values of one size in a buffer. Truth values are bits, and read as bytes.
pub(super) enum FixedReader<'f> {
    Bits(BitReader<'f>),
    Bytes(BufferReader<'f>, usize),
}

impl<'f> FixedReader<'f> {
    pub(super) fn new(fixed: FixedType, reader: BufferReader<'f>) -> FixedReader<'f> {
        match fixed {
            FixedType::Bool => FixedReader::Bits(BitReader::new(reader)),
            fixed => FixedReader::Bytes(reader, fixed.bytes()),
        }
    }

    /// Replaces `raw` by the next `count` values.
    pub(super) fn fill(&mut self, count: usize, raw: &mut Vec<u8>) -> ColumnResult<()> {
        match self {
            FixedReader::Bits(reader) => reader.fill(count, raw),
            FixedReader::Bytes(reader, width) => {
                raw.resize(count * *width, 0);
                reader.fill(raw)
            }
        }
    }

    fn skip(&mut self, count: u64) -> ColumnResult<()> {
        match self {
            FixedReader::Bits(reader) => reader.skip(count),
            FixedReader::Bytes(reader, width) => reader.skip(count.saturating_mul(*width as u64)),
        }
    }
}

/// A few values at a time: as they are stored, and converted.
struct ValuePieces {
    fixed: FixedType,
    /// Values in a piece.
    values: u64,
    raw: Vec<u8>,
    wide: Vec<u8>,
}

impl ValuePieces {
    fn new(fixed: FixedType) -> ValuePieces {
        let values = (PIECE_BYTES / fixed.bytes().max(1)).max(1) as u64;
        ValuePieces { fixed, values, raw: Vec::new(), wide: Vec::new() }
    }

    /// Returns whether values are stored as they are.
    fn is_plain(&self) -> bool {
        match (self.fixed, self.fixed.kind()) {
            (FixedType::Signed(bytes) | FixedType::Unsigned(bytes) | FixedType::Float(bytes), kind) => {
                kind.value_bytes() == bytes
            }
            (FixedType::Bool | FixedType::Bytes(_), ValueKind::Number(DType::U8) | ValueKind::Bytes(_)) => true,
            (FixedType::Bool | FixedType::Bytes(_), _) => false,
        }
    }

    /// Converts the values. `row` returns the row of the value at an index, for the error of one that does not fit.
    fn convert(&mut self, row: impl Fn(usize) -> u64) -> ColumnResult<()> {
        if self.is_plain() {
            return Ok(());
        }
        self.wide.clear();
        match self.fixed {
            FixedType::Signed(_) => {
                for value in self.raw.as_chunks().0 {
                    self.wide.extend(i32::from(i16::from_le_bytes(*value)).to_le_bytes());
                }
            }
            FixedType::Unsigned(_) => {
                for value in self.raw.as_chunks().0 {
                    self.wide.extend(u32::from(u16::from_le_bytes(*value)).to_le_bytes());
                }
            }
            FixedType::Bool | FixedType::Float(_) | FixedType::Bytes(_) => {
                for (at, value) in self.raw.as_chunks().0.iter().enumerate() {
                    let value = f64::from_le_bytes(*value);
                    let rounded = value as f32;
                    if value.is_finite() && rounded.is_infinite() {
                        return Err(format!("row {}: {value:e} is too large for float32", row(at)));
                    }
                    self.wide.extend(rounded.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    fn converted(&self) -> &[u8] {
        if self.is_plain() { &self.raw } else { &self.wide }
    }
}
