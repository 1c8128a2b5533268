//! `saggar serve`, which assembles the crates into a server, and `saggar worker attempt`.

mod abandoned_content;
mod addresses;
mod engines;
mod graph_inspector;
pub(super) mod job_host;
mod join_settings;
mod memory;
mod model_watch;
mod models;
pub(super) mod object_storage;
mod rank_address;
mod reexec;
mod repeated_work;
mod server_config;
mod shared_models;
pub(super) mod shared_records;
pub(super) mod shutdown;
mod telemetry;
mod threads;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use saggar_clock::{Clock, SystemClock};
use saggar_compile::{DisabledOptimizations, Optimization};
use saggar_device::DeviceInfo;
use saggar_devices::RecoverableDevice;
use saggar_devices::{self, DeviceUsage};
use saggar_fetch::RemoteFetcher;
use saggar_metrics::MetricsRegistry;
use saggar_pipelines::PipelineService;
use saggar_plugin::compiler::{self, ChildOptions};
use saggar_plugin::{CompileChildren, CompilerMode, PluginEngine, PluginEngineConfig};
use saggar_serve::{
    AccessControl, AppParts, AppState, DeviceInventory, MachineDevice, PredictionRecorder, TlsCertificates,
    decode_sample,
};
use saggar_serving::limits::BLOCKING_THREADS_MAX;
use saggar_serving::{
    DeviceRecovery, DroppedFiles, FollowPolicy, ModelImporter, ModelLifecycle, ModelRouter, OnnxImporter, PluginHost,
    ReconcileLoop, RequestMemoryBudget,
};
use saggar_store::records::JobRecords;
use saggar_store::signature::VerifyingKey;
use saggar_store::storage_usage::StorageQuota;
use saggar_store::{DatasetStore, ExternalRunStore, KeyFile, ModelRegistry, ProjectAssignments, StateDir, StoreError};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

use self::addresses::announce_addresses;
use self::graph_inspector::ChildGraphInspector;
use self::job_host::{DevicesFound, JobHostParts};
use self::memory::MemoryLimits;
use self::model_watch::ModelWatch;
use self::server_config::ServerConfig;
use self::shared_records::ServerRecords;
use self::shutdown::ShutdownWatch;
use super::key::signing::read_public_key;
use super::listeners;
use super::systemd_sockets::SystemdSocket;
use crate::args::{self, AttemptArgs, CompileChildArgs, ServeArgs};
use crate::commands;
use crate::exit::{self, CliError};
use crate::known_state_dirs::{DEFAULT_STATE_DIR, KnownStateDirs};
use crate::output::CliOutput;

pub(crate) fn serve(args: &ServeArgs, output: CliOutput) -> Result<(), CliError> {
    threads::check_thread_limit().map_err(|(count, error)| {
        let message = format!("a server needs more threads than the {count} that this system lets it start: {error}");
        CliError::new(exit::UNEXPECTED, "threads", message)
            .with_hint("raise `ulimit -u` of its user, or `pids.max` of its control group")
    })?;
    let is_new = !args.home.exists();
    let home = StateDir::open(&args.home).map_err(unexpected_error)?;
    log_state_dir(args, &home, is_new, &KnownStateDirs::for_current_user());
    let _lock = home.lock().map_err(|error| match error {
        StoreError::HomeInUse { .. } => CliError::new(exit::CONFLICT, "home_in_use", error.to_string()),
        error => unexpected_error(error),
    })?;
    if args.notebooks > 0 {
        saggar_notebook::sandbox::check().map_err(|error| CliError::invalid(format!("--notebooks: {error}")))?;
    }
    let inherited = SystemdSocket::take(args)?;
    let records = ServerRecords::open(&args.database, &home)?;
    let certificates = listeners::check_exposure(args, &inherited, &records.keys)?;
    let without = args.without.of_server()?;
    let shaders = without.enables(Optimization::ShaderCache).then(|| home.shaders());
    let usage = DeviceUsage { pipeline_cache_dir: shaders.as_deref(), ..DeviceUsage::default() };
    let choice = saggar_devices::open_with_usage(&args.device, usage)
        .map_err(|error| CliError::new(exit::NO_DEVICE, "no_device", error.to_string()))?;
    let info = choice.backend.info();
    tracing::info!(device = %info.name, adapter = %info.adapter, driver = %info.driver, choice = %choice.reason, "predictions run here");
    let device = saggar_device::without_optimizations(Arc::clone(&choice.backend), without);
    let floors = ServerParts::assemble(args, &home, records, &Arc::new(RecoverableDevice::new(device, shaders)))?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.max_blocking_threads(BLOCKING_THREADS_MAX).enable_all().build().map_err(unexpected_error)?;
    let ran = runtime.block_on(floors.run(args, inherited, certificates, output));
    // Dropping the runtime would wait for threads that never end, such as one in a driver.
    runtime.shutdown_timeout(shutdown::THREADS_TIME_MAX);
    ran
}

