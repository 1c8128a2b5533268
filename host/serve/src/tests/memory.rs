//! Request memory: bodies, inputs that wait, responses that clients do not read.

use std::io::Write;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::future::join_all;
use serde_json::json;

use super::fixture::{BLOCK, ServerFixture, TestResponse};

const INFER: &str = "/v2/models/digits/infer";

/// Returns a request for `items` images as compressed binary data, all zero but the first pixel.
fn decompression_bomb(first: u8, items: usize) -> Request<Body> {
    let parameters = json!({ "binary_data_size": 4 * items });
    let input = json!({ "name": "image", "shape": [items, 2, 2], "datatype": "UINT8", "parameters": parameters });
    let mut body = json!({ "inputs": [input] }).to_string().into_bytes();
    let length = body.len();
    body.push(first);
    body.resize(length + 4 * items, 0);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&body).unwrap();
    let compressed = encoder.finish().unwrap();
    Request::post(INFER)
        .header("content-encoding", "gzip")
        .header("inference-header-content-length", length)
        .header("x-saggar-deadline-ms", "600000")
        .body(Body::from(compressed))
        .unwrap()
}

fn memory_used_bytes(fixture: &ServerFixture) -> u64 {
    fixture.app.parts().memory.used_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_inputs_of_many_small_bodies_stay_within_the_budget() {
    let limit_bytes = 8 << 20;
    let fixture = ServerFixture::with_request_memory(limit_bytes).await;
    // Each request has 64 kB of inputs and 800 kB of outputs, but sends only some hundred bytes: 50 MB if all were
    // queued.
    let attack = join_all((0..60).map(|_| fixture.send(decompression_bomb(BLOCK, 16_000))));
    let watch = async {
        let mut most = 0;
        for _ in 0..300 {
            most = most.max(memory_used_bytes(&fixture));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        fixture.host.gate.open();
        most
    };
    let (answers, most) = tokio::join!(attack, watch);
    assert!(most > 0 && most <= limit_bytes / 2, "one client held {most} of {limit_bytes} bytes");
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status().as_u16()).collect();
    let refused = statuses.iter().filter(|&&status| status == 503).count();
    assert!(refused > 30 && statuses.contains(&200), "{statuses:?}");
    let refusal = answers.into_iter().find(|answer| answer.status() == 503).unwrap();
    assert_eq!(refusal.headers()["retry-after"], "1");
    let (_, code, _) = TestResponse::from_response(refusal).await.error();
    assert_eq!(code, "memory_full");
    drop(fixture.predict(1).await);
    assert_eq!(memory_used_bytes(&fixture), 0, "all memory is released");
}

#[tokio::test]
async fn a_request_over_the_clients_memory_share_is_refused_at_once() {
    let fixture = ServerFixture::with_request_memory(8 << 20).await;
    for items in [10_000_000, 1_000_000] {
        let answer = TestResponse::from_response(fixture.send(decompression_bomb(1, items)).await).await;
        let (status, code, text) = answer.error();
        assert_eq!((status, &*code), (413, "memory_share"), "{items}: {text}");
        assert!(answer.json()["hint"].as_str().unwrap().contains("--request-memory-limit"));
    }
    assert_eq!(fixture.predict(1).await.status, 200);
}

#[tokio::test]
async fn unread_responses_are_charged_until_they_are_dropped() {
    let fixture = ServerFixture::with_request_memory(8 << 20).await;
    let mut held: Vec<Response> = Vec::new();
    let refused = loop {
        let response = fixture.send(decompression_bomb(1, 20_000)).await;
        if response.status() != 200 {
            break response;
        }
        held.push(response);
        assert!(held.len() < 1_000, "responses are not counted");
    };
    assert_eq!(refused.status(), 503);
    let bytes = memory_used_bytes(&fixture);
    assert!(bytes > 1 << 20 && bytes <= 4 << 20, "{bytes} bytes of {} answers", held.len());
    let last_response = held.pop().unwrap();
    let length = to_bytes(last_response.into_body(), usize::MAX).await.unwrap().len() as u64;
    assert_eq!(memory_used_bytes(&fixture), bytes - length, "a response that was read is released");
    drop(held);
    assert_eq!(memory_used_bytes(&fixture), 0);
    assert_eq!(fixture.send(decompression_bomb(1, 20_000)).await.status(), 200);
}

#[tokio::test]
async fn a_body_is_charged_as_it_arrives_not_by_content_length() {
    let fixture = ServerFixture::with_request_memory(64 << 20).await;
    let announced = |bytes: usize| {
        let stream = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        let body = Body::from_stream(stream);
        Request::post(INFER).header("content-length", bytes).body(body).unwrap()
    };
    let slow: Vec<_> = (0..64)
        .map(|_| {
            tokio::spawn({
                let (router, request) = (fixture.router.clone(), announced(60 << 20));
                async move { tower::ServiceExt::oneshot(router, request).await }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(memory_used_bytes(&fixture), 0, "nothing has arrived");
    let large = ServerFixture::send(&fixture, decompression_bomb(1, 200_000)).await;
    assert_eq!(large.status(), 200, "an announced length reserves no memory");
    slow.iter().for_each(|task| task.abort());
}
