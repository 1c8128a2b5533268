//! A writer of Arrow files for tests, which can also state what is not true.

use std::io::Write;

/// A value of a FlatBuffer.
#[derive(Clone, Debug)]
pub(super) enum FlatbufferValue {
    U8(u8),
    I16(i16),
    I32(i32),
    I64(i64),
    Text(String),
    /// The fields of a table; `None` are absent.
    Table(Vec<Option<FlatbufferValue>>),
    Tables(Vec<FlatbufferValue>),
    /// A number of offsets that all lead to one table.
    Repeated(usize, Box<FlatbufferValue>),
    /// Structures of this number of bytes each.
    Structs(usize, Vec<u8>),
    /// A number of elements that is not true.
    Claim(u32),
}

/// Bytes of a slot of a table.
const SLOT: usize = 8;

fn align(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

/// Returns a FlatBuffer of this table.
pub(super) fn encode(table: &FlatbufferValue) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    let at = append(&mut bytes, table);
    bytes[..4].copy_from_slice(&(at as u32).to_le_bytes());
    align(&mut bytes, 8);
    bytes
}

/// Appends a value that an offset leads to, and returns where it begins.
fn append(bytes: &mut Vec<u8>, value: &FlatbufferValue) -> usize {
    match value {
        FlatbufferValue::Table(fields) => append_table(bytes, fields),
        FlatbufferValue::Text(text) => append_elements(bytes, text.len(), &[text.as_bytes(), &[0]].concat()),
        FlatbufferValue::Structs(width, content) => append_elements(bytes, content.len() / width, content),
        FlatbufferValue::Claim(count) => append_elements(bytes, *count as usize, &[]),
        FlatbufferValue::Tables(tables) => {
            let at = append_elements(bytes, tables.len(), &vec![0; 4 * tables.len()]);
            for (number, table) in tables.iter().enumerate() {
                let (slot, target) = (at + 4 + 4 * number, append(bytes, table));
                bytes[slot..slot + 4].copy_from_slice(&((target - slot) as u32).to_le_bytes());
            }
            at
        }
        FlatbufferValue::Repeated(count, table) => {
            let at = append_elements(bytes, *count, &vec![0; 4 * count]);
            let target = append(bytes, table);
            for slot in (at + 4..at + 4 + 4 * count).step_by(4) {
                bytes[slot..slot + 4].copy_from_slice(&((target - slot) as u32).to_le_bytes());
            }
            at
        }
        FlatbufferValue::U8(_) | FlatbufferValue::I16(_) | FlatbufferValue::I32(_) | FlatbufferValue::I64(_) => {
            panic!("a number lies in its table")
        }
    }
}

/// Appends a number of elements and their content, which is aligned to 8 bytes.
fn append_elements(bytes: &mut Vec<u8>, count: usize, content: &[u8]) -> usize {
    align(bytes, 8);
    bytes.extend([0; 4]);
    let at = bytes.len();
    bytes.extend((count as u32).to_le_bytes());
    bytes.extend(content);
    at
}

fn append_table(bytes: &mut Vec<u8>, fields: &[Option<FlatbufferValue>]) -> usize {
    align(bytes, 8);
    let slots_at = bytes.len();
    let size = SLOT + SLOT * fields.len();
    bytes.extend((4 + 2 * fields.len() as u16).to_le_bytes());
    bytes.extend((size as u16).to_le_bytes());
    for (number, field) in fields.iter().enumerate() {
        bytes.extend((field.as_ref().map_or(0, |_| SLOT + SLOT * number) as u16).to_le_bytes());
    }
    align(bytes, 8);
    let at = bytes.len();
    bytes.resize(at + size, 0);
    bytes[at..at + 4].copy_from_slice(&((at - slots_at) as u32).to_le_bytes());
    for (number, field) in fields.iter().enumerate() {
        let slot = at + SLOT + SLOT * number;
        let content = match field {
            None => continue,
            Some(FlatbufferValue::U8(value)) => u64::from(*value).to_le_bytes(),
            Some(FlatbufferValue::I16(value)) => (i64::from(*value)).to_le_bytes(),
            Some(FlatbufferValue::I32(value)) => (i64::from(*value)).to_le_bytes(),
            Some(FlatbufferValue::I64(value)) => value.to_le_bytes(),
            Some(value) => ((append(bytes, value) - slot) as u64).to_le_bytes(),
        };
        bytes[slot..slot + SLOT].copy_from_slice(&content);
    }
    at
}

