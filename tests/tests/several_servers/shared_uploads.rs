//! An upload in chunks that begins on one server, and is continued and completed on another one.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use saggar_store::digest::Digest;
use saggar_tests::{BucketCluster, HttpPayload, ServerProcess};
use serde_json::{Value, json};

/// Bytes of a chunk in this test.
const CHUNK: usize = 4096;

fn announce(server: &ServerProcess, files: &[(&str, &[u8])]) -> Value {
    let file = |(path, content): &(&str, &[u8])| {
        let chunks: Vec<String> = content.chunks(CHUNK).map(|chunk| Digest::of(chunk).to_string()).collect();
        json!({ "path": path, "size": content.len(), "sha256": Digest::of(content).to_string(), "chunks": chunks })
    };
    let files: Vec<Value> = files.iter().map(file).collect();
    server.post("/api/v1/datasets", &json!({ "name": "numbers", "files": files }))
}

fn send_chunk(server: &ServerProcess, id: &str, chunk: &[u8]) {
    let path = format!("/api/v1/datasets/numbers/uploads/{id}/chunks/{}", Digest::of(chunk));
    let answer = server.request("PUT", &path, HttpPayload::Bytes("application/octet-stream", chunk));
    assert!(answer.status < 300, "{} {}", answer.status, answer.text);
}

fn missing(announced: &Value) -> usize {
    announced["missing"].as_array().unwrap().len()
}

#[test]
fn an_upload_of_one_server_is_continued_and_completed_on_another_after_the_first_was_killed() {
    let Some(cluster) = BucketCluster::start() else { return };
    let (a, b) = (cluster.start_server("a", &[]), cluster.start_server("b", &[]));
    let description = br#"{"format":"csv","file":"x.csv","fields":[{"name":"x","columns":[0,1],"dtype":"float32"}]}"#;
    let rows: String = (0..4000).map(|row| format!("{row}\n")).collect();
    let files: [(&str, &[u8]); 2] = [("dataset.json", description), ("x.csv", rows.as_bytes())];
    let begun = announce(&a, &files);
    let id = begun["upload"].as_str().unwrap();
    let chunks: Vec<&[u8]> = files.iter().flat_map(|(_, content)| content.chunks(CHUNK)).collect();
    assert_eq!(missing(&begun), chunks.len());
    // Half of the chunks go to each server, in turn.
    for (at, chunk) in chunks.iter().enumerate().take(chunks.len() - 1) {
        send_chunk(if at % 2 == 0 { &a } else { &b }, id, chunk);
    }
    assert_eq!(missing(&announce(&b, &files)), 1);
    a.kill_and_wait();
    let again = announce(&b, &files);
    assert_eq!((missing(&again), again["upload"].as_str()), (1, Some(id)));
    send_chunk(&b, id, chunks[chunks.len() - 1]);
    let commit = format!("/api/v1/datasets/numbers/uploads/{id}/commit");
    let answer = b.request("POST", &commit, HttpPayload::Nothing);
    assert!(answer.status < 300, "{} {}", answer.status, answer.text);
    assert_eq!(answer.json()["version"], 1, "{}", answer.text);
    let a = cluster.start_server("a", &[]);
    let listed = a.get("/api/v1/datasets");
    assert_eq!((&listed["datasets"][0]["name"], &listed["datasets"][0]["version"]), (&json!("numbers"), &json!(1)));
    // The whole announcement is known by its content.
    assert_eq!(announce(&a, &files)["version"], 1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let left = runtime.block_on(cluster.store.objects("lab").list("uploads")).unwrap();
    assert!(left.is_empty(), "{left:?}");
}
