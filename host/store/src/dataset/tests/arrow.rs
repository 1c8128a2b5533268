//! Import of Arrow files that pyarrow and pandas wrote (`arrow_files/make.py`), and the errors of columns that cannot
//! become fields.

use super::arrays::{ingest_files, items, split_ranges};
use super::*;

/// Returns a file of `arrow_files`.
macro_rules! arrow_file {
    ($name:literal) => {
        include_bytes!(concat!("arrow_files/", $name)).as_slice()
    };
}
pub(super) use arrow_file;

fn little<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| bytes(*value)).collect()
}

/// Returns texts padded with zeros.
fn padded(texts: &[&str], width: usize) -> Vec<u8> {
    texts.iter().flat_map(|text| [text.as_bytes(), &vec![0; width - text.len()]].concat()).collect()
}

#[test]
fn every_type_of_arrow_becomes_a_column() {
    let expected: [(&str, Vec<u8>); 27] = [
        ("bool uint8[]", vec![1, 0, 0, 1, 0]),
        ("bool_list uint8[3]", vec![1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0]),
        ("class uint8[]", vec![0, 1, 0, 1, 0]),
        ("date32 int32[]", little(&[0, 1, 2, 3, 4], i32::to_le_bytes)),
        ("date64 int64[]", little(&[0, 1, 2, 3, 4].map(|day| day * 86_400_000), i64::to_le_bytes)),
        ("duration int64[]", little(&[0, 1, 2, 3, 4].map(|second| second * 1_000_000), i64::to_le_bytes)),
        ("f16 float16[]", little(&[0, 0x3800, 0x3c00, 0x3e00, 0x4000], u16::to_le_bytes)),
        ("f32 float32[]", little(&[0.0, 0.25, 0.5, 0.75, 1.0], f32::to_le_bytes)),
        ("f64 float32[]", little(&[0.0, 0.1, 0.2, 0.3, 0.4], f32::to_le_bytes)),
        ("fixed uint8[3]", vec![0, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5, 4, 5, 6]),
        ("fixed_list uint8[2]", vec![0, 7, 1, 7, 2, 7, 3, 7, 4, 7]),
        ("i16 int32[]", little(&[0, -300, -600, -900, -1200], i32::to_le_bytes)),
        ("i32 int32[]", little(&[0, -70_000, -140_000, -210_000, -280_000], i32::to_le_bytes)),
        ("i64 int64[]", little(&[0, 1, 2, 3, 4].map(|row: i64| -row << 40), i64::to_le_bytes)),
        ("i8 int8[]", little(&[0, -1, -2, -3, -4], i8::to_le_bytes)),
        ("large_list int32[3]", little(&[0, 0, 2, 1, -1, 2, 2, -2, 2, 3, -3, 2, 4, -4, 2], i32::to_le_bytes)),
        ("large_text uint8[1]", b"01234".to_vec()),
        ("list float32[2]", little(&[0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5], f32::to_le_bytes)),
        ("text uint8[8]", padded(&["", "é", "éé", "ééé", "éééé"], 8)),
        ("time32 int32[]", little(&[0, 1, 2, 3, 4], i32::to_le_bytes)),
        ("time64 int64[]", little(&[0, 1, 2, 3, 4], i64::to_le_bytes)),
        ("timestamp int64[]", little(&[0, 1, 2, 3, 4].map(|row| 1_700_000_000 + row), i64::to_le_bytes)),
        ("u16 uint32[]", little(&[0, 1, 2, 3, 4].map(|row| 65_535 - row), u32::to_le_bytes)),
        ("u32 uint32[]", little(&[0, 1, 2, 3, 4].map(|row| u32::MAX - row), u32::to_le_bytes)),
        ("u64 uint64[]", little(&[0, 1, 2, 3, 4].map(|row| u64::MAX - row), u64::to_le_bytes)),
        ("u8 uint8[]", vec![250, 251, 252, 253, 254]),
        ("view uint8[18]", padded(&["0", "long text number 1", "2", "long text number 3", "4"], 18)),
    ];
    for file in [arrow_file!("types.arrow"), arrow_file!("types_stream.arrow"), arrow_file!("types_v4.arrow")] {
        let data = ingest_files(&[("d.arrow", file)]);
        assert_eq!(items(&data), expected.each_ref().map(|(item, _)| *item));
        for (item, bytes) in &expected {
            let name = item.split(' ').next().unwrap();
            assert_eq!(data.column(name).unwrap(), bytes, "{item}");
        }
        assert_eq!(data.field("class").unwrap().classes, ["no", "yes"]);
        assert_eq!(split_ranges(&data), [("train", 0..5)]);
    }
}

