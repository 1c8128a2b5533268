//! TensorFlow Serving's interface, based on the test cases of its HTTP handler and of its JSON conversion.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::fixture::{ServerFixture, TRAP, TestResponse};

/// Returns a server with the formula models, the image model and the streaming model.
async fn serving_formulas() -> ServerFixture {
    let fixture = ServerFixture::with_digits_serving().await;
    for formula in ["half_plus_two", "above", "scale"] {
        fixture.publish(formula, &format!("plugin that computes {formula}"), 1);
    }
    fixture.publish("speaker", "plugin that speaks", 1);
    fixture.loader.run_once().await;
    fixture
}

async fn ask(fixture: &ServerFixture, model: &str, body: &str) -> TestResponse {
    fixture.post_json(&format!("/v1/models/{model}:predict"), body).await
}

/// Returns the response's text, after asserting status 200.
async fn predict(fixture: &ServerFixture, model: &str, body: &str) -> String {
    let answer = ask(fixture, model, body).await;
    assert_eq!(answer.status, 200, "{body}: {answer:?}");
    assert_eq!(answer.header("content-type"), "application/json");
    answer.text()
}

/// Returns the error text, after asserting status 400.
async fn predict_error(fixture: &ServerFixture, model: &str, body: &str) -> String {
    let (status, _, error) = ask(fixture, model, body).await.error();
    assert_eq!(status, 400, "{body}: {error}");
    error
}

#[tokio::test]
async fn unsupported_api_calls() {
    let fixture = serving_formulas().await;
    for (method, path) in [
        ("GET", "/v1/foo"),
        ("POST", "/v1/models"),
        ("GET", "/v1/models/half_plus_two:predict"),
        ("POST", "/v1/models/half_plus_two/metadata"),
        ("PUT", "/v1/models/half_plus_two:predict"),
        ("GET", "/v1/"),
        ("GET", "/V1/models/foo/version/50"),
    ] {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let (status, code, error) = TestResponse::from_response(fixture.send(request).await).await.error();
        assert_eq!((status, code.as_str()), (400, "malformed_request"));
        assert_eq!(error, format!("Malformed request: {method} {path}"));
    }
    let past = fixture.post_json("/v1/models/foo/versions/18446744073709551615:regress", "").await.error();
    assert_eq!((past.0, past.2.as_str()), (400, "Failed to convert version: 18446744073709551615 to numeric."));
    assert_eq!(fixture.get("/v2x").await.status, 404);
    let options = |origin: &str| {
        let request = Request::options("/v1/models/half_plus_two:predict").header("origin", origin);
        fixture.send(request.body(Body::empty()).unwrap())
    };
    let answer = options("https://example.com").await;
    assert_eq!(answer.status(), 200);
    assert!(!answer.headers().contains_key("access-control-allow-origin"));
    assert_eq!(
        TestResponse::from_response(options("null").await).await.error().2,
        "Origin header is missing in CORS preflight"
    );
}

#[tokio::test]
async fn predict_model_name_version_errors() {
    let fixture = serving_formulas().await;
    let body = r#"{"instances": [1]}"#;
    for (path, status, error) in [
        ("foo:predict", 404, "Servable not found for request: Latest(foo)"),
        ("foo/versions/50:predict", 404, "Servable not found for request: Specific(foo, 50)"),
        ("half_plus_two/versions/99:predict", 404, "Servable not found for request: Specific(half_plus_two, 99)"),
        ("half_plus_two/labels/canary:predict", 400, "Unrecognized servable version label: canary"),
        ("half_plus_two/labels/A%20B:classify", 400, "Unrecognized servable version label: A B"),
    ] {
        let answer = fixture.post_json(&format!("/v1/models/{path}"), body).await.error();
        assert_eq!((answer.0, answer.2.as_str()), (status, error), "{path}");
    }
}

