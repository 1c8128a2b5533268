//! Sweeps: asynchronous successive halving beside a full random search of the same trials, and the share of the time that
//! trials spend in attempts. `SWEEP_TRIALS` and `SWEEP_EPOCHS` shorten it.

use saggar_tests::{ServerProcess, lenet};
use serde_json::{Value, json};

use crate::report::{BenchGoal, BenchReport};
use crate::stage::BenchFixture;

/// The metric by which trials are compared.
const METRIC: &str = "validation/accuracy";

/// A sweep that is over.
struct MeasuredSweep {
    best: f64,
    steps: u64,
    /// The time from the first attempt's start to the last one's end that no attempt ran, as a share.
    idle: f64,
}

pub(crate) fn measure(_: &BenchFixture, server: &ServerProcess, report: &mut BenchReport) {
    let (trials, epochs) = (setting("SWEEP_TRIALS", 64), setting("SWEEP_EPOCHS", 16));
    println!("\nsweeps: {trials} trials of lenet for {epochs} epochs, all of them and with asha");
    let plugin = server.upload(&lenet());
    let run = |method: &str| {
        let spec = json!({
            "job": {
                "project": method, "plugin": plugin, "device": "cpu",
                "data": [{"dataset": "pictures", "mount": "/data"}],
                "parameters": {"epochs": epochs, "model": "searched"},
            },
            "space": {"lr": "log(1e-4,3e-1)", "momentum": "uniform(0,0.95)", "channels": "4,8,16", "batch": "32,64,128"},
            "trials": trials, "method": method, "metric": METRIC, "seed": 1, "eta": 4, "rungs": 2, "max_parallel": 2,
        });
        measure_sweep(server, &spec)
    };
    let (full, asha) = (run("full"), run("asha"));
    let share = asha.steps as f64 / full.steps as f64;
    println!(
        "  full: best {:.4} in {} steps; asha: best {:.4} in {} steps",
        full.best, full.steps, asha.best, asha.steps
    );
    let points = (full.best - asha.best) * 100.0;
    report.add_goal("asha: points of accuracy below a full search", points, "", BenchGoal::AtMost(0.2));
    report.add_goal("asha: share of the steps of a full search", share, "", BenchGoal::AtMost(1.0 / 3.0));
    report.add_goal("a full search: share of the time outside attempts", full.idle, "", BenchGoal::AtMost(0.05));
    report.add_goal("asha: share of the time outside attempts", asha.idle, "", BenchGoal::AtMost(0.05));
}

fn setting(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn measure_sweep(server: &ServerProcess, spec: &Value) -> MeasuredSweep {
    let name = server.post("/api/v1/sweeps", spec)["name"].as_str().unwrap().to_owned();
    let sweep = loop {
        let sweep = server.get(&format!("/api/v1/sweeps/{name}"));
        if sweep["state"] != "RUNNING" {
            assert_eq!(sweep["state"], "SUCCEEDED", "{sweep}");
            break sweep;
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
    };
    let trials = sweep["trials"].as_array().unwrap();
    let jobs: Vec<Value> = trials.iter().map(|trial| server.job(trial["job"].as_str().unwrap())).collect();
    let attempts: Vec<&Value> = jobs.iter().flat_map(|job| job["attempts"].as_array().unwrap()).collect();
    let time = |attempt: &Value, key: &str| attempt[key].as_f64().unwrap() / 1000.0;
    let begin = attempts.iter().map(|it| time(it, "started_ms")).fold(f64::INFINITY, f64::min);
    let end = attempts.iter().map(|it| time(it, "ended_ms")).fold(0.0, f64::max);
    // One attempt runs at a time, so their times do not overlap.
    let inside: f64 = attempts.iter().map(|it| time(it, "ended_ms") - time(it, "started_ms")).sum();
    MeasuredSweep {
        best: sweep["best_value"].as_f64().unwrap(),
        steps: jobs.iter().map(|job| job["step"].as_u64().unwrap()).sum(),
        idle: 1.0 - inside / (end - begin),
    }
}
