//! Pipelines through the real binary: from a checkpoint to a guarded deployment, killed and preempted on the way.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use saggar_tests::pipelines::{PipelineProject, attempt, check_success, job_of, run_of, wait_for_job_of, wait_for_run};
use saggar_tests::{HttpPayload, ServerProcess, kill_9, root, worker_processes};
use serde_json::{Value, json};

/// Runs a command in the example's directory.
fn nightly(server: &ServerProcess, arguments: &[&str]) -> Output {
    server.command(arguments).current_dir(root().join("examples/nightly")).output().unwrap()
}

fn server_of_the_example(home: &Path) -> ServerProcess {
    let config = root().join("examples/nightly/saggar.toml");
    let server = ServerProcess::start_with(home, &["--config", config.to_str().unwrap()]);
    server.push_digits();
    server
}

#[test]
fn a_night_preempted_three_times_continues_from_the_base_and_deploys_once() {
    let home = tempfile::tempdir().unwrap();
    let server = server_of_the_example(home.path());
    let started = nightly(&server, &["pipeline", "run", "nightly", "-p", "epochs=60"]);
    assert_eq!(check_success(&["run"], &started).trim(), "nightly-1");
    let train = wait_for_job_of(&server, "nightly-1", "train");
    let base_step = server.job(&job_of(&run_of(&server, "nightly-1"), "base"))["step"].as_u64().unwrap();
    for times in 1..=3 {
        server.wait_for_step(&train, base_step + 20 * times);
        server.saggar_ok(&["preempt", &train]);
        server.wait_for("the attempt's end", |server| {
            let attempts = server.job(&train)["attempts"].as_array().unwrap().clone();
            let preempted = attempts.iter().filter(|attempt| attempt["state"] == "PREEMPTED").count() as u64;
            (preempted == times).then_some(())
        });
    }
    let run = wait_for_run(&server, "nightly-1");
    assert_eq!(run["state"], "SUCCEEDED", "{run}");
    let job = server.job(&train);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("SUCCEEDED"), &json!(4)), "{job}");
    // It trains only what the base lacks, although it was preempted: its checkpoint comes before that of the base.
    let base_checkpoint = attempt(&run, "base", 0)["outputs"]["checkpoint"]["value"].as_str().unwrap();
    let from: u64 = base_checkpoint.rsplit_once('@').unwrap().1.parse().unwrap();
    let attempts = job["attempts"].as_array().unwrap();
    let steps = |key: &str| -> Vec<u64> { attempts.iter().map(|it| it[key].as_u64().unwrap()).collect() };
    let (firsts, lasts) = (steps("first_step"), steps("last_step"));
    // An attempt that is preempted before its first step ends where it began.
    assert!(firsts[0] == from && firsts.windows(2).all(|pair| pair[0] <= pair[1]), "{firsts:?} from {from}");
    let done = lasts.iter().sum::<u64>() - firsts.iter().sum::<u64>();
    assert_eq!(done, job["steps_target"].as_u64().unwrap() - from, "{attempts:?}");
    // One deployment, of the version that this training published.
    assert_eq!(attempt(&run, "serve", 0)["outputs"]["model"]["value"], "model:digits@1");
    assert_eq!(server.get("/api/v1/models/digits")["serving"], 1);
    let log = std::fs::read_to_string(home.path().join("audit.log")).unwrap();
    assert_eq!(log.matches("by a pipeline").count(), 3, "two jobs and one deployment: {log}");

    // The next night takes the base from the cache, and without `deploy` skips the deployment.
    let next = nightly(&server, &["pipeline", "run", "nightly", "-p", "deploy=false", "-f"]);
    assert!(check_success(&["run", "-f"], &next).starts_with("nightly-2 SUCCEEDED"));
    let run = run_of(&server, "nightly-2");
    assert_eq!(attempt(&run, "base", 0)["cached_from"], "nightly-1", "{run}");
    assert_eq!(attempt(&run, "serve", 0)["state"], "SKIPPED", "{run}");
    assert_eq!(server.get("/api/v1/models/digits")["serving"], 1, "the deployed version stays");
    the_page_calls_the_deployed_model(&server);
}