#[tokio::test]
async fn predict_request_errors() {
    let fixture = serving_formulas().await;
    let cases = [
        ("", "JSON Parse error: The document is empty"),
        ("  ", "JSON Parse error: The document is empty"),
        ("instances = [1, 2]", "JSON Parse error: Invalid value. at offset: 0"),
        (r#"{"instances": [1, 2}"#, "JSON Parse error: Missing a comma or ] after an array element. at offset: 19"),
        ("[1, 2]", "JSON Value: [1, 2] Is not object"),
        ("{}", "Missing 'inputs' or 'instances' key"),
        (
            r#"{"instances": [1], "inputs": [1]}"#,
            "JSON Value: {\"instances\": [1], \"inputs\": [1]} Not formatted correctly expecting only one of 'inputs' or \
             'instances' keys to exist ",
        ),
        (r#"{"instances": 1}"#, "JSON Value: {\"instances\": 1} Excepting 'instances' to be an list/array"),
        (r#"{"instances": []}"#, "JSON Value: {\"instances\": []} No values in 'instances' array"),
        (
            r#"{"signature_name": 5, "instances": [1]}"#,
            "JSON Value: {\"signature_name\": 5, \"instances\": [1]} not formatted correctly. 'signature_name' key must be \
             a string value.",
        ),
        (r#"{"instances": [1], "signature_name": "x"}"#, "Serving signature name: \"x\" not found in signature def"),
        (
            r#"{"instances": ["x"]}"#,
            "Failed to process element: 0 of 'instances' list. Error: JSON Value: \"x\" Type: String is not of expected \
             type: float",
        ),
        (
            r#"{"instances": [1, [2]]}"#,
            "Failed to process element: 1 of 'instances' list. Error: Expecting shape [] but got: [1]",
        ),
        (
            r#"{"instances": [[1, 2], [3]]}"#,
            "Failed to process element: 1 of 'instances' list. Error: Expecting tensor size: 2 but got: 1",
        ),
        (
            r#"{"instances": [[1, [2]]]}"#,
            "Failed to process element: 0 of 'instances' list. Error: Encountered list at unexpected level: 1 expected < 1",
        ),
        (
            r#"{"instances": [[[1], 2]]}"#,
            "Failed to process element: 0 of 'instances' list. Error: JSON Value: 2 found at incorrect level: 2 in the \
             JSON DOM. Expected at level: 2",
        ),
        (
            r#"{"instances": [[[1], [2, 3]]]}"#,
            "Failed to process element: 0 of 'instances' list. Error: Encountered list at unexpected size: 2 at level: 1 \
             expected size: 1",
        ),
        (r#"{"instances": [1, {"x": 2}]}"#, "Expecting value/list but got object at item 1 of input list"),
        (r#"{"instances": [{"x": 1}, 2]}"#, "Expecting object but got list at item 1 of input list"),
        (
            r#"{"instances": [{"y": 1}]}"#,
            "Failed to process element: 0 key: y of 'instances' list. Error: JSON object: does not have named input: y",
        ),
        (
            r#"{"instances": [{}]}"#,
            "Failed to process element: 0 of 'instances' list. JSON object: {} keys must be equal to: x",
        ),
        (r#"{"instances": [[1], [2]]}"#, "x: expected rows of shape [], got rows of shape [1]"),
        (r#"{"inputs": {"y": 1}}"#, "Missing named input: x in 'inputs' object."),
        (r#"{"inputs": []}"#, "x: the batch is empty; expected at least one item of shape []"),
    ];
    for (body, error) in cases {
        assert_eq!(predict_error(&fixture, "half_plus_two", body).await, error, "{body}");
    }
    let deep = format!("{{\"instances\": [{}]}}", "[".repeat(100_000));
    assert!(predict_error(&fixture, "half_plus_two", &deep).await.contains("nested deeper"));
    let deep = format!("{{\"other\": {}}}", "[".repeat(100_000));
    assert!(predict_error(&fixture, "half_plus_two", &deep).await.contains("Nested too deeply"));
    assert_eq!(predict(&fixture, "half_plus_two", r#"{"instances": [1]}"#).await, r#"{"predictions":[2.5]}"#);
}

#[tokio::test]
async fn predict_in_rows_and_columns() {
    let fixture = serving_formulas().await;
    for model in ["half_plus_two", "HALF_PLUS_TWO", "half%5Fplus_two", "half_plus_two/versions/1"] {
        let answer = ask(&fixture, model, r#"{"instances": [1.0, 2.0, 5.0]}"#).await;
        // Model names are case-sensitive, the words around them are not.
        assert_eq!(answer.status, if model == "HALF_PLUS_TWO" { 404 } else { 200 }, "{model}");
    }
    let answer = fixture.post_json("/V1/Models/half_plus_two/VERSIONS/1:Predict", r#"{"instances": [1]}"#).await;
    assert_eq!(answer.text(), r#"{"predictions":[2.5]}"#);
    assert_eq!(answer.header("x-saggar-model"), "half_plus_two@1");
    let check = async |body: &str, expected: &str| {
        assert_eq!(predict(&fixture, "half_plus_two", body).await, expected, "{body}");
    };
    check(r#"{"instances": [1, 2, 5]}"#, r#"{"predictions":[2.5,3.0,4.5]}"#).await;
    check(r#"{"signature_name": "serving_default", "instances": [3.0, 4]}"#, r#"{"predictions":[3.5,4.0]}"#).await;
    check(r#"{"signature_name": "", "instances": [{"x": 3}]}"#, r#"{"predictions":[3.5]}"#).await;
    check(r#"{"inputs": [3.0, 4.0]}"#, r#"{"outputs":[3.5,4.0]}"#).await;
    check(r#"{"inputs": {"x": [3.0], "other": ["ignored"]}}"#, r#"{"outputs":[3.5]}"#).await;
    check(r#"{"inputs": 3}"#, r#"{"outputs":3.5}"#).await;
    // Anything after the first value is ignored, and so are unknown keys.
    check(r#"{"instances": [1], "more": {"a": [1, "b"]}} and so on"#, r#"{"predictions":[2.5]}"#).await;
    // Numbers beyond a float's range, and non-finite ones.
    check(r#"{"instances": [1e39, -1e39, 1e-50]}"#, r#"{"predictions":[Infinity,-Infinity,2.0]}"#).await;
    check(r#"{"instances": [NaN, Infinity, -Infinity]}"#, r#"{"predictions":[NaN,Infinity,-Infinity]}"#).await;
    check(r#"{"instances": [1e30, 0.1]}"#, r#"{"predictions":[5e29,2.05]}"#).await;
}

#[tokio::test]
async fn predict_with_several_named_tensors() {
    let fixture = serving_formulas().await;
    let check = async |body: &Value, expected: Value| {
        let answer: Value = serde_json::from_str(&predict(&fixture, "scale", &body.to_string()).await).unwrap();
        assert_eq!(answer, expected, "{body}");
    };
    // An image of [1, 2] each; `aGk=` is "hi".
    let row = |x: f32, name: &str| json!({ "scaled": [[x, 2.0 * x]], "name_bytes": { "b64": name } });
    check(
        &json!({ "instances": [
            { "vector": [[1, 2]], "factor": 3, "name": "hi" },
            { "name": { "b64": "aG8=" }, "factor": -1, "vector": [[4.0, 8]] },
        ] }),
        json!({ "predictions": [row(3.0, "aGk="), row(-4.0, "aG8=")] }),
    )
    .await;
    // The factor has a default.
    check(
        &json!({ "instances": [{ "vector": [[1, 2]], "name": "hi" }] }),
        json!({ "predictions": [row(2.0, "aGk=")] }),
    )
    .await;
    check(
        &json!({ "inputs": { "vector": [[[1, 2]], [[2, 4]]], "factor": [1, 2], "name": ["hi", { "b64": "aG8=" }] } }),
        json!({ "outputs": {
            "scaled": [[[1.0, 2.0]], [[4.0, 8.0]]],
            "name_bytes": [{ "b64": "aGk=" }, { "b64": "aG8=" }],
        } }),
    )
    .await;
}

#[tokio::test]
async fn predict_names_the_tensor_it_cannot_read() {
    let fixture = serving_formulas().await;
    let cases = [
        (
            r#"{"instances": [[1, 2]]}"#,
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per \
             tensorinfo_map",
        ),
        (
            r#"{"inputs": [1]}"#,
            "inputs is a plain value/list, but expecting an object as multiple input tensors required as per \
             tensorinfo_map",
        ),
        (r#"{"inputs": {"vector": [[[1, 2]]]}}"#, "Missing named input: name in 'inputs' object."),
        (
            r#"{"instances": [{"vector": [[1, 2]]}]}"#,
            "Failed to process element: 0 of 'instances' list. JSON object: {\"vector\": [[1, 2]]} keys must be equal to: \
             factor,name,vector",
        ),
        (
            r#"{"instances": [{"vector": [[1, 2]], "name": "a"}, {"vector": [[1, 2]], "name": "a", "factor": 1}]}"#,
            "Failed to process element: 1 of 'instances' list. JSON object: {\"vector\": [[1, 2]], \"name\": \"a\", \
             \"factor\": 1} keys must be equal to: factor,name,vector",
        ),
        (
            r#"{"instances": [{"vector": [[1, 2]], "name": "a", "factor": 1.5}]}"#,
            "Failed to process element: 0 key: factor of 'instances' list. Error: JSON Value: 1.5 Type: Number is not of \
             expected type: int64",
        ),
        (
            r#"{"instances": [{"vector": [[1, 2]], "name": 7}]}"#,
            "Failed to process element: 0 key: name of 'instances' list. Error: JSON Value: 7 Type: Number is not of \
             expected type: string",
        ),
        (
            r#"{"instances": [{"vector": [[1, 2]], "name": {"b64": "a"}}]}"#,
            "Failed to process element: 0 key: name of 'instances' list. Error: Unable to base64 decode",
        ),
        (
            r#"{"instances": [{"vector": [[1, 2]], "name": "too long"}]}"#,
            "name: the text of 8 bytes is too long; at most 4 bytes of UTF-8 are taken",
        ),
        (
            r#"{"inputs": {"vector": [[[1, 2]]], "name": ["a", "b"]}}"#,
            "name: expected a batch of 1, as in vector, got a batch of 2",
        ),
        (
            r#"{"inputs": {"vector": [[[1, 2]]], "name": ["a"], "factor": [true]}}"#,
            "JSON Value: true Type: True is not of expected type: int64",
        ),
    ];
    for (body, error) in cases {
        assert_eq!(predict_error(&fixture, "scale", body).await, error, "{body}");
    }
}

#[tokio::test]
async fn text_values_are_strings_or_base64() {
    let fixture = serving_formulas().await;
    let check = async |body: &str, expected: &str| {
        assert_eq!(predict(&fixture, "speaker", body).await, expected, "{body}");
    };
    check(
        r#"{"instances": ["né", {"b64": "b2s"}]}"#,
        r#"{"predictions":[{"said":"né","bytes":3},{"said":"ok","bytes":2}]}"#,
    )
    .await;
    check(r#"{"inputs": {"b64": "b2s="}}"#, r#"{"outputs":{"said":"ok","bytes":2}}"#).await;
    check(r#"{"instances": [{"prompt": "a", "times": 2}]}"#, r#"{"predictions":[{"said":"aa","bytes":2}]}"#).await;
    assert_eq!(
        predict_error(&fixture, "speaker", r#"{"inputs": {"b64": "/w=="}}"#).await,
        "prompt: expected a text in UTF-8, got 1 bytes that are not"
    );
}

#[tokio::test]
async fn images_are_predicted_and_plugin_failures_reported() {
    let fixture = serving_formulas().await;
    let body = r#"{"instances": [[[1, 2], [3, 4]], [[true, false], [0, 255]]]}"#;
    assert_eq!(
        predict(&fixture, "digits", body).await,
        r#"{"predictions":[{"sum":10.0,"mark":1},{"sum":256.0,"mark":1}]}"#
    );
    let failed = ask(&fixture, "digits", &format!(r#"{{"instances": [[[{TRAP}, 2], [3, 4]]]}}"#)).await.error();
    assert_eq!((failed.0, failed.1.as_str()), (500, "plugin_trap"));
    let large = format!("{{\"instances\": [{}]}}", vec!["[[1, 2], [3, 4]]"; 4096].join(","));
    let answer: Value = serde_json::from_str(&predict(&fixture, "digits", &large).await).unwrap();
    assert_eq!(answer["predictions"].as_array().unwrap().len(), 4096);
    let line = r#"saggar_predict_requests_total{model="digits",outcome="success",version="1"}"#;
    assert_eq!(fixture.metric(line).await, Some(2.0));
}

#[tokio::test]
async fn classify() {
    let fixture = serving_formulas().await;
    let classify = async |body: &str| fixture.post_json("/v1/models/above:classify", body).await;
    let answer = classify(r#"{"examples": [{"x": 2.0}, {"x": [-1]}, {"x": 0, "other": "ignored"}]}"#).await;
    let (no, yes) = (json!([["no", 0.75], ["yes", 0.25]]), json!([["no", 0.25], ["yes", 0.75]]));
    assert_eq!(answer.json(), json!({ "results": [yes, no, no] }));
    let shared = r#"{"signature_name": "classify", "context": {"x": 1}, "examples": [{}, {}]}"#;
    assert_eq!(classify(shared).await.json(), json!({ "results": [yes, yes] }));
    let cases = [
        (
            r#"{"instances": [1]}"#,
            "JSON Value: {\"instances\": [1]} When method is classify, key 'examples' is expected and was not found",
        ),
        (r#"{"examples": {}}"#, "JSON Value: {\"examples\": {}} Expecting 'examples' value to be an list/array"),
        (r#"{"examples": []}"#, "JSON Value: {\"examples\": []} 'examples' value is an empty array"),
        (r#"{"examples": [1]}"#, "Example must be JSON object but got JSON Number"),
        (
            r#"{"context": {"x": 1}, "examples": [{"x": 1}]}"#,
            "Feature: x is in both the example and the context, or twice in one of them",
        ),
        (r#"{"examples": [{"x": 1}, {}]}"#, "x: missing; expected float32[]"),
        (r#"{"examples": [{}, {"x": 1}]}"#, "x: missing; expected float32[]"),
        (r#"{"examples": [{"x": [1, 2]}]}"#, "x: expected rows of shape [], got rows of shape [2]"),
    ];
    for (body, error) in cases {
        let answer = classify(body).await.error();
        assert_eq!((answer.0, answer.2.as_str()), (400, error), "{body}");
    }
    let refused = fixture.post_json("/v1/models/half_plus_two:classify", r#"{"examples": [{"x": 1}]}"#).await.error();
    let reason = "model half_plus_two cannot classify: it does not have exactly one with the semantics `probabilities` \
                  or `class` among its outputs y (float32[])";
    assert_eq!((refused.0, refused.2.as_str()), (400, reason));
}

#[tokio::test]
async fn regress() {
    let fixture = serving_formulas().await;
    let answer =
        fixture.post_json("/v1/models/half_plus_two:regress", r#"{"examples": [{"x": 80.0}, {"x": 1}]}"#).await;
    assert_eq!(answer.text(), r#"{"results":[42.0,2.5]}"#);
    let path = "/v1/models/half_plus_two/versions/1:regress";
    let body = r#"{"signature_name": "regress", "examples": [{"x": [4]}]}"#;
    assert_eq!(fixture.post_json(path, body).await.text(), r#"{"results":[4.0]}"#);
    let refused = fixture.post_json("/v1/models/above:regress", body).await.error();
    assert_eq!(refused.0, 400);
    assert!(refused.2.starts_with("model above cannot regress"), "{}", refused.2);
    // An image as a flat list of its pixels.
    let flat = fixture.post_json("/v1/models/digits:regress", r#"{"examples": [{"image": [1, 2, 3, 4]}]}"#).await;
    assert_eq!(flat.text(), r#"{"results":[10.0]}"#);
}

#[tokio::test]
async fn get_status() {
    let fixture = serving_formulas().await;
    fixture.publish("digits", "refused", 2);
    fixture.loader.run_once().await;
    let good = json!({ "version": "1", "state": "AVAILABLE", "status": { "error_code": "OK", "error_message": "" } });
    let answer = fixture.get("/v1/models/digits").await.json();
    assert_eq!(answer["model_version_status"][0], good);
    let failed = &answer["model_version_status"][1];
    assert_eq!((&failed["state"], &failed["status"]["error_code"]), (&json!("END"), &json!("INTERNAL")));
    assert!(failed["status"]["error_message"].as_str().unwrap().contains("BAD_PLUGIN"), "{failed}");
    assert_eq!(
        fixture.get("/v1/models/digits/versions/1").await.json(),
        json!({ "model_version_status": [good], "name": "digits", "ready": true })
    );
    let second = fixture.get("/v1/models/digits/versions/2").await.json();
    assert_eq!((&answer["ready"], &second["ready"]), (&json!(true), &json!(false)));
    assert_eq!(fixture.get("/").await.json()["status"], "alive");
    for (path, error) in [
        ("/v1/models/foo", "Could not find any versions of model foo"),
        ("/v1/models/digits/versions/9", "Could not find version 9 of model digits"),
    ] {
        let answer = fixture.get(path).await.error();
        assert_eq!((answer.0, answer.2.as_str()), (404, error));
    }
    let names = fixture.get("/v1/models").await.json();
    assert_eq!(names, json!({ "models": ["above", "digits", "half_plus_two", "scale", "speaker"] }));
}

#[tokio::test]
async fn get_model_metadata() {
    let fixture = serving_formulas().await;
    let answer = fixture.get("/v1/models/half_plus_two/metadata").await.json();
    let tensor = |name: &str| {
        json!({
            "dtype": "DT_FLOAT",
            "tensor_shape": { "dim": [{ "size": "-1", "name": "" }], "unknown_rank": false },
            "name": name,
        })
    };
    let expected = json!({
        "model_spec": { "name": "half_plus_two", "signature_name": "", "version": "1" },
        "metadata": { "signature_def": { "signature_def": { "serving_default": {
            "inputs": { "x": tensor("x:0") },
            "outputs": { "y": tensor("y:0") },
            "method_name": "tensorflow/serving/predict",
            "defaults": {},
        } } } },
    });
    assert_eq!(answer, expected);
    let speaker = fixture.get("/v1/models/speaker/versions/1/metadata").await.json();
    let inputs = &speaker["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"];
    assert_eq!((&inputs["prompt"]["dtype"], &inputs["times"]["dtype"]), (&json!("DT_STRING"), &json!("DT_UINT32")));
    let missing = fixture.get("/v1/models/foo/metadata").await.error();
    assert_eq!((missing.0, missing.2.as_str()), (404, "Servable not found for request: Latest(foo)"));
}
