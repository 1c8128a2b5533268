//! What a server takes from the project file: the pools, queues and limits of jobs, how models are served and where their
//! versions lie, and how much may be stored. What the command line says comes first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use saggar_jobs::{Allowance, Layout, Queue};
use saggar_project::{Manifest, PROJECT_FILE};
use saggar_serve::models::Settings;

use super::models;
use crate::args::Serve;
use crate::exit::{self, Failure};
use crate::project::Project;

/// What a server is told besides its command line.
#[derive(Debug)]
pub(super) struct Configuration {
    /// Where jobs wait and run.
    pub(super) layout: Layout,
    /// How models are served that have no `model.json`, by name.
    pub(super) settings: BTreeMap<String, Settings>,
    /// The directory of models.
    pub(super) models_dir: Option<PathBuf>,
    /// Bytes that may be stored.
    pub(super) storage_quota: Option<u64>,
}

impl Configuration {
    /// Reads the file that the command names, or the one of the directory it is given in, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, or says something that cannot be; with the place.
    pub(super) fn read(args: &Serve) -> Result<Configuration, Failure> {
        let simple = Layout::simple(u32::try_from(args.jobs).unwrap_or(u32::MAX));
        let said = Configuration {
            layout: simple,
            settings: BTreeMap::new(),
            models_dir: args.models.clone(),
            storage_quota: args.storage_quota,
        };
        let path = match &args.config {
            Some(path) => path.as_path(),
            None if Path::new(PROJECT_FILE).is_file() => Path::new(PROJECT_FILE),
            None => return Ok(said),
        };
        said.with(&Project::read(path)?.manifest, path)
    }

    /// With what a project file says, where the command line says nothing.
    fn with(self, manifest: &Manifest, path: &Path) -> Result<Configuration, Failure> {
        let bad = |reason: String| Failure::new(exit::INVALID, "bad_config", format!("{}: {reason}", path.display()));
        let directory = path.parent().unwrap_or(Path::new(""));
        let layout = layout(self.layout, manifest);
        layout.validate().map_err(|error| bad(error.to_string()))?;
        let settings = models::settings(manifest, directory).map_err(bad)?;
        let beside = models::directory(manifest, directory).map_err(bad)?;
        let (queues, pools, models) = (layout.queues.len(), layout.pools.len(), settings.len());
        tracing::info!(file = %path.display(), queues, pools, models, "jobs run and models are served as the file says");
        Ok(Configuration {
            layout,
            settings,
            models_dir: self.models_dir.or(beside),
            storage_quota: self.storage_quota.or(manifest.quota.storage),
        })
    }
}

fn layout(mut layout: Layout, manifest: &Manifest) -> Layout {
    for (name, pool) in &manifest.pools {
        layout = layout.with_pool(name, Some(&pool.device), pool.slots);
    }
    for (name, queue) in &manifest.queues {
        let queue = Queue { pools: queue.pools.clone(), spill: queue.spill, max_running_jobs: queue.max_running_jobs };
        layout = layout.with_queue(name, queue);
    }
    let quota = &manifest.quota;
    if quota.max_running_jobs.is_some() || quota.gpu_seconds.is_some() {
        let allowance = Allowance { max_running_jobs: quota.max_running_jobs, gpu_seconds: quota.gpu_seconds };
        layout.projects.insert(manifest.project.name.clone(), allowance);
    }
    layout
}
