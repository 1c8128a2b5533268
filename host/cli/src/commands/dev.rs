//! `saggar dev`: the plugin of the project, built and served, and again whenever one of its sources is saved. A new component
//! becomes a version with the weights of the newest one, so that it answers without a training; where there is no version
//! yet, the task is run first. What does not compile or does not fit changes nothing: what served before serves on.

mod answer;
mod ending;
mod server;
mod sources;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_project::{PROJECT_FILE, Task};
use serde_json::{Value, json};

use super::{jobs, run};
use crate::args::Dev;
use crate::client::{Client, Payload, segment};
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::project::Project;
use crate::server::ServerAddress;
pub(crate) use ending::Ending;
use server::DevServer;
use sources::Sources;

/// How long a version that a job published may take until it serves.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the server is asked for what a training lacks.
const DATA_LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How often the server is asked.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) fn dev(args: &Dev, address: ServerAddress, output: Output) -> Result<i32, Failure> {
    let project = Project::require()?;
    let (name, task) = task(&project, args.task.as_deref())?;
    // Before the first build, which takes a while: an address that cannot be had is said at once.
    let running = DevServer::running(args, &address, output)?;
    // Before the first build, too: what is saved while it runs is not lost.
    let sources = Sources::watch(&project, &task.plugin)?;
    let ending = Ending::on_interrupt();
    let first = built(&project, task, &ending, output);
    let server = match running {
        Some(server) => server,
        None => DevServer::start(args, address, &project, Arc::clone(&ending))?,
    };
    let client = server.client()?;
    match output.json {
        true => output.json_line(&json!({ "url": server.url() })),
        false => output.line(server.url()),
    }
    let mut dev = Developing { project: &project, name, task, client: &client, model: None, lacks: None, output };
    dev.take(first, None);
    loop {
        dev.note_what_is_waited_for();
        let saved = loop {
            match sources.wait_for(DATA_LOOK_INTERVAL) {
                Some(saved) => break saved,
                None => dev.retry(),
            }
        };
        let began = Instant::now();
        let component = built(&project, task, &ending, output);
        dev.take(component, Some(Edit { saved, compiled: began.elapsed(), done: Instant::now() }));
    }
}

/// The task that is meant: the one that is named, the one that is called train, or the only one.
fn task<'a>(project: &'a Project, named: Option<&'a str>) -> Result<(&'a str, &'a Task), Failure> {
    let tasks = &project.manifest.tasks;
    match (named, tasks.len()) {
        (Some(name), _) => project.task(name),
        (None, 1) => Ok(tasks.iter().next().map(|(name, task)| (name.as_str(), task)).expect("there is one")),
        (None, 0) => Err(Failure::invalid(format!("{PROJECT_FILE} has no task to develop"))
            .hint("add [task.train] with plugin = \"NAME\"")),
        (None, _) => project.task("train"),
    }
}

/// The component of the task's plugin; what the compiler says is shown where it does not build.
fn built(project: &Project, task: &Task, ending: &Arc<Ending>, output: Output) -> Option<PathBuf> {
    match run::build_plugin(project, &task.plugin, output, Some(ending)) {
        Ok(path) => Some(path),
        Err(failure) => {
            output.failure(&failure);
            None
        }
    }
}

/// An edit on its way to an answer.
struct Edit {
    saved: Instant,
    compiled: Duration,
    done: Instant,
}

struct Developing<'a> {
    project: &'a Project,
    name: &'a str,
    task: &'a Task,
    client: &'a Client,
    /// The model that the plugin is, as soon as it is known.
    model: Option<String>,
    /// The component whose training lacks something that the server does not have, and the datasets that there were.
    lacks: Option<(PathBuf, Value)>,
    output: Output,
}

