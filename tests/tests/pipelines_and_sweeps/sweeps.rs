//! Sweeps: trials are jobs, decisions survive kills, and no step is trained twice.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::BTreeSet;

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, create_sweep, lenet, wait_for_sweep, worker_processes};
use serde_json::{Value, json};

/// Returns a sweep of `steady`, of which each trial does `steps` steps.
fn steady_sweep(server: &ServerProcess, steps: u64, fields: Value) -> Value {
    let mut spec = json!({
        "job": SteadyJob::with_steps(steps).spec(server),
        "space": { "work": "int(1,3)" },
        "metric": "accuracy",
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
    spec
}

fn get(server: &ServerProcess, sweep: &str) -> Value {
    server.get(&format!("/api/v1/sweeps/{sweep}"))
}

fn trials(sweep: &Value) -> &Vec<Value> {
    sweep["trials"].as_array().unwrap()
}

/// Returns all jobs of the server, oldest first.
fn jobs(server: &ServerProcess) -> Vec<Value> {
    let mut jobs: Vec<Value> = Vec::new();
    let mut path = "/api/v1/jobs?limit=100".to_owned();
    loop {
        let page = server.get(&path);
        jobs.extend(page["jobs"].as_array().cloned().unwrap());
        match page["cursor"].as_u64() {
            Some(cursor) => path = format!("/api/v1/jobs?limit=100&cursor={cursor}"),
            None => break,
        }
    }
    jobs.reverse();
    jobs
}

/// Asserts that each trial has exactly one job.
fn assert_one_job_a_trial(server: &ServerProcess, sweep: &Value) {
    let named: Vec<&str> = trials(sweep).iter().map(|trial| trial["job"].as_str().unwrap()).collect();
    let distinct: BTreeSet<&str> = named.iter().copied().collect();
    assert_eq!(distinct.len(), named.len(), "no job is of two trials");
    let all: BTreeSet<String> = jobs(server).iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(all, distinct.into_iter().map(str::to_owned).collect(), "no job is lost or doubled");
}

#[test]
fn a_grid_is_searched_and_its_results_are_sorted_by_the_metric() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let plugin = lenet();
    let search = ["sweep", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--metric", "epoch/loss"];
    let space = ["--grid", "lr=0.05,0.0001", "--grid", "channels=4,8", "--max-parallel", "1", "-f", "--", "epochs=2"];
    let printed = server.saggar_ok(&[&search[..], &space].concat());
    let rows: Vec<Vec<&str>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..5], ["TRIAL", "STATE", "JOB", "STEP", "VALUE"], "{printed}");
    assert_eq!(rows.len(), 5, "{printed}");
    let values: Vec<f64> = rows[1..].iter().map(|row| row[4].parse().unwrap()).collect();
    assert!(values.is_sorted(), "the lowest loss comes first: {printed}");
    assert!(rows[1..3].iter().all(|row| row.contains(&"lr=0.05")), "{printed}");

    let listed = server.get("/api/v1/sweeps");
    let name = listed["sweeps"][0]["name"].as_str().unwrap();
    let sweep = get(&server, name);
    assert_eq!((&sweep["state"], &sweep["direction"]), (&json!("SUCCEEDED"), &json!("min")), "{sweep}");
    let combinations: Vec<(f64, u64)> = trials(&sweep)
        .iter()
        .map(|trial| (trial["parameters"]["lr"].as_f64().unwrap(), trial["parameters"]["channels"].as_u64().unwrap()))
        .collect();
    assert_eq!(combinations, [(0.05, 4), (0.0001, 4), (0.05, 8), (0.0001, 8)]);
    assert_eq!(sweep["importance"][0]["parameter"], "lr", "{sweep}");
    let best = trials(&sweep).iter().find(|trial| trial["number"] == sweep["best"]).unwrap();
    assert_eq!(best["value"].as_f64(), Some(values[0]).map(|_| sweep["best_value"].as_f64().unwrap()));
    let job = server.job(best["job"].as_str().unwrap());
    assert_eq!((&job["experiment"], &job["spec"]["parameters"]["epochs"]), (&json!(name), &json!(2)), "{job}");
    assert_one_job_a_trial(&server, &sweep);
}