fn the_page_calls_the_deployed_model(server: &ServerProcess) {
    let mut command = Command::new("python3");
    command.args(["-B", "examples/nightly/app.py", "0"]).env("SAGGAR_HOST", server.url()).current_dir(root());
    let mut app = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(app.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let page = ureq::get(url.trim()).call().map(|mut page| page.body_mut().read_to_string().unwrap());
    let image = json!({ "image": vec![vec![0; 8]; 8] });
    let answer = ureq::post(format!("{}digit", url.trim())).send(image.to_string());
    let answer = answer.map(|mut answer| answer.body_mut().read_to_string().unwrap());
    app.kill().unwrap();
    app.wait().unwrap();
    assert!(page.unwrap().contains("Which digit is it?"));
    let answer: Value = serde_json::from_str(&answer.unwrap()).unwrap();
    assert!(answer["label"].is_number() || answer["label"].is_string(), "{answer}");
}

#[test]
fn a_version_that_does_not_meet_the_condition_is_not_deployed() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("saggar.toml");
    let strict = std::fs::read_to_string(root().join("examples/nightly/saggar.toml")).unwrap();
    std::fs::write(&config, strict.replace(">= 0.8", ">= 1.5")).unwrap();
    let server = ServerProcess::start_with(home.path(), &["--config", config.to_str().unwrap()]);
    server.push_digits();
    let followed = nightly(&server, &["pipeline", "run", "nightly", "-f"]);
    assert_eq!(followed.status.code(), Some(20), "{followed:?}");
    let run = run_of(&server, "nightly-1");
    let serve = attempt(&run, "serve", 0);
    assert_eq!((&serve["state"], &serve["reason"]), (&json!("FAILED"), &json!("NOT_PROMOTED")), "{run}");
    assert!(serve["message"].as_str().unwrap().contains("1.5"), "{serve}");
    assert!(server.get("/api/v1/models/digits")["serving"].is_null());
}

const THREE_STEPS: &str = "[pipeline.chain]\nparams = { steps = 600 }\n\
    [[pipeline.chain.step]]\nname = \"a\"\ntask = \"train\"\nargs = { steps = \"${params.steps}\", write = \"x=3\" }\n\
    [[pipeline.chain.step]]\nname = \"b\"\ntask = \"train\"\nfor_each = [600, 700]\n\
    args = { steps = \"${item}\" }\nafter = [\"a\"]\n\
    [[pipeline.chain.step]]\nname = \"c\"\ntask = \"train\"\nargs = { steps = 650 }\n\
    init_from = \"${steps.a.outputs.checkpoint}\"\nafter = [\"b\"]\n";

