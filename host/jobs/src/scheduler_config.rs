//! What a server runs jobs with: pools of slots, queues that draw on them in order, and limits on who may run how much.

use std::collections::BTreeMap;

use crate::error::SchedulerConfigError;
use crate::limits::SLOTS_MAX;
use saggar_project::is_valid_name;

/// The queue and the pool that are there without anything being configured.
pub const DEFAULT_QUEUE: &str = "default";
/// The pool of jobs whose queue names none. It gives each job the device that the job asks for.
pub const ANY_POOL: &str = "any";

/// Slots for jobs, of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotPool {
    /// The device: `cpu`, `vulkan:0`; none where each job has the one that it asks for.
    pub device: Option<String>,
    /// Thousandths of slots that jobs may hold together.
    pub slots_milli: u32,
}

/// Jobs that wait for the same pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobQueue {
    /// The pools, the first one first.
    pub pools: Vec<String>,
    /// Whether a job goes to a later pool while the earlier ones that would take it are full.
    pub spill: bool,
    /// Jobs of this queue that run at once.
    pub max_running_jobs: Option<u32>,
}

/// What a key's or a project's jobs may use together. None is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceQuota {
    /// Jobs that run at once.
    pub max_running_jobs: Option<u32>,
    /// Device seconds, all attempts ever made together.
    pub gpu_seconds: Option<f64>,
}

/// Pools, queues and allowances.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// By name.
    pub pools: BTreeMap<String, SlotPool>,
    /// By name.
    pub queues: BTreeMap<String, JobQueue>,
    /// By project.
    pub projects: BTreeMap<String, ResourceQuota>,
    /// By the name of a key.
    pub owners: BTreeMap<String, ResourceQuota>,
}

impl SchedulerConfig {
    /// One queue, whose jobs run on the devices that they ask for, `slots` at once.
    pub fn single_queue(slots: u32) -> SchedulerConfig {
        let any = SlotPool { device: None, slots_milli: slots.saturating_mul(1000) };
        let queue = JobQueue { pools: vec![ANY_POOL.to_owned()], spill: true, max_running_jobs: None };
        SchedulerConfig {
            pools: BTreeMap::from([(ANY_POOL.to_owned(), any)]),
            queues: BTreeMap::from([(DEFAULT_QUEUE.to_owned(), queue)]),
            projects: BTreeMap::new(),
            owners: BTreeMap::new(),
        }
    }

    /// Adds a pool, or puts it in the place of one of that name.
    pub fn with_pool(mut self, name: &str, device: Option<&str>, slots: f64) -> SchedulerConfig {
        let pool = SlotPool { device: device.map(str::to_owned), slots_milli: (slots * 1000.0).round() as u32 };
        self.pools.insert(name.to_owned(), pool);
        self
    }

    /// Adds a queue, or puts it in the place of one of that name. A pool that is not there yet and could be a device's
    /// name is made, with one slot of that device.
    pub fn with_queue(mut self, name: &str, queue: JobQueue) -> SchedulerConfig {
        for pool in &queue.pools {
            if !self.pools.contains_key(pool) && pool != ANY_POOL {
                self = self.with_pool(pool, Some(pool), 1.0);
            }
        }
        self.queues.insert(name.to_owned(), queue);
        self
    }

    /// Checks that names can be, that queues draw on pools that are there, and that numbers are in their ranges.
    ///
    /// # Errors
    /// [`SchedulerConfigError`] naming the place.
    pub fn validate(&self) -> Result<(), SchedulerConfigError> {
        for (name, pool) in &self.pools {
            // A device's name is a pool's name too: `vulkan:0`.
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
    /// Whether a job that asks for `device` can run here.
    pub fn accepts_device(&self, device: &str) -> bool {
        match (&self.device, device) {
            (None, _) | (Some(_), "auto") => true,
            (Some(own), "gpu") => own != "cpu",
            (Some(own), asked) => own == asked,
        }
    }

    /// The device that a job which asks for `device` gets here.
    pub fn device_for(&self, device: &str) -> String {
        self.device.clone().unwrap_or_else(|| device.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_accepts_the_devices_that_it_has() {
        let pool = |device: Option<&str>| SlotPool { device: device.map(str::to_owned), slots_milli: 1000 };
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
