//! What the plugin's training may ask of its job, answered in the worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use saggar_plugin::{Beginning, JobContext, LogLevel, OpenedModel, PluginError, Shards};
use saggar_store::limits::CHECKPOINT_METRICS_MAX;
use saggar_store::{
    Checkpoint, CheckpointError, Checkpoints, Clock, Home, ModelError, Models, ProjectsError, Publication, Retention,
    SavedVariable, SystemClock, digest_of_variables,
};

use super::beginning;
use super::channel::{Channel, Control};
use super::checkpoint_timer::CheckpointTimer;
use super::finite::Finite;
use super::ranks;
use super::rights::JobRights;
use super::spending::Spending;
use super::words::Words;
use crate::protocol::{Event, Start};
use crate::room::Room;
use crate::spec::{NonFinite, Precision};

/// What a context is made of.
pub(super) struct Parts {
    pub(super) start: Start,
    pub(super) channel: Channel,
    pub(super) control: Arc<Control>,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) checkpoints: Checkpoints,
    pub(super) room: Room,
    pub(super) models: Models,
    pub(super) rights: JobRights,
    pub(super) home: Home,
    pub(super) plugin_wasm: Bytes,
    pub(super) plugin_digest: String,
    pub(super) device: String,
    /// The secrets that the job was granted, by name.
    pub(super) secrets: BTreeMap<String, String>,
}

/// The job as its plugin sees it.
pub(super) struct Context {
    parts: Parts,
    spending: Arc<Spending>,
    words: Words,
    timer: CheckpointTimer,
    /// The step of the newest checkpoint.
    last_checkpoint_step: u64,
    /// The latest value of each series.
    metrics: BTreeMap<String, f64>,
    finite: Finite,
}

impl Context {
    pub(super) fn new(parts: Parts) -> Context {
        let (spending, words, metrics) = (Arc::default(), Words::new(), BTreeMap::new());
        let finite = Finite::new(parts.start.spec.non_finite).of(parts.start.spec.precision);
        let timer = CheckpointTimer::new(parts.start.spec.checkpoint_every);
        Context { parts, spending, words, timer, last_checkpoint_step: 0, metrics, finite }
    }

    /// Asks whether the job may publish a model; where it may not, its supervisor is told.
    fn may_publish(&self, model: &str) -> Result<(), PluginError> {
        let refused = match self.parts.rights.publish(model) {
            Ok(()) => return Ok(()),
            Err(ProjectsError::Refused(refused)) => refused,
            Err(error) => return Err(PluginError::job(format!("model `{model}`: {error}"))),
        };
        let reason = format!("{refused}; {}", refused.hint());
        self.parts.channel.send(&Event::PublicationRefused { model: model.to_owned(), reason: reason.clone() });
        Err(PluginError::job(reason))
    }

    /// What it counts, for the usage report.
    pub(super) fn spending(&self) -> Arc<Spending> {
        Arc::clone(&self.spending)
    }
}

impl JobContext for Context {
    fn parameters(&self) -> String {
        serde_json::Value::Object(self.parts.start.spec.parameters.clone()).to_string()
    }

    fn seed(&self) -> u64 {
        self.parts.start.spec.seed
    }

    fn attempt(&self) -> u32 {
        self.parts.start.attempt
    }

    fn shards(&self) -> Shards {
        Shards::of_rank(ranks::shards(&self.parts.start), 0, 1)
    }

    fn leaves_out(&self) -> bool {
        self.parts.start.spec.non_finite == NonFinite::Skip
    }

    fn is_mixed(&self) -> bool {
        self.parts.start.spec.precision == Precision::Mixed
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        let samples = self.spending.samples();
        let line = self.words.fill(line, samples, self.last_checkpoint_step).into_owned();
        self.parts.channel.send(&Event::Log { level: level.name().to_owned(), line });
    }

    fn metric(&mut self, step: u64, name: &str, value: f64) {
        // What a checkpoint does not take need not be kept.
        if self.metrics.len() < CHECKPOINT_METRICS_MAX || self.metrics.contains_key(name) {
            self.metrics.insert(name.to_owned(), value);
        }
        if let Some(line) = self.finite.metric(step, name, value) {
            self.parts.channel.send(&Event::Log { level: "warn".to_owned(), line });
        }
        let value = value.is_finite().then_some(value);
        self.parts.channel.send(&Event::Metric { step, name: name.to_owned(), value });
    }

    fn progress(&mut self, step: u64, of: u64) {
        self.parts.channel.send(&Event::Progress { step, of });
    }

    fn drawn(&mut self, items: u64, time: Duration) {
        self.spending.drawn(items, time);
    }

    fn secret(&self, name: &str) -> Result<String, PluginError> {
        let granted = self.parts.start.spec.secrets.iter().any(|granted| granted == name);
        let value = self.parts.secrets.get(name).filter(|_| granted);
        value.cloned().ok_or_else(|| PluginError::job(format!("secret `{name}` was not granted to this job")))
    }

    fn restore(&mut self) -> Result<Beginning, PluginError> {
        let found = beginning::find(&self.parts)?;
        for skipped in found.skipped {
            let reason = format!("{}: {}", skipped.file, skipped.reason);
            self.parts.channel.send(&Event::CheckpointFailed { op: "load".to_owned(), reason });
        }
        if let Some(line) = found.note {
            self.parts.channel.send(&Event::Log { level: "info".to_owned(), line });
        }
        if let Beginning::Checkpoint(checkpoint) = &found.beginning {
            self.timer.resume_at(checkpoint.step);
            self.last_checkpoint_step = checkpoint.step;
            self.metrics.clone_from(&checkpoint.metrics);
            self.parts.channel.send(&Event::Resumed { step: checkpoint.step });
        }
        Ok(found.beginning)
    }

