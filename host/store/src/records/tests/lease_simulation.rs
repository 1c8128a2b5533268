//! A simulation of servers that share records while they freeze, lose their connection or an answer, are killed, or have
//! their clocks set, and the database restarts. Each second of it is a step of the test's clock. A failure names the seed,
//! with which `SAGGAR_SIMULATION_SEED` repeats it. `SAGGAR_SIMULATION_SEEDS` is the number of seeds of a long form.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::lease_clock::LeaseFixture;
use super::leases::{host_lost, query, server};
use super::{new_job, reason};
use crate::error::RecordError;
use crate::records::{
    AttemptUsage, JobLease, JobPlacements, JobState, LEASE_RENEWAL_INTERVAL, LeaseRenewal, PendingPublication,
    PlacedJob, PlacementState, ReaperGate, ServerIdentity, StateReason,
};

/// Seconds without a renewal after which an owner no longer knows that it is one.
const UNSURE_SECONDS: u64 = 12;
/// Seconds after the last trouble of a server in which its jobs can be taken away.
const TROUBLE_SECONDS: u64 = 17;
const SLOTS: usize = 2;

/// A generator of pseudo-random numbers: xorshift64*.
struct SimulationRng(u64);

impl SimulationRng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    /// Returns `true` once in `of` calls.
    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// An attempt that a server believes to own.
struct HeldAttempt {
    lease: JobLease,
    work_left: u64,
    /// The second of the last renewal; `None` if the attempt has ended and its server did not get the answer.
    renewed: Option<u64>,
}

struct SimulatedServer {
    identity: ServerIdentity,
    gate: ReaperGate,
    frozen_until: u64,
    cut_until: u64,
    /// How far its own clock is ahead of the database's.
    clock_ahead_ms: i64,
    next_renewal: u64,
    /// The last second in which it could not work as usual.
    trouble: u64,
    held: Vec<HeldAttempt>,
}

/// What has happened to a job, by the order of the accepted writes.
#[derive(Default)]
struct JobTruth {
    /// The token of the claim that owns it, and the server.
    owner: Option<(String, usize)>,
    claims: u32,
    successes: u32,
}

/// What happened in a simulation, to see that it tested something.
#[derive(Debug, Default)]
struct SimulationCounts {
    reaped: u32,
    published: u32,
    completed: u32,
    refused: u32,
    lost_answers: u32,
}

struct LeaseSimulation<'a> {
    fixture: &'a LeaseFixture,
    rng: SimulationRng,
    second: u64,
    has_faults: bool,
    database_returns: u64,
    servers: Vec<SimulatedServer>,
    jobs: BTreeMap<String, JobTruth>,
    /// The publications that were registered, and those whose version is visible.
    registered: BTreeSet<String>,
    visible: BTreeSet<String>,
    counts: SimulationCounts,
}

