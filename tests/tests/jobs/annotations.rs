//! Tags and notes of jobs, experiments, and their comparison.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob};
use serde_json::{Map, Value, json};

fn run_jobs(server: &ServerProcess, experiment: &str, works: &[u32]) -> Vec<String> {
    let submit = |work: &u32| {
        let job = SteadyJob::with_steps(3).with_parameter("work", *work).with_field("experiment", experiment);
        let name = job.submit(server);
        assert_eq!(server.wait_for_job(&name)["state"], "SUCCEEDED");
        name
    };
    works.iter().map(submit).collect()
}

/// Runs `saggar compare` of the experiment `works`, and returns the names of the jobs in its order.
fn compared(server: &ServerProcess, arguments: &[&str]) -> Vec<String> {
    let printed = server.saggar_ok(&[&["compare", "--experiment", "works", "--json"], arguments].concat());
    let jobs: Value = serde_json::from_str(&printed).unwrap();
    jobs.as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn tags_and_notes_are_shown_everywhere_and_removed_with_the_job() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let names = run_jobs(&server, "works", &[1, 2]);
    assert!(server.saggar_ok(&["tag", "steady-1", "kind=baseline", "data=a=b"]).contains("data=a=b kind=baseline"));
    server.saggar_ok(&["note", "steady-1", "the first run,\nwith two lines"]);
    let job = server.job("steady-1");
    assert_eq!(job["tags"], json!({ "kind": "baseline", "data": "a=b" }));
    assert_eq!(job["note"], "the first run,\nwith two lines");
    assert!(server.saggar_ok(&["ps", "-a"]).contains("data=a=b kind=baseline"));
    let status = server.saggar_ok(&["status", "steady-1"]);
    assert!(status.contains("kind=baseline") && status.contains("with two lines"), "{status}");
    let table = server.saggar_ok(&["compare", &names[0], &names[1]]);
    assert!(table.contains("tag.kind") && table.contains("baseline") && table.contains("work"), "{table}");
    let run = server.get(&format!("/api/2.0/mlflow/runs/get?run_id={}", job["id"].as_str().unwrap()));
    let tags = run["run"]["data"]["tags"].as_array().unwrap();
    let tag = |key: &str| tags.iter().find(|tag| tag["key"] == key).map(|tag| tag["value"].clone());
    assert_eq!(tag("kind"), Some(json!("baseline")));
    assert_eq!(tag("mlflow.note.content"), Some(json!("the first run,\nwith two lines")));

    server.saggar_ok(&["tag", "steady-1", "--rm", "kind", "--rm", "missing"]);
    server.saggar_ok(&["note", "steady-1", ""]);
    assert_eq!(
        (&server.job("steady-1")["tags"], &server.job("steady-1")["note"]),
        (&json!({ "data": "a=b" }), &json!(""))
    );
    server.saggar_ok(&["rm", "steady-1", "--yes"]);
    assert_eq!(server.request("GET", "/api/v1/jobs/steady-1", HttpPayload::Nothing).status, 404);
}

