//! Damaged and hostile Arrow files give an error with the file's name, without a panic or excessive memory.

use super::super::description::ColumnFilesDescription;
use super::super::draft::DatasetDraft;
use super::super::staging::StagingArea;
use super::arrow::arrow_file;
use super::arrow_writer::{
    FlatbufferValue, LIST, Message, TEXT, WriterCompression, WrittenBatch, batch_message, dictionary_field,
    dictionary_message, encode, field, file, int, repeated_struct, schema, stream, with_footer,
};
use super::*;

/// Reads the bytes as the only file of a folder, with rows that have nulls left out.
fn read(place: &TempDir, bytes: &[u8]) -> Result<DatasetDraft, DatasetError> {
    std::fs::write(place.path().join("d.arrow"), bytes).unwrap();
    let directory = crate::durable::crash_test::scratch();
    let staging = StagingArea::new(directory.path(), place.path(), &|_| Ok(())).unwrap();
    let description: ColumnFilesDescription = serde_json::from_str(r#"{"missing": "drop"}"#).unwrap();
    super::super::arrow::read(&staging, place.path(), &description)
}

/// Checks that a file is refused or gives whole columns.
fn check_shape(place: &TempDir, bytes: &[u8], change: &str) {
    match read(place, bytes) {
        Ok(draft) => {
            for column in draft.columns {
                let expected = draft.items * column.item.bytes() as u64;
                assert_eq!(column.data.bytes(), expected, "{change}, {}", column.name);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty(), "{change}"),
    }
}

#[test]
fn a_corrupted_arrow_file_is_refused_or_gives_whole_columns() {
    let place = tempfile::tempdir().unwrap();
    let files = [
        ("nulls", arrow_file!("nulls.arrow")),
        ("images", arrow_file!("images.arrow")),
        ("replaced_stream", arrow_file!("replaced_stream.arrow")),
        ("slices", arrow_file!("slices.arrow")),
        ("lz4", arrow_file!("lz4.arrow")),
        ("zstd_stream", arrow_file!("zstd_stream.arrow")),
    ];
    for (name, whole) in files {
        assert!(read(&place, whole).is_ok(), "{name}");
        for at in 0..whole.len() {
            let change = [0xff, 1 << (at % 8)][at % 2];
            let mut damaged = whole.to_vec();
            damaged[at] ^= change;
            check_shape(&place, &damaged, &format!("{name}: byte {at} changed by {change}"));
        }
    }
}

#[test]
fn a_truncated_arrow_file_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let files = [
        ("nulls", arrow_file!("nulls.arrow")),
        ("types", arrow_file!("types.arrow")),
        ("lz4", arrow_file!("lz4.arrow")),
    ];
    for (name, whole) in files {
        for end in 0..whole.len() {
            let error = read(&place, &whole[..end]).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.starts_with("d.arrow: ")), "{name}: cut at {end}");
        }
    }
    // A stream can end between two messages.
    let whole = arrow_file!("replaced_stream.arrow");
    for end in 0..whole.len() {
        check_shape(&place, &whole[..end], &format!("cut at {end}"));
    }
}

fn numbers(compression: WriterCompression) -> WrittenBatch {
    WrittenBatch::new(3, vec![(3, 0)], &[Vec::new(), [1i32, 2, 3].map(i32::to_le_bytes).concat()], compression)
}

fn number_schema() -> FlatbufferValue {
    schema(vec![field("x", int(32), Vec::new())])
}

fn check_file(bytes: &[u8], expected: Expect) {
    check(&[("d.arrow", bytes)], expected);
}

/// Checks the error of a file with one column of 32-bit integers and this batch.
fn check_batch(batch: &WrittenBatch, expected: Expect) {
    check_file(&file(&number_schema(), &[batch_message(batch)]), expected);
}

#[test]
fn the_writer_of_these_tests_writes_valid_files() {
    for compression in [WriterCompression::Stored, WriterCompression::Lz4, WriterCompression::Zstd] {
        let messages = [batch_message(&numbers(compression))];
        for bytes in [file(&number_schema(), &messages), stream(&number_schema(), &messages)] {
            let (info, data) = ingest_open(&[("d.arrow", &bytes)]);
            assert_eq!((info.items, data.column("x").unwrap()), (3, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0][..]));
        }
    }
}