    fn checkpoint_due(&mut self, step: u64) -> bool {
        let asked = self.parts.control.checkpoint.load(Ordering::Acquire);
        // Saving is what tells the plugin that it must end.
        self.timer.is_due(Instant::now(), step, asked || self.finite.is_broken())
    }

    fn save(&mut self, mut checkpoint: Checkpoint) -> Result<(), PluginError> {
        self.finite.variables(Some(checkpoint.step), &checkpoint.variables)?;
        let began = Instant::now();
        let Start { job, epoch, .. } = &self.parts.start;
        checkpoint.plugin_digest.clone_from(&self.parts.plugin_digest);
        checkpoint.device.clone_from(&self.parts.device);
        env!("CARGO_PKG_VERSION").clone_into(&mut checkpoint.build);
        checkpoint.metrics.clone_from(&self.metrics);
        let step = checkpoint.step;
        let bytes: usize = checkpoint.variables.iter().map(|variable| variable.bytes.len()).sum();
        let save = self.parts.checkpoints.save(job, *epoch, &checkpoint);
        let saved = match self.parts.room.take(bytes as u64) {
            Ok(()) => self.parts.runtime.block_on(save),
            Err(full) => Err(full.into()),
        };
        self.spending.saved(began.elapsed());
        self.parts.control.checkpoint.store(false, Ordering::Release);
        let info = match saved {
            Ok(info) => info,
            Err(error) => {
                // The one before is intact; it is tried again when the next one is due.
                self.timer.failed(Instant::now(), step);
                let reason = error.to_string();
                self.parts.channel.send(&Event::CheckpointFailed { op: "save".to_owned(), reason: reason.clone() });
                if matches!(error, CheckpointError::Fenced { .. }) {
                    return Err(PluginError::job(reason));
                }
                return Ok(());
            }
        };
        self.last_checkpoint_step = step;
        let seconds = began.elapsed().as_secs_f64();
        let digest = digest_of_variables(&checkpoint.variables).hex();
        self.parts.channel.send(&Event::Checkpoint { step, bytes: info.bytes, seconds, digest });
        let spec = &self.parts.start.spec;
        let retention =
            Retention { keep_last: spec.checkpoint_keep_last as usize, keep_best: spec.checkpoint_keep_best.clone() };
        if let Err(error) = self.parts.runtime.block_on(self.parts.checkpoints.prune(job, &retention)) {
            self.parts
                .channel
                .send(&Event::Log { level: "warn".to_owned(), line: format!("old checkpoints stay: {error}") });
        }
        self.timer.saved(began, Instant::now(), step);
        Ok(())
    }

    fn stop_requested(&self) -> bool {
        self.parts.control.stop.load(Ordering::Acquire)
    }

    fn phase(&mut self, name: &str) {
        self.parts.channel.send(&Event::Phase { name: name.to_owned() });
    }

    fn publish(&mut self, model: &str, variables: Vec<SavedVariable>, config: &str) -> Result<u64, PluginError> {
        self.finite.variables(None, &variables)?;
        let bytes: usize = variables.iter().map(|variable| variable.bytes.len()).sum();
        let room = self.parts.room.take((bytes + self.parts.plugin_wasm.len() + config.len()) as u64);
        room.map_err(|error| PluginError::job(format!("model `{model}`: {error}")))?;
        self.may_publish(model)?;
        let publication = Publication {
            model,
            plugin: &self.parts.plugin_wasm,
            variables: &variables,
            config,
            source_job: &self.parts.start.name,
            created_ms: SystemClock.now_ms(),
            metrics: self.metrics.clone(),
        };
        let published = self.parts.models.publish(&publication).map_err(|error| {
            self.parts.rights.publication_failed(model);
            PluginError::job(error.to_string())
        })?;
        let version = published.version;
        self.parts.channel.send(&Event::Published { model: model.to_owned(), version });
        Ok(version)
    }

    fn open_model(&mut self, model: &str, version: Option<u64>) -> Result<OpenedModel, PluginError> {
        self.parts.rights.read_weights(model)?;
        open_model(&self.parts.models, model, version)
    }

    fn write_output(&mut self, path: &str, data: &[u8]) -> Result<(), PluginError> {
        let room = self.parts.room.take(data.len() as u64);
        let written = room.and_then(|()| self.parts.home.write_output(&self.parts.start.job, path, data));
        written.map_err(|error| PluginError::job(format!("output `{path}`: {error}")))?;
        let line = format!("wrote output/{path} ({} bytes)", data.len());
        self.parts.channel.send(&Event::Log { level: "info".to_owned(), line });
        Ok(())
    }
}

/// A published version of a model: the newest whole one, or the one that is named.
///
/// # Errors
/// `Job` where it is not published or cannot be read.
pub(crate) fn open_model(models: &Models, model: &str, version: Option<u64>) -> Result<OpenedModel, PluginError> {
    let refuse = |reason: &dyn std::fmt::Display| PluginError::job(format!("model `{model}`: {reason}"));
    let (files, variables) = models.open(model, version).map_err(|error| match (error, version) {
        (ModelError::NotFound { .. }, Some(version)) => refuse(&format!("version {version} is not published")),
        (ModelError::NotFound { .. }, None) => refuse(&"no version is published"),
        (error, _) => refuse(&error),
    })?;
    let version = files.dir.file_name().and_then(|name| name.to_str()?.parse().ok());
    let version = version.ok_or_else(|| refuse(&"its directory is not called by a number"))?;
    Ok(OpenedModel { version, variables, config: files.manifest.config })
}
