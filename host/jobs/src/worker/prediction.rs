//! A prediction job's attempt: the model answers for the dataset's items in order, and what it answers is an output of the
//! job, one array for each of the model's outputs. An attempt that is cut off leaves what it has; the next one goes on
//! after it, since the same version answers the same.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use saggar_device::{Backend, Meter};
use saggar_plugin::{Host, LoadedModel, ModelLimits, ModelParts, ModelPort, NamedBytes, Outcome, PluginError, Terms};
use saggar_store::checkpoint::{SavedVariable, VariableKind};
use saggar_store::models::{read_weights, weights_file};
use saggar_store::{Clock, Dataset, Datasets, Home, Models, SystemClock, outputs};
use saggar_tensor::Descriptor;

use super::Failure;
use super::channel::{Channel, Control};
use super::checkpoint_timer::CheckpointTimer;
use super::spending::Spending;
use crate::limits::{PREDICTION_BATCH_TIME_MAX, PREDICTIONS_BYTES_MAX};
use crate::protocol::{Event, Start};
use crate::room::Room;
use crate::spec::Prediction;

/// The output that has the answers: safetensors, an array for each output, items along the first axis.
const ANSWERS: &str = "predictions.safetensors";

/// What an attempt is made of.
pub(super) struct Parts<'a> {
    pub(super) start: &'a Start,
    pub(super) prediction: &'a Prediction,
    pub(super) channel: &'a Channel,
    pub(super) control: &'a Control,
    pub(super) home: Home,
    pub(super) room: Room,
    pub(super) models: Models,
    pub(super) dataset: Arc<Dataset>,
    pub(super) spending: Arc<Spending>,
}

