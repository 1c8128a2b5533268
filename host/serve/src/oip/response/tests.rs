use saggar_plugin::NamedTensor;
use saggar_tensor::{Descriptor, Shape};

use super::*;

fn port(name: &str, dtype: DType, shape: &[usize], semantics: Option<&str>) -> ModelPort {
    let item = Descriptor::new(dtype, Shape::new(shape).unwrap());
    let semantics = semantics.map(str::to_owned);
    ModelPort { name: name.to_owned(), item, semantics, classes: Vec::new(), default: None, preprocessing: None }
}

fn tensor(port: &ModelPort, items: usize, bytes: &[u8]) -> NamedTensor {
    NamedTensor { name: port.name.clone(), descriptor: port.batch_descriptor(items).unwrap(), bytes: bytes.to_vec() }
}

const RESPONSE_SOURCE: ResponseSource<'static> = ResponseSource { model: "m", version: 3, id: None };

fn requested_output(port: usize, is_binary: bool) -> RequestedOutput {
    RequestedOutput { port, is_binary }
}

#[track_caller]
fn json_of(encoded: EncodedResponse) -> String {
    assert_eq!(encoded.json_bytes, None);
    String::from_utf8(encoded.bytes).unwrap()
}

fn signature(outputs: &[ModelPort], batch_sizes: &[usize]) -> ModelSignature {
    ModelSignature {
        inputs: Vec::new(),
        outputs: outputs.to_vec(),
        batch_sizes: batch_sizes.to_vec(),
        routes: Vec::new(),
        handlers: Vec::new(),
    }
}

#[test]
fn output_data_is_flat_and_reads_back_unchanged() {
    let check = |dtype, bytes: &[u8], datatype: &str, data: &str| {
        let port = port("y", dtype, &[2], None);
        let output = tensor(&port, 1, bytes);
        let encoded =
            encode(&signature(&[port], &[1]), &[output], Some(1), &[requested_output(0, false)], RESPONSE_SOURCE)
                .unwrap();
        let outputs = format!(r#"{{"name":"y","datatype":"{datatype}","shape":[1,2],"data":[{data}]}}"#);
        assert_eq!(json_of(encoded), format!(r#"{{"model_name":"m","model_version":"3","outputs":[{outputs}]}}"#));
    };
    let floats = |a: f32, b: f32| [a.to_le_bytes(), b.to_le_bytes()].concat();
    check(DType::F32, &floats(0.1, 1e-45), "FP32", "0.1,1e-45");
    check(DType::F32, &floats(f32::NAN, -0.0), "FP32", "NaN,-0.0");
    check(DType::F32, &floats(f32::INFINITY, f32::NEG_INFINITY), "FP32", "Infinity,-Infinity");
    check(DType::I64, &[i64::MIN.to_le_bytes(), 5i64.to_le_bytes()].concat(), "INT64", "-9223372036854775808,5");
    check(DType::U64, &[u64::MAX.to_le_bytes(), [0; 8]].concat(), "UINT64", "18446744073709551615,0");
    check(DType::I32, &[i32::MIN.to_le_bytes(), [0; 4]].concat(), "INT32", "-2147483648,0");
    check(DType::U32, &[u32::MAX.to_le_bytes(), [0; 4]].concat(), "UINT32", "4294967295,0");
    check(DType::I8, &[0x80, 0x7f], "INT8", "-128,127");
    check(DType::U8, &[255, 0], "UINT8", "255,0");
}

#[test]
fn boolean_outputs_have_the_datatype_bool() {
    let port = port("is", DType::U8, &[2], Some("boolean"));
    let output = tensor(&port, 1, &[1, 0]);
    let signature = signature(&[port], &[1]);
    let encode = |is_binary| {
        encode(&signature, std::slice::from_ref(&output), Some(1), &[requested_output(0, is_binary)], RESPONSE_SOURCE)
            .unwrap()
    };
    assert!(json_of(encode(false)).contains(r#""datatype":"BOOL","shape":[1,2],"data":[true,false]"#));
    let binary = encode(true);
    assert_eq!(binary.bytes[binary.json_bytes.unwrap()..], [1, 0]);
}

#[test]
fn binary_output_data_follows_the_json_in_order() {
    let ports =
        [port("n", DType::I32, &[], None), port("t", DType::U8, &[4], Some("text")), port("h", DType::F16, &[], None)];
    // Not in the order of the plugin's ports.
    let outputs = [
        tensor(&ports[2], 2, &[1, 2, 3, 4]),
        tensor(&ports[0], 2, &[7, 0, 0, 0, 8, 0, 0, 0]),
        tensor(&ports[1], 2, b"\xc3\xa9\0\0\0\0\0\0"),
    ];
    let wanted = [requested_output(2, true), requested_output(1, true), requested_output(0, false)];
    let from = ResponseSource { id: Some("a\"b"), ..RESPONSE_SOURCE };
    let EncodedResponse { bytes, json_bytes } =
        encode(&signature(&ports, &[1, 4]), &outputs, Some(2), &wanted, from).unwrap();
    let (json, rest) = bytes.split_at(json_bytes.unwrap());
    let json: serde_json::Value = serde_json::from_slice(json).unwrap();
    let outputs = serde_json::json!([
        { "name": "h", "datatype": "FP16", "shape": [2], "parameters": { "binary_data_size": 4 } },
        { "name": "t", "datatype": "BYTES", "shape": [2, 1], "parameters": { "binary_data_size": 10 } },
        { "name": "n", "datatype": "INT32", "shape": [2], "data": [7, 8] },
    ]);
    assert_eq!(json, serde_json::json!({ "id": "a\"b", "model_name": "m", "model_version": "3", "outputs": outputs }));
    assert_eq!(rest, b"\x01\x02\x03\x04\x02\0\0\0\xc3\xa9\0\0\0\0");
}

#[test]
fn a_model_without_batching_has_no_batch_dimension() {
    let port = port("t", DType::U8, &[4], Some("text"));
    let output = tensor(&port, 1, b"a\"\0\0");
    let encoded =
        encode(&signature(&[port], &[]), &[output], None, &[requested_output(0, false)], RESPONSE_SOURCE).unwrap();
    assert!(json_of(encoded).ends_with(r#"[{"name":"t","datatype":"BYTES","shape":[1],"data":["a\""]}]}"#));
}

#[test]
fn outputs_that_violate_the_signature_are_refused() {
    let promised = port("y", DType::F32, &[2], None);
    let signature = signature(core::slice::from_ref(&promised), &[1]);
    let short = NamedTensor { bytes: vec![0; 4], ..tensor(&promised, 1, &[0; 8]) };
    for outputs in [vec![], vec![short], vec![tensor(&promised, 2, &[0; 16])]] {
        assert!(
            encode(&signature, &outputs, Some(1), &[requested_output(0, true)], RESPONSE_SOURCE).is_err(),
            "{outputs:?}"
        );
    }
}
