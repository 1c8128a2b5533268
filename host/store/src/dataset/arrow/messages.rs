//! The messages of an Arrow file: metadata, and the place of the buffers that it describes.
//!
//! A file is in the file format, whose footer lists the messages, or in the stream format, in which they follow each
//! other. Everything is untrusted: the bytes of a message are compared with the file's length before they are read.
//! Source: Apache Arrow, `docs/source/format/Columnar.rst`, `format/File.fbs` and `format/Message.fbs`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::super::table::ColumnResult;
use super::flatbuffer::{FlatTable, FlatVector};
use super::schema::{ArrowSchema, METADATA_V5};
use crate::limits::ARROW_METADATA_BYTES_MAX;

const MAGIC: &[u8] = b"ARROW1";
/// Bytes before the first message in the file format.
const HEAD: u64 = 8;
/// Bytes of the footer's length and of the magic bytes after it.
const TAIL: u64 = 10;
/// Marks the length of a message's metadata; earlier versions wrote the length alone.
const CONTINUATION: u32 = u32::MAX;
/// Bytes of the structure `Block` in a footer.
const BLOCK_BYTES: usize = 24;
/// The earliest metadata version that is read, V4.
const VERSION_MIN: i16 = METADATA_V5 - 1;

/// The kinds of messages that are read, by their number in the union `MessageHeader`.
const SCHEMA: u8 = 1;
const DICTIONARY: u8 = 2;
const BATCH: u8 = 3;

/// A message: its metadata, and its buffers' place in the file.
pub(super) struct ArrowMessage {
    metadata: Vec<u8>,
    pub(super) body: FileRange,
}

/// A range of bytes of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileRange {
    pub(super) start: u64,
    pub(super) bytes: u64,
}

/// The content of a message.
pub(super) enum MessageContent<'a> {
    /// The table `DictionaryBatch`.
    Dictionary(FlatTable<'a>),
    /// The table `RecordBatch`.
    Batch(FlatTable<'a>),
}

impl ArrowMessage {
    /// Returns the kind of the message and its table.
    fn header(&self) -> ColumnResult<(u8, FlatTable<'_>)> {
        let message = FlatTable::root(&self.metadata)?;
        let header = message.table(2)?.ok_or("a message without content")?;
        Ok((message.u8(1, 0)?, header))
    }

    /// Returns the content of a message after the schema.
    pub(super) fn content(&self) -> ColumnResult<MessageContent<'_>> {
        match self.header()? {
            (DICTIONARY, table) => Ok(MessageContent::Dictionary(table)),
            (BATCH, table) => Ok(MessageContent::Batch(table)),
            (SCHEMA, _) => Err("it has a second schema; write one table in a file".to_owned()),
            _ => Err("it has tensors; write a table".to_owned()),
        }
    }
}

/// The remaining messages of a file, dictionaries and record batches.
pub(super) struct MessageReader<'f> {
    file: &'f File,
    /// The end of the messages in the file.
    end: u64,
    source: MessageSource,
}

enum MessageSource {
    /// The file format: the messages that the footer lists, dictionaries first; the second number is the next one.
    Footer(Vec<MessagePlace>, usize),
    /// The stream format: the offset of the next message.
    Stream(u64),
}

/// The place of a message in the file format.
#[derive(Clone, Copy)]
struct MessagePlace {
    start: u64,
    metadata: u32,
    body: u64,
}

impl<'f> MessageReader<'f> {
    /// Reads the schema of a file with `length` bytes.
    pub(super) fn open(file: &'f File, length: u64) -> ColumnResult<(MessageReader<'f>, ArrowSchema)> {
        let mut head = [0; HEAD as usize];
        let bytes = length.min(HEAD) as usize;
        read_at(file, &mut head[..bytes], 0)?;
        match head {
            _ if bytes < head.len() => {
                Err(format!("it has {length} bytes, which is no Arrow file; is the copy finished?"))
            }
            head if head.starts_with(MAGIC) => MessageReader::open_file(file, length),
            head if head.starts_with(b"FEA1") => {
                Err("it is in version 1 of Feather; write version 2 with `pyarrow.feather.write_feather`".to_owned())
            }
            head if head.starts_with(b"PAR1") => Err("it is a Parquet file; rename it to NAME.parquet".to_owned()),
            // Earlier versions wrote a length without a mark before it.
            [a, b, c, d, ..] => match u32::from_le_bytes([a, b, c, d]) {
                bytes if bytes != CONTINUATION && u64::from(bytes) > length => {
                    Err("it begins neither with ARROW1 nor with a message, as Arrow files do".to_owned())
                }
                _ => MessageReader::open_stream(file, length),
            },
        }
    }

