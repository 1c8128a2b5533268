//! Import of Parquet columns, and the errors of columns that cannot become fields.

use std::sync::Arc;

use ::parquet::basic::{Compression, Encoding};
use ::parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType,
    Int32Type, Int64Type,
};
use ::parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;

use super::arrays::{array, ingest_files, items, split_ranges};
use super::*;

/// Writes a column of a row group.
type PutColumn = Box<dyn Fn(&mut SerializedRowGroupWriter<'_, Vec<u8>>)>;

/// Returns a column of values without nulls, or with these definition and repetition levels.
pub(super) fn column_with_levels<T: DataType>(
    values: Vec<T::T>,
    defined: Option<Vec<i16>>,
    repeated: Option<Vec<i16>>,
) -> PutColumn {
    Box::new(move |group| {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<T>().write_batch(&values, defined.as_deref(), repeated.as_deref()).unwrap();
        column.close().unwrap();
    })
}

pub(super) fn required_column<T: DataType>(values: Vec<T::T>) -> PutColumn {
    column_with_levels::<T>(values, None, None)
}

fn texts(values: &[&str]) -> PutColumn {
    required_column::<ByteArrayType>(values.iter().map(|text| ByteArray::from(*text)).collect())
}

fn fixed(values: &[&[u8]]) -> PutColumn {
    let value = |bytes: &&[u8]| FixedLenByteArray::from(ByteArray::from(bytes.to_vec()));
    required_column::<FixedLenByteArrayType>(values.iter().map(value).collect())
}

/// Returns a file of these fields, with a row group for each list of columns.
pub(super) fn file(fields: &str, groups: Vec<Vec<PutColumn>>, properties: WriterPropertiesBuilder) -> Vec<u8> {
    let end = if fields.ends_with('}') { "" } else { ";" };
    let schema = Arc::new(parse_message_type(&format!("message m {{ {fields}{end} }}")).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
    for columns in groups {
        let mut group = writer.next_row_group().unwrap();
        columns.iter().for_each(|put| put(&mut group));
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

/// Returns a file of one row group with the default properties.
pub(super) fn plain(fields: &str, columns: Vec<PutColumn>) -> Vec<u8> {
    file(fields, vec![columns], WriterProperties::builder())
}

const LIST: &str = "optional group x (LIST) { repeated group list { optional float element; } }";

/// Returns a column of three-level lists of floats.
pub(super) fn lists(rows: &[&[f32]]) -> PutColumn {
    let repeated = rows.iter().flat_map(|row| (0..row.len()).map(|at| i16::from(at > 0))).collect();
    let values = rows.concat();
    column_with_levels::<FloatType>(values.clone(), Some(vec![3; values.len()]), Some(repeated))
}

fn little<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| bytes(*value)).collect()
}

#[test]
fn every_type_becomes_a_column() {
    let fields = "required boolean a; required int32 b (INTEGER(8,true)); required int32 c (INTEGER(8,false));
        required int32 d (INTEGER(16,true)); required int32 e (INTEGER(16,false)); required int32 f;
        required int32 g (INTEGER(32,false)); required int64 h; required int64 i (INTEGER(64,false));
        required fixed_len_byte_array(2) j (FLOAT16); required float k; required double l; optional binary m (STRING);
        required fixed_len_byte_array(3) n; required int32 o (UINT_8); required binary p (UTF8);
        required int64 q (INTEGER(64,true))";
    let columns = vec![
        required_column::<BoolType>(vec![true, false]),
        required_column::<Int32Type>(vec![-128, 127]),
        required_column::<Int32Type>(vec![0, 255]),
        required_column::<Int32Type>(vec![-32768, 1]),
        required_column::<Int32Type>(vec![65535, 1]),
        required_column::<Int32Type>(vec![i32::MIN, 1]),
        required_column::<Int32Type>(vec![-1, 1]),
        required_column::<Int64Type>(vec![i64::MIN, 1]),
        required_column::<Int64Type>(vec![-1, 1]),
        fixed(&[&[1, 2], &[3, 4]]),
        required_column::<FloatType>(vec![0.5, f32::INFINITY]),
        required_column::<DoubleType>(vec![0.1, f64::NEG_INFINITY]),
        column_with_levels::<ByteArrayType>(vec!["hé".into(), "".into()], Some(vec![1, 1]), None),
        fixed(&[&[1, 2, 3], &[4, 5, 6]]),
        required_column::<Int32Type>(vec![7, 8]),
        texts(&["x", "yz"]),
        required_column::<Int64Type>(vec![5, -5]),
    ];
    let data = ingest_files(&[("d.parquet", &plain(fields, columns))]);
    let expected: [(&str, Vec<u8>); 17] = [
        ("a uint8[]", vec![1, 0]),
        ("b int8[]", vec![128, 127]),
        ("c uint8[]", vec![0, 255]),
        ("d int32[]", little(&[-32768, 1], i32::to_le_bytes)),
        ("e uint32[]", little(&[65535, 1], u32::to_le_bytes)),
        ("f int32[]", little(&[i32::MIN, 1], i32::to_le_bytes)),
        ("g uint32[]", little(&[u32::MAX, 1], u32::to_le_bytes)),
        ("h int64[]", little(&[i64::MIN, 1], i64::to_le_bytes)),
        ("i uint64[]", little(&[u64::MAX, 1], u64::to_le_bytes)),
        ("j float16[]", vec![1, 2, 3, 4]),
        ("k float32[]", little(&[0.5, f32::INFINITY], f32::to_le_bytes)),
        ("l float32[]", little(&[0.1, f32::NEG_INFINITY], f32::to_le_bytes)),
        ("m uint8[3]", "hé\0\0\0".into()),
        ("n uint8[3]", vec![1, 2, 3, 4, 5, 6]),
        ("o uint8[]", vec![7, 8]),
        ("p uint8[2]", b"x\0yz".to_vec()),
        ("q int64[]", little(&[5, -5], i64::to_le_bytes)),
    ];
    assert_eq!(items(&data), expected.each_ref().map(|(item, _)| *item));
    for (item, bytes) in &expected {
        assert_eq!(data.column(&item[..1]).unwrap(), bytes, "{item}");
    }
    assert_eq!(split_ranges(&data), [("train", 0..2)]);
}

/// Returns all combinations of writer properties.
fn writer_variants() -> Vec<WriterPropertiesBuilder> {
    let mut ways = Vec::new();
    for compression in
        [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::GZIP(Default::default()), Compression::LZ4_RAW]
    {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [true, false] {
                let way = WriterProperties::builder().set_compression(compression).set_writer_version(version);
                let way = way.set_dictionary_enabled(dictionary).set_write_batch_size(5);
                let way = if dictionary { way } else { way.set_encoding(Encoding::PLAIN) };
                ways.push(way.set_data_page_row_count_limit(7));
            }
        }
    }
    let other = |encoding| WriterProperties::builder().set_dictionary_enabled(false).set_encoding(encoding);
    ways.push(other(Encoding::BYTE_STREAM_SPLIT));
    ways
}

#[test]
fn equal_content_gives_equal_datasets_however_the_file_was_written() {
    let count = 100u8;
    let label: Vec<i64> = (0..count).map(|at| i64::from(at % 7) - 3).collect();
    let rows: Vec<Vec<f32>> =
        (0..count).map(|at| (0..6).map(|k| f32::from(at % 5) + k as f32 / 8.0).collect()).collect();
    let floats = little(&rows.concat(), f32::to_le_bytes);
    let npy = [
        ("x.npy", array("<f4", "(100, 6)", &floats)),
        ("y.npy", array("<i8", "(100,)", &little(&label, i64::to_le_bytes))),
    ];
    let npy = npy.each_ref().map(|(name, bytes)| (*name, bytes.as_slice()));
    let expected = ingest_files(&npy).digest();
    for (at, way) in writer_variants().into_iter().enumerate() {
        let group = |range: Range<usize>| {
            let lists = rows[range.clone()].iter().map(Vec::as_slice).collect::<Vec<_>>();
            vec![required_column::<Int64Type>(label[range].to_vec()), super::parquet::lists(&lists)]
        };
        let groups = vec![group(0..33), group(33..34), group(34..100)];
        let bytes = file(&format!("required int64 y; {LIST}"), groups, way);
        assert_eq!(ingest_files(&[("a.parquet", &bytes)]).digest(), expected, "way {at}");
    }
}

#[test]
fn delta_encodings_are_read() {
    let way = |encoding| WriterProperties::builder().set_dictionary_enabled(false).set_encoding(encoding);
    let numbers: Vec<i32> = (0..1000).map(|at| at * at % 77).collect();
    let bytes = file(
        "required int32 x",
        vec![vec![required_column::<Int32Type>(numbers.clone())]],
        way(Encoding::DELTA_BINARY_PACKED),
    );
    assert_eq!(ingest_files(&[("a.parquet", &bytes)]).column("x").unwrap(), little(&numbers, i32::to_le_bytes));
    let words = ["one", "", "three"];
    let bytes = file("required binary x (STRING)", vec![vec![texts(&words)]], way(Encoding::DELTA_LENGTH_BYTE_ARRAY));
    assert_eq!(ingest_files(&[("a.parquet", &bytes)]).column("x").unwrap(), b"one\0\0\0\0\0\0\0three");
    let bytes = file("required binary x (STRING)", vec![vec![texts(&words)]], way(Encoding::DELTA_BYTE_ARRAY));
    check(
        &[("a.parquet", &bytes)],
        expect![
            "a.parquet: column x: its page at byte 4: its values are in the encoding DELTA_BYTE_ARRAY; write them with a dictionary or PLAIN"
        ],
    );
}

/// The file was written by Apache Arrow 26.0.1, compressed with ZSTD: `x` lists of three floats, `y` strings, `z`
/// 64-bit integers.
#[test]
fn files_written_by_apache_arrow_are_read() {
    let data = ingest_files(&[("train.parquet", include_bytes!("arrow.parquet"))]);
    assert_eq!(items(&data), ["x float32[3]", "y uint8[6]", "z int64[]"]);
    let floats: Vec<f32> = (0..600).map(|at| (at % 50) as f32 / 4.0).collect();
    assert_eq!(data.column("x").unwrap(), little(&floats, f32::to_le_bytes));
    let words = ["zero", "one", "two", "three", "fourth"].map(|word| format!("{word:\0<6}")).concat();
    assert_eq!(data.column("y").unwrap(), words.repeat(40).as_bytes());
    let numbers: Vec<i64> = (0..200).map(|at| at * at).collect();
    assert_eq!(data.column("z").unwrap(), little(&numbers, i64::to_le_bytes));
}

#[test]
fn parquet_file_names_give_the_splits() {
    let byte = |values: &[i32]| {
        plain("required int32 x (INTEGER(8,false))", vec![required_column::<Int32Type>(values.to_vec())])
    };
    let none = byte(&[]);
    let (one, two, three) = (byte(&[1]), byte(&[2, 3]), byte(&[4, 5, 6]));
    let data = ingest_files(&[("b.parquet", &one), ("a.parquet", &two)]);
    assert_eq!((split_ranges(&data), data.column("x").unwrap()), (vec![("a", 0..2), ("b", 2..3)], &[2, 3, 1][..]));
    let data = ingest_files(&[
        ("train-00001-of-00002.parquet", &one),
        ("train-00000-of-00002.parquet", &two),
        ("test-00000-of-00001.parquet", &three),
    ]);
    let expected = (vec![("test", 0..3), ("train", 3..6)], &[4, 5, 6, 2, 3, 1][..]);
    assert_eq!((split_ranges(&data), data.column("x").unwrap()), expected);
    let data = ingest_files(&[
        ("part-00000-a.parquet", &one),
        ("part-00001-b.parquet", &none),
        ("part-00002-c.parquet", &two),
    ]);
    assert_eq!((split_ranges(&data), data.column("x").unwrap()), (vec![("train", 0..3)], &[1, 2, 3][..]));
    check(&[("a.parquet", &none)], expect!["a.parquet: no items"]);
}

#[test]
fn a_description_names_columns_and_shares() {
    let fields = "required int32 label; required group other { required int32 z; }
        optional group pixels (LIST) { repeated int32 array (INTEGER(8,false)); }";
    let pixels: Vec<i32> = (0..40).collect();
    let repeated = (0..40).map(|at| i16::from(at % 4 > 0)).collect();
    let labels: Vec<i32> = (0..10).map(|at| at % 3).collect();
    let columns = vec![
        required_column::<Int32Type>(labels.clone()),
        required_column::<Int32Type>(vec![0; 10]),
        column_with_levels::<Int32Type>(pixels, Some(vec![2; 40]), Some(repeated)),
    ];
    let bytes = plain(fields, columns);
    let rest = r#""splits":{"train":0.8,"test":0.2},"description":"d""#;
    let json = |fields: &str| format!(r#"{{"format":"parquet","fields":[{fields}],{rest}}}"#);
    let good = json(r#"{"name":"image","column":"pixels","shape":[2,2]},{"name":"label","classes":["a","b","c"]}"#);
    let data = ingest_files(&[("dataset.json", good.as_bytes()), ("d.parquet", &bytes)]);
    let lines: String =
        (0..10).map(|at| format!("{},{},{},{},{}\n", 4 * at, 4 * at + 1, 4 * at + 2, 4 * at + 3, at % 3)).collect();
    let csv = format!(
        r#"{{"format":"csv","file":"x.csv","fields":[{{"name":"image","columns":[0,4],"shape":[2,2],"dtype":"uint8"}},
        {{"name":"label","columns":[4,5],"dtype":"int32","classes":["a","b","c"]}}],{rest}}}"#
    );
    let same = ingest_files(&[("dataset.json", csv.as_bytes()), ("x.csv", lines.as_bytes())]);
    assert_eq!((data.digest(), split_ranges(&data)), (same.digest(), vec![("train", 0..8), ("test", 8..10)]));
    let check_json = |fields: &str, expected| {
        check(&[("dataset.json", json(fields).as_bytes()), ("d.parquet", &bytes)], expected);
    };
    check_json(
        r#"{"name":"x"}"#,
        expect!["d.parquet: column x: no column has this name; the columns are label, other.z, pixels"],
    );
    check_json(
        r#"{"name":"pixels","shape":[3]}"#,
        expect!["dataset.json: field pixels: shape [3] has 3 elements, and column pixels has 4"],
    );
    check_json(
        r#"{"name":"label","classes":["a","b"]}"#,
        expect!["column label of d.parquet: element 2: label 2, and there are 2 classes"],
    );
    check_json(r#"{"name":"a","column":"label"},{"name":"a"}"#, expect!["dataset.json: two fields are called `a`"]);
    check(&[("dataset.json", br#"{"format":"parquet"}"#)], expect!["NAME.parquet: missing, and dataset.json needs it"]);
}

#[test]
fn lists_of_unequal_length_and_nulls_are_refused() {
    let check_lists = |values: &[f32], defined: &[i16], repeated: &[i16], expected| {
        let column = column_with_levels::<FloatType>(values.to_vec(), Some(defined.to_vec()), Some(repeated.to_vec()));
        check(&[("d.parquet", &plain(LIST, vec![column]))], expected);
    };
    check_lists(
        &[1.0, 2.0, 3.0],
        &[3, 3, 3],
        &[0, 1, 0],
        expect!["d.parquet: column x: row 2: a list of 1 numbers, and the first has 2; pad or cut them to one length"],
    );
    check_lists(
        &[1.0],
        &[3, 1],
        &[0, 0],
        expect!["d.parquet: column x: row 2: an empty list; a column's lists have numbers in them"],
    );
    check_lists(&[1.0], &[3, 0], &[0, 0], expect!["d.parquet: column x: row 2: a null; fill it or leave the row out"]);
    check_lists(
        &[1.0, 2.0],
        &[3, 3, 2],
        &[0, 0, 1],
        expect!["d.parquet: column x: row 2: a null; fill it or leave the row out"],
    );
    let first = plain(LIST, vec![lists(&[&[1.0, 2.0]])]);
    let second = plain(LIST, vec![lists(&[&[1.0, 2.0, 3.0]])]);
    check(
        &[("a.parquet", &first), ("b.parquet", &second)],
        expect!["b.parquet: column x: row 1: a list of 3 numbers, and the first has 2; pad or cut them to one length"],
    );
    let null = column_with_levels::<Int32Type>(vec![1, 2], Some(vec![1, 0, 1]), None);
    let group = vec![column_with_levels::<Int32Type>(vec![1], Some(vec![1]), None)];
    check(
        &[("d.parquet", &file("optional int32 y", vec![group, vec![null]], WriterProperties::builder()))],
        expect![
            "d.parquet: column y: row 3: a null; push with `--missing drop` to leave such rows out, or with `--missing mean`"
        ],
    );
}

#[test]
fn values_that_no_element_can_have_are_refused_with_their_row() {
    let check_values =
        |field: &str, put: PutColumn, expected| check(&[("d.parquet", &plain(field, vec![put]))], expected);
    check_values(
        "required double y",
        required_column::<DoubleType>(vec![1.0, 1e300]),
        expect!["d.parquet: column y: row 2: 1e300 is too large for float32"],
    );
    check_values(
        "required int32 y (INTEGER(8,true))",
        required_column::<Int32Type>(vec![128]),
        expect!["d.parquet: column y: row 1: 128 is no int8"],
    );
    check_values(
        "required binary y (STRING)",
        texts(&["a", "b\0"]),
        expect!["d.parquet: column y: row 2: byte 1 of its text is 0, which marks the end of a text"],
    );
    check_values(
        "required binary y (STRING)",
        required_column::<ByteArrayType>(vec![vec![b'a', 0xff].into()]),
        expect!["d.parquet: column y: row 1: byte 1 of its text is not valid UTF-8"],
    );
    check_values(
        "required binary y (STRING)",
        texts(&[&"a".repeat(65_537)]),
        expect!["d.parquet: column y: row 1: a text of more than 65536 bytes; break it into several"],
    );
}

#[test]
fn unsupported_column_types_are_refused() {
    let check_type =
        |field: &str, put: PutColumn, expected| check(&[("d.parquet", &plain(field, vec![put]))], expected);
    check_type(
        "required int64 y (DECIMAL(10,2))",
        required_column::<Int64Type>(vec![1]),
        expect![
            "d.parquet: column y: decimal numbers; save them as numbers or strings, or name the columns to take in dataset.json; integers, floats, truth values, dates, strings, bytes of fixed length, images and lists of numbers are read"
        ],
    );
    check_type(
        "required fixed_len_byte_array(16) y (UUID)",
        fixed(&[&[0; 16]]),
        expect![
            "d.parquet: column y: UUIDs; save them as numbers or strings, or name the columns to take in dataset.json; integers, floats, truth values, dates, strings, bytes of fixed length, images and lists of numbers are read"
        ],
    );
    check_type(
        "required binary y",
        texts(&["a"]),
        expect![
            "d.parquet: column y: bytes of any length; make them strings or of fixed length, or name the columns to take in dataset.json; integers, floats, truth values, dates, strings, bytes of fixed length, images and lists of numbers are read"
        ],
    );
    check_type(
        "required group y { required int32 z; }",
        required_column::<Int32Type>(vec![1]),
        expect![
            "d.parquet: column y.z: part of a structure or map; make it a separate column, or name the columns to take in dataset.json; integers, floats, truth values, dates, strings, bytes of fixed length, images and lists of numbers are read"
        ],
    );
    check_type(
        "required group y (LIST) { repeated group list { required group element (LIST) { repeated group list {
            required float element; } } } }",
        column_with_levels::<FloatType>(vec![1.0], Some(vec![2]), Some(vec![0])),
        expect![
            "d.parquet: column y.list.element.list.element: a list of lists; flatten it and give the shape in dataset.json, or name the columns to take in dataset.json; integers, floats, truth values, dates, strings, bytes of fixed length, images and lists of numbers are read"
        ],
    );
    check_type(
        "required group y (LIST) { repeated group list { required binary element (STRING); } }",
        column_with_levels::<ByteArrayType>(vec!["a".into()], Some(vec![1]), Some(vec![0])),
        expect![
            "d.parquet: column y: a list of strings or bytes; save it as numbers, or name the columns to take in dataset.json; integers, floats, truth values, dates, strings, bytes of fixed length, images and lists of numbers are read"
        ],
    );
    check_type(
        "required group y (LIST) { repeated group list { required group element { required int32 z; } } }",
        column_with_levels::<Int32Type>(vec![1], Some(vec![1]), Some(vec![0])),
        expect![
            "d.parquet: column y.list.element.z: part of a structure or map; make it a separate column, or name the columns to take in dataset.json; integers, floats, truth values, dates, strings, bytes of fixed length, images and lists of numbers are read"
        ],
    );
}

