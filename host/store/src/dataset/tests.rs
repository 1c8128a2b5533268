use std::io::Write;

use expect_test::{Expect, expect};
use flate2::Compression;
use flate2::write::GzEncoder;
use saggar_tensor::{DType, Shape};
use tempfile::TempDir;

use super::manifest::MANIFEST_FILE;
use super::*;

mod arrays;
mod arrow;
mod arrow_hostile;
mod arrow_random;
mod arrow_writer;
mod bounds;
mod cifar;
mod exporting;
mod images;
mod json_lines;
mod parquet;
mod parquet_features;
mod parquet_hostile;
mod table_columns;
mod tables;
mod texts;
mod uploading;
mod webdataset;

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns a folder with these files.
fn folder_with_files(files: &[(&str, &[u8])]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    directory
}

fn datasets() -> (TempDir, DatasetStore) {
    let directory = tempfile::tempdir().unwrap();
    let datasets = DatasetStore::new(directory.path());
    (directory, datasets)
}

/// Imports a folder with these files, and opens the dataset.
fn ingest_open(files: &[(&str, &[u8])]) -> (DatasetInfo, ColumnarDataset) {
    let source = folder_with_files(files);
    let (_directory, datasets) = datasets();
    let info = datasets.ingest("d", source.path(), 0).unwrap();
    let data = datasets.open(&info).unwrap();
    (info, data)
}

/// Formats each field as its name, item and classes.
fn field_lines(info: &DatasetInfo) -> Vec<String> {
    let field = |field: &DatasetField| format!("{} {} [{}]", field.name, field.item, field.classes.join(" "));
    info.fields.iter().map(field).collect()
}

/// Imports an invalid folder, and checks the error's text and that nothing is left behind.
fn check(files: &[(&str, &[u8])], expected: Expect) {
    let source = folder_with_files(files);
    let (directory, datasets) = datasets();
    let error = datasets.ingest("d", source.path(), 0).unwrap_err();
    let text = error.to_string().replace(&*source.path().file_name().unwrap().to_string_lossy(), "FOLDER");
    expected.assert_eq(&text);
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(left.is_empty() || left == [".locks"], "{left:?}");
}

/// Imports a CSV dataset with this description of fields and these lines, and checks the error.
fn check_csv(fields: &str, lines: &[u8], expected: Expect) {
    let json = format!(r#"{{"format":"csv","file":"x.csv","fields":[{fields}]}}"#);
    check(&[("dataset.json", json.as_bytes()), ("x.csv", lines)], expected);
}

#[test]
fn the_digits_dataset_is_ingested() {
    let (_directory, datasets) = datasets();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits");
    let info = datasets.ingest("digits", &source, 7).unwrap();
    assert_eq!((info.version, info.items, info.bytes), (1, 1797, 1797 * 65));
    let again = datasets.ingest("digits", &source, 8).unwrap();
    assert_eq!(again, info, "the same content is the same version");
    let digits = datasets.open(&info).unwrap();
    let split = |name: &str, items| DatasetSplit { name: name.to_owned(), items };
    assert_eq!(digits.splits(), [split("train", 0..1438), split("test", 1438..1797)]);
    assert_eq!((digits.len(None).unwrap(), digits.len(Some("test")).unwrap()), (1797, 359));
    let image = digits.field("image").unwrap();
    assert_eq!(image.item, Descriptor::new(DType::U8, Shape::new([8, 8]).unwrap()));
    assert_eq!(digits.field("label").unwrap().classes.len(), 10);
    // The file begins 0 0 5 13 9 1 0 0, with a maximum of 16; below, the values are scaled to 255.
    assert_eq!(&digits.read("image", &[0]).unwrap()[..8], [0, 0, 80, 207, 143, 16, 0, 0]);
    // Its labels begin 0 1 2 3 4 5 6 7 8 9; the third of every five belongs to the test split.
    assert_eq!(digits.read("label", &[0, 1, 2, 3, 4, 5, 1438, 1439]).unwrap(), [0, 1, 3, 4, 5, 6, 2, 7]);
    let mut classes = [0; 10];
    digits.column("label").unwrap().iter().for_each(|class| classes[usize::from(*class)] += 1);
    assert_eq!(classes, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
}

#[test]
fn the_mnist_dataset_is_ingested() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/mnist");
    if !source.is_dir() {
        println!("SKIP: {} is absent", source.display());
        return;
    }
    let (_directory, datasets) = datasets();
    let info = datasets.ingest("mnist", &source, 0).unwrap();
    let mnist = datasets.open(&info).unwrap();
    assert_eq!((mnist.len(Some("train")).unwrap(), mnist.len(Some("test")).unwrap()), (60_000, 10_000));
    assert_eq!(mnist.field("image").unwrap().item.to_string(), "uint8[28, 28]");
    assert_eq!(mnist.read("label", &[0, 1, 2, 60_000, 69_999]).unwrap(), [5, 0, 4, 7, 6]);
}

fn idx(magic: u32, dims: &[u32], data: &[u8]) -> Vec<u8> {
    let words = [&[magic], dims].concat();
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.extend_from_slice(data);
    bytes
}

const NAMES: [&str; 4] =
    ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte.gz"];

/// Returns the files of three items for training and one for testing, of 2x2 pixels.
fn tiny_mnist() -> [Vec<u8>; 4] {
    [
        gz(&idx(0x803, &[3, 2, 2], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])),
        idx(0x801, &[3], &[7, 0, 9]),
        idx(0x803, &[1, 2, 2], &[13, 14, 15, 16]),
        gz(&idx(0x801, &[1], &[5])),
    ]
}