#[test]
fn asha_pauses_and_promotes_trials_and_trains_no_step_twice() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let mut spec = steady_sweep(&server, 1, json!({"trials": 9, "method": "asha", "eta": 3, "rungs": 2, "seed": 4}));
    spec["job"] = json!({
        "project": "digits", "plugin": server.upload(&lenet()), "device": "cpu",
        "data": [{"dataset": "digits", "mount": "/data"}], "parameters": {"epochs": 9, "channels": 4},
    });
    spec["space"] = json!({"lr": "log(1e-5,1e-1)"});
    spec["metric"] = json!("min:epoch/loss");
    spec["max_parallel"] = json!(1);
    let sweep = wait_for_sweep(&server, &create_sweep(&server, &spec));
    assert_eq!(sweep["state"], "SUCCEEDED", "{sweep}");
    let reached: Vec<usize> =
        trials(&sweep).iter().map(|trial| trial["rung_values"].as_array().unwrap().len()).collect();
    assert_eq!(reached.len(), 9);
    assert!(reached.iter().filter(|rungs| **rungs == 1).count() >= 4, "most trials stop at the first rung: {sweep}");
    assert!(reached.contains(&3), "the best one runs to its end: {sweep}");
    for (trial, rungs) in trials(&sweep).iter().zip(reached) {
        let job = server.job(trial["job"].as_str().unwrap());
        assert_eq!(job["wasted_steps"], 0, "{job}");
        let attempts = job["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), rungs, "one attempt a rung: {job}");
        let target = job["steps_target"].as_u64().unwrap();
        for (rung, attempt) in attempts.iter().enumerate().take(2) {
            // Rungs are at ends of epochs here, where the metric has a value.
            let wanted = target.div_ceil(9) * 3_u64.pow(rung as u32);
            assert_eq!(attempt["last_step"], wanted, "rung {rung}: {job}");
        }
        if rungs < 3 {
            assert_eq!((&job["state"], &job["reason"]), (&json!("CANCELLED"), &json!("NOT_PROMOTED")), "{job}");
            assert_eq!((&trial["state"], &trial["reason"]), (&json!("STOPPED"), &json!("NOT_PROMOTED")), "{trial}");
        }
    }
    assert_one_job_a_trial(&server, &sweep);
}

#[test]
fn a_sweep_survives_kills_of_the_server_with_the_same_trials() {
    let home = tempfile::tempdir().unwrap();
    let fields = json!({"trials": 8, "method": "asha", "eta": 2, "rungs": 2, "seed": 11, "max_parallel": 2});
    let mut server = ServerProcess::start_with(home.path(), &["--jobs", "2"]);
    let name = create_sweep(&server, &steady_sweep(&server, 400, fields));
    for kill in 0..4 {
        server.wait_for("another trial", |server| {
            let found = get(server, &name);
            let over = found["state"] != "RUNNING";
            (over || trials(&found).len() > 2 * kill).then_some(())
        });
        server.kill_and_wait();
        server = ServerProcess::start_with(home.path(), &["--jobs", "2"]);
    }
    let sweep = wait_for_sweep(&server, &name);
    assert_eq!((&sweep["state"], trials(&sweep).len()), (&json!("SUCCEEDED"), 8), "{sweep}");
    assert_one_job_a_trial(&server, &sweep);
    let completed = trials(&sweep).iter().filter(|trial| trial["state"] == "COMPLETED").count();
    assert!(completed >= 1, "{sweep}");

    // Another server draws the same parameters from the same seed.
    let (_other_home, other) = ServerProcess::start_in_temp_dir();
    let fields = json!({"trials": 8, "seed": 11, "max_parallel": 1});
    let calm = wait_for_sweep(&other, &create_sweep(&other, &steady_sweep(&other, 1, fields)));
    let parameters = |sweep: &Value| trials(sweep).iter().map(|trial| trial["parameters"].clone()).collect::<Vec<_>>();
    assert_eq!(parameters(&sweep), parameters(&calm));
}

