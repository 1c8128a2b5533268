//! The scheduler's configuration: pools of slots, queues that use pools in order, and limits of keys and projects.

use std::collections::{BTreeMap, BTreeSet};

use saggar_project::is_valid_name;
use saggar_store::records::{HostLabels, HostOffer, HostReserve, PoolOffer};

use crate::error::SchedulerConfigError;
use crate::limits::SLOTS_MAX;
use crate::notebooks::NOTEBOOK_QUEUE;

/// The queue that exists without any configuration.
pub const DEFAULT_QUEUE: &str = "default";
/// The pool of queues that name no pool. It gives each job the device that the job requests.
pub const ANY_POOL: &str = "any";

/// A pool of job slots on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotPool {
    /// The device: `cpu`, `vulkan:0`; `None` if each job gets the device that it requests.
    pub device: Option<String>,
    /// Thousandths of slots that jobs can hold together.
    pub slots_milli: u32,
    /// The labels that a host must have to offer these slots.
    pub labels: HostLabels,
    /// The jobs that the pool is reserved for.
    pub reserve: HostReserve,
}

/// A queue of jobs that wait for the same pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobQueue {
    /// The pools, in order of preference.
    pub pools: Vec<String>,
    /// Whether a job uses a later pool while the earlier accepting ones are full.
    pub spill: bool,
    /// Maximum jobs of this queue that run at once.
    pub max_running_jobs: Option<u32>,
}

/// The resource limits of the jobs of a key or a project. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceQuota {
    /// Maximum jobs that run at once.
    pub max_running_jobs: Option<u32>,
    /// Maximum device seconds, over all attempts ever made.
    pub gpu_seconds: Option<f64>,
}

/// Pools, queues and limits.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// The pools by name.
    pub pools: BTreeMap<String, SlotPool>,
    /// The names of pools whose workers an engine starts. Their slots belong to no server.
    pub engine_pools: BTreeSet<String>,
    /// The queues by name.
    pub queues: BTreeMap<String, JobQueue>,
    /// The limits by project.
    pub projects: BTreeMap<String, ResourceQuota>,
    /// The limits by the name of a key.
    pub owners: BTreeMap<String, ResourceQuota>,
}

impl SchedulerConfig {
    /// Returns a configuration with one queue, whose jobs run on the devices that they request, `slots` at once.
    pub fn single_queue(slots: u32) -> SchedulerConfig {
        let any = SlotPool::new(None, slots.saturating_mul(1000));
        let queue = JobQueue { pools: vec![ANY_POOL.to_owned()], spill: true, max_running_jobs: None };
        SchedulerConfig {
            pools: BTreeMap::from([(ANY_POOL.to_owned(), any)]),
            engine_pools: BTreeSet::new(),
            queues: BTreeMap::from([(DEFAULT_QUEUE.to_owned(), queue)]),
            projects: BTreeMap::new(),
            owners: BTreeMap::new(),
        }
    }

    /// Adds the queue of notebooks, `count` of which run at once. They hold no slots of other jobs.
    #[must_use]
    pub fn with_notebooks(self, count: u32) -> SchedulerConfig {
        let queue = JobQueue { pools: vec![NOTEBOOK_QUEUE.to_owned()], spill: false, max_running_jobs: None };
        self.with_pool(NOTEBOOK_QUEUE, None, f64::from(count)).with_queue(NOTEBOOK_QUEUE, queue)
    }

    /// Returns whether a queue, project or key has a limit of running jobs, so that placement needs their number on all
    /// servers.
    pub fn limits_running_jobs(&self) -> bool {
        self.queues.values().any(|queue| queue.max_running_jobs.is_some())
            || self.projects.values().chain(self.owners.values()).any(|quota| quota.max_running_jobs.is_some())
    }

    /// Makes a pool one whose workers an engine starts.
    #[must_use]
    pub fn with_engine_pool(mut self, name: &str) -> SchedulerConfig {
        self.engine_pools.insert(name.to_owned());
        self
    }

    /// Returns whether a project or a key has a limit of device seconds, so that placement needs their usage.
    pub fn limits_usage(&self) -> bool {
        self.projects.values().chain(self.owners.values()).any(|quota| quota.gpu_seconds.is_some())
    }

    /// Returns the thousandths of slots that a host offers to jobs: those of the pools whose labels and device it has.
    pub fn slots_offered(&self, host: &HostOffer) -> u32 {
        self.offered_pools(host).fold(0, |sum, (_, pool)| sum.saturating_add(pool.slots_milli))
    }

    /// Returns the pools that a host offers to jobs, by name.
    pub fn pools_offered(&self, host: &HostOffer) -> BTreeMap<String, PoolOffer> {
        let offer = |(name, pool): (&String, &SlotPool)| {
            (name.clone(), PoolOffer { slots_milli: pool.slots_milli, device: pool.device.clone() })
        };
        self.offered_pools(host).map(offer).collect()
    }

