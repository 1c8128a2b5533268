//! Reads, limits and decompresses the pages of a column in a row group, for a decoder that trusts its input.
//!
//! The decoder allocates memory for the number of values in a header, and expects pages in the right order, so both are
//! checked here. No page is decompressed beyond its stated size, which is limited. Source: Apache Parquet,
//! `parquet.thrift`, `Encodings.md` and `Compression.md`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flate2::Crc;
use flate2::read::MultiGzDecoder;
use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use ruzstd::decoding::StreamingDecoder;

use super::footer::ColumnChunk;
use super::header::{self, PageHeader, PageKind};
use super::schema::LeafColumn;
use super::thrift::ThriftResult;
use crate::limits::{
    PARQUET_DICTIONARY_VALUES_MAX, PARQUET_PAGE_BYTES_MAX, PARQUET_PAGE_HEADER_BYTES_MAX, PARQUET_PAGE_VALUES_MAX,
    PARQUET_VALUES_HELD_MAX,
};

/// Bytes of the first read of a page's header, which is usually shorter.
const HEADER_BYTES: u64 = 1 << 10;

/// The remaining pages of a column in a row group.
pub(super) struct BoundedPageReader {
    file: File,
    physical: Physical,
    length: usize,
    /// Whether values are preceded by definition levels, and by repetition levels.
    levels: (bool, bool),
    chunk: ColumnChunk,
    /// The offset of the next page.
    at: u64,
    /// The number of values that remaining data pages can have.
    values: u64,
    /// Values in pages of lists passed to the decoder since it last returned rows. The reader of rows resets it.
    gathered: Arc<AtomicU64>,
    has_dictionary: bool,
}

impl BoundedPageReader {
    pub(super) fn new(
        file: &File,
        leaf: &LeafColumn,
        chunk: &ColumnChunk,
        gathered: Arc<AtomicU64>,
    ) -> ThriftResult<BoundedPageReader> {
        Ok(BoundedPageReader {
            file: file.try_clone().map_err(|error| error.to_string())?,
            physical: leaf.physical,
            length: leaf.length,
            levels: (leaf.defined > 0, leaf.list.is_some()),
            chunk: chunk.clone(),
            at: chunk.start,
            values: chunk.values,
            gathered,
            has_dictionary: false,
        })
    }

    fn next_page(&mut self) -> ThriftResult<Option<Page>> {
        while self.at < self.chunk.end {
            let at = self.at;
            let page = self.read_page().map_err(|reason| format!("its page at byte {at}: {reason}"))?;
            if page.is_some() {
                return Ok(page);
            }
        }
        match self.values {
            0 => Ok(None),
            left => Err(format!("its pages end {left} values early")),
        }
    }

    /// Reads the next page. Returns `None` if it is of a kind that is skipped.
    fn read_page(&mut self) -> ThriftResult<Option<Page>> {
        let header = self.read_header()?;
        if header.expanded > PARQUET_PAGE_BYTES_MAX || header.compressed > PARQUET_PAGE_BYTES_MAX {
            return Err(format!("more than {PARQUET_PAGE_BYTES_MAX} bytes; write smaller pages"));
        }
        let end = self.at + header.compressed as u64;
        if end > self.chunk.end {
            return Err("it extends past the column's end".to_owned());
        }
        let mut bytes = vec![0; header.compressed];
        self.file.read_exact_at(&mut bytes, self.at).map_err(|error| error.to_string())?;
        self.at = end;
        if let Some(expected) = header.crc {
            let mut crc = Crc::new();
            crc.update(&bytes);
            if crc.sum() != expected {
                return Err(format!("its checksum is {:#010x}, and should be {expected:#010x}", crc.sum()));
            }
        }
        match header.kind {
            // The decoder treats a page without values as the last one.
            PageKind::Index | PageKind::Data { values: 0, .. } | PageKind::DataV2 { values: 0, .. } => Ok(None),
            PageKind::Dictionary { .. } => self.read_dictionary_page(&header, &bytes).map(Some),
            PageKind::Data { .. } | PageKind::DataV2 { .. } => self.read_data_page(&header, bytes).map(Some),
        }
    }

