//! The hosts that run jobs, for listings, and their drains.

use std::time::Duration;

use saggar_store::records::{ActiveJob, HostDrain, HostOffer, HostRecord, HostState};
use tokio::sync::watch;

use crate::JobService;
use crate::error::JobError;

/// A host with the jobs that it runs.
#[derive(Clone, Debug)]
pub struct HostWithJobs {
    /// The host.
    pub host: HostRecord,
    /// Its running jobs, oldest first.
    pub jobs: Vec<ActiveJob>,
}

impl JobService {
    /// Sets what this host offers to jobs; by default it is a server without labels. Its slots are those of the pools.
    #[must_use]
    pub fn with_host_offer(self, offer: HostOffer) -> JobService {
        self.set_host_offer(offer);
        self
    }

    /// Sets the offer with the slots of the pools.
    pub(crate) fn set_host_offer(&self, offer: HostOffer) {
        let config = self.shared.scheduler_config();
        let (slots_milli, pools) = (config.slots_offered(&offer), config.pools_offered(&offer));
        self.shared.set_host_offer(HostOffer { slots_milli, pools, ..offer });
    }

    /// Sets the maximum time for workers to save their state after a stop request.
    #[must_use]
    pub fn with_stop_grace(self, max: Duration) -> JobService {
        self.shared.set_stop_grace(max);
        self
    }

    /// Sets the devices of this host, when they were found, and whether one is a GPU. Jobs that need others are not placed
    /// here.
    pub fn set_host_devices(&self, devices: Vec<String>, has_gpu: bool) {
        self.set_host_offer(HostOffer {
            devices: Some(devices),
            has_gpu,
            ..HostOffer::clone(&self.shared.host_offer())
        });
    }

    /// Returns the name of this host among the servers of shared records. Empty if it is the only one.
    pub fn host_name(&self) -> &str {
        &self.shared.server().name
    }

    /// Returns a receiver of whether this host is drained: it takes no jobs and runs none.
    pub fn subscribe_drained(&self) -> watch::Receiver<bool> {
        self.shared.drained.subscribe()
    }

    /// Returns all hosts of the records, by name, each with its running jobs. Without shared records this is the server.
    ///
    /// # Errors
    /// `Records`.
    pub async fn hosts(&self) -> Result<Vec<HostWithJobs>, JobError> {
        let is_shared = self.shared.records.is_shared();
        let read = move |records: &dyn saggar_store::records::JobRecords| {
            let hosts = if is_shared { records.hosts()? } else { Vec::new() };
            Ok((hosts, records.active_jobs()?))
        };
        let (mut hosts, running) = self.shared.with_records(read).await?;
        if !is_shared {
            hosts.push(self.only_host());
        }
        let with_jobs = |host: HostRecord| {
            let jobs = running.iter().filter(|job| job.pool_on(&host.id).is_some()).cloned().collect();
            HostWithJobs { host, jobs }
        };
        Ok(hosts.into_iter().map(with_jobs).collect())
    }

    /// Returns the row that this server would have in shared records.
    fn only_host(&self) -> HostRecord {
        let now_ms = self.shared.clock.now_ms();
        HostRecord {
            id: self.shared.server().id.clone(),
            name: "server".to_owned(),
            offer: HostOffer::clone(&self.shared.host_offer()),
            drain: HostDrain::No,
            state: HostState::Ready,
            started_ms: self.shared.created_ms,
            seen_ms: now_ms,
            unseen_ms: 0,
        }
    }

    /// Changes whether the hosts of this name take jobs. Returns them as they are then.
    ///
    /// # Errors
    /// `NotFound` if no such host is ready or draining; `NoWorkers` if the records are not shared; `Records`.
    pub async fn set_host_drain(&self, name: &str, drain: HostDrain) -> Result<Vec<HostRecord>, JobError> {
        if !self.shared.records.is_shared() {
            return Err(JobError::NoWorkers);
        }
        let asked = name.to_owned();
        let hosts = self.shared.with_records(move |records| records.set_host_drain(&asked, drain)).await?;
        if hosts.is_empty() {
            return Err(JobError::no_host(name));
        }
        self.shared.host_changed.notify_one();
        Ok(hosts)
    }
}
