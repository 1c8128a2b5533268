//! `[queue.NAME]`, `[pool.NAME]` and `[quota]`: where jobs wait and run, and what all of them together may take.

use crate::limits::{RUNNING_JOBS_MAX, SLOTS_MAX};
use crate::reading::Item;
use crate::report::Kind;
use crate::table::Table;

use super::run_options::is_device;

/// Where jobs wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Pools, or devices, in the order in which they are tried.
    pub pools: Vec<String>,
    /// Whether a job goes on to the next pool where one is full.
    pub spill: bool,
    /// Jobs that run at once.
    pub max_running_jobs: Option<u32>,
}

/// Where jobs run.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// The device: `cpu`, `vulkan:0`.
    pub device: String,
    /// How many jobs it has room for.
    pub slots: f64,
}

/// What all jobs of the project together may take. What goes beyond waits; nothing fails for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quota {
    /// Jobs that run at once.
    pub max_running_jobs: Option<u32>,
    /// Seconds on GPUs.
    pub gpu_seconds: Option<f64>,
    /// Bytes of datasets, checkpoints, outputs and logs.
    pub storage: Option<u64>,
}

pub(super) fn read(table: &Table<'_>) -> Option<Queue> {
    let pools = table.required("pools", "pools = [\"vulkan:0\", \"cpu\"]", pools);
    let spill = table.optional("spill", |item| item.boolean()).unwrap_or(false);
    let max_running_jobs = table.optional("max_running_jobs", |item| item.count(1, RUNNING_JOBS_MAX));
    table.finish();
    Some(Queue { pools: pools?, spill, max_running_jobs })
}

/// Names of pools; a device that has no pool of its own stands for itself.
fn pools(item: &Item<'_>) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for item in item.items()? {
        let name = item.text()?;
        if names.iter().any(|known| known == name) {
            return item.wrong(format!("{name:?} stands there twice"), "name each pool once, the first choice first");
        }
        if !is_device(name) && !crate::name::is_name(name) {
            return item.refuse("a pool's name or a device such as \"vulkan:0\"");
        }
        if !is_device(name) {
            item.report.refer(Kind::Pool, name, &item.span);
        }
        names.push(name.to_owned());
    }
    match names.is_empty() {
        true => item.wrong("a queue without pools runs nothing", "such as pools = [\"vulkan:0\", \"cpu\"]"),
        false => Some(names),
    }
}

pub(super) fn read_pool(table: &Table<'_>) -> Option<Pool> {
    let device = table.required("device", "device = \"vulkan:0\"", |item| match item.text()? {
        device if is_device(device) && !matches!(device, "auto") => Some(device.to_owned()),
        _ => item.refuse("cpu, gpu or a device's name such as vulkan:0"),
    });
    let slots = table.optional("slots", |item| item.positive(f64::from(SLOTS_MAX))).unwrap_or(1.0);
    table.finish();
    Some(Pool { device: device?, slots })
}

pub(super) fn read_quota(table: &Table<'_>) -> Option<Quota> {
    let quota = Quota {
        max_running_jobs: table.optional("max_running_jobs", |item| item.count(1, RUNNING_JOBS_MAX)),
        gpu_seconds: table.optional("gpu_seconds", |item| item.positive(f64::INFINITY)),
        storage: table.optional("storage", |item| item.size()),
    };
    table.finish();
    Some(quota)
}
