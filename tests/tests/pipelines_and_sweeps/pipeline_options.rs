//! Components, limits, secrets, retries and reused results of pipeline steps.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::sync::atomic::Ordering;

use saggar_store::Digest;
use saggar_tests::pipelines::{PipelineProject, attempt, job_of, run_of, steady_manifest};
use saggar_tests::{HttpPayload, ServerProcess, file_server, guest, series_value};
use serde_json::{Value, json};

#[test]
fn components_of_steps_are_fetched_once_verified_and_recorded() {
    let wasm = std::fs::read(guest("stepper")).unwrap();
    let digest = Digest::of(&wasm).hex();
    let (address, requests) = file_server(wasm);
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--fetch-from", &address]);
    let manifest = |sha256: &str| {
        format!(
            "manifest = 1\n[project]\nname = \"far\"\n[project.defaults]\ndevice = \"cpu\"\n\
             [plugin.far]\nsource = \"{address}/stepper.wasm?token=s3cret\"\nsha256 = \"{sha256}\"\n\
             [pipeline.far]\n[[pipeline.far.step]]\nname = \"a\"\nplugin = \"far\"\nargs = {{ count = 1 }}\n\
             [[pipeline.far.step]]\nname = \"b\"\nplugin = \"far\"\nargs = {{ count = \"${{steps.a.outputs.count}}\" }}\n"
        )
    };
    let project = PipelineProject::new(&manifest(&digest));
    let checked = project.saggar(&server, &["pipeline", "check"]);
    assert!(checked.status.success() && String::from_utf8_lossy(&checked.stderr).contains("plugin far"), "{checked:?}");
    for number in 1..=2 {
        project.saggar_ok(&server, &["pipeline", "run", "far", "-f"]);
        let run = run_of(&server, &format!("far-{number}"));
        assert_eq!(attempt(&run, "b", 0)["outputs"]["count"]["value"], 3);
        let plugin = &attempt(&run, "b", 0)["inputs"][0];
        assert_eq!((&plugin["name"], &plugin["digest"]), (&json!("plugin"), &json!(digest)));
        assert_eq!(plugin["reference"], format!("{address}/stepper.wasm"), "the token is left out");
    }
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    // A wrong digest names both, and nothing runs.
    let other = "0".repeat(64);
    project.rewrite(&manifest(&other));
    for said in [&digest, &other] {
        project.check_refusal(&server, &["pipeline", "run", "far"], 7, said);
    }
    let local =
        manifest(&other).replace(&format!("{address}/stepper.wasm?token=s3cret"), guest("stepper").to_str().unwrap());
    project.rewrite(&local);
    for said in [&digest, &other] {
        project.check_refusal(&server, &["pipeline", "run", "far"], 7, said);
    }
    // A reference plugin of another version does not exist.
    project.rewrite(&manifest(&digest).replace(&format!("{address}/stepper.wasm?token=s3cret"), "lenet@99.0.0"));
    project.check_refusal(&server, &["pipeline", "run", "far"], 3, "lenet@99.0.0");
    assert_eq!(server.get("/api/v1/pipeline-runs")["runs"].as_array().unwrap().len(), 2);
    assert!(!std::fs::read_to_string(home.path().join("server.log")).unwrap().contains("s3cret"));
}