/// Logs the state directory. If it is new, possibly because the server was started in another directory, names an
/// existing one. Only default directories are remembered, because a user knows the ones given explicitly.
fn log_state_dir(args: &ServeArgs, home: &StateDir, is_new: bool, known: &KnownStateDirs) {
    let state_dir = home.root().canonicalize().unwrap_or_else(|_| home.root().to_owned());
    tracing::info!(version = env!("CARGO_PKG_VERSION"), state = %state_dir.display(), "the server starts");
    if args.home != Path::new(DEFAULT_STATE_DIR) {
        return;
    }
    if let Some(other) = known.others(home.root()).first().filter(|_| is_new) {
        let other = other.display();
        tracing::warn!(
            "the state directory is new; your servers used {other} before: `saggar serve --home {other}` uses it again"
        );
    }
    if let Err(error) = known.remember(home.root()) {
        tracing::debug!(%error, "the state directory is not remembered");
    }
}

/// Creates a directory if needed, and returns its canonical path.
fn create_dir_canonical(directory: PathBuf) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(&directory)?;
    directory.canonicalize()
}

/// The parts of a server before it runs.
struct ServerParts {
    parts: AppParts,
    registry: ModelRegistry,
    loader: ReconcileLoop,
    watch: ModelWatch,
    clock: Arc<dyn Clock>,
    children: CompileChildren,
    recorder: Option<Arc<PredictionRecorder>>,
}

