//! Jobs, logs, plugins, datasets and devices.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use futures::StreamExt;
use saggar_clock::{Clock, SystemClock};
use saggar_jobs::logs::LogWriter;
use saggar_store::digest::Digest;
use saggar_store::records::{AttemptUsage, JobState, MetricPoint, StateReason};
use serde_json::{Value, json};

use super::fixture::{ServerFixture, TestResponse};

const WASM: &str = "application/wasm";

/// Uploads a plugin and returns its digest.
async fn upload_plugin(fixture: &ServerFixture, plugin: &str) -> String {
    let answer = fixture.post("/api/v1/plugins", WASM, plugin.to_owned()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["digest"].as_str().unwrap().to_owned()
}

async fn submit(fixture: &ServerFixture, spec: &Value) -> TestResponse {
    fixture.post_json("/api/v1/jobs", &spec.to_string()).await
}

/// Submits a job of the project `digits`. It is queued.
async fn submit_queued_job(fixture: &ServerFixture) -> Value {
    let plugin = upload_plugin(fixture, "plugin trains").await;
    let answer = submit(fixture, &json!({ "project": "digits", "plugin": plugin })).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()
}

/// Uploads a dataset of three items in chunks.
async fn push_dataset(fixture: &ServerFixture) -> Value {
    let description = json!({
        "format": "csv", "file": "a.csv",
        "fields": [{ "name": "x", "columns": [0, 2], "dtype": "float32" }, { "name": "y", "columns": [2, 3], "dtype": "uint8" }],
    });
    let contents = [("dataset.json", description.to_string()), ("a.csv", "1,2,0\n3,4,1\n5,6,0\n".to_owned())];
    let files: Vec<Value> = contents
        .iter()
        .map(|(path, text)| {
            let digest = Digest::of(text.as_bytes());
            json!({ "path": path, "size": text.len(), "sha256": digest, "chunks": [digest] })
        })
        .collect();
    let announcement = json!({ "name": "points", "files": files }).to_string();
    let begun = fixture.post_json("/api/v1/datasets", &announcement).await.json();
    let upload = format!("/api/v1/datasets/points/uploads/{}", begun["upload"].as_str().unwrap());
    assert_eq!(fixture.post_json(&format!("{upload}/commit"), "").await.error().0, 409);
    for (_, text) in &contents {
        let path = format!("{upload}/chunks/{}", Digest::of(text.as_bytes()));
        let wrong = Request::put(&path).body(Body::from("wrong")).unwrap();
        assert_eq!(TestResponse::from_response(fixture.send(wrong).await).await.error().0, 400);
        let right = Request::put(&path).body(Body::from(text.clone())).unwrap();
        assert_eq!(fixture.send(right).await.status(), 204);
    }
    assert_eq!(fixture.post_json("/api/v1/datasets", &announcement).await.json()["missing"], json!([]));
    fixture.post_json(&format!("{upload}/commit"), "").await.json()
}

#[tokio::test]
async fn uploaded_plugins_are_checked_and_stored() {
    let fixture = ServerFixture::new();
    let refused = fixture.post("/api/v1/plugins", WASM, "nonsense").await.error();
    assert_eq!((refused.0, refused.1.as_str()), (422, "bad_plugin"));
    let digest = upload_plugin(&fixture, "plugin trains predicts").await;
    assert_eq!(upload_plugin(&fixture, "plugin trains predicts").await, digest);
    let listed = fixture.get("/api/v1/plugins").await.json();
    let uploaded = |listed: &&Value| listed["reference"] == false;
    let uploaded: Vec<&Value> = listed["plugins"].as_array().unwrap().iter().filter(uploaded).collect();
    let expected = json!({ "digest": digest, "trains": true, "predicts": true, "is_step": false, "bytes": 22, "reference": false, "resume_test": null });
    assert_eq!(uploaded, [&expected]);
}

#[tokio::test]
async fn datasets_are_uploaded_in_chunks() {
    let fixture = ServerFixture::new();
    let info = push_dataset(&fixture).await;
    assert_eq!((&info["name"], &info["version"], &info["items"]), (&json!("points"), &json!(1), &json!(3)));
    assert_eq!(info["fields"][0]["shape"], json!([2]));
    assert_eq!(fixture.get("/api/v1/datasets").await.json(), json!({ "datasets": [info] }));
    assert_eq!(fixture.metric("saggar_dataset_bytes").await, Some(27.0));
    let unknown = format!("/api/v1/datasets/points/uploads/{}/commit", Digest::of(b"x"));
    assert_eq!(fixture.post_json(&unknown, "").await.error().0, 404);
    assert_eq!(fixture.post_json("/api/v1/datasets/points/uploads/x/commit", "").await.error().0, 400);
    let escape = json!({ "path": "../a", "size": 0, "sha256": Digest::of(b""), "chunks": [] });
    let escaped = json!({ "name": "points", "files": [escape] }).to_string();
    assert_eq!(fixture.post_json("/api/v1/datasets", &escaped).await.error().0, 400);
    let nameless = json!({ "name": "a/b", "files": [] }).to_string();
    assert_eq!(fixture.post_json("/api/v1/datasets", &nameless).await.error().0, 400);
}

#[tokio::test]
async fn a_job_with_unmet_requirements_is_refused_at_submission() {
    let fixture = ServerFixture::new();
    push_dataset(&fixture).await;
    let declared = json!({
        "parameters": { "batch": { "type": "integer", "min": 1.0 }, "optimizer": { "type": "text", "choices": ["sgd", "adam"] } },
        "data": { "/data": ["x"] },
    });
    let plugin = upload_plugin(&fixture, &format!("plugin trains|{declared}")).await;
    let data = json!([{ "dataset": "points", "mount": "/data" }]);
    let fine = json!({ "project": "digits", "plugin": plugin, "data": data, "parameters": { "batch": 1, "other": 0 } });
    assert_eq!(submit(&fixture, &fine).await.status, 201);
    let with = |field: &str, value: Value| {
        let mut spec = fine.clone();
        spec[field] = value;
        spec
    };
    let cases = [
        (with("parameters", json!({ "batch": 0 })), "parameters.batch: expected an integer of at least 1, got 0"),
        (
            with("parameters", json!({ "optimizer": "SGD" })),
            "parameters.optimizer: expected one of sgd, adam, got \"SGD\"",
        ),
        (with("data", json!([])), "data: the plugin reads a dataset at /data, but the job mounts none there"),
        (with("device", json!("vulkan:7")), "device: this machine has no vulkan:7; it has: auto, cpu"),
        (with("device", json!("gpu")), "device: this machine has no gpu; it has: auto, cpu"),
        (with("secrets", json!(["nope"])), "secret nope"),
    ];
    for (spec, words) in cases {
        let answer = submit(&fixture, &spec).await;
        let (status, _, message) = answer.error();
        assert!(matches!(status, 400 | 404) && message.contains(words), "{status} {message}");
    }
    let (.., message) = submit(&fixture, &with("secrets", json!(["nope"]))).await.error();
    assert!(
        message.contains("no secrets are stored; store one for digits: `saggar secret set nope --project digits`"),
        "{message}"
    );
    let fields = json!({ "data": { "/data": ["x", "image"] } });
    let plugin = upload_plugin(&fixture, &format!("plugin trains too|{fields}")).await;
    let (status, _, message) = submit(&fixture, &with("plugin", json!(plugin))).await.error();
    assert_eq!(status, 400);
    assert!(message.contains("the field `image` of /data, but dataset points/1 lacks it; it has: "), "{message}");
    let listed = fixture.get("/api/v1/plugins").await.json();
    let plugins = listed["plugins"].as_array().unwrap();
    assert!(plugins.iter().any(|plugin| plugin["declares"] == declared), "{listed}");
}

async fn delete(fixture: &ServerFixture, path: &str) -> TestResponse {
    TestResponse::from_response(fixture.send(Request::delete(path).body(Body::empty()).unwrap()).await).await
}

#[tokio::test]
async fn a_dataset_version_is_exported_and_removed() {
    let fixture = ServerFixture::new();
    let info = push_dataset(&fixture).await;
    assert_eq!(info["used_by"], json!([]));
    let tar = fixture.get("/api/v1/datasets/points/1/export").await;
    assert_eq!((tar.status.as_u16(), &tar.body[257..262]), (200, &b"ustar"[..]));
    assert_eq!(tar.body.len() % 512, 0);
    for path in ["none/1", "points/2", "points/x", "points/01"] {
        assert_eq!(fixture.get(&format!("/api/v1/datasets/{path}/export")).await.error().0, 404, "{path}");
        assert_eq!(delete(&fixture, &format!("/api/v1/datasets/{path}")).await.error().0, 404, "{path}");
    }
    let plugin = upload_plugin(&fixture, "plugin trains").await;
    let mounts = json!([{ "dataset": "points", "mount": "/a" }, { "dataset": "points", "mount": "/b" }]);
    let spec = json!({ "project": "digits", "plugin": plugin, "data": mounts });
    for _ in 0..2 {
        assert_eq!(submit(&fixture, &spec).await.status, 201);
    }
    let used = fixture.get("/api/v1/datasets").await.json();
    assert_eq!(used["datasets"][0]["used_by"], json!(["digits-2", "digits-1"]));
    let (status, code, message) = delete(&fixture, "/api/v1/datasets/points/1").await.error();
    assert_eq!((status, code.as_str()), (409, "conflict"));
    assert!(message.contains("digits-1") && message.contains("digits-2"), "{message}");
    for job in ["digits-1", "digits-2"] {
        assert_eq!(fixture.post_json(&format!("/api/v1/jobs/{job}/stop"), "").await.status, 200);
    }
    let over = fixture.get("/api/v1/datasets").await.json();
    let users = (&over["datasets"][0]["used_by"], &over["datasets"][0]["was_used_by"]);
    assert_eq!(users, (&json!([]), &json!(["digits-2", "digits-1"])), "finished jobs are listed too");
    assert_eq!(delete(&fixture, "/api/v1/datasets/points/1").await.json(), json!({ "freed_bytes": 27 }));
    assert_eq!(fixture.get("/api/v1/datasets").await.json(), json!({ "datasets": [] }));
    assert_eq!(fixture.metric("saggar_dataset_bytes").await, Some(0.0));
    let audit = std::fs::read_to_string(fixture.home.audit_log()).unwrap();
    assert!(audit.lines().last().unwrap().contains(r#""action":"dataset.remove","dataset":"points/1""#), "{audit}");
    assert_eq!(push_dataset(&fixture).await["version"], 2, "the number is not reused");
}

#[tokio::test]
async fn a_job_output_becomes_a_dataset_version() {
    let fixture = ServerFixture::new();
    let job = submit_queued_job(&fixture).await;
    let take = async |body: Value| fixture.post_json("/api/v1/datasets/lines/from-job", &body.to_string()).await;
    let refused = take(json!({ "job": "digits-1" })).await.error();
    assert_eq!(refused.0, 404, "{refused:?}");
    fixture.home.job_files().write_output(job["id"].as_str().unwrap(), "texts/a.txt", b"one\ntwo\n").unwrap();
    let response = take(json!({ "job": "digits-1", "path": "texts" })).await;
    assert_eq!((response.status.as_u16(), &response.json()["items"]), (201, &json!(2)));
    for (body, status) in [
        (json!({ "job": "digits-9" }), 404),
        (json!({ "job": "digits-1", "path": "none" }), 404),
        (json!({ "job": "digits-1", "path": "../x" }), 400),
        (json!({ "job": "digits-1" }), 422),
        (json!({ "path": "texts" }), 400),
    ] {
        assert_eq!(take(body.clone()).await.error().0, status, "{body}");
    }
}

#[tokio::test]
async fn a_submitted_job_pins_its_dataset_versions() {
    let fixture = ServerFixture::new();
    push_dataset(&fixture).await;
    let plugin = upload_plugin(&fixture, "plugin trains").await;
    let spec = json!({
        "project": "digits", "plugin": plugin, "retry": 2, "message": "first",
        "data": [{ "dataset": "points", "mount": "/data" }],
    });
    let job = submit(&fixture, &spec).await;
    assert_eq!(job.status, 201);
    let job = job.json();
    assert_eq!(job["name"], "digits-1");
    assert_eq!((&job["state"], &job["position"], &job["attempts_max"]), (&json!("QUEUED"), &json!(1), &json!(3)));
    // Not -0.0, which compares equal.
    assert!(job["gpu_seconds"].as_f64().unwrap().is_sign_positive(), "{job}");
    assert_eq!(job["spec"]["data"][0]["version"], 1);
    assert_eq!(job["description"], "first");
}

#[tokio::test]
async fn a_job_that_cannot_run_is_refused() {
    let fixture = ServerFixture::new();
    let plugin = upload_plugin(&fixture, "plugin trains").await;
    let predicts = upload_plugin(&fixture, "plugin predicts").await;
    let data = |dataset: &str, version: u64| json!([{ "dataset": dataset, "version": version, "mount": "/data" }]);
    let cases = [
        (json!({ "project": "digits" }), 400, "plugin: expected the 64 hexadecimal digits"),
        (json!({ "project": "digits", "plugin": "x" }), 400, "plugin: expected the 64 hexadecimal digits"),
        (json!({ "project": "Digits!", "plugin": plugin }), 400, "project: invalid name \"Digits!\""),
        (
            json!({ "project": "digits", "plugin": plugin, "nonsense": 1 }),
            400,
            "body: nonsense: there is no `nonsense`",
        ),
        (json!({ "project": "digits", "plugin": "0".repeat(64) }), 404, "no plugin 000"),
        (json!({ "project": "digits", "plugin": predicts }), 422, "plugin "),
        (json!({ "project": "digits", "plugin": plugin, "data": data("none", 1) }), 404, "no dataset none/1"),
    ];
    for (spec, status, error) in cases {
        let found = submit(&fixture, &spec).await.error();
        assert_eq!(found.0, status, "{found:?}");
        assert!(found.2.starts_with(error), "{found:?}");
    }
    assert_eq!(fixture.post_json("/api/v1/jobs", "{").await.error().1, "bad_json");
    assert_eq!(fixture.get("/api/v1/jobs").await.json()["jobs"], json!([]));
}

#[tokio::test]
async fn an_idempotency_key_makes_one_job_of_two_requests() {
    let fixture = ServerFixture::new();
    let plugin = upload_plugin(&fixture, "plugin trains").await;
    let spec = |plugin: &str| json!({ "project": "digits", "plugin": plugin }).to_string();
    let mut names = Vec::new();
    // On the third request, what the job refers to no longer exists; the existing job is returned anyway.
    for spec in [spec(&plugin), spec(&plugin), spec(&"0".repeat(64))] {
        let request = Request::post("/api/v1/jobs").header("idempotency-key", "k").body(Body::from(spec.clone()));
        let answer = TestResponse::from_response(fixture.send(request.unwrap()).await).await;
        names.push(answer.json()["name"].as_str().unwrap().to_owned());
    }
    assert_eq!(names, ["digits-1", "digits-1", "digits-1"]);
}

#[tokio::test]
async fn jobs_are_listed_in_pages_and_by_state() {
    let fixture = ServerFixture::new();
    for _ in 0..5 {
        submit_queued_job(&fixture).await;
    }
    let mut names = Vec::new();
    let mut path = "/api/v1/jobs?limit=2".to_owned();
    loop {
        let page = fixture.get(&path).await.json();
        names.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["cursor"].as_u64() else { break };
        path = format!("/api/v1/jobs?limit=2&cursor={cursor}");
    }
    assert_eq!(names, ["digits-5", "digits-4", "digits-3", "digits-2", "digits-1"]);
    let stopped = fixture.post_json("/api/v1/jobs/digits-2/stop", "").await.json();
    assert_eq!(stopped["state"], "CANCELLED");
    assert_eq!(fixture.post_json("/api/v1/jobs/digits-2/stop", "").await.error().0, 409);
    let count = |path: &'static str| async { fixture.get(path).await.json()["jobs"].as_array().unwrap().len() };
    assert_eq!(count("/api/v1/jobs?state=CANCELLED").await, 1);
    assert_eq!(count("/api/v1/jobs?state=queued,cancelled").await, 5);
    assert_eq!(count("/api/v1/jobs?project=other").await, 0);
    assert_eq!(fixture.get("/api/v1/jobs?state=DREAMING").await.error().0, 400);
    assert_eq!(fixture.get("/api/v1/jobs?limit=many").await.error().0, 400);
}

#[tokio::test]
async fn a_job_response_has_every_detail() {
    let fixture = ServerFixture::new();
    let id = submit_queued_job(&fixture).await["id"].as_str().unwrap().to_owned();
    let now = SystemClock.now_ms();
    let claim = fixture.claim(now);
    fixture.records.set_device(&claim.lease, "cpu", false).unwrap();
    fixture.records.set_state(&claim.lease, JobState::Running, &StateReason::default(), now).unwrap();
    let usage =
        AttemptUsage { first_step: 1, last_step: 7, wall_seconds: 2.5, gpu_seconds: 1.5, ..AttemptUsage::default() };
    fixture.records.record_progress(&claim.lease, 7, 100, &usage).unwrap();
    let point = |step, value| MetricPoint { name: "loss".to_owned(), step, value, at_ms: now };
    fixture.records.record_metrics(&claim.lease, &[point(6, 0.5), point(7, f64::NAN)]).unwrap();
    for path in ["digits-1", &id] {
        let job = fixture.get(&format!("/api/v1/jobs/{path}")).await.json();
        assert_eq!((&job["state"], &job["attempt"], &job["step"]), (&json!("RUNNING"), &json!(1), &json!(7)));
        assert_eq!(
            (&job["wall_seconds"], &job["gpu_seconds"], &job["device"]),
            (&json!(2.5), &json!(1.5), &json!("cpu"))
        );
        assert_eq!(job["attempts"][0]["last_step"], 7);
        assert_eq!(job["metrics"], json!({ "loss": null }));
        assert!(!job["events"].as_array().unwrap().is_empty());
        assert_eq!(job["position"], Value::Null);
    }
    let series = json!([{ "name": "loss", "points": [[6, 0.5], [7, null]] }]);
    assert_eq!(fixture.get("/api/v1/jobs/digits-1/metrics").await.json()["series"], series);
    let answer = fixture.get("/api/v1/jobs/digits-1/metrics?series=loss&times=1").await.json();
    assert_eq!((&answer["series"][0]["points"][1][0], &answer["next"]), (&json!(7), &Value::Null));
    assert!(answer["series"][0]["points"][1][2].as_u64() >= answer["started_ms"].as_u64(), "{answer}");
    assert_eq!(fixture.get("/api/v1/jobs/digits-1/checkpoints").await.json(), json!({ "checkpoints": [] }));
    assert_eq!(fixture.get("/api/v1/jobs/digits-1/attempts").await.json()["attempts"][0]["state"], "RUNNING");
    assert_eq!(fixture.get("/api/v1/jobs/none-1").await.error().0, 404);
    let stopping = fixture.post_json("/api/v1/jobs/digits-1/stop", "").await;
    assert_eq!(stopping.status, 200);
    assert_eq!(fixture.post_json("/api/v1/jobs/digits-1/checkpoint", "").await.error().0, 409);
}

#[tokio::test]
async fn logs_of_every_attempt_are_kept() {
    let fixture = ServerFixture::new();
    let id = submit_queued_job(&fixture).await["id"].as_str().unwrap().to_owned();
    let now = SystemClock.now_ms();
    for attempt in 1..=2 {
        let claim = fixture.claim(now);
        let mut log = LogWriter::open(&*fixture.home.job_files(), &id, attempt).unwrap();
        for line in 1..=3 {
            log.write_line(1_795_262_593_076, &format!("attempt {attempt} line {line}")).unwrap();
        }
        let reason = StateReason::new("HOST_RESTART", "the server restarted");
        if attempt == 1 {
            fixture.records.requeue(&claim.lease, &reason, now, now).unwrap();
        } else {
            fixture.records.finish_job(&claim.lease, JobState::Succeeded, &StateReason::default(), now).unwrap();
        }
    }
    let first = "attempt 1 line 1\nattempt 1 line 2\nattempt 1 line 3\n";
    let second = "attempt 2 line 1\nattempt 2 line 2\nattempt 2 line 3\n";
    let cases = [
        ("", format!("{first}{second}")),
        ("?follow=1", format!("{first}{second}")),
        ("?attempt=1", first.to_owned()),
        ("?attempt=2&follow=1", second.to_owned()),
        ("?tail=2", "attempt 2 line 2\nattempt 2 line 3\n".to_owned()),
        ("?tail=4&follow=1", format!("attempt 1 line 3\n{second}")),
        ("?tail=0", String::new()),
        ("?attempt=1&tail=1&timestamps=1", "2026-11-21T12:03:13.076Z attempt 1 line 3\n".to_owned()),
    ];
    for (query, expected) in cases {
        assert_eq!(fixture.get(&format!("/api/v1/jobs/digits-1/logs{query}")).await.text(), expected, "{query}");
    }
    assert_eq!(fixture.get("/api/v1/jobs/digits-1/logs?attempt=9").await.error().0, 404);
    assert_eq!(fixture.get("/api/v1/jobs/digits-1/logs?tail=x").await.error().0, 400);
}

#[tokio::test]
async fn a_followed_log_ends_with_the_job_or_the_server() {
    let fixture = ServerFixture::new();
    let id = submit_queued_job(&fixture).await["id"].as_str().unwrap().to_owned();
    let now = SystemClock.now_ms();
    let claim = fixture.claim(now);
    let mut log = LogWriter::open(&*fixture.home.job_files(), &id, 1).unwrap();
    log.write_line(now as i64, "first").unwrap();
    let follow = || Request::get("/api/v1/jobs/digits-1/logs?follow=1").body(Body::empty()).unwrap();
    let mut stream = fixture.send(follow()).await.into_body().into_data_stream();
    assert_eq!(stream.next().await.unwrap().unwrap(), "first\n");
    let silent = tokio::time::timeout(Duration::from_millis(20), stream.next()).await;
    assert!(silent.is_err(), "no lines were added");
    log.write_line(now as i64, "second").unwrap();
    // A change of any job wakes the followers: this one is of another job.
    submit_queued_job(&fixture).await;
    assert_eq!(stream.next().await.unwrap().unwrap(), "second\n");
    let mut other = fixture.send(follow()).await.into_body().into_data_stream();
    assert_eq!(other.next().await.unwrap().unwrap(), "first\nsecond\n");
    fixture.records.finish_job(&claim.lease, JobState::Failed, &StateReason::default(), now).unwrap();
    submit_queued_job(&fixture).await;
    assert!(stream.next().await.is_none());

    let second = fixture.claim(now);
    let path = format!("/api/v1/jobs/{}/logs?follow=1", second.job.name);
    let waiting = fixture.send(Request::get(path).body(Body::empty()).unwrap()).await;
    let mut waiting = waiting.into_body().into_data_stream();
    fixture.stop.send(true).unwrap();
    assert!(waiting.next().await.is_none());
}

#[tokio::test]
async fn devices_are_listed_with_their_names() {
    let fixture = ServerFixture::new();
    let devices = fixture.get("/api/v1/devices").await.json();
    assert_eq!((&devices["devices"][0]["name"], &devices["devices"][0]["job_slots"]), (&json!("cpu"), &json!(2)));
    assert_eq!(devices["devices"][0]["limits"], json!({ "buffer_bytes_max": 1 << 20 }));
    assert_eq!(devices["devices"][0]["features"], json!(["shader_f16"]));
}

#[tokio::test]
async fn a_model_response_has_its_signature() {
    let fixture = ServerFixture::with_digits_serving().await;
    let model = fixture.get("/api/v1/models/digits").await.json();
    let image = json!({
        "name": "image", "dtype": "uint8", "shape": [2, 2], "semantics": "image", "classes": [], "default": null,
    });
    assert_eq!(model["signature"]["inputs"], json!([image]));
    assert_eq!((&model["signature"]["batch_sizes"], &model["device"]), (&json!([1, 8]), &json!("cpu")));
    assert_eq!((&model["serving"], &model["versions"][0]["source_job"]), (&json!(1), &json!("job")));
    assert_eq!(fixture.get("/api/v1/models/none").await.error().1, "unknown_model");
}
