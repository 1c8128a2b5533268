//! Versions that are published while another one stays the default: their states, and what users learn about them.

use saggar_serving::FollowPolicy;
use serde_json::{Value, json};

use super::fixture::ServerFixture;
use super::serving_options::ServingOptions;
use super::versions::wait_until_unloaded;

async fn send_command(fixture: &ServerFixture, what: &str, body: Value) -> Value {
    let answer = fixture.post_json(&format!("/api/v1/models/digits/{what}"), &body.to_string()).await;
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    answer.json()
}

async fn model_json(fixture: &ServerFixture) -> Value {
    fixture.get("/api/v1/models/digits").await.json()
}

fn version(model: &Value, number: u64) -> &Value {
    model["versions"].as_array().unwrap().iter().find(|version| version["version"] == number).unwrap()
}

/// Returns the state of a version, its reason code, and the explanation.
fn version_reason(model: &Value, number: u64) -> (String, String, String) {
    let text = |key: &str| version(model, number)[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("reason_code"), text("reason"))
}

/// Returns a server with these marks published one after the other, each followed by a poll.
async fn with_versions(marks: &[i32]) -> ServerFixture {
    let fixture = ServerFixture::new();
    for &mark in marks {
        fixture.publish("digits", "plugin", mark);
        fixture.loader.run_once().await;
    }
    fixture
}

fn publication_notes(fixture: &ServerFixture, version: u64) -> Vec<String> {
    fixture.app.lifecycle().publication_notes("digits", version)
}

#[tokio::test]
async fn a_version_published_beside_a_promoted_one_reports_that_it_does_not_serve() {
    let fixture = with_versions(&[1, 2]).await;
    assert_eq!(model_json(&fixture).await["notice"], "");
    let promoted = send_command(&fixture, "promote", json!({"version": 1})).await;
    let notice = promoted["notice"].as_str().unwrap();
    assert!(notice.contains("version 1 was promoted and stays the default"), "{notice}");
    assert!(notice.contains("`saggar models promote digits newest`"), "{notice}");
    fixture.publish("digits", "plugin", 3);
    let waits = "digits@3 is stored and not served: version 1 stays the default until `saggar models promote digits 3`";
    assert_eq!(publication_notes(&fixture, 3).last().unwrap(), waits);
    fixture.loader.run_once().await;
    let model = model_json(&fixture).await;
    let reason = "version 1 stays the default until `saggar models promote digits 3`".to_owned();
    assert_eq!(version_reason(&model, 3), ("UNLOADED".to_owned(), "NOT_PROMOTED".to_owned(), reason));
    let back = send_command(&fixture, "rollback", json!({})).await;
    assert!(back["notice"].as_str().unwrap().contains("version 2 was promoted"), "{back}");
    // Version 1 is unloaded in the background.
    wait_until_unloaded(&fixture, 1).await;
    let (_, code, reason) = version_reason(&model_json(&fixture).await, 1);
    assert!(code == "SUPERSEDED" && reason.contains("older than version 2"), "{reason}");
    let newest = send_command(&fixture, "promote", json!({"version": "newest"})).await;
    assert_eq!((&newest["serving"], &newest["notice"]), (&json!(3), &json!("")));
    let unloaded = send_command(&fixture, "unload", json!({})).await;
    wait_until_unloaded(&fixture, 3).await;
    let (_, code, reason) = version_reason(&model_json(&fixture).await, 3);
    assert!(code == "MODEL_UNLOADED" && reason.contains("`saggar models load digits`"), "{reason}");
    assert!(unloaded["reason"].as_str().unwrap().contains("`saggar models load digits`"), "{unloaded}");
    fixture.publish("digits", "plugin", 4);
    assert!(publication_notes(&fixture, 4).last().unwrap().contains("`saggar models load digits`"));
}

#[tokio::test]
async fn training_metrics_of_versions_are_shown_side_by_side() {
    let fixture = with_versions(&[9, 1]).await;
    let model = model_json(&fixture).await;
    let measured = |number| (version(&model, number)["metrics"].clone(), version(&model, number)["measured"].clone());
    assert_eq!(measured(1), (json!({"accuracy": 0.9}), json!("accuracy 0.9000")));
    assert_eq!(measured(2), (json!({"accuracy": 0.1}), json!("accuracy 0.1000")));
    fixture.publish("digits", "plugin", 3);
    let better = "digits@3: accuracy 0.3000; digits@2, which serves: accuracy 0.1000";
    assert_eq!(publication_notes(&fixture, 3), [better]);
    fixture.loader.run_once().await;
    fixture.publish("digits", "plugin", 0);
    let worse = "warning: less accurate: digits@4: accuracy 0.0000; digits@3, which serves: accuracy 0.3000";
    assert_eq!(publication_notes(&fixture, 4), [worse]);
    assert_eq!(fixture.app.lifecycle().publication_notes("cats", 1), Vec::<String>::new());
}

