//! The settings of a worker: those that the server gave, and what this host offers.

use std::path::Path;
use std::time::Duration;

use saggar_fetch::{FetchPolicy, UrlPrefix};
use saggar_jobs::engine::WORKER_SETTINGS_VARIABLE;
use saggar_jobs::limits::WORKER_SILENCE_MAX;
use saggar_jobs::scheduler_config::ANY_POOL;
use saggar_jobs::{JobQueue, ResourceQuota, SchedulerConfig, SlotPool};
use saggar_rest::workers::WorkerJobSettings;
use saggar_store::records::{HostKind, HostOffer, HostReserve};

use crate::args::WorkerOfferArgs;
use crate::commands::devices::{PROBE_TIME_MAX, query_devices};
use crate::commands::serve::job_host;
use crate::exit::CliError;

/// Reads the settings of jobs from the environment. Without them, there is the queue `default` with one slot.
///
/// # Errors
/// Fails if the variable is not valid.
pub(super) fn job_settings() -> Result<Option<WorkerJobSettings>, CliError> {
    let Some(text) = std::env::var(WORKER_SETTINGS_VARIABLE).ok().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let bad = |error| CliError::invalid(format!("{WORKER_SETTINGS_VARIABLE} is not the settings of a worker: {error}"));
    serde_json::from_str(&text).map(Some).map_err(bad)
}

/// Returns the pools, queues and limits, with the slots and the device of this host.
///
/// # Errors
/// Fails if a pool, a queue or a limit is not valid.
pub(super) fn scheduler_config(
    settings: Option<&WorkerJobSettings>,
    offer: &WorkerOfferArgs,
) -> Result<SchedulerConfig, CliError> {
    let mut config = match settings {
        None => SchedulerConfig::single_queue(1),
        Some(settings) => server_config(settings),
    };
    for (name, pool) in &mut config.pools {
        let own = offer.slots.map(|slots| slots.saturating_mul(1000));
        pool.slots_milli = match own {
            Some(slots_milli) => slots_milli,
            // The server's own slots of this pool are for its own devices.
            None if name == ANY_POOL => 1000,
            None => pool.slots_milli,
        };
        pool.device = pool.device.take().or_else(|| offer.device.clone());
    }
    config.validate().map_err(|error| CliError::invalid(error.to_string()))?;
    Ok(config)
}

fn server_config(settings: &WorkerJobSettings) -> SchedulerConfig {
    let mut config = SchedulerConfig::single_queue(1);
    config.pools.clear();
    config.queues.clear();
    for (name, pool) in &settings.pools {
        let reserve = if pool.preemptible_only { HostReserve::PreemptibleOnly } else { HostReserve::None };
        let slots_milli = (pool.slots * 1000.0).round() as u32;
        let pool = SlotPool { device: pool.device.clone(), slots_milli, labels: pool.labels.clone(), reserve };
        config.pools.insert(name.clone(), pool);
    }
    for (name, queue) in &settings.queues {
        let (pools, spill, max_running_jobs) = (queue.pools.clone(), queue.spill, queue.max_running_jobs);
        config.queues.insert(name.clone(), JobQueue { pools, spill, max_running_jobs });
    }
    for (name, limits) in &settings.projects {
        let quota = ResourceQuota { max_running_jobs: limits.max_running_jobs, gpu_seconds: limits.gpu_seconds };
        config.projects.insert(name.clone(), quota);
    }
    config
}

/// Returns what data steps can fetch.
///
/// # Errors
/// Fails if a prefix is not a URL.
pub(super) fn fetch_policy(settings: Option<&WorkerJobSettings>) -> Result<FetchPolicy, CliError> {
    let Some(settings) = settings else { return Ok(FetchPolicy::default()) };
    let allowed = settings.fetch_from.iter().map(|prefix| prefix.parse::<UrlPrefix>()).collect::<Result<_, _>>();
    let allowed = allowed.map_err(|error| CliError::invalid(format!("fetch_from: {error}")))?;
    Ok(FetchPolicy { allowed, allow_private: settings.fetch_private })
}

/// Returns the maximum time without a heartbeat of an attempt's process.
pub(super) fn worker_silence(settings: Option<&WorkerJobSettings>) -> Duration {
    let seconds = settings.map(|settings| settings.worker_silence_seconds).filter(|seconds| *seconds > 0.0);
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(WORKER_SILENCE_MAX)
}

/// Returns what this host offers. Looks for its devices, which takes up to seconds.
pub(super) fn host_offer(offer: &WorkerOfferArgs, program: &Path) -> HostOffer {
    let devices = query_devices(program, PROBE_TIME_MAX).unwrap_or_else(|ended| {
        tracing::warn!(?ended, "only the device cpu is used, because a driver hangs or crashes; see `saggar doctor`");
        Vec::new()
    });
    let has_gpu = job_host::has_gpu(&devices);
    let mut devices: Vec<String> = devices.into_iter().map(|device| device.name).collect();
    if devices.is_empty() {
        devices.push("cpu".to_owned());
    }
    let implied = if offer.preemptible { HostReserve::PreemptibleOnly } else { HostReserve::None };
    HostOffer {
        kind: HostKind::Worker,
        labels: offer.labels.iter().cloned().collect(),
        preemptible: offer.preemptible,
        reserve: offer.reserve.unwrap_or(implied),
        devices: Some(devices),
        has_gpu,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..HostOffer::default()
    }
}
