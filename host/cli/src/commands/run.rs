//! `saggar run`: submit a job, and with `-f` or `--wait` stay with it.

mod component;
mod estimate;
pub(crate) mod help;
pub(crate) mod layers;
mod serve;
mod spec;
mod world;

use std::path::{Path, PathBuf};

use saggar_jobs::JobSpec;
use serde_json::{Map, Value, json};

pub(crate) use component::{build_plugin, upload};
pub(crate) use serve::wait_until_served;

use super::jobs;
use crate::args::{Mode, Run};
use crate::client::{Client, Payload};
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::project::{self, Project};
use crate::units;
use spec::Given;

pub(crate) fn run(args: &Run, client: &Client, output: Output) -> Result<i32, Failure> {
    if help::is_wanted(args) {
        return help::show(args, client, output);
    }
    let (spec, mode) = asked(args, client, output)?;
    submit(args, mode, &spec, client, output)
}

/// The specification that `saggar run` would submit, of a plugin that the server has.
///
/// # Errors
/// As there.
pub(crate) fn specification(args: &Run, client: &Client, output: Output) -> Result<JobSpec, Failure> {
    asked(args, client, output).map(|(spec, _)| spec)
}

/// The specification of a run that no server hears of, and the component that is run, which is built.
///
/// # Errors
/// As for one that is submitted.
pub(crate) fn local(args: &Run, output: Output) -> Result<(JobSpec, PathBuf), Failure> {
    let project = Project::for_task(args.task.as_deref())?;
    let user = project::user_config()?;
    let task = project.as_ref().zip(args.task.as_deref()).map(|(project, name)| project.task(name)).transpose()?;
    let given = Given { args, project: project.as_ref(), task, user: &user };
    let spec = given.spec(&"0".repeat(64), "bench")?;
    Ok((spec, plugin(&given, output)?))
}

/// What is asked for, and what for. Builds and uploads the plugin.
fn asked(args: &Run, client: &Client, output: Output) -> Result<(JobSpec, Mode), Failure> {
    let project = Project::for_task(args.task.as_deref())?;
    let user = project::user_config()?;
    let task = project.as_ref().zip(args.task.as_deref()).map(|(project, name)| project.task(name)).transpose()?;
    let given = Given { args, project: project.as_ref(), task, user: &user };
    let world = args.env.as_deref().map(world::pinned).transpose()?;
    let upload = |component: &Path| {
        world.as_ref().map(|world| world::check(world, component)).transpose()?;
        upload(client, component)
    };
    let spec = match &args.from_file {
        Some(file) => {
            let digest = args.plugin.as_deref().map(|path| component::component(path, output));
            let digest = digest.transpose()?.map(|path| upload(&path)).transpose()?;
            given.spec_of_file(file, digest.as_deref())?
        }
        None => {
            // What is wrong with the rest is told before anything is built.
            given.spec(&"0".repeat(64), "job")?;
            let component = plugin(&given, output)?;
            let stem = component.file_stem().map_or_else(|| "job".into(), |stem| stem.to_string_lossy());
            given.spec(&upload(&component)?, &stem)?
        }
    };
    let mode = args.mode.unwrap_or_else(|| match task.map(|(_, task)| task.mode) {
        Some(saggar_project::Mode::Serve) => Mode::Serve,
        Some(saggar_project::Mode::Job) | None => Mode::Job,
    });
    Ok((spec, mode))
}

/// What `saggar run --task NAME` would submit, for a component that the server has.
///
/// # Errors
/// As there.
pub(crate) fn task_spec(project: &Project, name: &str, digest: &str, component: &Path) -> Result<JobSpec, Failure> {
    let user = project::user_config()?;
    let given = Given { args: &Run::default(), project: Some(project), task: Some(project.task(name)?), user: &user };
    let stem = component.file_stem().map_or_else(|| "job".into(), |stem| stem.to_string_lossy());
    given.spec(digest, &stem)
}

/// The component of the plugin that is meant: the one that is named, the task's, or that of this directory.
fn plugin(given: &Given<'_>, output: Output) -> Result<PathBuf, Failure> {
    match (&given.args.plugin, given.project, given.task) {
        (Some(path), _, _) => component::component(path, output),
        (None, Some(project), Some((_, task))) => build_plugin(project, &task.plugin, output, None),
        (None, _, _) => component::component(".".as_ref(), output),
    }
}

fn submit(args: &Run, mode: Mode, spec: &JobSpec, client: &Client, output: Output) -> Result<i32, Failure> {
    let estimate = args.estimate.then(|| estimate::before(spec, client, output)).transpose()?;
    let mut job = client.post("/api/v1/jobs", Payload::Json(&json!(spec)))?;
    let name = job["name"].as_str().unwrap_or_default().to_owned();
    if mode == Mode::Serve {
        return serve::until_served(args, client, output, &name, estimate);
    }
    if args.follow || args.wait {
        return stay_with(client, output, &name, args.follow, estimate);
    }
    if output.json {
        add(&mut job, estimate);
        output.json(&job);
    } else {
        output.line(&name);
        output.note(&format!("  state    {}{}", job["state"].as_str().unwrap_or("?"), position(&job)));
        if spec.preemptible && !output.quiet && !resumes(client, &spec.plugin) {
            output.note(
                "  hint: this plugin is not known to go on where it was interrupted; `saggar plugins test` shows it",
            );
        }
        output.note(&format!("Next: saggar logs -f {name} | saggar status {name} | saggar stop {name}"));
    }
    Ok(0)
}

