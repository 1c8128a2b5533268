//! Requests in the form of each protocol, encoded once before the load begins.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use serde_json::{Map, Value, json};
use ureq::http::Uri;
use ureq::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::tensor_input::TensorInput;
use crate::args::BenchProtocol;
use crate::client::encode_path_segment;

/// The header with the number of bytes of a binary request that are JSON.
const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
const INFER_METHOD: &str = "/inference.GRPCInferenceService/ModelInfer";

/// A request that is sent many times.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EncodedRequest {
    /// The request's target: first its path below the server's URL, then as the server under load needs it.
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl EncodedRequest {
    /// Encodes a prediction of `model`, as NAME, NAME@VERSION or NAME@ALIAS.
    pub(super) fn from_inputs(protocol: BenchProtocol, model: &str, inputs: &[TensorInput]) -> EncodedRequest {
        match protocol {
            BenchProtocol::Json => {
                let values: Map<String, Value> =
                    inputs.iter().map(|input| (input.name.clone(), input.json.clone())).collect();
                EncodedRequest::from_json_body(model, &Value::Object(values))
            }
            BenchProtocol::Binary => encode_binary(model, inputs),
            BenchProtocol::Grpc => encode_grpc(model, inputs),
        }
    }

    /// Returns a request with this body of `/predict`.
    pub(super) fn from_json_body(model: &str, body: &Value) -> EncodedRequest {
        let path = format!("/models/{}/predict", encode_path_segment(model));
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        EncodedRequest { uri: encode_path(&path), headers, body: body.to_string().into() }
    }
}

fn encode_path(path: &str) -> Uri {
    path.parse().expect("names of models are encoded")
}

/// Encodes a request of the Open Inference Protocol over HTTP with the extension of binary tensors, whose outputs are
/// binary too.
fn encode_binary(model: &str, inputs: &[TensorInput]) -> EncodedRequest {
    let tensor = |input: &TensorInput| {
        json!({
            "name": input.name,
            "datatype": input.datatype,
            "shape": input.shape,
            "parameters": { "binary_data_size": input.bytes.len() },
        })
    };
    let head = json!({
        "inputs": inputs.iter().map(tensor).collect::<Vec<_>>(),
        "parameters": { "binary_data_output": true },
    });
    let head = head.to_string();
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (JSON_LENGTH, HeaderValue::from(head.len())),
    ]);
    let mut body = BytesMut::from(head.as_bytes());
    inputs.iter().for_each(|input| body.extend_from_slice(&input.bytes));
    let path = format!("/v2/models/{}/infer", encode_path_segment(model));
    EncodedRequest { uri: encode_path(&path), headers, body: body.freeze() }
}

/// Encodes a call of `ModelInfer` with raw contents.
fn encode_grpc(model: &str, inputs: &[TensorInput]) -> EncodedRequest {
    let (name, version) = model.split_once('@').unwrap_or((model, ""));
    let tensor = |input: &TensorInput| InferInput {
        name: input.name.clone(),
        datatype: input.datatype.to_owned(),
        shape: input.shape.iter().map(|&length| length as i64).collect(),
    };
    let message = InferCall {
        model_name: name.to_owned(),
        model_version: version.to_owned(),
        inputs: inputs.iter().map(tensor).collect(),
        raw_input_contents: inputs.iter().map(|input| input.bytes.clone()).collect(),
    };
    let length = message.encoded_len();
    let mut body = BytesMut::with_capacity(length + 5);
    // The message is not compressed, and has this length.
    body.put_u8(0);
    body.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode(&mut body).expect("the buffer grows");
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/grpc")),
        (HeaderName::from_static("te"), HeaderValue::from_static("trailers")),
    ]);
    EncodedRequest { uri: encode_path(INFER_METHOD), headers, body: body.freeze() }
}

/// The message `ModelInferRequest`, in the fields that are sent. Source: `host/serve/proto`.
#[derive(Clone, PartialEq, Message)]
struct InferCall {
    #[prost(string, tag = "1")]
    model_name: String,
    #[prost(string, tag = "2")]
    model_version: String,
    #[prost(message, repeated, tag = "5")]
    inputs: Vec<InferInput>,
    #[prost(bytes = "vec", repeated, tag = "7")]
    raw_input_contents: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct InferInput {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    datatype: String,
    #[prost(int64, repeated, tag = "3")]
    shape: Vec<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> TensorInput {
        TensorInput {
            name: "x".to_owned(),
            datatype: "UINT8",
            shape: vec![1, 2],
            bytes: vec![7, 9],
            json: json!([7, 9]),
        }
    }

    #[test]
    fn requests_have_the_form_of_their_protocol() {
        let json = EncodedRequest::from_inputs(BenchProtocol::Json, "digits@2", &[input()]);
        assert_eq!((json.uri.path(), &json.body[..]), ("/models/digits@2/predict", &b"{\"x\":[7,9]}"[..]));

        let binary = EncodedRequest::from_inputs(BenchProtocol::Binary, "digits", &[input()]);
        let json_bytes: usize = binary.headers[JSON_LENGTH].to_str().unwrap().parse().unwrap();
        let (head, tensors) = binary.body.split_at(json_bytes);
        let head: Value = serde_json::from_slice(head).unwrap();
        assert_eq!((&head["inputs"][0]["parameters"]["binary_data_size"], tensors), (&json!(2), &[7, 9][..]));
        assert_eq!(binary.uri.path(), "/v2/models/digits/infer");

        let grpc = EncodedRequest::from_inputs(BenchProtocol::Grpc, "digits@2", &[input()]);
        let (prefix, message) = grpc.body.split_at(5);
        assert_eq!((prefix[0], u32::from_be_bytes(prefix[1..].try_into().unwrap())), (0, message.len() as u32));
        let message = InferCall::decode(message).unwrap();
        assert_eq!((message.model_name.as_str(), message.model_version.as_str()), ("digits", "2"));
        assert_eq!((message.inputs[0].shape.as_slice(), &message.raw_input_contents[0]), (&[1, 2][..], &vec![7, 9]));
        assert_eq!(grpc.uri.path(), INFER_METHOD);
    }
}
