//! Streams of gRPC: predictions in both directions, health and reflection.

use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::StreamExt;
use prost::Message;
use saggar_store::keys::KeyScope;
use tokio::sync::mpsc;

use super::fixture::{BLOCK, ServerFixture, TRAP};
use super::grpc_client::{
    ContentsMessage, GrpcAnswer, InferRequestMessage, STREAM, StreamResponseMessage, call, call_request, frame,
    image_request, input_tensor, send,
};
use super::key_client::KeyClient;
use crate::limits::STREAM_PREDICTIONS_MAX;

const WATCH: &str = "/grpc.health.v1.Health/Watch";
const UNAVAILABLE: u8 = 14;
const UNAUTHENTICATED: u8 = 16;

async fn serving_speaker() -> ServerFixture {
    let fixture = ServerFixture::with_digits_serving().await;
    fixture.publish("speaker", "plugin that speaks", 1);
    fixture.loader.run_once().await;
    fixture
}

fn prompt_request(id: &str, prompts: &[&str]) -> InferRequestMessage {
    let texts = prompts.iter().map(|prompt| prompt.as_bytes().to_vec()).collect();
    let contents = ContentsMessage { texts, ..ContentsMessage::default() };
    InferRequestMessage {
        model_name: "speaker".to_owned(),
        id: id.to_owned(),
        inputs: vec![input_tensor("prompt", "BYTES", &[prompts.len() as i64], Some(contents))],
        ..InferRequestMessage::default()
    }
}

/// Returns a response's identifier, whether it is the last one, its item, and its first output as text.
fn summary(response: &StreamResponseMessage) -> (String, bool, Option<i64>, String) {
    assert_eq!(response.error_message, "");
    let response = response.infer_response.as_ref().unwrap();
    let is_last = response.parameters["triton_final_response"].truth == Some(true);
    let item = response.parameters.get("item").and_then(|item| item.int64);
    let text = String::from_utf8_lossy(&response.raw_output_contents[0][4..]).into_owned();
    (response.id.clone(), is_last, item, text)
}

/// A body to which a test sends messages one by one.
fn open_stream() -> (mpsc::Sender<Result<Bytes, std::io::Error>>, Body) {
    let (sender, mut receiver) = mpsc::channel(16);
    (sender, Body::from_stream(futures::stream::poll_fn(move |context| receiver.poll_recv(context))))
}

#[tokio::test]
async fn pieces_come_before_the_last_response_and_requests_are_answered_in_order() {
    let fixture = serving_speaker().await;
    let messages = [prompt_request("1", &["ab"]), prompt_request("2", &["é", "cut"]), prompt_request("3", &[""])]
        .map(|it| it.encode_to_vec());
    let answer = call(&fixture.router, STREAM, &[&messages[0], &messages[1], &messages[2]]).await;
    assert_eq!(answer.code(), 0, "{}", answer.text());
    let found: Vec<_> = answer.stream_responses().iter().map(summary).collect();
    let expected = [
        ("1", false, Some(0), "a"),
        ("1", false, Some(0), "b"),
        ("1", true, None, "ab"),
        ("2", false, Some(0), "é"),
        ("2", false, Some(1), "a"),
        ("2", false, Some(1), "\u{fffd}"),
    ];
    let expected: Vec<_> = expected.map(|(id, last, item, text)| (id.to_owned(), last, item, text.to_owned())).into();
    assert_eq!(found[..6], expected);
    assert!(found[6].1 && found[6].0 == "2" && found[7].0 == "3" && found.len() == 8, "{found:?}");
    let last = answer.stream_responses()[2].infer_response.clone().unwrap();
    let names: Vec<_> = last.outputs.iter().map(|output| (&*output.name, &output.shape[..])).collect();
    assert_eq!(names, [("said", &[1, 1][..]), ("bytes", &[1][..])]);
    let piece = &answer.stream_responses()[0].infer_response.clone().unwrap().outputs[0];
    assert_eq!((&*piece.name, &*piece.datatype, &piece.shape[..]), ("said", "BYTES", &[1, 1][..]));
}