    /// Reads the next page's header and advances to the page's content.
    fn read_header(&mut self) -> ThriftResult<PageHeader> {
        let left = self.chunk.end - self.at;
        let mut window = HEADER_BYTES;
        loop {
            let mut bytes = vec![0; window.min(left) as usize];
            self.file.read_exact_at(&mut bytes, self.at).map_err(|error| error.to_string())?;
            match header::parse(&bytes) {
                Ok((header, length)) => {
                    self.at += length as u64;
                    return Ok(header);
                }
                Err(_) if window < left.min(PARQUET_PAGE_HEADER_BYTES_MAX) => window <<= 5,
                Err(reason) => return Err(reason),
            }
        }
    }

    fn read_dictionary_page(&mut self, header: &PageHeader, bytes: &[u8]) -> ThriftResult<Page> {
        let PageKind::Dictionary { values, encoding } = header.kind else { return Err("no dictionary".to_owned()) };
        if self.has_dictionary || self.values < self.chunk.values {
            return Err("a dictionary that is not the first page".to_owned());
        }
        if ![Encoding::PLAIN, Encoding::PLAIN_DICTIONARY].contains(&encoding) {
            return Err(format!("a dictionary in the encoding {encoding}; PLAIN is read"));
        }
        let least = match self.physical {
            Physical::BOOLEAN => return Err("a dictionary of truth values, which Parquet does not have".to_owned()),
            Physical::INT32 | Physical::FLOAT | Physical::BYTE_ARRAY => 4,
            Physical::INT64 | Physical::DOUBLE => 8,
            Physical::INT96 => 12,
            Physical::FIXED_LEN_BYTE_ARRAY => self.length,
        };
        if values > PARQUET_DICTIONARY_VALUES_MAX {
            return Err(format!(
                "a dictionary of more than {PARQUET_DICTIONARY_VALUES_MAX} values; write it without one"
            ));
        }
        if values as usize > header.expanded / least {
            return Err(format!("a dictionary of {values} values in {} bytes", header.expanded));
        }
        self.has_dictionary = true;
        let buf = decompress_page(self.chunk.codec, bytes, header.expanded)?.into();
        Ok(Page::DictionaryPage { buf, num_values: values, encoding, is_sorted: false })
    }

    fn read_data_page(&mut self, header: &PageHeader, mut bytes: Vec<u8>) -> ThriftResult<Page> {
        let (values, encoding) = match header.kind {
            PageKind::Data { values, encoding, .. } | PageKind::DataV2 { values, encoding, .. } => (values, encoding),
            PageKind::Dictionary { .. } | PageKind::Index => return Err("no data".to_owned()),
        };
        if u64::from(values) > self.values {
            let all = self.chunk.values;
            return Err(format!("more values than the {all} that its column has in the row group"));
        }
        if values > PARQUET_PAGE_VALUES_MAX {
            return Err(format!("more than {PARQUET_PAGE_VALUES_MAX} values; write smaller pages"));
        }
        self.reserve_values(values)?;
        self.values -= u64::from(values);
        let codec = self.chunk.codec;
        let (page, skipped) = match header.kind {
            PageKind::DataV2 { nulls, rows, defined, repeated, compressed, .. } => {
                let skipped = (defined as usize).saturating_add(repeated as usize);
                if skipped > bytes.len().min(header.expanded) || nulls > values {
                    return Err("its levels are longer than it, or it has more nulls than values".to_owned());
                }
                let codec = if compressed { codec } else { 0 };
                let rest = decompress_page(codec, &bytes[skipped..], header.expanded - skipped)?;
                bytes.truncate(skipped);
                bytes.extend(rest);
                let page = Page::DataPageV2 {
                    buf: bytes.into(),
                    num_values: values,
                    encoding,
                    num_nulls: nulls,
                    num_rows: rows,
                    def_levels_byte_len: defined,
                    rep_levels_byte_len: repeated,
                    is_compressed: false,
                    statistics: None,
                };
                (page, skipped)
            }
            _ => {
                let buf: Bytes = decompress_page(codec, &bytes, header.expanded)?.into();
                let skipped = self.level_bytes(header, &buf)?;
                let page = Page::DataPage {
                    buf,
                    num_values: values,
                    encoding,
                    def_level_encoding: Encoding::RLE,
                    rep_level_encoding: Encoding::RLE,
                    statistics: None,
                };
                (page, skipped)
            }
        };
        self.check_encoding(encoding, values, &page.buffer()[skipped..])?;
        Ok(page)
    }

