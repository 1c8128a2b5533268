//! The header of a page.

use parquet::basic::Encoding;

use super::thrift::{Field, Reader, Result};

/// `PageHeader`.
#[derive(Debug)]
pub(super) struct Header {
    /// Bytes of the page as it lies in the file, and expanded.
    pub(super) compressed: usize,
    pub(super) expanded: usize,
    /// The checksum of the page as it lies in the file.
    pub(super) crc: Option<u32>,
    pub(super) kind: Kind,
}

/// What a page holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Values, after their levels, whose encodings are those of definition and repetition.
    Data { values: u32, encoding: Encoding, levels: (Encoding, Encoding) },
    /// Values, after their levels, which are never compressed and have these lengths.
    DataV2 { values: u32, nulls: u32, rows: u32, encoding: Encoding, defined: u32, repeated: u32, compressed: bool },
    /// The values that other pages refer to.
    Dictionary { values: u32, encoding: Encoding },
    /// Nothing that is needed.
    Index,
}

/// The fields of all three kinds of headers, before it is known which one it is.
#[derive(Default)]
struct Parts {
    /// Numbers by the place that they have in their structure.
    numbers: [Option<i32>; 8],
    compressed: Option<bool>,
}

/// Reads the header that these bytes begin with, and says how long it is.
pub(super) fn parse(bytes: &[u8]) -> Result<(Header, usize)> {
    let mut reader = Reader::new(bytes);
    let (mut outer, mut data, mut dictionary, mut data_v2) = (Parts::default(), None, None, None);
    reader.structure(|reader, field| {
        match field.id {
            1..=4 => outer.number(reader, field)?,
            5 => data = Some(parts(reader, field, 4)?),
            7 => dictionary = Some(parts(reader, field, 2)?),
            8 => data_v2 = Some(parts(reader, field, 6)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let kind = match (outer.signed(1)?, data, dictionary, data_v2) {
        (0, Some(it), _, _) => {
            Kind::Data { values: it.count(1)?, encoding: it.encoding(2)?, levels: (it.encoding(3)?, it.encoding(4)?) }
        }
        (1, ..) => Kind::Index,
        (2, _, Some(it), _) => Kind::Dictionary { values: it.count(1)?, encoding: it.encoding(2)? },
        (3, _, _, Some(it)) => Kind::DataV2 {
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
    let header = Header {
        expanded: outer.count(2)? as usize,
        compressed: outer.count(3)? as usize,
        crc: outer.numbers[4].map(|crc| crc as u32),
        kind,
    };
    Ok((header, reader.position()))
}

/// The numbers up to this field of a structure within the header.
fn parts(reader: &mut Reader<'_>, field: Field, last: i16) -> Result<Parts> {
    let mut parts = Parts::default();
    reader.inner(field, |reader, field| {
        match field.id {
            id if id <= last => parts.number(reader, field)?,
            7 => parts.compressed = Some(reader.bool(field)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(parts)
}

impl Parts {
    fn number(&mut self, reader: &mut Reader<'_>, field: Field) -> Result<()> {
        let number = reader.i32(field)?;
        if let Some(place) = usize::try_from(field.id).ok().and_then(|at| self.numbers.get_mut(at)) {
            *place = Some(number);
        }
        Ok(())
    }

    fn signed(&self, at: usize) -> Result<i32> {
        self.numbers[at].ok_or_else(|| format!("its header lacks field {at}"))
    }

    fn count(&self, at: usize) -> Result<u32> {
        u32::try_from(self.signed(at)?).map_err(|_| format!("field {at} of its header is negative"))
    }

    fn encoding(&self, at: usize) -> Result<Encoding> {
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

/// How many values deltas say that they are: the third number of their header.
pub(super) fn delta_values(bytes: &[u8]) -> Option<u64> {
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
