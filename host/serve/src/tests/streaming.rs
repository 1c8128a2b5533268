//! Texts, omitted inputs, and streamed responses.

use axum::body::{Body, Bytes};
use axum::http::Request;
use axum::response::Response;
use futures::StreamExt;
use serde_json::{Value, json};

use super::fixture::{ServerFixture, TestResponse};
use crate::limits::PIECES_WAITING_MAX;

/// Returns a server with version 1 of `speaker` serving.
async fn serving_streaming_model() -> ServerFixture {
    let fixture = ServerFixture::new();
    fixture.publish("speaker", "plugin that speaks", 1);
    fixture.loader.run_once().await;
    fixture
}

fn streaming_request() -> axum::http::request::Builder {
    Request::post("/predict").header("accept", "text/html, text/event-stream;q=0.9")
}

async fn send_streaming(fixture: &ServerFixture, body: Value) -> Response {
    fixture.send(streaming_request().body(Body::from(body.to_string())).unwrap()).await
}

/// Parses a response's events to name and data.
fn parse_events(text: &str) -> Vec<(String, Value)> {
    let event = |event: &str| {
        let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        (name.to_owned(), serde_json::from_str(data).unwrap())
    };
    text.split_terminator("\n\n").map(event).collect()
}

fn piece_event(data: Value) -> (String, Value) {
    ("piece".to_owned(), data)
}

fn done_event(data: Value) -> (String, Value) {
    ("done".to_owned(), data)
}

const COUNTS: &str = r#"{model="speaker",version="1"}"#;

