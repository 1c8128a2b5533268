use saggar_plugin::ModelPort as Port;
use saggar_tensor::{DType, Descriptor, Shape};

use super::*;
use crate::limits::JSON_DEPTH_MAX;

fn port_named(name: &str, dtype: DType, shape: &[usize]) -> Port {
    let item = Descriptor::new(dtype, Shape::new(shape).unwrap());
    Port { name: name.to_owned(), item, semantics: None, classes: Vec::new(), default: None, preprocessing: None }
}

fn signature_with_inputs(inputs: Vec<Port>) -> ModelSignature {
    ModelSignature { inputs, outputs: Vec::new(), batch_sizes: vec![1], routes: Vec::new(), handlers: Vec::new() }
}

fn image_signature() -> ModelSignature {
    signature_with_inputs(vec![port_named("image", DType::U8, &[2, 3])])
}

fn two_input_signature() -> ModelSignature {
    signature_with_inputs(vec![port_named("x", DType::F32, &[]), port_named("y", DType::I64, &[2])])
}

/// Returns the error message for a body.
fn decode_error_message(signature: &ModelSignature, body: impl AsRef<[u8]>) -> String {
    decode_json(signature, body.as_ref()).unwrap_err().to_string()
}

#[test]
fn one_item_and_a_batch_are_decoded() {
    for body in [r#"{"image": [[1,2,3],[4,5,255]]}"#, "[[1,2,3],[4,5,255]]", " [[1.0,2,3e0],[4,5,255]] "] {
        let inputs = decode_json(&image_signature(), body.as_bytes()).unwrap();
        assert_eq!(inputs.items, None);
        assert_eq!(inputs.tensors[0].bytes, [1, 2, 3, 4, 5, 255]);
        assert_eq!(inputs.tensors[0].descriptor.to_string(), "uint8[1, 2, 3]");
    }
    let inputs = decode_json(&image_signature(), b"[[[1,2,3],[4,5,6]],[[7,8,9],[10,11,12]]]").unwrap();
    assert_eq!(inputs.items, Some(2));
    assert_eq!(inputs.tensors[0].descriptor.to_string(), "uint8[2, 2, 3]");
    let inputs = decode_json(&two_input_signature(), br#"{"y":[[1,2],[3,-4]],"x":[0.5,true]}"#).unwrap();
    assert_eq!(inputs.items, Some(2));
    assert_eq!(inputs.tensors[0].name, "x");
    assert_eq!(inputs.tensors[0].bytes, [0.5f32.to_le_bytes(), 1f32.to_le_bytes()].concat());
    assert_eq!(inputs.tensors[1].bytes, [1i64, 2, 3, -4].map(i64::to_le_bytes).concat());
}

#[test]
fn a_scalar_input_takes_a_bare_number() {
    let signature = signature_with_inputs(vec![port_named("x", DType::F32, &[])]);
    assert_eq!(decode_json(&signature, b"2.5").unwrap().items, None);
    assert_eq!(decode_json(&signature, b"[2.5]").unwrap().items, Some(1));
    assert_eq!(decode_error_message(&signature, "[]"), "x: the batch is empty; expected at least one item of shape []");
}

#[test]
fn integers_are_decoded_exactly() {
    let signature = signature_with_inputs(vec![port_named("x", DType::U64, &[])]);
    let inputs = decode_json(&signature, b"18446744073709551615").unwrap();
    assert_eq!(inputs.tensors[0].bytes, u64::MAX.to_le_bytes());
    let expected = "x: expected a whole number from 0 to 2^64 - 1, got 1.8446744073709552e19";
    assert_eq!(decode_error_message(&signature, "18446744073709551616"), expected);
}

#[test]
fn decode_errors_name_the_place() {
    let cases = [
        ("[[1,2,3],[4,5,256]]", "image[1][2]: expected a whole number from 0 to 255, got 256"),
        ("[[1,2,3],[4,5,-1]]", "image[1][2]: expected a whole number from 0 to 255, got -1"),
        ("[[1,2,3],[4,5,0.5]]", "image[1][2]: expected a whole number from 0 to 255, got 0.5"),
        ("[[1,2,3],[4,5]]", "image[1]: expected 3 values, as in the array before it, got 2"),
        ("[[1,2],[4,5]]", "image: expected shape [2, 3], or [n, 2, 3] for a batch, got [2, 2]"),
        ("[1,2,3,4,5,6]", "image: expected shape [2, 3], or [n, 2, 3] for a batch, got [6]"),
        ("7", "image: expected shape [2, 3], or [n, 2, 3] for a batch, got []"),
        ("[[[[1]]]]", "image: expected shape [2, 3], or [n, 2, 3] for a batch, got [1, 1, 1, 1]"),
        ("[]", "image: the batch is empty; expected at least one item of shape [2, 3]"),
        ("[[],[]]", "image: expected shape [2, 3], or [n, 2, 3] for a batch, got [2, 0]"),
        ("[[1,2,3],[4,5,[6]]]", "image[1][2]: expected a number, as beside it, got an array"),
        ("[[1,2,3],4]", "image[1]: expected an array, as beside it, got 4"),
        ("[[1,2,3],[4,5,\"NaN\"]]", "image[1][2]: expected a number, got the string \"NaN\""),
        ("[[1,2,3],[4,5,null]]", "image[1][2]: expected a number, got null"),
        ("[[1,2,3],{}]", "image[1]: expected a number or an array of numbers, got an object"),
        ("\"text\"", "body: expected an object with image, got a string"),
        ("null", "body: expected an object with image, got null"),
        ("{}", "image: missing; expected uint8[2, 3]"),
        (r#"{"picture":[[1,2,3],[4,5,6]]}"#, "picture: the model has no such input; it takes image (uint8[2, 3])"),
        (r#"{"image":[[1,2,3],[4,5,6]],"image":0}"#, "image: given twice"),
    ];
    for (body, expected) in cases {
        assert_eq!(decode_error_message(&image_signature(), body), expected, "{body}");
        if body.starts_with('[') {
            assert_eq!(decode_error_message(&image_signature(), format!("{{\"image\": {body}}}")), expected, "{body}");
        }
    }
}

#[test]
fn several_inputs_are_decoded_from_an_object_with_one_batch_size() {
    assert_eq!(decode_error_message(&two_input_signature(), "[1]"), "body: expected an object with x, y, got an array");
    assert_eq!(decode_error_message(&two_input_signature(), "3"), "body: expected an object with x, y, got a number");
    let mixed = decode_error_message(&two_input_signature(), r#"{"x":[1,2],"y":[1,2]}"#);
    assert_eq!(mixed, "y: expected a batch of 2, as in x, got one item without a batch");
    let uneven = decode_error_message(&two_input_signature(), r#"{"x":[1,2],"y":[[1,2],[1,2],[1,2]]}"#);
    assert_eq!(uneven, "y: expected a batch of 2, as in x, got a batch of 3");
}

#[test]
fn class_names_are_decoded_to_class_numbers() {
    let mut port = port_named("kind", DType::I32, &[]);
    port.semantics = Some("class".to_owned());
    port.classes = vec!["cat".to_owned(), "dog".to_owned()];
    let signature = signature_with_inputs(vec![port]);
    assert_eq!(decode_json(&signature, br#"["dog","cat"]"#).unwrap().tensors[0].bytes, [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(decode_error_message(&signature, r#"["cow"]"#), "kind[0]: expected a number, got the string \"cow\"");
}

fn prompt_port() -> Port {
    Port { semantics: Some("text".to_owned()), ..port_named("prompt", DType::U8, &[6]) }
}

#[test]
fn a_json_string_is_decoded_as_a_text_input() {
    let signature = signature_with_inputs(vec![prompt_port()]);
    for body in [r#"{"prompt": "né"}"#, r#""né""#, r#""n\u00e9""#, r#"{"prompt": [110, 195, 169, 0, 0, 0]}"#] {
        let inputs = decode_json(&signature, body.as_bytes()).unwrap();
        assert_eq!((inputs.items, &*inputs.tensors[0].bytes), (None, &b"n\xc3\xa9\0\0\0"[..]), "{body}");
    }
    for body in [r#"["abcdef", ""]"#, r#"{"prompt": ["abcdef", [0,0,0,0,0,0]]}"#] {
        let inputs = decode_json(&signature, body.as_bytes()).unwrap();
        assert_eq!((inputs.items, &*inputs.tensors[0].bytes), (Some(2), &b"abcdef\0\0\0\0\0\0"[..]), "{body}");
    }
    let form = "a string of at most 6 bytes, or an array of strings for a batch";
    let cases = [
        (r#""abcdefg""#, "prompt: the text of 7 bytes is too long; at most 6 bytes of UTF-8 are taken".to_owned()),
        (
            r#"["", "ab\u0000"]"#,
            "prompt[1]: the text of 3 bytes has a zero byte (U+0000), which would end it; at most 6 \
            bytes of UTF-8 are taken"
                .to_owned(),
        ),
        (r#"{"prompt": 7}"#, format!("prompt: expected {form}, got a number; put it in quotes")),
        (r#"{"prompt": [[["a"]]]}"#, format!("prompt: expected {form}, got shape [1, 1, 1, 6]")),
        (r#"{"prompt": [1, 2]}"#, format!("prompt: expected {form}, got shape [2]")),
        (r#"[[1,2,3,4,5,"a"]]"#, "prompt[0][5]: expected a number, as beside it, got a string".to_owned()),
        (r#"["a", 1]"#, "prompt[1]: expected an array, as beside it, got 1".to_owned()),
        (r#"["a", [1, 2]]"#, "prompt[1]: expected 6 values, as in the array before it, got 2".to_owned()),
    ];
    for (body, expected) in cases {
        assert_eq!(decode_error_message(&signature, body), expected, "{body}");
    }
    let deep = format!("{}\"a\"{}", "[".repeat(JSON_DEPTH_MAX), "]".repeat(JSON_DEPTH_MAX));
    assert!(decode_error_message(&signature, deep).ends_with("arrays are nested deeper than 9"));
}

#[test]
fn missing_inputs_get_their_default() {
    let scale = Port { default: Some(0.5), ..port_named("scale", DType::F32, &[2]) };
    let signature = signature_with_inputs(vec![scale.clone(), prompt_port()]);
    let half = 0.5f32.to_le_bytes();
    for body in [r#"{"prompt": "a"}"#, r#""a""#] {
        let inputs = decode_json(&signature, body.as_bytes()).unwrap();
        assert_eq!((inputs.items, &inputs.tensors[0].bytes), (None, &half.repeat(2)), "{body}");
    }
    let inputs = decode_json(&signature, br#"{"prompt": ["a", "b", "c"]}"#).unwrap();
    assert_eq!((inputs.items, &inputs.tensors[0].bytes), (Some(3), &half.repeat(6)));
    assert_eq!(inputs.tensors[0].descriptor.to_string(), "float32[3, 2]");
    let inputs = decode_json(&signature, br#"{"prompt": "a", "scale": [1, 2]}"#).unwrap();
    assert_eq!(inputs.tensors[0].bytes, [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat());
    assert_eq!(decode_error_message(&signature, r#"{"scale": [1, 2]}"#), "prompt: missing; expected uint8[6]");
    let uneven = decode_error_message(&signature, r#"{"scale": [1, 2], "prompt": ["a"]}"#);
    assert_eq!(uneven, "prompt: expected one item without a batch, as in scale, got a batch of 1");
    let inputs = decode_json(&signature_with_inputs(vec![scale.clone()]), b"{}").unwrap();
    assert_eq!((inputs.items, &inputs.tensors[0].bytes), (None, &half.repeat(2)));
    let wide = Port { default: Some(1.0), ..port_named("wide", DType::F32, &[1 << 20]) };
    let many = format!("[{}\"\"]", "\"\",".repeat(1000));
    assert_eq!(
        decode_error_message(&signature_with_inputs(vec![wide, prompt_port()]), many),
        "wide: more than 41943040 bytes of elements"
    );
}

#[test]
fn hostile_json_is_refused_with_the_place() {
    let deep = "[".repeat(100_000);
    let place = "[0]".repeat(JSON_DEPTH_MAX);
    assert_eq!(
        decode_error_message(&image_signature(), &deep),
        format!("image{place}: arrays are nested deeper than 9")
    );
    assert_eq!(decode_error_message(&two_input_signature(), &deep), "body: expected an object with x, y, got an array");
    let objects = "{\"image\":".repeat(100_000);
    assert_eq!(
        decode_error_message(&image_signature(), objects),
        "image: expected a number or an array of numbers, got an object"
    );
    let cases: [(&[u8], &str); 9] = [
        (b"", "body: expected JSON, got nothing"),
        (b"{", "body: not JSON at byte 0: it ends within an object"),
        (b"[[1,2,3],[4,5,1e999]]", "image[1][2]: number out of range"),
        (b"[[1,2,3],[4,5,6]] 7", "body: not JSON at byte 18: something follows its end"),
        (b"[[1,2,3],[4,5,6]", "image[2]: not JSON at byte 15: it ends within a list"),
        (b"[[1,2,3],[4,5,01]]", "image[1][2]: not JSON at byte 15: invalid number"),
        (b"{\"image\xff\": 1}", "body: not JSON at byte 7: invalid unicode"),
        (b"{\"image\": \"\xff\"}", "image: not JSON at byte "),
        (b"\x00\x01", "body: not JSON at byte 0: expected a value"),
    ];
    for (body, expected) in cases {
        let message = decode_error_message(&image_signature(), body);
        assert!(message.starts_with(expected), "{message}");
    }
    let wide = decode_error_message(&image_signature(), format!("[{}1]", "1,".repeat(1_000_000)));
    assert!(wide.ends_with("got [1000001]"), "{wide}");
}

#[test]
fn raw_bytes_must_have_the_size_of_the_item() {
    let signature = image_signature();
    let input = PredictionInput::from_raw_bytes(&signature.inputs[0], vec![0; 6]).unwrap();
    assert_eq!(assemble_inputs(&signature, vec![input]).unwrap().items, None);
    let error = PredictionInput::from_raw_bytes(&signature.inputs[0], vec![0; 12]).unwrap_err().to_string();
    assert_eq!(error, "image: expected 6 bytes (uint8[2, 3]), got 12");
}

/// Arbitrary JSON never panics the decoder, and accepted inputs have the size of their descriptor.
#[test]
fn random_json_is_decoded_or_refused_without_a_panic() {
    let mut state = 1u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let pieces =
        ["[", "]", ",", "1", "0.5", "-3", "{", "}", "\"image\"", ":", "null", "1e9", "\"", " ", "256", "[1,2,3]"];
    let signature = signature_with_inputs(vec![port_named("image", DType::U8, &[3])]);
    let mut accepted_bodies = 0;
    for _ in 0..20_000 {
        let body: String = (0..next(12)).map(|_| pieces[next(pieces.len() as u64) as usize]).collect();
        if let Ok(inputs) = decode_json(&signature, body.as_bytes()) {
            accepted_bodies += 1;
            assert_eq!(inputs.tensors[0].bytes.len(), inputs.tensors[0].descriptor.bytes(), "{body}");
        }
    }
    assert!(accepted_bodies > 0);
}