impl LeaseSimulation<'_> {
    fn new(fixture: &LeaseFixture, seed: u64) -> LeaseSimulation<'_> {
        let simulated = |name: &str| SimulatedServer {
            identity: server(name),
            gate: ReaperGate::new(Duration::ZERO),
            frozen_until: 0,
            cut_until: 0,
            clock_ahead_ms: 0,
            next_renewal: 0,
            trouble: 0,
            held: Vec::new(),
        };
        let servers = ["a", "b", "c"].map(simulated).into();
        let rng = SimulationRng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        LeaseSimulation {
            fixture,
            rng,
            second: 0,
            has_faults: true,
            database_returns: 0,
            servers,
            jobs: BTreeMap::new(),
            registered: BTreeSet::new(),
            visible: BTreeSet::new(),
            counts: SimulationCounts::default(),
        }
    }

    fn now_ms(&self) -> u64 {
        self.second * 1000
    }

    /// Returns the time by a server's own clock.
    fn own_now_ms(&self, at: usize) -> u64 {
        self.now_ms().saturating_add_signed(self.servers[at].clock_ahead_ms)
    }

    fn step(&mut self) {
        self.second += 1;
        self.fixture.clock.advance(1000);
        if self.has_faults && self.rng.one_in(12) {
            let id = self.fixture.records.submit(&new_job("p"), self.now_ms()).unwrap().id;
            self.jobs.insert(id, JobTruth::default());
        }
        if self.has_faults && self.second >= self.database_returns && self.rng.one_in(60) {
            self.database_returns = self.second + 1 + self.rng.below(20);
        }
        if self.second == self.database_returns {
            self.fixture.clock.restart_database();
        }
        let first = self.rng.below(self.servers.len() as u64) as usize;
        for at in 0..self.servers.len() {
            let at = (first + at) % self.servers.len();
            self.cause_trouble(at);
            if self.second >= self.servers[at].frozen_until {
                self.run_server(at);
            }
        }
    }

    fn cause_trouble(&mut self, at: usize) {
        if self.has_faults && self.rng.one_in(50) {
            let until = self.second + 1 + self.rng.below(40);
            match self.rng.below(4) {
                0 => self.servers[at].frozen_until = until,
                1 => self.servers[at].cut_until = until,
                // Its clock is set, by a day at most.
                2 => self.servers[at].clock_ahead_ms = self.rng.below(172_800_000).cast_signed() - 86_400_000,
                // Killed: it does not know its jobs when it is back.
                _ => {
                    let now = Duration::from_secs(until);
                    let server = &mut self.servers[at];
                    server.held.clear();
                    (server.frozen_until, server.gate) = (until, ReaperGate::new(now));
                    server.trouble = until;
                }
            }
        }
        let (second, server) = (self.second, &mut self.servers[at]);
        if second < server.frozen_until.max(server.cut_until) {
            server.trouble = server.trouble.max(second);
        }
    }

    fn run_server(&mut self, at: usize) {
        let is_reached = self.second >= self.servers[at].cut_until.max(self.database_returns);
        let now = Duration::from_secs(self.second);
        self.save_checkpoints(at);
        if !is_reached {
            return;
        }
        if self.second >= self.servers[at].next_renewal {
            self.renew(at);
        }
        self.publish(at);
        self.work(at);
        self.complete_publications();
        self.claim(at);
        let server = &mut self.servers[at];
        server.gate.record_answer(now, now);
        if server.gate.is_open(now) {
            self.reap(at);
        }
    }

    /// An owner that is not unsure saves without asking the database: it must be the owner.
    fn save_checkpoints(&mut self, at: usize) {
        for held in &self.servers[at].held {
            if held.renewed.is_some_and(|renewed| self.second - renewed < UNSURE_SECONDS) {
                let owner = self.jobs[&held.lease.job].owner.as_ref().map(|(claim, _)| claim);
                assert_eq!(owner, Some(&held.lease.claim), "an owner that is sure saves for another one");
            }
        }
    }

    fn owns(&self, lease: &JobLease) -> bool {
        self.jobs[&lease.job].owner.as_ref().is_some_and(|(claim, _)| *claim == lease.claim)
    }

    fn renew(&mut self, at: usize) {
        self.servers[at].next_renewal = self.second + LEASE_RENEWAL_INTERVAL.as_secs();
        let held = std::mem::take(&mut self.servers[at].held);
        let leases: Vec<_> = held.iter().map(|held| held.lease.clone()).collect();
        let renewals = self.fixture.records.renew_leases(&leases).unwrap();
        for (mut held, renewal) in held.into_iter().zip(renewals) {
            let is_renewed = matches!(renewal, LeaseRenewal::Renewed { .. });
            assert_eq!(is_renewed, self.owns(&held.lease), "{:?}", held.lease);
            if is_renewed {
                held.renewed = Some(self.second);
                self.servers[at].held.push(held);
            } else {
                self.counts.refused += 1;
            }
        }
    }

    /// Each attempt publishes now and then, however long its server was frozen since it knew to own the job. The version
    /// becomes visible at once, or its attempt does not come to that.
    fn publish(&mut self, at: usize) {
        let leases: Vec<JobLease> = self.servers[at].held.iter().map(|held| held.lease.clone()).collect();
        for lease in leases {
            if !self.rng.one_in(10) {
                continue;
            }
            let version = self.registered.len() as u64 + 1;
            let id = format!("{}-{}-{version}", lease.job, lease.attempt);
            let publication = PendingPublication { id: id.clone(), model: "m".to_owned(), version };
            let registered = self.fixture.records.register_publication(&lease, &publication);
            assert_eq!(registered.is_ok(), self.owns(&lease), "{registered:?}");
            if registered.is_err() {
                self.counts.refused += 1;
                continue;
            }
            self.registered.insert(id.clone());
            if self.rng.one_in(2) {
                assert!(self.visible.insert(id));
                self.fixture.records.confirm_publication("m", version).unwrap();
                self.counts.published += 1;
            }
        }
    }

    /// Makes versions visible whose attempts have ended.
    fn complete_publications(&mut self) {
        for publication in self.fixture.records.unfinished_publications().unwrap() {
            assert!(self.registered.contains(&publication.id), "{publication:?} was refused");
            assert!(self.visible.insert(publication.id), "it becomes visible twice");
            self.fixture.records.confirm_publication("m", publication.version).unwrap();
            self.counts.completed += 1;
        }
    }

    fn work(&mut self, at: usize) {
        for mut held in std::mem::take(&mut self.servers[at].held) {
            held.work_left = held.work_left.saturating_sub(1);
            let (owns, is_lost) = (self.owns(&held.lease), self.has_faults && self.rng.one_in(4));
            let (lease, now_ms) = (held.lease.clone(), self.own_now_ms(at));
            let records = &self.fixture.records;
            let (written, ends) = if held.work_left == 0 {
                let done = records.finish_job(&lease, JobState::Succeeded, &StateReason::default(), now_ms);
                (done.map(drop), Some(true))
            } else if self.has_faults && self.rng.one_in(30) {
                (records.requeue(&lease, &reason("PREEMPTED"), 0, now_ms).map(drop), Some(false))
            } else {
                (records.record_progress(&lease, 1, 2, &AttemptUsage::default()).map(drop), None)
            };
            assert_eq!(written.is_ok(), owns, "{written:?}");
            match (&written, ends) {
                (Ok(()), Some(is_success)) => {
                    let truth = self.jobs.get_mut(&lease.job).unwrap();
                    truth.owner = None;
                    truth.successes += u32::from(is_success);
                }
                (Ok(()), None) => {}
                (Err(error), _) => {
                    let is_refusal = matches!(error, RecordError::Fenced { .. } | RecordError::Finished { .. });
                    assert!(is_refusal, "{error}");
                    self.counts.refused += 1;
                }
            }
            // Without the answer, the owner asks again in the next second.
            let asks_again = ends.is_some() && written.is_ok() && is_lost;
            self.counts.lost_answers += u32::from(asks_again);
            if asks_again || (written.is_ok() && ends.is_none()) {
                if asks_again {
                    // Its worker has ended.
                    held.renewed = None;
                    held.work_left = 1;
                }
                self.servers[at].held.push(held);
            }
        }
    }

    fn claim(&mut self, at: usize) {
        let free = SLOTS.saturating_sub(self.servers[at].held.len());
        if free == 0 || !self.rng.one_in(2) {
            return;
        }
        let id = self.servers[at].identity.id.clone();
        let place = |state: &PlacementState| {
            let busy = state.running.iter().filter(|job| job.server_id == id).count();
            let placed = state.waiting.iter().map(|job| PlacedJob {
                id: job.id.clone(),
                pool: "any".to_owned(),
                hosts: Vec::new(),
            });
            let start = placed.take(free.min(SLOTS.saturating_sub(busy))).collect();
            JobPlacements { start, preempt: Vec::new() }
        };
        let records = &self.fixture.records;
        let claimed = records.claim_placed(&query(&self.servers[at].identity, self.own_now_ms(at)), &place).unwrap();
        let is_lost = self.has_faults && self.rng.one_in(10);
        for claim in claimed.into_iter().map(|placed| placed.claim) {
            let truth = self.jobs.get_mut(&claim.job.id).unwrap();
            assert!(truth.owner.is_none() && truth.successes == 0, "{} has an owner", claim.job.name);
            truth.owner = Some((claim.lease.claim.clone(), at));
            truth.claims += 1;
            assert_eq!(claim.lease.attempt, truth.claims);
            if is_lost {
                self.counts.lost_answers += 1;
                self.servers[at].trouble = self.second;
            } else {
                let work_left = 1 + self.rng.below(30);
                self.servers[at].held.push(HeldAttempt { lease: claim.lease, work_left, renewed: Some(self.second) });
            }
        }
    }

    fn reap(&mut self, reaper: usize) {
        for job in self.fixture.records.reap_expired(&host_lost, self.own_now_ms(reaper)).unwrap() {
            let (claim, owner) = self.jobs.get_mut(&job.id).unwrap().owner.take().expect("it was active");
            let server = &self.servers[owner];
            let is_held = server.held.iter().any(|held| held.lease.claim == claim);
            let since = self.second.saturating_sub(server.trouble);
            assert!(!is_held || since <= TROUBLE_SECONDS, "{} was taken from a healthy server", job.name);
            self.counts.reaped += 1;
        }
    }

    /// Runs without faults until all jobs are over.
    fn finish(&mut self) {
        self.has_faults = false;
        for _ in 0..600 {
            if self.jobs.values().all(|job| job.successes == 1) && self.servers.iter().all(|it| it.held.is_empty()) {
                break;
            }
            self.step();
        }
        self.complete_publications();
        assert_eq!(self.visible, self.registered, "what was registered is visible, and nothing else");
        for (id, truth) in &self.jobs {
            let job = self.fixture.records.get(id).unwrap();
            assert_eq!(
                (job.state, truth.successes, job.attempts),
                (JobState::Succeeded, 1, truth.claims),
                "{}",
                job.name
            );
            assert_eq!(self.fixture.records.count_events(id, "SUCCEEDED").unwrap(), 1);
            let attempts = self.fixture.records.attempts(id).unwrap();
            assert!(attempts.iter().all(|attempt| attempt.ended_ms.is_some()));
        }
    }
}

