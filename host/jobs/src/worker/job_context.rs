//! The host functions of a plugin's training, implemented in the worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use saggar_clock::{Clock, SystemClock};
use saggar_plugin::{BatchShards, InitialState, JobContext, LogLevel, OpenedModel, PluginError};
use saggar_store::limits::CHECKPOINT_METRICS_MAX;
use saggar_store::{
    Checkpoint, CheckpointError, CheckpointStore, ImageInputs, LoggedItem, LoggedKey, ModelError, ModelPublication,
    ModelRegistry, ProjectsError, Retention, SavedVariable, StateDir, digest_of_variables,
};

use super::channel::{EventChannel, WorkerControl};
use super::checkpoint_timer::CheckpointTimer;
use super::initial_state::find_initial_state;
use super::lease_guard::end_fenced;
use super::log_placeholders::LogPlaceholders;
use super::logged_items::LoggedItemWriter;
use super::lost_worker::storage_error;
use super::metering::UsageCounters;
use super::nan_guard::NanGuard;
use super::output_writer::OutputWriter;
use super::rights::JobRights;
use super::store_outage::OutageRetry;
use super::write_fence::end_if_refused;
use crate::protocol::{AttemptConfig, WorkerEvent};
use crate::spec::{NonFinite, Precision, model_provenance};
use crate::storage_guard::StorageGuard;

/// The parts of a context.
pub(super) struct JobContextParts {
    pub(super) start: AttemptConfig,
    pub(super) channel: EventChannel,
    pub(super) control: Arc<WorkerControl>,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) checkpoints: CheckpointStore,
    pub(super) room: StorageGuard,
    pub(super) models: ModelRegistry,
    pub(super) rights: JobRights,
    pub(super) home: StateDir,
    pub(super) plugin_wasm: Bytes,
    pub(super) device: String,
    /// SHA-256 of the mounted datasets, by mount point.
    pub(super) data_sha256: BTreeMap<String, String>,
    /// The secrets that the job was granted, by name.
    pub(super) secrets: BTreeMap<String, String>,
}

/// The job context that the plugin uses.
pub(super) struct WorkerJobContext {
    parts: JobContextParts,
    usage_counters: Arc<UsageCounters>,
    log_placeholders: LogPlaceholders,
    timer: CheckpointTimer,
    /// The step that the plugin reported last.
    step: u64,
    /// The step of the newest checkpoint.
    last_checkpoint_step: u64,
    /// The latest value of each series.
    metrics: BTreeMap<String, f64>,
    nan_guard: NanGuard,
    logged_items: Arc<Mutex<LoggedItemWriter>>,
}

impl WorkerJobContext {
    pub(super) fn new(parts: JobContextParts) -> WorkerJobContext {
        let (spending, words, metrics) = (Arc::default(), LogPlaceholders::new(), BTreeMap::new());
        let finite = NanGuard::new(parts.start.spec.non_finite).with_precision(parts.start.spec.precision);
        let timer = CheckpointTimer::new(parts.start.spec.checkpoint_every);
        let logged_items = LoggedItemWriter::new(parts.home.job_files(), parts.start.job.clone());
        WorkerJobContext {
            parts,
            usage_counters: spending,
            log_placeholders: words,
            timer,
            step: 0,
            last_checkpoint_step: 0,
            metrics,
            nan_guard: finite,
            logged_items: Arc::new(Mutex::new(logged_items)),
        }
    }

    /// Checks that the job may publish a model. If not, reports the refusal to the supervisor.
    fn check_may_publish(&self, model: &str) -> Result<(), PluginError> {
        let refused = match self.parts.rights.claim_model(model) {
            Ok(()) => return Ok(()),
            Err(ProjectsError::Refused(refused)) => refused,
            Err(error) => return Err(storage_error(&error, format!("model `{model}`: {error}"))),
        };
        let reason = format!("{refused}; {}", refused.hint());
        self.parts.channel.send(&WorkerEvent::PublicationRefused { model: model.to_owned(), reason: reason.clone() });
        Err(PluginError::job(reason))
    }

