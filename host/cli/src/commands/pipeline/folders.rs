//! The folders of the project that data steps of a pipeline push.

use std::collections::BTreeMap;
use std::path::Path;

use saggar_project::{ExpandedStep, PipelinePlan, PipelineStep, StepFolder, StepKind, StepSource};
use saggar_rest::datasets::DatasetDocument;

use crate::client::ApiClient;
use crate::commands::data::push::{self, SentFiles};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::project::ProjectContext;

/// The files of the folders of a pipeline, by folder and dataset. Nothing was sent yet.
#[derive(Default)]
pub(super) struct PipelineFolders(BTreeMap<(String, String), SentFiles>);

impl PipelineFolders {
    /// Reads which files the data steps of a pipeline push.
    ///
    /// # Errors
    /// A folder is missing, empty, or outside the project's directory; it is over the limits of a dataset.
    pub(super) fn read(project: &ProjectContext, steps: &[ExpandedStep]) -> Result<PipelineFolders, CliError> {
        let mut folders = PipelineFolders::default();
        for step in steps.iter().map(|expanded| &expanded.step) {
            if let Some(key) = pushed_folder(step)
                && !folders.0.contains_key(&key)
            {
                let files = read_folder(&project.root, &key.0)
                    .map_err(|error| CliError { message: format!("step {}: {}", step.name, error.message), ..error })?;
                folders.0.insert(key, files);
            }
        }
        Ok(folders)
    }

    /// Pushes the folders, and replaces them in the steps by the versions that they are.
    ///
    /// # Errors
    /// The server's errors; a file cannot be read.
    pub(super) fn push(
        &self,
        steps: &mut [PipelineStep],
        client: &ApiClient,
        output: CliOutput,
    ) -> Result<(), CliError> {
        let mut pushed: BTreeMap<(String, String), DatasetDocument> = BTreeMap::new();
        for (key, files) in &self.0 {
            let stored = push::send_files(files, &key.1, client, output)?;
            output.print_note(&format!("{} is {}/{}", key.0, stored.name, stored.version));
            pushed.insert(key.clone(), stored);
        }
        for step in steps {
            if let Some(stored) = pushed_folder(step).and_then(|key| pushed.get(&key)) {
                step.from = Some(StepSource::Reference(format!("{}/{}", stored.name, stored.version)));
            }
        }
        Ok(())
    }
}

/// Replaces the folders in steps by a version of the right type, for a check without a server.
pub(super) fn replace_by_samples(steps: &mut [PipelineStep]) {
    for step in steps {
        if let Some((_, dataset)) = pushed_folder(step) {
            step.from = Some(StepSource::Reference(format!("{dataset}/1")));
        }
    }
}

/// Returns the versions that data steps of a plan name.
pub(super) fn named_versions(plan: &PipelinePlan) -> Vec<&str> {
    let steps = plan.steps.iter().filter(|step| step.kind == StepKind::Data);
    steps
        .filter_map(PipelineStep::from_reference)
        .filter(|from| !from.starts_with("job:") && !from.contains("${"))
        .collect()
}

/// Returns the folder and the dataset of a step that pushes a folder.
fn pushed_folder(step: &PipelineStep) -> Option<(String, String)> {
    match &step.from {
        Some(StepSource::Folder(StepFolder { folder })) => Some((folder.clone(), step.dataset.clone()?)),
        Some(StepSource::Reference(_) | StepSource::Fetch(_)) | None => None,
    }
}

fn read_folder(root: &Path, folder: &str) -> Result<SentFiles, CliError> {
    let path = root.join(folder);
    let unreadable = |error: std::io::Error| {
        CliError::new(exit::NOT_FOUND, "unreadable", format!("folder {}: {error}", path.display()))
            .with_hint("the folder is relative to the project file")
    };
    let real = path.canonicalize().map_err(unreadable)?;
    if !real.starts_with(root.canonicalize().map_err(unreadable)?) {
        let message = format!("folder {} is {}, outside the project's directory", path.display(), real.display());
        return Err(CliError::invalid(message).with_hint("move it there, or push it with `saggar data push`"));
    }
    if !real.is_dir() {
        return Err(CliError::invalid(format!("{} is no folder", path.display()))
            .with_hint("`saggar data push` pushes a single file; name its version in from"));
    }
    push::read_folder(&path)
}