#[test]
fn learned_parameters_survive_kills_of_the_server() {
    let fields = json!({
        "trials": 16, "method": "tpe", "seed": 3, "max_parallel": 1, "metric": "min:loss",
        "space": { "work": "int(1,40)", "words": "choice(0,5,9)" },
    });
    let home = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(home.path());
    let name = create_sweep(&server, &steady_sweep(&server, 60, fields.clone()));
    for started in [5, 11, 13, 15] {
        server.wait_for("another trial", |server| (trials(&get(server, &name)).len() >= started).then_some(()));
        server.kill_and_wait();
        server = ServerProcess::start(home.path());
    }
    let sweep = wait_for_sweep(&server, &name);
    assert_eq!(sweep["trial_states"], json!({"COMPLETED": 16}), "{sweep}");
    assert_one_job_a_trial(&server, &sweep);

    // One trial after another, so each sees all results before it: another server learns the same.
    let (_other_home, other) = ServerProcess::start_in_temp_dir();
    let calm = wait_for_sweep(&other, &create_sweep(&other, &steady_sweep(&other, 60, fields)));
    let parameters = |sweep: &Value| trials(sweep).iter().map(|trial| trial["parameters"].clone()).collect::<Vec<_>>();
    assert_eq!(parameters(&sweep), parameters(&calm));
    let chosen = parameters(&sweep);
    for (index, proposed) in chosen.iter().enumerate().skip(10) {
        assert!(!chosen[..index].contains(proposed), "a proposal is new: {sweep}");
    }
    let page = other.request("GET", "/metrics", HttpPayload::Nothing).text;
    for series in [
        "saggar_sweeps_finished_total{method=\"tpe\",state=\"SUCCEEDED\"} 1",
        "saggar_sweep_trials_finished_total{method=\"tpe\",state=\"COMPLETED\"} 16",
        "saggar_sweeps{state=\"RUNNING\"} 0",
        "saggar_sweep_trials{state=\"PAUSED\"} 0",
    ] {
        assert!(page.contains(series), "{series} is missing from\n{page}");
    }
}

/// Returns what a decision of a population consists of: each trial's member, parent, state, parameters and values.
fn decisions(sweep: &Value) -> Vec<Value> {
    let fields = ["number", "member", "parent", "state", "parameters", "rung", "rung_values"];
    trials(sweep).iter().map(|trial| fields.iter().map(|field| trial[*field].clone()).collect()).collect()
}

#[test]
fn a_population_survives_kills_of_the_server_with_the_same_members_parents_and_parameters() {
    let fields = json!({
        "method": "pbt", "trials": 5, "generations": 4, "exploit_quantile": 0.4, "seed": 9, "metric": "max:loss",
        "space": { "work": "int(1,5)", "words": "int(0,200)" },
    });
    let start = |server: &ServerProcess, parallel: u32| {
        let mut spec = steady_sweep(server, 80, fields.clone());
        spec["max_parallel"] = json!(parallel);
        // With one checkpoint, a state that a copy continues from is not the newest one for long.
        spec["job"]["checkpoint_keep_last"] = json!(1);
        create_sweep(server, &spec)
    };
    let home = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start_with(home.path(), &["--jobs", "2"]);
    let name = start(&server, 2);
    // Kills in each generation, also while copies wait for a slot.
    for started in [2, 5, 6, 7, 9] {
        server.wait_for("another trial", |server| {
            let found = get(server, &name);
            let with_job = trials(&found).iter().filter(|trial| !trial["job"].is_null()).count();
            (with_job >= started || found["state"] != "RUNNING").then_some(())
        });
        server.kill_and_wait();
        server = ServerProcess::start_with(home.path(), &["--jobs", "2"]);
    }
    let sweep = wait_for_sweep(&server, &name);
    assert_eq!((&sweep["state"], &sweep["trial_states"]["COMPLETED"]), (&json!("SUCCEEDED"), &json!(5)), "{sweep}");
    assert_one_job_a_trial(&server, &sweep);
    let copies: Vec<&Value> = trials(&sweep).iter().filter(|trial| trial["parent"].is_object()).collect();
    assert!(copies.len() >= 3, "the worst are replaced after each of three generations: {sweep}");
    for copy in &copies {
        let job = server.job(copy["job"].as_str().unwrap());
        let step = copy["parent"]["step"].as_u64().unwrap();
        assert_eq!(step, 20 * (copy["parent"]["rung"].as_u64().unwrap() + 1), "{copy}");
        // An attempt that was killed before it trained has no step.
        let mut attempts = job["attempts"].as_array().unwrap().iter();
        let begun = attempts.find(|attempt| attempt["last_step"] != 0).unwrap();
        assert_eq!(begun["first_step"], step, "no step is trained twice: {job}");
        let parent = &trials(&sweep)[copy["parent"]["trial"].as_u64().unwrap() as usize - 1];
        let named = format!("job:{}/checkpoint@{step}", parent["job"].as_str().unwrap());
        assert_eq!(job["spec"]["init_from"], json!(named), "{job}");
        assert_ne!(copy["parameters"], parent["parameters"], "{copy}");
    }
    let last = sweep["best_lineage"].as_array().unwrap().last().unwrap();
    assert_eq!(last["trial"], sweep["best"], "{sweep}");

    // Another server, with another order of the jobs and no kill, decides the same.
    let (_other_home, other) = ServerProcess::start_in_temp_dir();
    let calm = wait_for_sweep(&other, &start(&other, 1));
    assert_eq!(decisions(&sweep), decisions(&calm));
    let best = |sweep: &Value| (sweep["best"].clone(), sweep["best_value"].clone());
    assert_eq!(best(&sweep), best(&calm));
    let page = other.request("GET", "/metrics", HttpPayload::Nothing).text;
    for series in [
        "saggar_sweeps_finished_total{method=\"pbt\",state=\"SUCCEEDED\"} 1",
        "saggar_sweep_trials_finished_total{method=\"pbt\",state=\"COMPLETED\"} 5",
        &format!("saggar_sweep_trials_finished_total{{method=\"pbt\",state=\"STOPPED\"}} {}", copies.len()),
        "saggar_sweep_trials{state=\"PAUSED\"} 0",
    ] {
        assert!(page.contains(series), "{series} is missing from\n{page}");
    }
}