    /// Waits until no other server can own the job, and refuses if one has announced a newer attempt.
    fn check_ownership(&self) -> Result<(), PluginError> {
        self.parts.control.lease.wait_until_sure();
        let AttemptConfig { job, epoch, .. } = &self.parts.start;
        let checked = self.parts.runtime.block_on(self.parts.checkpoints.check_epoch(job, *epoch));
        match checked {
            Ok(()) => Ok(()),
            Err(error @ CheckpointError::Fenced { .. }) => end_fenced(&error),
            Err(error) => Err(storage_error(&error, error.to_string())),
        }
    }

    /// Returns the items that the job logs, some of which can wait for the store at the end of the attempt.
    pub(super) fn logged_items(&self) -> Arc<Mutex<LoggedItemWriter>> {
        Arc::clone(&self.logged_items)
    }

    /// Stores the logged items that wait, or returns why the store does not.
    fn flush_logged_items(&mut self) -> Result<(), String> {
        let line = self.logged_items.lock().flush(&mut self.parts.room)?;
        if let Some(line) = line {
            self.parts.channel.send(&WorkerEvent::Log { level: "warn".to_owned(), line });
        }
        Ok(())
    }

    /// Reports a checkpoint that could not be saved. The previous one is intact; the next try is when the next one is due.
    fn report_failed_save(&mut self, began: Instant, step: u64, reason: String) {
        self.timer.record_failed(began, Instant::now(), step);
        self.parts.control.checkpoint.store(false, Ordering::Release);
        self.parts.channel.send(&WorkerEvent::CheckpointFailed { op: "save".to_owned(), reason });
    }

    fn outage_retry(&self) -> OutageRetry {
        OutageRetry::new(&self.parts.channel, &self.parts.control)
    }

    /// Returns the context's counters, for the usage report.
    pub(super) fn usage_counters(&self) -> Arc<UsageCounters> {
        Arc::clone(&self.usage_counters)
    }
}

impl JobContext for WorkerJobContext {
    fn parameters(&self) -> String {
        serde_json::Value::Object(self.parts.start.spec.parameters.clone()).to_string()
    }

    fn seed(&self) -> u64 {
        self.parts.start.spec.seed
    }

    fn attempt(&self) -> u32 {
        self.parts.start.attempt
    }

    fn shards(&self) -> BatchShards {
        BatchShards::for_rank(self.parts.start.shard_count(), 0, 1)
    }

    fn skips_nonfinite(&self) -> bool {
        self.parts.start.spec.non_finite == NonFinite::Skip
    }

    fn is_mixed_precision(&self) -> bool {
        self.parts.start.spec.precision == Precision::Mixed
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        let samples = self.usage_counters.samples();
        let line = self.log_placeholders.fill(line, samples, self.last_checkpoint_step).into_owned();
        self.parts.channel.send(&WorkerEvent::Log { level: level.name().to_owned(), line });
    }

    fn metric(&mut self, step: u64, name: &str, value: f64) {
        // Metrics that a checkpoint cannot store are not kept.
        if self.metrics.len() < CHECKPOINT_METRICS_MAX || self.metrics.contains_key(name) {
            self.metrics.insert(name.to_owned(), value);
        }
        self.parts.control.pause.record_metric(name, step);
        if let Some(line) = self.nan_guard.check_metric(step, name, value) {
            self.parts.channel.send(&WorkerEvent::Log { level: "warn".to_owned(), line });
        }
        let value = value.is_finite().then_some(value);
        self.parts.channel.send(&WorkerEvent::Metric { step, name: name.to_owned(), value });
    }

    fn log_item(&mut self, key: LoggedKey, item: LoggedItem) {
        let line = self.logged_items.lock().write(key, &item, &mut self.parts.room);
        if let Some(line) = line {
            self.parts.channel.send(&WorkerEvent::Log { level: "warn".to_owned(), line });
        }
    }

    fn progress(&mut self, step: u64, of: u64) {
        self.step = step;
        self.parts.control.pause.record_target(of);
        self.parts.channel.send(&WorkerEvent::Progress { step, of });
    }

    fn items_drawn(&mut self, items: u64, time: Duration) {
        self.usage_counters.add_samples(items, time);
    }

