//! The graph of a version.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::fixture::ServerFixture;

#[tokio::test]
async fn the_graph_of_a_version_is_inspected_once() {
    let fixture = ServerFixture::with_digits_serving().await;
    for _ in 0..2 {
        let graph = fixture.get("/api/v1/models/digits/versions/1/graph?graph=2").await.json();
        assert_eq!((&graph["model"], &graph["version"], &graph["graph"]), (&json!("digits"), &json!(1), &json!(2)));
        assert_eq!(graph["kernels"][0]["label"], "matmul 2");
    }
    assert_eq!(fixture.host.inspections.load(Ordering::SeqCst), 1);
    assert_eq!(fixture.get("/api/v1/models/digits/versions/1/graph").await.json()["graph"], 1);
    assert_eq!(fixture.host.inspections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_graph_that_does_not_exist_is_not_found() {
    let fixture = ServerFixture::with_digits_serving().await;
    let (status, code, text) = fixture.get("/api/v1/models/digits/versions/1/graph?graph=3").await.error();
    assert_eq!(
        (status, code.as_str(), text.as_str()),
        (404, "not_found", "no graph 3 of digits@1; it has graphs 1 to 2")
    );
    for (path, expected) in [
        ("digits/versions/7/graph", 404),
        ("none/versions/1/graph", 404),
        ("digits/versions/x/graph", 400),
        ("digits/versions/1/graph?graph=x", 400),
    ] {
        let (status, _, text) = fixture.get(&format!("/api/v1/models/{path}")).await.error();
        assert_eq!(status, expected, "{path}: {text}");
    }
}