#[tokio::test]
async fn a_request_that_fails_does_not_end_its_stream() {
    let fixture = serving_speaker().await;
    let (sender, body) = open_stream();
    let response = fixture.send(call_request(STREAM).body(body).unwrap()).await;
    let requests = [
        image_request(1, 1),
        image_request(TRAP, 1),
        InferRequestMessage { model_name: "none".to_owned(), id: "gone".to_owned(), ..InferRequestMessage::default() },
        prompt_request("fail", &["fail"]),
        image_request(2, 1),
    ];
    for request in &requests {
        sender.send(Ok(frame(&request.encode_to_vec()).into())).await.unwrap();
    }
    sender.send(Ok(frame(b"\xff\xff").into())).await.unwrap();
    drop(sender);
    let answer = GrpcAnswer::from_response(response).await;
    assert_eq!(answer.code(), 0, "{}", answer.text());
    let responses = answer.stream_responses();
    let errors: Vec<&str> = responses.iter().map(|it| &*it.error_message).collect();
    assert_eq!(errors.len(), 7, "{errors:?}");
    assert_eq!((errors[0], errors[3], errors[5]), ("", "", ""), "a piece comes before the failure");
    assert!(errors[1].contains("the plugin trapped") && errors[4].contains("the plugin trapped"));
    assert!(errors[2].contains("no model none"), "{errors:?}");
    assert!(errors[6].contains("not a ModelInferRequest"), "{errors:?}");
    let failed = responses[2].infer_response.as_ref().unwrap();
    assert_eq!((&*failed.id, failed.parameters["triton_final_response"].truth), ("gone", Some(true)));
}

