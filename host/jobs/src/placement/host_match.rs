//! Which pools of a job's queue this host offers it, by labels, reserve, devices and size; and if none, what the job waits for.

use saggar_store::records::{HostLabels, HostOffer, HostRecord, HostState, QueuedJob, format_labels};

use super::{PlacementInput, count_slots, format_slots};
use crate::scheduler_config::{JobQueue, SlotPool};

/// The code of a wait for a host that has the labels that a job needs, or that is not reserved for other jobs.
const NO_MATCHING_HOST: &str = "NO_MATCHING_HOST";
/// The code of a wait for another host, which could run the job.
const WAITING_FOR_HOST: &str = "WAITING_FOR_HOST";

/// Maximum hosts that a reason names.
const HOSTS_NAMED_MAX: usize = 8;

/// The code and the sentence of a wait.
type WaitReason = (&'static str, String);

/// Returns the pools that the job can run in on this host, in order of preference.
///
/// # Errors
/// Returns the reason why it can run in no pool.
pub(super) fn pools_on_host<'a>(
    job: &QueuedJob,
    queue: &JobQueue,
    situation: &PlacementInput<'a>,
) -> Result<Vec<(&'a str, &'a SlotPool)>, WaitReason> {
    let demand = &job.demand;
    let accepting = queue.pools.iter().filter_map(|name| {
        let (name, pool) = situation.layout.pools.get_key_value(name)?;
        pool.accepts_device(&demand.device).then_some((name.as_str(), pool))
    });
    let accepting: Vec<(&'a str, &'a SlotPool)> = accepting.collect();
    if accepting.is_empty() {
        let sentence = format!("no pool of queue {} takes device {}", demand.queue, demand.device);
        return Err(("NO_SUCH_DEVICE", sentence));
    }
    // The workers of an engine's pool are on hosts that do not exist yet, and have the labels of the pool.
    let is_engines = |name: &str| situation.layout.engine_pools.contains(name);
    let is_offered = |(name, pool): &&(&str, &SlotPool)| {
        if is_engines(name) {
            let has = |(label, value): (&String, &String)| pool.labels.get(label) == Some(value);
            return demand.labels.iter().all(has) && pool.reserve.admits(demand);
        }
        let host = situation.host;
        host.missing_labels(&demand.labels).is_empty()
            && host.missing_labels(&pool.labels).is_empty()
            && host.reserve.admits(demand)
            && pool.reserve.admits(demand)
    };
    let offered = accepting.iter().filter(is_offered).copied();
    let offered: Vec<_> = if queue.spill { offered.collect() } else { offered.take(1).collect() };
    if offered.is_empty() {
        return Err(wait_for_host(job, &accepting, situation));
    }
    let has_device = |(name, pool): &(&str, &SlotPool)| {
        is_engines(name) || situation.host.has_device(&pool.device_for(&demand.device))
    };
    let present: Vec<_> = offered.iter().copied().filter(has_device).collect();
    if present.is_empty() {
        let own = format!("no pool of queue {} has device {} on this host", demand.queue, demand.device);
        return Err(elsewhere(job, &accepting, situation).unwrap_or(("NO_SUCH_DEVICE", own)));
    }
    let large_enough: Vec<_> =
        present.iter().copied().filter(|(_, pool)| pool.slots_milli >= demand.slots_milli).collect();
    if large_enough.is_empty() {
        let most = present.iter().map(|(_, pool)| pool.slots_milli).max().unwrap_or(0);
        let (needed, most) = (count_slots(demand.slots_milli), format_slots(most));
        let own = format!("it needs {needed}, and its pools have at most {most}");
        return Err(elsewhere(job, &accepting, situation).unwrap_or(("INSUFFICIENT_GPU", own)));
    }
    Ok(large_enough)
}

/// Returns the reason of a job that this host has no device or slots for, if another host has them.
fn elsewhere(job: &QueuedJob, pools: &[(&str, &SlotPool)], situation: &PlacementInput<'_>) -> Option<WaitReason> {
    let demand = &job.demand;
    let is_large_enough = |host: &HostRecord| {
        host.id != situation.server.id
            && host.offer.slots_milli >= demand.slots_milli
            && host.offer.has_device(&demand.device)
    };
    takes_jobs(situation).any(is_large_enough).then(|| wait_for_host(job, pools, situation))
}

/// Returns the reason of a job that another host could run, or `None`.
fn other_host(job: &QueuedJob, pools: &[(&str, &SlotPool)], situation: &PlacementInput<'_>) -> Option<WaitReason> {
    let demand = &job.demand;
    let is_offered = |host: &HostRecord, pool: &SlotPool| {
        host.offer.missing_labels(&pool.labels).is_empty()
            && pool.reserve.admits(demand)
            && host.offer.has_device(&pool.device_for(&demand.device))
    };
    let could_run = |host: &&HostRecord| {
        host.id != situation.server.id
            && host.offer.could_run(demand)
            && pools.iter().any(|(_, pool)| is_offered(host, pool))
    };
    let names: Vec<&str> =
        takes_jobs(situation).filter(could_run).map(|host| host.name.as_str()).take(HOSTS_NAMED_MAX).collect();
    let names = names.join(", ");
    (!names.is_empty()).then(|| (WAITING_FOR_HOST, format!("a slot of {names}")))
}

/// Returns the reason of a job that waits for another host, or that no host is offered to because of labels or a reserve.
fn wait_for_host(job: &QueuedJob, pools: &[(&str, &SlotPool)], situation: &PlacementInput<'_>) -> WaitReason {
    if let Some(reason) = other_host(job, pools, situation) {
        return reason;
    }
    let mut required = job.demand.labels.clone();
    // The labels of a pool are needed if those of the job would suffice.
    let is_open = pools.iter().any(|(_, pool)| pool.labels.is_empty());
    if !is_open && let Some((_, first)) = pools.first() {
        required.extend(first.labels.clone());
    }
    let mut hosts: Vec<String> = takes_jobs(situation).map(describe).take(HOSTS_NAMED_MAX).collect();
    if hosts.is_empty() {
        hosts.push(format!("this one{}", in_brackets(&situation.host.labels)));
    }
    let hosts = hosts.join(", ");
    let demand = &job.demand;
    let fits = |offer: &HostOffer| {
        offer.missing_labels(&required).is_empty()
            && offer.has_device(&demand.device)
            && offer.slots_milli >= demand.slots_milli
    };
    let has_all = takes_jobs(situation).any(|host| fits(&host.offer)) || fits(situation.host);
    let sentence = if has_all {
        format!(
            "every host that it fits is reserved for preemptible jobs, and it is not preemptible; the hosts are: {hosts}"
        )
    } else {
        format!("no host has the labels {}; the hosts are: {hosts}", format_labels(&required))
    };
    (NO_MATCHING_HOST, sentence)
}

/// Returns the hosts that take jobs.
fn takes_jobs<'a>(situation: &PlacementInput<'a>) -> impl Iterator<Item = &'a HostRecord> {
    situation.hosts.iter().filter(|host| host.state == HostState::Ready)
}

fn describe(host: &HostRecord) -> String {
    format!("{}{}", host.name, in_brackets(&host.offer.labels))
}

fn in_brackets(labels: &HostLabels) -> String {
    if labels.is_empty() { String::new() } else { format!(" ({})", format_labels(labels)) }
}

/// Returns the name of the host with this identifier.
pub(super) fn host_name<'a>(id: &str, hosts: &'a [HostRecord]) -> &'a str {
    hosts.iter().find(|host| host.id == id).map_or("another host", |host| &host.name)
}
