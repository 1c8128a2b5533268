//! `saggar run --mode notebook`: submits a notebook and prints its address.

use saggar_jobs::{JobSpec, NotebookSpec};
use saggar_project::{PROJECT_FILE, TaskMode};
use saggar_rest::jobs::JobDocument;
use serde_json::Map;

use super::spec::RunInputs;
use crate::args::RunArgs;
use crate::client::{ApiClient, RequestBody};
use crate::commands::{job_follow, notebook};
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::project::{self, ProjectContext};

/// The project of a notebook if nothing else names one.
const DEFAULT_PROJECT: &str = "notebook";

/// Submits the notebook, waits until it answers, and prints its address.
pub(super) fn run_notebook(args: &RunArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let spec = notebook_spec(args)?;
    let job: JobDocument = client.post("/api/v1/jobs", RequestBody::json(&spec))?;
    output.print_note(&format!("Submitted notebook {} to queue {}", job.name, job.queue));
    job_follow::detach_on_interrupt(job.name.clone());
    notebook::wait_and_print_address(&job.name, client, output)?;
    Ok(0)
}

/// Returns whether the task of the project file that the arguments name is a notebook.
///
/// # Errors
/// Fails if there is no such task, or if `--mode` contradicts it.
pub(super) fn is_notebook_task(args: &RunArgs) -> Result<bool, CliError> {
    let Some(name) = args.task.as_deref() else { return Ok(false) };
    let Some(project) = ProjectContext::for_task(Some(name))? else { return Ok(false) };
    let (_, task) = project.task(name)?;
    match (task.mode, args.mode) {
        (TaskMode::Notebook, None) => Ok(true),
        (TaskMode::Notebook, Some(_)) => {
            Err(CliError::invalid(format!("the task {name} of {PROJECT_FILE} is a notebook, which runs no plugin"))
                .with_hint("leave --mode out to start it"))
        }
        (TaskMode::Job | TaskMode::Serve, _) => Ok(false),
    }
}

/// Returns the specification: the data, secrets and limits of the task and the flags.
fn notebook_spec(args: &RunArgs) -> Result<JobSpec, CliError> {
    let unusable = [
        ("--estimate", args.estimate),
        ("--from-file", args.from_file.is_some()),
        ("--env", args.env.is_some()),
        ("--sha256", args.sha256.is_some()),
        ("--follow", args.follow),
        ("--wait", args.wait),
    ];
    if let Some((flag, _)) = unusable.into_iter().find(|(_, is_given)| *is_given) {
        return Err(CliError::invalid(format!("{flag} has no meaning for a notebook")));
    }
    if !args.parameters.is_empty() {
        return Err(CliError::invalid("a notebook has no parameters"));
    }
    let project = ProjectContext::for_task(args.task.as_deref())?;
    let user = project::user_config()?;
    let task = project.as_ref().zip(args.task.as_deref()).map(|(project, name)| project.task(name)).transpose()?;
    let named = args.plugin.as_deref().and_then(|plugin| plugin.file_stem()?.to_str()).unwrap_or(DEFAULT_PROJECT);
    let given = RunInputs { args, project: project.as_ref(), task, user: &user };
    let mut spec = given.build_spec(&"0".repeat(64), named)?;
    let mut notebook = NotebookSpec::default();
    if let Some(timeout) = args.idle_timeout.or(task.and_then(|(_, task)| task.idle_timeout)) {
        notebook.idle_timeout_seconds = timeout.as_secs_f64();
    }
    spec.notebook = Some(notebook);
    // What the task says about its training.
    (spec.plugin, spec.parameters, spec.device) = (String::new(), Map::new(), "cpu".to_owned());
    (spec.replicas, spec.hosts, spec.shards, spec.record) = (1, 1, None, false);
    if args.init_from.is_none() {
        spec.init_from = None;
    }
    spec.validate().map_err(|error| CliError::invalid(error.to_string()))?;
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_notebook_has_data_and_limits_but_no_plugin() {
        let args = RunArgs {
            plugin: Some("plugins/face_detector".into()),
            data: vec!["faces/2:/data".to_owned()],
            idle_timeout: Some(Duration::from_secs(90)),
            ..RunArgs::default()
        };
        let spec = notebook_spec(&args).unwrap();
        assert_eq!((spec.plugin.as_str(), spec.data.len()), ("", 1));
        assert_eq!(spec.notebook, Some(NotebookSpec { idle_timeout_seconds: 90.0 }));
        for (args, word) in [
            (RunArgs { parameters: vec!["epochs=3".to_owned()], ..RunArgs::default() }, "no parameters"),
            (RunArgs { init_from: Some("model:face@1".to_owned()), ..RunArgs::default() }, "init_from"),
            (RunArgs { data: vec!["faces:/usr".to_owned()], ..RunArgs::default() }, "mount point"),
            (RunArgs { estimate: true, ..RunArgs::default() }, "--estimate"),
        ] {
            let error = notebook_spec(&args).unwrap_err().message;
            assert!(error.contains(word), "{error}");
        }
    }
}
