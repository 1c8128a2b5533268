//! Access to the models, datasets, secrets and predictions of projects, through every route.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use saggar_store::digest::Digest;
use saggar_store::keys::KeyScope;
use saggar_store::records::JobRecords;
use saggar_store::{AccessAction, AccessRights, ResourceKind};
use serde_json::{Value, json};

use super::fixture::{BLOCK, ServerFixture, TestResponse, image_json};
use super::key_client::KeyClient;
use crate::access::route_scopes::RouteRequirement;
use crate::server;

/// Pushes a dataset. Returns the response to the announcement if that is refused.
async fn push_dataset(client: &KeyClient, name: &str, text: &str) -> TestResponse {
    let digest = Digest::of(text.as_bytes());
    let file = json!({ "path": "a.txt", "size": text.len(), "sha256": digest, "chunks": [digest] });
    let begun = client.send_json("POST", "/api/v1/datasets", &json!({ "name": name, "files": [file] })).await;
    if !begun.status.is_success() {
        return begun;
    }
    let upload = format!("/api/v1/datasets/{name}/uploads/{}", begun.json()["upload"].as_str().unwrap());
    let chunk = client.request("PUT", &format!("{upload}/chunks/{digest}")).body(Body::from(text.to_owned())).unwrap();
    assert_eq!(client.send(chunk).await.status, 204);
    client.send_json("POST", &format!("{upload}/commit"), &Value::Null).await
}

async fn job_spec(client: &KeyClient, project: &str) -> Value {
    let request = client.request("POST", "/api/v1/plugins").body(Body::from("plugin trains")).unwrap();
    json!({ "project": project, "plugin": client.send(request).await.json()["digest"] })
}

fn names(listed: &Value, of: &str) -> Vec<String> {
    listed[of].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

/// Returns the lines of the audit log: principal, action, subject, result.
fn audit_lines(fixture: &ServerFixture) -> Vec<[String; 4]> {
    let text = std::fs::read_to_string(fixture.home.audit_log()).unwrap_or_default();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let action = line["action"].as_str().unwrap().to_owned();
        let subject = line[action.split('.').next().unwrap()].as_str().unwrap().to_owned();
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        [text("who"), action, subject, text("result")]
    };
    text.lines().map(line).collect()
}

const WRITE: [KeyScope; 2] = [KeyScope::JobsWrite, KeyScope::ModelsWrite];

#[test]
fn every_route_of_a_resource_declares_an_effect_on_it() {
    let kinds = [
        ("/api/v1/models/{model}/", ResourceKind::Model),
        ("/v2/repository/models/{model}/", ResourceKind::Model),
        ("/api/v1/datasets", ResourceKind::Dataset),
        ("/api/v1/secrets", ResourceKind::Secret),
        ("/predictions", ResourceKind::Prediction),
        ("/api/v1/jobs/{job}", ResourceKind::Job),
        ("/api/v1/schedules/", ResourceKind::Schedule),
    ];
    let needs = server::route_scopes();
    let mut named = BTreeSet::new();
    for (path, method) in server::route_methods() {
        let need = needs.find(path, &method).unwrap();
        let Some((_, kind)) = kinds.iter().find(|(prefix, _)| path.starts_with(prefix)) else { continue };
        match need {
            RouteRequirement::Effect(
                AccessAction::Predict | AccessAction::AssignProjects | AccessAction::SubmitJob,
            ) => {}
            RouteRequirement::Effect(effect) => {
                assert_eq!(effect.kind(), *kind, "{method} {path}");
                named.insert(effect.name());
            }
            // Every key can read a model's name and how it is served.
            RouteRequirement::Key if method == "GET" && *kind == ResourceKind::Model => {}
            need => panic!("{method} {path} asks for {need:?}"),
        }
    }
    assert!(named.len() >= 14, "{named:?}");
}