#[tokio::test]
async fn follow_promoted_serves_only_promoted_versions() {
    let options = ServingOptions { follow: FollowPolicy::Promoted, ..ServingOptions::default() };
    let fixture = ServerFixture::with_options(options);
    fixture.publish("digits", "plugin", 1);
    assert!(publication_notes(&fixture, 1).last().unwrap().contains("it waits for `saggar models promote digits 1`"));
    fixture.loader.run_once().await;
    let model = model_json(&fixture).await;
    assert_eq!((&model["serving"], &model["follows_newest"]), (&Value::Null, &json!(false)));
    assert_eq!(version_reason(&model, 1).1, "NOT_PROMOTED");
    let refused = fixture.predict(1).await.error();
    assert_eq!(refused.0, 503);
    let named = fixture.post_json("/models/digits/predict", &super::fixture::image_json(1)).await.error();
    assert!(named.2.contains("no version was promoted yet"), "{}", named.2);
    assert_eq!(send_command(&fixture, "promote", json!({"version": 1})).await["serving"], 1);
    fixture.publish("digits", "plugin", 2);
    fixture.loader.run_once().await;
    assert_eq!(model_json(&fixture).await["serving"], 1);
    assert_eq!(send_command(&fixture, "promote", json!({"version": "newest"})).await["serving"], 2);
    fixture.publish("digits", "plugin", 3);
    fixture.loader.run_once().await;
    assert_eq!(model_json(&fixture).await["serving"], 2, "the newest was promoted, not what follows it");
}

#[tokio::test]
async fn switching_to_follow_promoted_keeps_the_serving_version() {
    let fixture = with_versions(&[1, 2]).await;
    let options = ServingOptions { follow: FollowPolicy::Promoted, ..ServingOptions::default() };
    fixture.publish("digits", "plugin", 3);
    let again = fixture.restarted_with(options);
    again.loader.run_once().await;
    let model = model_json(&again).await;
    assert_eq!((&model["serving"], version_reason(&model, 3).1.as_str()), (&json!(2), "NOT_PROMOTED"));
    assert!(model["notice"].as_str().unwrap().contains("--follow promoted"), "{model}");
    let newest = fixture.restarted();
    newest.loader.run_once().await;
    assert_eq!(model_json(&newest).await["serving"], 3);
}

#[tokio::test]
async fn load_failure_reasons_survive_a_restart() {
    let fixture = with_versions(&[1]).await;
    for mark in [2, 3] {
        fixture.publish("digits", "refused", mark);
        fixture.loader.run_once().await;
    }
    fixture.publish("digits", "plugin", 4);
    fixture.loader.run_once().await;
    let again = fixture.restarted();
    again.loader.run_once().await;
    for server in [&fixture, &again] {
        let model = model_json(server).await;
        for number in [2, 3] {
            let (state, code, reason) = version_reason(&model, number);
            assert_eq!((state.as_str(), code.as_str()), ("FAILED", ""));
            assert!(reason.starts_with("BAD_PLUGIN: "), "{reason}");
        }
    }
    again.loader.run_once().await;
    assert_eq!(version_reason(&model_json(&again).await, 2).0, "FAILED", "at each poll");
    // The version with other files has no recorded failure.
    std::fs::remove_dir_all(fixture.version_dir("digits", 2)).unwrap();
    let other = fixture.publish("other", "plugin", 5);
    std::fs::rename(fixture.version_dir("other", other), fixture.version_dir("digits", 2)).unwrap();
    let after = fixture.restarted();
    after.loader.run_once().await;
    assert_eq!(version_reason(&model_json(&after).await, 2).1, "SUPERSEDED");
    assert_eq!(version_reason(&model_json(&after).await, 3).0, "FAILED");
    // A user's request loads it again.
    let refused = after.post_json("/api/v1/models/digits/load", r#"{"version": 3}"#).await.error();
    assert_eq!(refused.0, 422);
    assert_eq!(version_reason(&model_json(&after).await, 3).0, "FAILED");
}