fn check_idx(file: usize, bytes: Vec<u8>, expected: Expect) {
    let mut files = tiny_mnist();
    files[file] = bytes;
    let named: Vec<_> = NAMES.into_iter().zip(files.iter().map(Vec::as_slice)).collect();
    check(&named, expected);
}

#[test]
fn idx_files_become_columns() {
    let (_directory, datasets) = datasets();
    let files = tiny_mnist();
    let named: Vec<_> = NAMES.into_iter().zip(files.iter().map(Vec::as_slice)).collect();
    let info = datasets.ingest("tiny", folder_with_files(&named).path(), 0).unwrap();
    let tiny = datasets.open(&info).unwrap();
    assert_eq!(tiny.read("image", &[3, 0]).unwrap(), [13, 14, 15, 16, 1, 2, 3, 4]);
    assert_eq!(tiny.read("label", &[0, 1, 2, 3]).unwrap(), [7, 0, 9, 5]);
    assert_eq!(tiny.items(Some("test")).unwrap(), 3..4);
    let refused = [tiny.read("image", &[4]).unwrap_err(), tiny.read("pixel", &[]).unwrap_err()];
    expect!["the dataset has no item `4`; it has items 0 to 3"].assert_eq(&refused[0].to_string());
    expect!["the dataset has no field `pixel`; it has image, label"].assert_eq(&refused[1].to_string());
    let refused = tiny.len(Some("validation")).unwrap_err().to_string();
    expect!["the dataset has no split `validation`; it has train, test"].assert_eq(&refused);
}

