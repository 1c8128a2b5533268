//! `saggar run`: submits a job, and with `-f` or `--wait` follows it.

mod component;
mod estimate;
pub(crate) mod help;
pub(crate) mod layers;
mod notebook;
mod serve;
mod spec;
mod world;

use saggar_jobs::JobSpec;
use saggar_project::TaskSection;
use saggar_rest::jobs::JobDocument;
use saggar_rest::plugins::PluginListDocument;
use serde::Serialize;
use serde_json::{Map, Value};

pub(crate) use self::help::find_listed_plugin;
pub(crate) use component::{build_plugin, built_component, upload_component, upload_plugin};
pub(crate) use serve::wait_until_served;

use self::estimate::RunEstimate;
use super::job_follow::{self, describe_end, exit_code};
use crate::args::{RunArgs, RunMode};
use crate::client::{ApiClient, RequestBody};
use crate::component_source::ComponentSource;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::project::{self, ProjectContext};
use spec::RunInputs;

pub(crate) fn run(args: &RunArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    if help::is_help_wanted(args) {
        return help::show_plugin_help(args, client, output);
    }
    if args.mode == Some(RunMode::Notebook) || notebook::is_notebook_task(args)? {
        return notebook::run_notebook(args, client, output);
    }
    if args.idle_timeout.is_some() {
        return Err(CliError::invalid("--idle-timeout is for --mode notebook"));
    }
    let (spec, mode) = spec_and_mode(args, client, output)?;
    submit(args, mode, &spec, client, output)
}

/// Returns the specification that `saggar run` would submit, for a plugin that the server has.
///
/// # Errors
/// Returns the errors of `saggar run`.
pub(crate) fn job_spec_of_run(args: &RunArgs, client: &ApiClient, output: CliOutput) -> Result<JobSpec, CliError> {
    spec_and_mode(args, client, output).map(|(spec, _)| spec)
}

/// Returns the specification of a run without a server, and the component to run, which is built.
///
/// # Errors
/// Returns the errors of a run that is submitted.
pub(crate) fn local_run(args: &RunArgs, output: CliOutput) -> Result<(JobSpec, ComponentSource), CliError> {
    let project = ProjectContext::for_task(args.task.as_deref())?;
    let user = project::user_config()?;
    let task = project.as_ref().zip(args.task.as_deref()).map(|(project, name)| project.task(name)).transpose()?;
    let given = RunInputs { args, project: project.as_ref(), task, user: &user };
    let spec = given.build_spec(&"0".repeat(64), "bench")?;
    Ok((spec, plugin_component(&given, output)?))
}

/// Returns the specification and the purpose of a run. Builds and uploads the plugin.
fn spec_and_mode(args: &RunArgs, client: &ApiClient, output: CliOutput) -> Result<(JobSpec, RunMode), CliError> {
    let project = ProjectContext::for_task(args.task.as_deref())?;
    let user = project::user_config()?;
    let task = project.as_ref().zip(args.task.as_deref()).map(|(project, name)| project.task(name)).transpose()?;
    let given = RunInputs { args, project: project.as_ref(), task, user: &user };
    let world = args.env.as_deref().map(|world| world::find_world("--env", world)).transpose()?;
    let upload = |component: &ComponentSource| {
        world.as_ref().map(|world| world::check_exports("--env", world, component)).transpose()?;
        upload_plugin(client, component)
    };
    let spec = match &args.from_file {
        Some(file) => {
            let digest = args.plugin.as_deref().map(|path| component::named_component(path, args, output));
            let digest = digest.transpose()?.map(|path| upload(&path)).transpose()?;
            given.spec_from_file(file, digest.as_deref())?
        }
        None => {
            // Check the rest of the specification before anything is built.
            given.build_spec(&"0".repeat(64), "job")?;
            let component = plugin_component(&given, output)?;
            given.build_spec(&upload(&component)?, &component.name())?
        }
    };
    let mode = args.mode.unwrap_or_else(|| match task.map(|(_, task)| task.mode) {
        Some(saggar_project::TaskMode::Serve) => RunMode::Serve,
        Some(saggar_project::TaskMode::Notebook) => RunMode::Notebook,
        Some(saggar_project::TaskMode::Job) | None => RunMode::Job,
    });
    Ok((spec, mode))
}

/// Returns the specification that `saggar run --task NAME` would submit, for a component that the server has.
///
/// # Errors
/// Returns the errors of `saggar run`.
pub(crate) fn task_spec(
    project: &ProjectContext,
    name: &str,
    digest: &str,
    component: &ComponentSource,
) -> Result<JobSpec, CliError> {
    section_spec(project, project.task(name)?, digest, &component.name())
}

/// Like [`task_spec`], for a task that can differ from that of the project file.
///
/// # Errors
/// Returns the errors of `saggar run`.
pub(crate) fn section_spec(
    project: &ProjectContext,
    task: (&str, &TaskSection),
    digest: &str,
    component: &str,
) -> Result<JobSpec, CliError> {
    let user = project::user_config()?;
    let given = RunInputs { args: &RunArgs::default(), project: Some(project), task: Some(task), user: &user };
    given.build_spec(digest, component)
}