#[test]
fn a_server_killed_between_and_during_steps_does_each_step_once() {
    let home = tempfile::tempdir().unwrap();
    let project = PipelineProject::of_steady(THREE_STEPS);
    let mut server = ServerProcess::start(home.path());
    let start = ["pipeline", "run", "chain", "--idempotency-key", "night-1"];
    assert_eq!(project.saggar_ok(&server, &start).trim(), "chain-1");
    assert_eq!(project.saggar_ok(&server, &start).trim(), "chain-1", "the same key starts no second run");
    // At once, during each step, and between steps, with and without the worker.
    for kill in 0..7 {
        if kill > 0 {
            let jobs =
                |server: &ServerProcess| server.get("/api/v1/jobs?limit=100")["jobs"].as_array().unwrap().clone();
            server.wait_for("some progress", |server| {
                let run = run_of(server, "chain-1");
                let running =
                    jobs(server).iter().any(|job| job["state"] == "RUNNING" && job["step"].as_u64() > Some(10));
                (running || run["state"] != "RUNNING" || kill % 3 == 0).then_some(())
            });
        }
        if kill % 2 == 1 {
            for worker in worker_processes(server.pid()) {
                kill_9(worker);
            }
        }
        server.kill_and_wait();
        server = ServerProcess::start(home.path());
    }
    let run = wait_for_run(&server, "chain-1");
    assert_eq!(run["state"], "SUCCEEDED", "{run}");
    let jobs = server.get("/api/v1/jobs?limit=100")["jobs"].as_array().unwrap().clone();
    let states: Vec<&str> = jobs.iter().map(|job| job["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["SUCCEEDED"; 4], "one job for each item of each step");
    let c = server.job(&job_of(&run, "c"));
    assert!(c["spec"]["init_from"].as_str().unwrap().starts_with(&format!("job:{}/checkpoint@", job_of(&run, "a"))));
    let ended = |job: &Value| job["finished_ms"].as_u64().unwrap();
    for item in 0..2 {
        let b = server.job(attempt(&run, "b", item)["job"].as_str().unwrap());
        assert!(ended(&b) <= c["created_ms"].as_u64().unwrap(), "c was submitted before b ended");
    }
}

#[test]
fn runs_are_stopped_approved_restarted_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let project = PipelineProject::of_steady(
        "[pipeline.guarded]\nparams = { fail_at = 0, steps = 40 }\n\
         [[pipeline.guarded.step]]\nname = \"train\"\ntask = \"train\"\n\
         args = { steps = \"${params.steps}\", fail_at = \"${params.fail_at}\", fail_until = 99 }\n\
         [[pipeline.guarded.step]]\nname = \"ask\"\nkind = \"approve\"\nafter = [\"train\"]\nmessage = \"go on with ${run.name}?\"\n\
         [[pipeline.guarded.step]]\nname = \"last\"\ntask = \"train\"\nafter = [\"ask\"]\nargs = { steps = 20 }\n",
    );
    project.saggar_ok(&server, &["pipeline", "run", "guarded"]);
    server.wait_for("the question", |server| {
        let run = run_of(server, "guarded-1");
        let ask = attempt(&run, "ask", 0);
        (ask["state"] == "WAITING").then(|| assert_eq!(ask["message"], "go on with guarded-1?"))
    });
    // A job whose output a later step can need is not removed.
    let train = job_of(&run_of(&server, "guarded-1"), "train");
    let refused = server.saggar(&["rm", &train, "--yes"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("pipeline run guarded-1"), "{refused:?}");
    server.saggar_ok(&["pipeline", "approve", "guarded-1", "ask"]);
    assert_eq!(wait_for_run(&server, "guarded-1")["state"], "SUCCEEDED");
    assert!(server.saggar_ok(&["pipeline", "logs", "guarded-1", "train"]).contains("step 40"));

    // A step that fails is repeated from its own checkpoint.
    let failed = project.saggar(&server, &["pipeline", "run", "guarded", "-p", "fail_at=23", "-f"]);
    assert_eq!(failed.status.code(), Some(20), "{failed:?}");
    let run = run_of(&server, "guarded-2");
    assert_eq!(attempt(&run, "last", 0)["reason"], "UPSTREAM_FAILED", "{run}");
    server.saggar_ok(&["pipeline", "restart", "guarded-2"]);
    let second = server.wait_for("the second attempt", |server| {
        let run = run_of(server, "guarded-2");
        let train = attempt(&run, "train", 0);
        (train["attempt"] == 2 && !train["job"].is_null()).then(|| train["job"].as_str().unwrap().to_owned())
    });
    let first = format!("job:{}/checkpoint@", job_of_attempt(&run_of(&server, "guarded-2"), 1));
    assert!(server.job(&second)["spec"]["init_from"].as_str().unwrap().starts_with(&first));

    // A run that is stopped stops its job, and cancels what waits.
    project.saggar_ok(&server, &["pipeline", "run", "guarded", "-p", "steps=1000000"]);
    let train = wait_for_job_of(&server, "guarded-3", "train");
    server.wait_for_step(&train, 5);
    let refused = server.request("DELETE", "/api/v1/pipeline-runs/guarded-3", HttpPayload::Nothing);
    assert_eq!(refused.status, 409, "{}", refused.text);
    server.saggar_ok(&["pipeline", "stop", "guarded-3"]);
    assert_eq!(wait_for_run(&server, "guarded-3")["state"], "CANCELLED");
    assert_eq!(server.wait_for_job(&train)["state"], "CANCELLED");
    server.saggar_ok(&["pipeline", "rm", "guarded-3"]);
    assert_eq!(server.saggar(&["pipeline", "status", "guarded-3"]).status.code(), Some(3));
    assert!(server.saggar_ok(&["pipeline", "ls", "guarded"]).contains("guarded-1"));
}

fn job_of_attempt(run: &Value, number: u64) -> String {
    let attempts = run["steps"][0]["attempts"].as_array().unwrap();
    attempts.iter().find(|it| it["attempt"] == number).unwrap()["job"].as_str().unwrap().to_owned()
}

#[test]
fn wrong_requests_are_refused_with_their_reason() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let project = PipelineProject::of_steady(THREE_STEPS);
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let output = project.saggar(&server, arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    };
    refused(&["pipeline", "run", "chain", "-p", "stepz=3"], 7, "the parameters are steps");
    refused(&["pipeline", "run", "chain", "-p", "steps=many"], 7, "expected a number");
    refused(&["pipeline", "run", "nothing"], 3, "its pipelines are: chain");
    refused(&["pipeline", "schedule", "chain"], 7, "has no schedule");
    refused(&["pipeline", "status", "chain-9"], 3, "there is no pipeline run chain-9");
    let scheduled = project.saggar_ok(&server, &["pipeline", "schedule", "chain", "--cron", "0 3 * * *"]);
    assert!(scheduled.contains("0 3 * * *"), "{scheduled}");
    assert_eq!(server.get("/api/v1/pipelines")["pipelines"][0]["name"], "chain");
    project.saggar_ok(&server, &["pipeline", "schedule", "chain", "--remove"]);

    let post = |body: &Value| server.request("POST", "/api/v1/pipeline-runs", HttpPayload::Json(body));
    let step = |more: Value| {
        let mut step = json!({ "name": "a", "spec": { "plugin": "0".repeat(64) } });
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "plan": { "name": "n", "project": "p", "steps": [step] } })
    };
    for (body, words) in [
        (step(json!({ "after": ["a"] })), "the steps wait for each other: a -> a"),
        (step(json!({ "args": { "x": "${params.y}" } })), "there is no parameter"),
        (step(json!({ "spec": { "plugin": "../x" } })), "64 hexadecimal digits"),
        (step(json!({ "kind": "pipeline", "spec": {} })), "a plan has no nested pipelines"),
        (json!({ "plan": { "name": "n", "project": "p", "steps": [] } }), "the pipeline has no steps"),
        (json!({ "plan": { "name": "../n", "project": "p", "steps": [{ "name": "a" }] } }), "expected a name"),
    ] {
        let answer = post(&body);
        assert!(answer.status == 400 && answer.text.contains(words), "{words}: {} {}", answer.status, answer.text);
    }
    let steps: Vec<Value> = (0..10_000).map(|n| json!({ "name": format!("s{n}") })).collect();
    let answer = post(&json!({ "plan": { "name": "n", "project": "p", "steps": steps } }));
    assert!(answer.status == 400 && answer.text.contains("a pipeline has at most 500"), "{}", answer.text);
    // A plugin that does not exist fails the step, not the server.
    let run = post(&step(json!({}))).json()["name"].as_str().unwrap().to_owned();
    let ended = wait_for_run(&server, &run);
    assert_eq!(
        (&ended["state"], &attempt(&ended, "a", 0)["reason"]),
        (&json!("FAILED"), &json!("NOT_FOUND")),
        "{ended}"
    );
}

