//! The attempt of a prediction job: the model answers for the dataset's items in order, and the answers become an
//! output of the job, one array per model output. A killed attempt leaves its answers, and the next attempt continues
//! after them, because the same version gives the same answers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use saggar_clock::{Clock, SystemClock};
use saggar_device::{Backend, Meter};
use saggar_plugin::{
    FailureReason, LoadedModel, ModelLimits, ModelParts, ModelPort, NamedTensor, PluginEngine, PluginError,
    PredictionOptions, TrainOutcome,
};
use saggar_store::checkpoint::{SavedVariable, VariableKind};
use saggar_store::models::{ModelManifest, encode_tensors, read_weights};
use saggar_store::{ColumnarDataset, DatasetStore, ModelRegistry, StateDir};
use saggar_tensor::Descriptor;

use super::AttemptFailure;
use super::channel::{EventChannel, WorkerControl};
use super::checkpoint_timer::CheckpointTimer;
use super::lost_worker::{data_failure, storage_error};
use super::metering::UsageCounters;
use super::output_writer::OutputWriter;
use super::rights::JobRights;
use super::store_outage::OutageRetry;
use super::write_fence::WriteFence;
use crate::limits::{PREDICTION_BATCH_TIME_MAX, PREDICTIONS_BYTES_MAX};
use crate::protocol::{AttemptConfig, WorkerEvent};
use crate::spec::PredictionSpec;
use crate::storage_guard::StorageGuard;

/// The output file of the answers: safetensors, one array per model output, items along the first axis.
const PREDICTIONS_FILE: &str = "predictions.safetensors";

/// The inputs of an attempt.
pub(super) struct PredictionAttempt<'a> {
    pub(super) start: &'a AttemptConfig,
    pub(super) prediction: &'a PredictionSpec,
    pub(super) channel: &'a EventChannel,
    pub(super) control: &'a Arc<WorkerControl>,
    pub(super) home: StateDir,
    pub(super) room: StorageGuard,
    pub(super) models: ModelRegistry,
    pub(super) rights: JobRights,
    pub(super) dataset: Arc<ColumnarDataset>,
    pub(super) spending: Arc<UsageCounters>,
}

