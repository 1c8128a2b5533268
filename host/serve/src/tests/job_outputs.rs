//! The files that jobs write.

use super::fixture::ServerFixture;
use serde_json::{Value, json};

/// Submits a job and returns it as JSON. It is queued.
async fn submit_queued_job(fixture: &ServerFixture) -> Value {
    let plugin = fixture.post("/api/v1/plugins", "application/wasm", "plugin trains").await.json();
    let spec = json!({ "project": "digits", "plugin": plugin["digest"] });
    fixture.post_json("/api/v1/jobs", &spec.to_string()).await.json()
}

#[tokio::test]
async fn outputs_are_listed_and_fetched() {
    let fixture = ServerFixture::new();
    let id = submit_queued_job(&fixture).await["id"].as_str().unwrap().to_owned();
    assert_eq!(fixture.get("/api/v1/jobs/digits-1/output").await.json(), json!({ "files": [] }));
    let large: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    fixture.home.job_files().write_output(&id, "pictures/a.png", &large).unwrap();
    fixture.home.job_files().write_output(&id, "table.csv", b"a,b\n").unwrap();
    for name in ["digits-1", &id] {
        let files = json!([{ "path": "pictures/a.png", "bytes": 1_000_000 }, { "path": "table.csv", "bytes": 4 }]);
        assert_eq!(fixture.get(&format!("/api/v1/jobs/{name}/output")).await.json(), json!({ "files": files }));
    }
    let picture = fixture.get("/api/v1/jobs/digits-1/output/pictures/a.png").await;
    assert_eq!((picture.status.as_u16(), picture.header("content-type")), (200, "image/png"));
    assert_eq!((picture.header("content-length"), picture.header("x-content-type-options")), ("1000000", "nosniff"));
    assert!(picture.body == large, "another content");
    let table = fixture.get("/api/v1/jobs/digits-1/output/table.csv").await;
    assert_eq!((table.text().as_str(), table.header("content-type")), ("a,b\n", "text/csv; charset=utf-8"));
}

async fn get_error(fixture: &ServerFixture, path: &str) -> (u16, String, String) {
    fixture.get(&format!("/api/v1/jobs/digits-1/output/{path}")).await.error()
}

#[tokio::test]
async fn files_that_no_job_wrote_are_not_found() {
    let fixture = ServerFixture::new();
    let id = submit_queued_job(&fixture).await["id"].as_str().unwrap().to_owned();
    let (status, code, text) = get_error(&fixture, "a.png").await;
    assert_eq!((status, code.as_str()), (404, "not_found"));
    assert_eq!(text, "no output a.png; job digits-1 wrote nothing yet");

    for file in 0..12 {
        fixture.home.job_files().write_output(&id, &format!("{file:02}.txt"), b"x").unwrap();
    }
    std::fs::write(fixture.home.job(&id).join("attempt-1.log"), "a line\n").unwrap();
    let there =
        "job digits-1 wrote 00.txt, 01.txt, 02.txt, 03.txt, 04.txt, 05.txt, 06.txt, 07.txt, 08.txt, 09.txt and 2 more";
    assert_eq!(get_error(&fixture, "12.txt").await.2, format!("no output 12.txt; {there}"));
    for path in ["../attempt-1.log", "%2e%2e/attempt-1.log", "..%2fattempt-1.log", "%2fetc%2fpasswd", "00.txt/x", ".00"]
    {
        assert_eq!(get_error(&fixture, path).await.0, 404, "{path}");
    }
    assert_eq!(fixture.get("/api/v1/jobs/none-1/output").await.error().0, 404);
    assert_eq!(fixture.get("/api/v1/jobs/none-1/output/00.txt").await.error().0, 404);
}
