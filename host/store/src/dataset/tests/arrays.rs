//! Import of NumPy and safetensors arrays, and the errors of invalid ones.

use std::io::Cursor;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::*;
use crate::limits::DATASET_BYTES_MAX;

/// Returns a `.npy` file with this text as header.
pub(super) fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len() + 1).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), b"\n", data].concat()
}

pub(super) fn array(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    npy(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), data)
}

fn npz(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (at, (name, bytes)) in entries.iter().enumerate() {
        let method = if at % 2 == 0 { CompressionMethod::Stored } else { CompressionMethod::Deflated };
        zip.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn tensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

pub(super) fn ingest_files(files: &[(&str, &[u8])]) -> ColumnarDataset {
    let (_directory, datasets) = datasets();
    let source = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = source.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let info = datasets.ingest("arrays", source.path(), 0).unwrap();
    // The version's directory has been removed, but its files are still open.
    datasets.open(&info).unwrap()
}

pub(super) fn items(dataset: &ColumnarDataset) -> Vec<String> {
    let field = |field: &DatasetField| format!("{} {}", field.name, field.item);
    dataset.fields().iter().map(field).collect()
}

pub(super) fn split_ranges(dataset: &ColumnarDataset) -> Vec<(&str, Range<u64>)> {
    dataset.splits().iter().map(|split| (split.name.as_str(), split.items.clone())).collect()
}

#[test]
fn npy_files_are_fields() {
    let floats: Vec<u8> = [1.5f32, -2.0, 3.0, 4.0].iter().flat_map(|it| it.to_le_bytes()).collect();
    let data =
        ingest_files(&[("x.npy", &array("<f4", "(2, 2)", &floats)), ("y.npy.gz", &gz(&array("|u1", "(2,)", &[7, 8])))]);
    assert_eq!(items(&data), ["x float32[2]", "y uint8[]"]);
    assert_eq!(data.read("x", &[1, 0]).unwrap(), [&floats[8..], &floats[..8]].concat());
    assert_eq!(data.column("y").unwrap(), [7, 8]);
    assert_eq!(split_ranges(&data), [("train", 0..2)]);
}

#[test]
fn every_data_type_is_read_in_both_byte_orders() {
    for (name, dtype) in [
        ("f4", DType::F32),
        ("f2", DType::F16),
        ("i8", DType::I64),
        ("u8", DType::U64),
        ("i4", DType::I32),
        ("u4", DType::U32),
    ] {
        let little: Vec<u8> = (0..3 * dtype.bytes() as u8).collect();
        let big: Vec<u8> = little.chunks(dtype.bytes()).flat_map(|it| it.iter().rev().copied()).collect();
        for (order, bytes) in [("<", &little), (">", &big)] {
            let data = ingest_files(&[("x.npy", &array(&format!("{order}{name}"), "(3,)", bytes))]);
            assert_eq!((data.fields()[0].item.dtype, data.column("x").unwrap()), (dtype, little.as_slice()));
        }
    }
}

#[test]
fn fortran_order_is_converted_to_row_major() {
    // The element at item i, row j, column k is 100 i + 10 j + k, in Fortran order.
    let (a, b, c) = (3u8, 2u8, 4u8);
    let fortran: Vec<u8> =
        (0..c).flat_map(|k| (0..b).flat_map(move |j| (0..a).map(move |i| 100 * (i % 2) + 10 * j + k + i))).collect();
    let rows: Vec<u8> =
        (0..a).flat_map(|i| (0..b).flat_map(move |j| (0..c).map(move |k| 100 * (i % 2) + 10 * j + k + i))).collect();
    let file = npy("{'descr': '|u1', 'fortran_order': True, 'shape': (3, 2, 4), }", &fortran);
    assert_eq!(ingest_files(&[("x.npy", &file)]).column("x").unwrap(), rows);
}

#[test]
pub(super) fn splits_are_inferred_from_array_and_file_names() {
    let (one, two) = (array("|u1", "(1,)", &[1]), array("|u1", "(2,)", &[2, 3]));
    let keras = npz(&[("x_train.npy", &two), ("y_train.npy", &two), ("x_test.npy", &one), ("y_test.npy", &one)]);
    for files in [
        &[("mnist.npz", keras.as_slice())][..],
        &[
            ("train.npz", &npz(&[("x.npy", &two), ("y.npy", &two)])),
            ("test.npz", &npz(&[("y.npy", &one), ("x.npy", &one)])),
        ],
        &[("x_train.npy", &two), ("y_train.npy", &two), ("x_test.npy", &one), ("y_test.npy", &one)],
        &[("train/x.npy", &two), ("train/y.npy", &two), ("test/x.npy", &one), ("test/y.npy", &one)],
    ] {
        let data = ingest_files(files);
        assert_eq!(items(&data), ["x uint8[]", "y uint8[]"]);
        assert_eq!(
            (split_ranges(&data), data.column("x").unwrap()),
            (vec![("test", 0..1), ("train", 1..3)], &[1, 2, 3][..])
        );
    }
    let data = ingest_files(&[("a.npz", &npz(&[("x_train.npy", &two), ("label.npy", &two)]))]);
    assert_eq!(
        (items(&data), split_ranges(&data)),
        (vec!["label uint8[]".to_owned(), "x_train uint8[]".to_owned()], vec![("train", 0..2)])
    );
}

#[test]
fn safetensors_are_fields() {
    let header = r#"{"__metadata__":{"a":"b"},"y":{"dtype":"U8","shape":[2],"data_offsets":[8,10]},
        "x":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}}"#;
    let data = ingest_files(&[("d.safetensors", &tensors(header, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]))]);
    assert_eq!(items(&data), ["x float16[2]", "y uint8[]"]);
    assert_eq!((data.read("x", &[1]).unwrap(), data.column("y").unwrap()), (vec![5, 6, 7, 8], &[9, 10][..]));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of files")]
