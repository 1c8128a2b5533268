//! Hosts: the servers and workers that run the jobs of shared records, what each one offers, and whether it is still there.
//!
//! A host registers when it starts and renews its row every [`HOST_RENEWAL_INTERVAL`]. All times are those of the clock of
//! leases. A row that was not renewed for [`HOST_LOST_MS`] is listed as lost, and is removed after [`HOST_REMOVED_MS`].

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};

use super::SchedulingRequest;
use super::host_labels::HostLabels;
use crate::error::RecordError;

/// Time between two renewals of a host's row.
pub const HOST_RENEWAL_INTERVAL: Duration = Duration::from_secs(5);
/// Milliseconds without a renewal after which a host is lost.
pub(super) const HOST_LOST_MS: u64 = 25_000;
/// Milliseconds without a renewal after which a host is forgotten.
pub(super) const HOST_REMOVED_MS: u64 = 24 * 3600 * 1000;

/// The kind of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostKind {
    /// A server, which answers requests and runs jobs.
    #[default]
    Server,
    /// A worker, which only runs jobs.
    Worker,
}

/// The jobs that a host or a pool is reserved for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostReserve {
    /// Every job can run there.
    #[default]
    None,
    /// Only preemptible jobs run there.
    PreemptibleOnly,
}

impl HostReserve {
    /// Returns the name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            HostReserve::None => "none",
            HostReserve::PreemptibleOnly => "preemptible-only",
        }
    }

    /// Returns whether a job can run there.
    pub fn admits(self, demand: &SchedulingRequest) -> bool {
        self == HostReserve::None || demand.preemptible
    }
}

impl fmt::Display for HostReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for HostReserve {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<HostReserve, &'static str> {
        match text {
            "none" => Ok(HostReserve::None),
            "preemptible-only" => Ok(HostReserve::PreemptibleOnly),
            _ => Err("expected none or preemptible-only"),
        }
    }
}

/// What a host offers of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolOffer {
    /// Thousandths of slots.
    pub slots_milli: u32,
    /// The device; `None` if each job gets the device that it requests.
    pub device: Option<String>,
}

/// What a host offers to jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostOffer {
    /// Whether it is a server or a worker.
    pub kind: HostKind,
    /// Its labels.
    pub labels: HostLabels,
    /// Whether the machine can vanish at any time.
    pub preemptible: bool,
    /// The jobs that it is reserved for.
    pub reserve: HostReserve,
    /// The names of its devices: `cpu`, `vulkan:0`. `None` if it does not know them, and jobs name any.
    pub devices: Option<Vec<String>>,
    /// Whether one of them is a GPU, and not a software adapter.
    pub has_gpu: bool,
    /// Thousandths of slots of all its pools.
    pub slots_milli: u32,
    /// Its pools, by name.
    pub pools: BTreeMap<String, PoolOffer>,
    /// The storage that it has the files of; see [`ServerIdentity`](super::ServerIdentity).
    pub storage: String,
    /// The version of its program.
    pub version: String,
}

impl HostOffer {
    /// Returns its labels with `device`, which is `gpu` or `cpu`, and `preemptible`, which is `true` or `false`, unless it has
    /// others of these names.
    pub fn all_labels(&self) -> HostLabels {
        let mut labels = self.labels.clone();
        let mut add = |name: &str, value: &str| {
            labels.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        };
        if self.devices.is_some() {
            add("device", if self.has_gpu { "gpu" } else { "cpu" });
        }
        add("preemptible", if self.preemptible { "true" } else { "false" });
        labels
    }

    /// Returns the labels of `required` that the host lacks.
    pub fn missing_labels(&self, required: &HostLabels) -> HostLabels {
        if required.is_empty() {
            return HostLabels::new();
        }
        let labels = self.all_labels();
        let lacks = |(name, value): &(&String, &String)| labels.get(*name) != Some(value);
        required.iter().filter(lacks).map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Returns whether it has a device that a job requests.
    pub fn has_device(&self, requested: &str) -> bool {
        let Some(devices) = &self.devices else { return true };
        match requested {
            "auto" => true,
            "gpu" => devices.iter().any(|device| device != "cpu"),
            name => devices.iter().any(|device| device == name),
        }
    }

    /// Returns whether a job could run there if all its slots were free.
    pub fn could_run(&self, demand: &SchedulingRequest) -> bool {
        self.missing_labels(&demand.labels).is_empty()
            && self.reserve.admits(demand)
            && self.has_device(&demand.device)
            && self.slots_milli >= demand.slots_milli
    }
}

/// How a host is taken out of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostDrain {
    /// It takes jobs.
    #[default]
    No,
    /// It takes no new jobs. Those that it runs are saved and queued again.
    Requeue,
    /// It takes no new jobs. Those that it runs are finished.
    Finish,
}

/// The state of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HostState {
    /// It takes jobs.
    Ready,
    /// It takes no new jobs.
    Draining,
    /// It was not seen for [`HOST_LOST_MS`].
    Lost,
}

impl HostState {
    /// Every state.
    pub const ALL: [HostState; 3] = [HostState::Ready, HostState::Draining, HostState::Lost];

    /// Returns the name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            HostState::Ready => "READY",
            HostState::Draining => "DRAINING",
            HostState::Lost => "LOST",
        }
    }
}

/// A host as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRecord {
    /// The identifier of its state directory.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it offers.
    pub offer: HostOffer,
    /// Whether it is taken out of service.
    pub drain: HostDrain,
    /// Its state.
    pub state: HostState,
    /// When it started.
    pub started_ms: UnixMillis,
    /// Its last renewal.
    pub seen_ms: UnixMillis,
    /// Milliseconds since its last renewal.
    pub unseen_ms: u64,
}

/// The records of hosts. Each method is one transaction.
pub trait HostRecords: fmt::Debug + Send + Sync {
    /// Records a host that starts now, which replaces what was recorded of it. A new start ends a drain.
    ///
    /// # Errors
    /// Returns `Database`.
    fn register_host(&self, id: &str, name: &str, offer: &HostOffer) -> Result<(), RecordError>;

    /// Records that a host is still there, and forgets hosts that were not seen for a day. Returns whether it is to be
    /// drained, or `None` if it is not registered.
    ///
    /// # Errors
    /// Returns `Database`.
    fn renew_host(&self, id: &str) -> Result<Option<HostDrain>, RecordError>;

    /// Removes a host that ends. Does nothing if it is not registered.
    ///
    /// # Errors
    /// Returns `Database`.
    fn remove_host(&self, id: &str) -> Result<(), RecordError>;

    /// Changes whether the hosts of this name that are not lost take jobs. Returns them as they are then, none if there is
    /// no such host.
    ///
    /// # Errors
    /// Returns `Database`.
    fn set_host_drain(&self, name: &str, drain: HostDrain) -> Result<Vec<HostRecord>, RecordError>;

    /// Returns all hosts, by name.
    ///
    /// # Errors
    /// Returns `Database`.
    fn hosts(&self) -> Result<Vec<HostRecord>, RecordError>;
}