    fn secret(&self, name: &str) -> Result<String, PluginError> {
        let granted = self.parts.start.spec.secrets.iter().any(|granted| granted == name);
        let value = self.parts.secrets.get(name).filter(|_| granted);
        value.cloned().ok_or_else(|| PluginError::job(format!("secret `{name}` was not granted to this job")))
    }

    fn initial_state(&mut self) -> Result<InitialState, PluginError> {
        let JobContextParts { start, checkpoints, models, runtime, .. } = &self.parts;
        let found = self.outage_retry().run(|| find_initial_state(start, checkpoints, models, runtime))?;
        for skipped in found.skipped {
            let reason = format!("{}: {}", skipped.file, skipped.reason);
            self.parts.channel.send(&WorkerEvent::CheckpointFailed { op: "load".to_owned(), reason });
        }
        if let Some(line) = found.note {
            self.parts.channel.send(&WorkerEvent::Log { level: "info".to_owned(), line });
        }
        if let InitialState::Checkpoint(checkpoint) = &found.beginning {
            self.timer.resume_at(checkpoint.step);
            self.last_checkpoint_step = checkpoint.step;
            self.metrics.clone_from(&checkpoint.metrics);
            self.parts.channel.send(&WorkerEvent::Resumed { step: checkpoint.step });
        }
        Ok(found.beginning)
    }

    fn checkpoint_due(&mut self, step: u64) -> bool {
        let asked = self.parts.control.checkpoint.load(Ordering::Acquire);
        // The plugin learns that it must end from the checkpoint.
        self.timer.is_due(Instant::now(), step, asked || self.nan_guard.has_failed())
    }

    fn save(&mut self, mut checkpoint: Checkpoint) -> Result<(), PluginError> {
        self.nan_guard.check_variables(Some(checkpoint.step), &checkpoint.variables)?;
        self.parts.control.pause.begin_save();
        let began = Instant::now();
        checkpoint.plugin_digest.clone_from(&self.parts.start.spec.plugin);
        checkpoint.device.clone_from(&self.parts.device);
        env!("CARGO_PKG_VERSION").clone_into(&mut checkpoint.build);
        checkpoint.metrics.clone_from(&self.metrics);
        let step = checkpoint.step;
        let bytes: usize = checkpoint.variables.iter().map(|variable| variable.bytes.len()).sum();
        // What was logged before the checkpoint is not logged again after it.
        if let Err(reason) = self.flush_logged_items() {
            self.report_failed_save(began, step, reason);
            return Ok(());
        }
        let (job, epoch) = (self.parts.start.job.clone(), self.parts.start.epoch);
        let saved = match self.parts.room.reserve(bytes as u64) {
            Ok(()) if !self.parts.control.lease.is_sure() => Err(CheckpointError::Unsure { job: job.clone() }),
            Ok(()) => self.parts.runtime.block_on(self.parts.checkpoints.save(&job, epoch, &checkpoint)),
            Err(full) => Err(full.into()),
        };
        self.usage_counters.add_checkpoint(began.elapsed());
        self.parts.control.checkpoint.store(false, Ordering::Release);
        let info = match saved {
            Ok(info) => info,
            Err(error @ CheckpointError::Fenced { .. }) => end_fenced(&error),
            Err(error) => {
                self.report_failed_save(began, step, error.to_string());
                return Ok(());
            }
        };
        self.last_checkpoint_step = step;
        self.parts.control.pause.record_saved(step);
        let seconds = began.elapsed().as_secs_f64();
        let digest = digest_of_variables(&checkpoint.variables).hex();
        self.parts.channel.send(&WorkerEvent::Checkpoint { step, bytes: info.bytes, seconds, digest });
        let AttemptConfig { spec, kept_steps, .. } = &self.parts.start;
        let retention = Retention {
            keep_last: spec.checkpoint_keep_last as usize,
            keep_best: spec.checkpoint_keep_best.clone(),
            keep_steps: kept_steps.clone(),
        };
        let pruned = match self.parts.control.lease.is_sure() {
            true => self.parts.runtime.block_on(self.parts.checkpoints.prune(&job, epoch, &retention)),
            false => Err(CheckpointError::Unsure { job: job.clone() }),
        };
        if let Err(error) = pruned {
            self.parts
                .channel
                .send(&WorkerEvent::Log { level: "warn".to_owned(), line: format!("old checkpoints stay: {error}") });
        }
        self.timer.record_saved(began, Instant::now(), step);
        Ok(())
    }

