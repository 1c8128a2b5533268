//! A worker: one attempt of one job, in a process of its own, so that a crash, a kill or a lost device costs that
//! attempt only. It opens the device, compiles the plugin, mounts the datasets and runs the plugin's training.

mod beginning;
mod channel;
mod checkpoint_timer;
mod context;
mod finite;
mod lost_device;
mod measuring;
mod prediction;
mod ranks;
mod rights;
mod spending;
mod words;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use saggar_device::select::{self, DeviceUsage};
use saggar_device::{Backend, DeviceInfo, Meter, TuningRecords};
use saggar_plugin::{Host, HostConfig, JobContext, Outcome, Plugin, PluginError, TrainLimits, train};
use saggar_store::{Checkpoints, Dataset, Datasets, Digest, Home, Models, Objects};

use crate::limits::WORKER_OOM_SCORE;
use crate::protocol::{EXIT_BROKEN, EXIT_DONE, EXIT_FAILED, EXIT_OUT_OF_MEMORY, EXIT_TRY_AGAIN, Event, Start};
use crate::room::Room;
use crate::spec::{DEVICE_LOST, Prediction, Source, WORKER_LOST};
use channel::{Channel, Control};
use context::Context;
pub(crate) use context::open_model;
use lost_device::{DeviceWatch, end_process};
use measuring::Parts;
use ranks::Group;
use ranks::follower::Follower;
use ranks::leader::Leader;
pub use rights::JobRights;
use spending::Spending;

/// Runs the attempt that the supervisor describes on standard input, on the state directory `home`, publishing to
/// `models`. Returns the process's exit code.
///
/// `storage_quota` limits the bytes of all that is stored together. `runtime` drives the object store; it must not be the runtime that calls this, which blocks.
pub fn run(home: &Path, models: &Path, storage_quota: Option<u64>, runtime: &tokio::runtime::Handle) -> i32 {
    // Where memory is short, an attempt is worth less than the server, which it takes along. What cannot be said is left to
    // the system's own choice.
    let _ = std::fs::write("/proc/self/oom_score_adj", WORKER_OOM_SCORE.to_string());
    let channel = Channel::new();
    let (start, control) = match channel.receive_start() {
        Ok(received) => received,
        Err(error) => return fail(&channel, "BAD_COMMAND", &error.to_string(), EXIT_BROKEN),
    };
    // The first worker process of an attempt speaks for the others.
    let channel = if start.rank == 0 { channel } else { Channel::to_leader() };
    channel.beat();
    let attempt = Attempt { home, models, storage_quota, runtime, channel: &channel, control, start };
    match attempt.run() {
        Ok(Outcome::Finished) => finish(&channel, false),
        Ok(Outcome::Stopped) => finish(&channel, true),
        Err(Failure { reason, message, code }) => {
            let code = fail(&channel, reason, &message, code);
            if reason == DEVICE_LOST {
                end_process();
            }
            code
        }
    }
}

fn finish(channel: &Channel, stopped: bool) -> i32 {
    channel.send(&Event::Finished { stopped });
    EXIT_DONE
}

fn fail(channel: &Channel, reason: &str, message: &str, code: i32) -> i32 {
    channel.send(&Event::Failed { reason: reason.to_owned(), message: message.to_owned() });
    code
}

/// Why an attempt ended badly, as its supervisor records it.
#[derive(Debug)]
struct Failure {
    reason: &'static str,
    message: String,
    code: i32,
}

impl Failure {
    /// Something that would be wrong at every attempt.
    fn broken(reason: &'static str, error: impl std::fmt::Display) -> Failure {
        Failure { reason, message: error.to_string(), code: EXIT_BROKEN }
    }
}

impl From<PluginError> for Failure {
    fn from(error: PluginError) -> Failure {
        let code = match error.reason() {
            DEVICE_LOST | WORKER_LOST => EXIT_TRY_AGAIN,
            "OUT_OF_MEMORY" | "MEMORY_LIMIT" | "TABLE_LIMIT" | "HANDLE_LIMIT" => EXIT_OUT_OF_MEMORY,
            _ => EXIT_FAILED,
        };
        Failure { reason: error.reason(), message: error.to_string(), code }
    }
}

