//! Predictions as API resources, with a real plugin that streams, and their webhooks.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

use saggar_tests::{HttpPayload, HttpResponse, ServerProcess, guest};
use serde_json::{Value, json};

fn with_teller(home: &std::path::Path, arguments: &[&str]) -> ServerProcess {
    let server = ServerProcess::start_with(home, arguments);
    server.saggar_ok(&["run", guest("teller").to_str().unwrap(), "--wait"]);
    server.wait_for_version("teller", 1);
    server
}

fn post(server: &ServerProcess, path: &str, body: &Value) -> HttpResponse {
    server.request("POST", path, HttpPayload::Json(body))
}

/// Creates a prediction and returns a reader of its events.
fn put_for_events(server: &ServerProcess, id: &str, body: &Value) -> impl BufRead + use<> {
    let url = format!("{}/predictions/{id}", server.url());
    let answer = ureq::put(&url).header("accept", "text/event-stream").send(body.to_string()).unwrap();
    BufReader::new(answer.into_body().into_reader())
}

/// Returns the next event: its number, name and data.
fn next_event(events: &mut impl BufRead) -> Option<(u64, String, Value)> {
    let mut event = String::new();
    while !event.ends_with("\n\n") {
        if events.read_line(&mut event).unwrap() == 0 {
            return None;
        }
    }
    let (id, rest) = event.strip_prefix("id: ").unwrap().split_once("\nevent: ").unwrap();
    let (name, data) = rest.split_once("\ndata: ").unwrap();
    Some((id.parse().unwrap(), name.to_owned(), serde_json::from_str(data).unwrap()))
}

#[test]
fn a_prediction_is_awaited_polled_and_streamed() {
    let home = tempfile::tempdir().unwrap();
    let server = with_teller(home.path(), &[]);
    let whole = post(&server, "/predictions", &json!({ "input": { "prompt": "né" }, "model": "teller" }));
    assert_eq!(whole.status, 200, "{}", whole.text);
    let whole = whole.json();
    assert_eq!((&whole["status"], &whole["output"]["said"]), (&json!("succeeded"), &json!("né")));
    assert_eq!(server.get(&format!("/predictions/{}", whole["id"].as_str().unwrap())), whole);

    let body = json!({ "input": { "prompt": "né", "times": 2 } });
    let mut events = put_for_events(&server, "talk", &body);
    let found: Vec<(u64, String, Value)> = std::iter::from_fn(|| next_event(&mut events)).collect();
    let names: Vec<&str> = found.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!((names[0], &names[names.len() - 2..]), ("start", &["metric", "completed"][..]));
    let said: String = found.iter().filter_map(|(_, _, data)| data["said"].as_str()).collect();
    assert_eq!(said, "néné");
    let (_, _, completed) = found.last().unwrap();
    assert_eq!(completed["output"], json!({ "said": "néné", "lengths": [3.0, 6.0] }));

    // The same request again returns the same prediction; a different one is refused.
    let again = server.request("PUT", "/predictions/talk", HttpPayload::Json(&body));
    assert_eq!((again.status, &again.json()), (200, completed));
    let other = json!({ "input": { "prompt": "né", "times": 1 } });
    assert_eq!(server.request("PUT", "/predictions/talk", HttpPayload::Json(&other)).status, 409);
    let bad = post(&server, "/predictions", &json!({ "input": { "prompt": "x".repeat(65) } }));
    assert_eq!((bad.status, bad.json()["code"].as_str()), (400, Some("bad_input")));
}

