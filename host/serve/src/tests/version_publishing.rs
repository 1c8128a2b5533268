//! Versions created from a component and another version's weights.

use saggar_store::digest::Digest;
use serde_json::{Value, json};

use super::fixture::{ServerFixture, image_json};

async fn publish(fixture: &ServerFixture, model: &str, body: Value) -> (u16, Value) {
    let answer = fixture.post_json(&format!("/api/v1/models/{model}/versions"), &body.to_string()).await;
    (answer.status.as_u16(), answer.json())
}

async fn upload_plugin(fixture: &ServerFixture, plugin: &str) -> String {
    let answer = fixture.post("/api/v1/plugins", "application/wasm", plugin.to_owned()).await;
    answer.json()["digest"].as_str().unwrap().to_owned()
}

async fn answering_mark(fixture: &ServerFixture) -> Value {
    fixture.post_json("/models/digits/predict", &image_json(1)).await.json()["mark"].clone()
}

#[tokio::test]
async fn a_new_plugin_is_published_with_the_weights_of_a_version() {
    let fixture = ServerFixture::new();
    fixture.publish("digits", "plugin", 1);
    fixture.publish("digits", "plugin", 2);
    fixture.loader.run_once().await;
    let plugin = upload_plugin(&fixture, "plugin, edited").await;
    let response = publish(&fixture, "digits", json!({ "plugin": plugin })).await;
    let expected =
        json!({ "model": "digits", "version": 3, "is_new": true, "state": "READY", "reason": "", "notes": [] });
    assert_eq!(response, (201, expected));
    assert_eq!(answering_mark(&fixture).await, 2, "the newest version's weights, at once");
    let model = fixture.get("/api/v1/models/digits").await.json();
    assert_eq!((&model["serving"], &model["last_swap"]["reason"]), (&json!(3), &json!("PUBLISHED")));
    assert_eq!(model["versions"][2]["plugin"], plugin);
    let (status, again) = publish(&fixture, "digits", json!({ "plugin": plugin })).await;
    assert_eq!((status, &again["version"], &again["is_new"]), (201, &json!(3), &json!(false)));
    let (_, older) = publish(&fixture, "digits", json!({ "plugin": plugin, "from_version": 1 })).await;
    assert_eq!((&older["version"], answering_mark(&fixture).await), (&json!(4), json!(1)));
}

#[tokio::test]
async fn a_published_version_that_fails_to_load_changes_nothing() {
    let fixture = ServerFixture::new();
    fixture.publish("digits", "plugin", 1);
    fixture.loader.run_once().await;
    let bad = upload_plugin(&fixture, "plugin refused").await;
    let (status, document) = publish(&fixture, "digits", json!({ "plugin": bad })).await;
    assert_eq!((status, &document["state"]), (201, &json!("FAILED")), "{document}");
    assert_ne!(document["reason"], "");
    assert_eq!(answering_mark(&fixture).await, 1);
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
