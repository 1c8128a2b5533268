//! Errors for invalid JSON bodies, on every route that accepts JSON.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::fixture::{ServerFixture, TestResponse};

/// Words of the parser, and of this program's types, that must not appear in errors.
const PARSER_WORDS: [&str; 12] = [
    "struct ", "enum ", "tuple ", "line 1", "column ", "sequence", "untagged", "u32", "u64", "f64", "usize", "newtype",
];

const INVALID_BODIES: [&str; 11] = [
    "",
    "{",
    "[]",
    "3",
    "null",
    "\"x\"",
    "{\"zzz\": 1}",
    "{\"plugin\": \"lenet\"}",
    "{\"version\": [], \"to\": 1, \"value\": 2}",
    "{\"name\": 3, \"projects\": 4, \"files\": {}, \"spec\": []}",
    "{\"project\": {}, \"keep_last\": -1, \"parameters\": [], \"whole\": 1, \"stable\": \"x\", \"data\": [{\"mount\": 1}]}",
];

#[tokio::test]
async fn no_route_exposes_parser_messages_for_invalid_json() {
    let fixture = ServerFixture::new();
    let document = fixture.get("/openapi.json").await.json();
    let plugin = fixture.post("/api/v1/plugins", "application/wasm", "plugin trains".to_owned()).await.json();
    let spec = json!({ "project": "digits", "plugin": plugin["digest"] }).to_string();
    assert_eq!(fixture.post_json("/api/v1/jobs", &spec).await.status, 201);
    let mut refused = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, route) in item.as_object().unwrap() {
            if route["requestBody"]["content"]["application/json"].is_null() {
                continue;
            }
            let path = path.replace("{job}", "digits-1").replace("{model}", "mark").replace("{name}", "mark");
            let path: Vec<&str> = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect();
            for wrong in INVALID_BODIES {
                let request = Request::builder().method(method.to_uppercase().as_str()).uri(path.join("/"));
                let request = request.header("content-type", "application/json").body(Body::from(wrong)).unwrap();
                let answer = TestResponse::from_response(fixture.send(request).await).await;
                // A body that a route accepts has no error, and its identifiers are hexadecimal digits.
                if answer.status.is_success() {
                    continue;
                }
                // The request's identifier has hexadecimal digits, which can be those of `f64`.
                let text = String::from_utf8_lossy(&answer.body).replace(answer.header("x-request-id"), "");
                let foreign = PARSER_WORDS.iter().find(|word| text.contains(**word));
                assert!(foreign.is_none(), "{method} {} {wrong}: {text}", path.join("/"));
                let is_json = answer.status == 400 && text.contains("\"bad_json\"");
                if is_json {
                    let hint = answer.json()["hint"].as_str().unwrap().to_owned();
                    let example = hint.strip_prefix("for example: ").unwrap();
                    assert!(serde_json::from_str::<Value>(example).is_ok_and(|example| example.is_object()), "{hint}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 100, "only {refused} bodies were refused");
}

#[tokio::test]
async fn an_invalid_body_error_has_the_path_the_expectation_and_an_example() {
    let fixture = ServerFixture::new();
    let error_message = async |body: &str| {
        let answer = fixture.post_json("/api/v1/jobs", body).await;
        let (status, code, message) = answer.error();
        assert_eq!((status, code.as_str()), (400, "bad_json"), "{message}");
        let hint = answer.json()["hint"].as_str().unwrap().to_owned();
        assert!(hint.starts_with("for example: {\"project\": \"digits\""), "{hint}");
        message
    };
    assert_eq!(error_message("{\"plugin\": \"lenet\"}").await, "body: `project` is missing");
    assert_eq!(error_message("{\"project\": 3}").await, "body: project: expected a text, got 3");
    assert_eq!(error_message("[").await, "body: not JSON at byte 0: it ends within a list");
    let seed = "{\"project\": \"digits\", \"plugin\": \"x\", \"seed\": -1}";
    assert_eq!(error_message(seed).await, "body: seed: expected a whole number from 0, got -1");
}
