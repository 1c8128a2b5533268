//! `make bench-scale`: many hosts and a long queue over one PostgreSQL.
//!
//! A thousand hosts with one slot each place, claim, renew and finish jobs through the records, as servers do, while a
//! server with the same database lists them. Nothing is trained. Lengths of the queue are 1,000, 10,000 and 100,000 jobs,
//! so that the growth of each cost can be seen. Arguments are other lengths.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark stops at the first thing that goes wrong")]

#[path = "scale/hosts.rs"]
mod hosts;
#[path = "bench/machine.rs"]
mod machine;
#[path = "bench/processes.rs"]
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod processes;
#[path = "scale/samples.rs"]
mod samples;
#[path = "bench/statistics.rs"]
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod statistics;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hosts::{HOSTS, HostLoad};
use processes::rss_mb;
use saggar_store::records::{self, JobRecords, NewJob, SchedulingRequest};
use saggar_tests::postgres::PostgresServer;
use saggar_tests::{ServerProcess, binary};
use samples::LatencySamples;

/// The lengths of the queue.
const QUEUES: [u64; 3] = [1_000, 10_000, 100_000];
/// Groups of jobs with the same parameters: projects and priorities.
const PROJECTS: u64 = 20;
const PRIORITIES: u64 = 5;
/// How long the hosts work.
const LOAD_TIME: Duration = Duration::from_secs(60);
/// Listings while they do.
const LISTINGS: usize = 200;
/// The storage of the hosts, so that the server runs none of their jobs.
const STORAGE: &str = "simulated";

fn main() {
    let lengths: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    println!("{}\n{}", machine::describe(), machine::noise_warning(machine::load_average()));
    println!("{HOSTS} hosts, {} groups of jobs; milliseconds\n", PROJECTS * PRIORITIES);
    println!(
        "{:>8} {:>12} {:>22} {:>22} {:>22} {:>22} {:>9}",
        "queued",
        "submit p50",
        "look p50 / p99 / max",
        "claim p50 / p99 / max",
        "renew p50 / p99 / max",
        "list p50 / p99 / max",
        "server MB"
    );
    let lengths = if lengths.is_empty() { QUEUES.to_vec() } else { lengths };
    let goals: Vec<String> = lengths.into_iter().flat_map(measure).collect();
    goals.iter().for_each(|line| println!("{line}"));
}

/// Measures one length of the queue, and returns a line for each goal.
fn measure(length: u64) -> [String; 3] {
    let database = PostgresServer::start().expect("PostgreSQL is installed");
    let records = records::open(database.url()).unwrap();
    let submit = fill(&records, length);
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary());
    command.args(["serve", "--port", "0", "--name", "server", "--home"]).arg(home.path());
    command.env("SAGGAR_DATABASE_URL", database.url());
    let server = ServerProcess::from_command(command, home.path());
    let load = HostLoad::start(database.url());
    let (began, mut list) = (Instant::now(), LatencySamples::default());
    let mut memory: f64 = 0.0;
    while began.elapsed() < LOAD_TIME {
        let jobs = list.time(|| server.get("/api/v1/jobs?limit=100"));
        assert_eq!(jobs["jobs"].as_array().unwrap().len(), 100, "{jobs}");
        memory = memory.max(rss_mb(server.pid()));
        std::thread::sleep(LOAD_TIME / u32::try_from(LISTINGS).unwrap());
    }
    let figures = load.stop();
    println!(
        "{length:>8} {:>12.1} {:>22} {:>22} {:>22} {:>22} {memory:>9.0}",
        submit.percentile(50.0),
        figures.look,
        figures.claim,
        figures.renew,
        list
    );
    println!(
        "{:>8} {} claims in {:.0} s, {} jobs lost, {:.0} looks/s, {:.0} renewals/s",
        "",
        figures.claimed,
        LOAD_TIME.as_secs_f64(),
        figures.lost,
        figures.look.per_second(LOAD_TIME),
        figures.renew.per_second(LOAD_TIME)
    );
    let goal = |what: &str, figure: f64, most: f64, unit: &str| {
        let met = if figure <= most { "met" } else { "NOT met" };
        format!("{length} queued jobs, {what}: {figure:.0} {unit}, goal at most {most} {unit}: {met}")
    };
    [
        goal("claim, 99th percentile", figures.claim.percentile(99.0), 100.0, "ms"),
        goal("listing, 99th percentile", list.percentile(99.0), 200.0, "ms"),
        goal("memory of a server", memory, 500.0, "MB"),
    ]
}

/// Submits jobs, and returns how long each submission took.
fn fill(records: &Arc<dyn JobRecords>, length: u64) -> LatencySamples {
    let mut samples = LatencySamples::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn(move || {
                    let mut samples = LatencySamples::default();
                    for number in (thread..length).step_by(8) {
                        samples.time(|| records.submit(&job(number), number).unwrap());
                    }
                    samples
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| samples.add_all(&thread.join().unwrap()));
    });
    samples
}

fn job(number: u64) -> NewJob {
    let priority = i32::try_from(number / PROJECTS % PRIORITIES).unwrap();
    NewJob {
        project: format!("project-{}", number % PROJECTS),
        task: "train".to_owned(),
        spec: r#"{"plugin":"none"}"#.to_owned(),
        demand: SchedulingRequest { priority, ..SchedulingRequest::default() },
        storage: STORAGE.to_owned(),
        ..NewJob::default()
    }
}