    fn stop_requested(&self, step: u64) -> bool {
        // Both are asked: a server that shuts down must learn that the job can pause.
        let is_pause_due = self.parts.control.pause.is_due(step);
        self.parts.control.stop.load(Ordering::Acquire) || is_pause_due
    }

    fn phase(&mut self, name: &str) {
        self.parts.channel.send(&WorkerEvent::Phase { name: name.to_owned() });
    }

    fn publish(
        &mut self,
        model: &str,
        variables: Vec<SavedVariable>,
        config: &str,
        inputs: &ImageInputs,
    ) -> Result<u64, PluginError> {
        self.nan_guard.check_variables(None, &variables)?;
        let bytes: usize = variables.iter().map(|variable| variable.bytes.len()).sum();
        let room = self.parts.room.reserve((bytes + self.parts.plugin_wasm.len() + config.len()) as u64);
        room.map_err(|error| PluginError::job(format!("model `{model}`: {error}")))?;
        let publication = ModelPublication {
            model,
            plugin: &self.parts.plugin_wasm,
            variables: &variables,
            config,
            inputs: inputs.clone(),
            source_job: &self.parts.start.name,
            created_ms: SystemClock.now_ms(),
            metrics: self.metrics.clone(),
            card: None,
            provenance: model_provenance(
                &self.parts.start.spec,
                self.parts.data_sha256.clone(),
                &self.parts.device,
                Some(self.step),
            ),
        };
        // A version with the same content is not published twice.
        let publish = || {
            self.check_may_publish(model)?;
            self.check_ownership()?;
            self.parts.control.permissions.set_publishing(true);
            let published = self.parts.models.publish(&publication);
            self.parts.control.permissions.set_publishing(false);
            end_if_refused(&self.parts.control);
            published.map_err(|error| {
                self.parts.rights.release_model(model);
                storage_error(&error, error.to_string())
            })
        };
        let version = self.outage_retry().run(publish)?.version;
        self.parts.channel.send(&WorkerEvent::Published { model: model.to_owned(), version });
        Ok(version)
    }

    fn open_model(&mut self, model: &str, version: Option<u64>) -> Result<OpenedModel, PluginError> {
        self.parts.rights.check_read_weights(model)?;
        self.outage_retry().run(|| open_model(&self.parts.models, model, version))
    }

    fn write_output(&mut self, path: &str, data: &[u8]) -> Result<(), PluginError> {
        let JobContextParts { start, home, channel, control, room, .. } = &mut self.parts;
        let writer = OutputWriter::new(start, home, channel, control);
        writer.reserve(path, data, room)?;
        writer.write(path, data, || self.check_ownership())?;
        writer.log(path, data);
        Ok(())
    }
}

/// Opens a published version of a model: the named one, or the newest intact one.
///
/// # Errors
/// `Job` if the version is not published or cannot be read.
pub(crate) fn open_model(
    models: &ModelRegistry,
    model: &str,
    version: Option<u64>,
) -> Result<OpenedModel, PluginError> {
    let refuse = |reason: &dyn std::fmt::Display| PluginError::job(format!("model `{model}`: {reason}"));
    let failed = |error: &ModelError| storage_error(error, format!("model `{model}`: {error}"));
    let (files, variables) = models.open(model, version).map_err(|error| match (error, version) {
        (ModelError::NotFound { .. }, Some(version)) => refuse(&format!("version {version} is not published")),
        (ModelError::NotFound { .. }, None) => refuse(&"no version is published"),
        (error, _) => failed(&error),
    })?;
    let version = files.dir.file_name().and_then(|name| name.to_str()?.parse().ok());
    let version = version.ok_or_else(|| refuse(&"the name of its directory is not a number"))?;
    Ok(OpenedModel { version, variables, config: files.manifest.config })
}
