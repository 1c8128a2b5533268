//! The part of a process that places and runs jobs, which servers and workers have in common.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use saggar_clock::{Clock, SystemClock};
use saggar_device::DeviceInfo;
use saggar_fetch::FetchPolicy;
use saggar_jobs::limits::WORKER_SILENCE_MAX;
use saggar_jobs::worker::WorkerLocations;
use saggar_jobs::{JobService, LocalLauncher, SchedulerConfig};
use saggar_metrics::MetricsRegistry;
use saggar_store::records::{HostKind, HostOffer, LogRecords};
use saggar_store::{ObjectStorage, StateDir};

use super::rank_address::rank_network;
use super::shared_records::{self, ServerRecords};
use crate::args::{DatabaseArgs, RankNetworkArgs, ServeArgs};
use crate::exit::CliError;

/// What a host of jobs is made of.
#[derive(Debug)]
pub(in crate::commands) struct JobHostParts<'a> {
    /// The state directory, which is locked, with the bucket.
    pub(in crate::commands) home: &'a StateDir,
    /// The directory of model versions.
    pub(in crate::commands) models_dir: &'a Path,
    /// The database, and the host's name.
    pub(in crate::commands) database: &'a DatabaseArgs,
    /// The store of objects.
    pub(in crate::commands) objects: &'a ObjectStorage,
    /// Its address; `None` for files of the state directory.
    pub(in crate::commands) objects_address: Option<&'a str>,
    /// The open records.
    pub(in crate::commands) records: ServerRecords,
    /// The pools, queues and limits.
    pub(in crate::commands) scheduler_config: SchedulerConfig,
    /// Maximum bytes of everything that is stored.
    pub(in crate::commands) storage_quota: Option<u64>,
    /// What data steps can fetch.
    pub(in crate::commands) fetch: FetchPolicy,
    /// Maximum time without a heartbeat of an attempt's process.
    pub(in crate::commands) worker_silence: Duration,
    /// What the host offers.
    pub(in crate::commands) offer: HostOffer,
    /// Where rank 0 of an attempt with several hosts listens.
    pub(in crate::commands) ranks: &'a RankNetworkArgs,
    pub(in crate::commands) clock: Arc<dyn Clock>,
    pub(in crate::commands) metrics: Arc<MetricsRegistry>,
}

impl<'a> JobHostParts<'a> {
    /// Returns the parts of a server that offers nothing yet: its state directory, store of objects, directory of models and
    /// records, and the scheduler's configuration and storage quota.
    pub(super) fn of_server(
        args: &'a ServeArgs,
        (home, objects): (&'a StateDir, &'a ObjectStorage),
        models_dir: &'a Path,
        records: ServerRecords,
        (scheduler_config, storage_quota): (SchedulerConfig, Option<u64>),
    ) -> JobHostParts<'a> {
        JobHostParts {
            home,
            models_dir,
            database: &args.database,
            objects,
            objects_address: args.objects.as_deref(),
            records,
            scheduler_config,
            storage_quota,
            fetch: args.fetch.policy(),
            worker_silence: args.worker_silence.unwrap_or(WORKER_SILENCE_MAX),
            offer: HostOffer::default(),
            ranks: &args.ranks,
            clock: Arc::new(SystemClock),
            metrics: Arc::new(MetricsRegistry::new()),
        }
    }

    /// Assembles the jobs. `program` runs their attempts. No job runs before `JobService::run`.
    ///
    /// # Errors
    /// Fails if the host's name is not valid, or a file of the state directory cannot be read or written.
    pub(in crate::commands) fn assemble(self, program: &Path) -> Result<JobService, CliError> {
        let JobHostParts { home, models_dir, storage_quota, .. } = self;
        let ServerRecords { records, keys, secrets: _ } = self.records;
        let server = shared_records::identify_server(self.database, home, models_dir, self.objects)?;
        let locations = WorkerLocations {
            home: home.root().to_owned(),
            models: models_dir.to_owned(),
            storage_quota,
            objects: self.objects_address.map(str::to_owned),
        };
        let launcher = Arc::new(LocalLauncher { program: program.to_owned(), locations });
        let config = self.scheduler_config;
        let job_files = home.server_job_files(Arc::clone(&records) as Arc<dyn LogRecords>);
        Ok(JobService::new(records, self.clock, self.metrics, launcher, job_files, config)
            .with_server(server)
            .with_host_offer(self.offer)
            .with_rank_network(rank_network(self.ranks, self.database))
            .with_keys(keys)
            .with_storage_quota(storage_quota, home.clone(), models_dir.to_owned())
            .with_fetch_policy(self.fetch)
            .with_worker_silence(self.worker_silence))
    }
}

/// Returns what the server offers to jobs. It looks for other devices in the background; jobs are placed by devices only if
/// other hosts could have them.
pub(super) fn server_offer(args: &ServeArgs, serving: &DeviceInfo) -> HostOffer {
    let known = || {
        let mut names = vec!["cpu".to_owned(), serving.name.clone()];
        names.dedup();
        names
    };
    HostOffer {
        kind: HostKind::Server,
        labels: args.labels.iter().cloned().collect(),
        devices: args.database.is_set().then(known),
        has_gpu: has_gpu(std::slice::from_ref(serving)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..HostOffer::default()
    }
}

/// Returns whether one of the devices is a GPU. Software adapters compute on the processor.
pub(in crate::commands) fn has_gpu(devices: &[DeviceInfo]) -> bool {
    devices.iter().any(|device| device.name != "cpu" && !device.software)
}

/// Is called with the devices of the machine when they were found.
pub(super) type DevicesFound = Arc<dyn Fn(&[DeviceInfo]) + Send + Sync>;

/// Returns what tells the placement of jobs which devices this host has. A server without other hosts places every job,
/// whose attempt then names the missing device.
pub(super) fn report_devices(is_shared: bool, jobs: &JobService) -> DevicesFound {
    let jobs = jobs.clone();
    Arc::new(move |devices| {
        if is_shared && !devices.is_empty() {
            let names = devices.iter().map(|device| device.name.clone()).collect();
            jobs.set_host_devices(names, has_gpu(devices));
        }
    })
}
