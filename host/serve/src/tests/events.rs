//! Jobs and logs as server-sent events.

use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use axum::response::Response;
use futures::StreamExt;
use saggar_jobs::logs::{LogWriter, TIMESTAMP_BYTES};
use serde_json::{Value, json};

use super::fixture::{ServerFixture, TestResponse};
use crate::limits::EVENT_STREAMS_EACH_MAX;

/// An event: its number, name and data.
#[derive(Debug)]
struct ReceivedEvent {
    id: Option<String>,
    name: String,
    data: String,
}

impl ReceivedEvent {
    fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }

    /// Returns the event's text for comparison: a job's name and state, or the kind of a job event.
    fn summary(&self) -> String {
        let json = self.json();
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        match self.name.as_str() {
            "job" => format!("job {} {}", text("name"), text("state")),
            "gone" => format!("gone {}", text("name")),
            "note" => format!("note {} {}", text("job"), text("kind")),
            name => format!("{name} {} {}", json["jobs"], json["cursor"]),
        }
    }
}

fn parse_events(text: &str) -> Vec<ReceivedEvent> {
    let event = |block: &str| {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let text = |name: &str| field(name).unwrap_or_else(|| panic!("no {name} in {block:?}")).to_owned();
        ReceivedEvent { id: field("id").map(str::to_owned), name: text("event"), data: text("data") }
    };
    text.split_terminator("\n\n").filter(|block| !block.starts_with(':')).map(event).collect()
}

fn summaries(events: &[ReceivedEvent]) -> Vec<String> {
    events.iter().map(ReceivedEvent::summary).collect()
}

/// Submits a job of this project, which is queued.
async fn submit(fixture: &ServerFixture, project: &str) -> Value {
    let plugin = fixture.post("/api/v1/plugins", "application/wasm", "plugin trains").await.json();
    let spec = json!({ "project": project, "plugin": plugin["digest"] });
    fixture.post_json("/api/v1/jobs", &spec.to_string()).await.json()
}

async fn stop(fixture: &ServerFixture, job: &str) {
    let answer = fixture.post_json(&format!("/api/v1/jobs/{job}/stop"), "").await;
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
}

async fn open_stream(fixture: &ServerFixture, path: &str, last: Option<&str>) -> Response {
    let request = Request::get(path).header("accept", "text/event-stream");
    let request = last.into_iter().fold(request, |request, last| request.header("last-event-id", last));
    fixture.send(request.body(Body::empty()).unwrap()).await
}

/// Reads a stream until `enough` returns true.
async fn read_until(stream: &mut BodyDataStream, enough: impl Fn(&[ReceivedEvent]) -> bool) -> Vec<ReceivedEvent> {
    let mut text = String::new();
    while !enough(&parse_events(&text)) {
        let piece = stream.next().await.expect("the stream has not ended").unwrap();
        text += std::str::from_utf8(&piece).unwrap();
    }
    parse_events(&text)
}

#[tokio::test]
async fn a_stream_lists_all_jobs_and_ends_without_follow() {
    let fixture = ServerFixture::new();
    assert_eq!(summaries(&parse_events(&fixture.get("/api/v1/events").await.text())), ["ready 0 null"]);
    for project in ["digits", "digits", "letters"] {
        submit(&fixture, project).await;
    }
    let answer = fixture.get("/api/v1/events").await;
    assert_eq!((answer.header("content-type"), answer.header("cache-control")), ("text/event-stream", "no-store"));
    let events = parse_events(&answer.text());
    let all = ["job letters-1 QUEUED", "job digits-2 QUEUED", "job digits-1 QUEUED", "ready 3 null"];
    assert_eq!(summaries(&events), all);
    assert_eq!(events[0].json(), fixture.get("/api/v1/jobs?limit=1").await.json()["jobs"][0]);

    let project = fixture.get("/api/v1/events?project=letters").await;
    assert_eq!(summaries(&parse_events(&project.text()))[0], "job letters-1 QUEUED");
    let job = fixture.get("/api/v1/events?job=digits-1").await;
    assert_eq!(summaries(&parse_events(&job.text())), ["job digits-1 QUEUED", "ready 1 null"]);
    assert_eq!(fixture.get("/api/v1/events?job=none-1").await.error().0, 404);
}