#[test]
fn bytes_that_are_no_arrow_file_are_refused() {
    check_file(b"", expect!["d.arrow: it has 0 bytes, which is no Arrow file; is the copy finished?"]);
    check_file(b"ARROW1", expect!["d.arrow: it has 6 bytes, which is no Arrow file; is the copy finished?"]);
    check_file(
        b"ARROW1\0\0",
        expect!["d.arrow: it has 8 bytes, and an Arrow file has 18 at least; is the copy finished?"],
    );
    check_file(
        b"ARROW1\0\0 not an Arrow file, and long enough",
        expect!["d.arrow: it does not end with ARROW1 as Arrow files do; is the copy finished?"],
    );
    check_file(
        b"ARROW1\0\0\xff\xff\xff\xffARROW1",
        expect!["d.arrow: its footer would have 4294967295 bytes, and the file has 18; is it damaged?"],
    );
    check_file(
        b"ARROW1\0\0\0\0\0\0ARROW1",
        expect!["d.arrow: its metadata: a number at byte 0 that it cannot contain; is the file damaged?"],
    );
    check_file(b"\xff\xff\xff\xff\0\0\0\0", expect!["d.arrow: its stream begins with its end"]);
    check_file(
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",
        expect![
            "d.arrow: its metadata would have 2147483647 bytes, and at most 16777216 are read; write fewer, larger record batches"
        ],
    );
    check_file(&file(&schema(Vec::new()), &[]), expect!["d.arrow: it has no columns"]);
    check_file(&file(&number_schema(), &[]), expect!["d.arrow: no items"]);
    let big_endian =
        FlatbufferValue::Table(vec![Some(FlatbufferValue::I16(1)), Some(FlatbufferValue::Tables(Vec::new()))]);
    check_file(
        &file(&big_endian, &[]),
        expect!["d.arrow: its numbers are big-endian; write it on a little-endian machine"],
    );
    let old = with_footer(
        b"ARROW1\0\0".to_vec(),
        &FlatbufferValue::Table(vec![Some(FlatbufferValue::I16(1)), Some(number_schema())]),
    );
    check_file(
        &old,
        expect!["d.arrow: it is in version 2 of Arrow's format, and 4 and 5 are read; write it by a newer library"],
    );
    let two = [stream(&number_schema(), &[]), stream(&number_schema(), &[])].concat();
    check_file(&two, expect!["d.arrow: 256 bytes follow the end of its stream; write one table in a file"]);
    let schema_again: Message = (1, number_schema(), Vec::new());
    check_file(
        &stream(&number_schema(), &[schema_again]),
        expect!["d.arrow: it has a second schema; write one table in a file"],
    );
    let tensor: Message = (4, FlatbufferValue::Table(Vec::new()), Vec::new());
    check_file(&stream(&number_schema(), &[tensor]), expect!["d.arrow: it has tensors; write a table"]);
}