fn bad_npy_files_are_refused_with_the_place() {
    let check_npy = |bytes: &[u8], expected| check(&[("x.npy", bytes)], expected);
    let check_header = |header: &str, expected| check_npy(&npy(header, &[0; 64]), expected);
    let whole = array("|u1", "(3,)", &[1, 2, 3]);
    check_npy(b"", expect!["x.npy: ends at byte 0 (decompressed), expected 8 bytes"]);
    check_npy(&whole[..9], expect!["x.npy: ends at byte 9 (decompressed), expected 10 bytes"]);
    check_npy(&whole[..40], expect!["x.npy: ends at byte 40 (decompressed), expected 68 bytes"]);
    check_npy(&whole[..whole.len() - 1], expect!["x.npy: ends at byte 70 (decompressed), expected 71 bytes"]);
    check_npy(
        &[whole.as_slice(), &[4]].concat(),
        expect!["x.npy: has data after byte 71 (decompressed), expected its end"],
    );
    check_npy(
        b"PK\x03\x04 and so on",
        expect![[r#"x.npy: byte 0 (decompressed): no array of NumPy's: it does not begin with \x93NUMPY"#]],
    );
    check_npy(
        b"\x93NUMPY\x09\x00\x00\x00",
        expect!["x.npy: byte 6 (decompressed): version 9 of the format; 1 to 3 are read"],
    );
    check_npy(
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        expect!["x.npy: byte 8 (decompressed): its header would have 4294967295 bytes, and at most 65536 are read"],
    );
    check_npy(&array("|u1", "(0,)", &[]), expect!["x.npy: no items"]);
    check_npy(&array("|u1", "(3, 0)", &[]), expect!["x.npy: no items"]);
    check_npy(&array("|u1", "()", &[1]), expect!["x.npy: a single number; the first axis of an array counts items"]);
    check_npy(&array("|u1", "(9999999999, 9)", &[1]), expect!["x.npy: more than 17179869184 bytes"]);
    check_npy(
        &array("<f4", "(4194305, 4194305, 211106198978564)", &[1]),
        expect!["x.npy: more than 17179869184 bytes"],
    );
    check_npy(
        &array("|u1", "(99999999999999999999,)", &[1]),
        expect![
            "x.npy: byte 10 (decompressed): its header has `99999999999999999999,), }` where a length was expected"
        ],
    );
    check_npy(
        &array("|u1", "(nan,)", &[1]),
        expect!["x.npy: byte 10 (decompressed): its header has `nan,), }` where a length was expected"],
    );
    check_npy(
        &array("|u1", "(-1,)", &[1]),
        expect!["x.npy: byte 10 (decompressed): its header has `-1,), }` where a length was expected"],
    );
    check_npy(
        &array("|u1", "3", &[1]),
        expect!["x.npy: byte 10 (decompressed): its header has `3, }` where `(` was expected"],
    );
    check_npy(
        &array("|u1", "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)", &[1]),
        expect!["x.npy: a tensor has at most 8 dimensions, not 9"],
    );
    check_npy(
        &array("|O", "(3,)", &[1, 2, 3]),
        expect![
            "x.npy: byte 10 (decompressed): its elements are Python objects, which only Python can read; a column has one of float32, float16, int64, uint64, int32, uint32, int8, uint8"
        ],
    );
    check_npy(
        &array("<f8", "(1,)", &[0; 8]),
        expect![
            "x.npy: byte 10 (decompressed): its elements are float64, so save it as array.astype('float32'); a column has one of float32, float16, int64, uint64, int32, uint32, int8, uint8"
        ],
    );
    check_npy(
        &array("|b1", "(1,)", &[0]),
        expect![
            "x.npy: byte 10 (decompressed): its elements are truth values, so save them as array.astype('uint8'); a column has one of float32, float16, int64, uint64, int32, uint32, int8, uint8"
        ],
    );
    check_npy(
        &array("<U3", "(1,)", &[0; 12]),
        expect![
            "x.npy: byte 10 (decompressed): its elements are of type `<U3`; a column has one of float32, float16, int64, uint64, int32, uint32, int8, uint8"
        ],
    );
    check_header(
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
        expect![
            "x.npy: byte 10 (decompressed): its elements are records; save each of their fields as a separate array"
        ],
    );
    check_header(
        "{'descr': '|u1', 'shape': (1,), }",
        expect!["x.npy: byte 10 (decompressed): its header has no entry `fortran_order`"],
    );
    check_header(
        "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (1,), }",
        expect!["x.npy: byte 10 (decompressed): its header says `descr` twice"],
    );
    check_header(
        "{'descr': '|u1', 'fortran_order': 1, 'shape': (1,), }",
        expect![[
            r#"x.npy: byte 10 (decompressed): its header has `1, \'shape\': (1,), }` where True or False was expected"#
        ]],
    );
    check_header(
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), 'x': 1}",
        expect!["x.npy: byte 10 (decompressed): its header has an unknown entry `x`"],
    );
    check_header(
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), } + 1",
        expect!["x.npy: byte 10 (decompressed): its header has `+ 1` where the header's end was expected"],
    );
    check_header("", expect!["x.npy: byte 10 (decompressed): its header has `` where `{` was expected"]);
    let byte = |count: usize| array("|u1", &format!("({count},)"), &vec![0; count]);
    check(&[("x.npy", &byte(2)), ("y.npy", &byte(3))], expect!["y.npy has 3 items, and x.npy has 2"]);
    check(
        &[("x_train.npy", &byte(2)), ("y_train.npy", &byte(2)), ("x_test.npy", &byte(1))],
        expect!["y_train.npy: field y is not in every part once; every part has the same fields"],
    );
    check(
        &[("x_train.npy", &byte(2)), ("x_test.npy", &array("|i1", "(1,)", &[0]))],
        expect!["x_train.npy has items uint8[], and x_test.npy has int8[]"],
    );
}

