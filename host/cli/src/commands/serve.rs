//! `saggar serve`, where the floors are put together, and `saggar worker`.

mod anew;
mod configuration;
mod memory;
mod models;
mod shutdown;
mod threads;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use saggar_device::select::{self, DeviceUsage};
use saggar_device::{DeviceInfo, RecoverableDevice};
use saggar_jobs::limits::WORKER_SILENCE_MAX;
use saggar_jobs::{Jobs, LocalLauncher};
use saggar_metrics::Metrics;
use saggar_plugin::compiler::{self, ChildOptions};
use saggar_plugin::{CompileChildren, Compiler, Host, HostConfig, ModelWatch};
use saggar_serve::limits::BLOCKING_THREADS_MAX;
use saggar_serve::models::{
    DroppedFiles, Follow, Lifecycle, Loader, ModelImporter, ModelRouter, OnnxImporter, PluginHost, Revival,
};
use saggar_serve::{Access, App, Audit, Certificates, Device, Devices, Listener, MemoryBudget, Parts};
use saggar_store::usage::StorageQuota;
use saggar_store::{Clock, Datasets, Home, Models, Objects, SqliteRecords, StoreError, SystemClock, Uploads};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

use self::configuration::Configuration;
use self::memory::MemoryLimits;
use super::listen;
use crate::args::{self, CompileChild, Serve, Worker};
use crate::commands;
use crate::exit::{self, Failure};
use crate::known_homes::{DEFAULT_HOME, KnownHomes};
use crate::output::Output;

pub(crate) fn serve(args: &Serve, output: Output) -> Result<(), Failure> {
    threads::are_enough().map_err(|(count, error)| {
        let message = format!("a server needs more threads than the {count} that this system lets it start: {error}");
        Failure::new(exit::UNEXPECTED, "threads", message)
            .hint("raise `ulimit -u` of its user, or `pids.max` of its control group")
    })?;
    let is_new = !args.home.exists();
    let home = Home::open(&args.home).map_err(broken)?;
    say_home(args, &home, is_new, &KnownHomes::of_user());
    let _lock = home.lock().map_err(|error| match error {
        StoreError::HomeInUse { .. } => Failure::new(exit::CONFLICT, "home_in_use", error.to_string()),
        error => broken(error),
    })?;
    let certificates = listen::prepare(args, &home.keys())?;
    let usage = DeviceUsage { pipeline_cache_dir: Some(&home.shaders()), ..DeviceUsage::default() };
    let choice = select::open_with_usage(&args.device, usage)
        .map_err(|error| Failure::new(exit::NO_DEVICE, "no_device", error.to_string()))?;
    let info = choice.backend.info();
    tracing::info!(device = %info.name, adapter = %info.adapter, driver = %info.driver, choice = %choice.reason, "predictions run here");
    let floors = Floors::build(
        args,
        &home,
        &Arc::new(RecoverableDevice::new(Arc::clone(&choice.backend), Some(home.shaders()))),
    )?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.max_blocking_threads(BLOCKING_THREADS_MAX).enable_all().build().map_err(broken)?;
    let ran = runtime.block_on(floors.run(args, certificates, output));
    // Dropping it would wait for threads that nothing ends, such as one in a driver.
    runtime.shutdown_timeout(shutdown::THREADS_TIME_MAX);
    ran
}

/// Says where the state is. A server that begins without any, because it was started in another directory, says where there
/// is some. Only homes that were not named are remembered: the others are where somebody put them.
fn say_home(args: &Serve, home: &Home, is_new: bool, known: &KnownHomes) {
    let shown = home.root().canonicalize().unwrap_or_else(|_| home.root().to_owned());
    tracing::info!(version = env!("CARGO_PKG_VERSION"), state = %shown.display(), "the server starts");
    if args.home != Path::new(DEFAULT_HOME) {
        return;
    }
    if let Some(other) = known.others(home.root()).first().filter(|_| is_new) {
        let other = other.display();
        tracing::warn!(
            "the state directory is new; a server of yours was started with {other} before: `saggar serve --home {other}` uses that one"
        );
    }
    if let Err(error) = known.remember(home.root()) {
        tracing::debug!(%error, "the state directory is not remembered");
    }
}

/// A directory, made where it was not, by its whole path.
fn made(directory: PathBuf) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(&directory)?;
    directory.canonicalize()
}

/// Everything a server is made of, before it runs.
struct Floors {
    parts: Parts,
    loader: Loader,
    watch: ModelWatch,
    clock: Arc<dyn Clock>,
    children: CompileChildren,
}

