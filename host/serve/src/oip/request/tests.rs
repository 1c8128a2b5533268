use saggar_tensor::{DType, Descriptor, Shape};

use super::*;

fn port(name: &str, dtype: DType, shape: &[usize], semantics: Option<&str>) -> ModelPort {
    let item = Descriptor::new(dtype, Shape::new(shape).unwrap());
    let semantics = semantics.map(str::to_owned);
    ModelPort { name: name.to_owned(), item, semantics, classes: Vec::new(), default: None, preprocessing: None }
}

/// A signature with one vector as input; its outputs are a float, a half float and a text.
fn vector(dtype: DType) -> ModelSignature {
    ModelSignature {
        inputs: vec![port("x", dtype, &[2], None)],
        outputs: vec![
            port("y", DType::F32, &[], None),
            port("half", DType::F16, &[], None),
            port("said", DType::U8, &[8], Some("text")),
        ],
        batch_sizes: vec![1, 4],
        routes: Vec::new(),
        handlers: Vec::new(),
    }
}

fn texts() -> ModelSignature {
    let mut times = port("times", DType::U32, &[], None);
    times.default = Some(1.0);
    ModelSignature {
        inputs: vec![port("prompt", DType::U8, &[4], Some("text")), times],
        outputs: vec![port("said", DType::U8, &[8], Some("text"))],
        batch_sizes: vec![1],
        routes: Vec::new(),
        handlers: Vec::new(),
    }
}

fn unbatched() -> ModelSignature {
    ModelSignature { batch_sizes: Vec::new(), outputs: vec![port("y", DType::F32, &[], None)], ..vector(DType::F32) }
}

/// Returns a request for `y` with the input `x`, given the JSON after the input's name.
fn request_json(input: &str) -> String {
    format!(r#"{{"inputs":[{{"name":"x",{input}}}],"outputs":[{{"name":"y"}}]}}"#)
}

fn floats(signature: &ModelSignature, json: &str) -> Result<(Vec<f32>, Option<usize>), String> {
    let asked = read_request(signature, json.as_bytes(), None).map_err(|error| error.to_string())?;
    let bytes = &asked.inputs.tensors[0].bytes;
    Ok((bytes.as_chunks().0.iter().map(|&element| f32::from_le_bytes(element)).collect(), asked.inputs.items))
}

#[track_caller]
fn assert_refused(signature: &ModelSignature, json: &str, expected: &str) {
    let error = read_request(signature, json.as_bytes(), None).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error:?} for {json}");
}

