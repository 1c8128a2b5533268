//! The server's configuration from the project file: pools, queues and limits of jobs, how models are served, the
//! directory of their versions, and the storage quota. The command line takes precedence.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use saggar_jobs::{JobQueue, ResourceQuota, SchedulerConfig};
use saggar_project::{PROJECT_FILE, PoolSection, ProjectManifest};
use saggar_serve::RecordingPolicy;
use saggar_serving::ModelConfig;
use saggar_store::records::HostReserve;

use super::models;
use crate::args::ServeArgs;
use crate::exit::{self, CliError};
use crate::project::ProjectContext;

/// The configuration of a server besides its command line.
#[derive(Debug)]
pub(super) struct ServerConfig {
    /// The queues and pools of jobs.
    pub(super) scheduler_config: SchedulerConfig,
    /// The configuration, by name, of models without a `model.json`.
    pub(super) settings: BTreeMap<String, ModelConfig>,
    /// How predictions are recorded, by model.
    pub(super) recordings: BTreeMap<String, RecordingPolicy>,
    /// The directory of model versions.
    pub(super) models_dir: Option<PathBuf>,
    /// Maximum bytes of everything that is stored.
    pub(super) storage_quota: Option<u64>,
    /// The pools whose workers an engine starts.
    pub(super) engine_pools: BTreeMap<String, PoolSection>,
}

impl ServerConfig {
    /// Reads the given project file, or the one in the current directory, if there is one.
    ///
    /// # Errors
    /// Fails with the position if the file cannot be read or has an invalid value.
    pub(super) fn read(args: &ServeArgs) -> Result<ServerConfig, CliError> {
        let simple = SchedulerConfig::single_queue(u32::try_from(args.jobs).unwrap_or(u32::MAX));
        let simple = if args.notebooks == 0 { simple } else { simple.with_notebooks(args.notebooks) };
        let said = ServerConfig {
            scheduler_config: simple,
            settings: BTreeMap::new(),
            recordings: BTreeMap::new(),
            models_dir: args.models.clone(),
            storage_quota: args.storage_quota,
            engine_pools: BTreeMap::new(),
        };
        let path = match &args.config {
            Some(path) => path.as_path(),
            None if Path::new(PROJECT_FILE).is_file() => Path::new(PROJECT_FILE),
            None => return Ok(said),
        };
        said.with_manifest(&ProjectContext::read(path)?.manifest, path)
    }

    /// Applies a project file, where the command line sets no value.
    fn with_manifest(self, manifest: &ProjectManifest, path: &Path) -> Result<ServerConfig, CliError> {
        let bad = |reason: String| CliError::new(exit::INVALID, "bad_config", format!("{}: {reason}", path.display()));
        let directory = path.parent().unwrap_or(Path::new(""));
        let layout = scheduler_config(self.scheduler_config, manifest);
        layout.validate().map_err(|error| bad(error.to_string()))?;
        let settings = models::model_settings(manifest, directory).map_err(bad)?;
        let recordings = models::recording_policies(manifest).map_err(bad)?;
        let beside = models::models_directory(manifest, directory).map_err(bad)?;
        for warning in &manifest.warnings {
            tracing::warn!(file = %path.display(), "{warning}");
        }
        let (queues, pools, models) = (layout.queues.len(), layout.pools.len(), settings.len());
        tracing::info!(file = %path.display(), queues, pools, models, "using the project file for jobs and models");
        Ok(ServerConfig {
            scheduler_config: layout,
            settings,
            recordings,
            models_dir: self.models_dir.or(beside),
            storage_quota: self.storage_quota.or(manifest.quota.storage),
            engine_pools: engine_pools(manifest),
        })
    }
}

fn engine_pools(manifest: &ProjectManifest) -> BTreeMap<String, PoolSection> {
    let pools = manifest.pools.iter().filter(|(_, pool)| pool.has_engine());
    pools.map(|(name, pool)| (name.clone(), pool.clone())).collect()
}

fn scheduler_config(mut layout: SchedulerConfig, manifest: &ProjectManifest) -> SchedulerConfig {
    for (name, pool) in &manifest.pools {
        let reserve = if pool.is_preemptible_only { HostReserve::PreemptibleOnly } else { HostReserve::None };
        layout = layout.with_pool(name, pool.device.as_deref(), pool.slots);
        layout = layout.with_pool_rules(name, pool.labels.clone(), reserve);
        if pool.has_engine() {
            layout = layout.with_engine_pool(name);
        }
    }
    for (name, queue) in &manifest.queues {
        let queue =
            JobQueue { pools: queue.pools.clone(), spill: queue.spill, max_running_jobs: queue.max_running_jobs };
        layout = layout.with_queue(name, queue);
    }
    let quota = &manifest.quota;
    if quota.max_running_jobs.is_some() || quota.gpu_seconds.is_some() {
        let allowance = ResourceQuota { max_running_jobs: quota.max_running_jobs, gpu_seconds: quota.gpu_seconds };
        layout.projects.insert(manifest.project.name.clone(), allowance);
    }
    layout
}