#[test]
fn false_claims_in_arrow_metadata_are_refused() {
    let deep = (0..100).fold(field("x", int(32), Vec::new()), |inner, _| field("x", (13, Vec::new()), vec![inner]));
    check_file(&file(&schema(vec![deep]), &[]), expect!["d.arrow: its schema has fields more than 16 deep"]);
    let long = field(&"n".repeat(256), int(32), Vec::new());
    check_file(
        &file(&schema(vec![long]), &[]),
        expect!["d.arrow: a name in its schema has 256 bytes, and at most 255 are read"],
    );
    let many = (0..65_537).map(|_| field("x", int(32), Vec::new())).collect();
    check_file(&file(&schema(many), &[]), expect!["d.arrow: more than 65536 columns"]);
    let claim = FlatbufferValue::Table(vec![None, Some(FlatbufferValue::Claim(u32::MAX))]);
    check_file(
        &file(&claim, &[]),
        expect!["d.arrow: its metadata: 4294967295 elements at byte 104 that it cannot contain; is the file damaged?"],
    );
    check_file(
        &file(&schema(vec![field("x", int(12), Vec::new())]), &[]),
        expect!["d.arrow: its schema has integers of 12 bits, which Arrow does not have"],
    );
    check_file(
        &file(&schema(vec![field("x", (99, Vec::new()), Vec::new())]), &[]),
        expect!["d.arrow: its schema has values of Arrow's type 99, which is unknown here"],
    );
    check_file(
        &file(&schema(vec![field("x", (15, vec![Some(FlatbufferValue::I32(-1))]), Vec::new())]), &[]),
        expect![
            "d.arrow: column x: values of -1 bytes; 1 to 16777216 are read, or name the columns to take in dataset.json; integers, floats, truth values, dates, strings, dictionaries of strings, bytes of fixed length, images and lists of numbers are read"
        ],
    );
    let lists =
        |length| field("x", (16, vec![Some(FlatbufferValue::I32(length))]), vec![field("item", int(8), Vec::new())]);
    check_file(
        &file(&schema(vec![lists(-1)]), &[]),
        expect![
            "d.arrow: column x: lists of a length below zero, or name the columns to take in dataset.json; integers, floats, truth values, dates, strings, dictionaries of strings, bytes of fixed length, images and lists of numbers are read"
        ],
    );
    let empty =
        WrittenBatch::new(2, vec![(2, 0), (0, 0)], &[Vec::new(), Vec::new(), Vec::new()], WriterCompression::Stored);
    check_file(
        &file(&schema(vec![lists(0)]), &[batch_message(&empty)]),
        expect!["d.arrow: column x: row 1: an empty list; a column's lists have numbers in them"],
    );
    check_file(
        &file(&schema(vec![lists(i32::MAX)]), &[batch_message(&empty)]),
        expect!["d.arrow: column x: its lists have more values than the column"],
    );
    // A block that does not lie before the footer.
    let blocks = [8i64, i64::from(i32::MAX), 1 << 60].map(i64::to_le_bytes).concat();
    let footer =
        vec![Some(FlatbufferValue::I16(4)), Some(number_schema()), None, Some(FlatbufferValue::Structs(24, blocks))];
    check_file(
        &with_footer(b"ARROW1\0\0".to_vec(), &FlatbufferValue::Table(footer)),
        expect!["d.arrow: its footer: message 0 does not lie before the footer; is the file damaged?"],
    );
}

#[test]
fn offsets_of_flatbuffers_cannot_form_a_circle() {
    let place = tempfile::tempdir().unwrap();
    let whole = encode(&FlatbufferValue::Table(vec![Some(FlatbufferValue::I16(4)), Some(number_schema())]));
    // Every offset and length in the footer, in turn, leads nowhere, to itself, back, or to the end.
    for at in (0..whole.len() - 4).step_by(2) {
        for offset in [0, 1, 2, 4, 8, u32::MAX, u32::MAX - 7, (whole.len() - at) as u32, 0x8000_0000] {
            let mut footer = whole.clone();
            footer[at..at + 4].copy_from_slice(&offset.to_le_bytes());
            let tail = [footer.as_slice(), &(footer.len() as u32).to_le_bytes(), b"ARROW1"].concat();
            let error = read(&place, &[b"ARROW1\0\0", tail.as_slice()].concat()).err();
            assert!(error.is_some(), "offset {offset} at {at}: a file without batches is no dataset");
        }
    }
    // Many offsets that lead to one field, whose members are the same again: 100^12 fields in a few kilobytes.
    let shared = (0..12).fold(field("x", int(32), Vec::new()), |member, _| repeated_struct(100, member));
    check_file(&file(&schema(vec![shared]), &[]), expect!["d.arrow: more than 65536 columns"]);
}