#[test]
fn data_may_be_nested_or_flat() {
    let signature = vector(DType::F32);
    for data in ["[1,2.5,3,4]", "[[1,2.5],[3,4]]", "[[[1]],2.5,[[3,4]]]", "[1,2.5e0,3,4.0]"] {
        let json = request_json(&format!(r#""shape":[2,2],"datatype":"FP32","data":{data}"#));
        assert_eq!(floats(&signature, &json), Ok((vec![1.0, 2.5, 3.0, 4.0], Some(2))), "{data}");
    }
    let one = request_json(r#""shape":[1,2],"datatype":"FP32","data":[1,2]"#);
    assert_eq!(floats(&signature, &one), Ok((vec![1.0, 2.0], Some(1))));
    let bare = request_json(r#""shape":[2],"datatype":"FP32","data":[1,2]"#);
    assert_eq!(floats(&unbatched(), &bare), Ok((vec![1.0, 2.0], None)));
}

#[test]
fn keys_come_in_any_order_and_unknown_ones_are_ignored() {
    let json = r#"{"model_name": "m", "outputs": [{"name": "y", "more": {}}], "inputs": [
        {"data": [7, 8], "more": [1], "datatype": "FP32", "shape": [1, 2], "name": "x"}], "id": "a\"b"}"#;
    let asked = read_request(&vector(DType::F32), json.as_bytes(), None).unwrap();
    assert_eq!(asked.inputs.tensors[0].bytes, [7f32.to_le_bytes(), 8f32.to_le_bytes()].concat());
    assert_eq!(asked.id.as_deref(), Some("a\"b"));
    let late = r#"{"inputs": [{"data": [true], "datatype": "FP32", "shape": [1, 2], "name": "x"}]}"#;
    assert_refused(&vector(DType::F32), late, "x: element 0: expected a number within ±3.4e38, got true");
}

#[test]
fn nonfinite_numbers_are_read_as_clients_write_them() {
    let signature = vector(DType::F32);
    let json = request_json(r#""shape":[2,2],"datatype":"FP32","data":[NaN,[Infinity,-Infinity],1]"#);
    let (got, _) = floats(&signature, &json).unwrap();
    assert!(got[0].is_nan());
    assert_eq!(got[1..], [f32::INFINITY, f32::NEG_INFINITY, 1.0]);
    let text = request_json(r#""shape":[1,2],"datatype":"FP32","data":["NaN",1]"#);
    assert_refused(&signature, &text, "x: element 0: expected a number within ±3.4e38, got the string \"NaN\"");
    let whole = request_json(r#""shape":[1,2],"datatype":"INT32","data":[NaN,1]"#);
    assert_refused(&vector(DType::I32), &whole, "x: element 0: expected a whole number within ±2^31, got NaN");
}

#[test]
fn shapes_and_data_that_do_not_fit_are_refused() {
    let signature = vector(DType::F32);
    let check = |shape: &str, data: &str, expected: &str| {
        assert_refused(
            &signature,
            &request_json(&format!(r#""shape":{shape},"datatype":"FP32","data":{data}"#)),
            expected,
        );
    };
    check("[2]", "[1,2]", "x: expected shape [-1, 2], got [2]");
    check("[1,3]", "[1,2,3]", "x: expected shape [-1, 2], got [1, 3]");
    check("[1,1,2]", "[1,2]", "x: expected shape [-1, 2], got [1, 1, 2]");
    check("[]", "[1]", "x: expected shape [-1, 2], got []");
    check("[1,2]", "[1]", "x: shape [1, 2] has 2 elements, the data has 1");
    check("[1,2]", "[1,2,3]", "x: shape [1, 2] has 2 elements, the data has 3");
    check("[1,2]", "[]", "x: shape [1, 2] has 2 elements, the data has 0");
    check("[0,2]", "[]", "x: the batch is empty");
    check("[-1,2]", "[1,2]", "request: expected a whole number from 0, got -1");
    check("[1.5,2]", "[1,2]", "request: expected a whole number from 0, got 1.5");
    check("[1,2,1,1,1,1,1,1,1,1]", "[1,2]", "request: expected a shape: at most 9");
    check("[9223372036854775807,2]", "[1,2]", "x: more than 67108864 bytes of elements");
    check("[18446744073709551615,2]", "[1,2]", "x: more than 67108864 bytes of elements");
    check("[18446744073709551616,2]", "[1,2]", "request: expected a whole number from 0, got 1.8446744073709552e+19");
    check("[8388609,2]", "[1,2]", "x: more than 67108864 bytes of elements");
    check("{}", "[1,2]", "request: expected a shape");
    check("[1,2]", "1", "x: element 0: expected a number within ±3.4e38, got 1");
    check("[1,2]", "\"1\"", "x: element 0: expected a number within ±3.4e38, got the string \"1\"");
    check("[1,2]", "[1,\"2\"]", "x: element 1: expected a number within ±3.4e38, got the string \"2\"");
    check("[1,2]", "[1,null]", "x: element 1: expected a number within ±3.4e38, got null");
    check("[1,2]", "[1,{}]", "x: element 1: expected a number within ±3.4e38, got an object");
    check("[1,2]", "[1,true]", "x: element 1: expected a number within ±3.4e38, got true");
    check("[1,2]", "[1,1e39]", "x: element 1: expected a number within ±3.4e38, got 1e39");
    check("[1,2]", &format!("{}1{}", "[".repeat(10), "]".repeat(10)), "x: arrays are nested deeper than 9");
    check("[1,2]", &"[".repeat(1 << 20), "x: arrays are nested deeper than 9");
    assert_refused(
        &unbatched(),
        &request_json(r#""shape":[1,2],"datatype":"FP32","data":[1,2]"#),
        "x: expected shape [2], got [1, 2]",
    );
}

#[test]
fn bool_and_uint8_inputs_are_interchangeable() {
    let read_bytes = |semantics: Option<&str>, input: &str| {
        let x = port("x", DType::U8, &[2], semantics);
        let signature = ModelSignature { inputs: vec![x], ..vector(DType::U8) };
        let asked =
            read_request(&signature, request_json(input).as_bytes(), None).map_err(|error| error.to_string())?;
        Ok::<_, String>(asked.inputs.tensors[0].bytes.to_vec())
    };
    for semantics in [None, Some("boolean")] {
        for datatype in ["BOOL", "UINT8"] {
            for data in ["[true,false]", "[1,0]"] {
                let input = format!(r#""shape":[1,2],"datatype":"{datatype}","data":{data}"#);
                assert_eq!(read_bytes(semantics, &input), Ok(vec![1, 0]), "{semantics:?} {input}");
            }
        }
    }
    let refused = |semantics| read_bytes(semantics, r#""shape":[1,2],"datatype":"FP32","data":[1,0]"#).unwrap_err();
    assert!(refused(Some("boolean")).contains("expected datatype BOOL"), "{}", refused(Some("boolean")));
    assert!(refused(None).contains("expected datatype UINT8"), "{}", refused(None));
    let number = |semantics| read_bytes(semantics, r#""shape":[1,2],"datatype":"UINT8","data":[1,7]"#);
    assert_eq!(number(None), Ok(vec![1, 7]));
    let neither = "x, element 1: expected 0 or 1, or true or false, got 7";
    assert_eq!(number(Some("boolean")), Err(neither.to_owned()));
}

#[test]
fn requests_with_missing_or_unknown_parts_are_refused() {
    let signature = vector(DType::F32);
    let x = r#"{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}"#;
    let check = |json: &str, expected: &str| assert_refused(&signature, json, expected);
    check("", "request: expected JSON, got nothing");
    check("{", "request: not JSON at byte 0: it ends within an object");
    check("[]", "request: expected an object with \"inputs\"");
    check("null", "request: expected an object with \"inputs\"");
    check("{}", "request: \"inputs\" is missing");
    check(r#"{"inputs":[]}"#, "x: missing; expected float32[2]");
    check(r#"{"inputs":null}"#, "x: missing; expected float32[2]");
    check(r#"{"inputs":{}}"#, "request: expected an array of tensors");
    check(r#"{"inputs":[7]}"#, "request: expected an object with \"name\"");
    check(&format!(r#"{{"inputs":[{x},{x}]}}"#), "x: given twice");
    check(&format!(r#"{{"inputs":[{x}]}} {{}}"#), "request: not JSON at byte ");
    check(r#"{"inputs":[{"name":"z","shape":[1],"datatype":"FP32","data":[1]}]}"#, "z: the model has no such input");
    check(r#"{"inputs":[{"shape":[1],"datatype":"FP32","data":[1]}]}"#, "inputs[0]: \"name\" is missing");
    check(r#"{"inputs":[{"name":"x","datatype":"FP32","data":[1,2]}]}"#, "inputs[0]: \"shape\" is missing");
    check(r#"{"inputs":[{"name":"x","shape":[1,2],"data":[1,2]}]}"#, "inputs[0]: \"datatype\" is missing");
    check(r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32"}]}"#, "x: expected exactly one of \"data\"");
    for datatype in ["FP64", "INT32", "fp32", "BOOL", "BYTES", "", "TYPE_FP32"] {
        let json = request_json(&format!(r#""shape":[1,2],"datatype":"{datatype}","data":[1,2]"#));
        check(&json, &format!("x: expected datatype FP32, got {datatype:?}"));
    }
    check(
        &format!(r#"{{"inputs":[{x}],"outputs":[{{"name":"z"}}]}}"#),
        "z: the model has no such output; it gives y, half",
    );
    check(&format!(r#"{{"inputs":[{x}],"outputs":[{{"name":"y"}},{{"name":"y"}}]}}"#), "y: asked for twice");
    check(&format!(r#"{{"inputs":[{x}],"outputs":[{{}}]}}"#), "outputs[0]: \"name\" is missing");
    check(&format!(r#"{{"inputs":[{x}],"outputs":[1]}}"#), "request: expected an object with \"name\"");
    check(&format!(r#"{{"inputs":[{x}],"id":7}}"#), "request: expected a text, got 7");
}

#[test]
fn parameters_are_honoured_ignored_or_refused() {
    let signature = texts();
    let with = |parameters: &str| {
        let input = r#"{"name":"prompt","shape":[1],"datatype":"BYTES","data":["a"]}"#;
        format!(r#"{{"parameters":{parameters},"inputs":[{input}]}}"#)
    };
    let read = |parameters: &str| read_request(&signature, with(parameters).as_bytes(), None).unwrap();
    assert_eq!(read(r#"{"timeout": 2500}"#).limit, Some(Duration::from_micros(2500)));
    assert_eq!(read(r#"{"timeout": 0, "priority": 3}"#).limit, None);
    assert_eq!(read(r#"{"timeout": 18446744073709551615}"#).limit, Some(saggar_serving::limits::DEADLINE_MAX));
    assert!(read(r#"{"binary_data_output": true}"#).outputs[0].is_binary);
    let ignored = r#"{"sequence_id": 7, "sequence_start": true, "mine": "x", "other": -1, "third": 0.5}"#;
    assert_eq!(read(ignored), read("{}"));
    assert_eq!(read("null"), read("{}"));
    let check = |parameters: &str, expected: &str| assert_refused(&signature, &with(parameters), expected);
    check(
        r#"{"triton_enable_empty_final_response": true}"#,
        "request: parameter triton_enable_empty_final_response is refused: names that",
    );
    check(r#"{"timeout": -1}"#, "request: parameter timeout: expected a whole number from 0 on");
    check(r#"{"timeout": "1"}"#, "request: parameter timeout: expected a whole number from 0 on");
    check(r#"{"priority": true}"#, "request: parameter priority: expected a whole number");
    check(r#"{"binary_data_output": 1}"#, "request: parameter binary_data_output: expected true or false");
    check(r#"{"mine": {}}"#, "request: expected a parameter");
    check(r#"{"mine": [1]}"#, "request: expected a parameter");
    check("[]", "request: expected an object of parameters");
}

#[test]
fn outputs_keep_the_requested_order_and_encoding() {
    let signature = vector(DType::F32);
    let asked = |rest: &str| {
        let input = r#"{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}"#;
        read_request(&signature, format!(r#"{{"inputs":[{input}],{rest}}}"#).as_bytes(), None)
            .map(|asked| asked.outputs)
    };
    let wanted = |port, is_binary| RequestedOutput { port, is_binary };
    let outputs = r#""outputs":[{"name":"said"},{"name":"half","parameters":{"binary_data":true}},{"name":"y"}]"#;
    assert_eq!(asked(outputs).unwrap(), [wanted(2, false), wanted(1, true), wanted(0, false)]);
    let all = r#""parameters":{"binary_data_output":true}"#;
    assert_eq!(asked(all).unwrap(), [wanted(0, true), wanted(1, true), wanted(2, true)]);
    let but_one =
        format!(r#"{all},"outputs":[{{"name":"y","parameters":{{"binary_data":false,"more":1}}}},{{"name":"half"}}]"#);
    assert_eq!(asked(&but_one).unwrap(), [wanted(0, false), wanted(1, true)]);
    assert_eq!(asked(r#""outputs":[]"#).unwrap(), []);
    let error = |rest: &str| asked(rest).unwrap_err().to_string();
    assert_eq!(error(r#""id":"1""#), "half: FP16 has no form in JSON; exchange it as binary data");
    let parameter =
        |name: &str, value: &str| error(&format!(r#""outputs":[{{"name":"y","parameters":{{"{name}":{value}}}}}]"#));
    assert!(parameter("binary_data", "1").ends_with("binary_data: expected true or false"));
    assert!(parameter("classification", "3").ends_with("the classification extension is not offered"));
    assert!(parameter("shared_memory_region", "\"r\"").ends_with("shared memory is not offered"));
}

#[test]
fn half_floats_are_binary_only() {
    let json = request_json(r#""shape":[1,2],"datatype":"FP16","data":[1,2]"#);
    assert_refused(&vector(DType::F16), &json, "x: FP16 has no form in JSON; exchange it as binary data");
    let json = request_json(r#""shape":[1,2],"datatype":"FP16","parameters":{"binary_data_size":4}"#);
    let body = [json.as_bytes(), &[0, 0x3c, 0, 0x40]].concat();
    let asked = read_request(&vector(DType::F16), &body, Some(json.len())).unwrap();
    assert_eq!(asked.inputs.tensors[0].bytes, [0, 0x3c, 0, 0x40]);
}

#[test]
fn binary_input_data_follows_the_json_in_order() {
    let signature = texts();
    let read_with = |inputs: &str, rest: &[u8]| {
        let json = format!(r#"{{"inputs":[{inputs}]}}"#);
        read_request(&signature, &[json.as_bytes(), rest].concat(), Some(json.len()))
    };
    let times = r#"{"name":"times","shape":[2],"datatype":"UINT32","parameters":{"binary_data_size":8}}"#;
    let prompt = |bytes: u64| {
        format!(r#"{{"name":"prompt","shape":[2,1],"datatype":"BYTES","parameters":{{"binary_data_size":{bytes}}}}}"#)
    };
    let both = format!("{times},{}", prompt(11));
    let bytes = b"\x07\0\0\0\x08\0\0\0\x02\0\0\0\xc3\xa9\x01\0\0\0b";
    let asked = read_with(&both, bytes).unwrap();
    assert_eq!(asked.inputs.items, Some(2));
    assert_eq!(asked.inputs.tensors[0].bytes, b"\xc3\xa9\0\0b\0\0\0");
    assert_eq!(asked.inputs.tensors[1].bytes, bytes[..8]);

    let check = |inputs: &str, rest: &[u8], expected: &str| {
        let error = read_with(inputs, rest).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error:?} for {inputs} and {rest:x?}");
    };
    check(&both, &bytes[..18], "unexpected size for input prompt, expecting 1 additional bytes");
    check(&both, &[&bytes[..], b"x"].concat(), "unexpected additional input data: 1 bytes follow the last input");
    check(&prompt(u64::MAX), b"", "unexpected size for input prompt, expecting 18446744073709551615 additional");
    check(
        times.replace(":8", ":4").as_str(),
        &bytes[..4],
        "input byte size mismatch for input times: expected 8 bytes, got 4",
    );
    check(&times.replace(":8", ":-8"), &bytes[..8], "inputs: parameter binary_data_size: expected a whole number");
    check(&times.replace(":8", ":\"8\""), &bytes[..8], "inputs: parameter binary_data_size: expected a whole number");
    let two = times.replace("\"shape\"", "\"data\":[1,2],\"shape\"");
    check(&two, &bytes[..8], "times: expected exactly one of \"data\" and the parameter binary_data_size");
    let shared = times.replace("binary_data_size\":8", "shared_memory_region\":\"r\"");
    check(&shared, b"", "inputs: parameter shared_memory_region is refused: shared memory is not offered");

    let texts = |rest: &[u8], expected: &str| check(&prompt(rest.len() as u64), rest, expected);
    texts(b"\x01\0\0\0a\x01\0\0", "prompt: the data ends before an element's length");
    texts(b"\x01\0\0\0a", "prompt: the data has fewer elements than the shape");
    texts(b"\x01\0\0\0a\x05\0\0\0b", "prompt: the data ends within an element");
    texts(b"\x01\0\0\0a\xff\xff\xff\xffb", "prompt: the data ends within an element");
    texts(b"\x01\0\0\0a\x01\0\0\0bc", "prompt: the data has more elements than the shape");
    texts(b"\x01\0\0\0a\x01\0\0\0\xff", "prompt: an element is not UTF-8");
    texts(b"\x01\0\0\0a\x05\0\0\0bcdef", "prompt[1]: the text of 5 bytes is too long");

    let json = format!(r#"{{"inputs":[{}]}}"#, prompt(0));
    assert_refused(&signature, &json, "prompt: binary data needs the header Inference-Header-Content-Length");
}

#[test]
fn a_text_is_one_element_per_item() {
    let signature = texts();
    let texts = |shape: &str, data: &str| {
        let json = format!(r#"{{"inputs":[{{"name":"prompt","shape":{shape},"datatype":"BYTES","data":{data}}}]}}"#);
        read_request(&signature, json.as_bytes(), None).map(|asked| asked.inputs).map_err(|error| error.to_string())
    };
    let two = texts("[2,1]", r#"[["a"],["né"]]"#).unwrap();
    assert_eq!(two.tensors[0].bytes, b"a\0\0\0n\xc3\xa9\0");
    assert_eq!(two.tensors[1].bytes, [1, 0, 0, 0, 1, 0, 0, 0], "the default, in each item");
    assert_eq!(texts("[2]", r#"["a","né"]"#).unwrap(), two);
    assert_eq!(texts("[1,4]", r#"["a"]"#).unwrap_err(), "prompt: expected shape [-1, 1], got [1, 4]");
    assert!(texts("[1]", "[7]").unwrap_err().starts_with("prompt: element 0: expected a string, got 7"));
    assert!(texts("[1]", r#""a""#).unwrap_err().starts_with("prompt: element 0: expected a string, got the string"));
    assert!(texts("[1]", r#"["abcde"]"#).unwrap_err().starts_with("prompt[0]: the text of 5 bytes is too long"));
    assert_eq!(texts("[2]", r#"["a"]"#).unwrap_err(), "prompt: shape [2] has 2 elements, the data has 1");
}

#[test]
fn inputs_of_different_batch_sizes_are_refused() {
    let json = r#"{"inputs":[{"name":"prompt","shape":[2],"datatype":"BYTES","data":["a","b"]},
        {"name":"times","shape":[1],"datatype":"UINT32","data":[1]}]}"#;
    assert_refused(&texts(), json, "times: expected a batch of 2, as in prompt, got a batch of 1");
}

#[test]
fn a_raw_body_is_one_item_of_the_only_input() {
    let signature = vector(DType::F32);
    let item = [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat();
    let asked = read_request(&signature, &item, Some(0)).unwrap();
    assert_eq!((asked.inputs.items, asked.inputs.tensors[0].bytes.clone()), (Some(1), item.clone()));
    assert!(asked.outputs.iter().all(|output| output.is_binary) && asked.outputs.len() == 3);
    assert_eq!(read_request(&unbatched(), &item, Some(0)).unwrap().inputs.items, None);
    let error =
        |signature: &ModelSignature, body: &[u8]| read_request(signature, body, Some(0)).unwrap_err().to_string();
    assert_eq!(error(&signature, b"1234"), "input byte size mismatch for input x: expected 8 bytes, got 4");
    assert_eq!(error(&texts(), b"a"), "a raw request is for a model of exactly one input; this one has 2");
    let one = ModelSignature { inputs: vec![texts().inputs.remove(0)], ..texts() };
    assert_eq!(read_request(&one, b"abc", Some(0)).unwrap().inputs.tensors[0].bytes, b"abc\0");
    assert!(error(&one, b"abcde").starts_with("prompt[0]: the text of 5 bytes is too long"));
}
