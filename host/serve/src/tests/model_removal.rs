//! Permanent removal of models and versions.

use axum::body::Body;
use axum::http::Request;
use saggar_store::keys::KeyScope;
use serde_json::{Value, json};

use super::fixture::{ServerFixture, TestResponse};
use super::key_client::KeyClient;

async fn delete(fixture: &ServerFixture, path: &str) -> TestResponse {
    TestResponse::from_response(fixture.send(Request::delete(path).body(Body::empty()).unwrap()).await).await
}

async fn with_versions(count: i32) -> ServerFixture {
    let fixture = ServerFixture::new();
    for mark in 1..=count {
        fixture.publish("digits", "plugin", mark);
    }
    fixture.loader.run_once().await;
    fixture
}

#[tokio::test]
async fn an_unused_version_is_removed_and_its_number_is_not_reused() {
    let fixture = with_versions(3).await;
    let serving = delete(&fixture, "/api/v1/models/digits/versions/3").await;
    let (status, code, text) = serving.error();
    assert_eq!((status, code.as_str()), (409, "conflict"));
    assert!(text.contains("digits@3") && text.contains("`saggar models promote digits VERSION`"), "{text}");
    // It is loaded, and nothing else needs it.
    let loaded = fixture.post_json("/api/v1/models/digits/load", r#"{"version": 1}"#).await;
    assert_eq!(loaded.status, 200, "{}", loaded.text());
    let removed = delete(&fixture, "/api/v1/models/digits/versions/1").await;
    assert_eq!(removed.status, 200, "{}", removed.text());
    assert_eq!(removed.json()["removed"], json!(["digits@1"]));
    assert!(removed.json()["freed_bytes"].as_u64().unwrap() > 0);
    assert!(!fixture.version_dir("digits", 1).exists());
    let model = fixture.get("/api/v1/models/digits").await.json();
    let numbers: Vec<&Value> = model["versions"].as_array().unwrap().iter().map(|it| &it["version"]).collect();
    assert_eq!((numbers, &model["serving"]), (vec![&json!(2), &json!(3)], &json!(3)));
    for (path, status) in
        [("digits/versions/1", 404), ("digits/versions/x", 400), ("cats/versions/1", 404), ("cats", 404)]
    {
        assert_eq!(delete(&fixture, &format!("/api/v1/models/{path}")).await.error().0, status, "{path}");
    }
}

#[tokio::test]
async fn removing_a_model_removes_its_versions_settings_and_metrics() {
    let fixture = with_versions(2).await;
    assert_eq!(fixture.predict(1).await.status, 200);
    std::fs::write(fixture.home.models().join("digits/model.json"), r#"{"keep_alive": "5m"}"#).unwrap();
    let removed = delete(&fixture, "/api/v1/models/digits").await;
    assert_eq!(removed.status, 200, "{}", removed.text());
    assert_eq!(removed.json()["removed"], json!(["digits@1", "digits@2"]));
    assert!(!fixture.home.models().join("digits").exists());
    assert_eq!(fixture.get("/api/v1/models/digits").await.error().0, 404);
    assert_eq!(fixture.predict(1).await.status.as_u16() / 100, 5, "nothing serves");
    let text = fixture.get("/metrics").await.text();
    assert!(!text.contains("digits"), "{text}");
    // A training can create it again; its version numbers are not reused.
    assert_eq!(fixture.publish("digits", "plugin", 3), 3);
    fixture.loader.run_once().await;
    assert_eq!(fixture.predict(1).await.json()["mark"], 3);
}

#[tokio::test]
async fn a_version_in_use_by_a_job_cannot_be_removed() {
    let fixture = with_versions(2).await;
    let uploaded = fixture.post("/api/v1/plugins", "application/wasm", "plugin trains").await.json();
    let spec = json!({ "project": "p", "plugin": uploaded["digest"], "init_from": "model:digits@1" });
    let job = fixture.post_json("/api/v1/jobs", &spec.to_string()).await;
    assert_eq!(job.status, 201, "{}", job.text());
    for path in ["/api/v1/models/digits/versions/1", "/api/v1/models/digits"] {
        let (status, _, text) = delete(&fixture, path).await.error();
        assert_eq!(status, 409, "{text}");
        assert!(text.contains("p-1") && text.contains("`saggar stop JOB`"), "{text}");
    }
    assert_eq!(fixture.post_json("/api/v1/jobs/p-1/stop", "").await.status, 200);
    assert_eq!(delete(&fixture, "/api/v1/models/digits/versions/1").await.status, 200);
}

#[tokio::test]
async fn project_keys_remove_only_their_models_and_removals_are_audited() {
    let fixture = with_versions(2).await;
    let writes = KeyClient::new(&fixture, "writes", &[KeyScope::ModelsWrite], &[]);
    let (reads, other) = (
        KeyClient::new(&fixture, "reads", &[KeyScope::JobsWrite, KeyScope::Predict], &[]),
        KeyClient::new(&fixture, "other", &[KeyScope::ModelsWrite], &["faces"]),
    );
    for (client, code) in [(&reads, "scope"), (&other, "foreign_project")] {
        for path in ["/api/v1/models/digits", "/api/v1/models/digits/versions/1"] {
            let refused = client.send_json("DELETE", path, &Value::Null).await.error();
            assert_eq!((refused.0, refused.1.contains(code)), (403, true), "{refused:?}");
        }
    }
    assert_eq!(writes.send_json("DELETE", "/api/v1/models/digits", &Value::Null).await.status, 200);
    let log = std::fs::read_to_string(fixture.home.audit_log()).unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["action"], &last["who"], &last["result"]),
        (&json!("model.remove"), &json!("key:writes"), &json!("ok"))
    );
    // The request of a key without the scope is refused earlier.
    assert_eq!(log.lines().filter(|line| line.contains("model.remove")).count(), 3, "refusals too: {log}");
}