#[test]
fn false_claims_in_a_record_batch_are_refused() {
    let good = numbers(WriterCompression::Stored);
    check_batch(
        &WrittenBatch { rows: -1, ..good.clone() },
        expect!["d.arrow: its metadata: a count below zero at byte 80 that it cannot contain; is the file damaged?"],
    );
    check_batch(&WrittenBatch { rows: i64::MAX, ..good.clone() }, expect!["d.arrow: more than 4294967295 items"]);
    check_batch(
        &WrittenBatch { rows: 4, ..good.clone() },
        expect!["d.arrow: column x: 3 rows in a record batch of 4; is the file damaged?"],
    );
    check_batch(
        &WrittenBatch { rows: 1 << 31, nodes: vec![(1 << 31, 0)], ..good.clone() },
        expect![
            "d.arrow: more than 67108864 bytes, which is 1000 times the 506 bytes of the files; send the files uncompressed, and texts in lines of similar length"
        ],
    );
    check_batch(
        &WrittenBatch { rows: 4, nodes: vec![(4, 0)], ..good.clone() },
        expect!["d.arrow: column x: its buffers end early; is the file damaged?"],
    );
    check_batch(
        &WrittenBatch { nodes: vec![(3, 1)], ..good.clone() },
        expect!["d.arrow: column x: nulls, and no bitmap of them; is the file damaged?"],
    );
    check_batch(
        &WrittenBatch { nodes: Vec::new(), ..good.clone() },
        expect!["d.arrow: a record batch: 0 nodes and 2 buffers, and its schema needs 1 and 2; is the file damaged?"],
    );
    check_batch(
        &WrittenBatch { buffers: vec![(0, 0)], ..good.clone() },
        expect!["d.arrow: a record batch: 1 nodes and 1 buffers, and its schema needs 1 and 2; is the file damaged?"],
    );
    check_batch(
        &WrittenBatch { buffers: vec![(0, 0), (8, 12)], ..good.clone() },
        expect!["d.arrow: column x: a buffer that its batch does not contain; is the file damaged?"],
    );
    check_batch(
        &WrittenBatch { buffers: vec![(0, 0), (i64::MAX, 12)], ..good.clone() },
        expect!["d.arrow: column x: a buffer that its batch does not contain; is the file damaged?"],
    );
    check_batch(
        &WrittenBatch { buffers: vec![(0, 0), (-8, 12)], ..good.clone() },
        expect!["d.arrow: column x: a buffer that its batch does not contain; is the file damaged?"],
    );
    check_batch(
        &WrittenBatch { buffers: vec![(0, 0), (0, -1)], ..good.clone() },
        expect!["d.arrow: column x: a buffer that its batch does not contain; is the file damaged?"],
    );
    for (compression, name) in [(WriterCompression::Lz4, "LZ4"), (WriterCompression::Zstd, "Zstandard")] {
        let place = tempfile::tempdir().unwrap();
        let error =
            read(&place, &file(&number_schema(), &[batch_message(&WrittenBatch { compression, ..good.clone() })]));
        assert!(matches!(error, Err(DatasetError::Column { .. })), "{name}");
    }
}

/// Returns a batch whose compressed buffer of values says that it has `expanded` bytes.
fn stating(expanded: i64, compression: WriterCompression) -> WrittenBatch {
    let mut batch = numbers(compression);
    let at = batch.buffers[1].0 as usize;
    batch.body[at..at + 8].copy_from_slice(&expanded.to_le_bytes());
    batch
}

#[test]
fn stated_sizes_of_compressed_buffers_allocate_nothing() {
    for compression in [WriterCompression::Lz4, WriterCompression::Zstd] {
        check_batch(
            &stating(1 << 60, compression),
            expect!["d.arrow: column x: its buffers would expand to more than 4096 times the file; is it damaged?"],
        );
        check_batch(&stating(-2, compression), expect!["d.arrow: column x: a buffer that expands to -2 bytes"]);
        check_batch(
            &stating(11, compression),
            expect!["d.arrow: column x: its buffers end early; is the file damaged?"],
        );
    }
    // What a buffer has beyond the values of its rows is not decompressed.
    let zeros = vec![0; 60 << 20];
    let bomb = WrittenBatch::new(3, vec![(3, 0)], &[Vec::new(), zeros], WriterCompression::Lz4);
    assert!(bomb.body.len() < 1 << 20);
    let (info, _) = ingest_open(&[("d.arrow", &file(&number_schema(), &[batch_message(&bomb)]))]);
    assert_eq!(info.items, 3);
    // Rows that repeat one value expand to the limit of a dataset's columns.
    let rows = 20 << 20;
    let bomb =
        WrittenBatch::new(rows, vec![(rows as i64, 0)], &[Vec::new(), vec![0; 4 * rows]], WriterCompression::Zstd);
    check_batch(
        &bomb,
        expect![
            "d.arrow: more than 67108864 bytes, which is 1000 times the 3106 bytes of the files; send the files uncompressed, and texts in lines of similar length"
        ],
    );
}