#[tokio::test]
async fn a_response_arrives_while_the_stream_is_open() {
    let fixture = serving_speaker().await;
    let (sender, body) = open_stream();
    let response = fixture.send(call_request(STREAM).body(body).unwrap()).await;
    let mut body = response.into_body().into_data_stream();
    for first in 1..4 {
        sender.send(Ok(frame(&image_request(first, 1).encode_to_vec()).into())).await.unwrap();
        let message = body.next().await.unwrap().unwrap();
        let response = StreamResponseMessage::decode(&message[5..]).unwrap().infer_response.unwrap();
        assert_eq!(response.raw_output_contents[0], f32::from(first + 9).to_le_bytes());
    }
    drop(sender);
    assert!(body.next().await.is_none());
    drop(body);
    assert_eq!(fixture.app.parts().memory.used_bytes(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_stream_cancels_its_predictions() {
    let fixture = serving_speaker().await;
    let (sender, body) = open_stream();
    let mut body = fixture.send(call_request(STREAM).body(body).unwrap()).await.into_body().into_data_stream();
    sender.send(Ok(frame(&prompt_request("1", &["flood"]).encode_to_vec()).into())).await.unwrap();
    assert!(body.next().await.unwrap().is_ok());
    drop(body);
    let cancelled = r#"saggar_predict_requests_total{model="speaker",outcome="cancelled",version="1"}"#;
    fixture.metric_becomes(cancelled, Some(1.0)).await;
    let counted = r#"saggar_rpc_requests_total{code="CANCELLED",method="inference.GRPCInferenceService/ModelStreamInfer",protocol="grpc"}"#;
    fixture.metric_becomes(counted, Some(1.0)).await;
    assert_eq!(fixture.app.parts().memory.used_bytes(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_runs_a_limited_number_of_predictions() {
    let fixture = serving_speaker().await;
    let message = frame(&image_request(BLOCK, 1).encode_to_vec());
    let count = 3 * STREAM_PREDICTIONS_MAX;
    let whole = Body::from(message.repeat(count));
    let response = fixture.send(call_request(STREAM).body(whole).unwrap()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let in_flight = fixture.metric(r#"saggar_predict_in_flight{model="digits",version="1"}"#).await.unwrap();
    let queued = fixture.metric(r#"saggar_predict_queue_length{model="digits",version="1"}"#).await.unwrap();
    let most = (STREAM_PREDICTIONS_MAX + 2) as f64;
    assert!(in_flight >= 1.0 && in_flight + queued <= most, "{in_flight} and {queued}");
    fixture.host.gate.open();
    let answer = GrpcAnswer::from_response(response).await;
    assert_eq!((answer.code(), answer.messages.len()), (0, count));
}

#[tokio::test]
async fn each_request_of_a_stream_is_authorized_and_counted() {
    let fixture = serving_speaker().await;
    let client = KeyClient::new(&fixture, "limited", &[KeyScope::Predict], &[]);
    fixture.app.access().reload_keys();
    let (sender, body) = open_stream();
    let request = call_request(STREAM).header("host", "localhost").header("authorization", &client.bearer);
    let response = tower::ServiceExt::oneshot(client.router.clone(), request.body(body).unwrap()).await.unwrap();
    let mut stream = response.into_body();
    let message = frame(&image_request(1, 1).encode_to_vec());
    sender.send(Ok(message.clone().into())).await.unwrap();
    assert!(http_body_util::BodyExt::frame(&mut stream).await.unwrap().unwrap().is_data());
    fixture.home.keys().revoke("limited").unwrap();
    fixture.app.access().reload_keys();
    sender.send(Ok(message.into())).await.unwrap();
    let trailers = http_body_util::BodyExt::frame(&mut stream).await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"].to_str().unwrap().parse(), Ok(UNAUTHENTICATED));
    assert!(trailers.contains_key("x-request-id"));
}

#[tokio::test]
async fn a_deadline_ends_a_stream_and_a_stopping_server_finishes_it() {
    let fixture = serving_speaker().await;
    let (_sender, body) = open_stream();
    let request = call_request(STREAM).header("grpc-timeout", "50m").body(body).unwrap();
    let answer = send(&fixture.router, request).await;
    assert!(answer.code() == 4 && answer.text().contains("deadline"), "{answer:?}");
    let (sender, body) = open_stream();
    let response = fixture.send(call_request(STREAM).body(body).unwrap()).await;
    sender.send(Ok(frame(&image_request(1, 1).encode_to_vec()).into())).await.unwrap();
    let mut body = response.into_body();
    assert!(http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap().is_data());
    fixture.stop.send(true).unwrap();
    let trailers = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"].to_str().unwrap().parse(), Ok(UNAVAILABLE));
}

#[tokio::test]
async fn health_is_readiness_and_a_watch_reports_each_change() {
    let fixture = serving_speaker().await;
    let check = async |service: &[u8]| call(&fixture.router, super::grpc_client::CHECK, &[service]).await;
    let serving = &b"\x08\x01"[..];
    assert_eq!(check(b"").await.messages[0], serving);
    assert_eq!(check(b"\x0a\x1einference.GRPCInferenceService").await.messages[0], serving);
    let unknown = check(b"\x0a\x01x").await;
    assert!(unknown.code() == 5 && unknown.text().contains("no service x"), "{unknown:?}");

    let watch = |service: &[u8]| fixture.send(call_request(WATCH).body(Body::from(frame(service))).unwrap());
    let mut unknown = watch(b"\x0a\x01x").await.into_body().into_data_stream();
    assert_eq!(&unknown.next().await.unwrap().unwrap()[5..], b"\x08\x03", "the status SERVICE_UNKNOWN");
    let mut status = watch(b"").await.into_body().into_data_stream();
    assert_eq!(&status.next().await.unwrap().unwrap()[5..], serving);
    fixture.publish("broken", "refused", 1);
    fixture.loader.run_once().await;
    assert_eq!(&status.next().await.unwrap().unwrap()[5..], b"\x08\x02", "a model does not serve");
    fixture.stop.send(true).unwrap();
    assert!(status.next().await.is_none());
}

#[tokio::test]
async fn reflection_lists_the_services_of_both_versions() {
    let fixture = ServerFixture::new();
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let (list, symbol) = (b"\x3a\x00", b"\x22\x1einference.GRPCInferenceService");
        let answer = call(&fixture.router, &path, &[list, symbol, b"\x22\x01x"]).await;
        assert_eq!((answer.code(), answer.messages.len()), (0, 3));
        let text = |at: usize| String::from_utf8_lossy(&answer.messages[at]).into_owned();
        for service in
            ["inference.GRPCInferenceService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"]
        {
            assert!(text(0).contains(service), "{service}");
        }
        assert!(text(1).contains("raw_input_contents") && text(2).contains("does not have it"));
    }
}
