//! The attempt of a job whose plugin is a step: collects the inputs, runs the step, and records the outputs that it
//! returned. Nothing is recorded unless every output is valid.

use std::collections::BTreeMap;
use std::io::Read;

use bytes::Bytes;
use saggar_plugin::limits::STEP_FILE_BYTES_MAX;
use saggar_plugin::{PluginDeclarations, PluginError, StepValue};
use saggar_project::{ParameterDeclaration, ParameterType};
use saggar_store::{Digest, ModelRegistry, StateDir};

use super::channel::EventChannel;
use super::lost_worker::data_failure;
use super::output_writer::OutputWriter;
use super::rights::JobRights;
use super::{AttemptFailure, WorkerAttempt};
use crate::protocol::AttemptConfig;
use crate::spec::{CheckpointSelector, DataSource, InitFrom, input_mount_point};
use crate::step_outputs::output_event;
use crate::storage_guard::StorageGuard;

/// The reason code of an attempt whose input cannot be read.
const BAD_INPUT: &str = "BAD_INPUT";

/// The declarations and the input files of a step.
pub(super) struct StepAttempt {
    declares: PluginDeclarations,
    files: BTreeMap<String, Vec<u8>>,
}

impl StepAttempt {
    /// Reads the step's declarations and the files that are its inputs.
    pub(super) fn open(
        attempt: &WorkerAttempt<'_>,
        wasm: &Bytes,
        home: &StateDir,
    ) -> Result<StepAttempt, AttemptFailure> {
        let declares = PluginDeclarations::from_component(wasm)?;
        let mut files = BTreeMap::new();
        for name in file_inputs(&declares) {
            let bytes = attempt.outage_retry().run(|| read_file_input(&attempt.start, name, home))?;
            files.insert(name.clone(), bytes);
        }
        Ok(StepAttempt { declares, files })
    }

    /// Returns whether a mount is a file, which is not opened as a dataset.
    pub(super) fn is_file(&self, mount: &str) -> bool {
        self.files.keys().any(|name| input_mount_point(name) == mount)
    }

    pub(super) fn outputs(&self) -> BTreeMap<String, ParameterDeclaration> {
        self.declares.outputs.clone()
    }

    /// Returns the value of every declared input.
    pub(super) fn take_inputs(&mut self, start: &AttemptConfig) -> Result<BTreeMap<String, StepValue>, AttemptFailure> {
        let mut inputs = BTreeMap::new();
        for (name, declared) in &self.declares.inputs {
            let value = match declared.kind {
                ParameterType::File => self.files.remove(name).map(StepValue::File),
                ParameterType::Dataset => Some(StepValue::Dataset(input_mount_point(name))),
                kind => start.spec.parameters.get(name).and_then(|value| StepValue::from_json(kind, value)),
            };
            let missing = || AttemptFailure::permanent(BAD_INPUT, format!("input `{name}`: expected {declared}"));
            inputs.insert(name.clone(), value.ok_or_else(missing)?);
        }
        Ok(inputs)
    }
}

fn file_inputs(declares: &PluginDeclarations) -> impl Iterator<Item = &String> {
    declares.inputs.iter().filter(|(_, declared)| declared.kind == ParameterType::File).map(|(name, _)| name)
}

fn read_file_input(start: &AttemptConfig, name: &str, home: &StateDir) -> Result<Vec<u8>, AttemptFailure> {
    let refuse = |reason: &str| AttemptFailure::permanent(BAD_INPUT, format!("input `{name}`: {reason}"));
    let failed = |error: std::io::Error| data_failure(BAD_INPUT, &error);
    let point = input_mount_point(name);
    let source = start.spec.data.iter().find(|mount| mount.mount == point).map(|mount| &mount.source);
    let Some(DataSource::Output { job, path: Some(path) }) = source else {
        return Err(refuse("no file of a job is mounted for it"));
    };
    let id = start.jobs.get(job).map_or(job.as_str(), String::as_str);
    let opened = home.job_files().open_output(id, path).map_err(failed)?;
    let missing = || refuse(&format!("job {job} wrote no file {path}; `saggar output ls {job}` lists its files"));
    let (file, bytes) = opened.ok_or_else(missing)?;
    if bytes > STEP_FILE_BYTES_MAX {
        let limit = format!("{path} of {job} has {bytes} bytes, and at most {STEP_FILE_BYTES_MAX} are accepted");
        return Err(refuse(&limit));
    }
    let mut content = Vec::new();
    file.take(STEP_FILE_BYTES_MAX).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}