#[test]
fn a_run_takes_the_results_of_a_failed_one_where_nothing_changed() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let stepper = guest("stepper");
    let project = PipelineProject::new(&steady_manifest(&format!(
        "[plugin.stepper]\nsource = {stepper:?}\n[pipeline.chain]\nparams = {{ fail_at = 3, count = 2 }}\n\
         [[pipeline.chain.step]]\nname = \"a\"\ntask = \"train\"\nargs = {{ steps = 12, write = \"table=3\" }}\n\
         [[pipeline.chain.step]]\nname = \"s\"\nplugin = \"stepper\"\nargs = {{ count = \"${{params.count}}\" }}\n\
         [[pipeline.chain.step]]\nname = \"b\"\ntask = \"train\"\ninit_from = \"${{steps.a.outputs.checkpoint}}\"\n\
         args = {{ steps = 20, fail_at = \"${{params.fail_at}}\", fail_until = 99 }}\nafter = [\"s\"]\n\
         [[pipeline.chain.step]]\nname = \"last\"\nplugin = \"stepper\"\nafter = [\"b\"]\n\
         args = {{ count = \"${{steps.s.outputs.count}}\" }}\n"
    )));
    project.check_refusal(&server, &["pipeline", "run", "chain", "--from-failed"], 3, "has no run that failed");
    let failed = project.saggar(&server, &["pipeline", "run", "chain", "-p", "fail_at=15", "-f"]);
    assert_eq!(failed.status.code(), Some(20), "{failed:?}");
    assert_eq!(attempt(&run_of(&server, "chain-1"), "last", 0)["reason"], "UPSTREAM_FAILED");

    let again = project.saggar(&server, &["pipeline", "run", "chain", "-p", "fail_at=0", "-f", "--from-failed"]);
    assert!(again.status.success(), "{again:?}");
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("results of chain-1 are used where nothing changed"), "{said}");
    let cached = |run: &Value| ["a", "s", "b", "last"].map(|step| attempt(run, step, 0)["cached_from"].clone());
    let run = run_of(&server, "chain-2");
    assert_eq!((&run["state"], &run["reuse_from"]), (&json!("SUCCEEDED"), &json!("chain-1")));
    assert_eq!(cached(&run), [json!("chain-1"), json!("chain-1"), Value::Null, Value::Null], "{run}");
    assert_eq!(attempt(&run, "a", 0)["message"], "computed by chain-1");
    assert_eq!(attempt(&run, "a", 0)["outputs"], attempt(&run_of(&server, "chain-1"), "a", 0)["outputs"]);
    let b = server.job(&job_of(&run, "b"));
    assert_eq!(b["spec"]["init_from"], attempt(&run, "a", 0)["outputs"]["checkpoint"]["value"]);
    let status = server.saggar_ok(&["pipeline", "status", "chain-2"]);
    assert!(status.contains("results of chain-1") && status.contains("computed by chain-1"), "{status}");

    // What changed is computed again, with all that depends on it.
    let changed = ["pipeline", "run", "chain", "-p", "fail_at=0", "-p", "count=5", "--from-failed", "chain-1", "-f"];
    project.saggar_ok(&server, &changed);
    let run = run_of(&server, "chain-3");
    assert_eq!(cached(&run), [json!("chain-1"), Value::Null, Value::Null, Value::Null], "{run}");
    assert_eq!(attempt(&run, "last", 0)["outputs"]["count"]["value"], 7);

    // Without the option, nothing is reused.
    project.saggar_ok(&server, &["pipeline", "run", "chain", "-p", "fail_at=0", "-f"]);
    assert_eq!(cached(&run_of(&server, "chain-4")), [const { Value::Null }; 4]);
    project.check_refusal(
        &server,
        &["pipeline", "run", "chain", "--from-failed", "chain-2"],
        5,
        "nothing is left to do",
    );
    project.check_refusal(
        &server,
        &["pipeline", "run", "chain", "--from-failed", "chain-9"],
        3,
        "no pipeline run chain-9",
    );
    let plan = json!({ "name": "other", "project": "p", "steps": [{ "name": "a", "kind": "approve" }] });
    let body = json!({ "plan": plan, "from_failed": "chain-1" });
    let answer = server.request("POST", "/api/v1/pipeline-runs", HttpPayload::Json(&body));
    assert_eq!(answer.status, 404, "a run of another pipeline looks like a missing one: {}", answer.text);
    let schedule = json!({ "cron": "0 3 * * *", "run": { "plan": plan, "from_failed": "other-1" } });
    let answer = server.request("POST", "/api/v1/pipelines", HttpPayload::Json(&schedule));
    let is_explained = answer.text.contains("a schedule has no from_failed") && !answer.text.contains("cron");
    assert!(answer.status == 400 && is_explained && answer.text.contains("leave from_failed out"), "{}", answer.text);
    // A run that was removed has no results, and no run is refused for it later.
    server.saggar_ok(&["pipeline", "rm", "chain-1"]);
    project.check_refusal(&server, &["pipeline", "run", "chain", "--from-failed"], 3, "has no run that failed");
    check_metrics(&server);
}

/// Checks the metrics after four runs of the pipeline `chain`, two of which used three results of the first.
fn check_metrics(server: &ServerProcess) {
    // Runs are counted once a second.
    let page = server.wait_for("the count of running runs", |server| {
        let page = server.request("GET", "/metrics", HttpPayload::Nothing).text;
        (series_value(&page, "saggar_pipeline_running_runs") == Some(0.0)).then_some(page)
    });
    for (series, value) in [
        ("saggar_pipeline_runs_finished_total{pipeline=\"chain\",state=\"SUCCEEDED\"}", 3.0),
        ("saggar_pipeline_runs_finished_total{pipeline=\"chain\",state=\"FAILED\"}", 1.0),
        ("saggar_pipeline_runs_finished_total{pipeline=\"chain\",state=\"CANCELLED\"}", 0.0),
        ("saggar_pipeline_run_seconds_count{pipeline=\"chain\"}", 4.0),
        ("saggar_pipeline_steps_finished_total{kind=\"train\",state=\"SUCCEEDED\"}", 7.0),
        ("saggar_pipeline_steps_finished_total{kind=\"train\",state=\"FAILED\"}", 1.0),
        ("saggar_pipeline_steps_finished_total{kind=\"plugin\",state=\"SUCCEEDED\"}", 7.0),
        ("saggar_pipeline_steps_finished_total{kind=\"deploy\",state=\"FAILED\"}", 0.0),
        // Two results of trainings were cached, and one of a plugin.
        ("saggar_pipeline_step_seconds_count{kind=\"train\"}", 6.0),
        ("saggar_pipeline_step_seconds_count{kind=\"plugin\"}", 6.0),
    ] {
        assert_eq!(series_value(&page, series), Some(value), "{series}");
    }
}

