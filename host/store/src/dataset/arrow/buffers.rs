//! Reads the buffers of a record batch piece by piece, decompressed, so that their sizes do not matter to memory.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

use lz4_flex::frame::FrameDecoder;
use ruzstd::decoding::StreamingDecoder;

use super::super::table::ColumnResult;
use super::messages::FileRange;
use crate::limits::{ARROW_EXPANSION_MAX, ARROW_WINDOW_BYTES_MAX, INGEST_EXPANSION_UNCHECKED_BYTES};

/// Bytes that are read from the file at once.
const PIECE_BYTES: u64 = 64 << 10;

/// The compression of a batch's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferCodec {
    Lz4Frame,
    Zstd,
}

/// Counts the decompressed bytes over all files, so that a small file cannot demand much work.
pub(super) struct DecodeBudget {
    left: u64,
}

impl DecodeBudget {
    pub(super) fn new() -> DecodeBudget {
        DecodeBudget { left: INGEST_EXPANSION_UNCHECKED_BYTES }
    }

    /// Adds what a file of this length may expand to.
    pub(super) fn add_file(&mut self, length: u64) {
        self.left = self.left.saturating_add(length.saturating_mul(ARROW_EXPANSION_MAX));
    }

    fn charge(&mut self, bytes: u64) -> ColumnResult<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            format!("its buffers would expand to more than {ARROW_EXPANSION_MAX} times the file; is it damaged?")
        })?;
        Ok(())
    }
}

/// The bytes of a buffer that are still to be read.
pub(super) struct BufferReader<'f> {
    reader: Box<dyn Read + 'f>,
    left: u64,
}

impl<'f> BufferReader<'f> {
    /// Opens the buffer in this range of the file.
    pub(super) fn open(
        file: &'f File,
        range: FileRange,
        codec: Option<BufferCodec>,
        budget: &mut DecodeBudget,
    ) -> ColumnResult<BufferReader<'f>> {
        let FileRange { start, bytes } = range;
        if bytes == 0 {
            return Ok(BufferReader { reader: Box::new(io::empty()), left: 0 });
        }
        let Some(codec) = codec else { return BufferReader::stored(file, range, budget) };
        let mut length = [0; 8];
        if bytes < length.len() as u64 {
            return Err(format!("a compressed buffer of {bytes} bytes"));
        }
        file.read_exact_at(&mut length, start).map_err(|error| error.to_string())?;
        let rest = FileRange { start: start + length.len() as u64, bytes: bytes - length.len() as u64 };
        // Buffers that compression would not make smaller are stored.
        let expanded = match i64::from_le_bytes(length) {
            -1 => return BufferReader::stored(file, rest, budget),
            expanded => u64::try_from(expanded).map_err(|_| format!("a buffer that expands to {expanded} bytes"))?,
        };
        budget.charge(expanded)?;
        let source = FileSection::buffered(file, rest);
        let reader: Box<dyn Read + 'f> = match codec {
            BufferCodec::Lz4Frame => Box::new(FrameDecoder::new(source)),
            BufferCodec::Zstd => {
                let decoder = StreamingDecoder::new_with_max_window_size(source, ARROW_WINDOW_BYTES_MAX);
                Box::new(decoder.map_err(|error| error.to_string())?)
            }
        };
        Ok(BufferReader { reader, left: expanded })
    }

    fn stored(file: &'f File, range: FileRange, budget: &mut DecodeBudget) -> ColumnResult<BufferReader<'f>> {
        budget.charge(range.bytes)?;
        Ok(BufferReader { reader: Box::new(FileSection::buffered(file, range)), left: range.bytes })
    }

    /// Returns the number of bytes that are left, as the file states it.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Reads the next bytes.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) -> ColumnResult<()> {
        let ends_early = || "its buffers end early; is the file damaged?".to_owned();
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(ends_early)?;
        self.reader.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ends_early(),
            _ => format!("its buffers cannot be decompressed: {error}"),
        })
    }

    /// Skips the next bytes.
    pub(super) fn skip(&mut self, mut bytes: u64) -> ColumnResult<()> {
        let mut piece = [0; 4096];
        while bytes > 0 {
            let next = bytes.min(piece.len() as u64);
            self.fill(&mut piece[..next as usize])?;
            bytes -= next;
        }
        Ok(())
    }
}

/// A range of a file.
struct FileSection<'f> {
    file: &'f File,
    at: u64,
    left: u64,
}

impl<'f> FileSection<'f> {
    fn buffered(file: &'f File, range: FileRange) -> BufReader<FileSection<'f>> {
        let section = FileSection { file, at: range.start, left: range.bytes };
        BufReader::with_capacity(range.bytes.min(PIECE_BYTES) as usize, section)
    }
}

impl Read for FileSection<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.left.min(buffer.len() as u64) as usize;
        let read = self.file.read_at(&mut buffer[..bytes], self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

/// The bits of a bitmap that are still to be read.
pub(super) struct BitReader<'f> {
    reader: BufferReader<'f>,
    byte: u8,
    /// Bits of the byte that were read.
    used: u8,
}

impl<'f> BitReader<'f> {
    pub(super) fn new(reader: BufferReader<'f>) -> BitReader<'f> {
        BitReader { reader, byte: 0, used: 8 }
    }

    /// Replaces `bits` by the next `count` bits, each as 0 or 1.
    pub(super) fn fill(&mut self, count: usize, bits: &mut Vec<u8>) -> ColumnResult<()> {
        bits.clear();
        while bits.len() < count {
            if self.used == 8 {
                let mut byte = [0];
                self.reader.fill(&mut byte)?;
                (self.byte, self.used) = (byte[0], 0);
            }
            let bits_left = usize::from(8 - self.used).min(count - bits.len()) as u8;
            bits.extend((self.used..self.used + bits_left).map(|bit| self.byte >> bit & 1));
            self.used += bits_left;
        }
        Ok(())
    }

    /// Skips the next bits.
    pub(super) fn skip(&mut self, bits: u64) -> ColumnResult<()> {
        let from_byte = bits.min(u64::from(8 - self.used));
        self.used += from_byte as u8;
        let bits = bits - from_byte;
        self.reader.skip(bits / 8)?;
        self.fill((bits % 8) as usize, &mut Vec::new())
    }
}
