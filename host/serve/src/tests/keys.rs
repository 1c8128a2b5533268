//! `/api/v1/keys`, and its entries in the audit log.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::access::ask;
use super::fixture::{ServerFixture, TestResponse};
use crate::access::{Exposure, ListenPolicy};

async fn delete(fixture: &ServerFixture, path: &str) -> TestResponse {
    TestResponse::from_response(fixture.send(Request::delete(path).body(Body::empty()).unwrap()).await).await
}

fn audit_entries(fixture: &ServerFixture) -> Vec<Value> {
    let text = std::fs::read_to_string(fixture.home.audit_log()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn keys_are_created_listed_and_revoked() {
    let fixture = ServerFixture::with_digits_serving().await;
    assert_eq!(fixture.get("/api/v1/keys").await.json(), json!({ "keys": [] }));
    let body = json!({"name": "shop", "scopes": ["predict"], "rate": "100/s", "quota": "5/d"});
    let response = fixture.post_json("/api/v1/keys", &body.to_string()).await;
    assert_eq!(response.status, 201);
    let text = response.json()["key"].as_str().unwrap().to_owned();
    assert!(text.starts_with("sgr_"), "{text}");
    let guarded = fixture.app.router_for(ListenPolicy { exposure: Exposure::Network, requires_key: true });
    let bearer = format!("Bearer {text}");
    assert_eq!(ask(&guarded, "POST", "/predict", &[("authorization", &bearer)]).await.status, 200);
    let listed = fixture.get("/api/v1/keys").await;
    assert!(!listed.text().contains(&text) && !listed.text().contains("digest"), "{}", listed.text());
    let shop = &listed.json()["keys"][0];
    assert_eq!((&shop["name"], &shop["scopes"], &shop["quota_used"]), (&json!("shop"), &json!(["predict"]), &json!(1)));
    assert_eq!(fixture.post_json("/api/v1/keys", &body.to_string()).await.error().0, 409);
    assert_eq!(delete(&fixture, "/api/v1/keys/shop").await.status, 204);
    assert_eq!(ask(&guarded, "POST", "/predict", &[("authorization", &bearer)]).await.error().0, 401);
    assert_eq!(delete(&fixture, "/api/v1/keys/shop").await.error().0, 404);

    let lines = audit_entries(&fixture);
    let entries: Vec<_> = lines.iter().map(|line| (&line["action"], &line["key"], &line["result"])).collect();
    let entries: Vec<String> = entries.iter().map(|(action, key, result)| format!("{action} {key} {result}")).collect();
    let expected = [
        r#""key.create" "shop" "ok""#,
        r#""key.create" "shop" "key_exists""#,
        r#""key.revoke" "shop" "ok""#,
        r#""key.revoke" "shop" "not_found""#,
    ];
    assert_eq!(entries, expected);
    assert_eq!(lines[0]["detail"], "predict 100/s 5/d");
    assert_eq!(lines[0]["request_id"], response.header("x-request-id"));
    let secret = text.rsplit('_').next().unwrap();
    assert!(!std::fs::read_to_string(fixture.home.audit_log()).unwrap().contains(secret));
}

#[tokio::test]
async fn the_audit_log_names_the_acting_key() {
    let fixture = ServerFixture::with_digits_serving().await;
    let body = json!({"name": "boss", "scopes": ["admin"]});
    let document = fixture.post_json("/api/v1/keys", &body.to_string()).await.json();
    let bearer = format!("Bearer {}", document["key"].as_str().unwrap());
    let doors = [
        (ListenPolicy { exposure: Exposure::Network, requires_key: true }, "key:boss"),
        (ListenPolicy { exposure: Exposure::Network, requires_key: false }, "anyone"),
        (ListenPolicy { exposure: Exposure::UnixSocket, requires_key: false }, "socket"),
        (ListenPolicy { exposure: Exposure::Loopback, requires_key: false }, "loopback"),
    ];
    for (door, who) in doors {
        let router = fixture.app.router_for(door);
        let answer = ask(&router, "DELETE", "/api/v1/keys/none", &[("authorization", &bearer)]).await;
        assert_eq!(answer.status, 404);
        let last = audit_entries(&fixture).pop().unwrap();
        assert_eq!((last["who"].as_str(), last["result"].as_str()), (Some(who), Some("not_found")));
    }
}

#[tokio::test]
async fn model_changes_are_audited() {
    let fixture = ServerFixture::with_digits_serving().await;
    let done = fixture.post_json("/api/v1/models/digits/promote", r#"{"version": 1}"#).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let refused = fixture.post_json("/api/v1/models/digits/promote", r#"{"version": 9}"#).await;
    let lines = audit_entries(&fixture);
    assert_eq!(lines.len(), 2);
    for (line, version, result) in [(&lines[0], "version 1", "ok"), (&lines[1], "version 9", &*refused.error().1)] {
        let entries = [&line["action"], &line["model"], &line["detail"], &line["result"], &line["who"]];
        assert_eq!(entries, ["model.promote", "digits", version, result, "loopback"]);
    }
}

#[tokio::test]
async fn invalid_key_requests_name_the_bad_field() {
    let fixture = ServerFixture::with_digits_serving().await;
    for (body, words) in [
        (json!({"name": "a"}), "scopes"),
        (json!({"name": "a", "scopes": []}), "at least one scope of predict, jobs:read"),
        (json!({"name": "a", "scopes": ["root"]}), "root"),
        (json!({"name": "A b", "scopes": ["predict"]}), "cannot be a key's name"),
        (json!({"name": "a", "scopes": ["predict"], "rate": "fast"}), "such as 100/s"),
        (json!({"name": "a", "scopes": ["predict"], "quota": "100/s"}), "such as 10000/d"),
        (json!({"name": "a", "scopes": ["predict"], "expires_ms": 5}), "expire"),
        (json!({"name": "a", "scopes": ["predict"], "expires": "30d"}), "expires"),
    ] {
        let (status, _, text) = fixture.post_json("/api/v1/keys", &body.to_string()).await.error();
        assert!(status == 400 && text.contains(words), "{body}: {status} {text}");
    }
    assert_eq!(fixture.get("/api/v1/keys").await.json(), json!({ "keys": [] }));
}