#[test]
fn descriptions_of_arrays_are_checked() {
    let file = array("|u1", "(3,)", &[0, 1, 2]);
    let check_json = |fields: &str, rest: &str, expected| {
        let json = format!(r#"{{"format":"npy","fields":[{fields}]{rest}}}"#);
        check(
            &[("dataset.json", json.as_bytes()), ("a.npy", &file), ("f.npy", &array("<f4", "(1,)", &[0; 4]))],
            expected,
        );
    };
    let field = r#"{"name":"x","file":"a.npy"}"#;
    check_json("", "", expect!["dataset.json: `fields` is empty; a dataset has at least one"]);
    check_json(
        r#"{"name":"x","file":"../a.npy"}"#,
        "",
        expect![[
            r#"`../a.npy` cannot be a path: relative, parts without `..`, `\`, control characters or a leading dot, and no file inside another"#
        ]],
    );
    check_json(r#"{"name":"x","file":"b.npy"}"#, "", expect!["b.npy: missing, and dataset.json needs it"]);
    check_json(
        r#"{"name":"x","file":"a.npy","classes":["a","b"]}"#,
        "",
        expect!["a.npy: element 2: label 2, and there are 2 classes"],
    );
    check_json(
        r#"{"name":"x","file":"f.npy","classes":["a","b"]}"#,
        "",
        expect!["field x: float32 cannot be a class number; `classes` needs an integer type"],
    );
    check_json(
        field,
        r#","splits":{"train":[0,4]}"#,
        expect!["dataset.json: split train: [0,4] must be [first item, last + 1] of 3 items"],
    );
    check_json(
        field,
        r#","splits":{"train":[2,1]}"#,
        expect!["dataset.json: split train: [2,1] must be [first item, last + 1] of 3 items"],
    );
    check_json(
        field,
        r#","splits":{"train":0.5}"#,
        expect!["dataset.json: split train: 0.5 must be [first item, last + 1] of 3 items"],
    );
    check_json(&format!(r#"{field},{{"name":"y","file":"f.npy"}}"#), "", expect!["f.npy has 1 items, and a.npy has 3"]);
}

#[test]
fn bad_archives_are_refused() {
    let check_npz = |bytes: &[u8], expected| check(&[("d.npz", bytes)], expected);
    let whole = npz(&[("a.npy", &array("|u1", "(3,)", &[1, 2, 3]))]);
    check_npz(b"", expect!["d.npz: not a ZIP archive: invalid Zip archive: Could not find EOCD"]);
    check_npz(
        b"not a ZIP archive, and long enough to be one",
        expect!["d.npz: not a ZIP archive: invalid Zip archive: Could not find EOCD"],
    );
    check_npz(
        &whole[..whole.len() - 30],
        expect!["d.npz: not a ZIP archive: invalid Zip archive: Could not find EOCD"],
    );
    check_npz(&npz(&[]), expect!["d.npz: no items"]);
    check_npz(
        &npz(&[("notes.txt", b"hello")]),
        expect!["d.npz: entry notes.txt is no array: its name does not end in .npy"],
    );
    check_npz(
        &npz(&[("a.npy", b"hello, array")]),
        expect![[r#"d.npz/a.npy: byte 0 (decompressed): no array of NumPy's: it does not begin with \x93NUMPY"#]],
    );
    let mut flipped = whole;
    let at = flipped.windows(3).position(|it| it == [1, 2, 3]).unwrap();
    flipped[at] = 9;
    check_npz(&flipped, expect!["d.npz/a.npy: byte 71 (decompressed): Invalid checksum"]);
    // Data beyond the size of the array is not decompressed.
    let bomb = [array("|u1", "(3,)", &[1, 2, 3]), vec![0; 8 << 20]].concat();
    check_npz(
        &npz(&[("a.npy", &array("|u1", "(3,)", &[0; 3])), ("b.npy", &bomb)]),
        expect!["d.npz/b.npy: has data after byte 71 (decompressed), expected its end"],
    );
    let claim = array("|u1", "(17179869185,)", &[0; 9]);
    check_npz(&npz(&[("a.npy", &claim)]), expect!["d.npz/a.npy: more than 17179869184 bytes"]);
}

#[test]
fn bad_safetensors_are_refused() {
    let check_file = |bytes: &[u8], expected| check(&[("d.safetensors", bytes)], expected);
    let header = r#"{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
    check_file(b"", expect!["d.safetensors: it has 0 bytes, and the length of its header alone takes 8"]);
    check_file(
        &tensors(header, &[1]),
        expect![[r#"d.safetensors: tensor "x": it would end at byte 2 of 1; is the copy finished?"#]],
    );
    check_file(&tensors(header, &[1, 2, 3]), expect!["d.safetensors: 1 bytes follow its last tensor"]);
    check_file(
        &u64::MAX.to_le_bytes(),
        expect!["d.safetensors: its header would have 18446744073709551615 bytes, and at most 100000000 are read"],
    );
    check_file(&tensors("{}", &[]), expect!["d.safetensors: no items"]);
    check_file(
        &tensors("[]", &[]),
        expect!["d.safetensors: its header: invalid type: sequence, expected an object of tensors at line 1 column 0"],
    );
    check_file(
        &tensors(&header.replace("[2]", "[]").replace("[0,2]", "[0,1]"), &[1]),
        expect!["d.safetensors/x: a single number; the first axis of an array counts items"],
    );
    check_file(
        &tensors(&header.replace("[2]", "[NaN]"), &[1, 2]),
        expect![[r#"d.safetensors: its header: tensor "x": expected value at line 1 column 29"#]],
    );
    check_file(
        &tensors(&header.replace("[2]", "[2,0]").replace("[0,2]", "[0,0]"), &[]),
        expect!["d.safetensors/x: no items"],
    );
    check_file(
        &tensors(&header.replace("U8", "F64"), &[1, 2]),
        expect![[r#"d.safetensors: tensor "x": data type "F64" is unknown here"#]],
    );
}

#[test]
fn the_size_limit_counts_the_arrays_of_all_files_together() {
    use super::super::{npy::read_array, safetensors::read_file, source::SourceReader, staging::StagingArea};
    let directory = tempfile::tempdir().unwrap();
    // With files of this size, the expansion limit exceeds the maximum size of a dataset.
    let sparse = std::fs::File::create(directory.path().join("sparse")).unwrap();
    sparse.set_len(DATASET_BYTES_MAX / 100).unwrap();
    let staging = StagingArea::new(directory.path(), directory.path(), &|_| Ok(())).unwrap();
    let bytes = array("|u1", "(3,)", &[1, 2, 3]);
    let read = |held: &mut u64| {
        read_array(&staging, &mut SourceReader::new("x.npy".to_owned(), bytes.as_slice()), "x".to_owned(), held)
    };
    let mut held = DATASET_BYTES_MAX - 5;
    assert_eq!(&*read(&mut held).unwrap().data.map().unwrap(), [1, 2, 3]);
    assert_eq!(held, DATASET_BYTES_MAX - 2);
    expect!["x.npy: more than 17179869184 bytes"].assert_eq(&read(&mut held).unwrap_err().to_string());
    let header =
        r#"{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}"#;
    let place = folder_with_files(&[("d.safetensors", &tensors(header, &[1, 2, 3, 4]))]);
    let mut held = DATASET_BYTES_MAX - 3;
    let error = read_file(&staging, &place.path().join("d.safetensors"), &mut held).unwrap_err();
    expect!["d.safetensors/y: more than 17179869184 bytes"].assert_eq(&error.to_string());
}

#[test]
fn files_with_equal_names_or_unlistable_folders_are_an_error() {
    let byte = |value| array("|u1", "(1,)", &[value]);
    let twins = [("x.npy", byte(1)), ("x.npy.gz", gz(&byte(2)))];
    check(
        &twins.each_ref().map(|(name, bytes)| (*name, bytes.as_slice())),
        expect!["x.npy.gz: x.npy is there too; keep one of them"],
    );
    check(&[("a.txt", b"one"), ("a.txt.gz", &gz(b"two"))], expect!["a.txt.gz: a.txt is there too; keep one of them"]);
    let (_directory, datasets) = datasets();
    let ingested = |source: &TempDir| datasets.ingest("d", source.path(), 0).map(drop);
    // A broken link represents every file that cannot be read: permissions do not restrict root.
    let gone = folder_with_files(&[("x.npy", &byte(1))]);
    std::os::unix::fs::symlink(gone.path().join("nothing"), gone.path().join("y.npy")).unwrap();
    assert!(matches!(ingested(&gone), Err(DatasetError::Store(_))));
    let deeper = tempfile::tempdir().unwrap();
    std::fs::create_dir(deeper.path().join("train")).unwrap();
    std::fs::write(deeper.path().join("train/x.npy"), byte(1)).unwrap();
    ingested(&deeper).unwrap();
    std::os::unix::fs::symlink(gone.path().join("nothing"), deeper.path().join("train/y.npy")).unwrap();
    assert!(matches!(ingested(&deeper), Err(DatasetError::Store(_))));
    assert!(matches!(
        super::super::source::list_files(&deeper.path().join("none"), "npy"),
        Err(DatasetError::Store(_))
    ));
}

#[test]
fn the_file_limit_counts_matching_files_only() {
    let source = folder_with_files(&[("x", b""), ("y", b""), ("a.npy", b""), ("b.npy.gz", b"")]);
    let named = |max| super::super::source::list_files_up_to(source.path(), "npy", max);
    assert_eq!(named(2).unwrap().into_keys().collect::<Vec<_>>(), ["a", "b"], "files of other names do not count");
    assert!(matches!(named(1), Err(DatasetError::TooLarge { max: 1, .. })));
}