impl Developing<'_> {
    /// Puts a component into service, and says how long that took since the edit.
    fn take(&mut self, component: Option<PathBuf>, edit: Option<Edit>) {
        let Some(component) = component else { return self.serves_on() };
        self.lacks = None;
        let Err(failure) = self.put(&component, edit) else { return };
        self.output.failure(&failure);
        self.serves_on();
        if self.model.is_none() && failure.exit == exit::NOT_FOUND {
            self.lacks = self.datasets().map(|datasets| (component, datasets));
        }
    }

    /// Runs the training that lacked something again, as soon as the server has other datasets.
    fn retry(&mut self) {
        let Some((component, before)) = &self.lacks else { return };
        if self.datasets().is_some_and(|now| now != *before) {
            let component = component.clone();
            self.take(Some(component), None);
            self.note_what_is_waited_for();
        }
    }

    /// The names of the versions of datasets that there are; `None` where the server does not say.
    fn datasets(&self) -> Option<Value> {
        let listed = self.client.get("/api/v1/datasets").ok()?;
        let name = |dataset: &Value| json!([dataset["name"], dataset["version"]]);
        Some(listed["datasets"].as_array()?.iter().map(name).collect())
    }

    fn note_what_is_waited_for(&self) {
        self.output.note(match self.lacks {
            Some(_) => "waiting for the data, or for a source to be saved; Ctrl-C ends",
            None => "waiting for a source to be saved; Ctrl-C ends",
        });
    }

    /// A command for the server that this works with.
    fn command(&self, rest: &str) -> String {
        format!("saggar --host {} {rest}", self.client.url(""))
    }

    fn serves_on(&self) {
        if let Some(model) = &self.model {
            self.output.note(&format!("{model} serves on as it was"));
        }
    }

    fn put(&mut self, component: &Path, edit: Option<Edit>) -> Result<(), Failure> {
        let digest = run::upload(self.client, component)?;
        if self.model.is_none() {
            self.model = self.existing(component)?;
        }
        let Some(model) = self.model.clone() else {
            self.model = Some(self.train(&digest, component)?);
            return self.announce(None);
        };
        let shown = self.client.get(&format!("/api/v1/models/{}", segment(&model)))?;
        let newest = shown["versions"].as_array().and_then(|versions| versions.last()).cloned().unwrap_or_default();
        if newest["plugin"] == digest.as_str() {
            self.output.note("the component is the same as before");
            return if edit.is_none() { self.announce(None) } else { Ok(()) };
        }
        let path = format!("/api/v1/models/{}/versions", segment(&model));
        let made = self.client.post(&path, Payload::Json(&json!({ "plugin": digest })))?;
        let version = made["version"].as_u64().unwrap_or_default();
        if made["state"] != "READY" {
            let reason = made["reason"].as_str().unwrap_or("it is not up");
            return Err(Failure::invalid(format!("{model}@{version} is refused: {reason}")).hint(format!(
                "where the weights no longer fit, train anew: `{}`",
                self.command(&format!("run --task {}", self.name))
            )));
        }
        self.announce(edit.map(|edit| (edit, version)))
    }

    /// The model that the plugin's versions are of, where there are any.
    fn existing(&self, component: &Path) -> Result<Option<String>, Failure> {
        let stem = component.file_stem().map(|stem| stem.to_string_lossy().replace('_', "-"));
        let of_plugin = |(name, model): (&String, &saggar_project::Model)| {
            (model.plugin.as_ref() == Some(&self.task.plugin)).then(|| name.clone())
        };
        let named = self.task.args.get("model").and_then(Value::as_str).map(str::to_owned);
        let named = named.or_else(|| self.project.manifest.models.iter().find_map(of_plugin)).or(stem);
        let models = self.client.get("/api/v1/models")?;
        let versioned = |model: &&Value| model["versions"].as_array().is_some_and(|versions| !versions.is_empty());
        let mut there = models["models"].as_array().into_iter().flatten().filter(versioned);
        Ok(there.find(|model| model["name"].as_str() == named.as_deref()).and(named))
    }

    /// Runs the task, and waits until the server answers from what it publishes. The model.
    fn train(&self, digest: &str, component: &Path) -> Result<String, Failure> {
        let spec = run::task_spec(self.project, self.name, digest, component)?;
        self.output.note(&format!("no version is there yet: running task {}", self.name));
        let job = self.client.post("/api/v1/jobs", Payload::Json(&json!(spec))).map_err(|failure| {
            let lacks_data = failure.exit == exit::NOT_FOUND && failure.message.contains("dataset");
            let push = self.command("data push FOLDER --name NAME");
            if lacks_data {
                failure.hint(format!("`{push}` stores one, and the training begins by itself"))
            } else {
                failure
            }
        })?;
        let name = job["name"].as_str().unwrap_or_default();
        jobs::follow_log(self.client, self.output, name)?;
        let ended = jobs::wait(self.client, self.output, name)?;
        if ended["state"] != "SUCCEEDED" {
            let (state, why) = (ended["state"].as_str().unwrap_or("?"), ended["message"].as_str().unwrap_or(""));
            return Err(Failure::invalid(format!("job {name} is {state}: {why}")).hint("mend it and save"));
        }
        run::wait_until_served(self.client, &ended, PATIENCE).map(|(model, _)| model)
    }

    /// Asks the model, and says what answers and how long an edit took to get there.
    fn announce(&self, edit: Option<(Edit, u64)>) -> Result<(), Failure> {
        let Some(model) = &self.model else { return Ok(()) };
        let version = edit.as_ref().map(|(_, version)| *version);
        let first = answer::first(self.client, model, version, PATIENCE, LOOK_INTERVAL)?;
        let url = self.client.url(&format!("/models/{model}/predict"));
        let Some((edit, _)) = edit else {
            self.output.note(&format!("{} answers at {url}", first.whence));
            return Ok(());
        };
        let seconds = |time: Duration| (time.as_secs_f64() * 1000.0).round() / 1000.0;
        let (total, compiled) = (first.at.duration_since(edit.saved), edit.compiled);
        let after = first.at.duration_since(edit.done);
        if self.output.json {
            self.output.json_line(&json!({
                "answers": first.whence, "edit_to_answer_seconds": seconds(total),
                "build_seconds": seconds(compiled), "after_build_seconds": seconds(after),
            }));
        } else {
            self.output.line(&format!(
                "{} answers: edit to first new answer {:.2} s (build {:.2} s, then {:.2} s)",
                first.whence,
                total.as_secs_f64(),
                compiled.as_secs_f64(),
                after.as_secs_f64()
            ));
        }
        if let Some(complaint) = first.complaint {
            self.output.note(&format!("  to its example it says: {complaint}"));
        }
        Ok(())
    }
}