impl ServerParts {
    fn assemble(
        args: &ServeArgs,
        home: &StateDir,
        records: ServerRecords,
        device: &Arc<RecoverableDevice>,
    ) -> Result<ServerParts, CliError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let metrics = Arc::new(MetricsRegistry::new());
        let observer = telemetry::start_telemetry(args, &metrics)?;
        let ServerConfig { scheduler_config: layout, settings, recordings, models_dir, storage_quota, engine_pools } =
            ServerConfig::read(args)?;
        let recorder = PredictionRecorder::new(recordings, &metrics);
        let models_dir = create_dir_canonical(models_dir.unwrap_or_else(|| home.models())).map_err(unexpected_error)?;
        let (home, objects) = &object_storage::open(args.objects.as_deref(), home.clone())?;
        let home = &shared_records::count_bucket(home, &records.records);
        let datasets = DatasetStore::of_home(home);
        let program = std::env::current_exe().map_err(unexpected_error)?;
        let (keys, secrets) = (records.keys.clone(), records.secrets.clone());
        let offer = job_host::server_offer(args, device.current().info());
        let host = JobHostParts::of_server(args, (home, objects), &models_dir, records, (layout, storage_quota));
        let host = JobHostParts { offer, clock: Arc::clone(&clock), metrics: Arc::clone(&metrics), ..host };
        let jobs = host.assemble(&program)?.with_tracer(observer.tracer.clone());
        let join_settings = join_settings::join_settings(args, storage_quota)?;
        let jobs = engines::with_engines(jobs, &engine_pools, args, join_settings.as_ref())?;
        let without = args.without.of_server()?;
        let (host, children) = plugin_engine(home, &program, without)?;
        let memory = MemoryLimits::from_args(args, device.current().info());
        let router = model_router(args, &metrics);
        let watch = ModelWatch::start(&models_dir)?;
        let registry = shared_models::open_registry(&args.database, home, &models_dir, &jobs.records());
        let importer = onnx_importer(args, &host, device, registry.clone(), &clock);
        let (bytes_max, time) = (memory.models_bytes, args.load_timeout);
        let plugin_host =
            Arc::new(PluginHost::new(host.clone(), Arc::clone(device), bytes_max, time, Arc::clone(&metrics)));
        let (models, routes, counters) = (registry.clone(), Arc::clone(&router), Arc::clone(&metrics));
        let lifecycle =
            ModelLifecycle::new(models, plugin_host, routes, counters, Arc::clone(&clock), bytes_max, decode_sample);
        let lifecycle = lifecycle.with_default_configs(settings).with_disabled_optimizations(without);
        let lifecycle = Arc::new(lifecycle.with_follow_policy(follow_policy(args.follow)));
        let dropped = DroppedFiles::new(&models_dir, Arc::clone(&importer));
        let loader = ReconcileLoop::new(Arc::clone(&lifecycle)).with_dropped(dropped);
        let (jobs_records, host_name) = (jobs.records(), jobs.host_name().to_owned());
        let devices_found = job_host::report_devices(args.database.is_set(), &jobs);
        let parts = AppParts {
            models: router,
            lifecycle,
            pipelines: PipelineService::new(jobs.records(), Arc::clone(&clock), &metrics),
            jobs,
            home: home.clone(),
            model_projects: ProjectAssignments::of_models(home, &models_dir),
            dataset_projects: ProjectAssignments::of_datasets(home),
            models_dir: models_dir.clone(),
            storage_quota: storage_quota.map(|limit_bytes| StorageQuota { limit_bytes }),
            objects: objects.clone(),
            uploads: shared_records::open_uploads(home, &jobs_records, datasets.clone()),
            datasets,
            importer,
            trusted_keys: trusted_keys(args)?,
            inspector: Arc::new(host),
            graphs: Arc::new(ChildGraphInspector::new(running_executable(&program))),
            devices: discover_devices(args, program.clone(), device.current().info(), &metrics, &devices_found),
            fetcher: RemoteFetcher::new(args.fetch.policy()),
            webhooks: args.allow_webhook.clone(),
            access: access_control(args, home, keys, &jobs_records, &clock, &metrics),
            secrets,
            audit: shared_records::open_audit_log(home, &jobs_records, &host_name, &clock)?,
            memory: RequestMemoryBudget::new(memory.requests_bytes),
            metrics,
            external_runs: ExternalRunStore::new(home.external_runs()),
            mlflow_ui: mlflow_pages(args)?,
            join_settings,
            sampler: recorder.as_ref().map(|recorder| recorder.sampler()),
            observer,
        };
        Ok(ServerParts { parts, registry, loader, watch, clock, children, recorder })
    }

    /// Serves until Ctrl-C or SIGTERM; then lets requests finish and jobs save their state.
    async fn run(
        self,
        args: &ServeArgs,
        inherited: Vec<SystemdSocket>,
        certificates: Option<TlsCertificates>,
        output: CliOutput,
    ) -> Result<(), CliError> {
        object_storage::check(args.objects.as_deref(), &self.parts.objects, &*self.clock).await?;
        object_storage::warn_about_unused_data(&self.parts.home);
        shared_models::synchronize(&self.registry).await;
        let has_inherited = !inherited.is_empty();
        let listeners = listeners::open_listeners(args, inherited, certificates).await?;
        let (shutdown, down) = watch::channel(false);
        let (jobs, models) = (self.parts.jobs.clone(), Arc::clone(&self.parts.models));
        let pipelines = self.parts.pipelines.clone();
        let (observer, audit) = (self.parts.observer.clone(), self.parts.audit.clone());
        telemetry::reopen_on_hangup(&observer);
        shared_models::keep_synchronized(&self.registry, &self.parts, &self.clock, &down);
        let keeping = tokio::spawn(Arc::clone(&self.parts.lifecycle).run_residency_loop(down.clone()));
        let device = tokio::spawn(Arc::clone(&self.parts.lifecycle).recover_lost_devices(down.clone()));
        let app = AppState::new(self.parts, self.clock, down.clone());
        if let Some(recorder) = &self.recorder {
            recorder.start(&app);
        }
        tokio::spawn(app.clone().sample_history(down.clone()));
        abandoned_content::keep_removing(&app, &down);
        let loader = stop_server_on_panic(
            "models are not loaded",
            tokio::spawn(self.loader.run(self.watch, down.clone())),
            &shutdown,
        );
        let keeping =
            stop_server_on_panic("models are not unloaded when idle or over the memory limit", keeping, &shutdown);
        let driving = drive_pipelines(pipelines, jobs.subscribe_changes(), &shutdown);
        let jobs_down = down.clone();
        let running = tokio::spawn(async move { jobs.run(jobs_down).await });
        let running = stop_server_on_panic("jobs are not run", running, &shutdown);
        let sweeping = spawn_sweeps(&app, &shutdown);
        let waits = shutdown::ShutdownProgress::new();
        let cut_off = move || models.running_models();
        let watch = ShutdownWatch { shutdown: shutdown.clone(), input_ends: args.end_with_input, waits: waits.clone() };
        watch.spawn(shutdown::SHUTDOWN_TIME_MAX, cut_off);
        let urls = announce_addresses(&listeners, &app, output);
        let ended = shutdown.clone();
        tokio::spawn(async move {
            if matches!(device.await, Ok(DeviceRecovery::Impossible)) {
                reexec::replace_server(has_inherited, &urls);
                ended.send_replace(true);
            }
        });
        let (children, mut stopping) = (self.children, shutdown.subscribe());
        tokio::spawn(async move {
            // An error means that the server is gone.
            let _ = stopping.wait_for(|&stop| stop).await;
            children.stop();
        });
        // Recording needs the server until its last rows are stored.
        let recorded_app = self.recorder.is_some().then(|| app.clone());
        let served = saggar_serve::serve(listeners, app, down).await;
        shutdown.send_replace(true);
        served.map_err(unexpected_error)?;
        if let Some(recorder) = &self.recorder {
            waits.set_waiting_for("recorded predictions");
            recorder.stop().await;
        }
        drop(recorded_app);
        waits.set_waiting_for("models");
        loader.await.flatten().map_err(unexpected_error)?;
        keeping.await.flatten().map_err(unexpected_error)?;
        driving.await.flatten().map_err(unexpected_error)?;
        waits.set_waiting_for("jobs");
        sweeping.await.flatten().map_err(unexpected_error)?;
        let ran = running.await.flatten().map_err(unexpected_error)?.map_err(unexpected_error);
        telemetry::flush_telemetry(&observer);
        shared_records::flush_audit_log(audit).await;
        ran
    }
}

