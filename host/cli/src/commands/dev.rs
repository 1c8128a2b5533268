//! `saggar dev`: builds and serves the project's plugin, and rebuilds whenever a source is saved. A new component
//! becomes a version with the weights of the newest one, so that it serves without a training; if there is no version
//! yet, the task is run first. If a build fails or the weights do not fit, the previous version keeps serving.

mod dev_shutdown;
mod first_answer;
mod server;
mod source_watcher;

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_jobs::{DataSource, JobSpec};
use saggar_project::{PROJECT_FILE, TaskSection};
use saggar_rest::datasets::DatasetListDocument;
use saggar_rest::errors::ErrorCode;
use saggar_rest::jobs::JobDocument;
use saggar_rest::model_commands::PublishVersionRequest;
use saggar_rest::models::{ModelDocument, ModelListDocument, PublishedVersionDocument};
use saggar_store::JobState;
use serde::Serialize;
use serde_json::Value;

use super::{job_follow, run};
use crate::args::DevArgs;
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::component_source::ComponentSource;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::project::ProjectContext;
use crate::server::ServerAddress;
pub(crate) use dev_shutdown::DevShutdown;
use server::DevServer;
use source_watcher::SourceWatcher;

/// Maximum time until a version that a job published serves.
const SERVE_TIME_MAX: Duration = Duration::from_secs(120);
/// How often the server is polled for the data that a training lacks.
const DATA_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often the server is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) fn dev(args: &DevArgs, address: ServerAddress, output: CliOutput) -> Result<i32, CliError> {
    let project = ProjectContext::require()?;
    let (name, task) = select_task(&project, args.task.as_deref())?;
    let plugin = ProjectContext::plugin_of_task((name, task))?;
    // Checked before the first build, which takes a while, so that an unusable address is reported at once.
    let running = DevServer::find_running(args, &address, output)?;
    // Watched from before the first build, so that a save during the build is not lost.
    let sources = SourceWatcher::watch(&project, plugin)?;
    let ending = DevShutdown::install();
    let first = build_or_report(&project, plugin, &ending, output);
    let server = match running {
        Some(server) => server,
        None => DevServer::start(args, address, &project, Arc::clone(&ending))?,
    };
    let client = server.client()?;
    match output.json {
        true => output.print_json_line(&DevServerLine { url: server.url() }),
        false => output.print_line(server.url()),
    }
    let mut dev =
        DevSession { project: &project, name, task, client: &client, model: None, blocked_on_data: None, output };
    dev.deploy_or_report(first, None);
    loop {
        dev.print_waiting_note();
        let saved = loop {
            match sources.wait_for_save(DATA_POLL_INTERVAL) {
                Some(saved) => break saved,
                None => dev.retry_if_data_changed(),
            }
        };
        let began = Instant::now();
        let component = build_or_report(&project, plugin, &ending, output);
        dev.deploy_or_report(
            component,
            Some(SourceEdit { saved_at: saved, build_time: began.elapsed(), built_at: Instant::now() }),
        );
    }
}

/// Returns the selected task: the named one, the one named train, or the only one.
fn select_task<'a>(
    project: &'a ProjectContext,
    named: Option<&'a str>,
) -> Result<(&'a str, &'a TaskSection), CliError> {
    let tasks = &project.manifest.tasks;
    match (named, tasks.len()) {
        (Some(name), _) => project.task(name),
        (None, 1) => Ok(tasks.iter().next().map(|(name, task)| (name.as_str(), task)).expect("there is one")),
        (None, 0) => Err(CliError::invalid(format!("{PROJECT_FILE} has no task to develop"))
            .with_hint("add [task.train] with plugin = \"NAME\"")),
        (None, _) => project.task("train"),
    }
}

/// Builds the component of a plugin of the project. If the build fails, prints the compiler's output.
fn build_or_report(
    project: &ProjectContext,
    plugin: &str,
    ending: &Arc<DevShutdown>,
    output: CliOutput,
) -> Option<ComponentSource> {
    match run::build_plugin(project, plugin, output, Some(ending)) {
        Ok(component) => Some(component),
        Err(failure) => {
            output.print_error(&failure);
            None
        }
    }
}

