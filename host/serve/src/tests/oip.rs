//! The Open Inference Protocol as its clients use it: metadata, inference in every form, and invalid requests.

use std::io::{Read, Write};
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use serde_json::{Value, json};

use super::fixture::{BAD_OUTPUT, BLOCK, PANIC, REJECT, ServerFixture, TRAP, TestResponse};
use crate::limits::INFER_BYTES_MAX;

const INFER: &str = "/v2/models/digits/infer";

/// Sends a request like tritonclient: without a content type.
async fn infer(fixture: &ServerFixture, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> TestResponse {
    let mut request = Request::post(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    TestResponse::from_response(fixture.send(request.body(body.into()).unwrap()).await).await
}

/// Returns a request for images of four pixels.
fn image_input(first: u8, items: usize) -> Value {
    let data: Vec<u8> = [first, 2, 3, 4].repeat(items);
    json!({ "inputs": [{ "name": "image", "shape": [items, 2, 2], "datatype": "UINT8", "data": data }] })
}

/// Returns the same request as binary data: the body, and the length of its JSON.
fn binary_request(first: u8, items: usize, outputs: Value) -> (Vec<u8>, String) {
    let parameters = json!({ "binary_data_size": 4 * items });
    let input = json!({ "name": "image", "shape": [items, 2, 2], "datatype": "UINT8", "parameters": parameters });
    let mut body = json!({ "inputs": [input], "outputs": outputs }).to_string().into_bytes();
    let length = body.len().to_string();
    body.extend([first, 2, 3, 4].repeat(items));
    (body, length)
}

async fn assert_healthy(fixture: &ServerFixture) {
    let answer = infer(fixture, INFER, &[], image_input(1, 1).to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn server_and_model_metadata_are_complete() {
    let fixture = ServerFixture::with_digits_serving().await;
    let server = fixture.get("/v2").await.json();
    assert_eq!(server["name"], "saggar");
    assert!(server["extensions"].as_array().unwrap().contains(&json!("binary_tensor_data")));
    assert_eq!(fixture.get("/v2/").await.json(), server);
    assert_eq!(fixture.get("/v2/health/live").await.json(), json!({ "live": true }));
    assert_eq!(fixture.get("/v2/health/ready").await.json(), json!({ "ready": true }));
    assert_eq!(fixture.get("/v2/models/digits/ready").await.json(), json!({ "name": "digits", "ready": true }));
    assert_eq!(fixture.get("/v2/models/digits/versions/1/ready").await.status, 200);
    let expected = json!({
        "name": "digits",
        "versions": ["1"],
        "platform": "saggar_wasm",
        "inputs": [{ "name": "image", "datatype": "UINT8", "shape": [-1, 2, 2] }],
        "outputs": [
            { "name": "sum", "datatype": "FP32", "shape": [-1] },
            { "name": "mark", "datatype": "INT32", "shape": [-1] },
        ],
    });
    assert_eq!(fixture.get("/v2/models/digits").await.json(), expected);
    assert_eq!(fixture.get("/v2/models/digits/versions/1").await.json(), expected);
    let config = fixture.get("/v2/models/digits/config").await.json();
    assert_eq!(config["max_batch_size"], 8);
    assert_eq!(
        config["input"],
        json!([{ "name": "image", "data_type": "TYPE_UINT8", "dims": [2, 2], "optional": false }])
    );
    assert_eq!(config["output"][1], json!({ "name": "mark", "data_type": "TYPE_INT32", "dims": [] }));
}

#[tokio::test]
async fn missing_and_unready_models_are_reported() {
    let fixture = ServerFixture::with_digits_serving().await;
    for (path, code) in [
        ("/v2/models/none", "unknown_model"),
        ("/v2/models/none/ready", "unknown_model"),
        ("/v2/models/none/config", "unknown_model"),
        ("/v2/models/digits/versions/9", "version_not_serving"),
        ("/v2/models/digits/versions/9/ready", "version_not_serving"),
        ("/v2/models/digits/versions/canary", "not_found"),
        ("/v2/models/digits@canary", "not_found"),
        ("/v2/nothing", "not_found"),
    ] {
        let (status, found, _) = fixture.get(path).await.error();
        assert_eq!((status, found.as_str()), (404, code), "{path}");
    }
    let missing = infer(&fixture, "/v2/models/none/infer", &[], image_input(1, 1).to_string()).await.error();
    assert_eq!((missing.0, missing.2.as_str()), (404, "no model none; known are digits"));
    let version = infer(&fixture, "/v2/models/digits/versions/9/infer", &[], image_input(1, 1).to_string()).await;
    assert_eq!(version.error().0, 404);
    assert_eq!(fixture.get("/v2/models/digits/versions/1.5").await.error().0, 400);
    assert_eq!(fixture.get(INFER).await.error().0, 405);

    let fixture = ServerFixture::new();
    fixture.publish("broken", "refused", 1);
    fixture.loader.run_once().await;
    assert_eq!(fixture.get("/v2/health/live").await.status, 200);
    let ready = fixture.get("/v2/health/ready").await;
    assert_eq!((ready.status.as_u16(), ready.json()), (503, json!({ "ready": false })));
    let model = fixture.get("/v2/models/broken/ready").await;
    assert_eq!((model.status.as_u16(), model.json()), (503, json!({ "name": "broken", "ready": false })));
    assert_eq!(infer(&fixture, "/v2/models/broken/infer", &[], image_input(1, 1).to_string()).await.error().0, 503);
}

#[tokio::test]
async fn json_tensors_round_trip() {
    let fixture = ServerFixture::with_digits_serving().await;
    let mut request = image_input(1, 2);
    request["id"] = json!("my \"id\"");
    let answer = infer(&fixture, INFER, &[], request.to_string()).await;
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("x-saggar-model"), "digits@1");
    assert_eq!(answer.header("inference-header-content-length"), "");
    let sum = json!({ "name": "sum", "datatype": "FP32", "shape": [2], "data": [10.0, 10.0] });
    let mark = json!({ "name": "mark", "datatype": "INT32", "shape": [2], "data": [1, 1] });
    let whole = json!({ "id": "my \"id\"", "model_name": "digits", "model_version": "1", "outputs": [sum, mark] });
    assert_eq!(answer.json(), whole);
    let mut request = image_input(1, 2);
    request["outputs"] = json!([{ "name": "mark" }, { "name": "sum" }]);
    let answer = infer(&fixture, "/v2/models/digits/versions/1/infer", &[], request.to_string()).await;
    let whole = json!({ "model_name": "digits", "model_version": "1", "outputs": [mark, sum] });
    assert_eq!(answer.json(), whole, "in the requested order, without an id");
    request["outputs"] = json!([{ "name": "mark" }]);
    assert_eq!(infer(&fixture, INFER, &[], request.to_string()).await.json()["outputs"], json!([mark]));
    // The content type is ignored.
    let lies = [("content-type", "application/octet-stream")];
    assert_eq!(infer(&fixture, INFER, &lies, request.to_string()).await.status, 200);
}

#[tokio::test]
async fn binary_tensors_round_trip() {
    let fixture = ServerFixture::with_digits_serving().await;
    let (body, length) =
        binary_request(1, 2, json!([{ "name": "mark", "parameters": { "binary_data": true } }, { "name": "sum" }]));
    let header = [("inference-header-content-length", length.as_str())];
    let answer = infer(&fixture, INFER, &header, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/octet-stream");
    let length: usize = answer.header("inference-header-content-length").parse().unwrap();
    let (json, rest) = answer.body.split_at(length);
    let json: Value = serde_json::from_slice(json).unwrap();
    let parameters = json!({ "binary_data_size": 8 });
    let mark = json!({ "name": "mark", "datatype": "INT32", "shape": [2], "parameters": parameters });
    let sum = json!({ "name": "sum", "datatype": "FP32", "shape": [2], "data": [10.0, 10.0] });
    assert_eq!(json["outputs"], json!([mark, sum]));
    assert_eq!(rest, [1, 0, 0, 0, 1, 0, 0, 0]);
    // A raw item: every output is returned as binary data.
    let answer = infer(&fixture, INFER, &[("inference-header-content-length", "0")], vec![1, 2, 3, 4]).await;
    let length: usize = answer.header("inference-header-content-length").parse().unwrap();
    assert_eq!(answer.body[length..], [&10f32.to_le_bytes()[..], &1i32.to_le_bytes()].concat());
}

#[tokio::test]
async fn invalid_inference_requests_are_refused_without_harm() {
    let fixture = ServerFixture::with_digits_serving().await;
    let image = |rest: &str| format!(r#"{{"inputs":[{{"name":"image",{rest}}}]}}"#);
    let shaped = |shape: &str, data: &str| image(&format!(r#""shape":{shape},"datatype":"UINT8","data":{data}"#));
    let good = image_input(1, 1).to_string();
    let with = |more: &str| format!("{},{more}}}", &good[..good.len() - 1]);
    let deep = format!("{}1{}", "[".repeat(101), "]".repeat(101));
    let refused = [
        String::new(),
        "{".to_owned(),
        "nonsense".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        r#"{"inputs":[]}"#.to_owned(),
        r#"{"inputs":[{"name":"other","shape":[1,2,2],"datatype":"UINT8","data":[1,2,3,4]}]}"#.to_owned(),
        image(r#""shape":[1,2,2],"datatype":"NONE","data":[1,2,3,4]"#),
        image(r#""shape":[1,2,2],"datatype":"BF16","data":[true,true,true,true]"#),
        image(r#""shape":[1,2,2],"datatype":"FP32","data":[1,2,3,4]"#),
        image(r#""shape":[1,2,2],"datatype":"UINT8""#),
        image(r#""datatype":"UINT8","data":[1,2,3,4]"#),
        image(r#""shape":[1,2,2],"data":[1,2,3,4]"#),
        image(r#""shape":[1,2,2],"datatype":"UINT8","parameters":{"binary_data_size":4}"#),
        image(r#""shape":[1,2,2],"datatype":"UINT8","data":[1,2,3,4],"parameters":{"shared_memory_region":"x"}"#),
        shaped("[2,2]", "[1,2,3,4]"),
        shaped("[1,4]", "[1,2,3,4]"),
        shaped("[0,2,2]", "[]"),
        shaped("[1,2,2]", "[1,2,3]"),
        shaped("[1,2,2]", "[1,2,3,4,5]"),
        shaped("[1,2,2]", "[1,2,3,256]"),
        shaped("[1,2,2]", "[1,2,3,-1]"),
        shaped("[1,2,2]", "[1,2,3,4.5]"),
        shaped("[1,2,2]", "[1,2,3,\"4\"]"),
        shaped("[1,2,2]", "[1,2,3,null]"),
        shaped("[1,2,2]", "7"),
        shaped("[-1,2,2]", "[1,2,3,4]"),
        shaped("[1.5,2,2]", "[1,2,3,4]"),
        shaped("[9223372036854775807,2,2]", "[1,2,3,4]"),
        shaped("[4611686018427387904,2,2]", "[1,2,3,4]"),
        shaped("[99999999999999999999999,2,2]", "[1,2,3,4]"),
        shaped("[1,2,2]", &deep),
        shaped("[1,2,2]", &"[".repeat(100_000)),
        with(r#""outputs":[{"name":"other"}]"#),
        with(r#""outputs":[{"name":"sum"},{"name":"sum"}]"#),
        with(r#""parameters":{"triton_x":1}"#),
        with(r#""parameters":{"x":{}}"#),
        with(&format!(r#""parameters":{{"x":{deep}}}"#)),
        good.replace("]}]", "]},{}]"),
        format!("{good}{good}"),
    ];
    for body in refused {
        let (status, code, text) = infer(&fixture, INFER, &[], body.clone()).await.error();
        assert_eq!((status, code.as_str()), (400, "bad_input"), "{text} for {:.200}", body);
        assert_healthy(&fixture).await;
    }
    // Unknown keys and parameters are ignored.
    let ignored = with(&format!(r#""model_name":"x","more":{deep},"parameters":{{"mine":"x","priority":1}}"#));
    assert_eq!(infer(&fixture, INFER, &[], ignored).await.status, 200);
}

#[tokio::test]
async fn the_json_length_header_must_fit_the_body() {
    let fixture = ServerFixture::with_digits_serving().await;
    let (body, length) = binary_request(1, 1, json!([{ "name": "sum" }]));
    let json_bytes: usize = length.parse().unwrap();
    let past = (body.len() + 1).to_string();
    let short = (json_bytes - 1).to_string();
    let bad = ["-1", "x", "", "1.5", "+7", "99999999999999999999", "4294967296", past.as_str(), short.as_str(), "1"];
    for length in bad {
        let answer = infer(&fixture, INFER, &[("inference-header-content-length", length)], body.clone()).await;
        assert_eq!(answer.error().0, 400, "{length}");
    }
    let header = [("inference-header-content-length", length.as_str())];
    for body in [body[..body.len() - 1].to_vec(), [&body[..], b"x"].concat(), body[..json_bytes].to_vec()] {
        assert_eq!(infer(&fixture, INFER, &header, body).await.error().0, 400);
    }
    assert_eq!(infer(&fixture, INFER, &header, body).await.status, 200);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn request_and_response_bodies_may_be_compressed() {
    let fixture = ServerFixture::with_digits_serving().await;
    let plain = infer(&fixture, INFER, &[], image_input(1, 600).to_string()).await;
    assert_eq!((plain.status.as_u16(), plain.header("content-encoding")), (200, ""));
    // The length of the JSON is that before compression.
    let outputs = json!([{ "name": "sum", "parameters": { "binary_data": true } }]);
    let (body, length) = binary_request(1, 600, outputs);
    for (name, packed) in [("gzip", gzip(&body)), ("deflate", deflate(&body))] {
        let headers = [
            ("content-encoding", name),
            ("accept-encoding", name),
            ("inference-header-content-length", length.as_str()),
        ];
        let answer = infer(&fixture, INFER, &headers, packed).await;
        assert_eq!((answer.status.as_u16(), answer.header("content-encoding")), (200, name));
        let mut whole = Vec::new();
        match name {
            "gzip" => GzDecoder::new(&answer.body[..]).read_to_end(&mut whole).unwrap(),
            _ => ZlibDecoder::new(&answer.body[..]).read_to_end(&mut whole).unwrap(),
        };
        let length: usize = answer.header("inference-header-content-length").parse().unwrap();
        assert_eq!(whole[length..], 10f32.to_le_bytes().repeat(600));
    }
    // Too small to be compressed.
    let small = infer(&fixture, INFER, &[("accept-encoding", "gzip")], image_input(1, 1).to_string()).await;
    assert_eq!((small.status.as_u16(), small.header("content-encoding")), (200, ""));
}

#[tokio::test]
async fn invalid_compressed_bodies_are_refused() {
    let fixture = ServerFixture::with_digits_serving().await;
    let body = image_input(1, 1).to_string();
    let (status, code, text) = infer(&fixture, INFER, &[("content-encoding", "br")], body.clone()).await.error();
    assert_eq!((status, code.as_str()), (415, "unsupported_media_type"), "{text}");
    let packed = gzip(body.as_bytes());
    for broken in [&packed[..packed.len() - 3], b"text", b""] {
        let answer = infer(&fixture, INFER, &[("content-encoding", "gzip")], broken.to_vec()).await;
        assert_eq!(answer.error().1, "bad_body");
    }
    let bomb = gzip(&vec![b' '; INFER_BYTES_MAX + 1]);
    assert!(bomb.len() < 1 << 20);
    assert_eq!(infer(&fixture, INFER, &[("content-encoding", "gzip")], bomb).await.error().0, 413);
    assert_healthy(&fixture).await;
}

#[tokio::test]
async fn bodies_are_limited_and_may_be_chunked() {
    let fixture = ServerFixture::with_digits_serving().await;
    let long = (INFER_BYTES_MAX + 1).to_string();
    let answer = infer(&fixture, INFER, &[("content-length", &long)], "").await;
    assert_eq!(answer.error().0, 413);
    let body = image_input(1, 1).to_string().into_bytes();
    let pieces: Vec<Result<Vec<u8>, std::io::Error>> = body.chunks(3).map(|piece| Ok(piece.to_vec())).collect();
    let answer = infer(&fixture, INFER, &[], Body::from_stream(futures::stream::iter(pieces))).await;
    assert_eq!(answer.status, 200);
    // More elements than bytes: a large tensor is refused by its shape before memory is allocated.
    let large = r#"{"inputs":[{"name":"image","shape":[20000000,2,2],"datatype":"UINT8","data":[1]}]}"#;
    assert_eq!(infer(&fixture, INFER, &[], large).await.error().0, 400);
}

#[tokio::test]
async fn plugin_failures_have_their_own_status() {
    let fixture = ServerFixture::with_digits_serving().await;
    for (first, status) in [(TRAP, 500), (REJECT, 422), (PANIC, 500), (BAD_OUTPUT, 500)] {
        let answer = infer(&fixture, INFER, &[], image_input(first, 1).to_string()).await;
        assert_eq!(answer.error().0, status, "{first}");
    }
    assert_healthy(&fixture).await;
}

#[tokio::test]
async fn the_timeout_parameter_is_enforced() {
    let fixture = ServerFixture::with_digits_serving().await;
    let mut request = image_input(BLOCK, 1);
    request["parameters"] = json!({ "timeout": 20_000 });
    let (status, ..) = infer(&fixture, INFER, &[], request.to_string()).await.error();
    assert!([408, 504].contains(&status), "{status}");
    fixture.host.gate.open();
    assert_healthy(&fixture).await;
}

#[tokio::test]
async fn inference_requests_are_counted_by_route() {
    let fixture = ServerFixture::with_digits_serving().await;
    assert_healthy(&fixture).await;
    let line = r#"saggar_http_requests_total{code="200",method="POST",route="/v2/models/{model}/infer"}"#;
    assert_eq!(fixture.metric(line).await, Some(1.0));
}

#[tokio::test]
async fn versions_are_addressed_by_number_or_alias() {
    let fixture = ServerFixture::with_digits_serving().await;
    fixture.publish("digits", "plugin", 2);
    fixture.loader.run_once().await;
    let load = fixture.post_json("/api/v1/models/digits/load", r#"{"version": 1}"#).await;
    assert_eq!(load.status, 200, "{}", load.text());
    assert_eq!(fixture.get("/v2/models/digits").await.json()["versions"], json!(["1", "2"]));
    for (path, version) in [
        (INFER, "2"),
        ("/v2/models/digits/versions/1/infer", "1"),
        ("/v2/models/digits/versions/2/infer", "2"),
        ("/v2/models/digits/versions/stable/infer", "2"),
        ("/v2/models/digits@1/infer", "1"),
    ] {
        let answer = infer(&fixture, path, &[], image_input(1, 1).to_string()).await.json();
        assert_eq!(answer["model_version"], version, "{path}");
        assert_eq!(answer["outputs"][1]["data"], json!([version.parse::<i32>().unwrap()]), "{path}");
    }
}

#[tokio::test]
async fn the_repository_api_lists_loads_and_unloads_models() {
    let fixture = ServerFixture::with_digits_serving().await;
    fixture.publish("digits", "refused", 2);
    fixture.loader.run_once().await;
    let post =
        async |path: &str, body: &str| infer(&fixture, &format!("/v2/repository/{path}"), &[], body.to_owned()).await;
    let first =
        |state: &str, reason: &str| json!({ "name": "digits", "version": "1", "state": state, "reason": reason });
    let index = post("index", "").await.json();
    assert_eq!(index[0], first("READY", ""));
    assert_eq!((&index[1]["version"], &index[1]["state"]), (&json!("2"), &json!("UNAVAILABLE")));
    assert!(index[1]["reason"].as_str().unwrap().contains("it is text"), "{index}");
    assert_eq!(post("index", r#"{"ready": true, "more": 1}"#).await.json(), json!([first("READY", "")]));
    assert_eq!(post("index", "{}").await.json(), index);
    let deep = format!("{{\"ready\": {}", "[".repeat(100_000));
    for bad in [r#"{"ready": 1}"#, r#"{"ready": "true"}"#, r#"{"ready": null}"#, "{", deep.as_str()] {
        assert_eq!(post("index", bad).await.error().0, 400, "{bad:.40}");
    }
    assert_eq!(fixture.get("/v2/repository/index").await.error().0, 405);

    let unloaded = post("models/digits/unload", r#"{"parameters": {"unload_dependents": true}}"#).await;
    assert_eq!((unloaded.status.as_u16(), unloaded.json()), (200, json!({ "name": "digits", "unload": true })));
    assert_eq!(post("index", "").await.json()[0], first("UNAVAILABLE", "unloaded"));
    assert_eq!(fixture.get("/v2/models/digits/ready").await.status, 503);
    assert_eq!(fixture.get("/v2/health/ready").await.status, 200, "the model is unloaded on purpose");
    assert_eq!(infer(&fixture, INFER, &[], image_input(1, 1).to_string()).await.error().0, 503);
    let loaded = post("models/digits/load", "").await;
    assert_eq!((loaded.status.as_u16(), loaded.json()), (200, json!({ "name": "digits", "load": true })));
    assert_healthy(&fixture).await;

    assert_eq!(post("models/none/unload", "").await.status, 200, "it is unloaded already");
    assert_eq!(post("models/none/load", "").await.error().0, 404);
    assert_eq!(post("models/..%2f..%2fetc/load", r#"{"parameters": {"config": "{}"}}"#).await.error().0, 404);
    assert_eq!(post("models/digits/unload", r#"{"parameters": {"unload_dependents": 1}}"#).await.error().0, 400);
    assert_healthy(&fixture).await;
}

#[tokio::test]
async fn a_sleeping_model_is_ready_and_woken_by_a_metadata_request() {
    let fixture = ServerFixture::with_digits_serving().await;
    let house = tokio::spawn(Arc::clone(fixture.app.lifecycle()).run_residency_loop(fixture.app.shutdown()));
    let config = json!({ "parameters": { "config": "{\"keep_alive\": \"0s\"}" } }).to_string();
    let loaded = infer(&fixture, "/v2/repository/models/digits/load", &[], config).await;
    assert_eq!(loaded.status, 200, "{}", loaded.text());
    let index = async || infer(&fixture, "/v2/repository/index", &[], "").await.json()[0].clone();
    while index().await["state"] != "UNAVAILABLE" {
        tokio::task::yield_now().await;
    }
    assert_eq!(index().await["reason"], "asleep; a prediction wakes it");
    assert_eq!(fixture.get("/v2/models/digits/ready").await.status, 200);
    assert_eq!(fixture.get("/v2/health/ready").await.status, 200);
    assert_eq!(fixture.get("/v2/models/digits").await.json()["inputs"][0]["name"], "image");
    assert_healthy(&fixture).await;
    fixture.stop.send(true).unwrap();
    house.await.unwrap();
}

#[tokio::test]
async fn a_load_accepts_a_config_but_no_files() {
    let fixture = ServerFixture::with_digits_serving().await;
    let load = async |parameters: Value| {
        let body = json!({ "parameters": parameters }).to_string();
        infer(&fixture, "/v2/repository/models/digits/load", &[], body).await
    };
    let config = json!({ "batch": { "max_items": 4 } }).to_string();
    assert_eq!(load(json!({ "config": config, "mine": 1 })).await.status, 200);
    let config = async || fixture.get("/v2/models/digits/config").await.json();
    assert_eq!(config().await["max_batch_size"], 4);
    let settings = config().await["parameters"]["saggar"]["string_value"].as_str().unwrap().to_owned();
    assert_eq!(load(json!({ "config": settings })).await.status, 200, "a returned configuration can be loaded");
    let long = format!("file:1/{}", "x".repeat(256));
    for bad in [
        json!({ "config": 1 }),
        json!({ "config": "nonsense" }),
        json!({ "config": "{\"nonsense\": 1}" }),
        json!({ "config": "{}", "file:../../x": "eA==" }),
        json!({ "config": "{}", (long): "eA==" }),
        json!({ "x": [1] }),
    ] {
        assert_eq!(load(bad.clone()).await.error().0, 400, "{bad}");
        assert_healthy(&fixture).await;
    }
    assert_eq!(config().await["max_batch_size"], 4);
}

#[tokio::test]
async fn statistics_report_what_each_version_did() {
    let fixture = ServerFixture::with_digits_serving().await;
    let statistics = async |path: &str| fixture.get(path).await.json()["model_stats"].clone();
    let before = statistics("/v2/models/digits/stats").await;
    assert_eq!((&before[0]["name"], &before[0]["version"]), (&json!("digits"), &json!("1")));
    assert_eq!((&before[0]["last_inference"], &before[0]["inference_count"]), (&json!(0), &json!(0)));
    assert_eq!(
        before[0]["memory_usage"],
        json!([{ "type": "CPU", "id": 0, "byte_size": super::fixture::MODEL_BYTES }])
    );
    for (first, items, status) in [(1, 1, 200), (1, 8, 200), (REJECT, 1, 422), (TRAP, 1, 500)] {
        let answer = infer(&fixture, INFER, &[], image_input(first, items).to_string()).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    assert_eq!(infer(&fixture, INFER, &[], "{}").await.status, 400);
    let after = statistics("/v2/models/digits/versions/1/stats").await[0].clone();
    assert_eq!((&after["inference_count"], &after["execution_count"]), (&json!(9), &json!(2)));
    let count = |key: &str| after["inference_stats"][key]["count"].as_u64().unwrap();
    for key in ["success", "queue", "compute_input", "compute_infer", "compute_output", "fail"] {
        assert_eq!(count(key), 2, "{key}");
    }
    assert_eq!((count("cache_hit"), count("cache_miss")), (0, 0));
    let sizes: Vec<u64> =
        after["batch_stats"].as_array().unwrap().iter().map(|batch| batch["batch_size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [1, 8]);
    assert_eq!(statistics("/v2/models/stats").await, json!([after]));
    assert_eq!(fixture.get("/v2/models/none/stats").await.error().0, 404);
    assert_eq!(fixture.get("/v2/models/digits/versions/9/stats").await.error().0, 404);
}

#[tokio::test]
async fn cache_hits_are_counted_in_statistics() {
    let fixture = ServerFixture::with_digits_serving().await;
    let config = json!({ "parameters": { "config": "{\"cache\": {\"max_bytes\": 100000}}" } }).to_string();
    let loaded = infer(&fixture, "/v2/repository/models/digits/load", &[], config).await;
    assert_eq!(loaded.status, 200, "{}", loaded.text());
    for _ in 0..3 {
        assert_healthy(&fixture).await;
    }
    let after = fixture.get("/v2/models/digits/stats").await.json()["model_stats"][0].clone();
    let count = |key: &str| after["inference_stats"][key]["count"].as_u64().unwrap();
    assert_eq!([count("success"), count("cache_hit"), count("cache_miss"), count("compute_infer")], [3, 2, 1, 1]);
    assert_eq!((&after["inference_count"], &after["execution_count"]), (&json!(1), &json!(1)));
}