#[test]
fn broken_idx_files_are_refused_with_the_place() {
    let labels = |bytes: &[u8]| idx(0x801, &[3], bytes);
    check_idx(
        1,
        idx(0x803, &[3], &[7, 0, 9]),
        expect![
            "train-labels-idx1-ubyte: byte 0: magic number 0x00000803, expected 0x00000801 (unsigned bytes, 1 dimension)"
        ],
    );
    check_idx(
        1,
        labels(&[7, 10, 9]),
        expect!["train-labels-idx1-ubyte: byte 9 (decompressed): label 10, and there are 10 classes"],
    );
    check_idx(
        1,
        labels(&[7, 0]),
        expect!["train-labels-idx1-ubyte: ends at byte 10 (decompressed), expected 11 bytes"],
    );
    check_idx(
        1,
        labels(&[7, 0, 9, 1]),
        expect!["train-labels-idx1-ubyte: has data after byte 11 (decompressed), expected its end"],
    );
    check_idx(1, vec![0, 0, 8], expect!["train-labels-idx1-ubyte: ends at byte 3 (decompressed), expected 8 bytes"]);
    check_idx(1, Vec::new(), expect!["train-labels-idx1-ubyte: ends at byte 0 (decompressed), expected 8 bytes"]);
    check_idx(
        1,
        idx(0x801, &[2], &[7, 0]),
        expect!["train-labels-idx1-ubyte has 2 items, and train-images-idx3-ubyte.gz has 3"],
    );
    check_idx(
        0,
        b"not gzip, and long enough".to_vec(),
        expect!["train-images-idx3-ubyte.gz: byte 0 (decompressed): invalid gzip header"],
    );
    let whole = tiny_mnist()[0].clone();
    check_idx(
        0,
        whole[..whole.len() - 3].to_vec(),
        expect!["train-images-idx3-ubyte.gz: byte 28 (decompressed): the compressed file ends early"],
    );
    let mut flipped = whole;
    let checksum = flipped.len() - 8;
    flipped[checksum] ^= 1;
    check_idx(
        0,
        flipped,
        expect![
            "train-images-idx3-ubyte.gz: byte 28 (decompressed): corrupt gzip stream does not have a matching checksum"
        ],
    );
    let huge = gz(&idx(0x803, &[u32::MAX, u32::MAX, u32::MAX], &[1]));
    check_idx(0, huge, expect!["train-images-idx3-ubyte.gz: more than 17179869184 bytes"]);
    check_idx(0, gz(&idx(0x803, &[3, 0, 2], &[])), expect!["train-images-idx3-ubyte.gz: no items"]);
    check_idx(
        2,
        idx(0x803, &[1, 1, 4], &[1, 2, 3, 4]),
        expect!["t10k-images-idx3-ubyte has items uint8[1, 4], and train-images-idx3-ubyte.gz has uint8[2, 2]"],
    );
    let files = tiny_mnist();
    check(
        &[(NAMES[0], &files[0]), (NAMES[1], &files[1])],
        expect!["t10k-images-idx3-ubyte[.gz]: missing, and a dataset of IDX files needs it"],
    );
    check(
        &[("notes.md", b"x")],
        expect![
            "FOLDER: no dataset found; expected dataset.json, files NAME.npy, NAME.npz, NAME.safetensors, NAME.parquet, NAME.arrow, NAME.feather, NAME.jsonl or NAME.tar, one file NAME.csv[.gz], folders of PNG, JPEG and WebP images named as their classes, text files NAME.txt[.gz], the MNIST files train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz] and the same with t10k-, or the CIFAR-10 files data_batch_1.bin[.gz] to data_batch_5.bin[.gz] and test_batch.bin[.gz]"
        ],
    );
}

#[test]
fn csv_columns_have_their_declared_types() {
    let json = r#"{"format":"csv","file":"x.csv","header":true,"fields":[
        {"name":"point","columns":[0,2],"dtype":"float32"},
        {"name":"id","columns":[3,4],"dtype":"int64"},
        {"name":"grid","columns":[1,3],"shape":[2,1],"dtype":"uint8"},
        {"name":"ink","columns":[2,3],"dtype":"uint8","maximum":2}]}"#;
    let lines = "a,b,c,d\n0.5,1,2,-9000000000\n\"-1e3\", 255 , 1 , 3\n";
    let source = folder_with_files(&[("dataset.json", json.as_bytes()), ("x.csv", lines.as_bytes())]);
    let (_directory, datasets) = datasets();
    let data = datasets.open(&datasets.ingest("d", source.path(), 0).unwrap()).unwrap();
    let floats: Vec<u8> = [0.5f32, 1.0, -1000.0, 255.0].iter().flat_map(|it| it.to_le_bytes()).collect();
    assert_eq!(data.read("point", &[0, 1]).unwrap(), floats);
    assert_eq!(data.read("id", &[0]).unwrap(), (-9_000_000_000i64).to_le_bytes());
    assert_eq!(data.read("grid", &[1, 0]).unwrap(), [255, 1, 1, 2]);
    assert_eq!(data.read("ink", &[0, 1]).unwrap(), [255, 128]);
    let items: Vec<_> = data.fields().iter().map(|field| field.item.to_string()).collect();
    assert_eq!(items, ["float32[2]", "int64[]", "uint8[2, 1]", "uint8[]"]);
    assert_eq!(data.splits(), [DatasetSplit { name: "train".to_owned(), items: 0..2 }]);
}