#[test]
fn tags_and_notes_are_bounded() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    run_jobs(&server, "works", &[1]);
    let annotate = |body: &Value| server.request("POST", "/api/v1/jobs/steady-1/annotate", HttpPayload::Json(body));
    let refusal = |body: Value, says: &str| {
        let answer = annotate(&body);
        assert!(answer.status == 400 && answer.text.contains(says), "{} {}", answer.status, answer.text);
    };
    let many: Map<String, Value> = (0..10_000).map(|at| (format!("t{at}"), json!("x"))).collect();
    refusal(json!({ "tags": many }), "must be at most 50");
    for name in ["", "a b", "a=b", "a\nb"] {
        refusal(json!({ "tags": { name: "x" } }), "must have a name of 1 to 63 bytes");
    }
    refusal(json!({ "tags": { "x".repeat(64): "x" } }), "must have a name");
    refusal(json!({ "tags": { "a": "x".repeat(501) } }), "at most 500 bytes");
    refusal(json!({ "tags": { "a": "two\nlines" } }), "in one line");
    refusal(json!({ "note": "x".repeat(16_385) }), "at most 16 KiB");
    refusal(json!({ "tag": {} }), "there is no `tag`");
    assert_eq!(server.job("steady-1")["tags"], json!({}), "a refused change changes nothing");
    // Fifty tags are accepted; one more is not, and its value can still be replaced.
    let full: Map<String, Value> = (0..50).map(|at| (format!("t{at}"), json!("x"))).collect();
    assert_eq!(annotate(&json!({ "tags": full })).status, 200);
    refusal(json!({ "tags": { "more": "x" } }), "must be at most 50");
    assert_eq!(annotate(&json!({ "tags": { "more": "x" }, "remove": ["t0"] })).status, 200);
    let missing = server.request("POST", "/api/v1/jobs/steady-9/annotate", HttpPayload::Json(&json!({ "note": "x" })));
    assert_eq!(missing.status, 404);
}

#[test]
fn an_experiment_is_compared_by_columns_and_removed_after_confirmation() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    run_jobs(&server, "works", &[3, 20, 1]);
    run_jobs(&server, "other", &[1]);
    server.saggar_ok(&["tag", "steady-2", "kind=best"]);
    let listed: Value = serde_json::from_str(&server.saggar_ok(&["experiment", "ls", "--json"])).unwrap();
    let names: Vec<&Value> = listed.as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, [&json!("other"), &json!("works")]);
    assert_eq!((&listed[1]["jobs"], &listed[1]["projects"]), (&json!({ "SUCCEEDED": 3 }), &json!(["steady"])));
    assert!(server.saggar_ok(&["experiment", "show", "works"]).contains("steady-3"));

    assert_eq!(compared(&server, &[]), ["steady-1", "steady-2", "steady-3"]);
    assert_eq!(compared(&server, &["--sort", "work"]), ["steady-3", "steady-1", "steady-2"], "sorted as numbers");
    assert_eq!(compared(&server, &["--sort", "-work"]), ["steady-2", "steady-1", "steady-3"]);
    assert_eq!(compared(&server, &["--filter", "work<20"]), ["steady-1", "steady-3"]);
    assert_eq!(compared(&server, &["--filter", "work<20", "--filter", "work>1"]), ["steady-1"]);
    assert_eq!(compared(&server, &["--filter", "tag.kind=best"]), ["steady-2"]);
    assert_eq!(compared(&server, &["--filter", "state=FAILED"]), Vec::<String>::new());
    let table = server.saggar_ok(&["compare", "--experiment", "works", "--columns", "work,tag.kind"]);
    let header: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["JOB", "STATE", "work", "tag.kind"]);
    for (arguments, says) in [
        (["compare", "--experiment", "works", "--sort", "wrok"], "--sort wrok"),
        (["compare", "--experiment", "works", "--filter", "work"], "expected a column, an operator and a value"),
        (["compare", "--experiment", "works", "--columns", "epochs"], "--columns epochs"),
    ] {
        let output = server.saggar(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(7) && said.contains(says), "{said}");
    }
    assert_eq!(server.saggar(&["experiment", "show", "nothing"]).status.code(), Some(3));

    // Without a terminal and without --yes nothing is removed; what would go is listed.
    let refused = server.saggar(&["experiment", "rm", "works"]);
    let printed = String::from_utf8([refused.stdout, refused.stderr].concat()).unwrap();
    assert!(!refused.status.success() && printed.contains("steady-2") && printed.contains("--yes"), "{printed}");
    assert_eq!(compared(&server, &[]).len(), 3);
    server.saggar_ok(&["experiment", "rm", "works", "--yes"]);
    let listed: Value = serde_json::from_str(&server.saggar_ok(&["experiment", "ls", "--json"])).unwrap();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["name"]), (1, &json!("other")));
}