    fn offered_pools<'a>(&'a self, host: &'a HostOffer) -> impl Iterator<Item = (&'a String, &'a SlotPool)> {
        self.pools.iter().filter(move |(name, pool)| {
            *name != NOTEBOOK_QUEUE
                && !self.engine_pools.contains(*name)
                && host.missing_labels(&pool.labels).is_empty()
                && pool.device.as_deref().is_none_or(|device| host.has_device(device))
        })
    }

    /// Adds a pool, replacing one of the same name.
    pub fn with_pool(mut self, name: &str, device: Option<&str>, slots: f64) -> SchedulerConfig {
        let pool = SlotPool::new(device.map(str::to_owned), (slots * 1000.0).round() as u32);
        self.pools.insert(name.to_owned(), pool);
        self
    }

    /// Sets the labels that a host must have to offer a pool's slots, and the jobs that the pool is reserved for. Does nothing
    /// if there is no such pool.
    #[must_use]
    pub fn with_pool_rules(mut self, name: &str, labels: HostLabels, reserve: HostReserve) -> SchedulerConfig {
        if let Some(pool) = self.pools.get_mut(name) {
            (pool.labels, pool.reserve) = (labels, reserve);
        }
        self
    }

    /// Adds a queue, replacing one of the same name. A missing pool whose name could be a device's is created, with one
    /// slot of that device.
    pub fn with_queue(mut self, name: &str, queue: JobQueue) -> SchedulerConfig {
        for pool in &queue.pools {
            if !self.pools.contains_key(pool) && pool != ANY_POOL {
                self = self.with_pool(pool, Some(pool), 1.0);
            }
        }
        self.queues.insert(name.to_owned(), queue);
        self
    }

    /// Checks that names are valid, that the pools of queues exist, and that numbers are in their ranges.
    ///
    /// # Errors
    /// Returns a [`SchedulerConfigError`] that names the invalid part.
    pub fn validate(&self) -> Result<(), SchedulerConfigError> {
        for (name, pool) in &self.pools {
            // A device's name such as `vulkan:0` is a valid pool name.
            if !is_valid_name(&name.replace(':', "-")) {
                return Err(SchedulerConfigError::Name { kind: "pool", name: name.clone() });
            }
            if pool.slots_milli == 0 || f64::from(pool.slots_milli) > SLOTS_MAX * 1000.0 {
                return Err(SchedulerConfigError::Slots { pool: name.clone() });
            }
        }
        for (name, queue) in &self.queues {
            if !is_valid_name(name) {
                return Err(SchedulerConfigError::Name { kind: "queue", name: name.clone() });
            }
            if queue.pools.is_empty() {
                return Err(SchedulerConfigError::NoPool { queue: name.clone() });
            }
            if let Some(pool) = queue.pools.iter().find(|pool| !self.pools.contains_key(*pool)) {
                return Err(SchedulerConfigError::UnknownPool { queue: name.clone(), pool: pool.clone() });
            }
            if queue.max_running_jobs == Some(0) {
                return Err(SchedulerConfigError::NeverRuns { queue: name.clone() });
            }
        }
        Ok(())
    }
}

impl SlotPool {
    /// Returns a pool of every host, for every job.
    pub fn new(device: Option<String>, slots_milli: u32) -> SlotPool {
        SlotPool { device, slots_milli, labels: HostLabels::new(), reserve: HostReserve::None }
    }

    /// Returns whether a job that requests `device` can run in this pool.
    pub fn accepts_device(&self, device: &str) -> bool {
        match (&self.device, device) {
            (None, _) | (Some(_), "auto") => true,
            (Some(own), "gpu") => own != "cpu",
            (Some(own), asked) => own == asked,
        }
    }

    /// Returns the device that a job which requests `device` gets in this pool.
    pub fn device_for(&self, device: &str) -> String {
        self.device.clone().unwrap_or_else(|| device.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_accepts_the_devices_that_it_has() {
        let pool = |device: Option<&str>| SlotPool::new(device.map(str::to_owned), 1000);
        for (own, asked, takes) in [
            (None, "vulkan:3", true),
            (Some("cpu"), "auto", true),
            (Some("cpu"), "cpu", true),
            (Some("cpu"), "gpu", false),
            (Some("vulkan:0"), "gpu", true),
            (Some("vulkan:0"), "vulkan:1", false),
            (Some("vulkan:0"), "cpu", false),
        ] {
            assert_eq!(pool(own).accepts_device(asked), takes, "{own:?} {asked}");
        }
        assert_eq!(pool(None).device_for("gpu"), "gpu");
        assert_eq!(pool(Some("cpu")).device_for("auto"), "cpu");
    }

    #[test]
    fn an_unusable_scheduler_config_is_refused() {
        let queue = |pools: &[&str]| JobQueue {
            pools: pools.iter().map(|pool| (*pool).to_owned()).collect(),
            ..JobQueue::default()
        };
        let simple = || SchedulerConfig::single_queue(1);
        simple().validate().unwrap();
        simple().with_queue("gpu", queue(&["vulkan:0", "cpu"])).validate().unwrap();
        let never = JobQueue { max_running_jobs: Some(0), ..queue(&["cpu"]) };
        for (layout, place) in [
            (SchedulerConfig::single_queue(0), "any"),
            (simple().with_pool("big", None, 1e9), "big"),
            (simple().with_queue("gpu", queue(&[])), "gpu"),
            (simple().with_queue("../x", queue(&["cpu"])), "../x"),
            (simple().with_queue("gpu", never), "gpu"),
        ] {
            let error = layout.validate().unwrap_err().to_string();
            assert!(error.contains(place), "{error}");
        }
    }
}