#[test]
fn equal_content_in_parquet_and_feather_gives_the_same_dataset() {
    let feather = ingest_files(&[("d.feather", arrow_file!("same.feather"))]);
    let parquet = ingest_files(&[("d.parquet", arrow_file!("same.parquet"))]);
    assert_eq!(items(&feather), ["a float32[2]", "b int64[]", "c uint8[7]", "d uint8[]", "e float32[]"]);
    assert_eq!(feather.digest(), parquet.digest());
    let keys = r#""missing": "drop", "splits": {"train": 0.8, "test": 0.2},
        "fields": [{"name": "label", "column": "b"}, {"name": "x", "column": "a", "shape": [2, 1]}, {"name": "c"}]}"#;
    let described = |format: &str, name: &str, file: &[u8]| {
        let json = format!(r#"{{"format": "{format}", {keys}"#);
        ingest_files(&[("dataset.json", json.as_bytes()), (name, file)])
    };
    let feather = described("arrow", "d.feather", arrow_file!("same.feather"));
    assert_eq!(split_ranges(&feather), [("train", 0..160), ("test", 160..200)]);
    assert_eq!(feather.digest(), described("parquet", "d.parquet", arrow_file!("same.parquet")).digest());
}

#[test]
fn frames_of_pandas_are_read_however_they_are_compressed() {
    let drop = br#"{"format": "arrow", "missing": "drop"}"#;
    let mut digests = Vec::new();
    for file in [arrow_file!("pandas.feather"), arrow_file!("pandas_zstd.feather")] {
        let (info, data) = ingest_open(&[("dataset.json", drop), ("d.feather", file)]);
        assert_eq!(
            field_lines(&info),
            ["kind uint8[] [dog cat owl]", "number float32[] []", "text uint8[5] []", "whole int64[] []"]
        );
        assert_eq!(info.notes, ["1400 of 3000 rows were dropped: values are missing (first in row 1)"]);
        let rows: Vec<i64> = (0..3000).filter(|row| row % 5 != 0 && row % 3 != 2).collect();
        assert_eq!(info.items, rows.len() as u64);
        let kinds: Vec<u8> = rows.iter().map(|row| u8::from(row % 3 == 0)).collect();
        assert_eq!(data.column("kind").unwrap(), kinds);
        let numbers: Vec<f32> = rows.iter().map(|row| (row % 7) as f32 / 8.0).collect();
        assert_eq!(data.column("number").unwrap(), little(&numbers, f32::to_le_bytes));
        let words: Vec<&str> = rows.iter().map(|row| ["one", "two"][(row % 3) as usize]).collect();
        assert_eq!(data.column("text").unwrap(), padded(&words, 5));
        let whole: Vec<i64> = rows.iter().map(|row| row % 11).collect();
        assert_eq!(data.column("whole").unwrap(), little(&whole, i64::to_le_bytes));
        digests.push(info.digest);
    }
    assert_eq!(digests[0], digests[1]);
    let (info, _) = ingest_open(&[("dataset.json", drop), ("d.feather", arrow_file!("pandas_plain.feather"))]);
    assert_eq!(info.items, 11);
    check(
        &[("d.feather", arrow_file!("pandas.feather"))],
        expect![
            "d.feather: column kind: row 3: a null; push with `--missing drop` to leave such rows out, or with `--missing mean`"
        ],
    );
    for file in [arrow_file!("lz4.arrow"), arrow_file!("zstd_stream.arrow")] {
        let data = ingest_files(&[("d.arrow", file)]);
        let numbers: Vec<i32> = (0..300).map(|row| row / 90).collect();
        assert_eq!(data.column("x").unwrap(), little(&numbers, i32::to_le_bytes));
        assert_eq!(data.column("t").unwrap(), b"word".repeat(300));
    }
}