impl PredictionAttempt<'_> {
    /// Loads the model and predicts.
    pub(super) fn predict(
        mut self,
        host: &PluginEngine,
        device: Arc<dyn Backend>,
        meter: Meter,
    ) -> Result<TrainOutcome, AttemptFailure> {
        let device_name = device.info().name.clone();
        let (model, manifest) = self.load_model(host, device, meter)?;
        let origin = self.origin(&manifest, &device_name);
        let items = self.dataset.items(self.prediction.split.as_deref());
        let items = items.map_err(|error| AttemptFailure::permanent("BAD_DATASET", error))?;
        let count = items.end - items.start;
        let inputs = self.input_ports(&model)?;
        let mut answers = PredictionOutputs::new(&model, count, origin)?;
        answers.resume_from_output(&self.home, &self.start.job);
        let (model_name, dataset) = (&self.prediction.model, &self.start.spec.data[0].source);
        self.log(format!("{model_name}@{} answers for {count} items of {dataset}", self.version()));
        if answers.done > 0 {
            self.channel.send(&WorkerEvent::Resumed { step: answers.done });
        }
        let is_whole = self.predict_items(&model, &inputs, items, &mut answers)?;
        self.save_outputs(&answers)?;
        if !is_whole {
            return Ok(TrainOutcome::Stopped);
        }
        self.ingest_as_dataset()?;
        Ok(TrainOutcome::Finished)
    }

    fn load_model(
        &self,
        host: &PluginEngine,
        device: Arc<dyn Backend>,
        meter: Meter,
    ) -> Result<(LoadedModel, ModelManifest), AttemptFailure> {
        let no_model = |error: saggar_store::ModelError| data_failure("NO_MODEL", &error);
        let open = || self.models.open(&self.prediction.model, self.prediction.version).map_err(no_model);
        let (files, variables) = OutageRetry::new(self.channel, self.control).run(open)?;
        let plugin = host.compile(&files.load_plugin().map_err(no_model)?)?;
        let memory_bytes = self.start.spec.memory_bytes.unwrap_or(ModelLimits::default().memory_bytes);
        let parts = ModelParts {
            plugin,
            variables,
            config: files.manifest.config.clone(),
            inputs: files.manifest.inputs.clone(),
            weights_meter: meter.clone(),
            meter,
            limits: ModelLimits { memory_bytes, instances_max: 1, ..ModelLimits::default() },
            on_instance_start: None,
        };
        Ok((LoadedModel::load(host, parts, device)?, files.manifest))
    }

    /// Returns what computes the answers, for the file that contains them. The job is not in it: the same model on the same
    /// device gives the same bytes.
    fn origin(&self, manifest: &ModelManifest, device: &str) -> BTreeMap<String, String> {
        let model = format!("{}@{}", self.prediction.model, self.version());
        let facts = [
            ("model", model),
            ("plugin", format!("sha256:{}", manifest.plugin)),
            ("weights", format!("sha256:{}", manifest.weights)),
            ("device", device.to_owned()),
        ];
        facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn version(&self) -> u64 {
        self.prediction.version.unwrap_or(0)
    }

    /// Returns the model's inputs, each with whether it is a field of the dataset; the others use their defaults.
    fn input_ports(&self, model: &LoadedModel) -> Result<Vec<(ModelPort, bool)>, AttemptFailure> {
        let input = |port: &ModelPort| {
            let refuse =
                |what: String| AttemptFailure::permanent("BAD_DATASET", format!("input `{}` {what}", port.name));
            match self.dataset.field(&port.name) {
                Ok(field) if field.item == port.item => Ok((port.clone(), true)),
                Ok(field) => Err(refuse(format!("takes {}, and the dataset's field is {}", port.item, field.item))),
                Err(_) if port.default.is_some() => Ok((port.clone(), false)),
                Err(error) => Err(refuse(format!("is not a field of the dataset: {error}"))),
            }
        };
        model.signature().inputs.iter().map(input).collect()
    }

    /// Predicts the remaining items. Returns `false` if it was stopped before the last one.
    fn predict_items(
        &mut self,
        model: &LoadedModel,
        inputs: &[(ModelPort, bool)],
        items: Range<u64>,
        answers: &mut PredictionOutputs,
    ) -> Result<bool, AttemptFailure> {
        let size = model.signature().batch_sizes.last().copied().unwrap_or(1) as u64;
        let mut timer = CheckpointTimer::new(self.start.spec.checkpoint_every);
        timer.resume_at(answers.done);
        while answers.done < answers.count {
            let first = items.start + answers.done;
            let batch: Vec<u64> = (first..items.end.min(first + size)).collect();
            let began = Instant::now();
            let given = inputs.iter().map(|(port, is_field)| self.input_batch(port, *is_field, &batch));
            let given = given.collect::<Result<Vec<NamedTensor>, AttemptFailure>>()?;
            self.spending.add_samples(batch.len() as u64, began.elapsed());
            answers.append_batch(
                model.predict(given, &PredictionOptions::with_deadline(PREDICTION_BATCH_TIME_MAX))?,
                batch.len(),
            )?;
            self.channel.send(&WorkerEvent::Progress { step: answers.done, of: answers.count });
            if self.control.stop.load(Ordering::Acquire) {
                return Ok(answers.done == answers.count);
            }
            let asked = self.control.checkpoint.swap(false, Ordering::AcqRel);
            let began = Instant::now();
            if timer.is_due(began, answers.done, asked) {
                self.save_outputs(answers)?;
                timer.record_saved(began, Instant::now(), answers.done);
            }
        }
        Ok(true)
    }

    fn input_batch(&self, port: &ModelPort, is_field: bool, items: &[u64]) -> Result<NamedTensor, AttemptFailure> {
        let bytes = match port.default_item().filter(|_| !is_field) {
            Some(item) => item.repeat(items.len()),
            None => {
                let read = self.dataset.view(&port.name, items);
                read.map_err(|error| AttemptFailure::permanent("BAD_DATASET", error))?.into_owned()
            }
        };
        Ok(NamedTensor { name: port.name.clone(), descriptor: port.batch_descriptor(items.len())?, bytes })
    }

    /// Stores the answers so far, replacing the previous ones.
    fn save_outputs(&mut self, answers: &PredictionOutputs) -> Result<(), AttemptFailure> {
        if answers.done == 0 {
            return Ok(());
        }
        let file = answers.to_safetensors()?;
        let writer = OutputWriter::new(self.start, &self.home, self.channel, self.control);
        writer.reserve(PREDICTIONS_FILE, &file, &mut self.room)?;
        Ok(writer.write(PREDICTIONS_FILE, &file, || Ok(()))?)
    }

    /// Stores the answers as a version of the requested dataset. Identical content creates no second version.
    fn ingest_as_dataset(&mut self) -> Result<(), AttemptFailure> {
        let Some(name) = &self.prediction.out else { return Ok(()) };
        let denied = |error| AttemptFailure::permanent("FORBIDDEN", format!("dataset `{name}`: {error}"));
        self.rights.claim_dataset(name).map_err(denied)?;
        let (datasets, retry) = (DatasetStore::of_home(&self.home), OutageRetry::new(self.channel, self.control));
        let room = RefCell::new(&mut self.room);
        let take = |bytes| room.borrow_mut().reserve(bytes);
        let now_ms = SystemClock.now_ms();
        let (job, file) = (&self.start.job, Some(PREDICTIONS_FILE));
        // Identical content makes no second version, also if it is repeated.
        let fence = WriteFence::new(self.start, self.channel, self.control);
        let ingest = || {
            fence.wait();
            let made = datasets.ingest_output(name, &self.home, job, file, now_ms, take);
            made.map_err(|error| storage_error(&error, format!("dataset `{name}`: {error}")))
        };
        let made = retry.run(ingest).inspect_err(|_| {
            self.rights.release_dataset(name);
        })?;
        self.log(format!("the answers are dataset {}/{}", made.name, made.version));
        Ok(())
    }

    fn log(&self, line: String) {
        self.channel.send(&WorkerEvent::Log { level: "info".to_owned(), line });
    }
}