#[test]
fn broken_csv_files_are_refused_with_the_place() {
    let byte = r#"{"name":"x","columns":[0,2],"dtype":"uint8"}"#;
    check_csv(byte, b"1,2\n3,256\n", expect!["x.csv:2:2: `256` is not a number of type uint8 (field x)"]);
    check_csv(
        byte,
        b"1,2\n3,\n",
        expect![
            "x.csv:2:2: column 2 has no value; push with `--missing drop` to leave such rows out, or with `--missing mean` to use the column's mean"
        ],
    );
    check_csv(
        byte,
        b"1,\xff\n",
        expect![
            "x.csv:1:2: byte 0xff is not UTF-8; if the text is Latin-1 (Windows), convert it: iconv -f LATIN1 -t UTF-8 x.csv > x-utf8.csv"
        ],
    );
    check_csv(
        byte,
        b"1,2\n3,4,5\n",
        expect![
            "x.csv:2: 3 columns, expected 2; every line has as many as the first, and a cell that contains the separator must be in double quotes"
        ],
    );
    check_csv(
        byte,
        b"1\n",
        expect![
            "x.csv:1: 1 columns, expected 2; every line has as many as the first, and a cell that contains the separator must be in double quotes"
        ],
    );
    check_csv(byte, b"", expect!["x.csv: no items"]);
    let class = r#"{"name":"x","columns":[0,1],"dtype":"uint8","classes":["no","yes"]}"#;
    check_csv(
        class,
        b"0\n1\n2\n",
        expect!["x.csv:3:1: `2` is not a class: no, yes, or its number from 0 to 1 (field x)"],
    );
    let ink = r#"{"name":"x","columns":[0,1],"dtype":"uint8","maximum":16}"#;
    check_csv(ink, b"16\n17\n", expect!["x.csv:2:1: `17` is not a number from 0 to 16 (field x)"]);
    check_csv(
        ink,
        b"NaN\n",
        expect![
            "x.csv:1:1: column 1 has no value; push with `--missing drop` to leave such rows out, or with `--missing mean` to use the column's mean"
        ],
    );
    let json = br#"{"format":"csv","file":"x.csv.gz","fields":[{"name":"x","columns":[0,1],"dtype":"uint8"}]}"#;
    check(&[("dataset.json", json)], expect!["x.csv.gz: missing, and dataset.json needs it"]);
    let bomb = gz(&vec![b'1'; 20 << 20]);
    check(
        &[("dataset.json", json), ("x.csv.gz", &bomb)],
        expect!["x.csv.gz: the record after line 0: more than 4194304 bytes"],
    );
}

