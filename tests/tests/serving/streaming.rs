//! Streamed texts and other outputs, from a real plugin through the real server.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{BufRead, BufReader};

use saggar_tests::{HttpPayload, ServerProcess, guest};
use serde_json::{Value, json};

fn with_teller(home: &std::path::Path) -> ServerProcess {
    let server = ServerProcess::start(home);
    server.saggar_ok(&["run", guest("teller").to_str().unwrap(), "--wait"]);
    server.wait_for_version("teller", 1);
    server
}

/// Requests events and returns a reader of them.
fn request_events(server: &ServerProcess, body: &Value) -> impl BufRead + use<> {
    let url = format!("{}/models/teller/predict", server.url());
    let answer = ureq::post(&url).header("accept", "text/event-stream").send(body.to_string()).unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    BufReader::new(answer.into_body().into_reader())
}

/// Returns the next event: its name and its data.
fn next_event(events: &mut impl BufRead) -> Option<(String, Value)> {
    let mut event = String::new();
    while !event.ends_with("\n\n") {
        if events.read_line(&mut event).unwrap() == 0 {
            return None;
        }
    }
    let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
    Some((name.to_owned(), serde_json::from_str(data).unwrap()))
}

#[test]
fn a_streamed_answer_arrives_in_order_and_complete() {
    let home = tempfile::tempdir().unwrap();
    let server = with_teller(home.path());
    let body = json!({ "prompt": "né😀", "times": 2 });
    let plain = server.request("POST", "/models/teller/predict", HttpPayload::Json(&body));
    assert_eq!((plain.status, plain.json()), (200, json!({ "said": "né😀né😀", "lengths": [7.0, 14.0] })));

    let mut events = request_events(&server, &body);
    assert_eq!(next_event(&mut events), Some(("piece".to_owned(), json!({ "lengths": [[7.0, 14.0]] }))));
    for character in ["n", "é", "😀", "n", "é", "😀"] {
        assert_eq!(next_event(&mut events), Some(("piece".to_owned(), json!({ "said": character }))));
    }
    assert_eq!(next_event(&mut events), Some(("done".to_owned(), plain.json())));
    assert_eq!(next_event(&mut events), None);

    let mut events = request_events(&server, &json!({ "prompt": ["a", "b"] }));
    let pieces: Vec<Value> = std::iter::from_fn(|| next_event(&mut events)).map(|(_, data)| data).collect();
    let said: Vec<&Value> = pieces.iter().filter(|piece| piece["said"].is_string()).collect();
    assert_eq!(said, [&json!({ "item": 0, "said": "a" }), &json!({ "item": 1, "said": "b" })]);
    assert_eq!(pieces.last().unwrap(), &json!({ "said": ["a", "b"], "lengths": [[1.0, 1.0], [1.0, 1.0]] }));

    let long = json!({ "prompt": "x".repeat(65) });
    let refused = server.request("POST", "/models/teller/predict", HttpPayload::Json(&long));
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.json()["error"],
        "prompt: the text of 65 bytes is too long; at most 64 bytes of UTF-8 are taken"
    );
}

#[test]
fn a_plugin_stops_when_its_client_disconnects() {
    let home = tempfile::tempdir().unwrap();
    let server = with_teller(home.path());
    // The plugin can send a gigabyte before it is refused, which no buffer on the way holds: when the first piece can
    // be read, the call is still running.
    let mut events = request_events(&server, &json!({ "prompt": "and so on ", "endless": 1 }));
    let (name, first) = next_event(&mut events).unwrap();
    assert_eq!(name, "piece");
    assert!(first["said"].as_str().unwrap().starts_with("and so on and so on "));
    drop(events);
    let cancelled = r#"saggar_predict_requests_total{model="teller",outcome="cancelled",version="1"}"#;
    server.wait_for("the end of the prediction", |server| (server.metric(cancelled) == Some(1.0)).then_some(()));
    let in_flight = r#"saggar_predict_in_flight{model="teller",version="1"}"#;
    server.wait_for("its thread", |server| (server.metric(in_flight) == Some(0.0)).then_some(()));
    let answer = server.request("POST", "/models/teller/predict", HttpPayload::Json(&json!({ "prompt": "a" })));
    assert_eq!(answer.json()["said"], "a");
}

#[test]
fn the_predict_command_prints_text_as_it_streams() {
    let home = tempfile::tempdir().unwrap();
    let server = with_teller(home.path());
    let printed = server.saggar_ok(&["predict", "teller", "-i", "prompt=To be, né ", "-i", "times=2", "--stream"]);
    assert_eq!(printed, "lengths  [[11.0,22.0]]\nTo be, né To be, né \n");
    let printed = server.saggar_ok(&["predict", "teller", "-i", "prompt=a", "--stream", "--json"]);
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let done = json!({ "done": { "said": "a", "lengths": [1.0, 1.0] } });
    assert_eq!(lines[1..], [json!({ "piece": { "said": "a" } }), done]);
    let printed = server.saggar_ok(&["predict", "teller", "-i", "prompt=\"7\""]);
    assert_eq!(printed, "said  \"7\"\nlengths  [1.0,1.0]\n");
    let number = server.saggar(&["predict", "teller", "-i", "prompt=7", "--stream"]);
    assert_eq!(number.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&number.stderr).contains("put it in quotes"), "{number:?}");
}