#[tokio::test]
async fn a_following_stream_sends_only_changes_and_their_events() {
    let fixture = ServerFixture::new();
    submit(&fixture, "digits").await;
    let mut stream = open_stream(&fixture, "/api/v1/events?follow=1", None).await.into_body().into_data_stream();
    let first = read_until(&mut stream, |events| events.iter().any(|one| one.name == "ready")).await;
    assert_eq!(first.len(), 2, "{first:?}");

    submit(&fixture, "letters").await;
    let events = read_until(&mut stream, |events| events.iter().any(|one| one.name == "note")).await;
    assert_eq!(summaries(&events), ["job letters-1 QUEUED", "note letters-1 SUBMITTED"]);
    let seen: u64 = events[1].id.as_deref().unwrap().parse().unwrap();
    assert_eq!(events[1].json()["sequence"], seen);

    // The job behind it moves up in the queue.
    stop(&fixture, "digits-1").await;
    let is_over = |events: &[ReceivedEvent]| events.iter().any(|one| one.summary() == "note digits-1 CANCELLED");
    let events = read_until(&mut stream, is_over).await;
    let jobs: Vec<&ReceivedEvent> = events.iter().filter(|one| one.name == "job").collect();
    assert_eq!(jobs[0].summary(), "job letters-1 QUEUED");
    assert_eq!((jobs[0].json()["position"].as_u64(), jobs[1].summary().as_str()), (Some(1), "job digits-1 CANCELLED"));

    let gone = Request::delete("/api/v1/jobs/digits-1").body(Body::empty()).unwrap();
    assert_eq!(fixture.send(gone).await.status().as_u16(), 200);
    let events = read_until(&mut stream, |events| events.iter().any(|one| one.name == "gone")).await;
    assert_eq!(summaries(&events), ["gone digits-1"]);

    let notes = async |last: u64| {
        let answer =
            TestResponse::from_response(open_stream(&fixture, "/api/v1/events", Some(&last.to_string())).await).await;
        let notes = parse_events(&answer.text()).into_iter().filter(|one| one.name == "note");
        notes.map(|one| one.summary()).collect::<Vec<_>>()
    };
    assert_eq!(notes(seen - 1).await, ["note letters-1 SUBMITTED"]);
    assert!(notes(seen).await.is_empty());
    let refused = TestResponse::from_response(open_stream(&fixture, "/api/v1/events", Some("x")).await).await.error();
    assert_eq!((refused.0, &*refused.2), (400, "Last-Event-ID: expected the number of an event, got \"x\""));
}

#[tokio::test]
async fn a_stream_ends_with_the_server() {
    let fixture = ServerFixture::new();
    submit(&fixture, "digits").await;
    for path in ["/api/v1/events?follow=1", "/api/v1/jobs/digits-1/logs?follow=1"] {
        let mut stream = open_stream(&fixture, path, None).await.into_body().into_data_stream();
        if path.contains("events") {
            read_until(&mut stream, |events| events.iter().any(|one| one.name == "ready")).await;
        }
        fixture.stop.send(true).unwrap();
        assert!(stream.next().await.is_none(), "{path} goes on");
        fixture.stop.send(false).unwrap();
    }
}

#[tokio::test]
async fn streams_per_client_are_limited() {
    let fixture = ServerFixture::new();
    submit(&fixture, "digits").await;
    let mut streams = Vec::new();
    for _ in 0..EVENT_STREAMS_EACH_MAX / 2 {
        streams.push(open_stream(&fixture, "/api/v1/events?follow=1", None).await);
        streams.push(open_stream(&fixture, "/api/v1/jobs/digits-1/logs?follow=1", None).await);
    }
    for path in ["/api/v1/events", "/api/v1/jobs/digits-1/logs"] {
        let refused = TestResponse::from_response(open_stream(&fixture, path, None).await).await;
        assert_eq!(refused.header("retry-after"), "1");
        let refused = refused.error();
        assert_eq!((refused.0, &*refused.1), (429, "streams_full"), "{path}");
    }
    // The limit also applies to logs followed as plain text.
    assert_eq!(fixture.get("/api/v1/jobs/digits-1/logs?follow=1").await.error().1, "streams_full");
    // A log that is not followed is not a stream.
    assert_eq!(fixture.get("/api/v1/jobs/digits-1/logs").await.status.as_u16(), 200);
    streams.pop();
    assert_eq!(open_stream(&fixture, "/api/v1/events", None).await.status().as_u16(), 200);
}

/// Submits a job whose log has these lines.
async fn job_with_log(fixture: &ServerFixture, lines: &[&str]) -> LogWriter {
    let id = submit(fixture, "digits").await["id"].as_str().unwrap().to_owned();
    let mut log = LogWriter::open(&*fixture.home.job_files(), &id, 1).unwrap();
    for (second, line) in lines.iter().enumerate() {
        log.write_line(1_000 * second as i64, line).unwrap();
    }
    log
}