/// Returns a field of a type, given by its number and its table.
pub(super) fn field(
    name: &str,
    kind: (u8, Vec<Option<FlatbufferValue>>),
    children: Vec<FlatbufferValue>,
) -> FlatbufferValue {
    FlatbufferValue::Table(vec![
        Some(FlatbufferValue::Text(name.to_owned())),
        Some(FlatbufferValue::U8(1)),
        Some(FlatbufferValue::U8(kind.0)),
        Some(FlatbufferValue::Table(kind.1)),
        None,
        Some(FlatbufferValue::Tables(children)),
    ])
}

/// Returns a structure of `count` members, all of which are the same.
pub(super) fn repeated_struct(count: usize, member: FlatbufferValue) -> FlatbufferValue {
    let FlatbufferValue::Table(mut fields) = field("x", (13, Vec::new()), Vec::new()) else {
        panic!("a field is a table")
    };
    fields[5] = Some(FlatbufferValue::Repeated(count, Box::new(member)));
    FlatbufferValue::Table(fields)
}

/// Returns the type of signed integers of this number of bits.
pub(super) fn int(bits: i32) -> (u8, Vec<Option<FlatbufferValue>>) {
    (2, vec![Some(FlatbufferValue::I32(bits)), Some(FlatbufferValue::U8(1))])
}

pub(super) const F32: fn() -> (u8, Vec<Option<FlatbufferValue>>) = || (3, vec![Some(FlatbufferValue::I16(1))]);
pub(super) const F64: fn() -> (u8, Vec<Option<FlatbufferValue>>) = || (3, vec![Some(FlatbufferValue::I16(2))]);
pub(super) const TEXT: fn() -> (u8, Vec<Option<FlatbufferValue>>) = || (5, Vec::new());
pub(super) const BOOL: fn() -> (u8, Vec<Option<FlatbufferValue>>) = || (6, Vec::new());
pub(super) const LIST: fn() -> (u8, Vec<Option<FlatbufferValue>>) = || (12, Vec::new());

/// Returns a field of a dictionary with this number, of texts with 16-bit indices.
pub(super) fn dictionary_field(name: &str, id: i64) -> FlatbufferValue {
    let FlatbufferValue::Table(mut fields) = field(name, TEXT(), Vec::new()) else { panic!("a field is a table") };
    fields[4] =
        Some(FlatbufferValue::Table(vec![Some(FlatbufferValue::I64(id)), Some(FlatbufferValue::Table(int(16).1))]));
    FlatbufferValue::Table(fields)
}

/// Returns the table `Schema`.
pub(super) fn schema(fields: Vec<FlatbufferValue>) -> FlatbufferValue {
    FlatbufferValue::Table(vec![None, Some(FlatbufferValue::Tables(fields))])
}

/// The compression of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterCompression {
    Stored,
    Lz4,
    Zstd,
}

/// A record batch with its body.
#[derive(Clone, Debug)]
pub(super) struct WrittenBatch {
    pub(super) rows: i64,
    /// The length and the nulls of each node.
    pub(super) nodes: Vec<(i64, i64)>,
    /// The offset and the length of each buffer.
    pub(super) buffers: Vec<(i64, i64)>,
    pub(super) body: Vec<u8>,
    pub(super) compression: WriterCompression,
}

impl WrittenBatch {
    pub(super) fn new(
        rows: usize,
        nodes: Vec<(i64, i64)>,
        buffers: &[Vec<u8>],
        compression: WriterCompression,
    ) -> WrittenBatch {
        let mut batch = WrittenBatch { rows: rows as i64, nodes, buffers: Vec::new(), body: Vec::new(), compression };
        for buffer in buffers {
            let start = batch.body.len() as i64;
            let stored = compress(buffer, compression);
            batch.body.extend(&stored);
            batch.buffers.push((start, stored.len() as i64));
            align(&mut batch.body, 8);
        }
        batch
    }