impl Parts<'_> {
    /// Brings the model up and has it answer.
    pub(super) fn predict(mut self, host: &Host, device: Arc<dyn Backend>, meter: Meter) -> Result<Outcome, Failure> {
        let model = self.model(host, device, meter)?;
        let items = self.dataset.items(self.prediction.split.as_deref());
        let items = items.map_err(|error| Failure::broken("BAD_DATASET", error))?;
        let count = items.end - items.start;
        let inputs = self.inputs(&model)?;
        let mut answers = Answers::new(&model, count)?;
        answers.go_on_with(&self.home, &self.start.job);
        let (model_name, dataset) = (&self.prediction.model, &self.start.spec.data[0].source);
        self.log(format!("{model_name}@{} answers for {count} items of {dataset}", self.version()));
        if answers.done > 0 {
            self.channel.send(&Event::Resumed { step: answers.done });
        }
        let is_whole = self.answer(&model, &inputs, items, &mut answers)?;
        self.keep(&answers)?;
        if !is_whole {
            return Ok(Outcome::Stopped);
        }
        self.hand_over()?;
        Ok(Outcome::Finished)
    }

    fn model(&self, host: &Host, device: Arc<dyn Backend>, meter: Meter) -> Result<LoadedModel, Failure> {
        let no_model = |error: saggar_store::ModelError| Failure::broken("NO_MODEL", error);
        let (files, variables) = self.models.open(&self.prediction.model, self.prediction.version).map_err(no_model)?;
        let plugin = host.compile(&files.load_plugin().map_err(no_model)?)?;
        let memory_bytes = self.start.spec.memory_bytes.unwrap_or(ModelLimits::default().memory_bytes);
        let parts = ModelParts {
            plugin,
            variables,
            config: files.manifest.config,
            weights_meter: meter.clone(),
            meter,
            limits: ModelLimits { memory_bytes, instances_max: 1, ..ModelLimits::default() },
            started: None,
        };
        Ok(LoadedModel::load(host, parts, device)?)
    }

    fn version(&self) -> u64 {
        self.prediction.version.unwrap_or(0)
    }

    /// The model's inputs: a field of the dataset each, or a default.
    fn inputs(&self, model: &LoadedModel) -> Result<Vec<(ModelPort, bool)>, Failure> {
        let input = |port: &ModelPort| {
            let refuse = |what: String| Failure::broken("BAD_DATASET", format!("input `{}` {what}", port.name));
            match self.dataset.field(&port.name) {
                Ok(field) if field.item == port.item => Ok((port.clone(), true)),
                Ok(field) => Err(refuse(format!("takes {}, and the dataset's field is {}", port.item, field.item))),
                Err(_) if port.default.is_some() => Ok((port.clone(), false)),
                Err(error) => Err(refuse(format!("is no field of the dataset: {error}"))),
            }
        };
        model.signature().inputs.iter().map(input).collect()
    }

    /// Answers for the items that are left. False where it was told to stop before the last one.
    fn answer(
        &mut self,
        model: &LoadedModel,
        inputs: &[(ModelPort, bool)],
        items: Range<u64>,
        answers: &mut Answers,
    ) -> Result<bool, Failure> {
        let size = model.signature().batch_sizes.last().copied().unwrap_or(1) as u64;
        let mut timer = CheckpointTimer::new(self.start.spec.checkpoint_every);
        timer.resume_at(answers.done);
        while answers.done < answers.count {
            let first = items.start + answers.done;
            let batch: Vec<u64> = (first..items.end.min(first + size)).collect();
            let began = Instant::now();
            let given = inputs.iter().map(|(port, is_field)| self.given(port, *is_field, &batch));
            let given = given.collect::<Result<Vec<NamedBytes>, Failure>>()?;
            self.spending.drawn(batch.len() as u64, began.elapsed());
            answers.take(model.predict(given, &Terms::within(PREDICTION_BATCH_TIME_MAX))?, batch.len())?;
            self.channel.send(&Event::Progress { step: answers.done, of: answers.count });
            if self.control.stop.load(Ordering::Acquire) {
                return Ok(answers.done == answers.count);
            }
            let asked = self.control.checkpoint.swap(false, Ordering::AcqRel);
            let began = Instant::now();
            if timer.is_due(began, answers.done, asked) {
                self.keep(answers)?;
                timer.saved(began, Instant::now(), answers.done);
            }
        }
        Ok(true)
    }

    fn given(&self, port: &ModelPort, is_field: bool, items: &[u64]) -> Result<NamedBytes, Failure> {
        let bytes = match port.default_item().filter(|_| !is_field) {
            Some(item) => item.repeat(items.len()),
            None => {
                let read = self.dataset.view(&port.name, items);
                read.map_err(|error| Failure::broken("BAD_DATASET", error))?.into_owned()
            }
        };
        Ok((port.name.clone(), port.batch(items.len())?, bytes))
    }

    /// Keeps the answers so far, in the place of those before.
    fn keep(&mut self, answers: &Answers) -> Result<(), Failure> {
        if answers.done == 0 {
            return Ok(());
        }
        let file = answers.file()?;
        let lost = |error: &dyn std::fmt::Display| PluginError::job(format!("output `{ANSWERS}`: {error}"));
        self.room.take(file.len() as u64).map_err(|error| lost(&error))?;
        self.home.write_output(&self.start.job, ANSWERS, &file).map_err(|error| lost(&error))?;
        Ok(())
    }

    /// Makes the answers a version of the dataset that was asked for. The same again makes no second one.
    fn hand_over(&mut self) -> Result<(), Failure> {
        let Some(name) = &self.prediction.out else { return Ok(()) };
        let datasets = Datasets::new(self.home.datasets());
        let room = RefCell::new(&mut self.room);
        let take = |bytes| room.borrow_mut().take(bytes);
        let made = datasets.ingest_output(name, &self.home, &self.start.job, Some(ANSWERS), SystemClock.now_ms(), take);
        let made = made.map_err(|error| PluginError::job(format!("dataset `{name}`: {error}")))?;
        self.log(format!("the answers are dataset {}/{}", made.name, made.version));
        Ok(())
    }

    fn log(&self, line: String) {
        self.channel.send(&Event::Log { level: "info".to_owned(), line });
    }
}

