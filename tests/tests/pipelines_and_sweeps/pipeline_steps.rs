//! Pipelines of plugins with typed inputs and outputs, and of datasets that are made on the way.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::sync::atomic::Ordering;

use saggar_store::Digest;
use saggar_tests::pipelines::{PipelineProject, attempt, job_of, run_of, wait_for_run};
use saggar_tests::{HttpPayload, ServerProcess, file_server, guest, root};
use serde_json::{Value, json};

/// Returns a project file with a training of moons, the steps `stepper` and `judge`, and this text.
fn manifest(rest: &str) -> String {
    let (stepper, judge) = (guest("stepper"), guest("judge"));
    format!(
        "manifest = 1\n[project]\nname = \"typed\"\n[project.defaults]\ndevice = \"cpu\"\n\
         checkpoint = {{ every = \"5steps\" }}\n[plugin.tabular]\nsource = \"tabular@{}\"\n\
         [plugin.stepper]\nsource = {stepper:?}\n[plugin.judge]\nsource = {judge:?}\n\
         [task.train]\nplugin = \"tabular\"\ndata = [\"moons:/data\"]\nargs = {{ epochs = 1, model = \"points\" }}\n{rest}",
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the steps from a training and a table to a decision, with these arguments of the decision.
fn steps_to_judge(judge: &str) -> String {
    format!(
        "[pipeline.typed]\nparams = {{ rows = 3, steps = 40 }}\n\
         [[pipeline.typed.step]]\nname = \"train\"\ntask = \"train\"\n\
         [[pipeline.typed.step]]\nname = \"make\"\nplugin = \"stepper\"\nargs = {{ count = \"${{params.rows}}\", share = 0.5 }}\n\
         [[pipeline.typed.step]]\nname = \"rows\"\nkind = \"data\"\ndataset = \"rows\"\nfrom = \"${{steps.make.outputs.rows}}\"\n\
         [[pipeline.typed.step]]\nname = \"judge\"\nplugin = \"judge\"\nargs = {{ {judge} }}\n"
    )
}

const JUDGE: &str = "table = \"${steps.rows.outputs.dataset}\", report = \"${steps.make.outputs.report}\", \
    model = \"${steps.train.outputs.model}\", best = \"${steps.train.outputs.checkpoint}\", \
    least = \"${steps.make.outputs.share}\"";

fn moons(home: &tempfile::TempDir, options: &[&str]) -> ServerProcess {
    let server = ServerProcess::start_with(home.path(), options);
    server.saggar_ok(&["data", "recipe", "add", "moons"]);
    server
}

#[test]
fn typed_outputs_connect_steps_of_every_kind() {
    let home = tempfile::tempdir().unwrap();
    let server = moons(&home, &[]);
    let project = PipelineProject::new(&manifest(&format!(
        "{}[[pipeline.typed.step]]\nname = \"again\"\ntask = \"train\"\n\
         init_from = \"${{steps.judge.outputs.start}}\"\n\
         data = [{{ from = \"moons\", to = \"/data\" }}, {{ from = \"${{steps.make.outputs.rows}}\", to = \"/rows\" }}]\n\
         args = {{ epochs = \"${{steps.judge.outputs.items}}\", model = \"points-again\" }}\n\
         [[pipeline.typed.step]]\nname = \"serve\"\nkind = \"deploy\"\nfrom = \"${{steps.judge.outputs.chosen}}\"\n",
        steps_to_judge(JUDGE)
    )));
    assert!(project.saggar_ok(&server, &["pipeline", "check"]).contains("typed: 6 steps"));
    let graph: Value =
        serde_json::from_str(&project.saggar_ok(&server, &["pipeline", "graph", "typed", "--json"])).unwrap();
    let kinds: Vec<&str> = graph.as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["train", "plugin", "data", "plugin", "train", "deploy"]);
    let graph = project.saggar_ok(&server, &["pipeline", "graph", "typed", "--format", "mermaid"]);
    assert!(graph.contains("s1 --> s2\n") && graph.contains("s2 --> s3\n"), "{graph}");
    let ran = project.saggar(&server, &["pipeline", "run", "typed", "-p", "rows=2", "-f"]);
    let run = run_of(&server, "typed-1");
    assert!(ran.status.success(), "{ran:?} {run}");
    let outputs = |step: &str| attempt(&run, step, 0)["outputs"].clone();
    let made = outputs("make");
    let job = job_of(&run, "make");
    for (name, kind, value) in [
        ("count", "integer", json!(3)),
        ("share", "number", json!(0.25)),
        ("flag", "boolean", json!(true)),
        ("note", "text", json!("all is well")),
        ("report", "file", json!(format!("job:{job}/output/report"))),
        ("rows", "dataset-files", json!(format!("job:{job}/output/table"))),
    ] {
        assert_eq!((&made[name]["type"], &made[name]["value"]), (&json!(kind), &value), "{name}: {made}");
    }
    assert_eq!(made["report"]["digest"], Digest::of(b"a report\n").hex());
    let datasets = server.get("/api/v1/datasets");
    let rows = datasets["datasets"].as_array().unwrap().iter().find(|it| it["name"] == "rows").unwrap();
    let dataset = json!({ "value": "rows/1", "type": "dataset", "digest": rows["digest"] });
    assert_eq!(outputs("rows")["dataset"], dataset);
    let judged = outputs("judge");
    assert_eq!(judged["items"]["value"], 2);
    assert_eq!(judged["steps"]["value"], 2 + 9, "the bytes of the report are those of the file");
    assert_eq!(judged["verdict"]["value"], "points@1 of 2 items with at least 0.25");
    assert_eq!((&judged["chosen"]["value"], &judged["chosen"]["type"]), (&json!("model:points@1"), &json!("model")));
    assert_eq!(judged["chosen"]["digest"], outputs("train")["model"]["digest"]);
    // What a step read is recorded with its digest, and its plugin with the name of the component.
    let read = attempt(&run, "judge", 0)["inputs"].as_array().unwrap().clone();
    let input = |name: &str| read.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{name}: {read:?}"));
    assert_eq!(input("plugin")["reference"], "judge.wasm");
    assert_eq!(input("plugin")["digest"], Digest::of(&std::fs::read(guest("judge")).unwrap()).hex());
    assert_eq!((&input("/table")["reference"], &input("/table")["digest"]), (&json!("rows/1"), &rows["digest"]));
    assert_eq!(input("model")["digest"], outputs("train")["model"]["digest"]);
    assert_eq!(input("best")["digest"], outputs("train")["checkpoint"]["digest"]);
    let trained = attempt(&run, "train", 0)["inputs"][0]["reference"].as_str().unwrap().to_owned();
    assert_eq!(trained, format!("tabular@{}", env!("CARGO_PKG_VERSION")));
    // A training begins with the checkpoint, takes a number as its parameter, and mounts the dataset of a plugin.
    let again = server.job(&job_of(&run, "again"));
    assert_eq!(again["spec"]["init_from"], outputs("train")["checkpoint"]["value"]);
    assert_eq!(again["spec"]["parameters"]["epochs"], 2);
    assert!(again["spec"]["data"].to_string().contains(&format!("{{\"job\":\"{job}\"")), "{again}");
    assert_eq!(server.get("/api/v1/models/points")["serving"], 1);
    let status = project.saggar_ok(&server, &["pipeline", "status", "typed-1"]);
    assert!(status.contains("plugin") && status.contains("data"), "{status}");
}

#[test]
fn conditions_compare_outputs_and_decide_which_steps_run() {
    let home = tempfile::tempdir().unwrap();
    let server = moons(&home, &[]);
    let step = |name: &str, when: &str, more: &str| {
        format!("[[pipeline.gate.step]]\nname = \"{name}\"\nplugin = \"stepper\"\nwhen = \"{when}\"\n{more}")
    };
    let head = "[pipeline.gate]\nparams = { least = 0.1, share = 0.5 }\n\
                [[pipeline.gate.step]]\nname = \"make\"\nplugin = \"stepper\"\nargs = { share = \"${params.share}\" }\n";
    let steps = [
        step("good", "${steps.make.outputs.share} > ${params.least}", ""),
        step("bad", "${steps.make.outputs.share} <= ${params.least}", ""),
        step("flagged", "!${steps.make.outputs.flag}", ""),
        step("noted", "${steps.make.outputs.note} == 'all is well'", ""),
        // Both wait for a step that one of the two conditions skips.
        step("uses", "${steps.bad.outputs.count} == 3", ""),
        step("after", "${steps.make.outputs.count} == 3", "after = [\"bad\"]\n"),
    ];
    let project = PipelineProject::new(&manifest(&format!("{head}{}", steps.concat())));
    assert!(project.saggar_ok(&server, &["pipeline", "check"]).contains("gate: 7 steps"));
    let graph = project.saggar_ok(&server, &["pipeline", "graph", "gate"]);
    assert!(graph.contains("plugin when ${steps.make.outputs.share} > ${params.least}"), "{graph}");
    let mermaid = project.saggar_ok(&server, &["pipeline", "graph", "gate", "--format", "mermaid"]);
    assert!(mermaid.contains("s0 --> s1\n") && mermaid.contains("outputs.share} #gt; ${params.least}"), "{mermaid}");
    let states = |run: &str| -> Vec<(String, String)> {
        let run = run_of(&server, run);
        let of = |name: &str| {
            let attempt = attempt(&run, name, 0);
            let text = |key: &str| attempt[key].as_str().unwrap_or_default().to_owned();
            (text("state"), text("reason"))
        };
        ["good", "bad", "flagged", "noted", "uses", "after"].map(of).into()
    };
    let was = |state: &str, reason: &str| (state.to_owned(), reason.to_owned());
    let (ran, is_false) = (was("SUCCEEDED", ""), was("SKIPPED", "CONDITION_FALSE"));
    project.saggar_ok(&server, &["pipeline", "run", "gate", "-f"]);
    let skipped = was("SKIPPED", "INPUT_SKIPPED");
    assert_eq!(states("gate-1"), [&ran, &is_false, &is_false, &ran, &skipped, &ran].map(Clone::clone));
    // The output is half of the input, so another input decides otherwise.
    project.saggar_ok(&server, &["pipeline", "run", "gate", "-p", "share=0.1", "-f"]);
    assert_eq!(states("gate-2"), [&is_false, &ran, &is_false, &ran, &ran, &ran].map(Clone::clone));

    // Types are checked before anything runs.
    for (when, expected) in [
        ("${steps.make.outputs.report} == 'x'", "output report of step make is a file"),
        ("${steps.make.outputs.note} > 0.5", "> compares numbers"),
        ("${steps.make.outputs.count}", "is not true or false, but a number"),
        ("${steps.make.outputs.counts} > 1", "step make has no output \"counts\""),
        ("${steps.make.outputs.count} > many", "expected a boolean parameter or output, or a comparison"),
    ] {
        project.rewrite(&manifest(&format!("{head}{}", step("last", when, ""))));
        project.check_refusal(&server, &["pipeline", "run", "gate"], 7, expected);
    }
    assert_eq!(server.get("/api/v1/pipeline-runs")["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn wrong_connections_are_refused_before_anything_runs() {
    let home = tempfile::tempdir().unwrap();
    let server = moons(&home, &[]);
    let project = PipelineProject::new(&manifest(&steps_to_judge(JUDGE)));
    let dataset = "expected a dataset, such as digits/1 or job:digits-7/output/table";
    for (change, expected) in [
        (
            ("${steps.rows.outputs.dataset}", "${steps.train.outputs.model}"),
            format!("step judge: input `table`: {dataset}, got ${{steps.train.outputs.model}}, which is a model"),
        ),
        (("outputs.report", "outputs.rapport"), "step make has no output \"rapport\"".to_owned()),
        (("table = ", "least = "), "duplicate key".to_owned()),
        (("model = ", "modell = "), "the plugin has no input \"modell\"".to_owned()),
        (
            ("least = \"${steps.make.outputs.share}\"", "least = 7"),
            "input `least`: expected a number from 0 to 1, got 7".to_owned(),
        ),
        (
            (", best = \"${steps.train.outputs.checkpoint}\"", ""),
            "input `best` is missing: expected a checkpoint".to_owned(),
        ),
    ] {
        project.rewrite(&manifest(&steps_to_judge(&JUDGE.replace(change.0, change.1))));
        project.check_refusal(&server, &["pipeline", "run", "typed"], 7, &expected);
        project.check_refusal(&server, &["pipeline", "check"], 7, expected.trim_start_matches("step judge: "));
    }
    // A training is no step, and a step is no training.
    project
        .rewrite(&manifest("[pipeline.x]\n[[pipeline.x.step]]\nname = \"a\"\nkind = \"plugin\"\ntask = \"train\"\n"));
    project.check_refusal(&server, &["pipeline", "run", "x"], 7, "its plugin is no step");
    project.check_refusal(&server, &["pipeline", "check"], 7, "is no step");
    assert_eq!(server.get("/api/v1/jobs")["jobs"], json!([]));
    assert_eq!(server.get("/api/v1/pipeline-runs")["runs"], json!([]));
}

#[test]
fn a_server_reads_the_types_itself() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let (stepper, judge) = (server.upload(&guest("stepper")), server.upload(&guest("judge")));
    let plan = |steps: Value| json!({ "plan": { "name": "n", "project": "p", "steps": steps } });
    let refusal = |path: &str, body: &Value, says: &str| {
        let answer = server.request("POST", path, HttpPayload::Json(body));
        assert!(answer.status == 400 && answer.text.contains(says), "{says}: {} {}", answer.status, answer.text);
    };
    // What a client says about a plugin does not count.
    let lie = json!({ "outputs": { "median": { "type": "model" } } });
    let steps = json!([
        { "name": "make", "kind": "plugin", "spec": { "plugin": stepper }, "declares": lie },
        { "name": "b", "kind": "data", "dataset": "d", "from": "${steps.make.outputs.median}" },
    ]);
    refusal("/api/v1/pipeline-runs", &plan(steps), "step make has no output \\\"median\\\"");
    let judged =
        json!([{ "name": "judge", "kind": "plugin", "spec": { "plugin": judge }, "args": { "table": "moons" } }]);
    refusal("/api/v1/pipelines/check", &plan(judged.clone()), "input `best` is missing");
    let schedule = json!({ "cron": "0 3 * * *", "run": plan(judged) });
    refusal("/api/v1/pipelines", &schedule, "input `best` is missing");
    let one = |kind: &str, plugin: &str| plan(json!([{ "name": "a", "kind": kind, "spec": { "plugin": plugin } }]));
    refusal("/api/v1/pipeline-runs", &one("plugin", &"0".repeat(64)), "there is no plugin 0000");
    refusal("/api/v1/pipeline-runs", &one("plugin", "lenet"), "is no step");
    refusal("/api/v1/pipeline-runs", &one("train", &stepper), "give the step kind");
    refusal("/api/v1/pipeline-runs", &one("plugin", "../x"), "64 hexadecimal digits");
    assert_eq!(server.get("/api/v1/jobs")["jobs"], json!([]));

    // A reference plugin can be named with its version, which the run records.
    let named = format!("lenet@{}", env!("CARGO_PKG_VERSION"));
    let answer = server.request("POST", "/api/v1/pipeline-runs", HttpPayload::Json(&one("train", &named)));
    assert_eq!(answer.status, 201, "{}", answer.text);
    let run = wait_for_run(&server, "n-1");
    let plugin = attempt(&run, "a", 0);
    assert_eq!(plugin["state"], "FAILED", "lenet needs a dataset: {run}");
}

#[test]
fn a_step_that_ends_without_an_output_fails_with_the_reason() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let project = PipelineProject::new(&manifest(
        "[plugin.steady]\nsource = \"STEADY\"\n[task.steady]\nplugin = \"steady\"\nargs = { steps = 3 }\n\
         [pipeline.lost]\n\
         [[pipeline.lost.step]]\nname = \"make\"\nplugin = \"stepper\"\nargs = { mode = \"missing\" }\n\
         [[pipeline.lost.step]]\nname = \"uses\"\ntask = \"steady\"\nargs = { work = \"${steps.make.outputs.count}\" }\n\
         [[pipeline.lost.step]]\nname = \"steady\"\ntask = \"steady\"\n\
         [[pipeline.lost.step]]\nname = \"serve\"\nkind = \"deploy\"\nfrom = \"${steps.steady.outputs.model}\"\n",
    ));
    let text = std::fs::read_to_string(project.path().join("saggar.toml")).unwrap();
    project.rewrite(&text.replace("STEADY", guest("steady").to_str().unwrap()));
    let failed = project.saggar(&server, &["pipeline", "run", "lost", "-f"]);
    assert_eq!(failed.status.code(), Some(20), "{failed:?}");
    let run = run_of(&server, "lost-1");
    let made = attempt(&run, "make", 0);
    assert_eq!((&made["state"], &made["reason"]), (&json!("FAILED"), &json!("BAD_OUTPUT")), "{run}");
    assert!(made["message"].as_str().unwrap().contains("output `share`"), "{made}");
    assert_eq!(attempt(&run, "uses", 0)["reason"], "UPSTREAM_FAILED");
    // A training that published nothing, although the next step deploys its model.
    let steady = attempt(&run, "steady", 0);
    assert_eq!((&steady["state"], &steady["reason"]), (&json!("FAILED"), &json!("MISSING_OUTPUT")), "{run}");
    let message = steady["message"].as_str().unwrap();
    assert!(message.contains("without the output `model`, which step serve uses"), "{message}");
    assert!(message.contains("published no model"), "{message}");
}

#[test]
fn a_data_step_fetches_a_verified_file_once() {
    let table = std::fs::read(root().join("examples/digits/digits.csv.gz")).unwrap();
    let digest = Digest::of(&table).hex();
    let (address, requests) = file_server(table);
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--fetch-from", &address]);
    let project = PipelineProject::new(&manifest(&format!(
        "[pipeline.far]\nparams = {{ sha256 = \"{digest}\", host = \"{address}\" }}\n\
         [[pipeline.far.step]]\nname = \"fetch\"\nkind = \"data\"\ndataset = \"far\"\n\
         from = {{ url = \"${{params.host}}/digits.csv.gz?token=s3cret\", sha256 = \"${{params.sha256}}\" }}\ncache = true\n\
         [[pipeline.far.step]]\nname = \"train\"\ntask = \"train\"\n\
         data = [{{ from = \"${{steps.fetch.outputs.dataset}}\", to = \"/data\" }}]\n"
    )));
    for number in 1..=2 {
        let ran = project.saggar(&server, &["pipeline", "run", "far", "-f"]);
        let run = run_of(&server, &format!("far-{number}"));
        assert!(ran.status.success(), "{ran:?} {run}");
        let fetched = attempt(&run, "fetch", 0);
        assert_eq!(fetched["outputs"]["dataset"]["value"], "far/1", "{run}");
        let source = &fetched["inputs"][0];
        assert_eq!((&source["name"], &source["digest"]), (&json!("from"), &json!(digest)));
        assert_eq!(source["reference"], format!("{address}/digits.csv.gz"), "the token is left out");
        assert_eq!(attempt(&run, "train", 0)["inputs"][1]["reference"], "far/1");
        assert_eq!(fetched["cached_from"], if number == 1 { Value::Null } else { json!("far-1") });
    }
    assert_eq!(requests.load(Ordering::Relaxed), 1);

    let other = "0".repeat(64);
    let wrong = project.saggar(&server, &["pipeline", "run", "far", "-p", &format!("sha256={other}"), "-f"]);
    assert_eq!(wrong.status.code(), Some(20), "{wrong:?}");
    let run = run_of(&server, "far-3");
    let refused = attempt(&run, "fetch", 0);
    let message = refused["message"].as_str().unwrap();
    assert!(refused["reason"] == "FETCH_FAILED" && message.contains(&digest) && message.contains(&other), "{refused}");
    // Addresses and digests are checked before a run begins.
    for (parameter, code, says) in
        [("host=http://127.0.0.1:9", 4, "--fetch-from"), ("sha256=12", 7, "64 hexadecimal digits")]
    {
        project.check_refusal(&server, &["pipeline", "run", "far", "-p", parameter], code, says);
    }
    assert_eq!(server.get("/api/v1/pipeline-runs")["runs"].as_array().unwrap().len(), 3);
}

#[test]
fn a_dataset_removed_under_a_queued_run_fails_its_step_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let server = moons(&home, &[]);
    let project = PipelineProject::new(&manifest(
        "[pipeline.waits]\n\
         [[pipeline.waits.step]]\nname = \"ask\"\nkind = \"approve\"\n\
         [[pipeline.waits.step]]\nname = \"train\"\ntask = \"train\"\nafter = [\"ask\"]\n\
         [[pipeline.waits.step]]\nname = \"make\"\nplugin = \"stepper\"\nafter = [\"ask\"]\n",
    ));
    project.saggar_ok(&server, &["pipeline", "run", "waits"]);
    server.wait_for("the question", |server| {
        (attempt(&run_of(server, "waits-1"), "ask", 0)["state"] == "WAITING").then_some(())
    });
    server.saggar_ok(&["data", "rm", "moons", "--yes"]);
    server.saggar_ok(&["pipeline", "approve", "waits-1", "ask"]);
    let run = wait_for_run(&server, "waits-1");
    let train = attempt(&run, "train", 0);
    assert_eq!((&run["state"], &train["reason"]), (&json!("FAILED"), &json!("NOT_FOUND")), "{run}");
    assert!(train["message"].as_str().unwrap().contains("moons"), "{train}");
    assert!(train["job"].is_null(), "no job was submitted");
    assert_eq!(attempt(&run, "make", 0)["state"], "SUCCEEDED", "other branches go on");
    // Once it is there again, the run goes on from the failed step.
    server.saggar_ok(&["data", "recipe", "add", "moons"]);
    server.saggar_ok(&["pipeline", "restart", "waits-1"]);
    assert_eq!(wait_for_run(&server, "waits-1")["state"], "SUCCEEDED");
}