/// Where the outputs of a step go.
pub(super) struct StepOutputWriter<'a> {
    channel: &'a EventChannel,
    files: OutputWriter,
    home: &'a StateDir,
    room: StorageGuard,
    models: ModelRegistry,
    rights: JobRights,
    /// The job's identifier.
    job: &'a str,
    /// The job's name.
    job_name: &'a str,
}

impl<'a> StepOutputWriter<'a> {
    /// Returns the writer of an attempt's outputs.
    pub(super) fn new(attempt: &'a WorkerAttempt<'_>, home: &'a StateDir, rights: JobRights) -> StepOutputWriter<'a> {
        StepOutputWriter {
            channel: attempt.channel,
            files: OutputWriter::new(&attempt.start, home, attempt.channel, &attempt.control),
            home,
            room: attempt.storage_guard(home),
            models: ModelRegistry::of_home(home, &attempt.locations.models),
            rights,
            job: &attempt.start.job,
            job_name: &attempt.start.name,
        }
    }

    /// Stores the files, and reports all outputs, once the references among them are checked.
    pub(super) fn write(mut self, outputs: BTreeMap<String, StepValue>) -> Result<(), AttemptFailure> {
        for (name, value) in &outputs {
            let checked = self.check_reference(value);
            checked.map_err(|(expected, given)| PluginError::StepOutput { name: name.clone(), expected, given })?;
        }
        let mut events = Vec::new();
        for (name, value) in &outputs {
            let digest = match value {
                StepValue::File(bytes) => Some(self.store_file(name, bytes)?),
                _ => None,
            };
            events.push(output_event(self.job_name, name, value, digest.as_deref()));
        }
        events.iter().for_each(|event| self.channel.send(event));
        Ok(())
    }

    /// Returns the digest of a file that is stored as an output of the job.
    fn store_file(&mut self, name: &str, bytes: &[u8]) -> Result<String, PluginError> {
        self.files.reserve(name, bytes, &mut self.room)?;
        self.files.write(name, bytes, || Ok(()))?;
        self.files.log(name, bytes);
        Ok(Digest::of(bytes).hex())
    }

    /// Checks that what an output refers to exists. Returns what was expected, and what was given.
    fn check_reference(&self, value: &StepValue) -> Result<(), (String, String)> {
        let refuse = |expected: &str, given: &str| Err((expected.to_owned(), format!("{given:?}")));
        match value {
            StepValue::Dataset(path) => {
                let files = self.home.job_files().list_outputs(self.job).unwrap_or_default();
                let is_there = |file: &str| {
                    file == path || file.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('/'))
                };
                if files.iter().any(|file| is_there(&file.path)) {
                    return Ok(());
                }
                refuse("the path of a file or folder that the step wrote with `write-output`", path)
            }
            StepValue::Model(version) => match format!("model:{version}").parse() {
                Ok(InitFrom::Model { model, version: Some(number) })
                    if self.rights.check_read_weights(&model).is_ok()
                        && self.models.manifest(&model, number).is_ok() =>
                {
                    Ok(())
                }
                _ => refuse("a published version of a model, such as digits@3", version),
            },
            StepValue::Checkpoint(checkpoint) => match checkpoint.parse() {
                Ok(InitFrom::Checkpoint { which: CheckpointSelector::Step(_), .. }) => Ok(()),
                _ => refuse("a checkpoint with its step, such as job:digits-7/checkpoint@1200", checkpoint),
            },
            StepValue::Integer(_)
            | StepValue::Number(_)
            | StepValue::Text(_)
            | StepValue::Boolean(_)
            | StepValue::File(_) => Ok(()),
        }
    }
}
