//! What a job did, where there is much of it.

use axum::body::Body;
use axum::http::Request;
use futures::StreamExt;
use saggar_jobs::logs::LogWriter;
use saggar_store::records::{Reason, Records};
use serde_json::json;

use super::fixture::{Answer, Fixture};
use crate::limits::LOG_PIECE_BYTES;

/// Submits a job of the project `digits`; its identifier.
async fn submit(fixture: &Fixture) -> String {
    let plugin = fixture.post("/api/v1/plugins", "application/wasm", "plugin trains").await.json();
    let spec = json!({ "project": "digits", "plugin": plugin["digest"] });
    fixture.post_json("/api/v1/jobs", &spec.to_string()).await.json()["id"].as_str().unwrap().to_owned()
}

/// Attempts whose logs are of several pieces, and one that wrote nothing.
async fn long_logs(fixture: &Fixture) -> (String, LogWriter) {
    let id = submit(fixture).await;
    let line = "x".repeat(1000);
    let lines = 2 * LOG_PIECE_BYTES as usize / line.len();
    for attempt in 1..=4 {
        let lease = fixture.claim(u64::MAX >> 1).lease;
        if attempt == 3 {
            fixture.records.requeue(&lease, &Reason::new("HOST_RESTART", ""), 0, 9).unwrap();
            continue;
        }
        let mut log = LogWriter::open(&fixture.home.jobs(), &id, attempt).unwrap();
        for at in 0..lines {
            log.line(i64::from(attempt) * 1_000_000 + at as i64, &format!("{attempt} {at} {line}")).unwrap();
        }
        if attempt == 4 {
            return (id, log);
        }
        fixture.records.requeue(&lease, &Reason::new("HOST_RESTART", ""), 0, 9).unwrap();
    }
    unreachable!("the fourth attempt is the last")
}

#[tokio::test]
async fn a_tail_reaches_over_attempts_and_is_gone_on_after() {
    let fixture = Fixture::new();
    let (_, mut log) = long_logs(&fixture).await;
    let path = "/api/v1/jobs/digits-1/logs";
    let whole = fixture.get(path).await.text();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    for tail in [0, 1, 2, 260, 524, 525, 700, 1100, lines.len() - 1, lines.len(), lines.len() + 9] {
        let expected = lines[lines.len().saturating_sub(tail)..].concat();
        assert!(fixture.get(&format!("{path}?tail={tail}")).await.text() == expected, "tail={tail}");
    }
    let second: Vec<&&str> = lines.iter().filter(|line| line.starts_with("2 ")).collect();
    let told = fixture.get(&format!("{path}?attempt=2&tail=10000")).await.text();
    assert!(told.split_inclusive('\n').eq(second.iter().map(|line| **line)));
    assert_eq!(fixture.get(&format!("{path}?attempt=3&tail=9")).await.text(), "");
    // From the 500th of the second attempt's lines on.
    let since = fixture.get(&format!("{path}?since=2000500&tail=10000")).await.text();
    let at = lines.iter().position(|line| line.starts_with("2 500 ")).unwrap();
    assert!(since == lines[at..].concat());
    // The events have the places after their lines, so a client goes on without a gap.
    let events = |last: Option<String>, query: &str| {
        let request = Request::get(format!("{path}{query}")).header("accept", "text/event-stream");
        let request = last.iter().fold(request, |request, last| request.header("last-event-id", last));
        let sent = fixture.send(request.body(Body::empty()).unwrap());
        async { Answer::of(sent.await).await.text() }
    };
    let told = events(None, "?tail=600").await;
    let first = told.lines().next().unwrap().strip_prefix("id: ").unwrap().to_owned();
    let rest = events(Some(first), "").await;
    assert!(told.split_once("\n\n").unwrap().1 == rest);
    // Reading goes on right after the last line there was.
    let follow = Request::get(format!("{path}?tail=1&follow=1")).body(Body::empty()).unwrap();
    let mut stream = fixture.send(follow).await.into_body().into_data_stream();
    assert_eq!(stream.next().await.unwrap().unwrap(), *lines.last().unwrap());
    log.line(5_000_000, "one more").unwrap();
    submit(&fixture).await;
    assert_eq!(stream.next().await.unwrap().unwrap(), "one more\n");
}