impl Floors {
    fn build(args: &Serve, home: &Home, device: &Arc<RecoverableDevice>) -> Result<Floors, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let metrics = Arc::new(Metrics::new());
        let Configuration { layout, settings, models_dir, storage_quota } = Configuration::read(args)?;
        let models_dir = made(models_dir.unwrap_or_else(|| home.models())).map_err(broken)?;
        let objects = Objects::local(&home.objects()).map_err(broken)?;
        let datasets = Datasets::new(home.datasets());
        let records = Arc::new(SqliteRecords::open(&home.database()).map_err(broken)?);
        let program = std::env::current_exe().map_err(broken)?;
        let onnx_plugins = onnx_plugins(args.onnx_plugin.as_deref(), &program);
        let launcher = Arc::new(LocalLauncher {
            program: program.clone(),
            home: home.root().to_owned(),
            models: models_dir.clone(),
            storage_quota,
        });
        let jobs = Jobs::new(records, Arc::clone(&clock), Arc::clone(&metrics), launcher, home.jobs(), layout)
            .with_keys(home.keys())
            .with_storage_quota(storage_quota, home.clone(), models_dir.clone())
            .with_worker_silence(args.worker_silence.unwrap_or(WORKER_SILENCE_MAX));
        let children = CompileChildren::new(own_program(&program));
        let compiler = Compiler::Children(children.clone());
        let config = HostConfig { cache_dir: Some(home.cache()), compiler, ..HostConfig::default() };
        let host = Host::new(config).map_err(broken)?;
        let memory = MemoryLimits::of(args, device.current().info());
        let router = ModelRouter::new(Arc::clone(&metrics));
        let router = Arc::new(if args.no_load_on_demand { router } else { router.loading_on_demand() });
        let watch = ModelWatch::start(&models_dir).map_err(broken)?;
        let importer: Arc<dyn ModelImporter> = Arc::new(OnnxImporter {
            host: host.clone(),
            device: Arc::clone(device),
            models: Models::new(&models_dir),
            plugin_paths: onnx_plugins,
            clock: Arc::clone(&clock),
            time: args.import_timeout,
        });
        let (bytes_max, time) = (memory.models_bytes, args.load_timeout);
        let plugin_host =
            Arc::new(PluginHost::new(host.clone(), Arc::clone(device), bytes_max, time, Arc::clone(&metrics)));
        let (models, shown, counted) = (Models::new(&models_dir), Arc::clone(&router), Arc::clone(&metrics));
        let lifecycle = Lifecycle::new(models, plugin_host, shown, counted, Arc::clone(&clock), bytes_max);
        let follow = match args.follow {
            args::Follow::Newest => Follow::Newest,
            args::Follow::Promoted => Follow::Promoted,
        };
        let lifecycle = Arc::new(lifecycle.with_settings(settings).following(follow));
        let dropped = DroppedFiles::new(&models_dir, Arc::clone(&importer));
        let loader = Loader::new(Arc::clone(&lifecycle)).with_dropped(dropped);
        let parts = Parts {
            models: router,
            lifecycle,
            jobs,
            home: home.clone(),
            models_dir: models_dir.clone(),
            storage_quota: storage_quota.map(|limit_bytes| StorageQuota { limit_bytes }),
            objects,
            uploads: Uploads::new(home.uploads(), datasets.clone()),
            datasets,
            importer,
            inspector: Arc::new(host),
            devices: devices(args, program.clone(), device.current().info(), &metrics),
            webhooks: args.webhooks_allow.clone(),
            access: Arc::new(
                Access::new(home.keys(), home.key_usage(), Arc::clone(&clock), Arc::clone(&metrics))
                    .with_hosts(args.allow_host.clone()),
            ),
            audit: Audit::new(home.audit_log(), Arc::clone(&clock)),
            memory: MemoryBudget::new(memory.requests_bytes),
            metrics,
        };
        Ok(Floors { parts, loader, watch, clock, children })
    }

    /// Serves until Ctrl-C or SIGTERM; then lets requests finish and jobs save their state.
    async fn run(self, args: &Serve, certificates: Option<Certificates>, output: Output) -> Result<(), Failure> {
        let listeners = listen::open(args, certificates).await?;
        let (shutdown, down) = watch::channel(false);
        let (jobs, models) = (self.parts.jobs.clone(), Arc::clone(&self.parts.models));
        let keeping = tokio::spawn(Arc::clone(&self.parts.lifecycle).keep_house(down.clone()));
        let device = tokio::spawn(Arc::clone(&self.parts.lifecycle).keep_device(down.clone()));
        let app = App::new(self.parts, self.clock, down.clone());
        let loader = vital("models are not loaded", tokio::spawn(self.loader.run(self.watch, down.clone())), &shutdown);
        let keeping = vital("memory of models is not kept", keeping, &shutdown);
        let running = tokio::spawn({
            let down = down.clone();
            async move { jobs.run(down).await }
        });
        let running = vital("jobs are not run", running, &shutdown);
        let urls: Vec<String> = listeners.iter().map(Listener::url).collect();
        urls.iter().for_each(|url| tracing::info!("serving on {url}"));
        // The only data, a line for each place: scripts read the address from it. In one piece, for a script that reads
        // the first and closes the pipe ends the command with its next write.
        if !anew::is_begun() {
            output.text(&format!("{}\n", urls.join("\n")));
        }
        let ended = shutdown.clone();
        tokio::spawn(async move {
            if matches!(device.await, Ok(Revival::Impossible)) {
                tracing::warn!("the server begins anew, for a new process may get a device");
                let error = anew::begin(&urls);
                tracing::error!(%error, "it cannot begin anew, and ends");
                ended.send_replace(true);
            }
        });
        let waits = shutdown::ShutdownProgress::new();
        shutdown::watch(shutdown.clone(), args.end_with_input, waits.clone(), models);
        let (children, mut stopping) = (self.children, shutdown.subscribe());
        tokio::spawn(async move {
            // An error means that the server is gone.
            let _ = stopping.wait_for(|&stop| stop).await;
            children.stop();
        });
        let served = saggar_serve::serve(listeners, app, down).await;
        shutdown.send_replace(true);
        served.map_err(broken)?;
        waits.on("models");
        loader.await.flatten().map_err(broken)?;
        keeping.await.flatten().map_err(broken)?;
        waits.on("jobs");
        running.await.flatten().map_err(broken)?.map_err(broken)
    }
}

