//! Import of JSON lines.

use super::*;

const LINES: &[u8] = br#"{"size": 1.5, "count": 3, "ok": true, "kind": "red", "text": "one", "box": [[1, 2], [3, 4]]}
{"size": 2, "count": -4, "ok": false, "kind": "blue", "text": "three", "box": [[5, 6], [7, 8.5]]}

{"size": 0, "count": 5, "ok": true, "kind": "red", "text": "\u00e9", "box": [[0, 0], [0, 0]]}
{"size": 9, "count": 6, "ok": true, "kind": "blue", "text": "four", "box": [[1, 1], [1, 1]]}
"#;

#[test]
fn members_of_json_objects_become_fields() {
    let (info, data) = ingest_open(&[("a.jsonl", LINES)]);
    assert_eq!(
        field_lines(&info),
        [
            "box float32[2, 2] []",
            "count int64[] []",
            "kind uint8[] [blue red]",
            "ok uint8[] []",
            "size float32[] []",
            "text uint8[5] []"
        ]
    );
    assert_eq!(data.column("kind").unwrap(), [1, 0, 1, 0]);
    assert_eq!(data.column("ok").unwrap(), [1, 0, 1, 1]);
    assert_eq!(data.read("text", &[2]).unwrap(), [0xc3, 0xa9, 0, 0, 0]);
    assert_eq!(data.read("count", &[1]).unwrap(), (-4_i64).to_le_bytes());
    assert_eq!(data.read("box", &[1]).unwrap()[12..], 8.5_f32.to_le_bytes());
    let (info, _) =
        ingest_open(&[("test.ndjson", LINES), ("train-0-of-2.ndjson.gz", &gz(LINES)), ("train-1-of-2.ndjson", LINES)]);
    let splits: Vec<_> = info.splits.iter().map(|split| (split.name.as_str(), split.items.clone())).collect();
    assert_eq!(splits, [("test", 0..4), ("train", 4..12)]);
    let json = br#"{"format":"jsonlines","splits":{"train":0.5,"test":0.5},
        "fields":[{"name":"x","column":"box","shape":[4]},{"name":"label","column":"kind","classes":["red","blue"]}]}"#;
    let (info, data) = ingest_open(&[("dataset.json", json), ("a.jsonl", LINES)]);
    assert_eq!(field_lines(&info), ["label uint8[] [red blue]", "x float32[4] []"]);
    assert_eq!((data.column("label").unwrap(), info.splits[1].items.clone()), (&[0, 0, 1, 1][..], 2..4));
}

#[test]
fn objects_without_a_value_are_refused_dropped_or_filled() {
    let lines = b"{\"a\": 1, \"b\": 2}\n{\"a\": null, \"b\": 4}\n{\"b\": 5.5, \"a\": 3}\n{\"b\": 1}\n";
    let json = |missing: &str| format!(r#"{{"format":"jsonlines","missing":"{missing}"}}"#).into_bytes();
    check(
        &[("a.jsonl", lines)],
        expect![
            "a.jsonl:2: member `a` has no value; push with `--missing drop` to leave such items out, or with `--missing mean` to use the mean"
        ],
    );
    let (info, data) = ingest_open(&[("dataset.json", &json("drop")), ("a.jsonl", lines)]);
    assert_eq!((info.items, data.read("a", &[1]).unwrap()), (2, 3_i64.to_le_bytes().to_vec()));
    assert_eq!(info.notes[0], "2 of 4 items were dropped: values are missing (first in a.jsonl:2)");
    let (info, data) = ingest_open(&[("dataset.json", &json("mean")), ("a.jsonl", lines)]);
    assert_eq!((info.items, data.read("a", &[3]).unwrap()), (4, 2_i64.to_le_bytes().to_vec()));
    assert_eq!(info.notes, ["field a: 2 missing values; the mean of the others is 2"]);
    let texts = b"{\"a\": \"x\"}\n{\"a\": null}\n";
    check(
        &[("dataset.json", &json("mean")), ("a.jsonl", texts)],
        expect!["member `a`: it has no mean; push with `--missing drop`"],
    );
}

#[test]
fn invalid_json_lines_are_refused_with_their_line() {
    let refused = |lines: &[u8], expected: Expect| check(&[("a.jsonl", lines)], expected);
    refused(
        b"{\"a\": 1}\n{\"a\": }\n",
        expect!["a.jsonl:2: column 7: expected one JSON object on each line: expected value"],
    );
    refused(
        b"[1, 2]\n",
        expect!["a.jsonl:1: column 0: expected one JSON object on each line: invalid type: sequence, expected a map"],
    );
    refused(b"{\"a\": 1}\n{\"a\": \"x\"}\n", expect!["a.jsonl:2: member `a` is a text, and before a number"]);
    refused(
        b"{\"a\": [1, 2]}\n{\"a\": [1]}\n",
        expect!["a.jsonl:2: member `a` has the shape [1], and before [2]; pad or cut lists to one length"],
    );
    refused(b"{\"a\": [[1], [1, 2]]}\n", expect!["a.jsonl:1: member `a` has lists of 1 and 2"]);
    refused(b"{\"a\": [1, [2]]}\n", expect!["a.jsonl:1: member `a` has lists and numbers in one list"]);
    refused(b"{\"a\": [[2], 1]}\n", expect!["a.jsonl:1: member `a` has lists and numbers in one list"]);
    refused(b"{\"a\": []}\n", expect!["a.jsonl:1: member `a` has an empty list; lists have numbers in them"]);
    refused(
        b"{\"a\": {\"b\": 1}}\n",
        expect!["a.jsonl:1: member `a` is an object; write its members beside the others"],
    );
    refused(b"{\"a\": [\"x\"]}\n", expect!["a.jsonl:1: member `a` has a list of texts; write one text"]);
    refused(
        b"{\"a\": 1}\n{\"a\": 1, \"b\": 2}\n",
        expect!["a.jsonl:2: no object before it has a member `b`; write null where there is no value"],
    );
    refused(b"{\"a\": 1e300}\n", expect!["a.jsonl:1: 1e+300 is too large for float32"]);
    refused(b"{\"a\": [[[[[[[[[1]]]]]]]]]}\n", expect!["a.jsonl:1: member `a` has lists more than 8 deep"]);
    refused(
        b"{\"a\": \"x\\u0000\"}\n",
        expect!["a.jsonl:1: member `a` has a zero byte, which marks the end of a text"],
    );
    refused(
        b"{\"a\": \"\xff\"}\n",
        expect!["a.jsonl:1: column 8: expected one JSON object on each line: invalid unicode code point"],
    );
    refused(b"\n\n", expect!["a.jsonl: no items"]);
    refused(&vec![b' '; 5 << 20], expect!["a.jsonl: line 1: more than 4194304 bytes"]);
}