struct Attempt<'a> {
    home: &'a Path,
    models: &'a Path,
    storage_quota: Option<u64>,
    runtime: &'a tokio::runtime::Handle,
    channel: &'a Channel,
    control: Arc<Control>,
    start: Start,
}

impl Attempt<'_> {
    fn run(self) -> Result<Outcome, Failure> {
        let spec = &self.start.spec;
        let home = Home::open(self.home).map_err(|error| Failure::broken("BAD_HOME", error))?;
        let usage = DeviceUsage { processes: spec.replicas as usize, pipeline_cache_dir: Some(&home.shaders()) };
        let choice = select::open_with_usage(&spec.device, usage);
        let choice = choice.map_err(|error| Failure::broken("NO_DEVICE", error))?;
        let info = choice.backend.info();
        self.channel.send(&Event::Started {
            device: info.name.clone(),
            adapter: info.adapter.clone(),
            driver: info.driver.clone(),
            exact_seconds: info.exact_seconds,
            choice: choice.reason.clone(),
        });
        let _watch = DeviceWatch::start(&choice.backend, self.channel);
        let began = Instant::now();
        let objects = Objects::local(&home.objects()).map_err(|error| Failure::broken("BAD_HOME", error))?;
        let host = Host::new(HostConfig { cache_dir: Some(home.cache()), ..HostConfig::default() })?;
        if let Some(prediction) = &spec.predict {
            return self.predict(prediction, &host, &home, Arc::clone(&choice.backend), began);
        }
        let (plugin, wasm) = self.plugin(&host, &objects)?;
        let datasets = self.datasets(&home)?;
        let rights = JobRights::new(&self.start, &home, self.models);
        let secrets = rights.secrets(&home, &spec.secrets).map_err(|error| Failure::broken("NO_SECRET", error))?;
        self.channel.blacken(secrets.values().cloned().collect());
        if spec.measure {
            return self.measure(&host, &plugin, &home, &choice.backend, Parts { datasets, secrets, rights, began });
        }
        let group = self.group(info)?;
        // The limit is the job's, and its processes need as much each.
        let memory_bytes = spec.gpu_memory_bytes.map(|bytes| bytes / u64::from(spec.replicas.max(1)));
        let meter = memory_bytes.map_or_else(Meter::unlimited, Meter::new);
        let checkpoints = Checkpoints::new(objects);
        choice.backend.load_tuning(&self.ways(&checkpoints));
        let context = Context::new(context::Parts {
            start: self.start.clone(),
            channel: self.channel.clone(),
            control: Arc::clone(&self.control),
            runtime: self.runtime.clone(),
            checkpoints,
            room: Room::new(self.storage_quota, home.clone(), self.models.to_owned()),
            models: Models::new(self.models),
            rights,
            home,
            plugin_wasm: wasm,
            plugin_digest: spec.plugin.clone(),
            device: format!("{} {} {}", info.name, info.adapter, info.driver),
            secrets,
        });
        let reporter = self.channel.report_usage(meter.clone(), context.spending(), began, group.clone());
        let context = self.job(context, group.clone());
        let limits = TrainLimits { memory_bytes: spec.memory_bytes, ..TrainLimits::default() };
        let outcome = train(&host, &plugin, Arc::clone(&choice.backend), meter, datasets, context, limits);
        if let (Some(group), Ok(_)) = (&group, &outcome) {
            group.finish();
        }
        reporter.finish();
        Ok(outcome?)
    }

    /// The ways in which earlier attempts computed kernels: this one must come to the same bytes. What cannot be listed cannot
    /// be restored either, and that is said then.
    fn ways(&self, checkpoints: &Checkpoints) -> TuningRecords {
        let listed = self.runtime.block_on(checkpoints.list(&self.start.job)).unwrap_or_default();
        listed.into_iter().flat_map(|checkpoint| checkpoint.ways).collect()
    }

    /// The attempt of a prediction job.
    fn predict(
        &self,
        prediction: &Prediction,
        host: &Host,
        home: &Home,
        device: Arc<dyn Backend>,
        began: Instant,
    ) -> Result<Outcome, Failure> {
        let datasets = self.datasets(home)?.into_values().next();
        let dataset = datasets.ok_or_else(|| Failure::broken("BAD_DATASET", "the job mounts none"))?;
        let meter = self.start.spec.gpu_memory_bytes.map_or_else(Meter::unlimited, Meter::new);
        let spending: Arc<Spending> = Arc::default();
        let reporter = self.channel.report_usage(meter.clone(), Arc::clone(&spending), began, None);
        let parts = prediction::Parts {
            start: &self.start,
            prediction,
            channel: self.channel,
            control: &self.control,
            home: home.clone(),
            room: Room::new(self.storage_quota, home.clone(), self.models.to_owned()),
            models: Models::new(self.models),
            dataset,
            spending,
        };
        let outcome = parts.predict(host, device, meter);
        reporter.finish();
        outcome
    }

    /// Starts the attempt's other worker processes, where there are any and this is the first. They find the plugin compiled.
    fn group(&self, device: &DeviceInfo) -> Result<Option<Arc<Group>>, Failure> {
        let Start { rank, spec, .. } = &self.start;
        let shards = ranks::shards(&self.start);
        if *rank > 0 || shards == 1 {
            return Ok(None);
        }
        let communicator = if spec.replicas > 1 { "sockets, in the order of ranks" } else { "none" };
        let (processes, device) = (spec.replicas, &device.name);
        let line = format!("processes: {processes}, device: {device}, communicator: {communicator}, shards: {shards}");
        self.channel.send(&Event::Log { level: "info".to_owned(), line });
        if spec.replicas == 1 {
            return Ok(None);
        }
        Ok(Some(Arc::new(Group::start(&self.start, self.home, self.models, self.storage_quota)?)))
    }

    /// The job as this process's plugin sees it.
    fn job(&self, context: Context, group: Option<Arc<Group>>) -> Box<dyn JobContext> {
        match (group, self.channel.leader()) {
            (Some(group), _) => Box::new(Leader::new(context, group, self.channel.clone(), ranks::shards(&self.start))),
            (None, Some(link)) => Box::new(Follower::new(context, &self.start, link)),
            (None, None) => Box::new(context),
        }
    }

    fn plugin(&self, host: &Host, objects: &Objects) -> Result<(Plugin, Bytes), Failure> {
        let digest: Digest = self.start.spec.plugin.parse().map_err(|error| Failure::broken("NO_PLUGIN", error))?;
        let wasm = self.runtime.block_on(objects.get_blob(&digest));
        let wasm = wasm.map_err(|error| Failure::broken("NO_PLUGIN", error))?;
        let plugin = host.compile(&wasm).map_err(|error| Failure::broken("BAD_PLUGIN", error))?;
        Ok((plugin, wasm))
    }

    fn datasets(&self, home: &Home) -> Result<BTreeMap<String, Arc<Dataset>>, Failure> {
        let stored = Datasets::new(home.datasets());
        let mut datasets = BTreeMap::new();
        for mount in &self.start.spec.data {
            let dataset = match &mount.source {
                Source::Dataset { .. } => {
                    stored.resolve(&mount.source.to_string()).and_then(|info| Dataset::open(&info.dir))
                }
                Source::Output { job, path } => {
                    // The supervisor has found every job that the specification names.
                    let id = self.start.jobs.get(job).map_or(job.as_str(), String::as_str);
                    Dataset::from_output(home, id, path.as_deref())
                }
            };
            let dataset = dataset.map_err(|error| Failure::broken("BAD_DATASET", error))?;
            datasets.insert(mount.mount.clone(), Arc::new(dataset));
        }
        Ok(datasets)
    }
}