/// Returns the component of the selected plugin: the named one, the task's, or that of this directory.
fn plugin_component(given: &RunInputs<'_>, output: CliOutput) -> Result<ComponentSource, CliError> {
    match (&given.args.plugin, given.project, given.task) {
        (Some(path), _, _) => component::named_component(path, given.args, output),
        (None, Some(project), Some(task)) => build_plugin(project, ProjectContext::plugin_of_task(task)?, output, None),
        (None, _, _) => ComponentSource::find_or_build(".".as_ref(), output),
    }
}

fn submit(
    args: &RunArgs,
    mode: RunMode,
    spec: &JobSpec,
    client: &ApiClient,
    output: CliOutput,
) -> Result<i32, CliError> {
    let estimate = args.estimate.then(|| estimate::estimate_before_run(spec, client, output)).transpose()?;
    let job: JobDocument = client.post("/api/v1/jobs", RequestBody::json(spec))?;
    let name = job.name.clone();
    if mode == RunMode::Serve {
        return serve::wait_and_print_url(args, client, output, &name, estimate);
    }
    if args.follow || args.wait {
        return wait_and_report_with_estimate(client, output, &name, args.follow, estimate);
    }
    if output.json {
        output.print_json(&JobWithEstimate { job: &job, estimate });
    } else {
        output.print_line(&name);
        output.print_note(&format!("  state    {}{}", job.state, queue_position(&job)));
        if spec.preemptible && !output.quiet && !is_known_to_resume(client, &spec.plugin) {
            output.print_note(
                "  hint: this plugin is not known to resume after an interruption; `saggar plugins test` tests it",
            );
        }
        output.print_note(&format!("Next: saggar logs -f {name} | saggar status {name} | saggar stop {name}"));
    }
    Ok(0)
}

/// Returns whether a test showed that a plugin resumes after an interruption. Returns `true` if the server does not
/// answer, because the job is queued in any case.
fn is_known_to_resume(client: &ApiClient, plugin: &str) -> bool {
    let Ok(PluginListDocument { plugins }) = client.get("/api/v1/plugins") else { return true };
    plugins.iter().any(|it| it.plugin.digest == plugin && it.resume_test.is_some())
}

fn queue_position(job: &JobDocument) -> String {
    job.position.map_or_else(String::new, |position| format!("   position {position} in the queue"))
}

/// Follows or waits until the job is over, and returns the exit code of its result.
pub(crate) fn wait_and_report(
    client: &ApiClient,
    output: CliOutput,
    name: &str,
    follow: bool,
) -> Result<i32, CliError> {
    wait_and_report_with_estimate(client, output, name, follow, None)
}

/// Like [`wait_and_report`], but adds the estimate to the JSON output.
fn wait_and_report_with_estimate(
    client: &ApiClient,
    output: CliOutput,
    name: &str,
    follow: bool,
    estimate: Option<RunEstimate>,
) -> Result<i32, CliError> {
    let job = follow_or_wait(client, output, name, follow)?;
    let code = exit_code(&job);
    if code == 0 {
        serve::print_serving_status(client, output, &job);
    }
    if output.json {
        output.print_json_line(&JobWithEstimate { job: &job, estimate });
    } else {
        output.print_line(&describe_end(&job, name, output));
    }
    Ok(code)
}

/// A job as JSON, with the estimate if one was requested.
#[derive(Serialize)]
struct JobWithEstimate<'a> {
    #[serde(flatten)]
    job: &'a JobDocument,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<RunEstimate>,
}

/// Follows or waits until the job is over. Ctrl-C leaves the job running.
fn follow_or_wait(client: &ApiClient, output: CliOutput, name: &str, follow: bool) -> Result<JobDocument, CliError> {
    let JobDocument { id, queue, .. } = client.get(&format!("/api/v1/jobs/{name}"))?;
    output.print_note(&format!("Submitted job {name} ({id}) to queue {queue}"));
    job_follow::detach_on_interrupt(name.to_owned());
    if follow {
        job_follow::follow_log(client, output, name)?;
    }
    job_follow::wait_until_over(client, output, name)
}

/// Parses `epochs=3`, `--epochs 3` and `--epochs=3`. A value is JSON if it parses as JSON, else text.
pub(crate) fn parse_parameters(words: &[String]) -> Result<Map<String, Value>, CliError> {
    let mut parameters = Map::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let flag = word.strip_prefix("--");
        let (key, value) = match (flag.unwrap_or(word).split_once('='), flag) {
            (Some((key, value)), _) => (key.to_owned(), value.to_owned()),
            (None, Some(key)) => {
                let value = words.next().ok_or_else(|| CliError::invalid(format!("parameter --{key} has no value")))?;
                (key.to_owned(), value.clone())
            }
            (None, None) => {
                let hint = "parameters are written epochs=3 or --epochs 3";
                return Err(CliError::invalid(format!("{word:?} is not a parameter")).with_hint(hint));
            }
        };
        let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
        if parameters.insert(key.clone(), value).is_some() {
            return Err(CliError::invalid(format!("parameter {key} is given twice")));
        }
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_in_every_form() {
        let words = ["epochs=3", "--lr", "0.05", "--optimizer=adam"].map(str::to_owned);
        let read = parse_parameters(&words).unwrap();
        assert_eq!(Value::Object(read), serde_json::json!({"epochs": 3, "lr": 0.05, "optimizer": "adam"}));
        assert!(parse_parameters(&["epochs".to_owned()]).is_err());
        assert!(parse_parameters(&["--epochs".to_owned()]).is_err());
        assert!(parse_parameters(&["a=1".to_owned(), "a=2".to_owned()]).is_err());
    }
}