/// Reads the keys that can sign bundles.
fn trusted_keys(args: &ServeArgs) -> Result<Vec<VerifyingKey>, CliError> {
    args.trusted_key.iter().map(|key| read_public_key(key)).collect()
}

fn model_router(args: &ServeArgs, metrics: &Arc<MetricsRegistry>) -> Arc<ModelRouter> {
    let router = ModelRouter::new(Arc::clone(metrics));
    Arc::new(if args.no_load_on_demand { router } else { router.with_on_demand_loading() })
}

/// Returns the directory of MLflow's pages, which must hold them.
fn mlflow_pages(args: &ServeArgs) -> Result<Option<PathBuf>, CliError> {
    let Some(directory) = &args.mlflow_ui else { return Ok(None) };
    if !directory.join("index.html").is_file() {
        let message = format!("--mlflow-ui {}: there is no index.html in it", directory.display());
        let hint =
            "the directory is mlflow/server/js/build of an installed MLflow; `pip show -f mlflow` says where it is";
        return Err(CliError::invalid(message).with_hint(hint));
    }
    Ok(Some(directory.clone()))
}

/// Starts the task that drives the pipeline runs. `changes` is notified of every change of a job.
fn drive_pipelines(
    pipelines: PipelineService,
    changes: watch::Receiver<u64>,
    shutdown: &watch::Sender<bool>,
) -> JoinHandle<Result<(), JoinError>> {
    let down = shutdown.subscribe();
    let driving = tokio::spawn(async move { pipelines.run(changes, down).await });
    stop_server_on_panic("pipelines are not run", driving, shutdown)
}

/// Creates the engine of plugins, which compiles in child processes.
fn plugin_engine(
    home: &StateDir,
    program: &Path,
    without: DisabledOptimizations,
) -> Result<(PluginEngine, CompileChildren), CliError> {
    let children = CompileChildren::new(running_executable(program));
    let compiler = CompilerMode::Children(children.clone());
    let cache_dir = without.enables(Optimization::ComponentCache).then(|| home.cache());
    let config = PluginEngineConfig { cache_dir, compiler, ..PluginEngineConfig::default() };
    Ok((PluginEngine::new(config).map_err(unexpected_error)?, children))
}

