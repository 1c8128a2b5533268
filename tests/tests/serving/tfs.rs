//! TensorFlow Serving's REST API over real plugins and the real binary, as tested by its own model server.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{HttpPayload, HttpResponse, ServerProcess, copy_version, guest};
use serde_json::{Value, json};

fn post(server: &ServerProcess, path: &str, body: &Value) -> HttpResponse {
    server.request("POST", &format!("/v1/models/{path}"), HttpPayload::Json(body))
}

fn image_of(value: u8) -> Value {
    json!(vec![vec![value; 8]; 8])
}

/// One model that classifies pictures, requested in every format; all give the same result as the native one.
#[test]
fn tensorflow_serving_predict_classify_status_and_metadata_agree() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let pictures = [image_of(0), image_of(9)];
    let plain =
        server.request("POST", "/models/digits/predict", HttpPayload::Json(&json!({ "image": pictures }))).json();
    let rows = post(&server, "digits:predict", &json!({ "instances": pictures }));
    assert_eq!((rows.status, rows.header("content-type")), (200, "application/json"));
    assert_eq!(rows.header("x-saggar-model"), "digits@1");
    let named: Vec<Value> = pictures.iter().map(|image| json!({ "image": image })).collect();
    let named = post(&server, "digits/versions/1:predict", &json!({ "instances": named }));
    assert_eq!(rows.json(), named.json());
    let columns = post(&server, "digits:predict", &json!({ "inputs": { "image": pictures } })).json();
    for output in ["label", "probability", "probabilities"] {
        assert_eq!(columns["outputs"][output], plain[output], "{output}");
        let rows = rows.json();
        let of_rows: Vec<&Value> = (0..2).map(|row| &rows["predictions"][row][output]).collect();
        assert_eq!(json!(of_rows), plain[output], "{output}");
    }

    let classes = post(&server, "digits:classify", &json!({ "examples": [{ "image": vec![0; 64] }] })).json();
    let scores = classes["results"][0].as_array().unwrap();
    assert_eq!(scores.len(), 10);
    assert_eq!((&scores[3][0], &scores[3][1]), (&json!("3"), &plain["probabilities"][0][3]));
    let sum: f64 = scores.iter().map(|score| score[1].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{sum}");

    let status = server.get("/v1/models/digits");
    let ready = json!({ "version": "1", "state": "AVAILABLE", "status": { "error_code": "OK", "error_message": "" } });
    assert_eq!(status, json!({ "model_version_status": [ready], "name": "digits", "ready": true }));
    let metadata = server.get("/v1/models/digits/versions/1/metadata");
    let signature = &metadata["metadata"]["signature_def"]["signature_def"]["serving_default"];
    let sizes = signature["inputs"]["image"]["tensor_shape"]["dim"].as_array().unwrap();
    assert_eq!(sizes.iter().map(|dim| dim["size"].as_str().unwrap()).collect::<Vec<_>>(), ["-1", "8", "8"]);
    assert_eq!(signature["outputs"]["probabilities"]["dtype"], "DT_FLOAT");

    copy_version(&home.path().join("models/digits"), 1, 2);
    server.wait_for_version("digits", 2);
    assert_eq!(post(&server, "digits:predict", &json!({ "instances": pictures })).header("x-saggar-model"), "digits@2");
    assert_eq!(server.get("/v1/models"), json!({ "models": ["digits"] }));
}

#[test]
fn tensorflow_serving_handles_strings_and_bad_requests() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.saggar_ok(&["run", guest("teller").to_str().unwrap(), "--wait"]);
    server.wait_for_version("teller", 1);
    let said = post(&server, "teller:predict", &json!({ "instances": ["né", { "b64": "b2s=" }] })).json();
    let row = |said: &str, bytes: f64| json!({ "said": said, "lengths": [bytes, bytes] });
    let length = |row: &Value| row["lengths"][0].as_f64().unwrap();
    assert_eq!((length(&said["predictions"][0]), length(&said["predictions"][1])), (3.0, 2.0));
    assert_eq!(said["predictions"][1], row("ok", 2.0));
    for (path, body, status, error) in [
        ("teller:predict", "", 400, "JSON Parse error: The document is empty"),
        (
            "teller:predict",
            "{\"instances\": [\"a\"}",
            400,
            "JSON Parse error: Missing a comma or ] after an array element. at offset: 18",
        ),
        (
            "teller:predict",
            "{\"instances\": []}",
            400,
            "JSON Value: {\"instances\": []} No values in 'instances' array",
        ),
        ("teller:explain", "{}", 400, "Malformed request: POST /v1/models/teller:explain"),
        ("other:predict", "{}", 404, "Servable not found for request: Latest(other)"),
        ("teller/versions/7:predict", "{}", 404, "Servable not found for request: Specific(teller, 7)"),
        ("teller/labels/canary:predict", "{}", 400, "Unrecognized servable version label: canary"),
    ] {
        let payload = HttpPayload::Bytes("application/json", body.as_bytes());
        let answer = server.request("POST", &format!("/v1/models/{path}"), payload);
        assert_eq!((answer.status, answer.json()["error"].as_str().unwrap()), (status, error));
    }
    let refused = post(&server, "teller:classify", &json!({ "examples": [{ "prompt": "a" }] }));
    assert_eq!(refused.status, 400);
    assert!(refused.json()["error"].as_str().unwrap().starts_with("model teller cannot classify"), "{}", refused.text);
    assert_eq!(post(&server, "teller:predict", &json!({ "instances": ["a"] })).status, 200);
}
