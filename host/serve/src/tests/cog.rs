//! Asynchronous predictions: waiting, repeated requests, events, cancellation, and everything that is refused.

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use futures::StreamExt;
use serde_json::{Value, json};

use super::fixture::{BLOCK, ServerFixture, TRAP, TestResponse};
use crate::limits::BODY_BYTES_MAX;

fn prediction_input(first: u8) -> Value {
    json!({ "image": [[first, 2], [3, 4]] })
}

async fn send(fixture: &ServerFixture, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Response {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    fixture.send(request.body(Body::from(body.to_string())).unwrap()).await
}

async fn ask(
    fixture: &ServerFixture,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> TestResponse {
    TestResponse::from_response(send(fixture, method, path, headers, body).await).await
}

/// Polls until the prediction has this status.
async fn wait_for_status(fixture: &ServerFixture, id: &str, status: &str) -> Value {
    loop {
        let found = fixture.get(&format!("/predictions/{id}")).await.json();
        if found["status"] == status {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

/// Parses events to the number, name and data of each.
fn parse_events(text: &str) -> Vec<(usize, String, Value)> {
    let event = |event: &str| {
        let (id, rest) = event.strip_prefix("id: ").unwrap().split_once("\nevent: ").unwrap();
        let (name, data) = rest.split_once("\ndata: ").unwrap();
        (id.parse().unwrap(), name.to_owned(), serde_json::from_str(&data.replace("\ndata: ", "\n")).unwrap())
    };
    text.split_terminator("\n\n").map(event).collect()
}

const EVENTS: (&str, &str) = ("accept", "text/event-stream");
const ASYNC: (&str, &str) = ("prefer", "respond-async");

#[tokio::test]
async fn a_synchronous_prediction_returns_the_complete_result() {
    let fixture = ServerFixture::with_digits_serving().await;
    for (path, body) in [
        ("/predictions", json!({ "input": prediction_input(1) })),
        ("/predictions", json!({ "input": prediction_input(1), "model": "digits@1", "extra": 7 })),
        ("/predictions", json!({ "input": [[1, 2], [3, 4]], "model": null })),
    ] {
        let answer = ask(&fixture, "POST", path, &[], &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let found = answer.json();
        assert_eq!(found["output"], json!({ "sum": 10.0, "mark": 1 }));
        assert_eq!(
            (&found["status"], &found["model"], &found["version"]),
            (&json!("succeeded"), &json!("digits"), &json!("1"))
        );
        assert_eq!((&found["input"], &found["error"], &found["logs"]), (&body["input"], &Value::Null, &json!("")));
        assert!(found["metrics"]["predict_time"].as_f64().is_some_and(|time| time >= 0.0));
        let times = ["created_at", "started_at", "completed_at"].map(|at| found[at].as_str().unwrap().to_owned());
        assert!(times.is_sorted() && times[0].ends_with('Z'), "{times:?}");
        assert_eq!(fixture.get(&format!("/predictions/{}", found["id"].as_str().unwrap())).await.json(), found);
    }
    let failed = ask(&fixture, "POST", "/predictions", &[], &json!({ "input": prediction_input(TRAP) })).await;
    let found = failed.json();
    assert_eq!((failed.status.as_u16(), &found["status"]), (200, &json!("failed")));
    assert_eq!((&found["error"], &found["output"]), (&json!("the plugin trapped"), &Value::Null));
}

#[tokio::test]
async fn an_asynchronous_prediction_is_polled_until_it_succeeds() {
    let fixture = ServerFixture::with_digits_serving().await;
    let answer = ask(&fixture, "POST", "/predictions", &[ASYNC], &json!({ "input": prediction_input(BLOCK) })).await;
    assert_eq!((answer.status.as_u16(), answer.header("preference-applied")), (202, "respond-async"));
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(answer.header("location"), format!("/predictions/{id}"));
    assert!(answer.json()["completed_at"].is_null());
    wait_for_status(&fixture, &id, "processing").await;
    let path = format!("/predictions/{id}");
    let soon = [("prefer", "wait=0")];
    assert_eq!(ask(&fixture, "GET", &path, &soon, &Value::Null).await.json()["status"], "processing");
    fixture.host.gate.open();
    let found = ask(&fixture, "GET", &path, &[("prefer", "wait=60")], &Value::Null).await.json();
    assert_eq!(found["status"], "succeeded");
    let quick =
        ask(&fixture, "POST", "/predictions", &[("prefer", "wait=30")], &json!({ "input": prediction_input(1) })).await;
    assert_eq!((quick.status.as_u16(), &quick.json()["status"]), (200, &json!("succeeded")));
}

#[tokio::test]
async fn a_repeated_put_with_the_same_id_creates_one_prediction() {
    let fixture = ServerFixture::with_digits_serving().await;
    let body = json!({ "input": prediction_input(BLOCK), "model": "digits" });
    let first = ask(&fixture, "PUT", "/predictions/mine", &[ASYNC], &body).await;
    assert_eq!((first.status.as_u16(), &first.json()["id"]), (202, &json!("mine")));
    // The same input, formatted differently.
    let again = json!({ "model": "digits", "webhook": null, "input": prediction_input(BLOCK) });
    assert_eq!(ask(&fixture, "PUT", "/predictions/mine", &[ASYNC], &again).await.status, 202);
    for other in
        [json!({ "input": prediction_input(1), "model": "digits" }), json!({ "input": prediction_input(BLOCK) })]
    {
        let refused = ask(&fixture, "PUT", "/predictions/mine", &[], &other).await.error();
        assert_eq!((refused.0, refused.2.as_str()), (409, "prediction mine has another input or model"));
    }
    // A waiting client that disconnects does not cancel the prediction: another one can still wait for it.
    let waiting = tokio::spawn({
        let (router, body) = (fixture.router.clone(), body.to_string());
        async move {
            let request = Request::put("/predictions/mine").body(Body::from(body)).unwrap();
            tower::ServiceExt::oneshot(router, request).await
        }
    });
    wait_for_status(&fixture, "mine", "processing").await;
    waiting.abort();
    let _ = waiting.await;
    fixture.host.gate.open();
    let whole = ask(&fixture, "PUT", "/predictions/mine", &[], &body).await;
    assert_eq!((whole.status.as_u16(), &whole.json()["status"]), (200, &json!("succeeded")));
    let asked = r#"saggar_predict_requests_total{model="digits",outcome="success",version="1"}"#;
    assert_eq!(fixture.metric(asked).await, Some(1.0), "it was computed once");
}

#[tokio::test]
async fn a_running_prediction_can_be_cancelled() {
    let fixture = ServerFixture::with_digits_serving().await;
    let body = json!({ "input": prediction_input(BLOCK) });
    ask(&fixture, "PUT", "/predictions/mine", &[ASYNC], &body).await;
    wait_for_status(&fixture, "mine", "processing").await;
    let canceled = ask(&fixture, "POST", "/predictions/mine/cancel", &[], &Value::Null).await;
    assert_eq!((canceled.status.as_u16(), &canceled.json()["status"]), (200, &json!("canceled")));
    let line = r#"saggar_predict_requests_total{model="digits",outcome="cancelled",version="1"}"#;
    fixture.metric_becomes(line, Some(1.0)).await;
    // It stays canceled, and canceling a finished prediction changes nothing.
    fixture.host.gate.open();
    let after = ask(&fixture, "POST", "/predictions/mine/cancel", &[], &Value::Null).await.json();
    assert_eq!((&after["status"], &after["output"]), (&json!("canceled"), &Value::Null));
    let done = ask(&fixture, "POST", "/predictions", &[], &json!({ "input": prediction_input(1) })).await.json();
    let path = format!("/predictions/{}/cancel", done["id"].as_str().unwrap());
    assert_eq!(ask(&fixture, "POST", &path, &[], &Value::Null).await.json()["status"], "succeeded");
}

/// Its identifier is unknown to every client, so no one could request the result.
#[tokio::test]
async fn a_synchronous_prediction_is_cancelled_when_its_client_disconnects() {
    let fixture = ServerFixture::with_digits_serving().await;
    let request = Request::post("/predictions")
        .body(Body::from(json!({ "input": prediction_input(BLOCK) }).to_string()))
        .unwrap();
    let waiting = tokio::spawn(tower::ServiceExt::oneshot(fixture.router.clone(), request));
    fixture.metric_becomes(r#"saggar_predict_in_flight{model="digits",version="1"}"#, Some(1.0)).await;
    waiting.abort();
    let line = r#"saggar_predict_requests_total{model="digits",outcome="cancelled",version="1"}"#;
    fixture.metric_becomes(line, Some(1.0)).await;
    fixture.host.gate.open();
}

async fn serving_streaming_model() -> ServerFixture {
    let fixture = ServerFixture::new();
    fixture.publish("speaker", "plugin that speaks", 1);
    fixture.loader.run_once().await;
    fixture
}

#[tokio::test]
async fn events_are_ordered_and_resume_after_last_event_id() {
    let fixture = serving_streaming_model().await;
    let body = json!({ "input": { "prompt": "né" } });
    let answer = ask(&fixture, "PUT", "/predictions/talk", &[EVENTS], &body).await;
    assert_eq!((answer.header("content-type"), answer.header("cache-control")), ("text/event-stream", "no-store"));
    let found = parse_events(&answer.text());
    let names: Vec<&str> = found.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["start", "output", "output", "metric", "completed"]);
    assert_eq!(found.iter().map(|(id, ..)| *id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!((&found[0].2["status"], &found[0].2["output"]), (&json!("starting"), &Value::Null));
    assert_eq!((&found[1].2, &found[2].2), (&json!({ "said": "n" }), &json!({ "said": "é" })));
    assert!(found[3].2["predict_time"].is_f64());
    assert_eq!(found[4].2["output"], json!({ "said": "né", "bytes": 3 }));
    assert_eq!(found[4].2, fixture.get("/predictions/talk").await.json());
    let rest = ask(&fixture, "GET", "/predictions/talk", &[EVENTS, ("last-event-id", "2")], &Value::Null).await;
    assert_eq!(parse_events(&rest.text()), found[2..]);
    let none = ask(&fixture, "GET", "/predictions/talk", &[EVENTS, ("last-event-id", "5")], &Value::Null).await;
    assert_eq!(none.text(), "");
    let failed = ask(&fixture, "POST", "/predictions", &[EVENTS], &json!({ "input": { "prompt": "fail" } })).await;
    let found = parse_events(&failed.text());
    let names: Vec<&str> = found.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["start", "output", "completed"]);
    assert_eq!((&found[2].2["status"], &found[2].2["error"]), (&json!("failed"), &json!("the plugin trapped")));
}

#[tokio::test]
async fn a_disconnected_event_reader_cancels_the_prediction() {
    let fixture = serving_streaming_model().await;
    let body = json!({ "input": { "prompt": "flood" } });
    let response = send(&fixture, "POST", "/predictions", &[EVENTS], &body).await;
    let mut stream = response.into_body().into_data_stream();
    let mut text = String::new();
    while !text.contains("event: output") {
        text.push_str(core::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
    drop(stream);
    let id = parse_events(text.split_inclusive("\n\n").next().unwrap())[0].2["id"].as_str().unwrap().to_owned();
    wait_for_status(&fixture, &id, "canceled").await;
    let counts = |outcome: &str| {
        format!("saggar_predict_requests_total{{model=\"speaker\",outcome=\"{outcome}\",version=\"1\"}}")
    };
    fixture.metric_becomes(&counts("cancelled"), Some(1.0)).await;
}

#[tokio::test]
async fn invalid_requests_create_no_prediction() {
    let fixture = ServerFixture::with_digits_serving().await;
    let cases = [
        (json!({}), 400, "body: input: missing"),
        (json!([1]), 400, "body: expected an object with input"),
        (
            json!({ "input": { "picture": 1 } }),
            400,
            "picture: the model has no such input; it takes image (uint8[2, 2])",
        ),
        (json!({ "input": prediction_input(1), "model": "letters" }), 404, "no model letters; known are digits"),
        (
            json!({ "input": prediction_input(1), "model": "digits@9" }),
            404,
            "version 9 of model digits is unknown; version 1 serves",
        ),
        (json!({ "input": prediction_input(1), "model": 7 }), 400, "body: model: expected a string"),
        (
            json!({ "input": prediction_input(1), "webhook": "http://127.0.0.1:1/x" }),
            422,
            "webhook: this server sends none; `saggar serve --allow-webhook ADDRESS` has it send them",
        ),
    ];
    for (body, status, error) in cases {
        for (method, path) in [("POST", "/predictions"), ("PUT", "/predictions/mine")] {
            let refused = ask(&fixture, method, path, &[ASYNC], &body).await.error();
            assert_eq!((refused.0, refused.2.as_str()), (status, error), "{body}");
        }
    }
    assert_eq!(fixture.get("/predictions/mine").await.error().0, 404);
    assert_eq!(fixture.post_json("/predictions/mine/cancel", "").await.error().0, 404);
    let body = json!({ "input": prediction_input(1) });
    assert_eq!(ask(&fixture, "PUT", "/predictions/a%20b", &[], &body).await.error().0, 400);
    let png = [("content-type", "image/png")];
    assert_eq!(ask(&fixture, "POST", "/predictions", &png, &body).await.error().0, 415);
    let large = json!({ "input": "x".repeat(BODY_BYTES_MAX) });
    assert_eq!(ask(&fixture, "POST", "/predictions", &[], &large).await.error().0, 413);
}
