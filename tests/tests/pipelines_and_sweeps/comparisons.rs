//! Pipeline runs and sweeps side by side, at the command line and over REST, and as members of experiments.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, guest};
use serde_json::{Value, json};

/// Runs pipelines whose trainings are of `steady`, twice `train` and once `steady`, and returns the server. A run of
/// `steady` has the name of a job.
fn server_with_runs() -> (tempfile::TempDir, ServerProcess) {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let project = tempfile::tempdir().unwrap();
    let plugin = guest("steady");
    let step = |pipeline: &str, name: &str, more: &str| {
        format!("[[pipeline.{pipeline}.step]]\nname = \"{name}\"\ntask = \"train\"\n{more}\n")
    };
    let manifest = format!(
        "manifest = 1\n[project]\nname = \"steady\"\n[project.defaults]\ndevice = \"cpu\"\n\
         checkpoint = {{ every = \"1steps\" }}\n\
         [plugin.steady]\nsource = {plugin:?}\n[task.train]\nplugin = \"steady\"\nexperiment = \"nights\"\n\
         [pipeline.train]\nparams = {{ steps = 3, work = 1 }}\n{}{}[pipeline.steady]\n{}",
        step("train", "first", "args = { steps = \"${params.steps}\", work = \"${params.work}\" }"),
        step("train", "second", "after = [\"first\"]\nargs = { steps = 2 }"),
        step("steady", "only", "args = { steps = 2 }"),
    );
    std::fs::write(project.path().join("saggar.toml"), manifest).unwrap();
    for arguments in [&["train"][..], &["train", "-p", "steps=5"], &["steady"]] {
        let arguments = [&["pipeline", "run"], arguments, &["-f"]].concat();
        let output = server.command(&arguments).current_dir(project.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    (home, server)
}

/// Runs a sweep of `steady` over these values of `work` to its end, and returns its name.
fn run_sweep(server: &ServerProcess, values: &str, fields: Value) -> String {
    let job = SteadyJob::with_steps(3).with_field("experiment", "nights").spec(server);
    let mut spec = json!({ "job": job, "space": { "work": values }, "metric": "accuracy" });
    spec.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
    let answer = server.request("POST", "/api/v1/sweeps", HttpPayload::Json(&spec));
    assert_eq!(answer.status, 201, "{}", answer.text);
    let name = answer.json()["name"].as_str().unwrap().to_owned();
    server.wait_for("the end of the sweep", |server| {
        let state = server.get(&format!("/api/v1/sweeps/{name}"))["state"].clone();
        (state == "SUCCEEDED").then_some(())
    });
    name
}

/// Returns the cells of the row of `field`, without the field.
fn row<'a>(table: &'a str, field: &str) -> &'a str {
    let found = table.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix("  "));
    found.unwrap_or_else(|| panic!("no row {field}:\n{table}")).trim()
}

#[test]
fn pipeline_runs_are_compared_by_parameters_steps_outputs_and_metrics() {
    let (_home, server) = server_with_runs();
    let table = server.saggar_ok(&["compare", "train-1", "train-2"]);
    let header: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["FIELD", "train-1", "train-2"]);
    assert_eq!(row(&table, "params.steps").split_whitespace().collect::<Vec<_>>(), ["3", "5"]);
    assert!(!table.contains("params.work"), "a parameter that is the same is left out:\n{table}");
    assert!(row(&table, "first").matches("SUCCEEDED ").count() == 2 && row(&table, "first").contains("steady-1"));

    let compared = server.get("/api/v1/compare?names=train-1,train-2");
    let runs = &compared["pipeline_runs"];
    assert_eq!((&compared["kind"], runs["steps"].as_array().unwrap().len()), (&json!("pipeline-run"), 2));
    let work = json!({ "name": "work", "values": [1, 1], "differs": false });
    assert!(runs["params"].as_array().unwrap().contains(&work), "{runs}");
    let first = &runs["steps"][0];
    let jobs = [0, 1].map(|run| server.job(first["attempts"][run]["job"].as_str().unwrap()));
    assert!(first["attempts"][0]["seconds"].as_f64().unwrap() > 0.0, "{first}");
    let metric = |name: &str| {
        let metrics = first["metrics"].as_array().unwrap();
        metrics.iter().find(|metric| metric["name"] == name).unwrap()["values"].clone()
    };
    assert_eq!(metric("accuracy"), json!([jobs[0]["metrics"]["accuracy"], jobs[1]["metrics"]["accuracy"]]), "{first}");
    let checkpoint = first["outputs"].as_array().unwrap().iter().find(|output| output["name"] == "checkpoint").unwrap();
    let digests = [0, 1].map(|run| checkpoint["outputs"][run]["digest"].as_str().unwrap().to_owned());
    assert!(digests[0] != digests[1] && checkpoint["differs"] == true, "{checkpoint}");
    assert!(row(&table, "first.checkpoint").contains(&digests[1][..12]), "{table}");
}