#[test]
fn files_with_different_columns_are_refused() {
    let first = plain(
        "required int32 x; required int32 y",
        vec![required_column::<Int32Type>(vec![1]), required_column::<Int32Type>(vec![1])],
    );
    let check_second = |second: Vec<u8>, expected| check(&[("a.parquet", &first), ("b.parquet", &second)], expected);
    check_second(
        plain(
            "required int32 x; required float y",
            vec![required_column::<Int32Type>(vec![1]), required_column::<FloatType>(vec![1.0])],
        ),
        expect!["b.parquet: column y: it is float32, and it is int32 in a.parquet; every file has the same"],
    );
    check_second(
        plain("required int32 x", vec![required_column::<Int32Type>(vec![1])]),
        expect!["b.parquet: column y: no column has this name; the columns are x"],
    );
    let one = || required_column::<Int32Type>(vec![1]);
    check_second(
        plain("required int32 x; required int32 y; required int32 z", vec![one(), one(), one()]),
        expect!["b.parquet: column z: a.parquet has no such column; every file has the same columns"],
    );
    let turned = plain(
        "optional int32 y; required int32 x",
        vec![column_with_levels::<Int32Type>(vec![2], Some(vec![1]), None), one()],
    );
    let data = ingest_files(&[("a.parquet", &first), ("b.parquet", &turned)]);
    assert_eq!(data.column("y").unwrap(), little(&[1, 2], i32::to_le_bytes), "order and nullability may differ");
}
