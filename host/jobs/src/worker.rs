//! A worker: one attempt of one job, in a process of its own, so that a crash, a kill or a lost device costs that
//! attempt only. It opens the device, compiles the plugin, mounts the datasets and runs the plugin's training.

mod channel;
mod context;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use saggar_device::{Meter, choose};
use saggar_plugin::{Host, HostConfig, Outcome, Plugin, PluginError, TrainLimits, train};
use saggar_store::{Checkpoints, Dataset, Datasets, Digest, Home, Models, Objects};

use crate::protocol::{EXIT_BROKEN, EXIT_DONE, EXIT_FAILED, EXIT_OUT_OF_MEMORY, EXIT_TRY_AGAIN, Event, Start};
use channel::{Channel, Control};
use context::Context;

/// Runs the attempt that the supervisor describes on standard input, on the state directory `home`, publishing to
/// `models`. Returns the process's exit code.
///
/// `runtime` drives the object store; it must not be the runtime that calls this, which blocks.
pub fn run(home: &Path, models: &Path, runtime: &tokio::runtime::Handle) -> i32 {
    let channel = Channel::new();
    let (start, control) = match channel.receive_start() {
        Ok(received) => received,
        Err(error) => return fail(&channel, "BAD_COMMAND", &error.to_string(), EXIT_BROKEN),
    };
    let attempt = Attempt { home, models, runtime, channel: &channel, control, start };
    match attempt.run() {
        Ok(Outcome::Finished) => finish(&channel, false),
        Ok(Outcome::Stopped) => finish(&channel, true),
        Err(Failure { reason, message, code }) => fail(&channel, reason, &message, code),
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
            "DEVICE_LOST" => EXIT_TRY_AGAIN,
            "OUT_OF_MEMORY" | "MEMORY_LIMIT" | "HANDLE_LIMIT" => EXIT_OUT_OF_MEMORY,
            _ => EXIT_FAILED,
        };
        Failure { reason: error.reason(), message: error.to_string(), code }
    }
}

struct Attempt<'a> {
    home: &'a Path,
    models: &'a Path,
    runtime: &'a tokio::runtime::Handle,
    channel: &'a Channel,
    control: Arc<Control>,
    start: Start,
}

impl Attempt<'_> {
    fn run(self) -> Result<Outcome, Failure> {
        let spec = &self.start.spec;
        let choice = choose::open(&spec.device).map_err(|error| Failure::broken("NO_DEVICE", error))?;
        let info = choice.backend.info();
        self.channel.send(&Event::Started {
            device: info.name.clone(),
            adapter: info.adapter.clone(),
            driver: info.driver.clone(),
            exact_seconds: info.exact_seconds,
            choice: choice.reason.clone(),
        });
        let began = Instant::now();
        let home = Home::open(self.home).map_err(|error| Failure::broken("BAD_HOME", error))?;
        let objects = Objects::local(&home.objects()).map_err(|error| Failure::broken("BAD_HOME", error))?;
        let host = Host::new(HostConfig { cache_dir: Some(home.cache()), ..HostConfig::default() })?;
        let (plugin, wasm) = self.plugin(&host, &objects)?;
        let datasets = self.datasets(&home)?;
        let meter = spec.gpu_memory_bytes.map_or_else(Meter::unlimited, Meter::new);
        let context = Context::new(context::Parts {
            start: self.start.clone(),
            channel: self.channel.clone(),
            control: Arc::clone(&self.control),
            runtime: self.runtime.clone(),
            checkpoints: Checkpoints::new(objects),
            models: Models::new(self.models),
            home,
            plugin_wasm: wasm,
            plugin_digest: spec.plugin.clone(),
            device: format!("{} {} {}", info.name, info.adapter, info.driver),
        });
        let reporter = self.channel.report_usage(meter.clone(), context.samples(), began);
        let limits = TrainLimits { memory_bytes: spec.memory_bytes, ..TrainLimits::default() };
        let outcome = train(&host, &plugin, Arc::clone(&choice.backend), meter, datasets, Box::new(context), limits);
        reporter.finish();
        Ok(outcome?)
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
            let version = mount.version.map_or_else(String::new, |version| format!("/{version}"));
            let info = stored.resolve(&format!("{}{version}", mount.dataset));
            let dataset = info.and_then(|info| Dataset::open(&info.dir));
            let dataset = dataset.map_err(|error| Failure::broken("BAD_DATASET", error))?;
            datasets.insert(mount.mount.clone(), Arc::new(dataset));
        }
        Ok(datasets)
    }
}
