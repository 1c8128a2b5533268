//! Import of Parquet files as the library `datasets` of Hugging Face writes them: images, class names, nulls, dates.

use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;

use super::parquet::{column_with_levels, file, lists, plain, required_column};
use super::*;

const IMAGE: &str = "optional group image { optional binary bytes; optional binary path (STRING); }";

fn png(width: u32, height: u32, pixels: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let encoder = png::Encoder::new(&mut file, width, height);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
    file
}

/// Returns a file of images with labels.
fn image_file(images: &[Vec<u8>], labels: &[i64], metadata: &str) -> Vec<u8> {
    let levels = || Some(vec![2; images.len()]);
    let bytes = images.iter().map(|image| ByteArray::from(image.clone())).collect();
    let paths = images.iter().map(|_| ByteArray::from("x.png")).collect();
    let columns = vec![
        column_with_levels::<ByteArrayType>(bytes, levels(), None),
        column_with_levels::<ByteArrayType>(paths, levels(), None),
        column_with_levels::<Int64Type>(labels.to_vec(), Some(vec![1; labels.len()]), None),
    ];
    let entry = KeyValue::new("huggingface".to_owned(), metadata.to_owned());
    let other = KeyValue::new("ARROW:schema".to_owned(), "x".to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![other, entry]));
    file(&format!("{IMAGE} optional int64 label"), vec![columns], properties)
}

const NAMES: &str = r#"{"info": {"features": {"image": {"_type": "Image"},
    "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}"#;

#[test]
fn images_and_class_names_of_hugging_face_are_read() {
    let images = [png(2, 1, &[1, 2]), png(2, 1, &[3, 4]), png(2, 1, &[5, 6])];
    let (info, data) = ingest_open(&[("train-00000-of-00001.parquet", &image_file(&images, &[1, 0, 1], NAMES))]);
    assert_eq!(field_lines(&info), ["image uint8[1, 2, 1] []", "label int64[] [cat dog]"]);
    assert_eq!(data.column("image").unwrap(), [1, 2, 3, 4, 5, 6]);
    // Names that are not those of classes, and texts that are not JSON, name nothing.
    let value = r#"{"info": {"features": {"label": {"names": ["a"], "_type": "Value"}}}}"#;
    for metadata in [value, "{", "[]"] {
        let (info, _) = ingest_open(&[("d.parquet", &image_file(&images, &[1, 0, 1], metadata))]);
        assert_eq!(field_lines(&info)[1], "label int64[] []", "{metadata}");
    }
    check(
        &[("d.parquet", &image_file(&images, &[0, 2, 0], NAMES))],
        expect!["column label of d.parquet: element 1: label 2, and there are 2 classes"],
    );
    let broken = [png(2, 1, &[1, 2]), b"GIF89a".to_vec()];
    check(
        &[("d.parquet", &image_file(&broken, &[0, 1], NAMES))],
        expect!["d.parquet: column image: row 2: not a PNG, JPEG or WebP image, by its first bytes"],
    );
}

#[test]
fn images_of_several_sizes_are_converted_or_refused() {
    let images = [png(2, 1, &[1, 2]), png(1, 1, &[9])];
    let parquet = image_file(&images, &[0, 1], NAMES);
    check(
        &[("d.parquet", &parquet)],
        expect![
            "d.parquet: column image: row 2: an image of [1, 1, 1] (height, width, channels), and the first has [1, 2, 1]; `--resize WIDTHxHEIGHT` converts all to one size"
        ],
    );
    let json = br#"{"format": "parquet", "resize": {"width": 2, "height": 2}}"#;
    let (info, data) = ingest_open(&[("dataset.json", json), ("d.parquet", &parquet)]);
    assert_eq!(field_lines(&info)[0], "image uint8[2, 2, 3] []");
    assert_eq!(data.read("image", &[1]).unwrap(), [9; 12]);
    let zero = br#"{"format": "parquet", "resize": {"width": 0, "height": 2}}"#;
    check(
        &[("dataset.json", zero), ("d.parquet", &parquet)],
        expect!["dataset.json: resize: 0 x 2 pixels; 1 to 16384 a side and 25165824 bytes in all are stored"],
    );
}

