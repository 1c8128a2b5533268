use proptest::prelude::*;
use saggar_tensor::{DType, Descriptor, Shape};

use super::*;

/// Returns a file with this header and `data` bytes.
fn file(header: &str, data: usize) -> Bytes {
    raw_file(header.len() as u64, header.as_bytes(), data)
}

fn raw_file(length: u64, header: &[u8], data: usize) -> Bytes {
    [&length.to_le_bytes()[..], header, &vec![7; data]].concat().into()
}

fn tensor(dtype: &str, shape: &str, [begin, end]: [u64; 2]) -> String {
    format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

#[track_caller]
fn assert_refused(file: &Bytes, expected: &str) {
    let reason = decode(file, &[]).unwrap_err();
    assert!(reason.contains(expected), "{reason}");
    assert!(reason.len() < 500, "{reason}");
}

#[test]
fn false_header_lengths_are_refused() {
    assert_refused(&Bytes::new(), "it has 0 bytes, and the length of its header alone takes 8");
    assert_refused(&Bytes::from_static(&[2, 0, 0]), "it has 3 bytes");
    assert_refused(&raw_file(0, b"", 0), "its header: EOF while parsing");
    assert_refused(&raw_file(3, b"{}", 0), "its header would have 3 bytes, and 2 follow; is the copy finished?");
    assert_refused(
        &raw_file(100_000_001, b"{}", 0),
        "its header would have 100000001 bytes, and at most 100000000 are read",
    );
    assert_refused(&raw_file(u64::MAX, b"{}", 0), "at most 100000000 are read");
    assert_refused(&raw_file(1 << 63, b"{}", 0), "at most 100000000 are read");
    assert_refused(&raw_file(1, b"{}", 0), "its header: EOF while parsing");
}

#[test]
fn invalid_safetensors_headers_are_refused() {
    assert_refused(&file("[]", 0), "its header: invalid type: sequence, expected an object of tensors");
    assert_refused(&file("{} {}", 0), "its header: trailing characters");
    assert_refused(&raw_file(7, b"{\"\xff\":1}", 0), "its header: ");
    assert_refused(&file(r#"{"a":1}"#, 0), r#"its header: tensor "a": invalid type: integer `1`"#);
    assert_refused(&file(r#"{"a":{"dtype":"F32","shape":[1]}}"#, 4), r#"tensor "a": missing field `data_offsets`"#);
    let deep = format!(r#"{{"a":{}}}"#, "[".repeat(100_000));
    assert_refused(&file(&deep, 0), r#"its header: tensor "a": "#);
    let deep = format!(r#"{{"__metadata__":{}}}"#, "[".repeat(100_000));
    assert_refused(&file(&deep, 0), "its header: expected value at line 1 column 100017");
    let same = tensor("F32", "[1]", [0, 4]);
    assert_refused(&file(&format!(r#"{{"a":{same},"a":{same}}}"#), 4), r#"tensor "a" appears twice"#);
    assert_refused(&file(&format!(r#"{{"{}":7}}"#, "n".repeat(1000)), 0), "nnn\"...: invalid type");
}

#[test]
fn tensors_with_false_offsets_or_shapes_are_refused_by_name() {
    let cases: [(&str, &str, [u64; 2], usize, &str); 16] = [
        ("F32", "[2]", [0, 4], 4, r#"tensor "w": float32[2] takes 8 bytes, and it has 4"#),
        ("F16", "[2]", [0, 8], 8, r#"tensor "w": float16[2] takes 4 bytes, and it has 8"#),
        ("F32", "[]", [0, 0], 0, r#"tensor "w": float32[] takes 4 bytes, and it has 0"#),
        ("F32", "[0,4]", [0, 4], 4, r#"tensor "w": float32[0, 4] takes 0 bytes, and it has 4"#),
        ("F32", "[2]", [0, 8], 7, r#"tensor "w": it would end at byte 8 of 7; is the copy finished?"#),
        ("F32", "[2]", [0, 8], 9, "1 bytes follow its last tensor"),
        ("F32", "[2]", [8, 0], 8, r#"tensor "w": it would end at byte 0, before it begins at 8"#),
        ("F32", "[2]", [4, 12], 12, r#"tensor "w": it begins at byte 4, not 0, and leaves a hole before it"#),
        ("F32", "[2]", [0, u64::MAX], 8, r#"tensor "w": it would end at byte 18446744073709551615 of 8"#),
        ("F32", "[4194305,4194305,211106198978564]", [0, 16], 16, r#"tensor "w": a tensor has at most"#),
        ("F32", "[0,4294967296,4294967296]", [0, 0], 0, r#"tensor "w": a tensor has at most"#),
        ("F32", "[1,1,1,1,1,1,1,1,1]", [0, 4], 4, r#"tensor "w": a tensor has at most 8 dimensions, not 9"#),
        ("F32", "[-1]", [0, 4], 4, r#"tensor "w": invalid value: integer `-1`"#),
        ("F32", "[18446744073709551616]", [0, 4], 4, r#"tensor "w": invalid "#),
        ("BF16", "[2]", [0, 4], 4, r#"tensor "w": data type "BF16" is unknown here"#),
        ("f32", "[1]", [0, 4], 4, r#"tensor "w": data type "f32" is unknown here"#),
    ];
    for (dtype, shape, offsets, data, expected) in cases {
        assert_refused(&file(&format!(r#"{{"w":{}}}"#, tensor(dtype, shape, offsets)), data), expected);
    }
    let pair = |first, second| {
        file(&format!(r#"{{"a":{},"b":{}}}"#, tensor("U8", "[4]", first), tensor("U8", "[4]", second)), 8)
    };
    assert_refused(&pair([0, 4], [2, 6]), r#"tensor "b": it begins at byte 2, not 4, and overlaps another tensor"#);
    assert_refused(&pair([0, 4], [0, 4]), r#"tensor "b": it begins at byte 0, not 4, and overlaps another tensor"#);
    assert_refused(&pair([5, 9], [0, 4]), r#"tensor "a": it would end at byte 9 of 8"#);
    assert_eq!(decode(&pair([4, 8], [0, 4]), &[]).unwrap().len(), 2, "the order of the entries is free");
    let negative = r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}"#;
    assert_refused(&file(negative, 4), r#"tensor "w": invalid value: integer `-4`"#);
    let thrice = r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}}"#;
    assert_refused(&file(thrice, 4), r#"tensor "w": trailing characters"#);
}

#[test]
fn everything_that_safetensors_allows_is_read() {
    let empty = decode(&file("{}   ", 0), &[]).unwrap();
    assert!(empty.is_empty());
    // Tensors without elements share a position, and metadata is ignored.
    let header = format!(
        r#"{{"__metadata__":{{"format":"pt"}},"b":{},"a":{},"c":{}}}"#,
        tensor("I64", "[0,3]", [4, 4]),
        tensor("F32", "[1]", [0, 4]),
        tensor("I8", "[2,0]", [4, 4])
    );
    let variables = decode(&file(&header, 4), &["b".to_owned()]).unwrap();
    let names: Vec<(&str, VariableKind)> = variables.iter().map(|it| (it.name.as_str(), it.kind)).collect();
    let (parameter, statistic) = (VariableKind::Parameter, VariableKind::Statistic);
    assert_eq!(names, [("a", parameter), ("b", statistic), ("c", parameter)]);
    assert_eq!(variables[0].bytes, [7; 4][..]);
    let many: Vec<String> =
        (0..100_000).map(|at| format!(r#""t{at}":{}"#, tensor("U8", "[1]", [at, at + 1]))).collect();
    assert_eq!(decode(&file(&format!("{{{}}}", many.join(",")), 100_000), &[]).unwrap().len(), 100_000);
}

/// The strict reader reads back what is written here, for all data types.
#[test]
fn weights_of_every_data_type_round_trip() {
    let variables = DType::ALL.map(|dtype| {
        let descriptor = Descriptor::new(dtype, Shape::new([2, 3]).unwrap());
        let bytes: Vec<u8> = (0..descriptor.bytes()).map(|at| at as u8).collect();
        SavedVariable { name: format!("of {dtype}"), kind: VariableKind::Parameter, descriptor, bytes: bytes.into() }
    });
    let mut by_name: Vec<&SavedVariable> = variables.iter().collect();
    by_name.sort_by(|a, b| a.name.cmp(&b.name));
    let read = decode(&encode(&by_name, &BTreeMap::new()).unwrap().into(), &[]).unwrap();
    assert!(read.iter().eq(by_name));
}

/// A file truncated anywhere, or with any bit flipped, is read or refused with a reason.
#[test]
fn truncated_or_corrupted_weights_are_refused_with_a_reason() {
    let header = format!(r#"{{"a":{},"b":{}}}"#, tensor("F32", "[2]", [0, 8]), tensor("U8", "[3]", [8, 11]));
    let whole = file(&header, 11);
    assert_eq!(decode(&whole, &[]).unwrap().len(), 2);
    for end in 0..whole.len() {
        assert!(decode(&whole.slice(..end), &[]).is_err(), "cut at {end}");
    }
    for bit in 0..8 * whole.len() {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Err(reason) = decode(&bytes.into(), &[]) {
            assert!(!reason.is_empty(), "bit {bit}");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_answered(header in ".{0,200}", data in 0usize..20, length in prop::option::of(any::<u64>())) {
        let length = length.unwrap_or(header.len() as u64);
        if let Ok(variables) = decode(&raw_file(length, header.as_bytes(), data), &[]) {
            prop_assert_eq!(variables.iter().map(|it| it.bytes.len()).sum::<usize>(), data);
        }
    }
}

#[test]
fn metadata_are_written_in_order_and_readers_skip_them() {
    let empty: Vec<&SavedVariable> = Vec::new();
    let metadata: BTreeMap<String, String> =
        [("model".to_owned(), "net@1".to_owned()), ("device".to_owned(), "a \"quoted\" one".to_owned())].into();
    let variable = SavedVariable {
        name: "x".to_owned(),
        kind: VariableKind::Parameter,
        descriptor: saggar_tensor::Descriptor::new(saggar_tensor::DType::F32, saggar_tensor::Shape::scalar()),
        bytes: Bytes::from_static(&[1, 2, 3, 4]),
    };
    for variables in [empty, vec![&variable]] {
        let file = encode(&variables, &metadata).unwrap();
        assert_eq!(encode(&variables, &metadata).unwrap(), file);
        let (_, read) = safetensors::SafeTensors::read_metadata(&file).unwrap();
        let found: BTreeMap<String, String> = read.metadata().clone().unwrap().into_iter().collect();
        assert_eq!(found, metadata);
        let decoded = decode(&file.into(), &[]).unwrap();
        assert_eq!(decoded.iter().collect::<Vec<_>>(), variables);
    }
}