#[test]
fn slices_of_arrays_are_read() {
    let data = ingest_files(&[(
        "dataset.json",
        br#"{"format": "arrow", "fields": [{"name": "bit"}, {"name": "list"}, {"name": "fixed_list"}, {"name": "text"}]}"#,
    ), ("d.arrow", arrow_file!("slices.arrow"))]);
    let rows: Vec<u8> = (3..13).chain(29..36).collect();
    let each = |value: fn(u8) -> Vec<u8>| rows.iter().flat_map(|row| value(*row)).collect::<Vec<u8>>();
    assert_eq!(data.column("bit").unwrap(), each(|row| vec![u8::from(row % 3 == 1)]));
    assert_eq!(data.column("list").unwrap(), each(|row| vec![row, 0, 0, 0, row + 1, 0, 0, 0]));
    assert_eq!(data.column("fixed_list").unwrap(), each(|row| vec![u8::from(row % 2 == 0), 1]));
    let words: Vec<String> = rows.iter().map(|row| format!("t{row}")).collect();
    assert_eq!(data.column("text").unwrap(), padded(&words.iter().map(String::as_str).collect::<Vec<_>>(), 3));
    let json = br#"{"format": "arrow", "missing": "drop", "fields": [{"name": "some"}]}"#;
    let data = ingest_files(&[("dataset.json", json), ("d.arrow", arrow_file!("slices.arrow"))]);
    let valid: Vec<i32> = rows.iter().filter(|row| *row % 4 != 2).map(|row| i32::from(*row)).collect();
    assert_eq!(data.column("some").unwrap(), little(&valid, i32::to_le_bytes));
}

