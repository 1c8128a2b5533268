//! Data steps of pipelines that push a folder of the project.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;

use saggar_tests::pipelines::{PipelineProject, attempt, job_of, run_of};
use saggar_tests::{HttpPayload, ServerProcess};
use serde_json::{Value, json};

/// Returns a pipeline that makes a dataset of a folder, and counts its items in a training.
fn pipeline(dataset: &str, folder: &str) -> String {
    format!(
        "[pipeline.feed]\n[[pipeline.feed.step]]\nname = \"rows\"\nkind = \"data\"\ndataset = \"{dataset}\"\n\
         from = {{ folder = \"{folder}\" }}\ncache = true\n\
         [[pipeline.feed.step]]\nname = \"count\"\ntask = \"train\"\nargs = {{ steps = 2, count = \"/rows\" }}\n\
         data = [{{ from = \"${{steps.rows.outputs.dataset}}\", to = \"/rows\" }}]\n"
    )
}

fn write_rows(project: &Path, rows: usize) {
    let folder = project.join("tables/rows");
    std::fs::create_dir_all(&folder).unwrap();
    let lines: String = (0..rows).map(|row| format!("{row}.5,{}\n", row % 2)).collect();
    std::fs::write(folder.join("rows.csv"), format!("x,label\n{lines}")).unwrap();
}

fn versions(server: &ServerProcess) -> Vec<Value> {
    server.get("/api/v1/datasets")["datasets"].as_array().unwrap().clone()
}

#[test]
fn a_folder_of_the_project_is_pushed_and_the_run_records_its_version_and_digest() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let project = PipelineProject::new(&saggar_tests::pipelines::steady_manifest(&pipeline("rows", "tables/rows")));
    write_rows(project.path(), 3);
    assert!(project.saggar_ok(&server, &["pipeline", "check"]).contains("feed: 2 steps"));
    assert!(project.saggar_ok(&server, &["pipeline", "graph", "feed"]).contains("rows"));
    assert_eq!(versions(&server), [Value::Null; 0], "a check pushes nothing");

    let ran = project.saggar(&server, &["pipeline", "run", "feed", "-f"]);
    let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success() && errors.contains("tables/rows is rows/1"), "{errors}");
    let run = run_of(&server, "feed-1");
    let pushed = versions(&server);
    let digest = &pushed[0]["digest"];
    let made = attempt(&run, "rows", 0);
    assert_eq!(made["inputs"], json!([{ "name": "from", "reference": "rows/1", "digest": digest }]), "{run}");
    assert_eq!(made["outputs"]["dataset"], json!({ "value": "rows/1", "type": "dataset", "digest": digest }));
    let log = server.saggar_ok(&["logs", &job_of(&run, "count")]);
    assert!(log.contains("/rows has 3 items"), "{log}");

    // Equal content is the same version, and the step's result is used again.
    let name = project.saggar_ok(&server, &["pipeline", "run", "feed", "-f", "--quiet"]);
    assert_eq!(versions(&server).len(), 1, "{name}");
    assert_eq!(attempt(&run_of(&server, "feed-2"), "rows", 0)["cached_from"], "feed-1");
    // Other content is another one.
    write_rows(project.path(), 5);
    project.saggar_ok(&server, &["pipeline", "run", "feed", "-f"]);
    let run = run_of(&server, "feed-3");
    let made = attempt(&run, "rows", 0);
    assert_eq!((&made["cached_from"], &made["outputs"]["dataset"]["value"]), (&Value::Null, &json!("rows/2")), "{run}");
    assert!(server.saggar_ok(&["logs", &job_of(&run, "count")]).contains("/rows has 5 items"));

    // A schedule is pinned to what was pushed, and says so.
    let scheduled = project.saggar(&server, &["pipeline", "schedule", "feed", "--cron", "0 3 1 1 *"]);
    let errors = String::from_utf8_lossy(&scheduled.stderr).into_owned();
    assert!(scheduled.status.success() && errors.contains("each run uses rows/2"), "{errors}");
    write_rows(project.path(), 7);
    assert_eq!(versions(&server).len(), 2, "a schedule does not read the folder again");
}