/// Returns a file with nulls: rows 2 and 4 of `x`, row 3 of `n`, and row 5 of `text`.
fn file_with_nulls() -> Vec<u8> {
    let levels = |nulls: &[usize]| Some((0..5).map(|row| i16::from(!nulls.contains(&row))).collect());
    let texts = ["a", "b", "c", "d"].map(ByteArray::from).to_vec();
    plain(
        "optional double x; optional int32 n; optional binary text (STRING)",
        vec![
            column_with_levels::<DoubleType>(vec![1.0, 3.0, 8.0], levels(&[1, 3]), None),
            column_with_levels::<Int32Type>(vec![1, 2, 4, 6], levels(&[2]), None),
            column_with_levels::<ByteArrayType>(texts, levels(&[4]), None),
        ],
    )
}

#[test]
fn rows_with_nulls_are_refused_dropped_or_filled() {
    let parquet = file_with_nulls();
    check(
        &[("d.parquet", &parquet)],
        expect![
            "d.parquet: column n: row 3: a null; push with `--missing drop` to leave such rows out, or with `--missing mean`"
        ],
    );
    let drop = br#"{"format": "parquet", "missing": "drop"}"#;
    let (info, data) = ingest_open(&[("dataset.json", drop), ("d.parquet", &parquet)]);
    assert_eq!((info.items, info.splits[0].items.clone()), (1, 0..1));
    assert_eq!(data.column("x").unwrap(), 1.0_f32.to_le_bytes());
    assert_eq!(info.notes, ["4 of 5 rows were dropped: values are missing (first in row 2)"]);
    // Two files: the rows of the first count before those of the second.
    let (info, _) = ingest_open(&[("dataset.json", drop), ("test.parquet", &parquet), ("train.parquet", &parquet)]);
    let splits: Vec<_> = info.splits.iter().map(|split| split.items.clone()).collect();
    assert_eq!(splits, [0..1, 1..2]);
    let mean = br#"{"format": "parquet", "missing": "mean", "fields": [{"name": "x"}, {"name": "n"}]}"#;
    let (info, data) = ingest_open(&[("dataset.json", mean), ("d.parquet", &parquet)]);
    let floats: Vec<u8> = [1.0_f32, 4.0, 3.0, 4.0, 8.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(data.column("x").unwrap(), floats);
    assert_eq!(data.read("n", &[2]).unwrap(), 3_i32.to_le_bytes());
    assert_eq!(
        info.notes,
        [
            "column x: 2 missing values became their mean 4 (first in row 2)",
            "column n: 1 missing values became their mean 3.25 (first in row 3)"
        ]
    );
    let texts = br#"{"format": "parquet", "missing": "mean", "fields": [{"name": "text"}]}"#;
    check(
        &[("dataset.json", texts), ("d.parquet", &parquet)],
        expect![
            "the Parquet files: column text: row 5: a null, and the column has no mean; push with `--missing drop`"
        ],
    );
    let all = plain("optional double x", vec![column_with_levels::<DoubleType>(vec![], Some(vec![0, 0]), None)]);
    check(
        &[("dataset.json", drop), ("d.parquet", &all)],
        expect!["the Parquet files: 2 of 2 rows were dropped: values are missing (first in row 1)"],
    );
}

#[test]
fn dates_and_timestamps_are_numbers() {
    let fields_text =
        "required int32 day (DATE); required int64 at (TIMESTAMP(MILLIS,true)); required int32 t (TIME_MILLIS);
        required int64 old (TIMESTAMP_MICROS)";
    let columns = vec![
        required_column::<Int32Type>(vec![19_000, -1]),
        required_column::<Int64Type>(vec![1_700_000_000_000, 0]),
        required_column::<Int32Type>(vec![1, 2]),
        required_column::<Int64Type>(vec![5, 6]),
    ];
    let (info, data) = ingest_open(&[("d.parquet", &plain(fields_text, columns))]);
    assert_eq!(field_lines(&info), ["at int64[] []", "day int32[] []", "old int64[] []", "t int32[] []"]);
    assert_eq!(data.read("day", &[1]).unwrap(), (-1_i32).to_le_bytes());
    assert_eq!(data.read("at", &[0]).unwrap(), 1_700_000_000_000_i64.to_le_bytes());
    // Lists have no policy for nulls.
    let list = "optional group x (LIST) { repeated group list { optional float element; } }";
    let (info, _) = ingest_open(&[("d.parquet", &plain(list, vec![lists(&[&[1.0, 2.0]])]))]);
    assert_eq!(field_lines(&info), ["x float32[2] []"]);
}
