//! The metadata of a record batch: its rows, and which nodes and buffers belong to each column.

use std::fs::File;

use super::super::table::ColumnResult;
use super::buffers::{BitReader, BufferCodec, BufferReader, DecodeBudget};
use super::flatbuffer::{FlatTable, FlatVector};
use super::messages::FileRange;
use super::schema::FieldCounts;

/// Bytes of the structures `FieldNode` and `Buffer`.
const PAIR_BYTES: usize = 16;

/// A record batch.
pub(super) struct RecordBatch<'a> {
    file: &'a File,
    body: FileRange,
    pub(super) rows: u64,
    codec: Option<BufferCodec>,
    nodes: FlatVector<'a>,
    buffers: FlatVector<'a>,
    /// The number of further buffers of each view column.
    views: FlatVector<'a>,
}

impl<'a> RecordBatch<'a> {
    /// Parses the table `RecordBatch` of a message with this body.
    pub(super) fn parse(file: &'a File, body: FileRange, table: FlatTable<'a>) -> ColumnResult<RecordBatch<'a>> {
        let codec = match table.table(3)? {
            None => None,
            Some(compression) => match (compression.u8(0, 0)?, compression.u8(1, 0)?) {
                (0, 0) => Some(BufferCodec::Lz4Frame),
                (1, 0) => Some(BufferCodec::Zstd),
                (codec, _) => return Err(format!("compressed by codec {codec}; LZ4, ZSTD or none are read")),
            },
        };
        let (nodes, buffers) = (table.elements(1, PAIR_BYTES)?, table.elements(2, PAIR_BYTES)?);
        Ok(RecordBatch { file, body, rows: table.count(0)?, codec, nodes, buffers, views: table.elements(4, 8)? })
    }

    /// Returns the parts of each column, given by the counts of the columns in the order of the schema.
    pub(super) fn columns(&self, schema: impl Iterator<Item = FieldCounts>) -> ColumnResult<Vec<BatchParts>> {
        let mut parts = Vec::new();
        let (mut node, mut buffer, mut view) = (0usize, 0usize, 0usize);
        for counts in schema {
            parts.push(BatchParts { node, buffer, view });
            node += counts.nodes;
            buffer += counts.buffers + self.view_buffers(view, counts)?;
            view += counts.views;
        }
        if (node, buffer) != (self.nodes.len(), self.buffers.len()) {
            let found = format!("{} nodes and {} buffers", self.nodes.len(), self.buffers.len());
            return Err(format!("{found}, and its schema needs {node} and {buffer}; is the file damaged?"));
        }
        Ok(parts)
    }

    /// Returns the number of further buffers of a column's views.
    fn view_buffers(&self, view: usize, counts: FieldCounts) -> ColumnResult<usize> {
        let mut sum = 0usize;
        for at in view..view + counts.views {
            let count = self.views.i64_at(at, 0).and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| *count <= self.buffers.len());
            sum = sum.saturating_add(count.ok_or("it does not say how many buffers its views have")?);
        }
        Ok(sum)
    }

    /// Returns the length of a node.
    pub(super) fn node_length(&self, node: usize) -> ColumnResult<u64> {
        let length = self.nodes.i64_at(node, 0).and_then(|length| u64::try_from(length).ok());
        length.ok_or_else(|| "a column without a length".to_owned())
    }

    /// Opens a buffer.
    pub(super) fn buffer(&self, buffer: usize, budget: &mut DecodeBudget) -> ColumnResult<BufferReader<'a>> {
        let number = |offset| self.buffers.i64_at(buffer, offset).and_then(|number| u64::try_from(number).ok());
        let place = || {
            let (start, bytes) = (number(0)?, number(8)?);
            let is_inside = start.checked_add(bytes).is_some_and(|end| end <= self.body.bytes);
            is_inside.then_some(FileRange { start: self.body.start + start, bytes })
        };
        let range = place().ok_or("a buffer that its batch does not contain; is the file damaged?")?;
        BufferReader::open(self.file, range, self.codec, budget)
    }

    /// Opens the bitmap of the values of a node that are not null. `None` if no value is null.
    pub(super) fn validity(
        &self,
        node: usize,
        buffer: usize,
        budget: &mut DecodeBudget,
    ) -> ColumnResult<Option<BitReader<'a>>> {
        if self.nodes.i64_at(node, 8) == Some(0) {
            return Ok(None);
        }
        let reader = self.buffer(buffer, budget)?;
        if reader.left() == 0 && self.node_length(node)? > 0 {
            return Err("nulls, and no bitmap of them; is the file damaged?".to_owned());
        }
        Ok(Some(BitReader::new(reader)))
    }

    /// Returns the number of further buffers of one view column.
    pub(super) fn buffers_of_view(&self, view: usize) -> ColumnResult<usize> {
        self.view_buffers(view, FieldCounts { views: 1, ..FieldCounts::default() })
    }
}

/// The first node, buffer and view column of a column in a record batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BatchParts {
    pub(super) node: usize,
    pub(super) buffer: usize,
    pub(super) view: usize,
}
