//! Parses the footer of a Parquet file: its columns, and the byte ranges of its row groups.
//!
//! The footer is untrusted: every size that later stages allocate or read is compared with the file's length here.
//! Source: Apache Parquet, `parquet.thrift` and `LogicalTypes.md`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::schema::{LeafColumn, SchemaNode, leaf_columns};
use super::thrift::{CompactReader, ThriftField, ThriftResult};
use crate::limits::{PARQUET_EXPANSION_MAX, PARQUET_FOOTER_BYTES_MAX};

const MAGIC: [u8; 4] = *b"PAR1";
const MAGIC_ENCRYPTED: [u8; 4] = *b"PARE";
/// Bytes of the footer's length and of the magic bytes after it.
const TAIL: u64 = 8;

/// The key of the metadata that the library `datasets` of Hugging Face writes.
const FEATURES_KEY: &str = "huggingface";

/// The metadata of a file.
#[derive(Debug)]
pub(super) struct ParquetFooter {
    /// Its leaf columns, in order.
    pub(super) leaves: Vec<LeafColumn>,
    pub(super) groups: Vec<RowGroup>,
    /// The text that the library `datasets` of Hugging Face adds, which describes the columns.
    pub(super) features: Option<String>,
}

/// A row group.
#[derive(Debug)]
pub(super) struct RowGroup {
    pub(super) rows: u64,
    /// The chunk of each column.
    pub(super) chunks: Vec<ColumnChunk>,
}