#[tokio::test]
async fn a_hidden_dataset_looks_missing_on_every_route() {
    let fixture = ServerFixture::new();
    let (a, b) = (
        KeyClient::new(&fixture, "a", &WRITE, &["digits"]),
        KeyClient::new(&fixture, "b", &WRITE, &["faces", "letters"]),
    );
    let all = KeyClient::new(&fixture, "all", &WRITE, &[]);
    let response = push_dataset(&b, "theirs", "to be or not").await;
    assert_eq!((response.status.as_u16(), &response.json()["version"]), (200, &json!(1)), "{}", response.text());
    assert_eq!(push_dataset(&all, "shared", "that is the question").await.status, 200);
    // Visits every route with a dataset and a version in its path.
    let mut walked = 0;
    for (path, method) in server::route_methods().filter(|(path, _)| path.contains("{name}/{version}")) {
        walked += 1;
        let filled = |name: &str| path.replace("{name}", name).replace("{version}", "1");
        let hidden = a.error_without_name(method.as_str(), &filled("theirs"), &Value::Null, "theirs").await;
        let none = a.error_without_name(method.as_str(), &filled("nothere"), &Value::Null, "nothere").await;
        assert_eq!((hidden.0, hidden.1.as_str()), (404, "not_found"), "{method} {path}");
        assert_eq!(hidden, none, "{method} {path} distinguishes a hidden dataset from a missing one");
    }
    assert!(walked >= 2, "{walked}");
    // The name is taken, which is all that the client learns.
    let conflict = push_dataset(&a, "theirs", "mine").await.error();
    assert_eq!((conflict.0, conflict.2.as_str()), (409, "dataset theirs: the name is taken; choose another one"));
    let listed = async |client: &KeyClient| {
        names(&client.send_json("GET", "/api/v1/datasets", &Value::Null).await.json(), "datasets")
    };
    assert_eq!(listed(&a).await, ["shared"]);
    assert_eq!(
        (listed(&b).await, listed(&all).await),
        (vec!["shared".to_owned(), "theirs".into()], vec!["shared".to_owned(), "theirs".into()])
    );
    // A dataset without a project can be read and mounted by all keys, and changed only by keys without a project
    // limit.
    assert_eq!(a.send_json("GET", "/api/v1/datasets/shared/1/export", &Value::Null).await.status, 200);
    for refused in [
        push_dataset(&a, "shared", "again").await,
        a.send_json("DELETE", "/api/v1/datasets/shared/1", &Value::Null).await,
    ] {
        let (status, code, text) = refused.error();
        assert_eq!((status, code.as_str()), (403, "foreign_project"));
        assert!(text.contains("dataset shared: it belongs to no project of the key a"), "{text}");
        assert!(refused.json()["hint"].as_str().unwrap().contains("saggar data projects shared --project digits"));
    }
    let mut job = job_spec(&a, "digits").await;
    for (name, status) in [("shared", 201), ("theirs", 404), ("nothere", 404)] {
        job["data"] = json!([{ "dataset": name, "mount": "/data" }]);
        let answer = a.send_json("POST", "/api/v1/jobs", &job).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
    }
    let foreign = a.error_without_name("POST", "/api/v1/jobs", &job, "nothere").await;
    job["data"] = json!([{ "dataset": "theirs", "mount": "/data" }]);
    assert_eq!(a.error_without_name("POST", "/api/v1/jobs", &job, "theirs").await, foreign);
    // The key's own datasets stay accessible.
    assert_eq!(push_dataset(&b, "theirs", "a second").await.json()["version"], 2);
    assert_eq!(b.send_json("DELETE", "/api/v1/datasets/theirs/1", &Value::Null).await.status, 200);
    let log = audit_lines(&fixture);
    for line in [
        ["key:a", "dataset.remove", "theirs/1", "not_found"],
        ["key:a", "dataset.remove", "shared/1", "foreign_project"],
        ["key:b", "dataset.push", "theirs", "ok"],
        ["key:b", "dataset.remove", "theirs/1", "ok"],
    ] {
        assert!(log.iter().any(|found| *found == line), "{line:?} of {log:?}");
    }
}

