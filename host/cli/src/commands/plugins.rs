//! `saggar plugins`: what the server has, and whether it goes on where it was interrupted.

use std::time::Duration;

use saggar_jobs::JobSpec;
use serde_json::{Value, json};

use super::{jobs, run};
use crate::args::{Plugins, TestResume};
use crate::client::{Client, Payload};
use crate::exit::Failure;
use crate::output::Output;
use crate::units;

/// How often a training is looked at that is to be interrupted.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn plugins(args: &Plugins, client: &Client, output: Output) -> Result<i32, Failure> {
    match args {
        Plugins::Ls => ls(client, output).map(|()| 0),
        Plugins::Test(args) => test(args, client, output),
    }
}

fn ls(client: &Client, output: Output) -> Result<(), Failure> {
    let answer = client.get("/api/v1/plugins")?;
    let plugins = answer["plugins"].as_array().cloned().unwrap_or_default();
    if output.json {
        output.json(&json!(plugins));
        return Ok(());
    }
    if output.quiet {
        plugins.iter().for_each(|plugin| output.line(plugin["digest"].as_str().unwrap_or("?")));
        return Ok(());
    }
    let yes = |flag: &Value| if flag == &Value::Bool(true) { "yes" } else { "-" }.to_owned();
    let row = |plugin: &Value| {
        let shown = plugin["resume_test"].as_object();
        vec![
            plugin["declares"]["name"].as_str().unwrap_or("-").to_owned(),
            plugin["digest"].as_str().unwrap_or("?").chars().take(12).collect(),
            yes(&plugin["trains"]),
            yes(&plugin["predicts"]),
            units::show_bytes(plugin["bytes"].as_u64().unwrap_or(0)),
            match shown.map(|test| test.get("interrupted").and_then(Value::as_str)) {
                None => "not tested".to_owned(),
                Some(Some(job)) => format!("yes ({job})"),
                Some(None) => "yes".to_owned(),
            },
        ]
    };
    output.table(
        &["NAME", "PLUGIN", "TRAINS", "PREDICTS", "SIZE", "RESUMES"],
        &plugins.iter().map(row).collect::<Vec<_>>(),
    );
    if plugins.is_empty() {
        output.note("No plugins. `saggar run` uploads one.");
    }
    Ok(())
}

fn test(args: &TestResume, client: &Client, output: Output) -> Result<i32, Failure> {
    let spec = run::specification(&args.run, client, output)?;
    let whole = submit(&spec, client)?;
    output.note(&format!("{whole} trains in peace"));
    let job = jobs::wait(client, output, &whole)?;
    if job["state"] != "SUCCEEDED" {
        output.line(&run::ended(&job, &whole, output));
        return Ok(run::exit_code(&job));
    }
    let steps = job["step"].as_u64().unwrap_or(0);
    let interrupted = submit(&spec, client)?;
    output.note(&format!("{interrupted} trains and is preempted {} times", args.preemptions));
    for number in 1..=args.preemptions {
        let at = steps * u64::from(number) / u64::from(args.preemptions + 1);
        preempt(client, &interrupted, at.max(1), u64::from(number))?;
    }
    let job = jobs::wait(client, output, &interrupted)?;
    if job["state"] != "SUCCEEDED" {
        output.line(&run::ended(&job, &interrupted, output));
        return Ok(run::exit_code(&job));
    }
    let pair = json!({ "whole": whole, "interrupted": interrupted });
    let marked = client.post(&format!("/api/v1/plugins/{}/resume-test", spec.plugin), Payload::Json(&pair))?;
    if output.json {
        output.json(&marked);
    } else {
        let resumes = marked["resumes"].as_u64().unwrap_or(0);
        output.line(&format!(
            "{interrupted} went on {resumes} times and ended bit by bit as {whole}: the plugin resumes"
        ));
    }
    Ok(0)
}

fn submit(spec: &JobSpec, client: &Client) -> Result<String, Failure> {
    let job = client.post("/api/v1/jobs", Payload::Json(&json!(spec)))?;
    Ok(job["name"].as_str().unwrap_or_default().to_owned())
}

/// Preempts the job's attempt of this number once it has done so many steps, and waits for the attempt's end.
fn preempt(client: &Client, name: &str, step: u64, attempt: u64) -> Result<(), Failure> {
    let path = format!("/api/v1/jobs/{name}");
    let mut asked = false;
    loop {
        let job = client.get(&path)?;
        let ended = job["attempts"][attempt as usize - 1]["ended_ms"].is_u64();
        let over = job["finished_ms"].is_u64();
        if over || (ended && !asked) {
            return Err(Failure::invalid(format!("{name} ended before it could be interrupted at step {step}"))
                .hint("give it more to do: more epochs, or more data"));
        }
        if ended {
            return Ok(());
        }
        if !asked && job["state"] == "RUNNING" && job["step"].as_u64().is_some_and(|done| done >= step) {
            client.post(&format!("{path}/preempt"), Payload::Nothing)?;
            asked = true;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}
