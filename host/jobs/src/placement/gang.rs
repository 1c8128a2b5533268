//! Gang scheduling: places a job whose ranks are on several hosts. All its hosts are chosen at once or none, so no part of a
//! job holds slots while the job waits for the others, and two such jobs never wait for each other.
//!
//! Every host makes the same choice from the same records. One of the chosen hosts claims the job, and is its first host. A
//! job that has to wait reserves slots on the hosts that it will probably get, so that later jobs do not starve it.

use std::collections::BTreeSet;

use saggar_store::records::{ActiveJob, AttemptHost, HostRecord, HostState, QueuedJob};

use super::{
    JobPlacement, PlacementInput, SlotLedger, count_slots, enough_victims, format_slots, is_made_elsewhere,
    is_releasing, outranks, preemption_order, slot_unit, waiting_for,
};
use crate::limits::PART_HOST_UNSEEN_MAX;
use crate::scheduler_config::{JobQueue, SlotPool};

/// The code of a wait for more hosts than there are.
const NO_MATCHING_HOST: &str = "NO_MATCHING_HOST";
/// Maximum names in a reason.
const NAMES_MAX: usize = 8;

/// A host that could run a part of a job, and its slots of one pool, in thousandths.
struct GangCandidate<'a> {
    host: &'a HostRecord,
    device: String,
    free: u32,
    /// The jobs whose preemption would suffice; `None` if nothing does. Empty if enough slots are or become free.
    victims: Option<Vec<&'a ActiveJob>>,
}

impl GangCandidate<'_> {
    fn fits(&self, job: &QueuedJob) -> bool {
        self.free >= job.demand.slots_milli
    }
}

/// Places a job with several hosts in one of the pools of its queue.
pub(super) fn place_gang<'a>(
    ledger: &mut SlotLedger<'a>,
    job: &'a QueuedJob,
    queue: &JobQueue,
    situation: &PlacementInput<'a>,
) -> JobPlacement {
    let hosts = job.demand.hosts as usize;
    let is_engines = |name: &str| situation.layout.engine_pools.contains(name);
    let accepting = queue.pools.iter().filter_map(|name| {
        let (name, pool) = situation.layout.pools.get_key_value(name)?;
        let accepts = pool.accepts_device(&job.demand.device) && pool.reserve.admits(&job.demand) && !is_engines(name);
        accepts.then_some((name.as_str(), pool))
    });
    let accepting: Vec<_> = accepting.take(if queue.spill { usize::MAX } else { 1 }).collect();
    let with_candidates =
        accepting.iter().map(|&(name, pool)| (name, candidates(ledger, job, (name, pool), situation)));
    let (enough, few): (Vec<_>, Vec<_>) = with_candidates.partition(|(_, found)| found.len() >= hosts);
    let is_own = |candidate: &GangCandidate<'_>| candidate.host.id == situation.server.id;
    for (name, found) in &enough {
        let fitting: Vec<_> = found.iter().filter(|candidate| candidate.fits(job)).collect();
        if fitting.len() < hosts {
            continue;
        }
        let Some(own) = fitting.iter().find(|candidate| is_own(candidate)) else {
            let names = host_names(fitting.iter().map(|candidate| candidate.host));
            return waiting_for("WAITING_FOR_HOST", format!("one of its hosts starts it: {names}"));
        };
        let others = fitting.iter().filter(|candidate| !is_own(candidate)).take(hosts - 1);
        let chosen: Vec<_> = std::iter::once(own).chain(others).collect();
        for candidate in &chosen {
            ledger.take_on_host(&candidate.host.id, name, job.demand.slots_milli, situation);
        }
        ledger.count_running(&job.demand.queue, &job.project, job.owner.as_deref(), 1);
        let part = |candidate: &&&GangCandidate<'_>| AttemptHost {
            host_id: candidate.host.id.clone(),
            host: candidate.host.name.clone(),
            pool: (*name).to_owned(),
            device: candidate.device.clone(),
        };
        let parts: Vec<AttemptHost> = chosen.iter().map(part).collect();
        return JobPlacement::Start { pool: (*name).to_owned(), device: own.device.clone(), hosts: parts };
    }
    match enough.into_iter().next() {
        Some((name, found)) => wait_for_slots(ledger, job, name, found, situation),
        None => wait_for_hosts(job, &few),
    }
}

/// Returns the parts of an attempt whose first one a process of a batch job is about to run in this pool. Other processes of
/// the batch job take the others.
pub(super) fn parts_of_batch_job(
    job: &QueuedJob,
    (name, pool): (&str, &SlotPool),
    situation: &PlacementInput<'_>,
) -> Vec<AttemptHost> {
    let Some(batch_job) = situation.batch_job.filter(|_| job.demand.hosts > 1) else { return Vec::new() };
    let (pool_name, device) = (name.to_owned(), pool.device_for(&job.demand.device));
    let open = AttemptHost { host_id: String::new(), host: batch_job.to_owned(), pool: pool_name, device };
    let own = AttemptHost { host_id: situation.server.id.clone(), host: situation.server.name.clone(), ..open.clone() };
    std::iter::once(own).chain(std::iter::repeat_n(open, job.demand.hosts as usize - 1)).collect()
}

