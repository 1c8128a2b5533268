//! What the plugin's training may ask of its job, answered in the worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use saggar_plugin::{JobContext, LogLevel, OpenedModel, PluginError};
use saggar_store::{
    Checkpoint, CheckpointError, Checkpoints, Clock, Home, ModelError, Models, Publication, SavedVariable, SystemClock,
    digest_of_variables,
};

use super::channel::{Channel, Control};
use crate::limits::CHECKPOINTS_KEPT;
use crate::protocol::{Event, Start};
use crate::spec::CheckpointEvery;

/// What a context is made of.
pub(super) struct Parts {
    pub(super) start: Start,
    pub(super) channel: Channel,
    pub(super) control: Arc<Control>,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) checkpoints: Checkpoints,
    pub(super) models: Models,
    pub(super) home: Home,
    pub(super) plugin_wasm: Bytes,
    pub(super) plugin_digest: String,
    pub(super) device: String,
}

/// The job as its plugin sees it.
pub(super) struct Context {
    parts: Parts,
    samples: Arc<AtomicU64>,
    last_checkpoint: Instant,
    last_checkpoint_step: u64,
}

impl Context {
    pub(super) fn new(parts: Parts) -> Context {
        Context { parts, samples: Arc::default(), last_checkpoint: Instant::now(), last_checkpoint_step: 0 }
    }

    /// The counter of samples, for the usage report.
    pub(super) fn samples(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.samples)
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

    fn log(&mut self, level: LogLevel, line: &str) {
        self.parts.channel.send(&Event::Log { level: level.name().to_owned(), line: line.to_owned() });
    }

    fn metric(&mut self, step: u64, name: &str, value: f64) {
        let value = value.is_finite().then_some(value);
        self.parts.channel.send(&Event::Metric { step, name: name.to_owned(), value });
    }

    fn progress(&mut self, step: u64, of: u64) {
        self.parts.channel.send(&Event::Progress { step, of });
    }

    fn samples(&mut self, count: u64) {
        self.samples.fetch_add(count, Ordering::AcqRel);
    }

    fn restore(&mut self) -> Result<Option<Checkpoint>, PluginError> {
        let Start { job, epoch, .. } = &self.parts.start;
        let claimed = async {
            self.parts.checkpoints.claim(job, *epoch).await?;
            self.parts.checkpoints.latest(job, &self.parts.plugin_digest).await
        };
        let latest = self.parts.runtime.block_on(claimed).map_err(|error| PluginError::job(error.to_string()))?;
        for skipped in latest.skipped {
            let reason = format!("{}: {}", skipped.file, skipped.reason);
            self.parts.channel.send(&Event::CheckpointFailed { op: "load".to_owned(), reason });
        }
        let checkpoint = latest.found.map(|(_, checkpoint)| checkpoint);
        if let Some(checkpoint) = &checkpoint {
            self.last_checkpoint_step = checkpoint.step;
            self.parts.channel.send(&Event::Resumed { step: checkpoint.step });
        }
        Ok(checkpoint)
    }

    fn checkpoint_due(&mut self, step: u64) -> bool {
        let asked = self.parts.control.checkpoint.load(Ordering::Acquire);
        asked
            || match self.parts.start.spec.checkpoint_every {
                CheckpointEvery::Milliseconds(ms) => self.last_checkpoint.elapsed() >= Duration::from_millis(ms),
                CheckpointEvery::Steps(steps) => step.saturating_sub(self.last_checkpoint_step) >= steps,
            }
    }

    fn save(&mut self, mut checkpoint: Checkpoint) -> Result<(), PluginError> {
        let began = Instant::now();
        let Start { job, epoch, .. } = &self.parts.start;
        checkpoint.plugin_digest.clone_from(&self.parts.plugin_digest);
        checkpoint.device.clone_from(&self.parts.device);
        env!("CARGO_PKG_VERSION").clone_into(&mut checkpoint.build);
        let step = checkpoint.step;
        let saved = self.parts.runtime.block_on(self.parts.checkpoints.save(job, *epoch, &checkpoint));
        let info = match saved {
            Ok(info) => info,
            Err(error) => {
                // The one before is intact; the next boundary tries again.
                let reason = error.to_string();
                self.parts.channel.send(&Event::CheckpointFailed { op: "save".to_owned(), reason: reason.clone() });
                if matches!(error, CheckpointError::Fenced { .. }) {
                    return Err(PluginError::job(reason));
                }
                self.last_checkpoint = Instant::now();
                return Ok(());
            }
        };
        self.parts.control.checkpoint.store(false, Ordering::Release);
        self.last_checkpoint = Instant::now();
        self.last_checkpoint_step = step;
        let seconds = began.elapsed().as_secs_f64();
        let digest = digest_of_variables(&checkpoint.variables).hex();
        self.parts.channel.send(&Event::Checkpoint { step, bytes: info.bytes, seconds, digest });
        if let Err(error) = self.parts.runtime.block_on(self.parts.checkpoints.prune(job, CHECKPOINTS_KEPT)) {
            self.parts
                .channel
                .send(&Event::Log { level: "warn".to_owned(), line: format!("old checkpoints stay: {error}") });
        }
        Ok(())
    }

    fn stop_requested(&self) -> bool {
        self.parts.control.stop.load(Ordering::Acquire)
    }

    fn phase(&mut self, name: &str) {
        self.parts.channel.send(&Event::Phase { name: name.to_owned() });
    }

    fn publish(&mut self, model: &str, variables: Vec<SavedVariable>, config: &str) -> Result<u64, PluginError> {
        let publication = Publication {
            model,
            plugin: &self.parts.plugin_wasm,
            variables: &variables,
            config,
            source_job: &self.parts.start.name,
            created_ms: SystemClock.now_ms(),
        };
        let published = self.parts.models.publish(&publication).map_err(|error| PluginError::job(error.to_string()))?;
        let version = published.version;
        self.parts.channel.send(&Event::Published { model: model.to_owned(), version });
        Ok(version)
    }

    fn open_model(&mut self, model: &str, version: Option<u64>) -> Result<OpenedModel, PluginError> {
        let refuse = |reason: &dyn std::fmt::Display| PluginError::job(format!("model `{model}`: {reason}"));
        let (files, variables) = self.parts.models.open(model, version).map_err(|error| match (error, version) {
            (ModelError::NotFound { .. }, Some(version)) => refuse(&format!("version {version} is not published")),
            (ModelError::NotFound { .. }, None) => refuse(&"no version is published"),
            (error, _) => refuse(&error),
        })?;
        let version = files.dir.file_name().and_then(|name| name.to_str()?.parse().ok());
        let version = version.ok_or_else(|| refuse(&"its directory is not called by a number"))?;
        Ok(OpenedModel { version, variables, config: files.manifest.config })
    }

    fn write_output(&mut self, path: &str, data: &[u8]) -> Result<(), PluginError> {
        let written = self.parts.home.write_output(&self.parts.start.job, path, data);
        written.map_err(|error| PluginError::job(format!("output `{path}`: {error}")))?;
        let line = format!("wrote output/{path} ({} bytes)", data.len());
        self.parts.channel.send(&Event::Log { level: "info".to_owned(), line });
        Ok(())
    }
}