#[test]
fn limits_secrets_and_retries_apply_to_every_kind_of_job() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.saggar_ok(&["data", "recipe", "add", "moons"]);
    let secret = json!({ "value": "squeamish ossifrage" });
    assert_eq!(server.request("PUT", "/api/v1/secrets/token", HttpPayload::Json(&secret)).status, 200);
    let (stepper, judge) = (guest("stepper"), guest("judge"));
    let options =
        "max_runtime = \"1h\"\nmax_attempt_runtime = \"30m\"\nauto_extend = 1\nretry = 2\nretry_on = [\"error\"]\n";
    let manifest = format!(
        "[plugin.tabular]\nsource = \"tabular\"\n[plugin.stepper]\nsource = {stepper:?}\n[plugin.judge]\nsource = {judge:?}\n\
         [task.fit]\nplugin = \"tabular\"\ndata = [\"moons:/data\"]\nargs = {{ epochs = 1, model = \"points\" }}\n\
         [pipeline.all]\n\
         [[pipeline.all.step]]\nname = \"train\"\ntask = \"fit\"\nsecrets = [\"token\"]\n{options}\
         [[pipeline.all.step]]\nname = \"make\"\nplugin = \"stepper\"\nsecrets = [\"token\"]\n{options}\
         [[pipeline.all.step]]\nname = \"rows\"\nkind = \"data\"\ndataset = \"rows\"\nfrom = \"${{steps.make.outputs.rows}}\"\n{options}\
         [[pipeline.all.step]]\nname = \"judge\"\nplugin = \"judge\"\nsecrets = [\"token\"]\n{options}\
         args = {{ table = \"${{steps.rows.outputs.dataset}}\", report = \"${{steps.make.outputs.report}}\", \
         model = \"${{steps.train.outputs.model}}\", best = \"${{steps.train.outputs.checkpoint}}\", secret = \"token\" }}\n\
         [[pipeline.all.step]]\nname = \"predict\"\nkind = \"predict\"\nfrom = \"${{steps.judge.outputs.chosen}}\"\n\
         data = [\"moons:/data\"]\n{options}"
    );
    let project = PipelineProject::new(&steady_manifest(&manifest));
    let ran = project.saggar(&server, &["pipeline", "run", "all", "-f"]);
    let run = run_of(&server, "all-1");
    assert!(ran.status.success(), "{ran:?} {run}");
    for step in ["train", "make", "rows", "judge", "predict"] {
        let spec = server.job(&job_of(&run, step))["spec"].clone();
        assert_eq!((&spec["max_runtime_seconds"], &spec["auto_extend"]), (&json!(3600.0), &json!(1)), "{step}");
        assert_eq!(spec["max_attempt_runtime_seconds"], json!(1800.0), "{step}");
        assert_eq!((&spec["retry"], &spec["retry_on"]), (&json!(2), &json!(["error"])), "{step}");
        let secrets = if matches!(step, "rows" | "predict") { Value::Null } else { json!(["token"]) };
        assert_eq!(spec["secrets"], secrets, "{step}");
    }
    // The step could read the secret, and nothing shows it.
    let verdict = attempt(&run, "judge", 0)["outputs"]["verdict"]["value"].as_str().unwrap().to_owned();
    assert!(verdict.contains("points@1 of 2 items") && verdict.contains("[secret]"), "{verdict}");
    assert!(!run.to_string().contains("ossifrage"));
}

#[test]
fn a_step_is_retried_after_the_causes_that_it_names_and_ends_at_its_time_limit() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let stepper = guest("stepper");
    let manifest = format!(
        "[plugin.stepper]\nsource = {stepper:?}\n[pipeline.hard]\n\
         [[pipeline.hard.step]]\nname = \"thrice\"\nplugin = \"stepper\"\nargs = {{ mode = \"error\" }}\nretry = 2\nretry_on = [\"error\"]\n\
         [[pipeline.hard.step]]\nname = \"once\"\nplugin = \"stepper\"\nargs = {{ mode = \"error\" }}\nretry = 2\nretry_on = [\"preempted\"]\n\
         [[pipeline.hard.step]]\nname = \"late\"\ntask = \"train\"\nargs = {{ steps = 100000000 }}\nmax_runtime = \"2s\"\n"
    );
    let project = PipelineProject::new(&steady_manifest(&manifest));
    let ran = project.saggar(&server, &["pipeline", "run", "hard", "-f"]);
    assert_eq!(ran.status.code(), Some(20), "{ran:?}");
    let run = run_of(&server, "hard-1");
    for (step, attempts, reason) in
        [("thrice", 3, "PLUGIN_ERROR"), ("once", 1, "PLUGIN_ERROR"), ("late", 1, "MAX_RUNTIME")]
    {
        let ended = attempt(&run, step, 0);
        assert_eq!((&ended["state"], &ended["reason"]), (&json!("FAILED"), &json!(reason)), "{step}: {run}");
        assert_eq!(server.job(&job_of(&run, step))["attempt"], attempts, "{step}");
    }
    assert!(attempt(&run, "late", 0)["message"].as_str().unwrap().contains("TIMED_OUT"), "{run}");
}