/// Runs simulations of these seeds, each on new records, or of the seed in the environment.
fn simulate(seeds: std::ops::Range<u64>, seconds: u64, open: impl Fn() -> Option<LeaseFixture>) {
    let given = std::env::var("SAGGAR_SIMULATION_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
    let count = std::env::var("SAGGAR_SIMULATION_SEEDS").ok().map(|count| count.parse::<u64>().expect("a number"));
    let seeds = count.map_or(seeds.clone(), |count| seeds.start..seeds.start + count);
    let seeds = given.map_or(seeds, |seed| seed..seed + 1);
    let mut total = SimulationCounts::default();
    for seed in seeds {
        let Some(fixture) = open() else { return };
        let run = std::panic::AssertUnwindSafe(|| {
            let mut simulation = LeaseSimulation::new(&fixture, seed);
            (0..seconds).for_each(|_| simulation.step());
            simulation.finish();
            simulation.counts
        });
        let counts = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            eprintln!("the seed is {seed}; SAGGAR_SIMULATION_SEED={seed} repeats it");
            std::panic::resume_unwind(panic)
        });
        total.published += counts.published;
        total.completed += counts.completed;
        total.reaped += counts.reaped;
        total.refused += counts.refused;
        total.lost_answers += counts.lost_answers;
    }
    println!("{total:?}");
    assert!(given.is_some() || (total.reaped > 0 && total.refused > 0 && total.lost_answers > 0), "{total:?}");
    assert!(given.is_some() || (total.published > 0 && total.completed > 0), "{total:?}");
}

#[test]
fn servers_with_faults_run_each_job_to_success_once_on_sqlite() {
    simulate(0..20, 300, || Some(LeaseFixture::sqlite_in_memory()));
}

#[test]
fn servers_with_faults_run_each_job_to_success_once_on_postgres() {
    simulate(100..102, 200, LeaseFixture::postgres);
}
