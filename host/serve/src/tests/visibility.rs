//! Keys limited to projects: objects of other projects are reported like missing ones.

use axum::body::Body;
use futures::StreamExt;
use saggar_store::keys::KeyScope;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::fixture::ServerFixture;
use super::key_client::KeyClient;
use crate::server;

/// The scopes of the keys in these tests.
const SCOPES: [KeyScope; 2] = [KeyScope::JobsWrite, KeyScope::ModelsWrite];

/// Returns the specification of a job of this project, whose plugin has been uploaded.
pub(super) async fn job_spec(fixture: &ServerFixture, project: &str) -> Value {
    let plugin = fixture.post("/api/v1/plugins", "application/wasm", "plugin trains").await.json();
    json!({ "project": project, "plugin": plugin["digest"] })
}

/// Submits a job of this project with full rights. It is queued.
async fn submit(fixture: &ServerFixture, project: &str) -> Value {
    let spec = job_spec(fixture, project).await;
    fixture.post_json("/api/v1/jobs", &spec.to_string()).await.json()
}

fn fill_path(path: &str, job: &str) -> String {
    path.replace("{job}", job).replace("{which}", "latest").replace("{*path}", "a.png")
}

#[tokio::test]
async fn a_hidden_job_looks_missing_on_every_route() {
    let fixture = ServerFixture::new();
    submit(&fixture, "digits").await;
    let hidden = submit(&fixture, "faces").await;
    let (limited, of_faces) =
        (KeyClient::new(&fixture, "a", &SCOPES, &["digits"]), KeyClient::new(&fixture, "b", &SCOPES, &["faces"]));
    let mut walked = 0;
    for (path, method) in server::route_methods() {
        assert!(!path.starts_with("/api/v1/jobs/{") || path.contains("{job}"), "{path}: a job is called {{job}}");
        if !path.contains("{job}") {
            continue;
        }
        walked += 1;
        let of = async |client: &KeyClient, name: &str| {
            client.error_without_name(method.as_str(), &fill_path(path, name), &Value::Null, name).await
        };
        let unknown = of(&limited, "none-1").await;
        assert_eq!((unknown.0, unknown.1.as_str()), (404, "not_found"), "{method} {path}: {unknown:?}");
        for name in ["faces-1", hidden["id"].as_str().unwrap()] {
            let found = of(&limited, name).await;
            let place = "a handler of host/serve/src/api must extract `{job}` as a VisibleJob";
            assert_eq!(found, unknown, "{method} {path} distinguishes a hidden job from a missing one; {place}");
        }
        // A client that can see the job gets another response.
        let seen = submit(&fixture, "faces").await;
        let answer =
            of_faces.send_json(method.as_str(), &fill_path(path, seen["name"].as_str().unwrap()), &Value::Null).await;
        assert!(!answer.text().contains("no job "), "{method} {path}: {}", answer.text());
    }
    let routes = server::route_paths().into_iter().filter(|path| path.contains("{job}")).count();
    assert!(walked >= routes && walked >= 13, "{walked} of {routes}");
    let after = fixture.get("/api/v1/jobs/faces-1").await.json();
    assert_eq!((&after["id"], &after["state"]), (&hidden["id"], &json!("QUEUED")), "the job is unchanged");
}

#[tokio::test]
async fn a_hidden_job_named_in_a_body_looks_missing() {
    let fixture = ServerFixture::new();
    submit(&fixture, "faces").await;
    let client = KeyClient::new(&fixture, "ci", &SCOPES, &["digits"]);
    let spec = job_spec(&fixture, "digits").await;
    let with = |field: &str, value: Value| {
        let mut spec = spec.clone();
        spec[field] = value;
        spec
    };
    for name in ["faces-1", "none-1"] {
        let mount = with("data", json!([{ "job": name, "mount": "/data" }]));
        let origin = with("init_from", json!(format!("job:{name}/checkpoint@latest")));
        let on_time = |spec: &Value| json!({ "name": "s", "cron": "0 0 * * *", "spec": spec });
        for (path, body) in [
            ("/api/v1/jobs", mount.clone()),
            ("/api/v1/jobs", origin.clone()),
            ("/api/v1/schedules", on_time(&mount)),
            ("/api/v1/schedules", on_time(&origin)),
            ("/api/v1/datasets/d/from-job", json!({ "job": name })),
            ("/api/v1/models/m/versions", json!({ "from": format!("job:{name}/checkpoint@latest") })),
        ] {
            let refused = client.error_without_name("POST", path, &body, name).await;
            let expected = (404, "not_found", "no job NAME; `saggar ps -a` lists them", "\"\"");
            let seen = (refused.0, refused.1.as_str(), refused.2.as_str(), refused.3.as_str());
            assert_eq!(seen, expected, "{path} {body}");
        }
        let events = client.error_without_name("GET", &format!("/api/v1/events?job={name}"), &Value::Null, name).await;
        assert_eq!((events.0, events.2.as_str()), (404, "no job NAME; `saggar ps -a` lists them"));
    }
}