    fn open_file(file: &'f File, length: u64) -> ColumnResult<(MessageReader<'f>, ArrowSchema)> {
        let least = HEAD + TAIL;
        let mut tail = [0; TAIL as usize];
        if length < least {
            return Err(format!(
                "it has {length} bytes, and an Arrow file has {least} at least; is the copy finished?"
            ));
        }
        read_at(file, &mut tail, length - TAIL)?;
        let (bytes, magic) = tail.split_at(4);
        if magic != MAGIC {
            return Err("it does not end with ARROW1 as Arrow files do; is the copy finished?".to_owned());
        }
        let bytes = bytes.iter().rev().fold(0u64, |bytes, byte| bytes << 8 | u64::from(*byte));
        if bytes > length - least {
            return Err(format!("its footer would have {bytes} bytes, and the file has {length}; is it damaged?"));
        }
        check_metadata_size(bytes)?;
        let end = length - TAIL - bytes;
        let mut footer = vec![0; bytes as usize];
        read_at(file, &mut footer, end)?;
        let footer = FlatTable::root(&footer)?;
        let version = check_version(footer)?;
        let schema = ArrowSchema::parse(footer.table(1)?.ok_or("its footer has no schema")?, version)?;
        let (dictionaries, batches) = (footer.elements(2, BLOCK_BYTES)?, footer.elements(3, BLOCK_BYTES)?);
        let mut places = Vec::with_capacity(dictionaries.len() + batches.len());
        for blocks in [dictionaries, batches] {
            for at in 0..blocks.len() {
                places.push(message_place(blocks, at, end)?);
            }
        }
        Ok((MessageReader { file, end, source: MessageSource::Footer(places, 0) }, schema))
    }

    fn open_stream(file: &'f File, length: u64) -> ColumnResult<(MessageReader<'f>, ArrowSchema)> {
        let mut reader = MessageReader { file, end: length, source: MessageSource::Stream(0) };
        let first = reader.next_message()?.ok_or("its stream begins with its end")?;
        let version = check_version(FlatTable::root(&first.metadata)?)?;
        match first.header()? {
            (SCHEMA, schema) => Ok((reader, ArrowSchema::parse(schema, version)?)),
            _ => Err("its stream does not begin with a schema".to_owned()),
        }
    }