/// The line that names the server, with `--json`.
#[derive(Serialize)]
struct DevServerLine<'a> {
    url: &'a str,
}

/// The line about the first answer after an edit, with `--json`.
#[derive(Serialize)]
struct FirstAnswerLine<'a> {
    answers: &'a str,
    edit_to_answer_seconds: f64,
    build_seconds: f64,
    after_build_seconds: f64,
}

/// An edit that is being built and deployed.
struct SourceEdit {
    saved_at: Instant,
    build_time: Duration,
    built_at: Instant,
}

struct DevSession<'a> {
    project: &'a ProjectContext,
    name: &'a str,
    task: &'a TaskSection,
    client: &'a ApiClient,
    /// The name of the plugin's model, once it is known.
    model: Option<String>,
    /// The component whose training lacks data, with the dataset versions that existed then.
    blocked_on_data: Option<(ComponentSource, Vec<(String, u64)>)>,
    output: CliOutput,
}

impl DevSession<'_> {
    /// Deploys a component, and prints the time since the edit.
    fn deploy_or_report(&mut self, component: Option<ComponentSource>, edit: Option<SourceEdit>) {
        let Some(component) = component else { return self.print_still_serving() };
        self.blocked_on_data = None;
        let Err(failure) = self.deploy(&component, edit) else { return };
        self.output.print_error(&failure);
        self.print_still_serving();
        if self.model.is_none() && failure.exit_code == exit::NOT_FOUND {
            self.blocked_on_data = self.dataset_versions().map(|datasets| (component, datasets));
        }
    }

    /// Runs the blocked training again once the server's datasets have changed.
    fn retry_if_data_changed(&mut self) {
        let Some((component, before)) = &self.blocked_on_data else { return };
        if self.dataset_versions().is_some_and(|now| now != *before) {
            let component = component.clone();
            self.deploy_or_report(Some(component), None);
            self.print_waiting_note();
        }
    }

    /// Returns the names of the existing dataset versions, or `None` if the server does not answer.
    fn dataset_versions(&self) -> Option<Vec<(String, u64)>> {
        let listed: DatasetListDocument = self.client.get("/api/v1/datasets").ok()?;
        Some(listed.datasets.into_iter().map(|dataset| (dataset.name, dataset.version)).collect())
    }

    fn print_waiting_note(&self) {
        self.output.print_note(match self.blocked_on_data {
            Some(_) => "waiting for the data, or for a source to be saved; Ctrl-C ends",
            None => "waiting for a source to be saved; Ctrl-C ends",
        });
    }

    /// Returns a command line for this session's server.
    fn command_line(&self, rest: &str) -> String {
        format!("saggar --host {} {rest}", self.client.url(""))
    }

    fn print_still_serving(&self) {
        if let Some(model) = &self.model {
            self.output.print_note(&format!("{model} keeps serving its previous version"));
        }
    }

    fn deploy(&mut self, component: &ComponentSource, edit: Option<SourceEdit>) -> Result<(), CliError> {
        let digest = run::upload_plugin(self.client, component)?;
        if self.model.is_none() {
            self.model = self.find_model(component)?;
        }
        let Some(model) = self.model.clone() else {
            self.model = Some(self.train(&digest, component)?);
            return self.announce_first_answer(None);
        };
        let document: ModelDocument = self.client.get(&format!("/api/v1/models/{}", encode_path_segment(&model)))?;
        if document.versions.last().is_some_and(|newest| newest.plugin.as_ref() == Some(&digest)) {
            self.output.print_note("the component is the same as before");
            return if edit.is_none() { self.announce_first_answer(None) } else { Ok(()) };
        }
        let path = format!("/api/v1/models/{}/versions", encode_path_segment(&model));
        let request = PublishVersionRequest::Plugin { plugin: digest, from_version: None };
        let published: PublishedVersionDocument = self.client.post(&path, RequestBody::json(&request))?;
        let PublishedVersionDocument { version, reason, .. } = published;
        if published.state != "READY" {
            return Err(CliError::invalid(format!("{model}@{version} is refused: {reason}")).with_hint(format!(
                "if the weights no longer fit, train again: `{}`",
                self.command_line(&format!("run --task {}", self.name))
            )));
        }
        self.announce_first_answer(edit.map(|edit| (edit, version)))
    }

    /// Returns the model of the plugin's versions, or `None` if there is no version.
    fn find_model(&self, component: &ComponentSource) -> Result<Option<String>, CliError> {
        let own = component.name().replace('_', "-");
        let of_plugin = |(name, model): (&String, &saggar_project::ModelSection)| {
            (model.plugin.is_some() && model.plugin == self.task.plugin).then(|| name.clone())
        };
        let named = self.task.args.get("model").and_then(Value::as_str).map(str::to_owned);
        let named = named.or_else(|| self.project.manifest.models.iter().find_map(of_plugin)).or(Some(own));
        let ModelListDocument { models } = self.client.get("/api/v1/models")?;
        let is_there = |model: &ModelDocument| !model.versions.is_empty() && Some(&model.name) == named.as_ref();
        Ok(models.iter().any(is_there).then_some(named).flatten())
    }

    /// Runs the task and waits until the server serves the model that it publishes. Returns the model's name.
    fn train(&self, digest: &str, component: &ComponentSource) -> Result<String, CliError> {
        let spec = run::task_spec(self.project, self.name, digest, component)?;
        self.output.print_note(&format!("no version is there yet: running task {}", self.name));
        let submitted = self.client.post("/api/v1/jobs", RequestBody::json(&spec));
        let JobDocument { name, .. } = submitted.map_err(|failure| {
            let lacks_data = failure.is(ErrorCode::NotFound) && self.lacks_dataset(&spec);
            let push = self.command_line("data push FOLDER --name NAME");
            if lacks_data {
                failure.with_hint(format!("`{push}` stores one, and the training then starts automatically"))
            } else {
                failure
            }
        })?;
        job_follow::follow_log(self.client, self.output, &name)?;
        let ended = job_follow::wait_until_over(self.client, self.output, &name)?;
        if ended.state != JobState::Succeeded.name() {
            let (state, why) = (&ended.state, &ended.message);
            return Err(CliError::invalid(format!("job {name} is {state}: {why}")).with_hint("fix it and save"));
        }
        run::wait_until_served(self.client, &ended, SERVE_TIME_MAX).map(|(model, _)| model)
    }

    /// Returns whether the job mounts a dataset version that the server does not have.
    fn lacks_dataset(&self, spec: &JobSpec) -> bool {
        let Some(known) = self.dataset_versions() else { return false };
        spec.data.iter().any(|mount| match &mount.source {
            DataSource::Dataset { name, version } => {
                !known.iter().any(|(known, number)| known == name && version.is_none_or(|version| version == *number))
            }
            DataSource::Output { .. } => false,
        })
    }

    /// Requests a prediction, and prints which version answers and how long the edit took.
    fn announce_first_answer(&self, edit: Option<(SourceEdit, u64)>) -> Result<(), CliError> {
        let Some(model) = &self.model else { return Ok(()) };
        let version = edit.as_ref().map(|(_, version)| *version);
        let first = first_answer::wait_for_first_answer(self.client, model, version, SERVE_TIME_MAX, POLL_INTERVAL)?;
        let url = self.client.url(&format!("/models/{model}/predict"));
        let Some((edit, _)) = edit else {
            self.output.print_note(&format!("{} answers at {url}", first.model_version));
            return Ok(());
        };
        let seconds = |time: Duration| (time.as_secs_f64() * 1000.0).round() / 1000.0;
        let (total, compiled) = (first.answered_at.duration_since(edit.saved_at), edit.build_time);
        let after = first.answered_at.duration_since(edit.built_at);
        if self.output.json {
            self.output.print_json_line(&FirstAnswerLine {
                answers: &first.model_version,
                edit_to_answer_seconds: seconds(total),
                build_seconds: seconds(compiled),
                after_build_seconds: seconds(after),
            });
        } else {
            self.output.print_line(&format!(
                "{} answers: edit to first new answer {:.2} s (build {:.2} s, then {:.2} s)",
                first.model_version,
                total.as_secs_f64(),
                compiled.as_secs_f64(),
                after.as_secs_f64()
            ));
        }
        if let Some(complaint) = first.complaint {
            self.output.print_note(&format!("  it rejects its own example: {complaint}"));
        }
        Ok(())
    }
}
