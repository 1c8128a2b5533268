//! Damaged and hostile Parquet files give an error with the file's name, without a panic or excessive memory.

use ::parquet::basic::Compression;
use ::parquet::data_type::{ByteArrayType, Int32Type};
use ::parquet::file::properties::WriterProperties;

use super::super::description::ColumnFilesDescription;
use super::super::draft::DatasetDraft;
use super::super::staging::StagingArea;
use super::parquet::{column_with_levels, file, lists, required_column};
use super::*;

/// Reads the bytes as the only file of a folder.
fn read(place: &TempDir, bytes: &[u8]) -> Result<DatasetDraft, DatasetError> {
    std::fs::write(place.path().join("d.parquet"), bytes).unwrap();
    let directory = crate::durable::crash_test::scratch();
    let staging = StagingArea::new(directory.path(), place.path(), &|_| Ok(())).unwrap();
    super::super::parquet::read(&staging, place.path(), &ColumnFilesDescription::default())
}

/// Returns a small file with dictionaries, lists, texts and two row groups.
fn small(compression: Compression) -> Vec<u8> {
    let fields = "required int32 a (INTEGER(8,false)); optional binary t (STRING);
        optional group x (LIST) { repeated group list { optional float element; } }";
    let group = |at: i32| {
        vec![
            required_column::<Int32Type>(vec![at, at + 1, at]),
            column_with_levels::<ByteArrayType>(vec!["one".into(), "two".into(), "one".into()], Some(vec![1; 3]), None),
            lists(&[&[1.0, 2.0], &[3.0, 4.0], &[1.0, 2.0]]),
        ]
    };
    file(fields, vec![group(1), group(7)], WriterProperties::builder().set_compression(compression))
}

#[test]
fn a_corrupted_parquet_file_is_refused_or_keeps_its_shape() {
    let place = tempfile::tempdir().unwrap();
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY] {
        let whole = small(compression);
        assert_eq!(read(&place, &whole).unwrap().items, 6);
        for end in 0..whole.len() {
            let error = read(&place, &whole[..end]).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.starts_with("d.parquet: ")), "cut at {end}");
        }
        for at in 0..whole.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= change;
                let Ok(draft) = read(&place, &damaged) else { continue };
                assert_eq!((draft.items, draft.columns.len()), (6, 3), "byte {at}");
                for column in draft.columns {
                    assert_eq!(column.data.bytes(), 6 * column.item.bytes() as u64, "byte {at}, {}", column.name);
                }
            }
        }
    }
}

#[test]
fn a_corrupted_file_of_apache_arrow_is_refused_or_keeps_its_shape() {
    let place = tempfile::tempdir().unwrap();
    let whole = include_bytes!("arrow.parquet");
    for at in 0..whole.len() {
        let mut damaged = whole.to_vec();
        damaged[at] ^= 0x55;
        if let Ok(draft) = read(&place, &damaged) {
            assert_eq!((draft.items, draft.columns.len()), (200, 3), "byte {at}");
        }
        assert!(read(&place, &whole[..at]).is_err(), "cut at {at}");
    }
}

/// Returns a structure in Thrift's compact protocol from the id, type and value bytes of each field.
fn structure(fields: &[(u8, u8, Vec<u8>)]) -> Vec<u8> {
    let mut last = 0;
    let mut bytes = Vec::new();
    for (id, wire, value) in fields {
        bytes.push((id - last) << 4 | wire);
        bytes.extend(value);
        last = *id;
    }
    bytes.push(0);
    bytes
}

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn int(number: i64) -> Vec<u8> {
    varint((number << 1 ^ number >> 63) as u64)
}

fn name(text: &str) -> Vec<u8> {
    [varint(text.len() as u64), text.into()].concat()
}

fn list(claimed: u64, items: &[Vec<u8>]) -> Vec<u8> {
    [vec![0xf0 | STRUCT], varint(claimed), items.concat()].concat()
}

/// Returns a group with this number of fields.
fn group(children: i64) -> Vec<u8> {
    structure(&[(4, BINARY, name("g")), (5, I32, int(children))])
}

fn number(physical: i64) -> Vec<u8> {
    structure(&[(1, I32, int(physical)), (3, I32, int(0)), (4, BINARY, name("x"))])
}