    /// Returns whether a dictionary can be replaced by a later one.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.source, MessageSource::Stream(_))
    }

    /// Returns the next message, or `None` at the end.
    pub(super) fn next_message(&mut self) -> ColumnResult<Option<ArrowMessage>> {
        match &mut self.source {
            MessageSource::Footer(places, next) => {
                let Some(place) = places.get(*next).copied() else { return Ok(None) };
                *next += 1;
                self.read_listed(place).map(Some)
            }
            MessageSource::Stream(at) => {
                let start = *at;
                let read = self.read_streamed(start)?;
                if let (Some(message), MessageSource::Stream(at)) = (&read, &mut self.source) {
                    *at = message.body.start + message.body.bytes;
                }
                Ok(read)
            }
        }
    }

    /// Reads a message that the footer lists.
    fn read_listed(&self, place: MessagePlace) -> ColumnResult<ArrowMessage> {
        let start = place.start;
        let (prefix, bytes) = self.metadata_length(start)?;
        let body = start + u64::from(place.metadata);
        if start + prefix + bytes > body {
            let claim = format!("metadata of {bytes} bytes, and its footer says {}", place.metadata);
            return Err(format!("its message at byte {start} has {claim}; is the file damaged?"));
        }
        let message = self.read_message(start + prefix, bytes, body)?;
        if message.body.bytes != place.body {
            let claim = format!("{} bytes, and its footer says {}", message.body.bytes, place.body);
            return Err(format!("its message at byte {start} has buffers of {claim}; is the file damaged?"));
        }
        Ok(message)
    }

    /// Reads the message at an offset of a stream, or returns `None` at the end.
    fn read_streamed(&self, start: u64) -> ColumnResult<Option<ArrowMessage>> {
        // The mark of the end can be missing.
        if start == self.end {
            return Ok(None);
        }
        let (prefix, bytes) = self.metadata_length(start)?;
        if bytes == 0 {
            return match self.end - start - prefix {
                0 => Ok(None),
                left => Err(format!("{left} bytes follow the end of its stream; write one table in a file")),
            };
        }
        self.read_message(start + prefix, bytes, start + prefix + bytes).map(Some)
    }

    /// Returns the bytes before the metadata of a message, and those of the metadata.
    fn metadata_length(&self, start: u64) -> ColumnResult<(u64, u64)> {
        let mut number = [0; 4];
        let mut read = |at| {
            self.check_end(start, at, number.len() as u64)?;
            read_at(self.file, &mut number, at)?;
            Ok::<_, String>(u32::from_le_bytes(number))
        };
        let (prefix, bytes) = match read(start)? {
            CONTINUATION => (8, read(start + 4)?),
            bytes => (4, bytes),
        };
        check_metadata_size(bytes.into())?;
        self.check_end(start, start + prefix, bytes.into())?;
        Ok((prefix, bytes.into()))
    }

    /// Reads metadata of `bytes` bytes at `start`, and checks the place of the buffers, which begin at `body`.
    fn read_message(&self, start: u64, bytes: u64, body: u64) -> ColumnResult<ArrowMessage> {
        let mut metadata = vec![0; bytes as usize];
        read_at(self.file, &mut metadata, start)?;
        let message = FlatTable::root(&metadata)?;
        check_version(message)?;
        let body = FileRange { start: body, bytes: message.count(3)? };
        self.check_end(start, body.start, body.bytes)?;
        Ok(ArrowMessage { metadata, body })
    }

    /// Refuses bytes that extend past the end of the messages. `message` is the offset of their message.
    fn check_end(&self, message: u64, start: u64, bytes: u64) -> ColumnResult<()> {
        match start.checked_add(bytes) {
            Some(end) if end <= self.end => Ok(()),
            Some(_) | None => Err(format!("its message at byte {message} extends past the end; is the copy finished?")),
        }
    }
}

/// Returns the place of a message from a structure `Block` of the footer.
fn message_place(blocks: FlatVector<'_>, at: usize, end: u64) -> ColumnResult<MessagePlace> {
    let number = |offset| blocks.i64_at(at, offset).and_then(|number| u64::try_from(number).ok());
    let metadata = blocks.element(at).and_then(|block| block.get(8..)?.first_chunk());
    let metadata = metadata.map(|bytes| u32::from_le_bytes(*bytes));
    let place = || {
        let (start, metadata, body) = (number(0)?, metadata?, number(16)?);
        let last = start.checked_add(metadata.into())?.checked_add(body)?;
        (start >= HEAD && last <= end).then_some(MessagePlace { start, metadata, body })
    };
    place().ok_or_else(|| format!("its footer: message {at} does not lie before the footer; is the file damaged?"))
}

/// Returns the metadata version, the first field of messages and footers.
fn check_version(table: FlatTable<'_>) -> ColumnResult<i16> {
    match table.i16(0, 0)? {
        version @ VERSION_MIN..=METADATA_V5 => Ok(version),
        version => {
            let found = i32::from(version) + 1;
            Err(format!(
                "it is in version {found} of Arrow's format, and 4 and 5 are read; write it by a newer library"
            ))
        }
    }
}

fn check_metadata_size(bytes: u64) -> ColumnResult<()> {
    match bytes <= ARROW_METADATA_BYTES_MAX {
        true => Ok(()),
        false => Err(format!(
            "its metadata would have {bytes} bytes, and at most {ARROW_METADATA_BYTES_MAX} are read; write fewer, larger \
             record batches"
        )),
    }
}

fn read_at(file: &File, bytes: &mut [u8], at: u64) -> ColumnResult<()> {
    file.read_exact_at(bytes, at).map_err(|error| error.to_string())
}
