//! Predictions: forms of input and output, and invalid requests.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use futures::future::join_all;
use saggar_serving::limits::PREDICTIONS_DEFAULT;
use saggar_serving::model_config::InstanceLimit;

use super::fixture::{BAD_OUTPUT, BLOCK, PANIC, REJECT, SLOW, ServerFixture, TRAP, image_json};
use crate::limits::BODY_BYTES_MAX;

const JSON: &str = "application/json";

fn png(side: u32, value: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, side, side);
    encoder.set_color(png::ColorType::Grayscale);
    let pixels = vec![value; (side * side) as usize];
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    bytes
}

/// Returns a JPEG of 8 x 8 grey pixels of 128: quantization by 1, one code of one bit for each table, all coefficients
/// 0.
fn jpeg() -> Vec<u8> {
    let (quantizers, codes) = ([1; 64], [&[1][..], &[0; 16]].concat());
    let tables: [&[u8]; 9] = [
        b"\xff\xd8\xff\xdb\x00\x43\x00",
        &quantizers,
        b"\xff\xc0\x00\x0b\x08\x00\x08\x00\x08\x01\x01\x11\x00",
        b"\xff\xc4\x00\x14\x00",
        &codes,
        b"\xff\xc4\x00\x14\x10",
        &codes,
        b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00",
        b"\x3f\xff\xd9",
    ];
    tables.concat()
}

fn multipart_body(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (head, bytes) in fields {
        body.extend(format!("--x\r\ncontent-disposition: form-data; {head}\r\n\r\n").as_bytes());
        body.extend(*bytes);
        body.extend(b"\r\n");
    }
    body.extend(b"--x--\r\n");
    body
}

const FORM: &str = "multipart/form-data; boundary=x";