#[test]
fn cancelling_a_prediction_stops_its_plugin() {
    let home = tempfile::tempdir().unwrap();
    let server = with_teller(home.path(), &[]);
    let body = json!({ "input": { "prompt": "and so on ", "endless": 1 } });
    let mut events = put_for_events(&server, "endless", &body);
    while next_event(&mut events).unwrap().1 != "output" {}
    assert_eq!(server.get("/predictions/endless")["status"], "processing");
    let canceled = post(&server, "/predictions/endless/cancel", &Value::Null);
    assert_eq!((canceled.status, &canceled.json()["status"]), (200, &json!("canceled")));
    let last = std::iter::from_fn(|| next_event(&mut events)).last().unwrap();
    assert_eq!((last.1.as_str(), &last.2["status"]), ("completed", &json!("canceled")));
    let cancelled = r#"saggar_predict_requests_total{model="teller",outcome="cancelled",version="1"}"#;
    server.wait_for("the end of the call", |server| (server.metric(cancelled) == Some(1.0)).then_some(()));
    let in_flight = r#"saggar_predict_in_flight{model="teller",version="1"}"#;
    server.wait_for("its thread", |server| (server.metric(in_flight) == Some(0.0)).then_some(()));
    assert_eq!(post(&server, "/predictions", &json!({ "input": { "prompt": "a" } })).json()["output"]["said"], "a");
}

/// Starts a receiver that responds to requests with `statuses` and then 200, and sends their paths and bodies over the
/// channel.
fn webhook_receiver(statuses: Vec<u16>) -> (u16, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let mut statuses = statuses.into_iter();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (Vec::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                head.push(line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let status = statuses.next().unwrap_or(200);
            let answer = format!(
                "HTTP/1.1 {status} x\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).unwrap();
            let path = head[0].split(' ').nth(1).unwrap().to_owned();
            if sender.send((path, serde_json::from_slice(&body).unwrap())).is_err() {
                return;
            }
        }
    });
    (port, heard)
}

#[test]
fn webhooks_go_only_to_allowed_hosts_and_are_retried() {
    let (port, heard) = webhook_receiver(vec![200, 503]);
    let home = tempfile::tempdir().unwrap();
    let allowed = format!("http://127.0.0.1:{port}/hooks");
    let server = with_teller(home.path(), &["--allow-webhook", &allowed]);
    let asked = |address: &str| json!({ "input": { "prompt": "hi" }, "webhook": address });
    for address in
        [format!("http://127.0.0.1:{port}/other"), "http://127.0.0.1:1/hooks".to_owned(), "file:///etc".to_owned()]
    {
        let refused = post(&server, "/predictions", &asked(&address));
        assert_eq!(
            (refused.status, refused.json()["code"].as_str()),
            (422, Some("webhook_refused")),
            "{}",
            refused.text
        );
    }
    let secret = format!("{allowed}/mine?token=swordfish");
    let done = post(&server, "/predictions", &asked(&secret)).json();
    assert_eq!(done["status"], "succeeded");
    let next = || heard.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    let (path, started) = next();
    assert_eq!((path.as_str(), &started["id"]), ("/hooks/mine?token=swordfish", &done["id"]));
    // The response was 503, so it is sent again.
    let (_, first) = next();
    let (_, second) = next();
    assert_eq!((&first, &second), (&done, &done));
    let log = std::fs::read_to_string(home.path().join("server.log")).unwrap();
    assert!(!log.contains("swordfish"), "{log}");
    assert!(!done.to_string().contains("swordfish"));
}

/// A redirect could lead to an address that the operator never allowed.
#[test]
fn webhooks_follow_no_redirect() {
    let (port, heard) = webhook_receiver(vec![302]);
    let home = tempfile::tempdir().unwrap();
    let allowed = format!("http://127.0.0.1:{port}/");
    let server = with_teller(home.path(), &["--allow-webhook", &allowed]);
    let body = json!({ "input": { "prompt": "hi" }, "webhook": allowed, "webhook_events_filter": ["completed"] });
    assert_eq!(post(&server, "/predictions", &body).status, 200);
    heard.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    server.wait_for_log("webhook not delivered");
    let log = std::fs::read_to_string(home.path().join("server.log")).unwrap();
    assert!(log.contains("it answered 302, so it is not tried again"), "{log}");
}