#[test]
fn offsets_of_lists_and_texts_are_checked() {
    let offsets = |offsets: &[i32]| offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect::<Vec<u8>>();
    let text_schema = schema(vec![field("x", TEXT(), Vec::new())]);
    let check_texts = |ends: &[i32], data: &[u8], expected| {
        let buffers = [Vec::new(), offsets(ends), data.to_vec()];
        let batch = WrittenBatch::new(2, vec![(2, 0)], &buffers, WriterCompression::Stored);
        check_file(&file(&text_schema, &[batch_message(&batch)]), expected);
    };
    check_texts(&[0, 2, 1], b"abcd", expect!["d.arrow: column x: its offsets go backwards; is the file damaged?"]);
    check_texts(&[-1, 2, 3], b"abcd", expect!["d.arrow: column x: an offset below zero; is the file damaged?"]);
    check_texts(&[0, 2, 5], b"abcd", expect!["d.arrow: column x: its buffers end early; is the file damaged?"]);
    check_texts(&[0, 2], b"abcd", expect!["d.arrow: column x: its buffers end early; is the file damaged?"]);
    check_texts(
        &[0, 2, i32::MAX],
        b"abcd",
        expect!["d.arrow: column x: row 2: a text of more than 65536 bytes; break it into several"],
    );
    check_texts(
        &[i32::MAX, i32::MAX, i32::MAX],
        b"abcd",
        expect!["d.arrow: column x: its buffers end early; is the file damaged?"],
    );
    check_texts(
        &[0, 1, 2],
        b"a\0",
        expect!["d.arrow: column x: row 2: byte 0 of its text is 0, which marks the end of a text"],
    );
    check_texts(&[0, 1, 2], b"a\xff", expect!["d.arrow: column x: row 2: byte 0 of its text is not valid UTF-8"]);
    let list_schema = schema(vec![field("x", LIST(), vec![field("item", int(8), Vec::new())])]);
    let check_lists = |ends: &[i32], values: i64, nulls: (i64, Vec<u8>), expected| {
        let buffers = [Vec::new(), offsets(ends), nulls.1, vec![1; 8]];
        let batch = WrittenBatch::new(2, vec![(2, 0), (values, nulls.0)], &buffers, WriterCompression::Stored);
        check_file(&file(&list_schema, &[batch_message(&batch)]), expected);
    };
    let none = || (0, Vec::new());
    check_lists(&[0, 2, 4], 3, none(), expect!["d.arrow: column x: its lists have more values than the column"]);
    check_lists(
        &[0, 2, 3],
        8,
        none(),
        expect!["d.arrow: column x: row 2: a list of 1 numbers, and the first has 2; pad or cut them to one length"],
    );
    check_lists(
        &[0, 0, 0],
        8,
        none(),
        expect!["d.arrow: column x: row 1: an empty list; a column's lists have numbers in them"],
    );
    check_lists(&[2, 0, 2], 8, none(), expect!["d.arrow: column x: its offsets go backwards; is the file damaged?"]);
    check_lists(
        &[0, 8, 16],
        1 << 20,
        none(),
        expect!["d.arrow: column x: its buffers end early; is the file damaged?"],
    );
    check_lists(
        &[0, 1 << 30, i32::MAX - 1],
        i64::MAX,
        none(),
        expect![
            "d.arrow: more than 67108864 bytes, which is 1000 times the 682 bytes of the files; send the files uncompressed, and texts in lines of similar length"
        ],
    );
    check_lists(
        &[0, 2, 4],
        4,
        (1, vec![0b1011]),
        expect!["d.arrow: column x: row 2: a null; fill it or leave the row out"],
    );
}