    /// Refuses a page with which the decoder would hold too many values. The decoder returns a row only after it has
    /// seen the next one begin, and levels can make a single list span all pages.
    fn reserve_values(&self, values: u32) -> ThriftResult<()> {
        let (_, are_lists) = self.levels;
        let gathered = self.gathered.fetch_add(values.into(), Ordering::Relaxed) + u64::from(values);
        if are_lists && gathered > PARQUET_VALUES_HELD_MAX.into() {
            return Err(format!(
                "lists of more than {PARQUET_VALUES_HELD_MAX} values that no page ends within; write smaller row groups"
            ));
        }
        Ok(())
    }

    /// Returns the number of bytes of the levels before the values.
    fn level_bytes(&self, header: &PageHeader, bytes: &[u8]) -> ThriftResult<usize> {
        let PageKind::Data { levels: (defined, repeated), .. } = header.kind else { return Ok(0) };
        let mut at = 0usize;
        for (there, encoding) in [(self.levels.1, repeated), (self.levels.0, defined)] {
            if !there {
                continue;
            }
            if encoding != Encoding::RLE {
                return Err(format!("levels in the encoding {encoding}; RLE is read"));
            }
            let length = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).map(|it| u32::from_le_bytes(*it));
            let end = length.and_then(|length| at.checked_add(4)?.checked_add(length as usize));
            at = end.filter(|end| *end <= bytes.len()).ok_or("its levels are longer than it")?;
        }
        Ok(at)
    }

    /// Refuses unsupported encodings, and values that would make a decoder allocate too much.
    fn check_encoding(&self, encoding: Encoding, values: u32, bytes: &[u8]) -> ThriftResult<()> {
        match encoding {
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY if !self.has_dictionary => {
                Err("it refers to a dictionary, and none comes before it".to_owned())
            }
            Encoding::DELTA_LENGTH_BYTE_ARRAY if self.physical == Physical::BYTE_ARRAY => {
                match header::delta_value_count(bytes) {
                    Some(count) if count <= u64::from(values.min(PARQUET_VALUES_HELD_MAX)) => Ok(()),
                    _ => Err("it has more lengths than values".to_owned()),
                }
            }
            Encoding::DELTA_BINARY_PACKED if [Physical::INT32, Physical::INT64].contains(&self.physical) => Ok(()),
            Encoding::RLE if self.physical == Physical::BOOLEAN => Ok(()),
            Encoding::PLAIN | Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY | Encoding::BYTE_STREAM_SPLIT => {
                Ok(())
            }
            // `DELTA_BYTE_ARRAY` allows every value to repeat a prefix as long as a page.
            other => Err(format!("its values are in the encoding {other}; write them with a dictionary or PLAIN")),
        }
    }
}

impl Iterator for BoundedPageReader {
    type Item = std::result::Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for BoundedPageReader {
    fn get_next_page(&mut self) -> std::result::Result<Option<Page>, ParquetError> {
        self.next_page().map_err(ParquetError::General)
    }

    fn peek_next_page(&mut self) -> std::result::Result<Option<PageMetadata>, ParquetError> {
        Err(ParquetError::NYI("pages are read, not looked at".to_owned()))
    }

    fn skip_next_page(&mut self) -> std::result::Result<(), ParquetError> {
        Err(ParquetError::NYI("pages are read, not skipped".to_owned()))
    }

    fn at_record_boundary(&mut self) -> std::result::Result<bool, ParquetError> {
        // Version 1 pages can end within a list: only the last page certainly ends at the end of one.
        Ok(self.values == 0)
    }
}

/// Decompresses these bytes, which must give `expanded` bytes.
fn decompress_page(codec: i32, bytes: &[u8], expanded: usize) -> ThriftResult<Vec<u8>> {
    // A page without values is not compressed, whatever the column's codec.
    if codec == 0 || (expanded == 0 && bytes.is_empty()) {
        return check_size(bytes.to_vec(), expanded);
    }
    match codec {
        1 => {
            let mut out = vec![0; expanded];
            let found = snap::raw::Decoder::new().decompress(bytes, &mut out).map_err(|it| it.to_string())?;
            out.truncate(found);
            check_size(out, expanded)
        }
        2 => read_bounded(MultiGzDecoder::new(bytes), expanded),
        6 => {
            let limit = PARQUET_PAGE_BYTES_MAX as u64;
            let decoder = StreamingDecoder::new_with_max_window_size(bytes, limit).map_err(|it| it.to_string())?;
            read_bounded(decoder, expanded)
        }
        7 => {
            let mut out = vec![0; expanded];
            let found = lz4_flex::block::decompress_into(bytes, &mut out).map_err(|it| it.to_string())?;
            out.truncate(found);
            check_size(out, expanded)
        }
        other => {
            let name = ["LZO", "BROTLI", "LZ4 of the old form"].get(other.wrapping_sub(3) as usize);
            let name = name.map_or_else(|| format!("codec {other}"), |name| (*name).to_owned());
            Err(format!("compressed by {name}; SNAPPY, GZIP, ZSTD, LZ4_RAW or none are read"))
        }
    }
}

/// Returns all bytes of a reader, and an error if their number is not `expanded`. Reads at most one byte more.
fn read_bounded(reader: impl Read, expanded: usize) -> ThriftResult<Vec<u8>> {
    let mut out = Vec::new();
    reader.take(expanded as u64 + 1).read_to_end(&mut out).map_err(|error| error.to_string())?;
    check_size(out, expanded)
}

fn check_size(bytes: Vec<u8>, expanded: usize) -> ThriftResult<Vec<u8>> {
    if bytes.len() == expanded {
        return Ok(bytes);
    }
    let word = if bytes.len() > expanded { "more" } else { "fewer" };
    Err(format!("it expands to {word} than the {expanded} bytes that it says"))
}

#[cfg(test)]
mod tests {
    use parquet::basic::Type as Physical;
    use saggar_tensor::DType;

