//! The queue: the time to a job's first step on an idle machine, and the share of time that many small jobs spend in
//! attempts.

use std::time::{Duration, Instant};

use saggar_tests::{ServerProcess, SteadyJob};
use serde_json::Value;

use crate::processes::rss_mb;
use crate::report::{BenchGoal, BenchReport};
use crate::stage::BenchFixture;
use crate::statistics::median;

/// Number of starts whose median is taken.
const STARTS: usize = 9;
/// Number of small jobs; their steps follow.
const JOBS: usize = 500;
const STEPS: u64 = 20;

pub(crate) fn measure(_: &BenchFixture, server: &ServerProcess, report: &mut BenchReport) {
    println!("\nqueue: {STARTS} starts on an idle machine, then {JOBS} jobs of {STEPS} steps at once, one at a time");
    let starts = (0..STARTS).map(|_| first_step_seconds(server)).collect();
    report.add_goal("submission to first step on an idle machine", median(starts), " s", BenchGoal::AtMost(2.0));

    let spec = SteadyJob::with_steps(STEPS).with_field("project", "many").spec(server);
    let names: Vec<Value> = (0..JOBS).map(|_| server.post("/api/v1/jobs", &spec)["name"].clone()).collect();
    let mut rss: f64 = 0.0;
    let last = names[JOBS - 1].as_str().unwrap();
    loop {
        rss = rss.max(rss_mb(server.pid()));
        let job = server.job(last);
        if job["finished_ms"].is_u64() {
            assert_eq!(job["state"], "SUCCEEDED", "{job}");
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let attempts: Vec<Value> =
        names.iter().map(|name| server.job(name.as_str().unwrap())["attempts"][0].clone()).collect();
    let time = |attempt: &Value, key: &str| attempt[key].as_f64().unwrap();
    let begin = attempts.iter().map(|it| time(it, "started_ms")).fold(f64::INFINITY, f64::min);
    let end = attempts.iter().map(|it| time(it, "ended_ms")).fold(0.0, f64::max);
    let inside: f64 = attempts.iter().map(|it| time(it, "wall_seconds")).sum();
    let whole = (end - begin) / 1000.0;
    println!("  {JOBS} jobs in {whole:.1} s, {inside:.1} s of it inside attempts; the server held at most {rss:.0} MB");
    report.add_goal("500 small jobs: share of the time inside attempts", inside / whole, "", BenchGoal::AtLeast(0.9));
    report.add_goal("500 small jobs: the server's resident memory", rss, " MB", BenchGoal::AtMost(300.0));
}

/// Returns the seconds from the submission of a job to its first step.
fn first_step_seconds(server: &ServerProcess) -> f64 {
    let spec = SteadyJob::with_steps(5).with_field("project", "first").spec(server);
    let began = Instant::now();
    let name = server.post("/api/v1/jobs", &spec)["name"].as_str().unwrap().to_owned();
    while server.job(&name)["step"].as_u64() == Some(0) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let seconds = began.elapsed().as_secs_f64();
    server.wait_for_job(&name);
    seconds
}
