//! `[queue.NAME]`, `[pool.NAME]` and `[quota]`: where jobs wait and run, and their common limits.

use std::collections::BTreeMap;

use crate::limits::{RUNNING_JOBS_MAX, SLOTS_MAX};
use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;
use crate::parse_report::TableKind;

use super::kubernetes_pool::{KubernetesPoolSection, read_kubernetes_pool};
use super::run_options::{is_device_name, read_labels};
use super::slurm_pool::{SlurmPoolSection, read_slurm_pool};

/// A queue of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSection {
    /// Pools or devices, in order of preference.
    pub pools: Vec<String>,
    /// Whether a job can use the next pool if one is full.
    pub spill: bool,
    /// Maximum number of concurrent jobs.
    pub max_running_jobs: Option<u32>,
}

/// A pool of slots on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSection {
    /// Device name: `cpu`, `vulkan:0`. `None` if an engine runs the jobs, each on the device that it requests.
    pub device: Option<String>,
    /// Number of slots for jobs.
    pub slots: f64,
    /// The jobs run as Kubernetes Jobs.
    pub kubernetes: Option<KubernetesPoolSection>,
    /// The jobs run as batch jobs of Slurm.
    pub slurm: Option<SlurmPoolSection>,
    /// The labels that a host must have to offer these slots.
    pub labels: BTreeMap<String, String>,
    /// Whether only preemptible jobs run in it.
    pub is_preemptible_only: bool,
}

impl PoolSection {
    /// Returns whether an engine starts the workers of the pool.
    pub fn has_engine(&self) -> bool {
        self.kubernetes.is_some() || self.slurm.is_some()
    }
}

/// Limits of all jobs of the project together. A job that would exceed them waits; it does not fail.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProjectQuota {
    /// Maximum number of concurrent jobs.
    pub max_running_jobs: Option<u32>,
    /// GPU time in seconds.
    pub gpu_seconds: Option<f64>,
    /// Bytes of datasets, checkpoints, outputs and logs.
    pub storage: Option<u64>,
}

pub(super) fn read_queue(table: &ManifestTable<'_>) -> Option<QueueSection> {
    let pools = table.required("pools", "pools = [\"vulkan:0\", \"cpu\"]", read_pool_names);
    let spill = table.optional("spill", |item| item.boolean()).unwrap_or(false);
    let max_running_jobs = table.optional("max_running_jobs", |item| item.bounded_count(1, RUNNING_JOBS_MAX));
    table.report_unknown_keys();
    Some(QueueSection { pools: pools?, spill, max_running_jobs })
}

/// Reads names of pools. A device without a pool is named directly.
fn read_pool_names(item: &ManifestValue<'_>) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for item in item.items()? {
        let name = item.text()?;
        if names.iter().any(|known| known == name) {
            return item
                .report_error(format!("{name:?} is listed twice"), "name each pool once, the first choice first");
        }
        if !is_device_name(name) && !crate::name::is_valid_name(name) {
            return item.report_expected("a pool's name or a device such as \"vulkan:0\"");
        }
        if !is_device_name(name) {
            item.report.add_reference(TableKind::Pool, name, &item.span);
        }
        names.push(name.to_owned());
    }
    match names.is_empty() {
        true => item.report_error("a queue without pools runs nothing", "such as pools = [\"vulkan:0\", \"cpu\"]"),
        false => Some(names),
    }
}

pub(super) fn read_pool(table: &ManifestTable<'_>) -> Option<PoolSection> {
    let read_device = |item: &ManifestValue<'_>| match item.text()? {
        device if is_device_name(device) && !matches!(device, "auto") => Some(device.to_owned()),
        _ => item.report_expected("cpu, gpu or a device's name such as vulkan:0"),
    };
    let kubernetes = table.optional("kubernetes", |item| read_kubernetes_pool(&item.table()?));
    let slurm = table.optional("slurm", |item| match kubernetes {
        None => read_slurm_pool(&item.table()?),
        Some(_) => item.report_error("a pool has one engine".to_owned(), "keep kubernetes or slurm"),
    });
    let device = match table.get("kubernetes").or(table.get("slurm")) {
        Some(_) => Some(table.optional("device", read_device)),
        None => table.required("device", "device = \"vulkan:0\"", read_device).map(Some),
    };
    let slots = table.optional("slots", |item| item.positive(f64::from(SLOTS_MAX))).unwrap_or(1.0);
    let labels = table.optional("labels", read_labels).unwrap_or_default();
    let reserves = [("none", false), ("preemptible-only", true)];
    let is_preemptible_only = table.optional("reserve", |item| item.choice(&reserves)).unwrap_or(false);
    table.report_unknown_keys();
    Some(PoolSection { device: device?, slots, kubernetes, slurm, labels, is_preemptible_only })
}

pub(super) fn read_quota(table: &ManifestTable<'_>) -> Option<ProjectQuota> {
    let quota = ProjectQuota {
        max_running_jobs: table.optional("max_running_jobs", |item| item.bounded_count(1, RUNNING_JOBS_MAX)),
        gpu_seconds: table.optional("gpu_seconds", |item| item.positive(f64::INFINITY)),
        storage: table.optional("storage", |item| item.size_bytes()),
    };
    table.report_unknown_keys();
    Some(quota)
}