#[tokio::test]
async fn single_items_and_batches_are_predicted() {
    let fixture = ServerFixture::with_digits_serving().await;
    let answer = fixture.predict(1).await;
    assert_eq!(answer.text(), r#"{"sum":10.0,"mark":1}"#);
    assert_eq!(answer.header("content-type"), JSON);
    assert_eq!(answer.header("x-saggar-model"), "digits@1");
    assert!(answer.header("x-saggar-digest").starts_with("sha256:"));
    assert_eq!(answer.header("x-saggar-device"), "cpu");
    let timing = answer.header("server-timing");
    let phases: Vec<(&str, f64)> = timing
        .split(", ")
        .map(|entry| entry.split_once(";dur=").map(|(name, ms)| (name, ms.parse().unwrap())).unwrap())
        .collect();
    assert_eq!(
        phases.iter().map(|phase| phase.0).collect::<Vec<_>>(),
        ["read", "decode", "queue", "compute", "encode", "total"]
    );
    // The phases follow each other within the whole time; each is rounded to a thousandth.
    let (parts, total) = (phases[..5].iter().map(|phase| phase.1).sum::<f64>(), phases[5].1);
    assert!(parts <= total + 0.003, "{timing}");
    assert!(phases.iter().all(|(_, ms)| *ms >= 0.0), "{timing}");
    let batch = "[[[1,2],[3,4]],[[0,0],[0,7]]]";
    for path in ["/", "/predict", "/models/digits/predict", "/models/digits@1/predict"] {
        let answer = fixture.post_json(path, batch).await;
        assert_eq!(answer.text(), r#"{"sum":[10.0,7.0],"mark":[1,1]}"#, "{path}");
    }
    let labels = r#"{model="digits",version="1"}"#;
    assert_eq!(fixture.metric(&format!("saggar_predict_items_total{labels}")).await, Some(9.0));
    assert_eq!(fixture.metric(&format!("saggar_predict_executions_total{labels}")).await, Some(5.0));
    assert_eq!(fixture.metric(&format!("saggar_predict_in_flight{labels}")).await, Some(0.0));
    let success = r#"saggar_predict_requests_total{model="digits",outcome="success",version="1"}"#;
    assert_eq!(fixture.metric(success).await, Some(5.0));
}

#[tokio::test]
async fn images_and_raw_bytes_are_accepted_as_inputs() {
    let fixture = ServerFixture::with_digits_serving().await;
    let picture = png(8, 5);
    let named = multipart_body(&[("name=\"image\"; filename=\"a.png\"", &picture)]);
    let unnamed = multipart_body(&[("name=\"file\"; filename=\"a.png\"", &picture)]);
    let text = multipart_body(&[("name=\"image\"", b"[[5,5],[5,5]]")]);
    let cases: [(&str, Vec<u8>); 8] = [
        (FORM, named),
        (FORM, unnamed),
        (FORM, text),
        ("image/png", picture.clone()),
        ("application/octet-stream", picture.clone()),
        ("application/octet-stream", vec![5; 4]),
        ("application/x-www-form-urlencoded", b"[[5,5],[5,5]]".to_vec()),
        ("text/plain", picture),
    ];
    for (content_type, body) in cases {
        let answer = fixture.post("/predict", content_type, body).await;
        assert_eq!(answer.text(), r#"{"sum":20.0,"mark":1}"#, "{content_type}");
    }
}

#[tokio::test]
async fn jpeg_inputs_are_decoded_and_lossy_resizes_warn() {
    let fixture = ServerFixture::with_digits_serving().await;
    let file = multipart_body(&[("name=\"image\"; filename=\"a.jpg\"", &jpeg())]);
    let cases = [(FORM, file), ("image/jpeg", jpeg()), ("application/octet-stream", jpeg()), ("text/plain", jpeg())];
    for (content_type, body) in cases {
        let answer = fixture.post("/predict", content_type, body).await;
        assert_eq!(answer.text(), r#"{"sum":512.0,"mark":1}"#, "{content_type}");
        assert_eq!(answer.headers.get("x-saggar-warning"), None);
    }
    let answer = fixture.post("/predict", "image/png", png(16, 5)).await;
    let warning = "image: the picture of 16 x 16 pixels was resized to the model's 2 x 2: most of its detail is lost";
    assert_eq!(answer.header("x-saggar-warning"), warning);
}

#[tokio::test]
async fn an_invalid_input_is_explained() {
    let fixture = ServerFixture::with_digits_serving().await;
    let deep = "[".repeat(100_000);
    let cases: [(&str, &[u8], u16, &str, &str); 17] = [
        (JSON, b"{", 400, "bad_input", "body: not JSON at byte 0: it ends within an object"),
        (JSON, b"", 400, "bad_input", "body: expected JSON, got nothing"),
        (JSON, deep.as_bytes(), 400, "bad_input", "image[0]"),
        (JSON, b"[[1,2],[3]]", 400, "bad_input", "image[1]: expected 2 values, as in the array before it, got 1"),
        (JSON, b"[[1,2,3]]", 400, "bad_input", "image: expected shape [2, 2], or [n, 2, 2] for a batch, got [1, 3]"),
        (JSON, b"[[1,2],[3,1e999]]", 400, "bad_input", "image[1][1]: number out of range"),
        (JSON, b"{\"image\":[[1,2],[3,4]],\"image\":1}", 400, "bad_input", "image: given twice"),
        (JSON, b"{\"\xff\":1}", 400, "bad_input", "body: not JSON at byte 2: invalid unicode"),
        ("application/octet-stream", b"12345", 400, "bad_input", "image: expected 4 bytes (uint8[2, 2]), got 5"),
        ("application/xml", b"<a/>", 415, "unsupported_media_type", "content-type: \"application/xml\""),
        (
            "image/webp",
            b"RIFF",
            415,
            "unsupported_media_type",
            "image: expected a PNG, a JPEG or a WebP, got something else",
        ),
        ("image/jpeg", b"\xff\xd8\xff", 400, "bad_input", "image: the JPEG cannot be read: it ends early"),
        ("image/png", b"GIF8", 415, "unsupported_media_type", "image: expected a PNG, a JPEG or a WebP, got a GIF"),
        ("image/png", b"\x89PNG\r\n\x1a\ngarbage", 400, "bad_input", "image: the PNG cannot be read"),
        (FORM, b"--x--\r\n", 400, "bad_form", "form: it has no fields; expected image"),
        (FORM, b"no form", 400, "bad_form", "form: "),
        ("multipart/form-data", b"", 400, "bad_form", "form: "),
    ];
    for (content_type, body, status, code, error) in cases {
        let answer = fixture.post("/predict", content_type, body.to_vec()).await;
        let found = answer.error();
        assert_eq!((found.0, found.1.as_str()), (status, code), "{found:?}");
        assert!(found.2.starts_with(error), "{found:?}");
    }
    let stranger = multipart_body(&[("name=\"picture\"", b"[[5,5],[5,5]]")]);
    let (status, _, error) = fixture.post("/predict", FORM, stranger).await.error();
    assert_eq!((status, error.as_str()), (400, "picture: the model has no such input; it takes image (uint8[2, 2])"));
    let text = multipart_body(&[("name=\"file\"; filename=\"a.txt\"", b"hello")]);
    assert_eq!(fixture.post("/predict", FORM, text).await.error().0, 415);
}

#[tokio::test]
async fn large_batches_are_predicted_and_longer_bodies_refused() {
    let fixture = ServerFixture::with_digits_serving().await;
    let batch = format!("[{}[[1,2],[3,4]]]", "[[1,2],[3,4]],".repeat(20_000));
    let answer = fixture.post_json("/predict", &batch).await;
    assert_eq!(answer.json()["sum"].as_array().unwrap().len(), 20_001);
    let long = fixture.post("/predict", JSON, vec![b' '; BODY_BYTES_MAX + 1]).await;
    assert_eq!(long.error().0, 413);
    // Announced, but never sent: refused before a byte is read.
    let endless = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let request = Request::post("/predict").header("content-length", "100000000").header("expect", "100-continue");
    let response = fixture.send(request.body(endless).unwrap()).await;
    assert_eq!(response.status(), 413);
    assert_eq!(fixture.metric(r#"saggar_requests_rejected_total{reason="too_large"}"#).await, Some(2.0));
}

#[tokio::test]
async fn missing_models_are_reported() {
    let fixture = ServerFixture::new();
    let answer = fixture.predict(1).await;
    assert_eq!(answer.error(), (503, "not_ready".to_owned(), "no model is ready".to_owned()));
    assert_eq!(answer.header("retry-after"), "1");
    let fixture = ServerFixture::with_digits_serving().await;
    let error = |path: &'static str| async { fixture.post_json(path, &image_json(1)).await.error() };
    let unknown = (404, "unknown_model".to_owned(), "no model letters; known are digits".to_owned());
    assert_eq!(error("/models/letters/predict").await, unknown);
    let other =
        (404, "version_not_serving".to_owned(), "version 7 of model digits is unknown; version 1 serves".to_owned());
    assert_eq!(error("/models/digits@7/predict").await, other);
    assert_eq!(error("/models/digits@x/predict").await.0, 404);
    assert_eq!(error("/models/digits@X/predict").await.0, 400);
}

#[tokio::test]
async fn a_misbehaving_plugin_returns_an_error_and_keeps_serving() {
    let fixture = ServerFixture::with_digits_serving().await;
    let cases = [
        (TRAP, 500, "plugin_trap", "the plugin trapped"),
        (REJECT, 422, "plugin_rejected", "predict: the picture is blank (invalid-argument)"),
        (SLOW, 504, "deadline", "the plugin was interrupted in predict after"),
        (PANIC, 500, "internal", "internal error"),
        (BAD_OUTPUT, 500, "bad_output", "output sum: expected float32[] for each of 1 items, the plugin gave nothing"),
    ];
    for (first, status, code, error) in cases {
        let found = fixture.predict(first).await.error();
        assert_eq!((found.0, found.1.as_str()), (status, code), "{found:?}");
        assert!(found.2.starts_with(error), "{found:?}");
        assert_eq!(fixture.predict(1).await.status, 200);
    }
    assert_eq!(fixture.metric(r#"saggar_predict_in_flight{model="digits",version="1"}"#).await, Some(0.0));
    let text = fixture.get("/metrics").await.text();
    for family in ["saggar_plugin_traps_total{kind=\"trap\"", "saggar_plugin_limit_hits_total{kind=\"deadline\""] {
        assert!(text.lines().any(|line| line.starts_with(family) && line.ends_with(" 1")), "{family}");
    }
    for (outcome, count) in
        [("success", 5.0), ("plugin_error", 2.0), ("rejected", 1.0), ("timeout", 1.0), ("host_error", 1.0)]
    {
        let line = format!("saggar_predict_requests_total{{model=\"digits\",outcome=\"{outcome}\",version=\"1\"}}");
        assert_eq!(fixture.metric(&line).await, Some(count), "{outcome}");
    }
}

#[tokio::test]
async fn a_full_queue_refuses_and_a_queued_request_can_time_out() {
    let fixture = ServerFixture::with_digits_serving().await;
    let mut blocked = Vec::new();
    let in_flight = r#"saggar_predict_in_flight{model="digits",version="1"}"#;
    let lanes = InstanceLimit::default().0;
    for lane in 1..=lanes {
        let (router, request) = (fixture.router.clone(), Request::post("/predict").body(Body::from(image_json(BLOCK))));
        blocked.push(tokio::spawn(tower::ServiceExt::oneshot(router, request.unwrap())));
        // One after the other: concurrent requests would form one batch.
        fixture.metric_becomes(in_flight, Some(lane as f64)).await;
    }

    let late = Request::post("/predict").header("x-saggar-deadline-ms", "20").body(Body::from(image_json(1))).unwrap();
    let late = super::fixture::TestResponse::from_response(fixture.send(late).await).await.error();
    assert_eq!((late.0, late.1.as_str()), (408, "deadline_queued"));

    let serving = fixture.app.models().find_live(None).unwrap();
    let rest: Vec<_> = (0..PREDICTIONS_DEFAULT - lanes).map(|_| serving.try_lease().unwrap()).collect();
    let full = fixture.predict(1).await;
    let (status, code, _) = full.error();
    assert_eq!((status, code.as_str(), full.header("retry-after")), (429, "queue_full", "1"));
    drop((rest, serving));

    fixture.host.gate.open();
    for answer in join_all(blocked).await {
        assert_eq!(answer.unwrap().unwrap().status(), 200);
    }
    assert_eq!(fixture.predict(1).await.status, 200);
    assert_eq!(fixture.metric(r#"saggar_requests_rejected_total{reason="queue_full"}"#).await, Some(1.0));
    assert_eq!(fixture.metric(r#"saggar_requests_rejected_total{reason="deadline"}"#).await, Some(1.0));
}

#[tokio::test]
async fn invalid_deadlines_are_refused() {
    let fixture = ServerFixture::with_digits_serving().await;
    for bad in ["0", "-1", "soon", "1.5", ""] {
        let request = Request::post("/predict").header("x-saggar-deadline-ms", bad).body(Body::from(image_json(1)));
        let answer = super::fixture::TestResponse::from_response(fixture.send(request.unwrap()).await).await;
        assert_eq!(answer.error().0, 400, "{bad}");
    }
    let request =
        Request::post("/predict").header("x-saggar-deadline-ms", "99999999999").body(Body::from(image_json(1)));
    assert_eq!(fixture.send(request.unwrap()).await.status(), 200);
}

#[tokio::test]
async fn a_disconnected_client_leaves_no_request_behind() {
    let fixture = ServerFixture::with_digits_serving().await;
    let request = Request::post("/predict").body(Body::from(image_json(BLOCK))).unwrap();
    let gone = tokio::time::timeout(Duration::from_millis(20), fixture.send(request)).await;
    assert!(gone.is_err());
    let cancelled = r#"saggar_predict_requests_total{model="digits",outcome="cancelled",version="1"}"#;
    fixture.metric_becomes(cancelled, Some(1.0)).await;
    let aborted = r#"saggar_http_requests_total{code="499",method="POST",route="/predict"}"#;
    fixture.metric_becomes(aborted, Some(1.0)).await;
    fixture.host.gate.open();
    fixture.metric_becomes(r#"saggar_predict_in_flight{model="digits",version="1"}"#, Some(0.0)).await;
    let serving = fixture.app.models().find_live(None).unwrap();
    let mut all = Vec::new();
    while all.len() < PREDICTIONS_DEFAULT {
        match serving.try_lease() {
            Some(lease) => all.push(lease),
            None => tokio::task::yield_now().await,
        }
    }
}
