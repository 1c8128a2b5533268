use saggar_plugin::NamedTensor;

use super::*;

fn port(name: &str, dtype: DType, shape: &[usize]) -> Port {
    let item = Descriptor::new(dtype, Shape::new(shape).unwrap());
    Port { name: name.to_owned(), item, semantics: None, classes: Vec::new(), default: None, preprocessing: None }
}

fn tensor(name: &str, dtype: DType, shape: &[usize], bytes: Vec<u8>) -> NamedTensor {
    NamedTensor { name: name.to_owned(), descriptor: Descriptor::new(dtype, Shape::new(shape).unwrap()), bytes }
}

fn signature_with_outputs(outputs: Vec<Port>) -> ModelSignature {
    ModelSignature { inputs: Vec::new(), outputs, batch_sizes: vec![1], routes: Vec::new(), handlers: Vec::new() }
}

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn one_item_is_encoded_without_a_batch_dimension() {
    let signature = signature_with_outputs(vec![port("class", DType::U8, &[]), port("p", DType::F32, &[2])]);
    let outputs =
        [tensor("p", DType::F32, &[1, 2], f32_bytes(&[0.1, 1e-9])), tensor("class", DType::U8, &[1], vec![7])];
    assert_eq!(encode_json(&signature, &outputs, None).unwrap(), r#"{"class":7,"p":[0.1,1e-9]}"#);
    assert_eq!(encode_json(&signature, &outputs, Some(1)).unwrap(), r#"{"class":[7],"p":[[0.1,1e-9]]}"#);
}

#[test]
fn floats_round_trip_and_non_finite_values_become_null() {
    let values = [0.0, -0.0, 1.0, 0.1, f32::MIN_POSITIVE, f32::MAX, 16_777_217.0, 1e-45, f32::NAN, f32::INFINITY];
    let signature = signature_with_outputs(vec![port("x", DType::F32, &[values.len()])]);
    let text =
        encode_json(&signature, &[tensor("x", DType::F32, &[1, values.len()], f32_bytes(&values))], None).unwrap();
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (at, value) in values.iter().enumerate() {
        let back = parsed["x"][at].as_f64().map(|back| back as f32);
        assert_eq!(back.map(f32::to_bits), value.is_finite().then_some(value.to_bits()), "{text}");
    }
}

#[test]
fn every_dtype_is_encoded() {
    let cases: [(DType, Vec<u8>, &str); 8] = [
        (DType::F32, f32_bytes(&[-1.5]), "-1.5"),
        (DType::F16, 0x3e00u16.to_le_bytes().to_vec(), "1.5"),
        (DType::I64, i64::MIN.to_le_bytes().to_vec(), "-9223372036854775808"),
        (DType::U64, u64::MAX.to_le_bytes().to_vec(), "18446744073709551615"),
        (DType::I32, (-7i32).to_le_bytes().to_vec(), "-7"),
        (DType::U32, 7u32.to_le_bytes().to_vec(), "7"),
        (DType::I8, vec![0xff], "-1"),
        (DType::U8, vec![0xff], "255"),
    ];
    for (dtype, bytes, expected) in cases {
        let text =
            encode_json(&signature_with_outputs(vec![port("x", dtype, &[])]), &[tensor("x", dtype, &[1], bytes)], None)
                .unwrap();
        assert_eq!(text, format!("{{\"x\":{expected}}}"));
    }
}

#[test]
fn class_names_are_encoded_beside_class_numbers() {
    let mut class = port("class", DType::I32, &[]);
    class.semantics = Some("class".to_owned());
    class.classes = vec!["a \"cat\"".to_owned(), "dog".to_owned()];
    let output = tensor("class", DType::I32, &[3], [0, 1, -1].map(i32::to_le_bytes).concat());
    let text = encode_json(&signature_with_outputs(vec![class.clone()]), &[output], Some(3)).unwrap();
    assert_eq!(text, r#"{"class":[0,1,-1],"class_name":["a \"cat\"","dog",null]}"#);
    class.classes = (0..10).map(|digit| digit.to_string()).collect();
    let text =
        encode_json(&signature_with_outputs(vec![class]), &[tensor("class", DType::I32, &[1], vec![3, 0, 0, 0])], None)
            .unwrap();
    assert_eq!(text, r#"{"class":3}"#);
}

#[test]
fn a_text_output_is_encoded_as_a_string() {
    let port = Port { semantics: Some("text".to_owned()), ..port("text", DType::U8, &[5]) };
    let signature = signature_with_outputs(vec![port.clone()]);
    let text = |items, bytes: &[u8]| {
        let tensor = tensor("text", DType::U8, &[bytes.len() / 5, 5], bytes.to_vec());
        encode_json(&signature, &[tensor], items).unwrap()
    };
    assert_eq!(text(None, b"n\xc3\xa9\"\0"), r#"{"text":"né\""}"#);
    assert_eq!(text(Some(2), b"a\xff\0b\0\0\0\0\0\0"), "{\"text\":[\"a\u{fffd}\\u0000b\",\"\"]}");
    assert_eq!(encode_text_piece(&port, None, "a\n"), r#"{"text":"a\n"}"#);
    assert_eq!(encode_text_piece(&port, Some(3), "a"), r#"{"item":3,"text":"a"}"#);
}

#[test]
fn streamed_pieces_keep_the_shape_from_the_plugin() {
    let port = port("p", DType::F32, &[9]);
    assert_eq!(
        encode_piece(&port, None, &Shape::new([2, 1]).unwrap(), &f32_bytes(&[0.5, f32::NAN])),
        r#"{"p":[[0.5],[null]]}"#
    );
    assert_eq!(encode_piece(&port, Some(1), &Shape::scalar(), &f32_bytes(&[2.0])), r#"{"item":1,"p":2.0}"#);
}

#[test]
fn outputs_that_do_not_match_the_signature_are_refused() {
    let signature = signature_with_outputs(vec![port("x", DType::F32, &[2])]);
    let cases = [
        (tensor("y", DType::F32, &[1, 2], f32_bytes(&[0.0; 2])), "nothing"),
        (tensor("x", DType::I32, &[1, 2], f32_bytes(&[0.0; 2])), "int32[1, 2] in 8 bytes"),
        (tensor("x", DType::F32, &[2], f32_bytes(&[0.0; 2])), "float32[2] in 8 bytes"),
        (tensor("x", DType::F32, &[], f32_bytes(&[0.0])), "float32[] in 4 bytes"),
        (tensor("x", DType::F32, &[1, 2], f32_bytes(&[0.0])), "float32[1, 2] in 4 bytes"),
    ];
    for (output, got) in cases {
        assert_eq!(encode_json(&signature, &[output], None).unwrap_err().got, got);
    }
}
