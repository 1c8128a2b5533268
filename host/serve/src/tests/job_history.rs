//! Long job histories: events, attempts' logs, metrics.

use axum::body::Body;
use axum::http::Request;
use futures::StreamExt;
use saggar_jobs::logs::LogWriter;
use saggar_store::records::{AttemptUsage, JobState, MetricPoint, StateReason};
use serde_json::{Value, json};

use super::fixture::{ServerFixture, TestResponse};
use crate::limits::{EVENTS_SHOWN_MAX, LOG_PIECE_BYTES};

/// Submits a job of the project `digits` and returns its identifier.
async fn submit(fixture: &ServerFixture) -> String {
    let plugin = fixture.post("/api/v1/plugins", "application/wasm", "plugin trains").await.json();
    let spec = json!({ "project": "digits", "plugin": plugin["digest"] });
    fixture.post_json("/api/v1/jobs", &spec.to_string()).await.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_job_shows_its_newest_events_and_older_ones_can_be_listed() {
    let fixture = ServerFixture::new();
    let id = submit(&fixture).await;
    let lease = fixture.claim(u64::MAX >> 1).lease;
    fixture.records.set_state(&lease, JobState::Running, &StateReason::default(), 5).unwrap();
    let event = |kind: &str, text: &str, at| fixture.records.record_event(&id, kind, text, at).unwrap();
    event("PUBLISHED", "published digits@3", 6);
    event("PHASE", "post", 7);
    let most = u64::from(EVENTS_SHOWN_MAX);
    (0..2 * most).for_each(|at| event("CHECKPOINT_SAVED", &at.to_string(), 8 + at));
    let job = fixture.get("/api/v1/jobs/digits-1").await.json();
    let sequences = |answer: &Value| -> Vec<u64> {
        answer["events"].as_array().unwrap().iter().map(|event| event["sequence"].as_u64().unwrap()).collect()
    };
    let newest = sequences(&job);
    assert_eq!(newest.len() as u64, most);
    assert!(newest.is_sorted());
    assert_eq!(job["events"][0]["text"], most.to_string());
    assert_eq!(job["events"].as_array().unwrap().last().unwrap()["text"], (2 * most - 1).to_string());
    // These come from events that are not among those shown.
    assert_eq!(job["published"], json!([{ "model": "digits", "version": 3 }]));
    let phases: Vec<&str> =
        job["phases"].as_array().unwrap().iter().filter_map(|phase| phase["name"].as_str()).collect();
    assert_eq!(phases, ["train", "post"]);
    let all = sequences(&fixture.get("/api/v1/jobs/digits-1/events").await.json());
    assert!(all.len() as u64 > 2 * most && all.ends_with(&newest));
    let rest = fixture.get(&format!("/api/v1/jobs/digits-1/events?after={}", newest[0])).await.json();
    assert_eq!(sequences(&rest), newest[1..]);
}

#[tokio::test]
async fn a_page_of_jobs_includes_the_details_of_each_job() {
    let fixture = ServerFixture::new();
    for _ in 0..3 {
        submit(&fixture).await;
    }
    for (number, seconds) in [(1, 2.0), (2, 4.0)] {
        let lease = fixture.claim(u64::MAX >> 1).lease;
        let usage = AttemptUsage { wall_seconds: seconds, ..AttemptUsage::default() };
        fixture.records.record_progress(&lease, 1, 9, &usage).unwrap();
        let point = MetricPoint { name: "loss".to_owned(), step: number, value: seconds / 8.0, at_ms: 1 };
        fixture.records.record_metrics(&lease, &[point]).unwrap();
    }
    let listed = fixture.get("/api/v1/jobs").await.json();
    let answered: Vec<Value> = listed["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| json!([job["name"], job["wall_seconds"], job["metrics"]]))
        .collect();
    let expected = [
        json!(["digits-3", 0.0, {}]),
        json!(["digits-2", 4.0, { "loss": 0.5 }]),
        json!(["digits-1", 2.0, { "loss": 0.25 }]),
    ];
    assert_eq!(answered, expected);
    for (at, name) in ["digits-3", "digits-2", "digits-1"].into_iter().enumerate() {
        let one = fixture.get(&format!("/api/v1/jobs/{name}")).await.json();
        for key in ["metrics", "wall_seconds", "attempt", "hints", "time"] {
            assert_eq!(one[key], listed["jobs"][at][key], "{name} {key}");
        }
    }
}

#[tokio::test]
async fn a_metric_series_requested_twice_is_returned_once() {
    let fixture = ServerFixture::new();
    submit(&fixture).await;
    let lease = fixture.claim(u64::MAX >> 1).lease;
    let point = |name: &str, step| MetricPoint { name: name.to_owned(), step, value: 0.5, at_ms: 7 };
    fixture.records.record_metrics(&lease, &[point("loss", 1), point("accuracy", 2), point("loss", 3)]).unwrap();
    let answer = fixture.get("/api/v1/jobs/digits-1/metrics?series=loss,accuracy,loss,loss&times=1").await;
    assert_eq!(answer.header("content-type"), "application/json");
    let answered = answer.json();
    let expected = json!([
        { "name": "loss", "points": [[1, 0.5, 7], [3, 0.5, 7]] },
        { "name": "accuracy", "points": [[2, 0.5, 7]] },
    ]);
    assert_eq!((&answered["series"], &answered["next"]), (&expected, &Value::Null));
    assert_eq!(fixture.get("/api/v1/jobs/digits-1/metrics?series=none").await.json()["series"][0]["points"], json!([]));
}

/// Writes attempts whose logs have several chunks each, and one without lines.
async fn long_logs(fixture: &ServerFixture) -> (String, LogWriter) {
    let id = submit(fixture).await;
    let line = "x".repeat(1000);
    let lines = 2 * LOG_PIECE_BYTES as usize / line.len();
    for attempt in 1..=4 {
        let lease = fixture.claim(u64::MAX >> 1).lease;
        if attempt == 3 {
            fixture.records.requeue(&lease, &StateReason::new("HOST_RESTART", ""), 0, 9).unwrap();
            continue;
        }
        let mut log = LogWriter::open(&*fixture.home.job_files(), &id, attempt).unwrap();
        for at in 0..lines {
            log.write_line(i64::from(attempt) * 1_000_000 + at as i64, &format!("{attempt} {at} {line}")).unwrap();
        }
        if attempt == 4 {
            return (id, log);
        }
        fixture.records.requeue(&lease, &StateReason::new("HOST_RESTART", ""), 0, 9).unwrap();
    }
    unreachable!("the fourth attempt is the last")
}

#[tokio::test]
async fn a_log_tail_spans_attempts_and_can_be_followed() {
    let fixture = ServerFixture::new();
    let (_, mut log) = long_logs(&fixture).await;
    let path = "/api/v1/jobs/digits-1/logs";
    let whole = fixture.get(path).await.text();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    for tail in [0, 1, 2, 260, 524, 525, 700, 1100, lines.len() - 1, lines.len(), lines.len() + 9] {
        let expected = lines[lines.len().saturating_sub(tail)..].concat();
        assert!(fixture.get(&format!("{path}?tail={tail}")).await.text() == expected, "tail={tail}");
    }
    let second: Vec<&&str> = lines.iter().filter(|line| line.starts_with("2 ")).collect();
    let answered = fixture.get(&format!("{path}?attempt=2&tail=10000")).await.text();
    assert!(answered.split_inclusive('\n').eq(second.iter().map(|line| **line)));
    assert_eq!(fixture.get(&format!("{path}?attempt=3&tail=9")).await.text(), "");
    // Starting at the 500th line of the second attempt.
    let since = fixture.get(&format!("{path}?since=2000500&tail=10000")).await.text();
    let at = lines.iter().position(|line| line.starts_with("2 500 ")).unwrap();
    assert!(since == lines[at..].concat());
    // The event ids are the positions after the lines, so that a client resumes without a gap.
    let events = |last: Option<String>, query: &str| {
        let request = Request::get(format!("{path}{query}")).header("accept", "text/event-stream");
        let request = last.iter().fold(request, |request, last| request.header("last-event-id", last));
        let sent = fixture.send(request.body(Body::empty()).unwrap());
        async { TestResponse::from_response(sent.await).await.text() }
    };
    let answered = events(None, "?tail=600").await;
    let first = answered.lines().next().unwrap().strip_prefix("id: ").unwrap().to_owned();
    let rest = events(Some(first), "").await;
    assert!(answered.split_once("\n\n").unwrap().1 == rest);
    // Reading continues after the last existing line.
    let follow = Request::get(format!("{path}?tail=1&follow=1")).body(Body::empty()).unwrap();
    let mut stream = fixture.send(follow).await.into_body().into_data_stream();
    assert_eq!(stream.next().await.unwrap().unwrap(), *lines.last().unwrap());
    log.write_line(5_000_000, "one more").unwrap();
    submit(&fixture).await;
    assert_eq!(stream.next().await.unwrap().unwrap(), "one more\n");
}
