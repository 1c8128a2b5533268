//! The storage quota of servers with one bucket: it counts what all of them and their workers have stored there.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::time::{Duration, Instant};

use saggar_tests::{BucketCluster, HttpPayload, ServerProcess, SteadyJob};
use serde_json::{Value, json};

/// Time until every server knows what the others have stored: the bucket is counted each 30 s.
const COUNT_TIME_MAX: Duration = Duration::from_secs(40);

fn stored(server: &ServerProcess) -> u64 {
    server.get("/api/v1/quota")["storage_bytes"].as_u64().unwrap()
}

fn write_file(server: &ServerProcess, bytes: u64) -> Value {
    let job = SteadyJob::with_steps(3).with_parameter("write", format!("a.bin={bytes}")).with_field("retry", 0);
    server.wait_for_job(&job.submit(server))
}

fn announce_dataset(server: &ServerProcess) -> u16 {
    let digest = "0".repeat(64);
    let file = json!({ "path": "a.csv", "size": 2_000_000, "sha256": digest, "chunks": [digest] });
    let body = json!({ "name": "numbers", "files": [file] });
    server.request("POST", "/api/v1/datasets", HttpPayload::Json(&body)).status
}

#[test]
fn a_server_and_its_workers_refuse_what_exceeds_the_quota_with_the_files_of_another_server() {
    let Some(cluster) = BucketCluster::start() else { return };
    let quota = ["--storage-quota", "4MiB"];
    let (a, b) = (cluster.start_server("a", &quota), cluster.start_server("b", &quota));
    let job = write_file(&a, 3_000_000);
    assert_eq!(job["state"], "SUCCEEDED", "{job}");
    let began = Instant::now();
    for server in [&a, &b] {
        server.wait_for("the count", |server| (stored(server) >= 3_000_000).then_some(()));
    }
    println!("both servers know the file after {:.0} s", began.elapsed().as_secs_f64());
    assert!(began.elapsed() < COUNT_TIME_MAX, "{:?}", began.elapsed());
    assert_eq!(announce_dataset(&b), 507);
    let refused = write_file(&b, 3_000_000);
    let message = refused["message"].as_str().unwrap();
    assert!(refused["state"] == "FAILED" && message.contains("quota-exceeded"), "{refused}");
    let small = write_file(&b, 1000);
    assert_eq!(small["state"], "SUCCEEDED", "{small}");
    // What is removed counts until the next count.
    b.saggar_ok(&["rm", job["name"].as_str().unwrap(), "--yes"]);
    b.wait_for("the space", |server| (announce_dataset(server) == 200).then_some(()));
}
