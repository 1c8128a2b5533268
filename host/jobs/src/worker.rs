//! A worker: runs one attempt of one job in a separate process, so that a crash, a kill or a lost device affects only
//! that attempt. It opens the device, compiles the plugin, mounts the datasets and runs the plugin's training.

mod attempt_failure;
pub(crate) mod channel;
mod checkpoint_timer;
mod data_step;
mod initial_state;
mod job_context;
mod lease_guard;
mod locations;
mod log_placeholders;
mod logged_items;
mod lost_device;
mod lost_worker;
mod measurement;
mod metering;
mod nan_guard;
mod notebook;
mod notebook_data;
mod notebook_outputs;
mod output_writer;
mod pause_control;
mod permission_client;
mod prediction;
mod ranks;
mod recording;
mod replay;
mod rights;
mod step;
mod store_outage;
mod supervisor_link;
mod usage_reporter;
mod write_fence;
mod write_permission;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use saggar_compile::Optimization;
use saggar_device::{Backend, DeviceInfo, Meter, TuningRecords};
use saggar_devices::{self, DeviceUsage};
use saggar_plugin::{
    CompiledPlugin, FailureReason, JobContext, PluginEngine, PluginEngineConfig, StepCall, StepOutcome, TrainLimits,
    TrainOutcome, run_step, train,
};
use saggar_store::models::PublicationFence;
use saggar_store::{CheckpointStore, ColumnarDataset, DatasetStore, Digest, ModelRegistry, ObjectStorage, StateDir};
use saggar_telemetry::TraceContext;

use crate::limits::WORKER_OOM_SCORE_ADJUSTMENT;
use crate::protocol::{AttemptConfig, EXIT_DONE, WorkerEvent};
use crate::spec::{CheckpointSelector, DataMount, DataSource, InitFrom, PredictionSpec};
use crate::storage_guard::StorageGuard;
use attempt_failure::AttemptFailure;
use channel::{EventChannel, WorkerControl, WorkerStart};
use job_context::WorkerJobContext;
pub(crate) use job_context::open_model;
pub use locations::WorkerLocations;
use logged_items::LoggedItemWriter;
use lost_device::{DeviceWatch, kill_own_process};
use lost_worker::{data_failure, storage_error, worker_lost_error};
use measurement::MeasurementParts;
use metering::UsageCounters;
use pause_control::PauseResult;
use permission_client::PermissionClient;
use ranks::RankGroup;
use ranks::follower::FollowerContext;
use ranks::leader::LeaderContext;
pub use rights::JobRights;
use step::{StepAttempt, StepOutputWriter};
use store_outage::OutageRetry;
use usage_reporter::UsageReporter;

/// Runs the attempt that the supervisor sends. The supervisor is found by the credentials in the environment
/// ([`crate::credentials`]). Returns the exit code of the process.
///
/// `runtime` drives the object store; it must not be the calling runtime, which is blocked.
pub fn run(locations: &WorkerLocations, runtime: &tokio::runtime::Handle) -> i32 {
    // If memory is exhausted, an attempt should be killed before the server. If the score cannot be set, the system
    // decides.
    let _ = std::fs::write("/proc/self/oom_score_adj", WORKER_OOM_SCORE_ADJUSTMENT.to_string());
    let WorkerStart { channel, config: start, control } = match EventChannel::connect() {
        Ok(started) => started,
        Err(error) => {
            // Standard error is the attempt's log.
            eprintln!("saggar worker: {error}");
            return error.exit_code();
        }
    };
    channel.start_heartbeat(Arc::clone(&control.lease));
    let context = start.trace.as_deref().and_then(TraceContext::from_traceparent);
    let _span = context.map(|context| tracing::info_span!("attempt", trace_id = %context.trace).entered());
    tracing::debug!(job = start.name, attempt = start.attempt, rank = start.rank, "the worker begins");
    let attempt_control = Arc::clone(&control);
    let attempt = WorkerAttempt { locations, runtime, channel: &channel, control: attempt_control, start };
    match attempt.run().and_then(|outcome| check_pause_saved(outcome, &control)) {
        Ok(outcome) => {
            channel.send(&final_event(&outcome, &control));
            channel.close();
            EXIT_DONE
        }
        Err(failure) => {
            channel.send(&WorkerEvent::Failed { reason: failure.reason().to_owned(), message: failure.to_string() });
            channel.close();
            if failure.is_device_loss() {
                kill_own_process();
            }
            failure.exit_code()
        }
    }
}

