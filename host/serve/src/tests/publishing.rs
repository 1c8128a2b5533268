//! Versions made of a component and another version's weights.

use saggar_store::digest::Digest;
use serde_json::{Value, json};

use super::fixture::{Fixture, picture};

async fn publish(fixture: &Fixture, model: &str, body: Value) -> (u16, Value) {
    let answer = fixture.post_json(&format!("/api/v1/models/{model}/versions"), &body.to_string()).await;
    (answer.status.as_u16(), answer.json())
}

async fn upload(fixture: &Fixture, plugin: &str) -> String {
    let answer = fixture.post("/api/v1/plugins", "application/wasm", plugin.to_owned()).await;
    answer.json()["digest"].as_str().unwrap().to_owned()
}

async fn mark(fixture: &Fixture) -> Value {
    fixture.post_json("/models/digits/predict", &picture(1)).await.json()["mark"].clone()
}

#[tokio::test]
async fn another_plugin_gets_the_weights_of_a_version() {
    let fixture = Fixture::new();
    fixture.publish("digits", "plugin", 1);
    fixture.publish("digits", "plugin", 2);
    fixture.loader.look().await;
    let plugin = upload(&fixture, "plugin, edited").await;
    let made = publish(&fixture, "digits", json!({ "plugin": plugin })).await;
    let expected = json!({ "model": "digits", "version": 3, "is_new": true, "state": "READY", "reason": "" });
    assert_eq!(made, (201, expected));
    assert_eq!(mark(&fixture).await, 2, "the newest version's weights, at once");
    let model = fixture.get("/api/v1/models/digits").await.json();
    assert_eq!((&model["serving"], &model["last_swap"]["reason"]), (&json!(3), &json!("PUBLISHED")));
    assert_eq!(model["versions"][2]["plugin"], plugin);
    let (status, again) = publish(&fixture, "digits", json!({ "plugin": plugin })).await;
    assert_eq!((status, &again["version"], &again["is_new"]), (201, &json!(3), &json!(false)));
    let (_, older) = publish(&fixture, "digits", json!({ "plugin": plugin, "from_version": 1 })).await;
    assert_eq!((&older["version"], mark(&fixture).await), (&json!(4), json!(1)));
}

#[tokio::test]
async fn what_does_not_come_up_is_told_and_changes_nothing() {
    let fixture = Fixture::new();
    fixture.publish("digits", "plugin", 1);
    fixture.loader.look().await;
    let bad = upload(&fixture, "plugin refused").await;
    let (status, made) = publish(&fixture, "digits", json!({ "plugin": bad })).await;
    assert_eq!((status, &made["state"]), (201, &json!("FAILED")), "{made}");
    assert_ne!(made["reason"], "");
    assert_eq!(mark(&fixture).await, 1);
    let stranger = Digest::of(b"never uploaded").hex();
    for (model, body, status) in [
        ("digits", json!({ "plugin": stranger }), 404),
        ("digits", json!({ "plugin": bad, "from_version": 9 }), 404),
        ("cats", json!({ "plugin": bad }), 404),
        ("digits", json!({ "plugin": "x" }), 400),
        ("digits", json!({ "plugin": bad, "colour": 1 }), 400),
        ("digits", json!({}), 400),
    ] {
        assert_eq!(publish(&fixture, model, body.clone()).await.0, status, "{model} {body}");
    }
}