#[test]
fn invalid_descriptions_are_refused() {
    let check_json = |json: &str, expected| check(&[("dataset.json", json.as_bytes())], expected);
    check_json("{", expect!["dataset.json: EOF while parsing an object at line 1 column 1"]);
    check_json(
        r#"{"format":"orc"}"#,
        expect![
            "dataset.json: unknown variant `orc`, expected one of `csv`, `idx`, `cifar10`, `text`, `npy`, `npz`, `safetensors`, `images`, `parquet`, `arrow`, `jsonlines`, `webdataset` at line 1 column 15"
        ],
    );
    check_json(
        r#"{"format":"csv","file":"../x","fields":[{"name":"x","columns":[0,1],"dtype":"uint8"}]}"#,
        expect![[
            r"`../x` cannot be a path: relative, parts without `..`, `\`, control characters or a leading dot, and no file inside another"
        ]],
    );
    check_csv("", b"", expect!["x.csv: no items"]);
    let field = |name: &str, rest: &str| format!(r#"{{"name":"{name}",{rest}}}"#);
    let one = r#""columns":[0,1],"dtype":"uint8""#;
    check_csv(
        &[field("a b", one), field("a_b", one)].join(","),
        b"",
        expect!["dataset.json: two fields are called `a_b`"],
    );
    check_csv(
        &field("x", r#""columns":[3,3],"dtype":"uint8""#),
        b"",
        expect![
            "dataset.json: field x: columns [3, 3] are empty or reversed; expected [first, last + 1], or the names of columns"
        ],
    );
    check_csv(
        &field("x", r#""columns":[0,1],"dtype":"float64""#),
        b"",
        expect![
            "dataset.json: field x: no dtype is called `float64`; there are float32, float16, int64, uint64, int32, uint32, int8, uint8"
        ],
    );
    check_csv(
        &field("x", r#""columns":[0,4],"shape":[3],"dtype":"uint8""#),
        b"",
        expect!["dataset.json: field x: shape [3] has 3 elements, and columns [0, 4] are 4"],
    );
    check_csv(
        &field("x", r#""columns":[0,1],"dtype":"float32","maximum":4"#),
        b"",
        expect!["field x: float32 cannot be stretched to 0..255; `maximum` needs uint8"],
    );
    check_csv(
        &field("x", r#""columns":[0,1],"dtype":"float32","classes":["a"]"#),
        b"",
        expect!["field x: float32 cannot be a class number; `classes` needs an integer type"],
    );
    check_csv(
        &field("x", r#""columns":[0,1],"dtype":"float16""#),
        b"",
        expect!["field x: float16 cannot be read from text; say float32"],
    );
    let splits = |splits: &str, expected| {
        let json = format!(r#"{{"format":"csv","file":"x.csv","fields":[{}],"splits":{splits}}}"#, field("x", one));
        check(&[("dataset.json", json.as_bytes()), ("x.csv", b"1\n")], expected);
    };
    splits(r#"{"train":0.8,"test":0.1}"#, expect!["dataset.json: splits add up to 0.9, and should add up to 1"]);
    splits(r#"{"train":-1,"test":2}"#, expect!["dataset.json: split train: -1 must be a number above 0, at most 1"]);
}

#[test]
fn items_are_assigned_to_splits_by_their_shares() {
    let deal = |shares: &[u64]| -> String {
        let mut dealer = description::SplitAssigner::new(shares.iter().copied());
        (0..20).map(|_| char::from(b'a' + dealer.next_split() as u8)).collect()
    };
    assert_eq!(deal(&[8_000, 2_000]), "aabaa".repeat(4));
    assert_eq!(deal(&[5_000, 5_000]), "ab".repeat(10));
    assert_eq!(deal(&[10_000]), "a".repeat(20));
    assert_eq!(deal(&[7_000, 2_000, 1_000]).matches('c').count(), 2);
}

#[test]
fn damaged_versions_are_refused_and_replaced() {
    let (_directory, datasets) = datasets();
    let files = tiny_mnist();
    let named: Vec<_> = NAMES.into_iter().zip(files.iter().map(Vec::as_slice)).collect();
    let source = folder_with_files(&named);
    let first = datasets.ingest("tiny", source.path(), 0).unwrap();
    for name in ["image.bin", "label.bin", MANIFEST_FILE] {
        let path = datasets.directory(&first).unwrap().join(name);
        let content = std::fs::read(&path).unwrap();
        let mut flipped = content.clone();
        flipped[0] ^= 1;
        for bad in [&content[..content.len() - 2], &flipped, b""] {
            std::fs::write(&path, bad).unwrap();
            let error = datasets.open(&first).unwrap_err();
            assert!(matches!(&error, DatasetError::Damaged { file, .. } if *file == path), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        let error = datasets.open(&first).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
        std::fs::write(&path, content).unwrap();
    }
    std::fs::write(datasets.directory(&first).unwrap().join("label.bin"), [9, 9, 9, 9]).unwrap();
    let second = datasets.ingest("tiny", source.path(), 0).unwrap();
    assert_eq!((second.version, second.digest), (2, first.digest));
    assert_eq!(datasets.resolve("tiny").unwrap(), second);
    assert_eq!(datasets.resolve("tiny/1").unwrap().version, 1);
    assert_eq!(datasets.list().unwrap().len(), 2);
    for missing in ["tiny/3", "tiny/01", "tiny/", "tiny/../x", "../tiny/1", "none"] {
        let error = datasets.resolve(missing).unwrap_err();
        assert!(matches!(error, DatasetError::NotFound { .. }), "{missing}: {error}");
    }
    assert!(matches!(datasets.resolve("../1"), Err(DatasetError::BadName { .. })));
}