/// Returns the hosts that could run a part of the job in this pool if all its slots were free, the best ones first: those
/// with enough free slots, then those on which the fewest jobs have to be preempted.
fn candidates<'a>(
    ledger: &SlotLedger<'a>,
    job: &QueuedJob,
    (name, pool): (&str, &SlotPool),
    situation: &PlacementInput<'a>,
) -> Vec<GangCandidate<'a>> {
    let (demand, needed) = (&job.demand, job.demand.slots_milli);
    let known = if situation.hosts.is_empty() { &situation.state.hosts } else { situation.hosts };
    let candidate = |host: &'a HostRecord| {
        let offer = &host.offer;
        let offered = offer.pools.get(name)?;
        let device = offered.device.clone().unwrap_or_else(|| demand.device.clone());
        let could_run = host.state == HostState::Ready
            && u128::from(host.unseen_ms) <= PART_HOST_UNSEEN_MAX.as_millis()
            && offered.slots_milli >= needed
            && offer.could_run(demand)
            && offer.missing_labels(&pool.labels).is_empty()
            && offer.has_device(&device)
            // All ranks compute the same only if they are of one build.
            && offer.version == situation.host.version
            && (job.storage.is_empty() || offer.storage == job.storage);
        if !could_run {
            return None;
        }
        let (free, releasing) = ledger.slots_on_host(host, name, offered.slots_milli, situation);
        let victims = victims_on_host(job, host, name, free + releasing, situation);
        Some(GangCandidate { host, device, free, victims })
    };
    let mut found: Vec<_> = known.iter().filter_map(candidate).collect();
    found.sort_by_key(|candidate| {
        let cost = candidate.victims.as_ref().map_or(usize::MAX, Vec::len);
        (!candidate.fits(job), cost, &candidate.host.name, &candidate.host.id)
    });
    found
}

/// Returns the jobs to preempt on a host so that a part of this job fits; `None` if they would not suffice.
fn victims_on_host<'a>(
    job: &QueuedJob,
    host: &HostRecord,
    pool: &str,
    room: u32,
    situation: &PlacementInput<'a>,
) -> Option<Vec<&'a ActiveJob>> {
    let is_victim = |other: &&ActiveJob| {
        let is_here = other.pool_on(&host.id) == Some(pool);
        is_here && !is_releasing(other) && other.demand.preemptible && outranks(job, other)
    };
    let mut others: Vec<_> = situation.state.running.iter().filter(is_victim).collect();
    others.sort_by_key(|job| preemption_order(job));
    enough_victims(job, room, others.into_iter())
}

/// Reserves slots for a job that enough hosts could run, and preempts jobs for it if that makes all its hosts fit.
fn wait_for_slots<'a>(
    ledger: &mut SlotLedger<'a>,
    job: &'a QueuedJob,
    pool: &str,
    mut found: Vec<GangCandidate<'a>>,
    situation: &PlacementInput<'a>,
) -> JobPlacement {
    let names = host_names(found.iter().filter(|candidate| candidate.fits(job)).map(|candidate| candidate.host));
    let fitting = found.iter().filter(|candidate| candidate.fits(job)).count();
    let hosts = job.demand.hosts as usize;
    found.truncate(hosts);
    for candidate in &found {
        ledger.reserve_on_host(&candidate.host.id, pool, job.demand.slots_milli, situation);
    }
    let is_made = job.room.as_ref().is_some_and(|room| is_made_elsewhere(room, situation));
    let victims: Option<Vec<_>> = found.iter().map(|candidate| candidate.victims.as_ref()).collect();
    let evict: BTreeSet<&str> = match victims {
        Some(victims) if !is_made => victims.into_iter().flatten().map(|victim| victim.id.as_str()).collect(),
        Some(_) | None => BTreeSet::new(),
    };
    ledger.evictable.retain(|(_, other)| !evict.contains(other.id.as_str()));
    let (needed, unit) = (format_slots(job.demand.slots_milli), slot_unit(job.demand.slots_milli));
    let have = match fitting {
        0 => "none has".to_owned(),
        1 => format!("1 has: {names}"),
        many => format!("{many} have: {names}"),
    };
    let sentence = format!("{hosts} hosts with {needed} free {unit} each of pool {pool}; {have}");
    JobPlacement::Wait { code: "WAITING_FOR_SLOT", sentence, evict: evict.into_iter().map(str::to_owned).collect() }
}

/// Returns the reason of a job that needs more hosts than could run it.
fn wait_for_hosts(job: &QueuedJob, few: &[(&str, Vec<GangCandidate<'_>>)]) -> JobPlacement {
    let most = few.iter().max_by_key(|(_, found)| found.len());
    let (pool, found) = most.map_or((job.demand.queue.as_str(), &[][..]), |(name, found)| (*name, found.as_slice()));
    let names = host_names(found.iter().map(|candidate| candidate.host));
    let which = match found.len() {
        0 => "no host fits".to_owned(),
        1 => format!("1 host fits: {names}"),
        many => format!("{many} hosts fit: {names}"),
    };
    let (hosts, needed) = (job.demand.hosts, count_slots(job.demand.slots_milli));
    let sentence = format!(
        "it needs {hosts} hosts with {needed} of pool {pool} each; {which}. `saggar worker join` adds hosts to a \
         server with a database"
    );
    waiting_for(NO_MATCHING_HOST, sentence)
}

fn host_names<'a>(hosts: impl Iterator<Item = &'a HostRecord>) -> String {
    hosts.map(|host| host.name.as_str()).take(NAMES_MAX).collect::<Vec<_>>().join(", ")
}
