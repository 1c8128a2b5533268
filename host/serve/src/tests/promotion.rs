//! What becomes of versions that are published while another one stays the default, and what is said of them.

use serde_json::{Value, json};

use super::fixture::Fixture;
use super::serving_options::ServingOptions;
use crate::models::Follow;

async fn command(fixture: &Fixture, what: &str, body: Value) -> Value {
    let answer = fixture.post_json(&format!("/api/v1/models/digits/{what}"), &body.to_string()).await;
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    answer.json()
}

async fn model(fixture: &Fixture) -> Value {
    fixture.get("/api/v1/models/digits").await.json()
}

fn version(model: &Value, number: u64) -> &Value {
    model["versions"].as_array().unwrap().iter().find(|version| version["version"] == number).unwrap()
}

/// The state of a version, its reason in a word, and for people.
fn why(model: &Value, number: u64) -> (String, String, String) {
    let text = |key: &str| version(model, number)[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("reason_code"), text("reason"))
}

/// With these marks published, one after the other, and looked at.
async fn with_versions(marks: &[i32]) -> Fixture {
    let fixture = Fixture::new();
    for &mark in marks {
        fixture.publish("digits", "plugin", mark);
        fixture.loader.look().await;
    }
    fixture
}

fn notes(fixture: &Fixture, version: u64) -> Vec<String> {
    fixture.app.lifecycle().publication_notes("digits", version)
}

#[tokio::test]
async fn what_is_published_beside_a_promoted_version_says_that_it_does_not_serve() {
    let fixture = with_versions(&[1, 2]).await;
    assert_eq!(model(&fixture).await["notice"], "");
    let promoted = command(&fixture, "promote", json!({"version": 1})).await;
    let notice = promoted["notice"].as_str().unwrap();
    assert!(notice.contains("version 1 was promoted and stays the default"), "{notice}");
    assert!(notice.contains("`saggar models promote digits newest`"), "{notice}");
    fixture.publish("digits", "plugin", 3);
    let waits = "digits@3 is stored and not served: version 1 stays the default until `saggar models promote digits 3`";
    assert_eq!(notes(&fixture, 3).last().unwrap(), waits);
    fixture.loader.look().await;
    let shown = model(&fixture).await;
    let reason = "version 1 stays the default until `saggar models promote digits 3`".to_owned();
    assert_eq!(why(&shown, 3), ("UNLOADED".to_owned(), "NOT_PROMOTED".to_owned(), reason));
    let back = command(&fixture, "rollback", json!({})).await;
    assert!(back["notice"].as_str().unwrap().contains("version 2 was promoted"), "{back}");
    let (_, code, reason) = why(&back, 1);
    assert!(code == "SUPERSEDED" && reason.contains("older than version 2"), "{reason}");
    let newest = command(&fixture, "promote", json!({"version": "newest"})).await;
    assert_eq!((&newest["serving"], &newest["notice"]), (&json!(3), &json!("")));
    let unloaded = command(&fixture, "unload", json!({})).await;
    let (_, code, reason) = why(&unloaded, 3);
    assert!(code == "MODEL_UNLOADED" && reason.contains("`saggar models load digits`"), "{reason}");
    assert!(unloaded["reason"].as_str().unwrap().contains("`saggar models load digits`"), "{unloaded}");
    fixture.publish("digits", "plugin", 4);
    assert!(notes(&fixture, 4).last().unwrap().contains("`saggar models load digits`"));
}

#[tokio::test]
async fn what_trainings_measured_is_shown_side_by_side() {
    let fixture = with_versions(&[9, 1]).await;
    let shown = model(&fixture).await;
    let measured = |number| (version(&shown, number)["metrics"].clone(), version(&shown, number)["measured"].clone());
    assert_eq!(measured(1), (json!({"accuracy": 0.9}), json!("accuracy 0.9000")));
    assert_eq!(measured(2), (json!({"accuracy": 0.1}), json!("accuracy 0.1000")));
    fixture.publish("digits", "plugin", 3);
    let better = "digits@3: accuracy 0.3000; digits@2, which serves: accuracy 0.1000";
    assert_eq!(notes(&fixture, 3), [better]);
    fixture.loader.look().await;
    fixture.publish("digits", "plugin", 0);
    let worse = "warning: less accurate: digits@4: accuracy 0.0000; digits@3, which serves: accuracy 0.3000";
    assert_eq!(notes(&fixture, 4), [worse]);
    assert_eq!(fixture.app.lifecycle().publication_notes("cats", 1), Vec::<String>::new());
}

