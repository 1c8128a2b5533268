//! Import of text files, one line per item, and datasets in memory.

use super::*;

/// Returns the items of a field as strings.
fn lines(dataset: &ColumnarDataset, field: &str) -> Vec<String> {
    let width = dataset.field(field).unwrap().item.bytes();
    let items = dataset.column(field).unwrap().chunks(width);
    items.map(|item| String::from_utf8(item.to_vec()).unwrap().replace('\0', "_")).collect()
}

fn ingest_files(files: &[(&str, &[u8])]) -> ColumnarDataset {
    let (_directory, datasets) = datasets();
    let info = datasets.ingest("texts", folder_with_files(files).path(), 0).unwrap();
    datasets.open(&info).unwrap()
}

#[test]
fn lines_are_padded_to_the_longest() {
    let text = ingest_files(&[("poem.txt", "One\n\nfünf\r\nlast".as_bytes())]);
    assert_eq!(text.fields()[0].item, Descriptor::new(DType::U8, Shape::new([5]).unwrap()));
    assert_eq!(lines(&text, "text"), ["One__", "_____", "fünf", "last_"]);
    assert_eq!(text.splits(), [DatasetSplit { name: "train".to_owned(), items: 0..4 }]);
}

#[test]
fn several_text_files_become_splits() {
    let text = ingest_files(&[("train.txt", b"a\nbb\n"), ("test.txt.gz", &gz(b"ccc\n")), ("README.md", b"no")]);
    let part = |name: &str, items| DatasetSplit { name: name.to_owned(), items };
    assert_eq!(text.splits(), [part("test", 0..1), part("train", 1..3)]);
    assert_eq!(lines(&text, "text"), ["ccc", "a__", "bb_"]);
}

#[test]
fn a_description_puts_text_files_side_by_side_as_fields() {
    let json = br#"{"format": "text", "parts": {
        "train": {"source": "train.de", "target": "train.en.gz"},
        "validation": {"source": "val.de", "target": "val.en"}
    }}"#;
    let text = ingest_files(&[
        ("dataset.json", json),
        ("train.de", b"ein Hund\nzwei\n"),
        ("train.en.gz", &gz(b"a dog\ntwo\n")),
        ("val.de", b"drei\n"),
        ("val.en", b"three\n"),
    ]);
    assert_eq!(lines(&text, "source"), ["ein Hund", "zwei____", "drei____"]);
    assert_eq!(lines(&text, "target"), ["a dog", "two__", "three"]);
    assert_eq!(text.len(Some("validation")).unwrap(), 1);
}

#[test]
fn invalid_text_files_are_refused() {
    let described = |parts: &str| format!(r#"{{"format":"text","parts":{parts}}}"#).into_bytes();
    let check_parts = |parts: &str, files: &[(&str, &[u8])], expected| {
        let json = described(parts);
        check(&[&[("dataset.json", json.as_slice())], files].concat(), expected);
    };
    check(&[("a.txt", b"")], expect!["a.txt: no items"]);
    check(&[("a.txt", b"good\n\xffbad\n")], expect!["a.txt:2: byte 0 of it is not valid UTF-8"]);
    check(&[("a.txt", b"good\nba\0d\n")], expect!["a.txt:2: byte 2 of it is 0, which marks the end of a text"]);
    let long = vec![b'x'; crate::limits::TEXT_LINE_BYTES_MAX + 1];
    check(&[("a.txt", &long)], expect!["a.txt:1: more than 65536 bytes; break it into several lines"]);
    check(
        &[("a.txt.gz", &gz(b"cut off")[..12])],
        expect!["a.txt.gz: byte 1 (decompressed): the compressed file ends early"],
    );
    check_parts("{}", &[], expect![[r#"dataset.json: `parts` is empty; expected {"train": {"text": "FILE"}}"#]]);
    check_parts(r#"{"train":{}}"#, &[], expect!["dataset.json: `fields` is empty; a dataset has at least one"]);
    check_parts(r#"{"train":{"a":"x"}}"#, &[], expect!["x: missing, and dataset.json needs it"]);
    check_parts(
        r#"{"train":{"a":"../x"}}"#,
        &[],
        expect![[
            r"`../x` cannot be a path: relative, parts without `..`, `\`, control characters or a leading dot, and no file inside another"
        ]],
    );
    check_parts(
        r#"{"test":{"a":"x"},"train":{"a":"x","b":"x"}}"#,
        &[("x", b"1\n")],
        expect!["dataset.json: part train has other fields than part test; every part has the same"],
    );
    check_parts(
        r#"{"train":{"a":"x","b":"y"}}"#,
        &[("x", b"1\n2\n"), ("y", b"1\n")],
        expect!["y has 1 items, and x has 2"],
    );
}

fn field(name: &str, dtype: DType, dims: &[usize]) -> DatasetField {
    let item = Descriptor::new(dtype, Shape::new(dims.to_vec()).unwrap());
    DatasetField { name: name.to_owned(), item, classes: Vec::new() }
}

fn parts(parts: &[(&str, u64)]) -> Vec<(String, u64)> {
    parts.iter().map(|(name, items)| ((*name).to_owned(), *items)).collect()
}

#[test]
fn columns_make_a_dataset() {
    let make = |last| {
        let columns = vec![
            (field("pair", DType::U8, &[2]), vec![1, 2, 3, 4, 5, last]),
            (field("one", DType::U8, &[]), vec![7, 8, 9]),
        ];
        ColumnarDataset::from_columns(columns, &parts(&[("train", 2), ("none", 0), ("validation", 1)])).unwrap()
    };
    let made = make(6);
    assert_eq!(made.read("pair", &[2, 0]).unwrap(), [5, 6, 1, 2]);
    assert_eq!(made.items(Some("validation")).unwrap(), 2..3);
    assert_eq!(made.len(Some("none")).unwrap(), 0);
    assert_eq!(made.digest(), make(6).digest());
    assert_ne!(made.digest(), make(5).digest());
}

#[test]
fn invalid_in_memory_columns_are_refused() {
    let check = |columns, given: &[(&str, u64)], expected: Expect| {
        expected.assert_eq(&ColumnarDataset::from_columns(columns, &parts(given)).unwrap_err().to_string());
    };
    let one = || (field("a", DType::F32, &[2]), vec![0; 16]);
    check(vec![one()], &[("train", 3)], expect!["field a: 16 bytes, and 3 items take 24"]);
    check(vec![one(), one()], &[("train", 2)], expect!["dataset.json: two fields are called `a`"]);
    check(vec![one()], &[("train", 1), ("train", 1)], expect!["dataset.json: two parts are called `train`"]);
    check(
        vec![one()],
        &[("a", u64::MAX), ("b", 2)],
        expect!["part a: more than 4294967295 items with the parts before it"],
    );
    check(Vec::new(), &[], expect!["dataset.json: `fields` is empty; a dataset has at least one"]);
}