/// Returns a column `x` of texts.
fn text() -> Vec<u8> {
    structure(&[(1, I32, int(6)), (3, I32, int(0)), (4, BINARY, name("x")), (6, I32, int(0))])
}

/// Returns a row group of one column, whose pages begin at byte 4.
fn rows(rows: i64, values: i64, bytes: i64, codec: i64) -> Vec<u8> {
    let meta = structure(&[(4, I32, int(codec)), (5, I64, int(values)), (7, I64, int(bytes)), (9, I64, int(4))]);
    let chunk = structure(&[(3, STRUCT, meta)]);
    structure(&[(1, LIST, list(1, &[chunk])), (3, I64, int(rows))])
}

/// Returns a file of these pages, schema and row groups.
fn parquet_file(pages: &[u8], schema: Vec<u8>, count: i64, groups: Vec<u8>) -> Vec<u8> {
    let footer = structure(&[(1, I32, int(2)), (2, LIST, schema), (3, I64, int(count)), (4, LIST, groups)]);
    [b"PAR1", pages, &footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
}

fn check_file(bytes: &[u8], expected: Expect) {
    check(&[("d.parquet", bytes)], expected);
}

/// Checks the error of a file of one page with this header and content, and `count` 32-bit integers in its footer.
fn check_page(header: Vec<u8>, content: &[u8], count: i64, codec: i64, expected: Expect) {
    let pages = [header, content.to_vec()].concat();
    let only = rows(count, count, pages.len() as i64, codec);
    check_file(&parquet_file(&pages, list(2, &[group(1), number(1)]), count, list(1, &[only])), expected);
}

/// Returns the header of a data page.
fn data(expanded: i64, compressed: i64, values: i64, encoding: i64) -> Vec<u8> {
    let inner = structure(&[(1, I32, int(values)), (2, I32, int(encoding)), (3, I32, int(3)), (4, I32, int(3))]);
    structure(&[(1, I32, int(0)), (2, I32, int(expanded)), (3, I32, int(compressed)), (5, STRUCT, inner)])
}

fn dictionary(expanded: i64, compressed: i64, values: i64) -> Vec<u8> {
    let inner = structure(&[(1, I32, int(values)), (2, I32, int(0))]);
    structure(&[(1, I32, int(2)), (2, I32, int(expanded)), (3, I32, int(compressed)), (7, STRUCT, inner)])
}

#[test]
fn bytes_that_are_no_parquet_file_are_refused() {
    check_file(b"", expect!["d.parquet: it has 0 bytes, and a Parquet file has 12 at least; is the copy finished?"]);
    check_file(
        b"PAR1",
        expect!["d.parquet: it has 4 bytes, and a Parquet file has 12 at least; is the copy finished?"],
    );
    check_file(
        b"not a Parquet file, and long enough",
        expect!["d.parquet: it does not end with PAR1 as Parquet files do; is the copy finished?"],
    );
    check_file(
        b"PAR1\xff\xff\xff\xffPAR1",
        expect!["d.parquet: its footer would have 4294967295 bytes, and the file has 12; is it damaged?"],
    );
    check_file(b"PAR1\0\0\0\0PAR1", expect!["d.parquet: its footer: it ends early (byte 0 of it)"]);
    check_file(b"PAR1\0\0\0\0PARE", expect!["d.parquet: it is encrypted; save it without a key"]);
    check(&[("d.parquet.gz", b"x")], expect!["d.parquet.gz: Parquet files are compressed inside; unpack it"]);
}

#[test]
fn false_claims_in_a_footer_are_refused() {
    let one = || list(2, &[group(1), number(1)]);
    let check_footer =
        |schema, count, groups, expected| check_file(&parquet_file(b"", schema, count, groups), expected);
    check_footer(
        list(1 << 31, &[]),
        0,
        list(0, &[]),
        expect!["d.parquet: its footer: a list would have 2147483648 elements in 6 bytes (byte 9 of it)"],
    );
    check_footer(
        list(2, &[group(i32::MAX.into()), number(1)]),
        0,
        list(0, &[]),
        expect!["d.parquet: its footer: its schema ends early"],
    );
    check_footer(
        list(100_000, &vec![group(1); 100_000]),
        0,
        list(0, &[]),
        expect!["d.parquet: its footer: its schema has groups more than 16 deep"],
    );
    check_footer(
        one(),
        0,
        list(u64::MAX, &[]),
        expect!["d.parquet: its footer: a list would have 18446744073709551615 elements in 1 bytes (byte 33 of it)"],
    );
    check_footer(
        one(),
        i64::MAX,
        list(0, &[]),
        expect!["d.parquet: its footer: the rows of its row groups are not as many as the file's"],
    );
    check_footer(one(), -1, list(0, &[]), expect!["d.parquet: its footer: a count is negative (byte 21 of it)"]);
    check_footer(
        one(),
        1 << 60,
        list(1, &[rows(1 << 60, 1 << 60, 0, 0)]),
        expect!["d.parquet: it would expand from 78 bytes to more than 4096 times as many; is it damaged?"],
    );
    check_footer(
        one(),
        3,
        list(1, &[rows(3, 3, 1 << 40, 0)]),
        expect!["d.parquet: its footer: a column of 1099511627776 bytes at 4 does not lie before the footer"],
    );
    check_footer(
        one(),
        3,
        list(1, &[rows(3, 4, 0, 0)]),
        expect!["d.parquet: its footer: column x has 4 values in a row group of 3 rows"],
    );
    check_footer(one(), 3, list(1, &[rows(3, 3, 0, 0)]), expect!["d.parquet: column x: its pages end 3 values early"]);
    check_footer(list(1, &[group(0)]), 0, list(0, &[]), expect!["d.parquet: it has no columns"]);
    // Nested structures in a field that is skipped.
    let deep = [[0x1c].repeat(100_000), [0].repeat(100_000)].concat();
    let footer = [vec![9 << 4 | STRUCT], deep, vec![0]].concat();
    let bytes = [b"PAR1", footer.as_slice(), &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat();
    check_file(&bytes, expect!["d.parquet: its footer: structures lie too deep in each other (byte 18 of it)"]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of pages")]
fn false_claims_in_a_page_are_refused() {
    let four = [1, 0, 0, 0];
    check_page(
        data(i32::MAX.into(), 4, 1, 0),
        &four,
        1,
        1,
        expect!["d.parquet: column x: its page at byte 4: more than 33554432 bytes; write smaller pages"],
    );
    check_page(
        data(4, i32::MAX.into(), 1, 0),
        &four,
        1,
        0,
        expect!["d.parquet: column x: its page at byte 4: more than 33554432 bytes; write smaller pages"],
    );
    check_page(
        data(4, -1, 1, 0),
        &four,
        1,
        0,
        expect!["d.parquet: column x: its page at byte 4: field 3 of its header is negative"],
    );
    check_page(
        data(4, 5, 1, 0),
        &four,
        1,
        0,
        expect!["d.parquet: column x: its page at byte 4: it extends past the column's end"],
    );
    check_page(
        data(4, 4, i32::MAX.into(), 0),
        &four,
        1,
        0,
        expect!["d.parquet: column x: its page at byte 4: more values than the 1 that its column has in the row group"],
    );
    check_page(data(4, 4, 1, 0), &four, 2, 0, expect!["d.parquet: column x: its pages end 1 values early"]);
    check_page(data(4, 4, 2, 0), &four, 2, 0, expect!["d.parquet: column x: EOF: Not enough bytes to decode"]);
    check_page(
        data(4, 4, 1, 8),
        &four,
        1,
        0,
        expect!["d.parquet: column x: its page at byte 4: it refers to a dictionary, and none comes before it"],
    );
    check_page(
        data(4, 4, 1, 99),
        &four,
        1,
        0,
        expect!["d.parquet: column x: its page at byte 4: an encoding 99, which is unknown here"],
    );
    check_page(
        data(4, 4, 1, 0),
        &four,
        1,
        3,
        expect![
            "d.parquet: column x: its page at byte 4: compressed by LZO; SNAPPY, GZIP, ZSTD, LZ4_RAW or none are read"
        ],
    );
    check_page(
        data(4, 4, 1, 0),
        &four,
        1,
        4,
        expect![
            "d.parquet: column x: its page at byte 4: compressed by BROTLI; SNAPPY, GZIP, ZSTD, LZ4_RAW or none are read"
        ],
    );
    for codec in [1, 2, 6, 7] {
        let place = tempfile::tempdir().unwrap();
        let pages = [data(4, 4, 1, 0), four.to_vec()].concat();
        let only = rows(1, 1, pages.len() as i64, codec);
        let bytes = parquet_file(&pages, list(2, &[group(1), number(1)]), 1, list(1, &[only]));
        assert!(matches!(read(&place, &bytes), Err(DatasetError::Column { .. })), "codec {codec}");
    }
    check_page(
        dictionary(4, 4, i32::MAX.into()),
        &four,
        1,
        0,
        expect![
            "d.parquet: column x: its page at byte 4: a dictionary of more than 1048576 values; write it without one"
        ],
    );
    let twice = [dictionary(4, 4, 1), four.to_vec(), dictionary(4, 4, 1)].concat();
    check_page(
        twice,
        &four,
        1,
        0,
        expect!["d.parquet: column x: its page at byte 21: a dictionary that is not the first page"],
    );
    // 64 MiB compressed to 64 KiB, in a page whose header states 4 bytes.
    let bomb = gz(&vec![0; 64 << 20]);
    check_page(
        data(4, bomb.len() as i64, 1, 0),
        &bomb,
        1,
        2,
        expect!["d.parquet: column x: its page at byte 4: it expands to more than the 4 bytes that it says"],
    );
    // More deltas than values, and a block of excessive size.
    let deltas = [varint(128), varint(4), varint(1 << 40), int(0)].concat();
    check_page(
        data(deltas.len() as i64, deltas.len() as i64, 1, 6),
        &deltas,
        1,
        0,
        expect![
            "d.parquet: column x: its page at byte 4: its values are in the encoding DELTA_LENGTH_BYTE_ARRAY; write them with a dictionary or PLAIN"
        ],
    );
    // A dictionary index out of range.
    let index = [32, 2, 0xff, 0xff, 0xff, 0xff];
    let pages = [dictionary(4, 4, 1), four.to_vec(), data(6, 6, 1, 8)].concat();
    check_page(
        pages,
        &index,
        1,
        0,
        expect!["d.parquet: column x: dictionary index out of bounds: the len is 1 but the index is 4294967295"],
    );
}

#[test]
fn the_memory_limit_counts_the_overhead_of_each_text() {
    let schema = || list(2, &[group(1), text()]);
    // Long enough for the number of rows, so that the size check does not refuse it.
    let check_claim = |count: i64, expected| {
        let pages = vec![0; count as usize / 1024];
        check_file(
            &parquet_file(&pages, schema(), count, list(1, &[rows(count, count, pages.len() as i64, 0)])),
            expected,
        );
    };
    check_claim(
        (1 << 31) + 1,
        expect![
            "d.parquet: more than 2097223000 bytes, which is 1000 times the 2097223 bytes of the files; send the files uncompressed, and texts in lines of similar length"
        ],
    );
    check_claim(1 << 32, expect!["d.parquet: more than 4294967295 items"]);
    // One run of an index, as long as the footer allows.
    let count = 100_000;
    let run = [vec![1], varint(count as u64 * 2), vec![0]].concat();
    let size = run.len() as i64;
    let letter = vec![1, 0, 0, 0, b'a'];
    let pages = [dictionary(5, 5, 1), letter, data(size, size, count, 8), run].concat();
    check_file(
        &parquet_file(&pages, schema(), count, list(1, &[rows(count, count, pages.len() as i64, 0)])),
        expect!["d.parquet: column x: row 85197: its texts have more than 425984 bytes together; is the file damaged?"],
    );
}

#[test]
fn the_length_of_schema_names_is_limited() {
    let long = structure(&[(1, I32, int(1)), (3, I32, int(0)), (4, BINARY, name(&"n".repeat(256)))]);
    check_file(
        &parquet_file(b"", list(2, &[group(1), long]), 0, list(0, &[])),
        expect!["d.parquet: its footer: a name in its schema has 256 bytes, and at most 255 are read"],
    );
    let columns = [vec![group(65_537)], vec![number(1); 65_537]].concat();
    check_file(
        &parquet_file(b"", list(65_538, &columns), 0, list(0, &[])),
        expect!["d.parquet: its footer: more than 65536 columns"],
    );
}