#[tokio::test]
async fn only_promoted_versions_are_served_where_that_is_asked_for() {
    let options = ServingOptions { follow: Follow::Promoted, ..ServingOptions::default() };
    let fixture = Fixture::with_options(options);
    fixture.publish("digits", "plugin", 1);
    assert!(notes(&fixture, 1).last().unwrap().contains("it waits for `saggar models promote digits 1`"));
    fixture.loader.look().await;
    let shown = model(&fixture).await;
    assert_eq!((&shown["serving"], &shown["follows_newest"]), (&Value::Null, &json!(false)));
    assert_eq!(why(&shown, 1).1, "NOT_PROMOTED");
    let refused = fixture.predict(1).await.error();
    assert_eq!(refused.0, 503);
    let named = fixture.post_json("/models/digits/predict", &super::fixture::picture(1)).await.error();
    assert!(named.2.contains("no version was promoted yet"), "{}", named.2);
    assert_eq!(command(&fixture, "promote", json!({"version": 1})).await["serving"], 1);
    fixture.publish("digits", "plugin", 2);
    fixture.loader.look().await;
    assert_eq!(model(&fixture).await["serving"], 1);
    assert_eq!(command(&fixture, "promote", json!({"version": "newest"})).await["serving"], 2);
    fixture.publish("digits", "plugin", 3);
    fixture.loader.look().await;
    assert_eq!(model(&fixture).await["serving"], 2, "the newest was promoted, not what follows it");
}

#[tokio::test]
async fn what_served_goes_on_when_only_promoted_versions_are_served_from_now_on() {
    let fixture = with_versions(&[1, 2]).await;
    let options = ServingOptions { follow: Follow::Promoted, ..ServingOptions::default() };
    fixture.publish("digits", "plugin", 3);
    let again = fixture.again_with(options);
    again.loader.look().await;
    let shown = model(&again).await;
    assert_eq!((&shown["serving"], why(&shown, 3).1.as_str()), (&json!(2), "NOT_PROMOTED"));
    assert!(shown["notice"].as_str().unwrap().contains("--follow promoted"), "{shown}");
    let newest = fixture.again();
    newest.loader.look().await;
    assert_eq!(model(&newest).await["serving"], 3);
}

#[tokio::test]
async fn reasons_of_failures_outlive_the_server() {
    let fixture = with_versions(&[1]).await;
    for mark in [2, 3] {
        fixture.publish("digits", "refused", mark);
        fixture.loader.look().await;
    }
    fixture.publish("digits", "plugin", 4);
    fixture.loader.look().await;
    let again = fixture.again();
    again.loader.look().await;
    for server in [&fixture, &again] {
        let shown = model(server).await;
        for number in [2, 3] {
            let (state, code, reason) = why(&shown, number);
            assert_eq!((state.as_str(), code.as_str()), ("FAILED", ""));
            assert!(reason.starts_with("BAD_PLUGIN: "), "{reason}");
        }
    }
    again.loader.look().await;
    assert_eq!(why(&model(&again).await, 2).0, "FAILED", "at each look");
    // Other files: nothing is known of them.
    std::fs::remove_dir_all(fixture.version_dir("digits", 2)).unwrap();
    let other = fixture.publish("other", "plugin", 5);
    std::fs::rename(fixture.version_dir("other", other), fixture.version_dir("digits", 2)).unwrap();
    let after = fixture.again();
    after.loader.look().await;
    assert_eq!(why(&model(&after).await, 2).1, "SUPERSEDED");
    assert_eq!(why(&model(&after).await, 3).0, "FAILED");
    // A user who asks has it tried again.
    let refused = after.post_json("/api/v1/models/digits/load", r#"{"version": 3}"#).await.error();
    assert_eq!(refused.0, 422);
    assert_eq!(why(&model(&after).await, 3).0, "FAILED");
}