#[tokio::test]
async fn a_project_key_cannot_submit_to_another_project() {
    let fixture = ServerFixture::new();
    submit(&fixture, "digits").await;
    let client = KeyClient::new(&fixture, "ci", &SCOPES, &["digits", "letters"]);
    let faces = job_spec(&fixture, "faces").await;
    for (path, body) in [
        ("/api/v1/jobs", faces.clone()),
        ("/api/v1/jobs/digits-1/restart", json!({ "overrides": { "project": "faces" } })),
        ("/api/v1/schedules", json!({ "name": "s", "cron": "0 0 * * *", "spec": faces })),
    ] {
        let (status, code, text) = client.send_json("POST", path, &body).await.error();
        assert_eq!((status, code.as_str()), (403, "foreign_project"), "{path}");
        assert_eq!(text, "the key ci is for jobs of digits, letters, not of faces");
    }
    let letters = json!({ "overrides": { "project": "letters" } });
    assert_eq!(client.send_json("POST", "/api/v1/jobs/digits-1/restart", &letters).await.json()["name"], "letters-1");

    // Another client's idempotency key does not return that client's job.
    let all = KeyClient::new(&fixture, "all", &SCOPES, &[]);
    let submit_once = async |client: &KeyClient, spec: &Value| {
        let request = client.request("POST", "/api/v1/jobs").header("idempotency-key", "k");
        client.send(request.body(Body::from(spec.to_string())).unwrap()).await.json()["name"].clone()
    };
    assert_eq!(submit_once(&all, &faces).await, "faces-1");
    let digits = job_spec(&fixture, "digits").await;
    assert_eq!(submit_once(&client, &digits).await, "digits-2");
    assert_eq!(submit_once(&client, &digits).await, "digits-2", "the client's own key does");
}