#[test]
fn pipeline_runs_and_sweeps_are_drawn_as_charts() {
    let (home, server) = server_with_runs();
    let file = home.path().join("chart.svg");
    let path = file.to_str().unwrap();
    let draw = |arguments: &[&str]| {
        let printed = server.saggar_ok(&[&["compare"], arguments, &["--svg", path, "--force"]].concat());
        assert_eq!(printed.trim(), path);
        std::fs::read_to_string(&file).unwrap()
    };
    // A line for each step of each run, named as in the table.
    let drawing = draw(&["train-1", "train-2", "--metric", "accuracy"]);
    for text in ["accuracy of 2 pipeline runs", "train-1 first", "train-2 first", "train-1 second", "train-2 second"] {
        assert!(drawing.contains(text), "{text}: {drawing}");
    }
    let sweeps = [run_sweep(&server, "1,2", json!({})), run_sweep(&server, "3,4,5", json!({}))];
    let drawing = draw(&[&sweeps[0], &sweeps[1]]);
    for text in ["best accuracy of 2 sweeps", "steps of all trials", &sweeps[0], &sweeps[1]] {
        assert!(drawing.contains(text), "{text}: {drawing}");
    }
    let other = run_sweep(&server, "1,2", json!({"metric": "min:loss"}));
    for (arguments, code, words) in [
        (vec!["train-1", "train-2", "--metric", "bleu"], 3, "no compared pipeline run has this series"),
        (vec![&sweeps[0], &sweeps[1], "--metric", "loss"], 7, "the metric of these sweeps is accuracy"),
        (vec![&sweeps[0], &other], 7, "cannot share a chart"),
    ] {
        let before = std::fs::read(&file).unwrap();
        let output = server.saggar(&[&["compare"], &arguments[..], &["--svg", path, "--force"]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && errors.contains(words), "{arguments:?}: {errors}");
        assert_eq!(std::fs::read(&file).unwrap(), before);
    }
}

#[test]
fn names_of_several_kinds_are_refused_and_a_kind_can_be_given() {
    let (_home, server) = server_with_runs();
    let refused = |arguments: &[&str], code: i32, says: &[&str]| {
        let output = server.saggar(&[&["compare"], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        says.iter().for_each(|words| assert!(errors.contains(words), "{arguments:?}: {errors}"));
    };
    refused(&["train-1", "steady-2"], 7, &["names of one kind", "train-1 (pipeline run) and steady-2 (job)"]);
    refused(&["train-1", "absent-1"], 3, &["no job, pipeline run or sweep absent-1", "saggar pipeline ls"]);
    refused(&["steady-1", "train-1", "--kind", "job"], 3, &["no job train-1"]);
    refused(&["train-1", "train-2", "--sort", "loss"], 7, &["--sort is for jobs, and these are pipeline runs"]);
    // `steady-1` is a job and a pipeline run; `steady-2` is a job, and `train-1` a run.
    assert!(server.saggar_ok(&["compare", "steady-1", "steady-2"]).starts_with("JOB "));
    assert!(server.saggar_ok(&["compare", "steady-1", "train-1"]).starts_with("FIELD "));
    for (query, says) in [
        ("names=steady-1", "2 to 100 names"),
        ("names=steady-1,steady-2&kind=model", "job, pipeline-run or sweep"),
        (&format!("names={}", vec!["steady-1"; 101].join(",")), "2 to 100 names"),
        (&format!("names={}", vec!["train-1"; 21].join(",")), "at most 20 pipeline runs"),
    ] {
        let answer = server.request("GET", &format!("/api/v1/compare?{query}"), HttpPayload::Nothing);
        assert!(answer.status == 400 && answer.text.contains(says), "{query}: {}", answer.text);
    }
}

#[test]
fn sweeps_are_compared_by_method_space_trials_and_best_value() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let first = run_sweep(&server, "1,2", json!({}));
    let second = run_sweep(&server, "1,2,3", json!({ "method": "median", "seed": 5 }));
    let table = server.saggar_ok(&["compare", &first, &second]);
    let cells = |field: &str| row(&table, field).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cells("method"), ["full", "median"]);
    assert_eq!(cells("space.work"), ["1,2", "1,2,3"]);
    assert_eq!(cells("seed"), ["0", "5"]);
    assert_eq!(cells("steps"), ["6", "9"], "three steps a trial");
    assert!(row(&table, "trial states").contains("3 COMPLETED of 3"), "{table}");
    let compared = server.get(&format!("/api/v1/compare?names={first},{second}"));
    let best = server.get(&format!("/api/v1/sweeps/{second}"));
    let trial = best["trials"].as_array().unwrap().iter().find(|trial| trial["number"] == best["best"]).unwrap();
    let of = &compared["sweeps"]["sweeps"][1];
    assert_eq!((&of["best_value"], &of["best_job"]), (&best["best_value"], &trial["job"]), "{of}");
    assert_eq!(compared["sweeps"]["best_parameters"][0]["values"][1], trial["parameters"]["work"]);
    assert_eq!(cells("best job")[1], trial["job"].as_str().unwrap());
}

#[test]
fn an_experiment_names_the_pipeline_runs_and_sweeps_of_its_jobs() {
    let (_home, server) = server_with_runs();
    let sweep = run_sweep(&server, "1,2", json!({}));
    let experiment = server.get("/api/v1/experiments/nights");
    let members = |kind: &str| -> Vec<String> {
        let list = experiment[kind].as_array().unwrap_or_else(|| panic!("{experiment}"));
        list.iter().map(|it| format!("{} {} {}", it["name"].as_str().unwrap(), it["state"], it["jobs"])).collect()
    };
    let ended = |name: &str, jobs: u32| format!("{name} \"SUCCEEDED\" {jobs}");
    assert_eq!(members("pipeline_runs"), [ended("steady-1", 1), ended("train-2", 2), ended("train-1", 2)]);
    assert_eq!(members("sweeps"), [ended(&sweep, 2)]);
    let missing = server.request("GET", "/api/v1/experiments/absent", HttpPayload::Nothing);
    assert!(missing.status == 404 && missing.text.contains("saggar experiment ls"), "{}", missing.text);
}