#[test]
fn two_hundred_trials_survive_kills_of_the_server() {
    let home = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start_with(home.path(), &["--jobs", "4"]);
    // All are submitted at once and wait in the queue.
    let fields = json!({"trials": 200, "max_parallel": 256, "seed": 2});
    let name = create_sweep(&server, &steady_sweep(&server, 1, fields));
    for submitted in [20, 120, 200] {
        server.wait_for("submitted jobs", |server| {
            let found = get(server, &name);
            let with_job = trials(&found).iter().filter(|trial| !trial["job"].is_null()).count();
            (with_job >= submitted || found["state"] != "RUNNING").then_some(())
        });
        server.kill_and_wait();
        server = ServerProcess::start_with(home.path(), &["--jobs", "4"]);
    }
    let sweep = server.wait_for("200 jobs, most of which still wait", |server| {
        let found = get(server, &name);
        let with_job = trials(&found).iter().filter(|trial| !trial["job"].is_null()).count();
        (with_job == 200).then_some(found)
    });
    assert_one_job_a_trial(&server, &sweep);
    // A stop pauses those that wait and those that run.
    server.saggar_ok(&["sweep", "stop", &name]);
    server.wait_for("the pause of every job", |server| {
        let all = jobs(server);
        let mut unfinished = all.iter().filter(|job| job["state"] != "SUCCEEDED");
        let is_paused = unfinished.all(|job| job["paused"] == true);
        (is_paused && worker_processes(server.pid()).is_empty()).then_some(())
    });
    server.saggar_ok(&["sweep", "resume", &name]);
    let sweep = wait_for_sweep(&server, &name);
    assert_eq!(sweep["trial_states"], json!({"COMPLETED": 200}), "{sweep}");
    assert_one_job_a_trial(&server, &sweep);
}

#[test]
fn a_stopped_sweep_holds_no_device_and_continues_where_it_stopped() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let fields = json!({"trials": 3, "max_parallel": 1});
    let name = create_sweep(&server, &steady_sweep(&server, 600, fields));
    let first = server.wait_for("a job", |server| get(server, &name)["trials"][0]["job"].as_str().map(str::to_owned));
    server.wait_for_step(&first, 20);
    server.saggar_ok(&["sweep", "stop", &name]);
    let paused = server.wait_for("the pause", |server| Some(server.job(&first)).filter(|job| job["paused"] == true));
    assert!(worker_processes(server.pid()).is_empty());
    let found = get(&server, &name);
    assert_eq!((&found["state"], trials(&found).len()), (&json!("STOPPED"), 1), "{found}");
    let other = SteadyJob::with_steps(3).submit(&server);
    assert_eq!(server.wait_for_job(&other)["state"], "SUCCEEDED");

    server.saggar_ok(&["sweep", "resume", &name]);
    let sweep = wait_for_sweep(&server, &name);
    assert_eq!((&sweep["state"], trials(&sweep).len()), (&json!("SUCCEEDED"), 3), "{sweep}");
    let job = server.job(&first);
    assert_eq!((&job["state"], &job["wasted_steps"]), (&json!("SUCCEEDED"), &json!(0)), "{job}");
    assert_eq!(job["attempts"][1]["first_step"], paused["step"], "{job}");
    let answer = server.request("POST", &format!("/api/v1/sweeps/{name}/stop"), HttpPayload::Nothing);
    assert_eq!((answer.status, answer.text.contains("SUCCEEDED")), (409, true), "{}", answer.text);
}

