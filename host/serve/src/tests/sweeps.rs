//! Sweeps and the projects of keys.

use axum::body::Body;
use saggar_store::keys::KeyScope;
use serde_json::{Value, json};

use super::fixture::ServerFixture;
use super::key_client::KeyClient;
use super::visibility::job_spec;

const SCOPES: [KeyScope; 2] = [KeyScope::JobsRead, KeyScope::JobsWrite];

async fn sweep_spec(fixture: &ServerFixture, project: &str) -> Value {
    json!({ "job": job_spec(fixture, project).await, "space": { "lr": "0.1,0.01" }, "metric": "loss" })
}

#[tokio::test]
async fn a_sweep_of_another_project_looks_missing_and_cannot_be_created() {
    let fixture = ServerFixture::new();
    let (all, client) =
        (KeyClient::new(&fixture, "all", &SCOPES, &[]), KeyClient::new(&fixture, "ci", &SCOPES, &["digits"]));
    let (theirs, own) = (sweep_spec(&fixture, "faces").await, sweep_spec(&fixture, "digits").await);
    assert_eq!(all.send_json("POST", "/api/v1/sweeps", &theirs).await.status, 201);
    assert_eq!(client.send_json("POST", "/api/v1/sweeps", &own).await.status, 201);
    let (status, code, _) = client.send_json("POST", "/api/v1/sweeps", &theirs).await.error();
    assert_eq!((status, code.as_str()), (403, "foreign_project"));
    let names = async |client: &KeyClient| {
        let listed = client.get_json("/api/v1/sweeps").await;
        listed["sweeps"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(names(&all).await, ["digits-sweep-1", "faces-sweep-1"]);
    assert_eq!(names(&client).await, ["digits-sweep-1"]);
    for (method, verb) in [("GET", ""), ("POST", "/stop"), ("POST", "/resume")] {
        let refusal = async |name: &str| {
            client.error_without_name(method, &format!("/api/v1/sweeps/{name}{verb}"), &Value::Null, name).await
        };
        assert_eq!(refusal("faces-sweep-1").await, refusal("none-sweep-1").await, "{method} {verb}");
    }
    assert_eq!(all.get_json("/api/v1/sweeps/faces-sweep-1").await["state"], "RUNNING", "the sweep is unchanged");
}

#[tokio::test]
async fn a_repeated_creation_returns_the_same_sweep_within_a_project() {
    let fixture = ServerFixture::new();
    let (all, client) =
        (KeyClient::new(&fixture, "all", &SCOPES, &[]), KeyClient::new(&fixture, "ci", &SCOPES, &["digits"]));
    let (theirs, own) = (sweep_spec(&fixture, "faces").await, sweep_spec(&fixture, "digits").await);
    let create = async |client: &KeyClient, spec: &Value| {
        let request = client.request("POST", "/api/v1/sweeps").header("idempotency-key", "k");
        client.send(request.body(Body::from(spec.to_string())).unwrap()).await.json()["name"].clone()
    };
    assert_eq!(create(&all, &theirs).await, "faces-sweep-1");
    assert_eq!(create(&client, &own).await, "digits-sweep-1", "another client's key does not return its sweep");
    assert_eq!(create(&client, &own).await, "digits-sweep-1");
    assert_eq!(all.get_json("/api/v1/sweeps").await["sweeps"].as_array().unwrap().len(), 2);
}