/// Whether a plugin was shown to go on where it was interrupted, as far as the server tells: the job is queued, whatever
/// it answers here.
fn resumes(client: &Client, plugin: &str) -> bool {
    let Ok(answer) = client.get("/api/v1/plugins") else { return true };
    let mut plugins = answer["plugins"].as_array().into_iter().flatten();
    plugins.any(|it| it["digest"] == plugin && it["resume_test"].is_object())
}

fn position(job: &Value) -> String {
    job["position"].as_u64().map_or_else(String::new, |position| format!("   position {position} in the queue"))
}

/// Follows or waits until the job is over, and returns the exit code that says how it ended.
pub(crate) fn stay_until_over(client: &Client, output: Output, name: &str, follow: bool) -> Result<i32, Failure> {
    stay_with(client, output, name, follow, None)
}

/// As [`stay_until_over`]; a document says what was estimated, too.
fn stay_with(
    client: &Client,
    output: Output,
    name: &str,
    follow: bool,
    estimate: Option<Value>,
) -> Result<i32, Failure> {
    let mut job = stay(client, output, name, follow)?;
    let code = exit_code(&job);
    if code == 0 {
        serve::say_what_serves(client, output, &job);
    }
    if output.json {
        add(&mut job, estimate);
        output.json_line(&job);
    } else {
        output.line(&ended(&job, name, output));
    }
    Ok(code)
}

/// Puts what was estimated into a document.
fn add(document: &mut Value, estimate: Option<Value>) {
    if let Some(estimate) = estimate {
        document["estimate"] = estimate;
    }
}

/// Follows or waits until the job is over. Ctrl-C leaves it running.
fn stay(client: &Client, output: Output, name: &str, follow: bool) -> Result<Value, Failure> {
    let job = client.get(&format!("/api/v1/jobs/{name}"))?;
    let (id, queue) = (job["id"].as_str().unwrap_or("?"), job["queue"].as_str().unwrap_or("?"));
    output.note(&format!("Submitted job {name} ({id}) to queue {queue}"));
    jobs::detach_on_interrupt(name.to_owned());
    if follow {
        jobs::follow_log(client, output, name)?;
    }
    jobs::wait(client, output, name)
}

/// How a job ended, in a sentence.
pub(crate) fn ended(job: &Value, name: &str, output: Output) -> String {
    let state = output.state(job["state"].as_str().unwrap_or("?"));
    let duration = units::show_duration(job["wall_seconds"].as_f64().unwrap_or(0.0));
    let attempts = job["attempt"].as_u64().unwrap_or(1);
    let sentence = job["message"].as_str().filter(|text| !text.is_empty());
    let because = sentence.map_or_else(String::new, |text| format!(": {text}"));
    format!("Job {name} {state} after {duration}, attempts: {attempts}{because}")
}

pub(crate) fn exit_code(job: &Value) -> i32 {
    exit::of_job(job["state"].as_str().unwrap_or("?"), job["reason"].as_str().unwrap_or(""))
}

/// Reads `epochs=3`, `--epochs 3` and `--epochs=3`. Values that are JSON are taken as such, others as text.
pub(crate) fn parameters(words: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut parameters = Map::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let flag = word.strip_prefix("--");
        let (key, value) = match (flag.unwrap_or(word).split_once('='), flag) {
            (Some((key, value)), _) => (key.to_owned(), value.to_owned()),
            (None, Some(key)) => {
                let value = words.next().ok_or_else(|| Failure::invalid(format!("parameter --{key} has no value")))?;
                (key.to_owned(), value.clone())
            }
            (None, None) => {
                let hint = "parameters are written epochs=3 or --epochs 3";
                return Err(Failure::invalid(format!("{word:?} is no parameter")).hint(hint));
            }
        };
        let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
        if parameters.insert(key.clone(), value).is_some() {
            return Err(Failure::invalid(format!("parameter {key} is given twice")));
        }
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_in_every_form() {
        let words = ["epochs=3", "--lr", "0.05", "--optimizer=adam"].map(str::to_owned);
        let read = parameters(&words).unwrap();
        assert_eq!(Value::Object(read), json!({"epochs": 3, "lr": 0.05, "optimizer": "adam"}));
        assert!(parameters(&["epochs".to_owned()]).is_err());
        assert!(parameters(&["--epochs".to_owned()]).is_err());
        assert!(parameters(&["a=1".to_owned(), "a=2".to_owned()]).is_err());
    }
}