#[tokio::test]
async fn schedules_of_other_projects_are_hidden() {
    let fixture = ServerFixture::new();
    let (all, client) =
        (KeyClient::new(&fixture, "all", &SCOPES, &[]), KeyClient::new(&fixture, "ci", &SCOPES, &["digits"]));
    let schedule = async |name: &str, project: &str| json!({ "name": name, "cron": "0 0 * * *", "spec": job_spec(&fixture, project).await });
    let (theirs, own) = (schedule("theirs", "faces").await, schedule("own", "digits").await);
    assert_eq!(all.send_json("POST", "/api/v1/schedules", &theirs).await.status, 201);
    assert_eq!(client.send_json("POST", "/api/v1/schedules", &own).await.status, 201);
    let names = async |client: &KeyClient| {
        let listed = client.get_json("/api/v1/schedules").await;
        listed["schedules"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!((names(&all).await, names(&client).await), (vec![json!("own"), json!("theirs")], vec![json!("own")]));
    let refusal = async |name: &str| {
        client.error_without_name("DELETE", &format!("/api/v1/schedules/{name}"), &Value::Null, name).await
    };
    assert_eq!(refusal("theirs").await, refusal("none").await);
    let conflict = client.send_json("POST", "/api/v1/schedules", &schedule("theirs", "digits").await).await;
    assert_eq!(
        conflict.error(),
        (409, "conflict".to_owned(), "schedule theirs: the name is taken; choose another one".to_owned())
    );
    assert_eq!(names(&all).await.len(), 2, "the schedule stays");
    assert_eq!(client.send_json("DELETE", "/api/v1/schedules/own", &Value::Null).await.status, 200);
}

#[tokio::test]
async fn lists_and_streams_show_only_visible_projects() {
    let fixture = ServerFixture::new();
    for project in ["digits", "faces", "faces"] {
        submit(&fixture, project).await;
    }
    let (all, client) =
        (KeyClient::new(&fixture, "all", &SCOPES, &[]), KeyClient::new(&fixture, "ci", &SCOPES, &["digits"]));
    let names = async |client: &KeyClient, query: &str| {
        let listed = client.get_json(&format!("/api/v1/jobs{query}")).await;
        let names = listed["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<String>>()
    };
    assert_eq!(names(&all, "").await.len(), 3);
    assert_eq!(names(&client, "").await, ["digits-1"]);
    assert_eq!(names(&client, "?project=digits&limit=1").await, ["digits-1"]);
    assert_eq!(names(&client, "?project=faces").await, [""; 0]);
    let sweep = json!({ "keep_last": 0, "dry_run": true });
    for job in ["digits-1", "faces-1"] {
        assert_eq!(all.send_json("POST", &format!("/api/v1/jobs/{job}/stop"), &Value::Null).await.status, 200);
    }
    for (client, expected) in [(&all, 2), (&client, 1)] {
        let swept = client.send_json("POST", "/api/v1/jobs/gc", &sweep).await.json();
        assert_eq!(swept["jobs"].as_array().unwrap().len(), expected, "{swept}");
    }
    for query in ["", "?project=faces"] {
        let events = client.send_json("GET", &format!("/api/v1/events{query}"), &Value::Null).await.text();
        assert!(events.contains("event: ready") && !events.contains("faces"), "{events}");
    }
    // Running jobs are counted for every client, but named only to those that can see them.
    assert_eq!(fixture.claim(1).job.name, "faces-2");
    let pool = async |client: &KeyClient| client.get_json("/api/v1/queues").await["pools"][0].clone();
    let (unlimited, limited) = (pool(&all).await, pool(&client).await);
    assert_eq!((&unlimited["used"], &unlimited["jobs"]), (&json!(1.0), &json!(["faces-2"])));
    assert_eq!((&limited["used"], &limited["jobs"]), (&json!(1.0), &json!([])));
}

#[tokio::test]
async fn a_followed_stream_omits_other_projects() {
    let fixture = ServerFixture::new();
    let client = KeyClient::new(&fixture, "ci", &SCOPES, &["digits"]);
    let request = client.request("GET", "/api/v1/events?follow=1").body(Body::empty()).unwrap();
    let mut stream = client.router.clone().oneshot(request).await.unwrap().into_body().into_data_stream();
    let mut heard = String::new();
    let mut submitted = false;
    while !heard.contains("event: note") {
        heard += std::str::from_utf8(&stream.next().await.expect("the stream has not ended").unwrap()).unwrap();
        if heard.contains("event: ready") && !submitted {
            submit(&fixture, "faces").await;
            submit(&fixture, "digits").await;
            submitted = true;
        }
    }
    assert!(heard.contains("digits-1") && !heard.contains("faces"), "{heard}");
}

#[tokio::test]
async fn blocking_jobs_of_other_projects_are_not_named() {
    let fixture = ServerFixture::new();
    let (all, client) =
        (KeyClient::new(&fixture, "all", &SCOPES, &[]), KeyClient::new(&fixture, "ci", &SCOPES, &["digits"]));
    submit(&fixture, "faces").await;
    assert_eq!(fixture.claim(1).job.name, "faces-1");
    submit(&fixture, "digits").await;
    let message = async |client: &KeyClient| client.get_json("/api/v1/jobs/digits-1").await["message"].to_string();
    assert!(message(&all).await.contains("used by faces-1"), "{}", message(&all).await);
    let limited = message(&client).await;
    assert!(limited.contains("used by a job of another project") && !limited.contains("faces"), "{limited}");
    let events = client.send_json("GET", "/api/v1/events", &Value::Null).await.text();
    assert!(events.contains("a job of another project") && !events.contains("faces"), "{events}");

    // A job that another one reads.
    assert_eq!(all.send_json("POST", "/api/v1/jobs/digits-1/stop", &Value::Null).await.status, 200);
    let mut reader = job_spec(&fixture, "faces").await;
    reader["data"] = json!([{ "job": "digits-1", "mount": "/data" }]);
    assert_eq!(all.send_json("POST", "/api/v1/jobs", &reader).await.status, 201);
    let refused =
        async |client: &KeyClient| client.send_json("DELETE", "/api/v1/jobs/digits-1", &Value::Null).await.error().2;
    assert!(refused(&all).await.contains("is read by faces-2"), "{}", refused(&all).await);
    assert!(refused(&client).await.contains("is read by 1 of other projects"), "{}", refused(&client).await);
}

#[tokio::test]
async fn quota_lists_only_visible_projects_and_keys() {
    let fixture = ServerFixture::new();
    let (other, client) =
        (KeyClient::new(&fixture, "other", &SCOPES, &[]), KeyClient::new(&fixture, "ci", &SCOPES, &["digits"]));
    let (faces, digits) = (job_spec(&fixture, "faces").await, job_spec(&fixture, "digits").await);
    for (client, spec) in [(&other, &faces), (&client, &digits)] {
        assert_eq!(client.send_json("POST", "/api/v1/jobs", spec).await.status, 201);
        // A row appears only for jobs that ran.
        let claim = fixture.claim(1);
        let records: &dyn saggar_store::records::JobRecords = &*fixture.records;
        let reason = saggar_store::records::StateReason::default();
        records.finish_job(&claim.lease, saggar_store::JobState::Succeeded, &reason, 2).unwrap();
    }
    let rows = async |client: &KeyClient| {
        let quota = client.get_json("/api/v1/quota").await;
        let of = |rows: &str, name: &str| {
            quota[rows].as_array().unwrap().iter().map(|row| row[name].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        (of("projects", "project"), of("keys", "key"))
    };
    let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    assert_eq!(rows(&other).await, (text(&["digits", "faces"]), text(&["ci", "other"])));
    assert_eq!(rows(&client).await, (text(&["digits"]), text(&["ci"])));
}

#[tokio::test]
async fn project_keys_are_created_and_listed_with_their_projects() {
    let fixture = ServerFixture::new();
    let body = json!({ "name": "ci", "scopes": ["jobs:read"], "projects": ["faces", "digits"] });
    let response = fixture.post_json("/api/v1/keys", &body.to_string()).await;
    assert_eq!((response.status.as_u16(), &response.json()["projects"]), (201, &json!(["digits", "faces"])));
    assert_eq!(fixture.get("/api/v1/keys").await.json()["keys"][0]["projects"], json!(["digits", "faces"]));
    for (scopes, projects, words) in [
        (json!(["jobs:read"]), json!([]), "names at least one"),
        (json!(["jobs:read"]), json!(["A b"]), "`A b` cannot be a project's name"),
        (json!(["admin"]), json!(["digits"]), "the scope admin sees every project"),
        (json!(["jobs:read"]), json!("digits"), "projects: expected a list"),
    ] {
        let body = json!({ "name": "x", "scopes": scopes, "projects": projects });
        let (status, _, text) = fixture.post_json("/api/v1/keys", &body.to_string()).await.error();
        assert!(status == 400 && text.contains(words), "{body}: {status} {text}");
    }
}

#[tokio::test]
async fn an_event_stream_ends_when_its_key_is_revoked() {
    let fixture = ServerFixture::with_digits_serving().await;
    let (gone, stays) =
        (KeyClient::new(&fixture, "gone", &SCOPES, &[]), KeyClient::new(&fixture, "stays", &SCOPES, &["digits"]));
    let open = async |client: &KeyClient| {
        let request = client.request("GET", "/api/v1/events?follow=1").body(Body::empty()).unwrap();
        let answer = client.router.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let mut stream = answer.into_body().into_data_stream();
        assert!(stream.next().await.unwrap().is_ok(), "the beginning");
        stream
    };
    let (mut ends, mut goes_on) = (open(&gone).await, open(&stays).await);
    fixture.home.keys().revoke("gone").unwrap();
    fixture.app.access().reload_keys();
    let job = job_spec(&fixture, "digits").await;
    fixture.post_json("/api/v1/jobs", &job.to_string()).await;
    assert!(ends.next().await.is_none(), "later events are not sent");
    let chunk = goes_on.next().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&chunk).contains("digits-1"), "the stream of another key continues");
}