#[tokio::test]
async fn an_administrator_assigns_datasets_to_projects() {
    let fixture = ServerFixture::new();
    let limited = KeyClient::new(&fixture, "a", &[KeyScope::JobsWrite], &["digits"]);
    let admin = KeyClient::new(&fixture, "boss", &[KeyScope::Admin], &[]);
    assert_eq!(push_dataset(&admin, "old", "as of before").await.status, 200);
    let assign = "/api/v1/datasets/old/projects";
    let wanted = json!({ "projects": ["digits"] });
    assert_eq!(limited.send_json("PUT", assign, &wanted).await.error().0, 403);
    assert_eq!(admin.send_json("PUT", assign, &wanted).await.json(), json!({ "name": "old", "projects": ["digits"] }));
    assert_eq!(push_dataset(&limited, "old", "now mine").await.json()["version"], 2);
    assert_eq!(admin.send_json("PUT", assign, &json!({ "projects": ["A b"] })).await.error().0, 400);
    assert_eq!(admin.send_json("PUT", "/api/v1/datasets/none/projects", &wanted).await.error().0, 404);
    assert_eq!(admin.send_json("PUT", "/api/v1/models/none/projects", &wanted).await.error().0, 404);
}

#[tokio::test]
async fn a_secret_is_usable_only_by_keys_of_its_projects() {
    let fixture = ServerFixture::new();
    let admin = KeyClient::new(&fixture, "boss", &[KeyScope::Admin], &[]);
    let limited = KeyClient::new(&fixture, "a", &[KeyScope::JobsWrite], &["digits"]);
    let all = KeyClient::new(&fixture, "all", &[KeyScope::JobsWrite], &[]);
    for (name, body) in [
        ("mine", json!({ "value": "something mine", "projects": ["digits"] })),
        ("theirs", json!({ "value": "something theirs", "projects": ["faces"] })),
        ("nobodys", json!({ "value": "something else" })),
    ] {
        assert_eq!(admin.send_json("PUT", &format!("/api/v1/secrets/{name}"), &body).await.status, 200);
    }
    let seen = limited.send_json("GET", "/api/v1/secrets", &Value::Null).await.json();
    assert_eq!(seen, json!({ "secrets": ["mine"], "projects": { "mine": ["digits"] } }));
    let whole = all.send_json("GET", "/api/v1/secrets", &Value::Null).await.json();
    assert_eq!(whole["secrets"], json!(["mine", "nobodys", "theirs"]));
    let digits = job_spec(&limited, "digits").await;
    let with = |secret: &str| {
        let mut spec = digits.clone();
        spec["secrets"] = json!([secret]);
        spec
    };
    let refused = async |secret: &str| {
        let mut errors = Vec::new();
        let on_time = json!({ "name": "s", "cron": "0 0 * * *", "spec": with(secret) });
        for (path, body) in [
            ("/api/v1/jobs", with(secret)),
            ("/api/v1/schedules", on_time),
            ("/api/v1/jobs/digits-1/restart", json!({ "overrides": { "secrets": [secret] } })),
        ] {
            errors.push(limited.error_without_name("POST", path, &body, secret).await);
        }
        errors
    };
    assert_eq!(limited.send_json("POST", "/api/v1/jobs", &with("mine")).await.json()["name"], "digits-1");
    let none = refused("nothere").await;
    assert!(none.iter().all(|(status, code, ..)| (*status, code.as_str()) == (404, "not_found")), "{none:?}");
    assert!(none[0].2.contains("saggar secret set NAME --project digits"), "{}", none[0].2);
    for secret in ["theirs", "nobodys"] {
        assert_eq!(refused(secret).await, none, "{secret} is distinguished from a missing one");
    }
    assert_eq!(all.send_json("POST", "/api/v1/jobs", &with("nobodys")).await.status, 201);
    // A restart of a job uses the rights of the key that restarts it.
    assert_eq!(limited.send_json("POST", "/api/v1/jobs/digits-2/restart", &Value::Null).await.error().0, 404);
    let log = audit_lines(&fixture);
    for line in [
        ["key:a", "secret.use", "mine", "ok"],
        ["key:a", "secret.use", "theirs", "not_found"],
        ["key:all", "secret.use", "nobodys", "ok"],
        ["key:a", "job.submit", "digits-1", "ok"],
        ["key:a", "job.submit", "", "not_found"],
    ] {
        assert!(log.iter().any(|found| *found == line), "{line:?} of {log:?}");
    }
}

