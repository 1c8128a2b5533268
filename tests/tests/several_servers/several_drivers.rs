//! Pipelines and sweeps that three servers of one database drive, of which one is killed: every step and every trial begins
//! exactly once.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::collections::BTreeMap;

use saggar_tests::pipelines::{PipelineProject, run_of, wait_for_run};
use saggar_tests::{BucketCluster, ServerProcess, SteadyJob, create_sweep, wait_for_sweep};
use serde_json::{Value, json};

fn start_servers(cluster: &BucketCluster) -> Vec<ServerProcess> {
    ["a", "b", "c"].map(|name| cluster.start_server(name, &["--jobs", "2"])).into()
}

/// Returns the names of all jobs.
fn job_names(server: &ServerProcess) -> Vec<String> {
    let (mut names, mut path) = (Vec::new(), "/api/v1/jobs?limit=100".to_owned());
    loop {
        let page = server.get(&path);
        names.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["cursor"].as_u64() else { break };
        path = format!("/api/v1/jobs?limit=100&cursor={cursor}");
    }
    names.sort();
    names
}

/// Returns how often each name occurs.
fn counts<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, u32> {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    counts
}

/// A chain of three steps with four items each, so that each server has something to decide after each end of a job.
const PIPELINE: &str = "[pipeline.chain]\n\
    [[pipeline.chain.step]]\nname = \"first\"\ntask = \"train\"\nfor_each = [20, 21, 22, 23]\nargs = { steps = \"${item}\" }\n\
    [[pipeline.chain.step]]\nname = \"second\"\ntask = \"train\"\nafter = [\"first\"]\nfor_each = [20, 21, 22, 23]\n\
    args = { steps = \"${item}\" }\n\
    [[pipeline.chain.step]]\nname = \"third\"\ntask = \"train\"\nafter = [\"second\"]\nfor_each = [20, 21, 22, 23]\n\
    args = { steps = \"${item}\" }\n";

#[test]
fn steps_of_a_pipeline_begin_once_although_three_servers_drive_it_and_one_is_killed() {
    let Some(cluster) = BucketCluster::start() else { return };
    let mut servers = start_servers(&cluster);
    let project = PipelineProject::of_steady(PIPELINE);
    let runs: Vec<String> = servers
        .iter()
        .map(|server| project.saggar_ok(server, &["pipeline", "run", "chain"]).trim().to_owned())
        .collect();
    let succeeded = |run: &Value| {
        let attempts = run["steps"].as_array().unwrap().iter().flat_map(|step| step["attempts"].as_array().unwrap());
        attempts.filter(|attempt| attempt["state"] == "SUCCEEDED").count()
    };
    servers[1].wait_for("half of a run", |server| (succeeded(&run_of(server, &runs[0])) >= 5).then_some(()));
    servers.remove(0).kill_and_wait();
    let mut of_steps = Vec::new();
    for run in &runs {
        let run = wait_for_run(&servers[0], run);
        assert_eq!((&run["state"], succeeded(&run)), (&json!("SUCCEEDED"), 12), "{run}");
        for step in run["steps"].as_array().unwrap() {
            let attempts = step["attempts"].as_array().unwrap();
            assert_eq!(attempts.len(), 4, "each item has one attempt: {step}");
            of_steps.extend(attempts.iter().map(|attempt| attempt["job"].as_str().unwrap().to_owned()));
        }
    }
    of_steps.sort();
    assert_eq!(of_steps.len(), 36);
    assert_eq!(job_names(&servers[1]), of_steps, "no job is lost or doubled");
    for (job, count) in counts(of_steps.iter().map(String::as_str)) {
        assert_eq!((count, &servers[0].job(job)["state"]), (1, &json!("SUCCEEDED")), "{job}");
    }
}

#[test]
fn trials_of_a_sweep_begin_once_although_three_servers_drive_it_and_one_is_killed() {
    let Some(cluster) = BucketCluster::start() else { return };
    let mut servers = start_servers(&cluster);
    let spec = json!({
        "job": SteadyJob::with_steps(30).spec(&servers[0]),
        "space": { "work": "int(1,3)" },
        "metric": "max:accuracy",
        "trials": 24,
        "max_parallel": 6,
        "seed": 5,
    });
    let sweep = create_sweep(&servers[0], &spec);
    let ended = |sweep: &Value| {
        sweep["trials"].as_array().unwrap().iter().filter(|trial| trial["state"] == "COMPLETED").count()
    };
    let path = format!("/api/v1/sweeps/{sweep}");
    servers[1].wait_for("a third of the trials", |server| (ended(&server.get(&path)) >= 8).then_some(()));
    servers.remove(0).kill_and_wait();
    let found = wait_for_sweep(&servers[0], &sweep);
    assert_eq!((&found["state"], ended(&found)), (&json!("SUCCEEDED"), 24), "{found}");
    let trials = found["trials"].as_array().unwrap();
    let mut jobs: Vec<String> = trials.iter().map(|trial| trial["job"].as_str().unwrap().to_owned()).collect();
    jobs.sort();
    assert!(counts(jobs.iter().map(String::as_str)).values().all(|count| *count == 1), "{jobs:?}");
    assert_eq!(job_names(&servers[1]), jobs, "no job is lost or doubled");
    assert_eq!(servers[1].get(&path), servers[0].get(&path), "every server shows the same");
}
