//! Projects with pipelines, and their runs.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::{ServerProcess, guest};

/// A project's directory with a project file, in which commands run.
#[derive(Debug)]
pub struct PipelineProject(tempfile::TempDir);

impl PipelineProject {
    /// Returns a project with this file.
    pub fn new(manifest: &str) -> PipelineProject {
        let project = PipelineProject(tempfile::tempdir().expect("a directory can be created"));
        project.rewrite(manifest);
        project
    }

    /// Returns a project whose task `train` runs the guest `steady`.
    pub fn of_steady(pipelines: &str) -> PipelineProject {
        PipelineProject::new(&steady_manifest(pipelines))
    }

    /// Replaces the project file.
    pub fn rewrite(&self, manifest: &str) {
        std::fs::write(self.path().join("saggar.toml"), manifest).expect("the project file can be written");
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs a command.
    pub fn saggar(&self, server: &ServerProcess, arguments: &[&str]) -> Output {
        server.command(arguments).current_dir(self.path()).output().expect("the binary starts")
    }

    /// Runs a command that succeeds, and returns its output.
    pub fn saggar_ok(&self, server: &ServerProcess, arguments: &[&str]) -> String {
        check_success(arguments, &self.saggar(server, arguments))
    }

    /// Checks that a command fails with this exit code, and that its errors contain these words.
    pub fn check_refusal(&self, server: &ServerProcess, arguments: &[&str], code: i32, words: &str) {
        let output = self.saggar(server, arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {words}: {errors}");
    }
}

/// Returns a project file whose task `train` runs the guest `steady`.
pub fn steady_manifest(pipelines: &str) -> String {
    let plugin = guest("steady");
    format!(
        "manifest = 1\n[project]\nname = \"steady\"\n[project.defaults]\ndevice = \"cpu\"\n\
         checkpoint = {{ every = \"5steps\" }}\n[plugin.steady]\nsource = {plugin:?}\n\
         [task.train]\nplugin = \"steady\"\n{pipelines}"
    )
}

/// Returns the output of a command, which must have succeeded.
pub fn check_success(arguments: &[&str], output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "saggar {arguments:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout.clone()).expect("output is text")
}

/// Returns a pipeline run.
pub fn run_of(server: &ServerProcess, name: &str) -> Value {
    server.get(&format!("/api/v1/pipeline-runs/{name}"))
}

/// Waits until the run is over.
pub fn wait_for_run(server: &ServerProcess, name: &str) -> Value {
    server.wait_for(name, |server| {
        let run = run_of(server, name);
        (run["state"] != "RUNNING").then_some(run)
    })
}

/// Returns the newest attempt of a step's item.
pub fn attempt<'a>(run: &'a Value, step: &str, item: u64) -> &'a Value {
    let steps = run["steps"].as_array().expect("a run has steps");
    let step = steps.iter().find(|it| it["name"] == step).unwrap_or_else(|| panic!("no step {step}: {run}"));
    let attempts = step["attempts"].as_array().expect("a step has attempts");
    attempts.iter().rev().find(|it| it["item"] == item).unwrap_or_else(|| panic!("no item {item}: {run}"))
}

/// Returns the job of a step.
pub fn job_of(run: &Value, step: &str) -> String {
    attempt(run, step, 0)["job"].as_str().unwrap_or_else(|| panic!("{step} has no job: {run}")).to_owned()
}

/// Waits until a step's job is known.
pub fn wait_for_job_of(server: &ServerProcess, run: &str, step: &str) -> String {
    server
        .wait_for("the step's job", |server| attempt(&run_of(server, run), step, 0)["job"].as_str().map(str::to_owned))
}