#[test]
fn graphs_are_printed_in_every_form() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let graph =
        |more: &[&str]| check_success(more, &nightly(&server, &[&["pipeline", "graph", "nightly"], more].concat()));
    let text = graph(&[]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("base") && lines[2].contains("<- base"), "{text}");
    assert!(lines[3].starts_with("    serve") && lines[3].contains("when ${params.deploy}"), "{text}");
    let mermaid = graph(&["--format", "mermaid"]);
    assert!(mermaid.starts_with("flowchart TD\n") && mermaid.contains("s0 --> s1\n"), "{mermaid}");
    let svg = graph(&["--format", "svg"]);
    assert!(
        svg.starts_with("<svg ") && svg.matches("<rect ").count() == 3 && svg.matches("<line ").count() == 2,
        "{svg}"
    );
    let json: Value = serde_json::from_str(&graph(&["--json"])).unwrap();
    assert_eq!((&json[2]["name"], &json[2]["level"]), (&json!("serve"), &json!(2)));
    assert!(check_success(&["check"], &nightly(&server, &["pipeline", "check"])).contains("nightly: 3 steps"));
}

#[test]
fn a_key_runs_pipelines_of_its_projects_only() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--require-keys"]);
    let key = |arguments: &[&str]| {
        let home = home.path().to_str().unwrap();
        let made = server.saggar_ok(&[&["key", "create"], arguments, &["--home", home, "--quiet"]].concat());
        made.trim().to_owned()
    };
    let own = key(&["own", "--scope", "jobs:write", "--scope", "jobs:read", "--project", "steady"]);
    let other = key(&["other", "--scope", "jobs:write", "--scope", "jobs:read", "--project", "other"]);
    let project = PipelineProject::of_steady(
        "[pipeline.short]\n[[pipeline.short.step]]\nname = \"train\"\ntask = \"train\"\nargs = { steps = 20 }\n\
         [[pipeline.short.step]]\nname = \"serve\"\nkind = \"deploy\"\nfrom = \"model:secret@1\"\nafter = [\"train\"]\n",
    );
    let run = |key: &str| {
        let mut command = server.command(&["--host", server.url(), "--key", key, "pipeline", "run", "short", "-f"]);
        command.current_dir(project.path()).output().unwrap()
    };
    let refused = run(&other);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let started = run(&own);
    let errors = String::from_utf8_lossy(&started.stderr).into_owned();
    assert_eq!(started.status.code(), Some(20), "{errors}");
    assert!(errors.contains("train SUCCEEDED steady-1"), "{errors}");
    // The key may not deploy, so the step fails, whether the model exists or not.
    let path = "/api/v1/pipeline-runs/short-1";
    let ended = server.request_as(Some(&own), "GET", path, HttpPayload::Nothing).json();
    assert_eq!(attempt(&ended, "serve", 0)["state"], "FAILED", "{ended}");
    // The run of another project looks like a missing one.
    for (method, path) in [("GET", path), ("DELETE", path), ("POST", "/api/v1/pipeline-runs/short-1/stop")] {
        let hidden = server.request_as(Some(&other), method, path, HttpPayload::Nothing);
        let missing =
            server.request_as(Some(&other), method, &path.replace("short-1", "short-9"), HttpPayload::Nothing);
        assert_eq!((hidden.status, missing.status), (404, 404), "{method} {path}: {}", hidden.text);
        let said = missing.json()["error"].as_str().unwrap().replace("short-9", "short-1");
        assert_eq!(hidden.json()["error"], said.as_str(), "{method} {path}");
    }
    let listed = server.request_as(Some(&other), "GET", "/api/v1/pipeline-runs", HttpPayload::Nothing);
    assert!(listed.json()["runs"].as_array().unwrap().is_empty(), "{}", listed.text);
}