    use super::super::super::table::{SchemaColumn, ValueKind};
    use super::*;

    /// Returns a version 1 data page of boolean values, with one run of levels and one run of values, as its header and
    /// content.
    fn data_page(values: u32) -> Vec<u8> {
        let zigzag = |number: u32| {
            let mut number = u64::from(number) << 1;
            let mut bytes = Vec::new();
            while number > 0x7f {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
            bytes
        };
        let content = [2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0];
        let length = zigzag(content.len() as u32);
        // Kind 0, both lengths, then the number of values and the encodings PLAIN, RLE and RLE.
        [
            &[0x15, 0, 0x15],
            &length[..],
            &[0x15],
            &length,
            &[0x2c, 0x15],
            &zigzag(values),
            &[0x15, 0, 0x15, 6, 0x15, 6],
            &[0, 0],
            &content,
        ]
        .concat()
    }

    /// Returns the pages of a column that is or is not a list.
    fn page_reader(list: Option<i16>, sizes: &[u32]) -> (BoundedPageReader, Arc<AtomicU64>) {
        let bytes: Vec<u8> = sizes.iter().flat_map(|values| data_page(*values)).collect();
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), &bytes).unwrap();
        let leaf = LeafColumn {
            column: SchemaColumn {
                name: "x".to_owned(),
                kind: Ok(ValueKind::Number(DType::U8)),
                is_list: list.is_some(),
                is_image_path: false,
            },
            physical: Physical::BOOLEAN,
            length: 0,
            defined: 1,
            list,
        };
        let values = sizes.iter().map(|values| u64::from(*values)).sum();
        let chunk = ColumnChunk { codec: 0, values, start: 0, end: bytes.len() as u64 };
        let gathered = Arc::new(AtomicU64::new(0));
        (BoundedPageReader::new(path.as_file(), &leaf, &chunk, Arc::clone(&gathered)).unwrap(), gathered)
    }

    #[test]
    fn the_values_of_a_list_across_pages_are_limited() {
        let half = PARQUET_VALUES_HELD_MAX / 2;
        let (mut lists, _) = page_reader(Some(1), &[half; 3]);
        assert!(lists.next_page().is_ok() && lists.next_page().is_ok());
        let error = lists.next_page().unwrap_err();
        assert!(error.contains("lists of more than 8388608 values"), "{error}");
        let (mut lists, gathered) = page_reader(Some(1), &[half; 3]);
        assert!(lists.next_page().is_ok() && lists.next_page().is_ok());
        gathered.store(0, Ordering::Relaxed);
        assert!(lists.next_page().is_ok(), "rows came between");
        let (mut flat, _) = page_reader(None, &[half; 3]);
        assert!((0..3).all(|_| flat.next_page().is_ok()), "only lists are gathered");
    }
}