/// Returns the final event of an attempt that did not fail.
fn final_event(outcome: &TrainOutcome, control: &WorkerControl) -> WorkerEvent {
    let stopped = matches!(outcome, TrainOutcome::Stopped);
    match control.pause.result() {
        PauseResult::Saved { step, point } if stopped => WorkerEvent::Paused { step, point },
        _ => WorkerEvent::Finished { stopped },
    }
}

/// Returns a failure that is retried if the attempt ended for a pause whose state could not be saved.
fn check_pause_saved(outcome: TrainOutcome, control: &WorkerControl) -> Result<TrainOutcome, AttemptFailure> {
    let is_lost = matches!(outcome, TrainOutcome::Stopped)
        && control.pause.result() == PauseResult::NotSaved
        && !control.stop.load(Ordering::Acquire);
    if is_lost { Err(AttemptFailure::PauseNotSaved) } else { Ok(outcome) }
}

/// What an attempt of a training or a step has opened.
struct LoadedAttempt {
    host: PluginEngine,
    plugin: CompiledPlugin,
    wasm: Bytes,
    home: StateDir,
    device: Arc<dyn Backend>,
    objects: ObjectStorage,
    datasets: BTreeMap<String, Arc<ColumnarDataset>>,
    rights: JobRights,
    secrets: BTreeMap<String, String>,
    /// The step, if the plugin is one.
    step: Option<StepAttempt>,
    began: Instant,
}

struct WorkerAttempt<'a> {
    locations: &'a WorkerLocations,
    runtime: &'a tokio::runtime::Handle,
    channel: &'a EventChannel,
    control: Arc<WorkerControl>,
    start: AttemptConfig,
}