/// The answers so far.
struct Answers {
    /// Each output's name, one item of it, and what there is of it.
    outputs: Vec<(String, Descriptor, Vec<u8>)>,
    /// Items that are answered for.
    done: u64,
    /// Items in all.
    count: u64,
}

impl Answers {
    fn new(model: &LoadedModel, count: u64) -> Result<Answers, Failure> {
        let outputs: Vec<_> =
            model.signature().outputs.iter().map(|port| (port.name.clone(), port.item.clone())).collect();
        let item: u64 = outputs.iter().map(|(_, item)| item.bytes() as u64).sum();
        if item.saturating_mul(count) > PREDICTIONS_BYTES_MAX {
            let message = format!(
                "{count} answers of {item} bytes are more than {PREDICTIONS_BYTES_MAX} together; predict a part of the \
                 dataset (`split`) at a time"
            );
            return Err(Failure::broken("TOO_LARGE", message));
        }
        let outputs = outputs.into_iter().map(|(name, item)| (name, item, Vec::new())).collect();
        Ok(Answers { outputs, done: 0, count })
    }

    /// Takes over what an attempt before this one kept; nothing where it kept none, or something else.
    fn go_on_with(&mut self, home: &Home, job: &str) {
        let Ok(Some((mut file, _))) = outputs::open(&home.job(job), ANSWERS) else { return };
        let mut bytes = Vec::new();
        if std::io::Read::read_to_end(&mut file, &mut bytes).is_err() {
            return;
        }
        let Ok(kept) = read_weights(&Bytes::from(bytes), &[]) else { return };
        let items = |it: &SavedVariable| it.descriptor.shape.dims().first().copied().unwrap_or(0) as u64;
        let Some(done) = kept.first().map(items).filter(|done| *done <= self.count) else { return };
        let of = |(name, item, _): &(String, Descriptor, Vec<u8>)| {
            let found = kept.iter().find(|it| it.name == *name && items(it) == done)?;
            (found.bytes.len() as u64 == done * item.bytes() as u64).then(|| found.bytes.to_vec())
        };
        let Some(all) = self.outputs.iter().map(of).collect::<Option<Vec<_>>>() else { return };
        self.outputs.iter_mut().zip(all).for_each(|(output, bytes)| output.2 = bytes);
        self.done = done;
    }

    /// Adds the answers for so many items.
    fn take(&mut self, answers: Vec<NamedBytes>, items: usize) -> Result<(), Failure> {
        for (name, item, bytes) in &mut self.outputs {
            let answer = answers.iter().find(|(of, _, answer)| of == name && answer.len() == items * item.bytes());
            let (.., answer) =
                answer.ok_or_else(|| PluginError::job(format!("the model gave no `{name}` for a batch")))?;
            bytes.extend_from_slice(answer);
        }
        self.done += items as u64;
        Ok(())
    }

    fn file(&self) -> Result<Vec<u8>, Failure> {
        let array = |(name, item, bytes): &(String, Descriptor, Vec<u8>)| {
            let dims = [&[self.done as usize], item.shape.dims()].concat();
            let shape = saggar_tensor::Shape::new(dims);
            let shape = shape.map_err(|error| Failure::broken("TOO_LARGE", format!("output `{name}`: {error}")))?;
            let (descriptor, bytes) = (Descriptor::new(item.dtype, shape), Bytes::copy_from_slice(bytes));
            Ok(SavedVariable { name: name.clone(), kind: VariableKind::Parameter, descriptor, bytes })
        };
        let arrays = self.outputs.iter().map(array).collect::<Result<Vec<_>, Failure>>()?;
        weights_file(&arrays).map_err(|error| Failure::broken("BAD_OUTPUT", error))
    }
}