#[test]
fn sweeps_that_cannot_give_a_result_say_why() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let end = |fields: Value, parameters: Value| {
        let mut spec = steady_sweep(&server, 3, fields);
        spec["job"]["parameters"].as_object_mut().unwrap().extend(parameters.as_object().cloned().unwrap());
        let sweep = wait_for_sweep(&server, &create_sweep(&server, &spec));
        (sweep["state"].as_str().unwrap().to_owned(), sweep["reason"].as_str().unwrap().to_owned(), sweep)
    };
    let (state, reason, sweep) = end(json!({"metric": "nothing/accuracy", "trials": 5, "max_parallel": 1}), json!({}));
    assert_eq!((state.as_str(), reason.as_str()), ("FAILED", "NO_METRIC"), "{sweep}");
    assert!(sweep["message"].as_str().unwrap().contains("it recorded: accuracy"), "{sweep}");
    assert_eq!(trials(&sweep).len(), 1, "no other trial starts");

    let (state, reason, sweep) = end(json!({"trials": 2}), json!({"fail_at": 2}));
    assert_eq!((state.as_str(), reason.as_str()), ("FAILED", "ALL_TRIALS_FAILED"), "{sweep}");

    // A value that is not a number is the worst; the other trial wins.
    let mut spec = steady_sweep(&server, 3, json!({"space": {"nan_at": "3,0"}, "metric": "loss", "max_parallel": 1}));
    spec["job"]["non_finite"] = json!("continue");
    let names = server.get(&format!("/api/v1/jobs/{}", SteadyJob::with_steps(1).submit(&server)))["name"].clone();
    let metrics = server.wait_for_job(names.as_str().unwrap())["metrics"].clone();
    let series = metrics.as_object().unwrap().keys().find(|name| *name != "accuracy").unwrap().clone();
    spec["metric"] = json!(format!("min:{series}"));
    let sweep = wait_for_sweep(&server, &create_sweep(&server, &spec));
    assert_eq!((&sweep["state"], &sweep["best"]), (&json!("SUCCEEDED"), &json!(2)), "{sweep}");
    assert_eq!(trials(&sweep)[0]["value"], Value::Null, "{sweep}");

    let (state, reason, sweep) = end(json!({"trials": 50, "budget_seconds": 0.001}), json!({}));
    assert_eq!((state.as_str(), reason.as_str()), ("SUCCEEDED", "BUDGET"), "{sweep}");
}