impl WorkerAttempt<'_> {
    fn run(self) -> Result<TrainOutcome, AttemptFailure> {
        let spec = &self.start.spec;
        let home = self.locations.open_home(self.runtime).map(|home| self.with_bucket_usage(home));
        let home = home.map_err(|error| AttemptFailure::permanent("BAD_HOME", error))?;
        if let Some(step) = &spec.data_step {
            return self.run_data_step(step, &home);
        }
        if let Some(notebook) = &spec.notebook {
            return self.run_notebook(notebook, &home);
        }
        let objects = self.locations.open_objects(&home);
        let objects = objects.map_err(|error| AttemptFailure::permanent("BAD_HOME", error))?;
        if self.is_paused_already(&CheckpointStore::new(objects.clone()))? {
            return Ok(TrainOutcome::Stopped);
        }
        let device = self.open_device(&home)?;
        let _watch = DeviceWatch::start(&device, self.channel);
        let began = Instant::now();
        let cache_dir = spec.without.enables(Optimization::ComponentCache).then(|| home.cache());
        let host = PluginEngine::new(PluginEngineConfig { cache_dir, ..PluginEngineConfig::default() })?;
        if let Some(prediction) = &spec.predict {
            return self.run_prediction(prediction, &host, &home, device, began);
        }
        let (plugin, wasm) = self.load_plugin(&host, &objects)?;
        let step = plugin.has_step().then(|| StepAttempt::open(&self, &wasm, &home)).transpose()?;
        let datasets = self.open_datasets(&home, step.as_ref())?;
        let rights = JobRights::new(&self.start, &home, &self.locations.models);
        let secrets = rights
            .secret_values(&home, &spec.secrets)
            .map_err(|error| AttemptFailure::permanent("NO_SECRET", error))?;
        self.channel.redact(secrets.values().cloned().collect());
        if spec.measure {
            let parts = MeasurementParts { datasets, secrets, rights, began };
            return self.run_measurement(&host, &plugin, &home, &device, parts);
        }
        let loaded =
            LoadedAttempt { host, plugin, wasm, home, device, objects, datasets, rights, secrets, step, began };
        match &spec.replay {
            Some(replay) => self.run_replay(replay, loaded),
            None => self.run_plugin(loaded),
        }
    }

    /// Opens the job's device and reports the start of the attempt.
    fn open_device(&self, home: &StateDir) -> Result<Arc<dyn Backend>, AttemptFailure> {
        let spec = &self.start.spec;
        let shaders = spec.without.enables(Optimization::ShaderCache).then(|| home.shaders());
        let processes = spec.replicas_on_each_host() as usize;
        let usage = DeviceUsage { processes, pipeline_cache_dir: shaders.as_deref() };
        let choice = saggar_devices::open_with_usage(&spec.device, usage);
        let choice = choice.map_err(|error| AttemptFailure::permanent("NO_DEVICE", error))?;
        let info = choice.backend.info();
        self.channel.send(&WorkerEvent::Started {
            device: info.name.clone(),
            adapter: info.adapter.clone(),
            driver: info.driver.clone(),
            exact_seconds: info.exact_seconds,
            choice: choice.reason.clone(),
        });
        Ok(saggar_device::without_optimizations(choice.backend, spec.without))
    }

    /// Runs the training or the step.
    fn run_plugin(&self, loaded: LoadedAttempt) -> Result<TrainOutcome, AttemptFailure> {
        let spec = &self.start.spec;
        let group = self.start_ranks(loaded.device.info())?;
        // The limit is the job's, and each of its processes needs an equal part.
        let memory_bytes = spec.gpu_memory_bytes.map(|bytes| bytes / u64::from(spec.replicas.max(1)));
        let meter = memory_bytes.map_or_else(Meter::unlimited, Meter::new);
        let context = self.worker_context(&loaded, &self.start.job);
        let logged_items = context.logged_items();
        let mut room = self.storage_guard(&loaded.home);
        let LoadedAttempt { host, plugin, home, device, datasets, rights, step, began, .. } = loaded;
        let writer = StepOutputWriter::new(self, &home, rights);
        let reporter =
            UsageReporter::start(self.channel.clone(), meter.clone(), context.usage_counters(), began, group.clone());
        let context = self.recorded(self.job_context(context, group.clone()), &home, &device)?;
        let limits = TrainLimits { memory_bytes: spec.memory_bytes, ..TrainLimits::default() };
        if let Some(mut step) = step {
            let inputs = step.take_inputs(&self.start)?;
            let device = Arc::clone(&device);
            let call = StepCall { device, meter, datasets, context, limits, inputs, outputs: step.outputs() };
            let outcome = run_step(&host, &plugin, call);
            self.flush_logged_items(&mut logged_items.lock(), &mut room);
            reporter.finish();
            return match outcome? {
                StepOutcome::Stopped => Ok(TrainOutcome::Stopped),
                StepOutcome::Finished(outputs) => writer.write(outputs).map(|()| TrainOutcome::Finished),
            };
        }
        let outcome = train(&host, &plugin, Arc::clone(&device), meter, datasets, context, limits);
        self.flush_logged_items(&mut logged_items.lock(), &mut room);
        if let (Some(group), Ok(_)) = (&group, &outcome) {
            group.wait_for_ends();
        }
        reporter.finish();
        Ok(outcome?)
    }

    /// Stores what the plugin logged while the store did not answer.
    fn flush_logged_items(&self, items: &mut LoggedItemWriter, room: &mut StorageGuard) {
        let line = match self.outage_retry().run(|| items.flush(room).map_err(worker_lost_error)) {
            Ok(line) => line,
            Err(error) => Some(format!("logged items are not kept: {error}")),
        };
        if let Some(line) = line {
            self.channel.send(&WorkerEvent::Log { level: "warn".to_owned(), line });
        }
    }

    fn storage_guard(&self, home: &StateDir) -> StorageGuard {
        StorageGuard::new(self.locations.storage_quota, home.clone(), self.locations.models.clone())
    }

    /// Counts what is in a bucket that several servers use, as the server reports it.
    fn with_bucket_usage(&self, home: StateDir) -> StateDir {
        let counts = self.start.renews_lease && home.bucket().is_some() && self.locations.storage_quota.is_some();
        if counts { home.with_bucket_usage(Arc::clone(&self.control.bucket_usage)) } else { home }
    }

    /// Returns the registry of models, which asks the server before it makes a version visible.
    fn registry_to_publish(&self, home: &StateDir) -> ModelRegistry {
        let client = PermissionClient::of_attempt(self.start.renews_lease, self.channel, &self.control);
        let fence = client.map(|client| Arc::new(client) as Arc<dyn PublicationFence>);
        ModelRegistry::of_home_fenced(home, &self.locations.models, fence)
    }

    /// Returns the context of a loaded attempt, and makes the device use the kernel tuning of the job `tuned`.
    fn worker_context(&self, loaded: &LoadedAttempt, tuned: &str) -> WorkerJobContext {
        let checkpoints = CheckpointStore::new(loaded.objects.clone()).with_parts_by_epoch(self.start.renews_lease);
        let info = loaded.device.info();
        loaded.device.load_tuning(&self.stored_tuning(&checkpoints, tuned));
        WorkerJobContext::new(job_context::JobContextParts {
            start: self.start.clone(),
            channel: self.channel.clone(),
            control: Arc::clone(&self.control),
            runtime: self.runtime.clone(),
            checkpoints,
            room: self.storage_guard(&loaded.home),
            models: self.registry_to_publish(&loaded.home),
            rights: loaded.rights.clone(),
            home: loaded.home.clone(),
            plugin_wasm: loaded.wasm.clone(),
            device: format!("{} {} {}", info.name, info.adapter, info.driver),
            data_sha256: loaded.datasets.iter().map(|(mount, data)| (mount.clone(), data.digest().hex())).collect(),
            secrets: loaded.secrets.clone(),
        })
    }

    /// Returns whether an earlier attempt, which was lost after it, saved the state that the job pauses with.
    fn is_paused_already(&self, checkpoints: &CheckpointStore) -> Result<bool, AttemptFailure> {
        let AttemptConfig { job, epoch, rank: 0, pause: Some(point), paused_from: Some(from), spec, .. } = &self.start
        else {
            return Ok(false);
        };
        let newest = || async {
            let listed = checkpoints.list(job).await?;
            if listed.first().is_none_or(|info| info.step < *from) {
                return Ok(None);
            }
            checkpoints.claim(job, *epoch).await?;
            checkpoints.latest(job, &spec.plugin).await.map(|latest| latest.found)
        };
        let newest = || self.runtime.block_on(newest()).map_err(|error| storage_error(&error, error.to_string()));
        let newest = self.outage_retry().run(newest)?;
        let Some((_, checkpoint)) = newest.filter(|(_, checkpoint)| checkpoint.step >= *from) else {
            return Ok(false);
        };
        self.control.pause.pause_at_checkpoint(checkpoint.step, point.clone());
        Ok(true)
    }

    /// Returns the kernel tuning of a job's earlier attempts, or of the checkpoint that this job starts from, because this
    /// attempt must produce the same bytes. A store that cannot be listed cannot be restored from either, which is
    /// reported then.
    fn stored_tuning(&self, checkpoints: &CheckpointStore, job: &str) -> TuningRecords {
        let mut listed = self.runtime.block_on(checkpoints.list(job)).unwrap_or_default();
        if listed.is_empty()
            && let Some(InitFrom::Checkpoint { job, which: CheckpointSelector::Step(step) }) =
                &self.start.spec.init_from
            && let Some(id) = self.start.jobs.get(job)
        {
            listed = self.runtime.block_on(checkpoints.list(id)).unwrap_or_default();
            listed.retain(|checkpoint| checkpoint.step == *step);
        }
        listed.into_iter().flat_map(|checkpoint| checkpoint.ways).collect()
    }

    /// Runs the attempt of a prediction job.
    fn run_prediction(
        &self,
        prediction: &PredictionSpec,
        host: &PluginEngine,
        home: &StateDir,
        device: Arc<dyn Backend>,
        began: Instant,
    ) -> Result<TrainOutcome, AttemptFailure> {
        let datasets = self.open_datasets(home, None)?.into_values().next();
        let dataset = datasets.ok_or_else(|| AttemptFailure::permanent("BAD_DATASET", "the job mounts no dataset"))?;
        let meter = self.start.spec.gpu_memory_bytes.map_or_else(Meter::unlimited, Meter::new);
        let spending: Arc<UsageCounters> = Arc::default();
        let reporter = UsageReporter::start(self.channel.clone(), meter.clone(), Arc::clone(&spending), began, None);
        let parts = prediction::PredictionAttempt {
            start: &self.start,
            prediction,
            channel: self.channel,
            control: &self.control,
            home: home.clone(),
            room: self.storage_guard(home),
            models: ModelRegistry::of_home(home, &self.locations.models),
            rights: JobRights::new(&self.start, home, &self.locations.models),
            dataset,
            spending,
        };
        let outcome = parts.predict(host, device, meter);
        reporter.finish();
        outcome
    }

    /// Starts the attempt's other worker processes if there are any and this is rank 0. They find the plugin compiled.
    fn start_ranks(&self, device: &DeviceInfo) -> Result<Option<Arc<RankGroup>>, AttemptFailure> {
        let AttemptConfig { rank, spec, .. } = &self.start;
        let shards = self.start.shard_count();
        if *rank > 0 || shards == 1 {
            return Ok(None);
        }
        let communicator = match (spec.hosts, spec.replicas) {
            (2.., _) => "TLS between hosts, in the order of ranks",
            (_, 2..) => "sockets, in the order of ranks",
            (_, _) => "none",
        };
        let (processes, device) = (spec.replicas, &device.name);
        let hosts = if spec.hosts > 1 { format!(" on {} hosts", spec.hosts) } else { String::new() };
        let line =
            format!("processes: {processes}{hosts}, device: {device}, communicator: {communicator}, shards: {shards}");
        self.channel.send(&WorkerEvent::Log { level: "info".to_owned(), line });
        if spec.replicas == 1 {
            return Ok(None);
        }
        let group = RankGroup::start(&self.start, self.locations, self.runtime, self.channel, &self.control)?;
        Ok(Some(Arc::new(group)))
    }

    /// Returns what repeats this attempt's operations while the store of objects does not answer.
    fn outage_retry(&self) -> OutageRetry {
        OutageRetry::new(self.channel, &self.control)
    }

    /// Returns the job context for this process's plugin.
    fn job_context(&self, context: WorkerJobContext, group: Option<Arc<RankGroup>>) -> Box<dyn JobContext> {
        match (group, self.channel.leader_link()) {
            (Some(group), _) => {
                Box::new(LeaderContext::new(context, group, self.channel.clone(), self.start.shard_count()))
            }
            (None, Some(link)) => Box::new(FollowerContext::new(context, &self.start, link)),
            (None, None) => Box::new(context),
        }
    }

    fn load_plugin(
        &self,
        host: &PluginEngine,
        objects: &ObjectStorage,
    ) -> Result<(CompiledPlugin, Bytes), AttemptFailure> {
        let digest: Digest =
            self.start.spec.plugin.parse().map_err(|error| AttemptFailure::permanent("NO_PLUGIN", error))?;
        let wasm = self.outage_retry().run(|| {
            let wasm = self.runtime.block_on(objects.get_blob(&digest));
            wasm.map_err(|error| data_failure("NO_PLUGIN", &error))
        })?;
        let plugin =
            host.compile(&wasm).map_err(|error| AttemptFailure::permanent(FailureReason::BadPlugin.as_str(), error))?;
        Ok((plugin, wasm))
    }

    /// Opens the mounted datasets. The files among a step's inputs are not opened.
    fn open_datasets(
        &self,
        home: &StateDir,
        step: Option<&StepAttempt>,
    ) -> Result<BTreeMap<String, Arc<ColumnarDataset>>, AttemptFailure> {
        let stored = DatasetStore::of_home(home);
        let mut datasets = BTreeMap::new();
        let is_dataset = |mount: &&DataMount| !step.is_some_and(|step| step.is_file(&mount.mount));
        for mount in self.start.spec.data.iter().filter(is_dataset) {
            let open = || match &mount.source {
                DataSource::Dataset { .. } => {
                    stored.resolve(&mount.source.to_string()).and_then(|info| stored.open(&info))
                }
                DataSource::Output { job, path } => {
                    // The supervisor has resolved every job of the specification.
                    let id = self.start.jobs.get(job).map_or(job.as_str(), String::as_str);
                    ColumnarDataset::from_output(home, id, path.as_deref())
                }
            };
            let open = || open().map_err(|error| data_failure("BAD_DATASET", &error));
            let dataset = self.outage_retry().run(open)?;
            datasets.insert(mount.mount.clone(), Arc::new(dataset));
        }
        Ok(datasets)
    }
}