#[tokio::test]
async fn log_events_are_numbered_and_resume_after_last_event_id() {
    let fixture = ServerFixture::new();
    job_with_log(&fixture, &["one", "zwölf", ""]).await;
    let path = "/api/v1/jobs/digits-1/logs";
    let whole = TestResponse::from_response(open_stream(&fixture, path, None).await).await;
    assert_eq!(whole.header("content-type"), "text/event-stream");
    let events = parse_events(&whole.text());
    let said: Vec<(&str, &str)> = events.iter().map(|one| (one.name.as_str(), one.data.as_str())).collect();
    assert_eq!(said, [("line", "one"), ("line", "zwölf"), ("line", ""), ("end", "{}")]);
    assert_eq!(events[0].id.as_deref(), Some("1:29"));

    let rest = async |last: &str, path: &str| {
        parse_events(&TestResponse::from_response(open_stream(&fixture, path, Some(last)).await).await.text())
    };
    let after = rest("1:29", path).await;
    assert_eq!(after[0].data, "zwölf");
    assert_eq!(after[0].id, events[1].id);
    let timed = rest("1:0", &format!("{path}?timestamps=1&tail=1")).await;
    assert_eq!(timed[0].data, "1970-01-01T00:00:00.000Z one");
    let tail = parse_events(
        &TestResponse::from_response(open_stream(&fixture, &format!("{path}?tail=2"), None).await).await.text(),
    );
    assert_eq!((tail.len(), tail[0].id.as_deref()), (3, events[1].id.as_deref()));

    for last in ["", "1", "0:0", "1:30", "1:57", "1:99999", "x:y", "1:-1"] {
        let refused = TestResponse::from_response(open_stream(&fixture, path, Some(last)).await).await.error();
        assert_eq!(refused.0, 400, "{last}");
    }
    // The plain text is unchanged.
    assert_eq!(fixture.get(path).await.text(), "one\nzwölf\n\n");
}

#[tokio::test]
async fn since_omits_older_log_lines() {
    let fixture = ServerFixture::new();
    let mut log = job_with_log(&fixture, &["old"]).await;
    let now = i64::try_from(fixture.app.now_ms()).unwrap();
    for (minutes, line) in [(30, "half an hour"), (2, "two minutes"), (0, "now")] {
        log.write_line(now - minutes * 60_000, line).unwrap();
    }
    let path = "/api/v1/jobs/digits-1/logs";
    let since = async |since: &str| fixture.get(&format!("{path}?since={since}")).await.text();
    assert_eq!(since("10m").await, "two minutes\nnow\n");
    assert_eq!(since("1h").await, "half an hour\ntwo minutes\nnow\n");
    assert_eq!(since("1970-01-01T00:00:00Z").await, "old\nhalf an hour\ntwo minutes\nnow\n");
    assert_eq!(since(&(now - 60_000).to_string()).await, "now\n");
    assert_eq!(since(&(now + 60_000).to_string()).await, "");
    assert_eq!(since("10m&tail=1").await, "now\n");
    assert_eq!(since("10m&tail=9").await, "two minutes\nnow\n");
    assert_eq!(since("1h&prefix=1").await.lines().next(), Some("digits-1/1 half an hour"));
    assert!(since("1h&timestamps=1").await.lines().all(|line| line.as_bytes()[TIMESTAMP_BYTES - 1] == b' '));
    let events = TestResponse::from_response(open_stream(&fixture, &format!("{path}?since=10m"), None).await).await;
    let events: Vec<String> = parse_events(&events.text()).into_iter().map(|one| one.data).collect();
    assert_eq!(events, ["two minutes", "now", "{}"]);
    for bad in ["yesterday", "10x", "2026-13-01T00:00:00Z"] {
        let (status, code, message) = fixture.get(&format!("{path}?since={bad}")).await.error();
        assert_eq!((status, code.as_str()), (400, "bad_parameter"), "{message}");
        assert!(message.starts_with("since: expected a duration before now such as 10m"), "{message}");
    }
}

#[tokio::test]
async fn a_followed_log_streams_new_lines_and_an_end_event() {
    let fixture = ServerFixture::new();
    let mut log = job_with_log(&fixture, &["one"]).await;
    let path = "/api/v1/jobs/digits-1/logs?follow=1";
    let mut stream = open_stream(&fixture, path, None).await.into_body().into_data_stream();
    let first = read_until(&mut stream, |events| !events.is_empty()).await;
    assert_eq!(first[0].data, "one");
    log.write_line(0, "two").unwrap();
    stop(&fixture, "digits-1").await;
    let rest = read_until(&mut stream, |events| events.last().is_some_and(|one| one.name == "end")).await;
    assert_eq!((rest.len(), rest[0].data.as_str()), (2, "two"));
    assert!(stream.next().await.is_none());
}
