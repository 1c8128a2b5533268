//! Parses page headers.

use parquet::basic::Encoding;

use super::thrift::{CompactReader, ThriftField, ThriftResult};

/// `PageHeader`.
#[derive(Debug)]
pub(super) struct PageHeader {
    /// Bytes of the page in the file (compressed); the decompressed size follows.
    pub(super) compressed: usize,
    pub(super) expanded: usize,
    /// The checksum of the page as stored in the file.
    pub(super) crc: Option<u32>,
    pub(super) kind: PageKind,
}

/// The content of a page.
#[derive(Clone, Copy, Debug)]
pub(super) enum PageKind {
    /// Version 1 data: values after their levels. `levels` are the encodings of definition and repetition levels.
    Data { values: u32, encoding: Encoding, levels: (Encoding, Encoding) },
    /// Version 2 data: values after their levels, which are never compressed and have these lengths.
    DataV2 { values: u32, nulls: u32, rows: u32, encoding: Encoding, defined: u32, repeated: u32, compressed: bool },
    /// The values that other pages refer to.
    Dictionary { values: u32, encoding: Encoding },
    /// A page that is not needed.
    Index,
}

/// The fields of all three kinds of headers, before the kind is known.
#[derive(Default)]
struct PageHeaderFields {
    /// Numbers by their field in the structure.
    numbers: [Option<i32>; 8],
    compressed: Option<bool>,
}

/// Parses the header at the beginning of these bytes, and returns it with its length.
pub(super) fn parse(bytes: &[u8]) -> ThriftResult<(PageHeader, usize)> {
    let mut reader = CompactReader::new(bytes);
    let (mut outer, mut data, mut dictionary, mut data_v2) = (PageHeaderFields::default(), None, None, None);
    reader.read_struct(|reader, field| {
        match field.id {
            1..=4 => outer.read_number(reader, field)?,
            5 => data = Some(parse_fields(reader, field, 4)?),
            7 => dictionary = Some(parse_fields(reader, field, 2)?),
            8 => data_v2 = Some(parse_fields(reader, field, 6)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let kind = match (outer.signed(1)?, data, dictionary, data_v2) {
        (0, Some(it), _, _) => PageKind::Data {
            values: it.count(1)?,
            encoding: it.encoding(2)?,
            levels: (it.encoding(3)?, it.encoding(4)?),
        },
        (1, ..) => PageKind::Index,
        (2, _, Some(it), _) => PageKind::Dictionary { values: it.count(1)?, encoding: it.encoding(2)? },
        (3, _, _, Some(it)) => PageKind::DataV2 {
            values: it.count(1)?,
            nulls: it.count(2)?,
            rows: it.count(3)?,
            encoding: it.encoding(4)?,
            defined: it.count(5)?,
            repeated: it.count(6)?,
            compressed: it.compressed.unwrap_or(true),
        },
        (kind, ..) => return Err(format!("no page's header: kind {kind} without its fields")),
    };
    let header = PageHeader {
        expanded: outer.count(2)? as usize,
        compressed: outer.count(3)? as usize,
        crc: outer.numbers[4].map(|crc| crc as u32),
        kind,
    };
    Ok((header, reader.position()))
}

/// Returns the integer fields of a nested structure, up to field `last`.
fn parse_fields(reader: &mut CompactReader<'_>, field: ThriftField, last: i16) -> ThriftResult<PageHeaderFields> {
    let mut parts = PageHeaderFields::default();
    reader.read_nested_struct(field, |reader, field| {
        match field.id {
            id if id <= last => parts.read_number(reader, field)?,
            7 => parts.compressed = Some(reader.bool(field)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(parts)
}

impl PageHeaderFields {
    fn read_number(&mut self, reader: &mut CompactReader<'_>, field: ThriftField) -> ThriftResult<()> {
        let number = reader.i32(field)?;
        if let Some(place) = usize::try_from(field.id).ok().and_then(|at| self.numbers.get_mut(at)) {
            *place = Some(number);
        }
        Ok(())
    }

    fn signed(&self, at: usize) -> ThriftResult<i32> {
        self.numbers[at].ok_or_else(|| format!("its header lacks field {at}"))
    }

    fn count(&self, at: usize) -> ThriftResult<u32> {
        u32::try_from(self.signed(at)?).map_err(|_| format!("field {at} of its header is negative"))
    }

    fn encoding(&self, at: usize) -> ThriftResult<Encoding> {
        #[expect(deprecated, reason = "pages say it of levels that they do not have")]
        let packed = Encoding::BIT_PACKED;
        Ok(match self.signed(at)? {
            0 => Encoding::PLAIN,
            2 => Encoding::PLAIN_DICTIONARY,
            3 => Encoding::RLE,
            4 => packed,
            5 => Encoding::DELTA_BINARY_PACKED,
            6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            7 => Encoding::DELTA_BYTE_ARRAY,
            8 => Encoding::RLE_DICTIONARY,
            9 => Encoding::BYTE_STREAM_SPLIT,
            other => return Err(format!("an encoding {other}, which is unknown here")),
        })
    }
}

/// Returns the number of values in delta-encoded data, which is the third number of its header.
pub(super) fn delta_value_count(bytes: &[u8]) -> Option<u64> {
    let mut bytes = bytes.iter();
    let mut number = || {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *bytes.next()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    };
    number()?;
    number()?;
    number()
}