#[test]
fn false_claims_of_dictionaries_are_refused() {
    let schema = schema(vec![dictionary_field("x", 1)]);
    let indices = |indices: &[i16]| {
        let bytes = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
        batch_message(&WrittenBatch::new(
            indices.len(),
            vec![(indices.len() as i64, 0)],
            &[Vec::new(), bytes],
            WriterCompression::Stored,
        ))
    };
    let texts = |count: usize, length: usize| {
        let offsets = (0..=count).flat_map(|at| ((at * length) as i32).to_le_bytes()).collect();
        let data = (0..count).flat_map(|at| format!("{at:0>length$}").into_bytes()).collect();
        WrittenBatch::new(count, vec![(count as i64, 0)], &[Vec::new(), offsets, data], WriterCompression::Stored)
    };
    let values = |is_delta| dictionary_message(1, &texts(2, 3), is_delta);
    let check_stream = |messages: &[Message], expected| check_file(&stream(&schema, messages), expected);
    check_stream(&[indices(&[0])], expect!["d.arrow: column x: its dictionary does not come before it"]);
    check_stream(&[values(true), indices(&[0])], expect!["d.arrow: a dictionary: it begins with an addition"]);
    check_stream(
        &[values(false), indices(&[0, 2])],
        expect!["d.arrow: column x: row 2: an index that its dictionary of 2 values does not have"],
    );
    check_stream(
        &[values(false), indices(&[0, -1])],
        expect!["d.arrow: column x: row 2: an index that its dictionary of 2 values does not have"],
    );
    check_file(
        &file(&schema, &[values(false), values(false), indices(&[0])]),
        expect![
            "d.arrow: a dictionary: it is replaced by another, which the file format does not allow; write a stream"
        ],
    );
    check_stream(
        &[dictionary_message(1, &texts(65_537, 5), false), indices(&[0])],
        expect!["d.arrow: a dictionary: more than 65536 values; save the column as strings"],
    );
    check_stream(
        &[dictionary_message(1, &texts(2, 256), false), indices(&[0])],
        expect!["d.arrow: a dictionary: value 0 has more than 255 bytes; save the column as strings"],
    );
    check_stream(
        &[dictionary_message(1, &numbers(WriterCompression::Stored), false), indices(&[0])],
        expect!["d.arrow: a dictionary: 1 nodes and 2 buffers, and its schema needs 1 and 3; is the file damaged?"],
    );
    // More names than the memory for dictionaries: in one dictionary, and over the columns that share it.
    check_stream(
        &[dictionary_message(1, &texts(60_000, 250), false), indices(&[0])],
        expect!["d.arrow: a dictionary: dictionaries of more than 16777216 bytes together; save the column as strings"],
    );
    let names: Vec<String> = (0..9).map(|at| format!("x{at}")).collect();
    let many = super::arrow_writer::schema(names.iter().map(|name| dictionary_field(name, 1)).collect());
    let nine = WrittenBatch::new(1, vec![(1, 0); 9], &vec![vec![0, 0]; 18], WriterCompression::Stored);
    let shared = [dictionary_message(1, &texts(50_000, 5), false), batch_message(&nine)];
    check_file(
        &stream(&many, &shared),
        expect!["d.arrow: column x4: dictionaries of more than 16777216 bytes together; save the column as strings"],
    );
    // A dictionary that is replaced again and again gives its memory back.
    let replaced: Vec<Message> =
        (0..40).flat_map(|_| [dictionary_message(1, &texts(20_000, 5), false), indices(&[1, 2])]).collect();
    let (info, data) = ingest_open(&[("d.arrow", &stream(&schema, &replaced))]);
    assert_eq!((info.items, &data.column("x").unwrap()[..8]), (80, &[1, 0, 0, 0, 2, 0, 0, 0][..]));
}