/// The answers so far.
struct PredictionOutputs {
    /// Each output's name, the descriptor of one item, and its bytes so far.
    outputs: Vec<(String, Descriptor, Vec<u8>)>,
    /// The number of answered items.
    done: u64,
    /// The total number of items.
    count: u64,
    /// What computes the answers: the metadata of the file.
    origin: BTreeMap<String, String>,
}

impl PredictionOutputs {
    fn new(
        model: &LoadedModel,
        count: u64,
        origin: BTreeMap<String, String>,
    ) -> Result<PredictionOutputs, AttemptFailure> {
        let outputs: Vec<_> =
            model.signature().outputs.iter().map(|port| (port.name.clone(), port.item.clone())).collect();
        let item: u64 = outputs.iter().map(|(_, item)| item.bytes() as u64).sum();
        if item.saturating_mul(count) > PREDICTIONS_BYTES_MAX {
            let message = format!(
                "{count} answers of {item} bytes are more than {PREDICTIONS_BYTES_MAX} together; predict a part of the \
                 dataset (`split`) at a time"
            );
            return Err(AttemptFailure::permanent("TOO_LARGE", message));
        }
        let outputs = outputs.into_iter().map(|(name, item)| (name, item, Vec::new())).collect();
        Ok(PredictionOutputs { outputs, done: 0, count, origin })
    }

    /// Loads the answers of an earlier attempt. Loads nothing if there is no such output or it does not match.
    fn resume_from_output(&mut self, home: &StateDir, job: &str) {
        let Ok(Some((mut file, _))) = home.job_files().open_output(job, PREDICTIONS_FILE) else { return };
        let mut bytes = Vec::new();
        if std::io::Read::read_to_end(&mut file, &mut bytes).is_err() {
            return;
        }
        let Ok(weights) = read_weights(&Bytes::from(bytes), &[]) else { return };
        let items = |it: &SavedVariable| it.descriptor.shape.dims().first().copied().unwrap_or(0) as u64;
        let Some(done) = weights.first().map(items).filter(|done| *done <= self.count) else { return };
        let of = |(name, item, _): &(String, Descriptor, Vec<u8>)| {
            let found = weights.iter().find(|it| it.name == *name && items(it) == done)?;
            (found.bytes.len() as u64 == done * item.bytes() as u64).then(|| found.bytes.to_vec())
        };
        let Some(all) = self.outputs.iter().map(of).collect::<Option<Vec<_>>>() else { return };
        self.outputs.iter_mut().zip(all).for_each(|(output, bytes)| output.2 = bytes);
        self.done = done;
    }

    /// Appends the answers of `items` items.
    fn append_batch(&mut self, answers: Vec<NamedTensor>, items: usize) -> Result<(), AttemptFailure> {
        for (name, item, bytes) in &mut self.outputs {
            let answer = answers.iter().find(|it| it.name == *name && it.bytes.len() == items * item.bytes());
            let answer = answer.ok_or_else(|| PluginError::job(format!("the model gave no `{name}` for a batch")))?;
            bytes.extend_from_slice(&answer.bytes);
        }
        self.done += items as u64;
        Ok(())
    }

    fn to_safetensors(&self) -> Result<Vec<u8>, AttemptFailure> {
        let array = |(name, item, bytes): &(String, Descriptor, Vec<u8>)| {
            let dims = [&[self.done as usize], item.shape.dims()].concat();
            let shape = saggar_tensor::Shape::new(dims);
            let shape =
                shape.map_err(|error| AttemptFailure::permanent("TOO_LARGE", format!("output `{name}`: {error}")))?;
            let (descriptor, bytes) = (Descriptor::new(item.dtype, shape), Bytes::copy_from_slice(bytes));
            Ok(SavedVariable { name: name.clone(), kind: VariableKind::Parameter, descriptor, bytes })
        };
        let arrays = self.outputs.iter().map(array).collect::<Result<Vec<_>, AttemptFailure>>()?;
        encode_tensors(&arrays, &self.origin)
            .map_err(|error| AttemptFailure::permanent(FailureReason::BadOutput.as_str(), error))
    }
}
