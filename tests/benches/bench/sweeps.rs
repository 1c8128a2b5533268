//! Sweeps: asynchronous successive halving beside a full random search of the same trials, a population beside a random
//! search of as many trainings, and the share of the time that trials spend in attempts. `SWEEP_TRIALS` and `SWEEP_EPOCHS`
//! shorten it.

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
    let run = |method: &str, trials: u32, fields: Value| {
        let mut spec = json!({
            "job": {
                "project": "search", "plugin": plugin, "device": "cpu",
                "data": [{"dataset": "pictures", "mount": "/data"}],
                "parameters": {"epochs": epochs, "model": "searched"},
            },
            "space": {"lr": "log(1e-4,3e-1)", "momentum": "uniform(0,0.95)", "channels": "4,8,16", "batch": "32,64,128"},
            "trials": trials, "method": method, "metric": METRIC, "seed": 1, "max_parallel": 2,
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
        measure_sweep(server, &spec)
    };
    let (full, asha) = (run("full", trials, json!({})), run("asha", trials, json!({"eta": 4, "rungs": 2})));
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
    measure_population(trials / 4, epochs, report, &run);
}

/// Compares a population with a random search of as many trainings, which have the same parameters at the start.
fn measure_population(
    members: u32,
    epochs: u32,
    report: &mut BenchReport,
    run: &dyn Fn(&str, u32, Value) -> MeasuredSweep,
) {
    let fields = json!({"generations": epochs.min(8), "exploit_quantile": 0.25});
    let (random, population) = (run("full", members, json!({})), run("pbt", members, fields));
    println!(
        "  {members} trainings: random best {:.4} in {} steps; pbt best {:.4} in {} steps",
        random.best, random.steps, population.best, population.steps
    );
    let points = (population.best - random.best) * 100.0;
    report.add_goal("pbt: points of accuracy above a random search", points, "", BenchGoal::AtLeast(0.0));
    let share = population.steps as f64 / random.steps as f64;
    report.add_goal("pbt: share of the steps of the random search", share, "", BenchGoal::AtMost(1.0));
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
        // A copy in a population begins at its parent's step.
        steps: attempts.iter().map(|it| it["last_step"].as_u64().unwrap() - it["first_step"].as_u64().unwrap()).sum(),
        idle: 1.0 - inside / (end - begin),
    }
}