#[tokio::test]
async fn text_inputs_are_strings_in_every_content_type() {
    let fixture = serving_streaming_model().await;
    let form = |head: &str, body: &[u8]| {
        let head = format!("--x\r\ncontent-disposition: form-data; name=\"prompt\"{head}\r\n\r\n");
        [head.as_bytes(), body, b"\r\n--x--\r\n"].concat()
    };
    let (json, multipart) = ("application/json", "multipart/form-data; boundary=x");
    let cases: [(&str, Vec<u8>); 9] = [
        (json, br#"{"prompt": "[\"n\u00e9"}"#.to_vec()),
        (json, br#""[\"n\u00e9""#.to_vec()),
        (json, br#"{"prompt": [91, 34, 110, 195, 169, 0, 0, 0], "times": 1}"#.to_vec()),
        ("application/x-www-form-urlencoded", br#""[\"n\u00e9""#.to_vec()),
        ("application/octet-stream", "[\"né".into()),
        (multipart, form("", "[\"né".as_bytes())),
        (multipart, form("", br#""[\"n\u00e9""#)),
        (multipart, form("\r\ncontent-type: application/json", br#""[\"n\u00e9""#)),
        (multipart, form("; filename=\"prompt.txt\"\r\ncontent-type: text/plain", "[\"né".as_bytes())),
    ];
    for (content_type, body) in cases {
        let answer = fixture.post("/predict", content_type, body).await;
        assert_eq!(answer.json(), json!({ "said": "[\"né", "bytes": 5 }), "{content_type}: {}", answer.text());
    }
    let long = fixture.post("/predict", multipart, form("", b"far too long")).await.error();
    let expected = "prompt: the text of 12 bytes is too long; at most 8 bytes of UTF-8 are taken";
    assert_eq!(long, (400, "bad_input".to_owned(), expected.to_owned()));
    let broken = fixture.post("/predict", multipart, form("", b"\xff")).await.error();
    assert_eq!((broken.0, &*broken.2), (400, "prompt: expected a text in UTF-8, got 1 bytes that are not"));
}

#[tokio::test]
async fn optional_inputs_show_their_default() {
    let fixture = serving_streaming_model().await;
    let inputs = fixture.get("/api/v1/models/speaker").await.json()["signature"]["inputs"].clone();
    assert_eq!((&inputs[0]["default"], &inputs[1]["default"]), (&Value::Null, &json!(1.0)));
    let twice = fixture.post_json("/predict", r#"{"prompt": ["a", "b"], "times": [2, 3]}"#).await;
    assert_eq!(twice.json(), json!({ "said": ["aa", "bbb"], "bytes": [2, 3] }));
    let missing = fixture.post_json("/predict", r#"{"times": 2}"#).await.error();
    assert_eq!((missing.0, &*missing.2), (400, "prompt: missing; expected uint8[8]"));
}

#[tokio::test]
async fn pieces_are_streamed_before_the_result() {
    let fixture = serving_streaming_model().await;
    let response = send_streaming(&fixture, json!({ "prompt": "wait" })).await;
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!((response.status().as_u16(), &*header("content-type")), (200, "text/event-stream"));
    assert_eq!((&*header("x-saggar-model"), &*header("cache-control")), ("speaker@1", "no-store"));
    let mut body = response.into_body().into_data_stream();
    // The model continues only after this has arrived; the incomplete character is held back.
    let first = body.next().await.unwrap().unwrap();
    assert_eq!(first, "event: piece\ndata: {\"said\":\"a\"}\n\n");
    fixture.host.gate.open();
    let rest: Vec<Bytes> = body.map(Result::unwrap).collect().await;
    let whole = fixture.post_json("/predict", r#"{"prompt": "wait"}"#).await.json();
    let expected = vec![piece_event(json!({ "said": "€ b" })), done_event(whole.clone())];
    assert_eq!(parse_events(std::str::from_utf8(&rest.concat()).unwrap()), expected);
    assert_eq!(whole, json!({ "said": "a€ b", "bytes": 6 }));
    let success = r#"saggar_predict_requests_total{model="speaker",outcome="success",version="1"}"#;
    assert_eq!(fixture.metric(success).await, Some(2.0));
}

#[tokio::test]
async fn streamed_pieces_of_a_batch_carry_their_item_index() {
    let fixture = serving_streaming_model().await;
    let answer =
        TestResponse::from_response(send_streaming(&fixture, json!({ "prompt": ["ab", "é", "cut"] })).await).await;
    let pieces = [(0, "a"), (0, "b"), (1, "é"), (2, "a"), (2, "\u{fffd}")];
    let mut expected: Vec<_> = pieces.map(|(item, text)| piece_event(json!({ "item": item, "said": text }))).into();
    expected.push(done_event(json!({ "said": ["ab", "é", "a\u{fffd}"], "bytes": [2, 2, 3] })));
    assert_eq!(parse_events(&answer.text()), expected);
    let silent = TestResponse::from_response(send_streaming(&fixture, json!("")).await).await;
    assert_eq!(parse_events(&silent.text()), [done_event(json!({ "said": "", "bytes": 0 }))]);
}

#[tokio::test]
async fn a_failure_after_the_first_piece_is_an_error_event() {
    let fixture = serving_streaming_model().await;
    let answer = TestResponse::from_response(send_streaming(&fixture, json!({ "prompt": "fail" })).await).await;
    let found = parse_events(&answer.text());
    assert_eq!((answer.status.as_u16(), found.len(), &found[0]), (200, 2, &piece_event(json!({ "said": "a" }))));
    let (name, error) = &found[1];
    assert_eq!(
        (name.as_str(), &error["code"], &error["error"]),
        ("error", &json!("plugin_trap"), &json!("the plugin trapped"))
    );
    assert_eq!(error["request_id"], answer.header("x-request-id"));
    for (prompt, status) in [("refuse", 422), ("far too long", 400)] {
        let answer = TestResponse::from_response(send_streaming(&fixture, json!({ "prompt": prompt })).await).await;
        assert_eq!(answer.error().0, status, "{prompt}");
    }
}

#[tokio::test]
async fn a_disconnected_client_cancels_the_streaming_model() {
    let fixture = serving_streaming_model().await;
    let mut body = send_streaming(&fixture, json!({ "prompt": "flood" })).await.into_body().into_data_stream();
    assert!(body.next().await.unwrap().is_ok());
    drop(body);
    // It would continue for half a minute.
    fixture.metric_becomes(&format!("saggar_predict_in_flight{COUNTS}"), Some(0.0)).await;
    let cancelled = r#"saggar_predict_requests_total{model="speaker",outcome="cancelled",version="1"}"#;
    fixture.metric_becomes(cancelled, Some(1.0)).await;
    assert_eq!(fixture.post_json("/predict", r#"{"prompt": "a"}"#).await.status, 200);
}

#[tokio::test]
async fn a_client_that_does_not_read_blocks_the_model_until_its_deadline() {
    let fixture = serving_streaming_model().await;
    let body = json!({ "prompt": "flood" });
    let request = streaming_request().header("x-saggar-deadline-ms", "50").body(Body::from(body.to_string())).unwrap();
    let response = fixture.send(request).await;
    fixture.metric_becomes(&format!("saggar_predict_in_flight{COUNTS}"), Some(0.0)).await;
    let found = parse_events(&TestResponse::from_response(response).await.text());
    let (last, pieces) = found.split_last().unwrap();
    assert_eq!((last.0.as_str(), &last.1["code"]), ("error", &json!("deadline")));
    assert!(pieces.len() <= PIECES_WAITING_MAX + 1 && pieces.iter().all(|(name, _)| name == "piece"));
    let timeout = r#"saggar_predict_requests_total{model="speaker",outcome="timeout",version="1"}"#;
    assert_eq!(fixture.metric(timeout).await, Some(1.0));
}