#[tokio::test]
async fn a_job_is_recorded_with_the_rights_of_its_key() {
    let fixture = ServerFixture::new();
    let limited = KeyClient::new(&fixture, "a", &[KeyScope::JobsWrite], &["digits"]);
    let mut digits = job_spec(&limited, "digits").await;
    assert_eq!(limited.send_json("POST", "/api/v1/jobs", &digits).await.status, 201);
    let key = fixture.home.keys().read().unwrap().remove(0);
    let records: &dyn JobRecords = &*fixture.records;
    assert_eq!(records.get("digits-1").unwrap().rights, AccessRights::from_key(&key));
    let on_time = json!({ "name": "s", "cron": "0 0 * * *", "spec": digits });
    assert_eq!(limited.send_json("POST", "/api/v1/schedules", &on_time).await.status, 201);
    assert_eq!(records.schedules().unwrap()[0].rights, AccessRights::from_key(&key));
    // A client cannot set its own rights.
    digits["rights"] = Value::Null;
    assert_eq!(limited.send_json("POST", "/api/v1/jobs", &digits).await.error().0, 400);
    let open = fixture.post_json("/api/v1/jobs/digits-1/restart", "").await;
    assert_eq!(open.status, 201);
    assert_eq!(records.get("digits-2").unwrap().rights, AccessRights::default());
}

#[tokio::test]
async fn a_key_cannot_change_a_model_of_another_project() {
    let fixture = ServerFixture::with_digits_serving().await;
    let limited = KeyClient::new(&fixture, "a", &WRITE, &["digits"]);
    let admin = KeyClient::new(&fixture, "boss", &[KeyScope::Admin], &[]);
    let body = |path: &str| match path.rsplit('/').next().unwrap() {
        "versions" => json!({ "plugin": Digest::of(b"plugin trains").hex() }),
        "promote" => json!({ "version": 1 }),
        "{alias}" => json!({ "version": 1 }),
        "traffic" | "config" => json!({}),
        "shadow" => json!({ "to": "stable", "percent": 1 }),
        _ => Value::Null,
    };
    job_spec(&limited, "digits").await;
    let mut walked = 0;
    for (path, method) in server::route_methods() {
        let need = server::route_scopes().find(path, &method).unwrap();
        let RouteRequirement::Effect(effect) = need else { continue };
        let is_grpc = server::is_grpc_path(path);
        let changes = !matches!(effect, AccessAction::Predict | AccessAction::ReadWeights);
        // A route that names its model in the body has its own test.
        let in_body = path == "/api/v1/sweeps/{sweep}/publish";
        if effect.kind() != ResourceKind::Model || !changes || is_grpc || in_body {
            continue;
        }
        walked += 1;
        let filled = path.replace("{model}", "digits").replace("{alias}", "canary");
        let (status, code, text) = limited.send_json(method.as_str(), &filled, &body(path)).await.error();
        assert_eq!((status, code.as_str()), (403, "foreign_project"), "{method} {path}: {text}");
        assert!(text.starts_with("model digits: it belongs to no project of the key a"), "{text}");
    }
    assert!(walked >= 15, "{walked}");
    let config = json!({ "parameters": { "config": "{}" } });
    let configured = limited.send_json("POST", "/v2/repository/models/digits/load", &config).await;
    assert_eq!(configured.error().0, 403);
    let model = fixture.get("/api/v1/models/digits").await.json();
    assert_eq!((&model["state"], &model["serving"]), (&json!("READY"), &json!(1)), "the model is unchanged");
    // Once the model belongs to the key's project, the key can change it.
    let wanted = json!({ "projects": ["faces", "digits"] });
    assert_eq!(admin.send_json("PUT", "/api/v1/models/digits/projects", &wanted).await.status, 200);
    assert_eq!(limited.send_json("POST", "/api/v1/models/digits/unload", &Value::Null).await.status, 200);
    let log = audit_lines(&fixture);
    for line in [
        ["key:a", "model.publish", "digits", "foreign_project"],
        ["key:a", "model.unload", "digits", "foreign_project"],
        ["key:boss", "model.assign", "digits", "ok"],
        ["key:a", "model.unload", "digits", "ok"],
    ] {
        assert!(log.iter().any(|found| *found == line), "{line:?} of {log:?}");
    }
    // A key that can start a training from its weights belongs to its projects too.
    let other = KeyClient::new(&fixture, "c", &WRITE, &["letters"]);
    let mut job = job_spec(&other, "letters").await;
    job["init_from"] = json!("model:digits");
    let hidden = other.error_without_name("POST", "/api/v1/jobs", &job, "digits").await;
    job["init_from"] = json!("model:nothere");
    assert_eq!(hidden, other.error_without_name("POST", "/api/v1/jobs", &job, "nothere").await);
    assert_eq!(hidden.0, 404);
}

