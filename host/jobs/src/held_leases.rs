//! The leases of the attempts that run here.

use std::collections::HashMap;

use parking_lot::Mutex;
use saggar_store::records::JobLease;
use tokio::sync::Notify;

/// The leases by job.
#[derive(Debug, Default)]
pub(crate) struct HeldLeases {
    held: Mutex<HashMap<String, HeldLease>>,
    /// Notified if a lease is to be renewed before its time.
    pub(crate) renew_now: Notify,
}

/// A lease, and the newest heartbeat of its worker.
#[derive(Clone, Debug)]
pub(crate) struct HeldLease {
    pub(crate) lease: JobLease,
    /// The number of the newest heartbeat; 0 before the first.
    pub(crate) heartbeat: u64,
}

impl HeldLeases {
    pub(crate) fn add(&self, lease: JobLease) {
        self.held.lock().insert(lease.job.clone(), HeldLease { lease, heartbeat: 0 });
    }

    pub(crate) fn remove(&self, job: &str) {
        self.held.lock().remove(job);
    }

    pub(crate) fn list(&self) -> Vec<HeldLease> {
        self.held.lock().values().cloned().collect()
    }

    /// Records a heartbeat of the worker of a job. The first one renews the lease at once, because until then the worker
    /// does not know that it is valid.
    pub(crate) fn record_heartbeat(&self, job: &str, heartbeat: u64) {
        let mut held = self.held.lock();
        let Some(held) = held.get_mut(job) else { return };
        let is_first = held.heartbeat == 0;
        held.heartbeat = held.heartbeat.max(heartbeat);
        if is_first {
            self.renew_now.notify_one();
        }
    }
}