#[test]
fn dictionaries_that_grow_or_are_replaced_give_the_same_classes() {
    let drop = br#"{"format": "arrow", "missing": "drop"}"#;
    for file in [arrow_file!("grown.arrow"), arrow_file!("grown_stream.arrow")] {
        let (info, data) = ingest_open(&[("dataset.json", drop), ("d.arrow", file)]);
        assert_eq!(field_lines(&info), ["kind uint8[] [a b c d]"]);
        assert_eq!(data.column("kind").unwrap(), [0, 1, 2, 0, 3]);
    }
    let replaced = arrow_file!("replaced_stream.arrow");
    let (info, data) = ingest_open(&[("dataset.json", drop), ("d.arrow", replaced)]);
    assert_eq!(field_lines(&info), ["kind uint8[] [a b c]"]);
    assert_eq!(data.column("kind").unwrap(), [0, 1, 2, 1]);
    // Several files have different dictionaries, in the order of the files' names.
    let files = [("dataset.json", &drop[..]), ("a.arrow", replaced), ("b.arrow", arrow_file!("grown.arrow"))];
    let (info, data) = ingest_open(&files);
    assert_eq!(field_lines(&info), ["kind uint8[] [a b c d]"]);
    assert_eq!(data.column("kind").unwrap(), [0, 1, 2, 1, 0, 1, 2, 0, 3]);
    // A description gives the classes and their order.
    let described = |classes: &str| {
        format!(r#"{{"format": "arrow", "missing": "drop", "fields": [{{"name": "kind", "classes": {classes}}}]}}"#)
    };
    let json = described(r#"["d", "c", "b", "a"]"#);
    let (_, data) = ingest_open(&[("dataset.json", json.as_bytes()), ("d.arrow", arrow_file!("grown.arrow"))]);
    assert_eq!(data.column("kind").unwrap(), [3, 2, 1, 3, 0]);
    let json = described(r#"["a", "b"]"#);
    check(
        &[("dataset.json", json.as_bytes()), ("d.arrow", arrow_file!("grown.arrow"))],
        expect!["d.arrow: column kind: row 4: a text that is not among the classes of dataset.json"],
    );
    let mean = br#"{"format": "arrow", "missing": "mean"}"#;
    check(
        &[("dataset.json", mean), ("d.arrow", arrow_file!("grown.arrow"))],
        expect!["the Arrow files: column kind: row 3: a null, and the column has no mean; push with `--missing drop`"],
    );
}

#[test]
fn images_and_class_names_in_streams_of_hugging_face_are_read() {
    let (info, data) = ingest_open(&[("data-00000-of-00001.arrow", arrow_file!("images.arrow"))]);
    assert_eq!(field_lines(&info), ["image uint8[1, 2, 1] []", "label int64[] [cat dog]"]);
    assert_eq!(data.column("image").unwrap(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(data.column("label").unwrap(), little(&[1, 0, 1], i64::to_le_bytes));
    let json = br#"{"format": "arrow", "resize": {"width": 2, "height": 2}}"#;
    let (info, _) = ingest_open(&[("dataset.json", json), ("d.arrow", arrow_file!("images.arrow"))]);
    assert_eq!(field_lines(&info)[0], "image uint8[2, 2, 3] []");
}

#[test]
fn rows_with_nulls_in_arrow_files_are_refused_dropped_or_filled() {
    let nulls = arrow_file!("nulls.arrow");
    check(
        &[("d.arrow", nulls)],
        expect![
            "d.arrow: column n: row 3: a null; push with `--missing drop` to leave such rows out, or with `--missing mean`"
        ],
    );
    let drop = br#"{"format": "arrow", "missing": "drop"}"#;
    let (info, data) = ingest_open(&[("dataset.json", drop), ("test.arrow", nulls), ("train.arrow", nulls)]);
    let splits: Vec<_> = info.splits.iter().map(|split| split.items.clone()).collect();
    assert_eq!((splits, info.items), (vec![0..1, 1..2], 2));
    assert_eq!(data.column("x").unwrap(), little(&[1.0, 1.0], f32::to_le_bytes));
    assert_eq!(info.notes, ["8 of 10 rows were dropped: values are missing (first in row 2)"]);
    let views = br#"{"format": "arrow", "missing": "drop", "fields": [{"name": "view"}]}"#;
    let (_, data) = ingest_open(&[("dataset.json", views), ("d.arrow", nulls)]);
    assert_eq!(data.column("view").unwrap(), padded(&["a", "a text longer than a view", "d", "e"], 25));
    let mean = br#"{"format": "arrow", "missing": "mean", "fields": [{"name": "x"}, {"name": "n"}]}"#;
    let (info, data) = ingest_open(&[("dataset.json", mean), ("d.arrow", nulls)]);
    assert_eq!(data.column("x").unwrap(), little(&[1.0, 4.0, 3.0, 4.0, 8.0], f32::to_le_bytes));
    assert_eq!(data.column("n").unwrap(), little(&[1, 2, 3, 4, 6], i32::to_le_bytes));
    assert_eq!(info.notes.len(), 2);
}

#[test]
fn arrow_file_names_give_the_splits() {
    let file = arrow_file!("images.arrow");
    let data = ingest_files(&[
        ("train-00001-of-00002.arrow", file),
        ("train-00000-of-00002.feather", file),
        ("test-00000-of-00001.arrow", file),
    ]);
    assert_eq!(split_ranges(&data), [("test", 0..3), ("train", 3..9)]);
    check(&[("a.arrow", file), ("a.feather", file)], expect!["a.feather: a.arrow is there too; keep one of them"]);
    check(&[("a.arrow.gz", file)], expect!["a.arrow.gz: Arrow files are compressed inside; unpack it"]);
    check(
        &[("dataset.json", br#"{"format": "arrow"}"#)],
        expect!["NAME.arrow or NAME.feather: missing, and dataset.json needs it"],
    );
    check(
        &[("a.arrow", file), ("b.arrow", arrow_file!("nulls.arrow"))],
        expect!["b.arrow: column x: a.arrow has no such column; every file has the same columns"],
    );
}

/// Returns the error of reading one column of `others.arrow`, without its hint.
fn refused_column(name: &str) -> String {
    let json = format!(r#"{{"format": "arrow", "fields": [{{"name": "{name}"}}]}}"#);
    let source = folder_with_files(&[("dataset.json", json.as_bytes()), ("d.arrow", arrow_file!("others.arrow"))]);
    let error = datasets().1.ingest("d", source.path(), 0).unwrap_err().to_string();
    let hint = "; integers, floats, truth values, dates, strings, dictionaries of strings, bytes of fixed length, images \
                and lists of numbers are read";
    let error = error.strip_suffix(hint).unwrap_or_else(|| panic!("{error}"));
    error.strip_prefix(&format!("d.arrow: column {name}: ")).unwrap_or_else(|| panic!("{error}")).to_owned()
}

#[test]
fn unsupported_types_of_arrow_are_refused_by_name() {
    let expected = [
        ("decimal", "decimal numbers; save them as numbers or strings"),
        ("map", "maps; make each key a separate column"),
        ("sparse", "unions; make each type a separate column"),
        ("dense", "unions; make each type a separate column"),
        ("runs", "run-end encoded values; save them without the encoding"),
        ("nested", "a list of lists; flatten it and give the shape in dataset.json"),
        ("struct", "a structure; make its members separate columns"),
        ("null", "nulls alone; leave the column out"),
        ("bytes", "bytes of any length; make them strings or of fixed length"),
        ("words", "a list of strings or bytes; save it as numbers"),
        ("list_view", "list views; save them as lists"),
        ("bytes_view", "bytes of any length; make them strings or of fixed length"),
        ("interval", "calendar intervals; save them as numbers or strings"),
        ("numbers", "a dictionary of numbers; save it without a dictionary"),
    ];
    for (name, reason) in expected {
        assert_eq!(refused_column(name), reason);
    }
    // The columns beside them can be read.
    let json = br#"{"format": "arrow", "fields": [{"name": "first"}, {"name": "last"}]}"#;
    let data = ingest_files(&[("dataset.json", json), ("d.arrow", arrow_file!("others.arrow"))]);
    assert_eq!(data.column("first").unwrap(), little(&[1, 2], i32::to_le_bytes));
    assert_eq!(data.column("last").unwrap(), little(&[0.5, 1.5], f32::to_le_bytes));
    let whole = folder_with_files(&[("d.arrow", arrow_file!("others.arrow"))]);
    let error = datasets().1.ingest("d", whole.path(), 0).unwrap_err().to_string();
    assert!(error.contains(", or name the columns to take in dataset.json; integers"), "{error}");
}

#[test]
fn other_formats_in_arrow_files_are_named() {
    check(
        &[("d.feather", arrow_file!("version1.feather"))],
        expect!["d.feather: it is in version 1 of Feather; write version 2 with `pyarrow.feather.write_feather`"],
    );
    check(
        &[("d.arrow", arrow_file!("same.parquet"))],
        expect!["d.arrow: it is a Parquet file; rename it to NAME.parquet"],
    );
    check(
        &[("d.arrow", b"a,b,c\n1,2,3\n4,5,6\n")],
        expect!["d.arrow: it begins neither with ARROW1 nor with a message, as Arrow files do"],
    );
}
