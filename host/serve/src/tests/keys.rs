//! `/api/v1/keys`, and what the audit log says of it.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::access::ask;
use super::fixture::{Answer, Fixture};
use crate::access::{Door, Reach};

async fn delete(fixture: &Fixture, path: &str) -> Answer {
    Answer::of(fixture.send(Request::delete(path).body(Body::empty()).unwrap()).await).await
}

fn audit(fixture: &Fixture) -> Vec<Value> {
    let text = std::fs::read_to_string(fixture.home.audit_log()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn keys_are_made_listed_and_ended() {
    let fixture = Fixture::serving().await;
    assert_eq!(fixture.get("/api/v1/keys").await.json(), json!({ "keys": [] }));
    let body = json!({"name": "shop", "scopes": ["predict"], "rate": "100/s", "quota": "5/d"});
    let made = fixture.post_json("/api/v1/keys", &body.to_string()).await;
    assert_eq!(made.status, 201);
    let text = made.json()["key"].as_str().unwrap().to_owned();
    assert!(text.starts_with("sgr_"), "{text}");
    let guarded = fixture.app.router_at(Door { reach: Reach::Network, guarded: true });
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

    let lines = audit(&fixture);
    let told: Vec<_> = lines.iter().map(|line| (&line["action"], &line["key"], &line["result"])).collect();
    let told: Vec<String> = told.iter().map(|(action, key, result)| format!("{action} {key} {result}")).collect();
    let expected = [
        r#""key.create" "shop" "ok""#,
        r#""key.create" "shop" "key_exists""#,
        r#""key.revoke" "shop" "ok""#,
        r#""key.revoke" "shop" "not_found""#,
    ];
    assert_eq!(told, expected);
    assert_eq!(lines[0]["detail"], "predict 100/s 5/d");
    assert_eq!(lines[0]["request_id"], made.header("x-request-id"));
    let secret = text.rsplit('_').next().unwrap();
    assert!(!std::fs::read_to_string(fixture.home.audit_log()).unwrap().contains(secret));
}

#[tokio::test]
async fn the_audit_log_names_the_key_that_asked() {
    let fixture = Fixture::serving().await;
    let body = json!({"name": "boss", "scopes": ["admin"]});
    let made = fixture.post_json("/api/v1/keys", &body.to_string()).await.json();
    let bearer = format!("Bearer {}", made["key"].as_str().unwrap());
    let doors = [
        (Door { reach: Reach::Network, guarded: true }, "key:boss"),
        (Door { reach: Reach::Network, guarded: false }, "anyone"),
        (Door { reach: Reach::Socket, guarded: false }, "socket"),
        (Door { reach: Reach::Loopback, guarded: false }, "loopback"),
    ];
    for (door, who) in doors {
        let router = fixture.app.router_at(door);
        let answer = ask(&router, "DELETE", "/api/v1/keys/none", &[("authorization", &bearer)]).await;
        assert_eq!(answer.status, 404);
        let last = audit(&fixture).pop().unwrap();
        assert_eq!((last["who"].as_str(), last["result"].as_str()), (Some(who), Some("not_found")));
    }
}

#[tokio::test]
async fn changes_of_models_are_written_down() {
    let fixture = Fixture::serving().await;
    let done = fixture.post_json("/api/v1/models/digits/promote", r#"{"version": 1}"#).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let refused = fixture.post_json("/api/v1/models/digits/promote", r#"{"version": 9}"#).await;
    let lines = audit(&fixture);
    assert_eq!(lines.len(), 2);
    for (line, version, result) in [(&lines[0], "version 1", "ok"), (&lines[1], "version 9", &*refused.error().1)] {
        let told = [&line["action"], &line["model"], &line["detail"], &line["result"], &line["who"]];
        assert_eq!(told, ["model.promote", "digits", version, result, "loopback"]);
    }
}

#[tokio::test]
async fn what_makes_no_key_is_named() {
    let fixture = Fixture::serving().await;
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