/// Loads the keys of the server.
fn access_control(
    args: &ServeArgs,
    home: &StateDir,
    keys: KeyFile,
    records: &Arc<dyn JobRecords>,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<MetricsRegistry>,
) -> Arc<AccessControl> {
    let access = AccessControl::new(keys, home.key_usage(), Arc::clone(clock), Arc::clone(metrics));
    let access = if records.is_shared() { access.with_shared_usage(Arc::clone(records)) } else { access };
    Arc::new(access.with_hosts(args.allow_host.clone()))
}

fn follow_policy(mode: args::FollowMode) -> FollowPolicy {
    match mode {
        args::FollowMode::Newest => FollowPolicy::Newest,
        args::FollowMode::Promoted => FollowPolicy::Promoted,
    }
}

/// Follows the sweeps until the server stops.
fn spawn_sweeps(app: &AppState, shutdown: &watch::Sender<bool>) -> JoinHandle<Result<(), JoinError>> {
    let (sweeps, until) = (app.sweeps().clone(), shutdown.subscribe());
    let following = tokio::spawn(async move { sweeps.run(until).await });
    stop_server_on_panic("sweeps are not followed", following, shutdown)
}

/// Supervises a part that the server cannot work without. If it panics the server ends, because otherwise it would
/// accept work and never do it. `without` describes what would be missing.
fn stop_server_on_panic<T: Send + 'static>(
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

/// Returns the importer of ONNX files.
fn onnx_importer(
    args: &ServeArgs,
    host: &PluginEngine,
    device: &Arc<RecoverableDevice>,
    models: ModelRegistry,
    clock: &Arc<dyn Clock>,
) -> Arc<dyn ModelImporter> {
    Arc::new(OnnxImporter {
        host: host.clone(),
        device: Arc::clone(device),
        models,
        plugin_path: args.onnx_plugin.clone(),
        clock: Arc::clone(clock),
        time: args.import_timeout,
    })
}

/// Returns the path of the running executable, even if its file was replaced.
fn running_executable(program: &Path) -> PathBuf {
    let running = Path::new("/proc/self/exe");
    if running.exists() { running.to_owned() } else { program.to_owned() }
}

/// Discovers the devices of this machine: the serving device immediately, the others in the background.
fn discover_devices(
    args: &ServeArgs,
    program: PathBuf,
    serving: &DeviceInfo,
    metrics: &Arc<MetricsRegistry>,
    found_by: &DevicesFound,
) -> Arc<DeviceInventory> {
    let (serves, job_slots) = (serving.clone(), args.jobs);
    let device = move |info: DeviceInfo| MachineDevice { serves: info.name == serves.name, job_slots, info };
    let devices = Arc::new(DeviceInventory::with_search_pending(vec![device(serving.clone())]));
    let (found, metrics, report) = (Arc::clone(&devices), Arc::clone(metrics), Arc::clone(found_by));
    let look = move || {
        let list =
            commands::devices::query_devices(&program, commands::devices::PROBE_TIME_MAX).unwrap_or_else(|ended| {
                tracing::warn!(?ended, "devices are unknown, because a driver hangs or crashes; see `saggar doctor`");
                Vec::new()
            });
        for info in &list {
            let labels = [&info.name, &info.adapter, &info.vendor, &info.driver, &info.backend];
            metrics.families.device_info.with_label_values(&labels).set(1.0);
        }
        report(&list);
        found.finish_search(list.into_iter().map(device).collect());
    };
    if let Err(error) = std::thread::Builder::new().name("devices".to_owned()).spawn(look) {
        tracing::warn!(%error, "the devices are not listed");
        devices.finish_search(Vec::new());
    }
    devices
}

pub(in crate::commands) fn unexpected_error(error: impl std::fmt::Display) -> CliError {
    CliError::new(exit::UNEXPECTED, "unexpected", error.to_string())
}

/// Compiles within limits and returns the exit code.
pub(crate) fn run_compile_child(args: &CompileChildArgs) -> i32 {
    compiler::run_child(&ChildOptions {
        kind: args.kind.clone(),
        memory_bytes: args.memory_bytes,
        cpu_seconds: args.cpu_seconds,
        cache_dir: args.cache.clone(),
    })
}

/// Runs one attempt and returns the worker's exit code. The runtime drives the object store beside this thread.
pub(crate) fn run_worker(args: &AttemptArgs) -> Result<i32, CliError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(unexpected_error)?;
    let code = saggar_jobs::worker::run(&args.locations(), runtime.handle());
    // Everything durable is written already, so pending disk work must not delay the end of the attempt.
    runtime.shutdown_background();
    Ok(code)
}