#[tokio::test]
async fn the_keep_alive_header_needs_models_write() {
    let fixture = ServerFixture::with_digits_serving().await;
    let shop = KeyClient::new(&fixture, "shop", &[KeyScope::Predict], &[]);
    let ops = KeyClient::new(&fixture, "ops", &[KeyScope::Predict, KeyScope::ModelsWrite], &[]);
    let limited = KeyClient::new(&fixture, "a", &[KeyScope::Predict, KeyScope::ModelsWrite], &["faces"]);
    let infer =
        json!({ "inputs": [{ "name": "image", "datatype": "UINT8", "shape": [1, 2, 2], "data": [1, 2, 3, 4] }] });
    let ways = [
        ("POST", "/predict", image_json(1)),
        ("POST", "/models/digits/predict", image_json(1)),
        ("POST", "/v2/models/digits/infer", infer.to_string()),
        ("POST", "/v1/models/digits:predict", r#"{"instances": [{"image": [[1, 2], [3, 4]]}]}"#.to_owned()),
        ("POST", "/predictions", format!("{{\"input\": {}}}", image_json(1))),
        ("PUT", "/predictions/mine", format!("{{\"input\": {}}}", image_json(1))),
    ];
    let send = async |client: &KeyClient, (method, path, body): &(&str, &str, String), keep: &str| {
        let request = client.request(method, path).header("x-saggar-keep-alive", keep);
        client.send(request.body(Body::from(body.clone())).unwrap()).await
    };
    for way in &ways {
        for (client, why) in [(&shop, "lacks the scope models:write"), (&limited, "belongs to no project of the key")] {
            let refused = send(client, way, "0s").await;
            assert_eq!(refused.status, 403, "{}: {}", way.1, refused.text());
            let text = refused.text();
            assert!(text.contains("X-Saggar-Keep-Alive") && text.contains(why), "{}: {text}", way.1);
            assert_eq!(send(client, way, "forever").await.status, 200, "{}", way.1);
        }
    }
    let model = fixture.get("/api/v1/models/digits").await.json();
    assert_eq!((&model["state"], &model["config"]["keep_alive"]), (&json!("READY"), &json!("forever")));
    assert_eq!(send(&ops, &ways[0], "0s").await.status, 200);
    let log = audit_lines(&fixture);
    for line in [
        ["key:shop", "model.keep_alive", "digits", "missing_scope"],
        ["key:a", "model.keep_alive", "digits", "foreign_project"],
        ["key:ops", "model.keep_alive", "digits", "ok"],
    ] {
        assert!(log.iter().any(|found| *found == line), "{line:?} of {log:?}");
    }
    // Without required keys, nothing is restricted.
    let request =
        Request::post("/predict").header("x-saggar-keep-alive", "0s").body(Body::from(image_json(1))).unwrap();
    assert_eq!(fixture.send(request).await.status(), 200);
}

#[tokio::test]
async fn a_prediction_is_visible_only_to_its_key() {
    let fixture = ServerFixture::with_digits_serving().await;
    let (a, b) = (
        KeyClient::new(&fixture, "a", &[KeyScope::Predict], &[]),
        KeyClient::new(&fixture, "b", &[KeyScope::Predict], &[]),
    );
    let admin = KeyClient::new(&fixture, "boss", &[KeyScope::Admin], &[]);
    let input = json!({ "input": { "image": [[BLOCK, 2], [3, 4]] } });
    let request = a.request("PUT", "/predictions/mine").header("prefer", "respond-async");
    assert_eq!(a.send(request.body(Body::from(input.to_string())).unwrap()).await.status, 202);
    // Visits every route with a prediction in its path, except the one that creates it.
    let mut walked = 0;
    for (path, method) in
        server::route_methods().filter(|(path, method)| path.contains("/predictions/{id}") && *method != "PUT")
    {
        walked += 1;
        for client in [&b, &admin] {
            let of = async |id: &str| {
                client.error_without_name(method.as_str(), &path.replace("{id}", id), &Value::Null, id).await
            };
            let (hidden, none) = (of("mine").await, of("other").await);
            assert_eq!((hidden.0, &hidden), (404, &none), "{method} {path}");
        }
    }
    assert!(walked >= 2, "{walked}");
    let events = b.request("GET", "/predictions/mine").header("accept", "text/event-stream").body(Body::empty());
    assert_eq!(b.send(events.unwrap()).await.status, 404);
    assert_eq!(fixture.get("/predictions/mine").await.status, 404, "also for clients that need no key");
    assert_eq!(
        a.send_json("GET", "/predictions/mine", &Value::Null).await.json()["status"],
        "processing",
        "it is still running"
    );
    // Other keys can use the identifier, with other inputs.
    let other = json!({ "input": { "image": [[1, 2], [3, 4]] } });
    let response = b.send_json("PUT", "/predictions/mine", &other).await;
    assert_eq!((response.status.as_u16(), &response.json()["output"]["sum"]), (200, &json!(10.0)));
    assert_eq!(b.send_json("POST", "/predictions/mine/cancel", &Value::Null).await.status, 200);
    assert_eq!(a.send_json("GET", "/predictions/mine", &Value::Null).await.json()["status"], "processing");
    assert_eq!(a.send_json("POST", "/predictions/mine/cancel", &Value::Null).await.json()["status"], "canceled");
    fixture.host.gate.open();
    // A key that is later created under the same name is a different key.
    fixture.home.keys().revoke("a").unwrap();
    let again = KeyClient::new(&fixture, "a", &[KeyScope::Predict], &[]);
    assert_eq!(again.send_json("GET", "/predictions/mine", &Value::Null).await.status, 404);
    let log = audit_lines(&fixture);
    for line in [["key:b", "prediction.cancel", "mine", "not_found"], ["key:a", "prediction.cancel", "mine", "ok"]] {
        assert!(log.iter().any(|found| *found == line), "{line:?} of {log:?}");
    }
}

#[tokio::test]
async fn a_project_key_cannot_read_global_metrics() {
    let fixture = ServerFixture::new();
    let limited = KeyClient::new(&fixture, "a", &[KeyScope::MetricsRead], &["digits"]);
    let all = KeyClient::new(&fixture, "all", &[KeyScope::MetricsRead], &[]);
    assert_eq!(all.send_json("GET", "/metrics", &Value::Null).await.status, 200);
    let (status, code, text) = limited.send_json("GET", "/metrics", &Value::Null).await.error();
    assert_eq!((status, code.as_str()), (403, "foreign_project"));
    assert_eq!(text, "the key a is for digits, and the metrics are of every project");
}