    /// Returns the table `RecordBatch`.
    pub(super) fn table(&self) -> FlatbufferValue {
        let pairs = |pairs: &[(i64, i64)]| {
            let bytes = pairs.iter().flat_map(|(first, second)| [first.to_le_bytes(), second.to_le_bytes()].concat());
            FlatbufferValue::Structs(16, bytes.collect())
        };
        let codec = match self.compression {
            WriterCompression::Stored => None,
            WriterCompression::Lz4 => {
                Some(FlatbufferValue::Table(vec![Some(FlatbufferValue::U8(0)), Some(FlatbufferValue::U8(0))]))
            }
            WriterCompression::Zstd => {
                Some(FlatbufferValue::Table(vec![Some(FlatbufferValue::U8(1)), Some(FlatbufferValue::U8(0))]))
            }
        };
        FlatbufferValue::Table(vec![
            Some(FlatbufferValue::I64(self.rows)),
            Some(pairs(&self.nodes)),
            Some(pairs(&self.buffers)),
            codec,
        ])
    }
}

fn compress(buffer: &[u8], compression: WriterCompression) -> Vec<u8> {
    let content = match compression {
        WriterCompression::Stored => return buffer.to_vec(),
        _ if buffer.is_empty() => return Vec::new(),
        WriterCompression::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(buffer).unwrap();
            encoder.finish().unwrap()
        }
        WriterCompression::Zstd => {
            ruzstd::encoding::compress_to_vec(buffer, ruzstd::encoding::CompressionLevel::Fastest)
        }
    };
    [&(buffer.len() as i64).to_le_bytes(), content.as_slice()].concat()
}

/// A message: its kind, its table and its body.
pub(super) type Message = (u8, FlatbufferValue, Vec<u8>);

pub(super) fn batch_message(batch: &WrittenBatch) -> Message {
    (3, batch.table(), batch.body.clone())
}

/// Returns a batch of the dictionary with this number.
pub(super) fn dictionary_message(id: i64, batch: &WrittenBatch, is_delta: bool) -> Message {
    let table =
        vec![Some(FlatbufferValue::I64(id)), Some(batch.table()), Some(FlatbufferValue::U8(u8::from(is_delta)))];
    (2, FlatbufferValue::Table(table), batch.body.clone())
}

fn message_bytes((kind, table, body): &Message) -> (Vec<u8>, Vec<u8>) {
    let message = FlatbufferValue::Table(vec![
        Some(FlatbufferValue::I16(4)),
        Some(FlatbufferValue::U8(*kind)),
        Some(table.clone()),
        Some(FlatbufferValue::I64(body.len() as i64)),
    ]);
    let metadata = encode(&message);
    ([&[0xff; 4][..], &(metadata.len() as u32).to_le_bytes(), &metadata].concat(), body.clone())
}

/// Returns a stream of these messages.
pub(super) fn stream(schema: &FlatbufferValue, messages: &[Message]) -> Vec<u8> {
    let mut bytes = message_bytes(&(1, schema.clone(), Vec::new())).0;
    for message in messages {
        let (metadata, body) = message_bytes(message);
        bytes.extend(metadata);
        bytes.extend(body);
    }
    bytes.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    bytes
}

/// Returns a file of these messages.
pub(super) fn file(schema: &FlatbufferValue, messages: &[Message]) -> Vec<u8> {
    let mut bytes = b"ARROW1\0\0".to_vec();
    let mut blocks = [Vec::new(), Vec::new()];
    for message in messages {
        let (metadata, body) = message_bytes(message);
        let block = [bytes.len() as i64, metadata.len() as i64, body.len() as i64];
        blocks[usize::from(message.0 == 3)].extend(block.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(metadata);
        bytes.extend(body);
    }
    let [dictionaries, batches] = blocks.map(|bytes| FlatbufferValue::Structs(24, bytes));
    with_footer(
        bytes,
        &FlatbufferValue::Table(vec![
            Some(FlatbufferValue::I16(4)),
            Some(schema.clone()),
            Some(dictionaries),
            Some(batches),
        ]),
    )
}

/// Returns a file of these bytes before its footer.
pub(super) fn with_footer(mut bytes: Vec<u8>, footer: &FlatbufferValue) -> Vec<u8> {
    let footer = encode(footer);
    bytes.extend(&footer);
    bytes.extend((footer.len() as u32).to_le_bytes());
    bytes.extend(b"ARROW1");
    bytes
}