#[test]
fn invalid_sweeps_are_refused_before_anything_runs() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let digest = server.upload(&lenet());
    let job = json!({
        "project": "digits", "plugin": digest, "device": "cpu", "data": [{"dataset": "digits", "mount": "/data"}],
    });
    let valid = json!({"job": job, "space": {"lr": "0.1,0.01"}, "metric": "accuracy"});
    let refused = |change: Value| {
        let mut spec = valid.clone();
        spec.as_object_mut().unwrap().extend(change.as_object().cloned().unwrap());
        let answer = server.request("POST", "/api/v1/sweeps", HttpPayload::Json(&spec));
        (answer.status, answer.text)
    };
    for (change, expected) in [
        (json!({"space": {}}), "no parameter is searched"),
        (json!({"space": {"lr": "log(0,1)"}}), "space.lr"),
        (json!({"space": {"learning_rate": "0.1"}}), "batch, channels"),
        (json!({"space": {"momentum": "uniform(0,2)"}, "trials": 4}), "parameters.momentum"),
        (json!({"space": {"optimizer": "sgd,adagrad"}}), "parameters.optimizer"),
        (json!({"space": {"lr": "log(1e-4,1)"}}), "trials"),
        (json!({"space": {"lr": "sgd,adam"}}), "parameters.lr"),
        (json!({"space": {"channels": "uniform(4,16)"}, "trials": 4}), "int(MIN,MAX)"),
        (json!({"space": {"channels": "int(0,8)"}, "trials": 4}), "parameters.channels"),
        (json!({"space": {"optimizer": "int(1,2)"}, "trials": 4}), "parameters.optimizer"),
        (json!({"method": "tpe"}), "tpe needs a number of trials"),
        (json!({"method": "tpe-asha", "trials": 2001}), "2001 trials"),
        (json!({"trials": 0}), "0 trials"),
        (json!({"method": "pbt"}), "pbt needs the size of its population"),
        (json!({"method": "pbt", "trials": 4, "generations": 1}), "generations"),
        (json!({"method": "pbt", "trials": 4, "exploit_quantile": 0.6}), "at most 0.5"),
        (json!({"method": "pbt", "trials": 4, "perturb_factors": []}), "such as [0.8, 1.2]"),
        (json!({"method": "asha", "generations": 4}), "only the method pbt"),
        (json!({"metric": ""}), "metric"),
        (json!({"max_parallel": 0}), "max_parallel"),
        (json!({"eta": 1}), "eta"),
        (json!({"method": "guess"}), "asha"),
        (json!({"unknown": 1}), "unknown"),
    ] {
        let (status, text) = refused(change.clone());
        assert!(status == 400 && text.contains(expected), "{change}: {status} {text}");
    }
    let (status, text) = refused(json!({"job": {"project": "digits", "plugin": digest, "queue": "none"}}));
    assert!((400..500).contains(&status), "{status} {text}");
    assert!(jobs(&server).is_empty());
    assert_eq!(server.get("/api/v1/sweeps")["sweeps"], json!([]));
    let missing = server.request("GET", "/api/v1/sweeps/none", HttpPayload::Nothing);
    assert!(missing.status == 404 && missing.text.contains("saggar sweep ls"), "{}", missing.text);

    let refuse = |arguments: &[&str]| {
        let output = server.saggar(&[&["sweep", "lenet"], arguments].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (arguments, expected) in [
        (&["--metric", "accuracy"][..], "no parameter is searched"),
        (&["--grid", "lr=0.1"], "--metric is missing"),
        (&["--metric", "accuracy", "--grid", "lr=log(1e-4,1)"], "a grid has listed values"),
        (&["--metric", "accuracy", "--space", "lr"], "expected a parameter and its values"),
        (&["--metric", "accuracy", "--space", "lr=log(1)"], "log(1e-4,1e-1)"),
        (&["--metric", "accuracy", "--grid", "lr=1", "--space", "lr=2"], "given twice"),
    ] {
        let (code, text) = refuse(arguments);
        assert!(code == Some(7) && text.contains(expected), "{arguments:?}: {code:?} {text}");
    }
}

#[test]
fn the_best_trial_becomes_a_task_and_the_project_file_keeps_its_comments() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("saggar.toml");
    let plugin = lenet();
    let text = format!(
        "# The project.\nmanifest = 1\n[project]\nname = \"digits\" # its name\n[plugin.net]\nsource = \"{}\"\n\
         [task.train]\nplugin = \"net\" # the plugin\nargs = {{ epochs = 1, channels = 4 }}\n\
         data = [{{ from = \"digits\", to = \"/data\" }}]\n\
         [sweep.lr]\ntask = \"train\"\nspace = {{ lr = \"0.05,0.0001\" }}\nmetric = \"epoch/loss\"\nmax_parallel = 1",
        plugin.display()
    );
    std::fs::write(&file, &text).unwrap();
    let run = |arguments: &[&str]| {
        let output = server.command(arguments).current_dir(directory.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["sweep", "--sweep", "lr", "--device", "cpu", "--wait"]);
    run(&["sweep", "results", "digits-sweep-1", "--save-task", "best"]);
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.starts_with(&text) && written.contains("[task.best]\nplugin = \"net\""), "{written}");
    assert!(written.contains("lr = 0.05") && written.contains("epochs = 1"), "{written}");
    let job = run(&["run", "--task", "best", "--device", "cpu"]);
    assert_eq!(server.wait_for_job(job.trim())["spec"]["parameters"]["lr"], 0.05);
    let again = server
        .command(&["sweep", "results", "digits-sweep-1", "--save-task", "best"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("has a task best already"));
}

#[test]
fn creating_a_sweep_twice_with_one_idempotency_key_creates_one() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let body = steady_sweep(&server, 1, json!({"trials": 2})).to_string();
    let post = || {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "-X", "POST", "-H", "idempotency-key: once", "-H", "content-type: application/json"]);
        let output = curl.args(["-d", &body, &format!("{}/api/v1/sweeps", server.url())]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["id"].clone()
    };
    let (first, second) = (post(), post());
    assert!(first.is_string(), "{first}");
    assert_eq!(first, second);
    assert_eq!(server.get("/api/v1/sweeps")["sweeps"].as_array().unwrap().len(), 1);
}