#[test]
fn folders_that_cannot_be_pushed_are_refused_before_anything_is_sent() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let project = PipelineProject::new("");
    write_rows(project.path(), 3);
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(elsewhere.path().join("rows.csv"), "x\n1\n").unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), project.path().join("outside")).unwrap();
    std::fs::create_dir(project.path().join("empty")).unwrap();
    let absolute = elsewhere.path().to_str().unwrap();
    for (dataset, folder, code, expected) in [
        ("rows", "absent", 3, "step rows: folder"),
        ("rows", "empty", 7, "holds no files"),
        ("rows", "outside", 7, "outside the project's directory"),
        ("rows", "tables/rows/rows.csv", 7, "is no folder"),
        ("rows", "../rows", 7, "folder \"../rows\" is not in the project's directory"),
        ("rows", absolute, 7, "is not in the project's directory"),
        ("rows", "", 7, "is not in the project's directory"),
        ("Rows", "tables/rows", 7, "expected the name of a dataset, got \"Rows\""),
        ("rows-${run.id}", "tables/rows", 7, "its name has no placeholders"),
    ] {
        project.rewrite(&saggar_tests::pipelines::steady_manifest(&pipeline(dataset, folder)));
        project.check_refusal(&server, &["pipeline", "run", "feed"], code, expected);
        project.check_refusal(&server, &["pipeline", "check"], code, expected);
    }
    // Another mistake in the plan, which only the types show: nothing is pushed.
    let wrong = pipeline("rows", "tables/rows").replace("steps.rows.outputs.dataset", "steps.rows.outputs.job");
    project.rewrite(&saggar_tests::pipelines::steady_manifest(&wrong));
    project.check_refusal(&server, &["pipeline", "run", "feed"], 7, "data takes a dataset or an output");
    assert_eq!(versions(&server), [Value::Null; 0]);
    assert_eq!(server.get("/api/v1/pipeline-runs")["runs"], json!([]));
}

#[test]
fn a_plan_of_a_client_names_a_version_that_was_pushed() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let folder = tempfile::tempdir().unwrap();
    write_rows(folder.path(), 4);
    let rows = folder.path().join("tables/rows");
    server.saggar_ok(&["data", "push", rows.to_str().unwrap(), "--name", "rows"]);
    let post = |from: Value| {
        let step = json!({ "name": "rows", "kind": "data", "dataset": "rows", "from": from });
        let body = json!({ "plan": { "name": "feed", "project": "p", "steps": [step] } });
        let answer = server.request("POST", "/api/v1/pipeline-runs", HttpPayload::Json(&body));
        (answer.status, answer.text)
    };
    for (from, status, expected) in [
        (json!("rows/9"), 404, "rows/9"),
        (json!("rows"), 400, "expected a version of dataset rows"),
        (json!("other/1"), 400, "expected a version of dataset rows"),
        (json!({ "folder": "tables/rows" }), 400, "a plan names no folder of a client"),
    ] {
        let (found, text) = post(from.clone());
        assert!(found == status && text.contains(expected), "{from}: {found} {text}");
    }
    let (status, text) = post(json!("rows/1"));
    assert_eq!(status, 201, "{text}");
    let run = saggar_tests::pipelines::wait_for_run(&server, "feed-1");
    assert_eq!(run["state"], "SUCCEEDED", "{run}");
    let digest = &versions(&server)[0]["digest"];
    let output = &attempt(&run, "rows", 0)["outputs"]["dataset"];
    assert_eq!((&output["value"], &output["digest"]), (&json!("rows/1"), digest), "{run}");
    assert_eq!(server.job(&job_of(&run, "rows"))["spec"]["data_step"]["from"], json!({ "version": 1 }));
}