/// The values of a column in a row group.
#[derive(Clone, Debug)]
pub(super) struct ColumnChunk {
    /// The number of its compression codec.
    pub(super) codec: i32,
    /// Number of values, including nulls and empty lists.
    pub(super) values: u64,
    /// The offset of its first byte in the file, and the end (exclusive).
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Reads the footer of a file.
pub(super) fn read_footer(file: &File) -> ThriftResult<ParquetFooter> {
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let least = MAGIC.len() as u64 + TAIL;
    if length < least {
        return Err(format!("it has {length} bytes, and a Parquet file has {least} at least; is the copy finished?"));
    }
    let mut tail = [0; TAIL as usize];
    file.read_exact_at(&mut tail, length - TAIL).map_err(|error| error.to_string())?;
    let (bytes, magic) = tail.split_at(4);
    if magic == MAGIC_ENCRYPTED {
        return Err("it is encrypted; save it without a key".to_owned());
    }
    if magic != MAGIC {
        return Err("it does not end with PAR1 as Parquet files do; is the copy finished?".to_owned());
    }
    let bytes = bytes.iter().rev().fold(0u64, |bytes, byte| bytes << 8 | u64::from(*byte));
    if bytes > length - least {
        return Err(format!("its footer would have {bytes} bytes, and the file has {length}; is it damaged?"));
    }
    if bytes > PARQUET_FOOTER_BYTES_MAX {
        let limit = format!("at most {PARQUET_FOOTER_BYTES_MAX} are read; write fewer, larger row groups");
        return Err(format!("its footer would have {bytes} bytes, and {limit}"));
    }
    let mut footer = vec![0; bytes as usize];
    let begin = length - TAIL - bytes;
    file.read_exact_at(&mut footer, begin).map_err(|error| error.to_string())?;
    let footer = parse(&footer, begin).map_err(|reason| format!("its footer: {reason}"))?;
    check_size(&footer, length)?;
    Ok(footer)
}

fn parse(bytes: &[u8], begin: u64) -> ThriftResult<ParquetFooter> {
    let (mut nodes, mut groups, mut rows, mut metadata) = (Vec::new(), Vec::new(), None, Vec::new());
    CompactReader::new(bytes).read_struct(|reader, field| {
        match field.id {
            2 => nodes = reader.read_struct_list(field, SchemaNode::read)?,
            3 => rows = Some(reader.count(field)?),
            4 => groups = reader.read_struct_list(field, |reader| parse_row_group(reader, begin))?,
            5 => metadata = reader.read_struct_list(field, parse_key_value)?,
            8 => return Err("it is encrypted; save the file without a key".to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let leaves = leaf_columns(&nodes)?;
    if let Some(group) = groups.iter().find(|group| group.chunks.len() != leaves.len()) {
        return Err(format!("a row group with {} columns of {}", group.chunks.len(), leaves.len()));
    }
    let sum = groups.iter().try_fold(0u64, |sum, group| sum.checked_add(group.rows));
    if sum.is_none() || sum != rows {
        return Err("the rows of its row groups are not as many as the file's".to_owned());
    }
    let features = metadata.into_iter().find_map(|(key, value)| (key == FEATURES_KEY).then_some(value));
    Ok(ParquetFooter { leaves, groups, features })
}

/// Parses a `KeyValue`. Texts that are not UTF-8 are ignored with the others.
fn parse_key_value(reader: &mut CompactReader<'_>) -> ThriftResult<(String, String)> {
    let (mut key, mut value) = (String::new(), String::new());
    reader.read_struct(|reader, field| {
        match field.id {
            1 => reader.text(field)?.clone_into(&mut key),
            2 if key == FEATURES_KEY => reader.text(field)?.clone_into(&mut value),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok((key, value))
}

/// Refuses sizes that a file of this length cannot plausibly hold.
fn check_size(footer: &ParquetFooter, length: u64) -> ThriftResult<()> {
    let mut bytes = 0u64;
    for group in &footer.groups {
        for (chunk, leaf) in group.chunks.iter().zip(&footer.leaves) {
            // A null takes no bytes, but its level does.
            let width = leaf.encoded_bytes_min().max(1) as u64;
            bytes = chunk.values.checked_mul(width).and_then(|it| it.checked_add(bytes)).unwrap_or(u64::MAX);
            if leaf.is_flat() && chunk.values != group.rows {
                let (name, values, rows) = (&leaf.column.name, chunk.values, group.rows);
                return Err(format!("its footer: column {name} has {values} values in a row group of {rows} rows"));
            }
        }
    }
    if bytes > length.saturating_mul(PARQUET_EXPANSION_MAX) {
        return Err(format!(
            "it would expand from {length} bytes to more than {PARQUET_EXPANSION_MAX} times as many; is it damaged?"
        ));
    }
    Ok(())
}

fn parse_row_group(reader: &mut CompactReader<'_>, limit: u64) -> ThriftResult<RowGroup> {
    let (mut chunks, mut rows) = (Vec::new(), None);
    reader.read_struct(|reader, field| {
        match field.id {
            1 => chunks = reader.read_struct_list(field, |reader| parse_column_chunk(reader, limit))?,
            3 => rows = Some(reader.count(field)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(RowGroup { rows: rows.ok_or("a row group does not say how many rows it has")?, chunks })
}

fn parse_column_chunk(reader: &mut CompactReader<'_>, limit: u64) -> ThriftResult<ColumnChunk> {
    let mut meta = ColumnMetadata::default();
    reader.read_struct(|reader, field| {
        match field.id {
            1 => return Err("a column lies in another file".to_owned()),
            3 => reader.read_nested_struct(field, |reader, field| meta.read(reader, field))?,
            8 | 9 => return Err("a column is encrypted; save the file without a key".to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let (Some(codec), Some(values), Some(bytes), Some(data)) = (meta.codec, meta.values, meta.bytes, meta.data) else {
        return Err("a column does not say where it lies".to_owned());
    };
    if values == 0 {
        // Without rows there is possibly no data page, and so no position.
        return Ok(ColumnChunk { codec, values, start: 0, end: 0 });
    }
    // Some writers state 0 if there is no dictionary.
    let start = meta.dictionary.filter(|start| *start > 0 && *start < data).unwrap_or(data);
    let end = start.checked_add(bytes).filter(|end| *end <= limit && start >= MAGIC.len() as u64);
    let end = end.ok_or_else(|| format!("a column of {bytes} bytes at {start} does not lie before the footer"))?;
    Ok(ColumnChunk { codec, values, start, end })
}

/// The required fields of `ColumnMetaData`.
#[derive(Default)]
struct ColumnMetadata {
    codec: Option<i32>,
    values: Option<u64>,
    bytes: Option<u64>,
    data: Option<u64>,
    dictionary: Option<u64>,
}

impl ColumnMetadata {
    fn read(&mut self, reader: &mut CompactReader<'_>, field: ThriftField) -> ThriftResult<bool> {
        match field.id {
            4 => self.codec = Some(reader.i32(field)?),
            5 => self.values = Some(reader.count(field)?),
            7 => self.bytes = Some(reader.count(field)?),
            9 => self.data = Some(reader.count(field)?),
            11 => self.dictionary = Some(reader.count(field)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}
