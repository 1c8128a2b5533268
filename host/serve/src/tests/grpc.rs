//! gRPC: inference in every form, equal to that over HTTP, and invalid calls.

use std::io::{Read, Write};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Version};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use prost::Message;
use saggar_store::keys::KeyScope;
use serde_json::json;

use super::fixture::{BAD_OUTPUT, BLOCK, PANIC, REJECT, SLOW, ServerFixture, TRAP, TestResponse};
use super::grpc_client::{
    CHECK, ContentsMessage, INFER, InferRequestMessage, InferResponseMessage, ParameterMessage, call, call_request,
    frame, image_request, infer, input_tensor, send,
};
use super::key_client::KeyClient;
use crate::limits::INFER_BYTES_MAX;

const OK: u8 = 0;
const INVALID_ARGUMENT: u8 = 3;
const DEADLINE_EXCEEDED: u8 = 4;
const NOT_FOUND: u8 = 5;
const PERMISSION_DENIED: u8 = 7;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;
const UNAVAILABLE: u8 = 14;
const UNAUTHENTICATED: u8 = 16;

fn rpc_metric(method: &str, code: &str) -> String {
    let method = format!("inference.GRPCInferenceService/{method}");
    format!(r#"saggar_rpc_requests_total{{code="{code}",method="{method}",protocol="grpc"}}"#)
}

/// The outputs of the same prediction over HTTP, as binary data.
async fn binary_outputs_over_http(fixture: &ServerFixture, first: u8, items: usize) -> Vec<u8> {
    let input = json!({ "name": "image", "shape": [items, 2, 2], "datatype": "UINT8",
        "parameters": { "binary_data_size": 4 * items } });
    let mut body = json!({ "inputs": [input], "parameters": { "binary_data_output": true } }).to_string().into_bytes();
    let length = body.len();
    body.extend([first, 2, 3, 4].repeat(items));
    let request = Request::post("/v2/models/digits/infer").header("inference-header-content-length", length);
    let answer = TestResponse::from_response(fixture.send(request.body(Body::from(body)).unwrap()).await).await;
    let json_bytes: usize = answer.header("inference-header-content-length").parse().unwrap();
    answer.body[json_bytes..].to_vec()
}

#[tokio::test]
async fn raw_and_typed_contents_give_the_bytes_of_http() {
    let fixture = ServerFixture::with_digits_serving().await;
    for items in [1, 3, 20] {
        let raw = image_request(1, items);
        let answer = infer(&fixture.router, &raw).await;
        assert_eq!(answer.headers["x-saggar-model"], "digits@1");
        let response: InferResponseMessage = answer.message();
        assert_eq!((&*response.model_name, &*response.model_version, &*response.id), ("digits", "1", "seven"));
        let described: Vec<_> = response.outputs.iter().map(|it| (&*it.name, &*it.datatype, &*it.shape)).collect();
        let items_dim = [items as i64];
        assert_eq!(described, [("sum", "FP32", &items_dim[..]), ("mark", "INT32", &items_dim[..])]);
        let expected = binary_outputs_over_http(&fixture, 1, items).await;
        assert_eq!(response.raw_output_contents.concat(), expected);

        let mut typed = raw.clone();
        let uints = raw.raw_input_contents[0].iter().map(|&pixel| u32::from(pixel)).collect();
        typed.raw_input_contents.clear();
        typed.inputs[0].contents = Some(ContentsMessage { uints, ..ContentsMessage::default() });
        let response: InferResponseMessage = infer(&fixture.router, &typed).await.message();
        assert_eq!(response.raw_output_contents.concat(), expected);
    }
    assert_eq!(fixture.metric(&rpc_metric("ModelInfer", "OK")).await, Some(6.0));
    let http =
        r#"saggar_http_requests_total{code="200",method="POST",route="/inference.GRPCInferenceService/ModelInfer"}"#;
    assert_eq!(fixture.metric(http).await, Some(6.0));
}

#[tokio::test]
async fn texts_defaults_and_the_order_of_outputs_are_those_of_http() {
    let fixture = ServerFixture::new();
    fixture.publish("scale", "plugin that computes scale", 1);
    fixture.loader.run_once().await;
    let vectors = ContentsMessage { floats: vec![1.0, -2.5, 3.0, 4.0], ..ContentsMessage::default() };
    let names = ContentsMessage { texts: vec!["né".into(), Vec::new()], ..ContentsMessage::default() };
    let mut request = InferRequestMessage {
        model_name: "scale@1".to_owned(),
        inputs: vec![
            input_tensor("vector", "FP32", &[2, 1, 2], Some(vectors)),
            input_tensor("name", "BYTES", &[2], Some(names)),
        ],
        outputs: vec![input_tensor("name_bytes", "", &[], None), input_tensor("scaled", "", &[], None)],
        ..InferRequestMessage::default()
    };
    let response: InferResponseMessage = infer(&fixture.router, &request).await.message();
    assert_eq!((&*response.outputs[0].datatype, &response.outputs[0].shape[..]), ("BYTES", &[2, 1][..]));
    let scaled: Vec<u8> = [2.0_f32, -5.0, 6.0, 8.0].into_iter().flat_map(f32::to_le_bytes).collect();
    assert_eq!(response.raw_output_contents, [b"\x03\0\0\0n\xc3\xa9\0\0\0\0".to_vec(), scaled]);

    // The same inputs as raw bytes, with a factor for each item.
    let raws = [
        [1.0_f32, -2.5, 3.0, 4.0].into_iter().flat_map(f32::to_le_bytes).collect(),
        b"\x03\0\0\0n\xc3\xa9\0\0\0\0".to_vec(),
        [2_i64, 2].into_iter().flat_map(i64::to_le_bytes).collect(),
    ];
    request.inputs.iter_mut().for_each(|input| input.contents = None);
    request.inputs.push(input_tensor("factor", "INT64", &[2], None));
    request.raw_input_contents = raws.into();
    let again: InferResponseMessage = infer(&fixture.router, &request).await.message();
    assert_eq!(again.raw_output_contents, response.raw_output_contents);
}

#[tokio::test]
async fn errors_have_a_code_a_text_with_the_hint_and_the_request_id() {
    let fixture = ServerFixture::with_digits_serving().await;
    let request = |change: fn(&mut InferRequestMessage)| {
        let mut request = image_request(1, 1);
        change(&mut request);
        request
    };
    let parameter = |truth: Option<bool>, int64| ParameterMessage { truth, int64 };
    let cases: Vec<(InferRequestMessage, u8, &str)> = vec![
        (request(|it| it.model_name = "none".into()), NOT_FOUND, "known are digits; GET /api/v1/models lists them"),
        (request(|it| it.model_version = "99".into()), NOT_FOUND, "version 99"),
        (request(|it| it.model_version = "0".into()), NOT_FOUND, "version 0"),
        (request(|it| it.model_version = "A b".into()), INVALID_ARGUMENT, ""),
        (request(|it| it.inputs[0].name = "picture".into()), INVALID_ARGUMENT, "no such input"),
        (request(|it| it.inputs[0].datatype = "FP32".into()), INVALID_ARGUMENT, "expected datatype UINT8"),
        (request(|it| it.inputs[0].datatype = "BF16".into()), INVALID_ARGUMENT, "got \"BF16\""),
        (request(|it| it.inputs[0].shape = vec![2, 2]), INVALID_ARGUMENT, "expected shape [-1, 2, 2]"),
        (request(|it| it.inputs[0].shape = vec![-1, 2, 2]), INVALID_ARGUMENT, "whole numbers from 0 on"),
        (request(|it| it.inputs[0].shape = vec![i64::MAX, 2, 2]), INVALID_ARGUMENT, "more than"),
        (request(|it| it.inputs[0].shape = vec![0, 2, 2]), INVALID_ARGUMENT, "byte size mismatch"),
        (request(|it| it.raw_input_contents[0].truncate(3)), INVALID_ARGUMENT, "byte size mismatch"),
        (request(|it| it.raw_input_contents.push(vec![1])), INVALID_ARGUMENT, "one element for each of the 1 inputs"),
        (request(|it| it.raw_input_contents.clear()), INVALID_ARGUMENT, "has 4 elements, the data has 0"),
        (request(|it| it.inputs.push(it.inputs[0].clone())), INVALID_ARGUMENT, "given twice"),
        (request(|it| it.inputs[0].contents = Some(ContentsMessage::default())), INVALID_ARGUMENT, "got both"),
        (request(|it| it.outputs.push(input_tensor("other", "", &[], None))), INVALID_ARGUMENT, "no such output"),
        (image_request(TRAP, 1), INTERNAL, "the plugin trapped"),
        (image_request(REJECT, 1), INVALID_ARGUMENT, "the picture is blank"),
        (image_request(SLOW, 1), DEADLINE_EXCEEDED, "give it more time"),
        (image_request(PANIC, 1), INTERNAL, ""),
        (image_request(BAD_OUTPUT, 1), INTERNAL, "this is a fault of the plugin"),
    ];
    for (request, code, text) in cases {
        let answer = infer(&fixture.router, &request).await;
        assert!(answer.code() == code && answer.text().contains(text), "{code} {text}: {answer:?}");
        assert!(answer.messages.is_empty() && answer.headers.contains_key("x-request-id"));
    }
    let mut reserved = image_request(1, 1);
    reserved.parameters.insert("triton_x".to_owned(), parameter(Some(true), None));
    assert!(infer(&fixture.router, &reserved).await.text().contains("reserved"));
    let mut known = image_request(1, 1);
    known.parameters.insert("triton_enable_empty_final_response".to_owned(), parameter(Some(true), None));
    known.parameters.insert("priority".to_owned(), parameter(None, Some(1)));
    assert_eq!(infer(&fixture.router, &known).await.code(), OK);
    assert_eq!(fixture.metric(&rpc_metric("ModelInfer", "NOT_FOUND")).await, Some(3.0));
}

#[tokio::test]
async fn calls_that_are_not_of_this_protocol_are_refused() {
    let fixture = ServerFixture::with_digits_serving().await;
    let message = image_request(1, 1).encode_to_vec();
    let framed = frame(&message);
    let body = |bytes: &[u8]| Body::from(bytes.to_vec());
    let post = |header: &str, value: &str| call_request(INFER).header(header, value).body(body(&framed)).unwrap();
    for (request, code, text) in [
        (post("grpc-encoding", "zstd"), UNIMPLEMENTED, "zstd"),
        (post("grpc-timeout", "1"), INVALID_ARGUMENT, "grpc-timeout"),
        (post("grpc-timeout", "0m"), DEADLINE_EXCEEDED, ""),
        (post("grpc-timeout", "1n"), DEADLINE_EXCEEDED, ""),
    ] {
        let answer = send(&fixture.router, request).await;
        assert!(answer.code() == code && answer.text().contains(text), "{code} {text}: {answer:?}");
    }
    let json = Request::post(INFER).version(Version::HTTP_2).header("content-type", "application/grpc+json");
    assert_eq!(send(&fixture.router, json.body(body(&framed)).unwrap()).await.code(), UNIMPLEMENTED);
    let old = Request::post(INFER).header("content-type", "application/grpc").body(body(&framed)).unwrap();
    assert!(send(&fixture.router, old).await.text().contains("HTTP/2"));
    for path in ["/inference.GRPCInferenceService/Nothing", "/other.Service/Method"] {
        assert_eq!(call(&fixture.router, path, &[]).await.code(), UNIMPLEMENTED, "{path}");
    }
    let other = fixture.post(INFER, "application/json", "{}").await.error();
    assert_eq!((other.0, &*other.1), (415, "unsupported_media_type"));
}

#[tokio::test]
async fn malformed_streams_of_messages_are_refused() {
    let fixture = ServerFixture::with_digits_serving().await;
    let message = frame(&image_request(1, 1).encode_to_vec());
    let too_long = u32::try_from(INFER_BYTES_MAX + 1).unwrap().to_be_bytes();
    let cases: [(Vec<u8>, u8, &str); 9] = [
        (Vec::new(), INVALID_ARGUMENT, "no message"),
        (message[..4].to_vec(), INVALID_ARGUMENT, "ends within"),
        (message[..20].to_vec(), INVALID_ARGUMENT, "ends within"),
        ([&message[..], &message].concat(), INVALID_ARGUMENT, "more than one"),
        ([&[7][..], &message[1..]].concat(), INVALID_ARGUMENT, "neither 0 nor 1"),
        ([&[1][..], &message[1..]].concat(), INVALID_ARGUMENT, "grpc-encoding"),
        ([&[0][..], &too_long].concat(), RESOURCE_EXHAUSTED, "more than 67108864 bytes"),
        (frame(b"\xff\xff\xff"), INVALID_ARGUMENT, "not a ModelInferRequest"),
        (frame(b""), NOT_FOUND, ""),
    ];
    for (body, code, text) in cases {
        let answer = send(&fixture.router, call_request(INFER).body(Body::from(body.clone())).unwrap()).await;
        assert!(answer.text().contains(text), "{text}: {answer:?}");
        assert!(answer.code() == code || body.len() == 5 && code == NOT_FOUND, "{code}: {answer:?}");
    }
    let answer = call(&fixture.router, CHECK, &[b"\xff\xff"]).await;
    assert!(answer.code() == INVALID_ARGUMENT && answer.text().contains("not a request of this method"));
    assert_eq!(infer(&fixture.router, &image_request(1, 1)).await.code(), OK);
    assert_eq!(fixture.app.parts().memory.used_bytes(), 0);
    assert_eq!(fixture.metric(r#"saggar_requests_rejected_total{reason="too_large"}"#).await, Some(1.0));
}

/// A message is complete however its bytes arrive.
#[tokio::test]
async fn a_message_can_arrive_in_pieces() {
    let fixture = ServerFixture::with_digits_serving().await;
    let message = frame(&image_request(1, 50).encode_to_vec());
    for size in [1, 3, 5, 7, 64, 1000] {
        let pieces: Vec<_> = message.chunks(size).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
        let body = Body::from_stream(futures::stream::iter(pieces));
        assert_eq!(send(&fixture.router, call_request(INFER).body(body).unwrap()).await.code(), OK, "{size}");
    }
}

#[tokio::test]
async fn compressed_messages_are_answered_compressed_and_bombs_are_refused() {
    let fixture = ServerFixture::with_digits_serving().await;
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        let mut framed = frame(&encoder.finish().unwrap());
        framed[0] = 1;
        framed
    };
    let plain: InferResponseMessage = infer(&fixture.router, &image_request(1, 1000)).await.message();
    let message = gzip(&image_request(1, 1000).encode_to_vec());
    let request = || call_request(INFER).header("grpc-encoding", "gzip");
    let accepting = request().header("grpc-accept-encoding", "identity, deflate, gzip");
    let answer = send(&fixture.router, accepting.body(Body::from(message.clone())).unwrap()).await;
    assert_eq!((answer.code(), answer.headers["grpc-encoding"].to_str().unwrap()), (OK, "gzip"));
    let mut bytes = Vec::new();
    GzDecoder::new(&*answer.messages[0]).read_to_end(&mut bytes).unwrap();
    assert_eq!(InferResponseMessage::decode(&*bytes).unwrap(), plain);
    let answer = send(&fixture.router, request().body(Body::from(message)).unwrap()).await;
    assert_eq!(answer.message::<InferResponseMessage>(), plain, "not compressed without being accepted");
    let bomb = gzip(&vec![0; INFER_BYTES_MAX + 1]);
    let answer = send(&fixture.router, request().body(Body::from(bomb)).unwrap()).await;
    assert_eq!(answer.code(), RESOURCE_EXHAUSTED, "{answer:?}");
    let broken = [&[1, 0, 0, 0, 3][..], b"abc"].concat();
    assert_eq!(send(&fixture.router, request().body(Body::from(broken)).unwrap()).await.code(), INVALID_ARGUMENT);
}

#[tokio::test]
async fn keys_and_scopes_are_those_of_http() {
    let fixture = ServerFixture::with_digits_serving().await;
    let predicts = KeyClient::new(&fixture, "predicts", &[KeyScope::Predict], &[]);
    let reads = KeyClient::new(&fixture, "reads", &[KeyScope::JobsRead], &[]);
    fixture.app.access().reload_keys();
    let message = frame(&image_request(1, 1).encode_to_vec());
    let ask = async |path: &str, bearer: Option<&str>, body: &[u8]| {
        let mut request = call_request(path).header("host", "localhost");
        if let Some(bearer) = bearer {
            request = request.header("authorization", bearer);
        }
        send(&predicts.router, request.body(Body::from(body.to_vec())).unwrap()).await
    };
    let none = ask(INFER, None, &message).await;
    assert!(none.code() == UNAUTHENTICATED && none.text().contains("a key is needed here; send"), "{none:?}");
    assert_eq!(ask(INFER, Some("Bearer sgr_wrong"), &message).await.code(), UNAUTHENTICATED);
    let lacking = ask(INFER, Some(&reads.bearer), &message).await;
    assert!(lacking.code() == PERMISSION_DENIED && lacking.text().contains("lacks the scope predict"), "{lacking:?}");
    assert_eq!(ask(INFER, Some(&predicts.bearer), &message).await.code(), OK);
    let metadata = "/inference.GRPCInferenceService/ServerMetadata";
    assert_eq!(ask(metadata, Some(&reads.bearer), &frame(b"")).await.code(), OK);
    assert_eq!(ask(metadata, None, &frame(b"")).await.code(), UNAUTHENTICATED);
    let load = "/inference.GRPCInferenceService/RepositoryModelLoad";
    assert_eq!(ask(load, Some(&predicts.bearer), &frame(b"\x12\x06digits")).await.code(), PERMISSION_DENIED);
    let foreign = KeyClient::new(&fixture, "foreign", &[KeyScope::Predict, KeyScope::ModelsWrite], &["faces"]);
    fixture.app.access().reload_keys();
    let refused = ask(load, Some(&foreign.bearer), &frame(b"\x12\x06digits")).await;
    assert!(refused.code() == PERMISSION_DENIED && refused.text().contains("belongs to no project"), "{refused:?}");
    let keep = call_request(INFER).header("host", "localhost").header("authorization", &predicts.bearer);
    let keep = keep.header("x-saggar-keep-alive", "0s").body(Body::from(message.clone())).unwrap();
    assert_eq!(send(&predicts.router, keep).await.code(), PERMISSION_DENIED);
    for probe in [CHECK, "/inference.GRPCInferenceService/ServerLive", "/inference.GRPCInferenceService/ServerReady"] {
        assert_eq!(ask(probe, None, &frame(b"")).await.code(), OK, "{probe}");
    }
    assert_eq!(ask("/x/y", None, &frame(b"")).await.code(), UNAUTHENTICATED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_ends_a_call_and_an_abandoned_call_is_cancelled() {
    let fixture = ServerFixture::new();
    fixture.publish("digits", "plugin that calls a driver", 1);
    fixture.loader.run_once().await;
    let message = frame(&image_request(BLOCK, 1).encode_to_vec());
    let request = || call_request(INFER).body(Body::from(message.clone())).unwrap();
    let timed = call_request(INFER).header("grpc-timeout", "100m").body(Body::from(message.clone())).unwrap();
    assert_eq!(send(&fixture.router, timed).await.code(), DEADLINE_EXCEEDED);
    let abandoned = tokio::time::timeout(Duration::from_millis(50), fixture.send(request())).await;
    assert!(abandoned.is_err());
    fixture.metric_becomes(&rpc_metric("ModelInfer", "CANCELLED"), Some(1.0)).await;
    fixture.host.gate.open();
    assert_eq!(infer(&fixture.router, &image_request(1, 1)).await.code(), OK);
}

#[tokio::test]
async fn a_model_that_is_loading_is_unavailable_and_a_small_budget_refuses_large_calls() {
    let fixture = ServerFixture::with_request_memory(8 << 20).await;
    let large = infer(&fixture.router, &image_request(1, 2 << 20)).await;
    assert!(large.code() == RESOURCE_EXHAUSTED && large.text().contains("--request-memory-limit"), "{large:?}");
    assert_eq!(fixture.app.parts().memory.used_bytes(), 0);
    assert_eq!(fixture.post_json("/v2/repository/models/digits/unload", "").await.status, 200);
    assert_eq!(infer(&fixture.router, &image_request(1, 1)).await.code(), UNAVAILABLE);
}

/// The documents of the other methods are those of HTTP.
#[tokio::test]
async fn the_methods_about_models_answer_what_http_answers() {
    let fixture = ServerFixture::with_digits_serving().await;
    let ask = async |method: &str, message: &[u8]| {
        call(&fixture.router, &format!("/inference.GRPCInferenceService/{method}"), &[message]).await
    };
    let digits = b"\x0a\x06digits";
    for (method, message, expected) in [
        ("ServerLive", &b""[..], &b"\x08\x01"[..]),
        ("ServerReady", b"", b"\x08\x01"),
        ("ModelReady", digits, b"\x08\x01"),
        ("ModelReady", b"\x0a\x04none", b""),
        ("ModelReady", b"\x0a\x06digits\x12\x0299", b""),
        ("RepositoryModelUnload", b"\x12\x04none", b""),
        ("RepositoryModelLoad", b"\x12\x06digits", b""),
    ] {
        let answer = ask(method, message).await;
        assert_eq!((answer.code(), &answer.messages[0][..]), (OK, expected), "{method}: {}", answer.text());
    }
    for (method, part) in [
        ("ModelMetadata", "image"),
        ("ModelConfig", "saggar_wasm"),
        ("ModelStatistics", "digits"),
        ("RepositoryIndex", "READY"),
        ("ServerMetadata", "model_repository"),
    ] {
        let message = if method.starts_with("Model") { &digits[..] } else { b"" };
        let answer = ask(method, message).await;
        let text = String::from_utf8_lossy(&answer.messages[0]).into_owned();
        assert!(answer.code() == OK && text.contains(part), "{method}: {text}");
    }
    for method in ["ModelMetadata", "ModelConfig", "ModelStatistics"] {
        assert_eq!(ask(method, b"\x0a\x04none").await.code(), NOT_FOUND, "{method}");
    }
    let file = b"\x12\x06digits\x1a\x0d\x0a\x07file:/x\x12\x02\x22\x00";
    let refused = ask("RepositoryModelLoad", file).await;
    assert!(refused.code() == INVALID_ARGUMENT && refused.text().contains("files cannot be sent"), "{refused:?}");
    let audit = std::fs::read_to_string(fixture.home.audit_log()).unwrap();
    assert!(audit.contains("model.load") && audit.contains("model.unload"), "{audit}");
}