/// A part that the server is nothing without. Where it panics the server ends, for one that goes on without it would take
/// work and never do it; `without` says what that would be.
fn vital<T: Send + 'static>(
    without: &'static str,
    part: JoinHandle<T>,
    shutdown: &watch::Sender<bool>,
) -> JoinHandle<Result<T, JoinError>> {
    let shutdown = shutdown.clone();
    tokio::spawn(async move {
        let ended = part.await;
        if let Err(error) = &ended {
            tracing::error!(%error, without, "a part of the server failed, and the server ends");
            shutdown.send_replace(true);
        }
        ended
    })
}

/// This build of the program, although its file may have been replaced by another.
fn own_program(program: &Path) -> PathBuf {
    let running = Path::new("/proc/self/exe");
    if running.exists() { running.to_owned() } else { program.to_owned() }
}

/// Where the plugin that reads ONNX files may be: where the user says, beside the program, or where the project builds it.
pub(crate) fn onnx_plugins(named: Option<&Path>, program: &Path) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named.to_owned()];
    }
    let beside = program.parent().unwrap_or(Path::new("."));
    vec![beside.join("plugins/onnx.wasm"), beside.join("../../plugins/target/saggar/onnx.wasm")]
}

/// The devices of this machine: the one that serves at once, the others when they are found, in the background.
fn devices(args: &Serve, program: PathBuf, serving: &DeviceInfo, metrics: &Arc<Metrics>) -> Arc<Devices> {
    let (serves, job_slots) = (serving.clone(), args.jobs);
    let device = move |info: DeviceInfo| Device { serves: info.name == serves.name, job_slots, info };
    let devices = Arc::new(Devices::searching(vec![device(serving.clone())]));
    let (found, metrics) = (Arc::clone(&devices), Arc::clone(metrics));
    let look = move || {
        let list = commands::devices::ask(&program, commands::devices::LIMIT).unwrap_or_else(|ended| {
            tracing::warn!(?ended, "devices are not known: a driver hangs or dies; `saggar doctor` tells more");
            Vec::new()
        });
        for info in &list {
            let labels = [&info.name, &info.adapter, &info.vendor, &info.driver, &info.backend];
            metrics.families.gpu_info.with_label_values(&labels).set(1.0);
        }
        found.found(list.into_iter().map(device).collect());
    };
    if let Err(error) = std::thread::Builder::new().name("devices".to_owned()).spawn(look) {
        tracing::warn!(%error, "devices are not looked for");
        devices.found(Vec::new());
    }
    devices
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::new(exit::UNEXPECTED, "unexpected", error.to_string())
}

/// Compiles within limits and returns the exit code.
pub(crate) fn compile_child(args: &CompileChild) -> i32 {
    compiler::run_child(&ChildOptions {
        kind: args.kind.clone(),
        memory_bytes: args.memory_bytes,
        cpu_seconds: args.cpu_seconds,
        cache_dir: args.cache.clone(),
    })
}

/// Runs one attempt and returns the worker's exit code. The runtime drives the object store beside this thread.
pub(crate) fn worker(args: &Worker) -> Result<i32, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(broken)?;
    let code = saggar_jobs::worker::run(&args.home, &args.models, args.storage_quota, runtime.handle());
    // What was to be kept is kept: nothing that still waits for the disk may hold up the end of the attempt.
    runtime.shutdown_background();
    Ok(code)
}
