//! Predictions beside a training on one device: their latency and the training's speed must stay close to those without
//! the other.

use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, ServerProcess};

use crate::client::{encode_post, port_of_url};
use crate::open_loop;
use crate::report::{BenchGoal, BenchReport};
use crate::stage::{BenchFixture, picture_json};
use crate::statistics::{median, percentile};

/// Predictions per second: a moderate load, far below the maximum.
const RATE: f64 = 200.0;
const SECONDS: f64 = 6.0;
const ROUNDS: usize = 5;
/// More epochs than the training has time for.
const EPOCHS: &str = "epochs=100000";

pub(crate) fn measure(stage: &BenchFixture, server: &ServerProcess, report: &mut BenchReport) {
    stage.train_lenet(server);
    let request = encode_post("/models/lenet/predict", "", &picture_json(&stage.pictures()[0]));
    let predict = || p99_ms(server, &request);
    println!(
        "\n{RATE} predictions of LeNet a second, and a training of it on the same device; {ROUNDS} rounds in turn"
    );
    let (mut alone, mut beside, mut speed_alone, mut speed_beside) = (vec![], vec![], vec![], vec![]);
    let plugin = saggar_tests::lenet();
    for round in 0..ROUNDS {
        alone.push(predict());
        let (project, model) = (format!("beside-{round}"), "model=beside");
        let run = ["run", plugin.to_str().unwrap(), "--project", &project, "--data", "pictures", "--device", "cpu"];
        server.saggar_ok(&[&run[..], &["--", "batch=64", model, EPOCHS]].concat());
        let job = format!("{project}-1");
        server.wait_for("the training to be under way", |server| (trained_samples(server, &job).0 > 0.0).then_some(()));
        speed_alone.push(training_rate(server, &job, || std::thread::sleep(Duration::from_secs_f64(SECONDS))));
        speed_beside.push(training_rate(server, &job, || beside.push(predict())));
        let answer = server.request("POST", &format!("/api/v1/jobs/{job}/stop"), HttpPayload::Nothing);
        assert!(answer.status < 300, "{}", answer.text);
        server.wait_for_job(&job);
    }
    println!("  p99 alone {:.2} ms, beside the training {:.2} ms", median(alone.clone()), median(beside.clone()));
    println!(
        "  training alone {:.0} samples/s, beside the predictions {:.0}",
        median(speed_alone.clone()),
        median(speed_beside.clone())
    );
    let slower = median(beside) / median(alone);
    report.add_goal("predictions beside a training: p99 / alone", slower, "x", BenchGoal::AtMost(2.0));
    let relative_speed = median(speed_beside) / median(speed_alone);
    report.add_goal("a training beside predictions: speed / alone", relative_speed, "x", BenchGoal::AtLeast(0.6));
}

fn p99_ms(server: &ServerProcess, request: &[u8]) -> f64 {
    let outcome = open_loop::run(port_of_url(server.url()), request, RATE, SECONDS);
    assert_eq!(outcome.answered.len() as u64, outcome.due, "{:?}", outcome.statuses);
    percentile(outcome.answered.iter().map(|seconds| seconds * 1e3).collect(), 99.0)
}

/// Returns the samples per second of the job while `f` runs, between two of its reports.
fn training_rate(server: &ServerProcess, job: &str, f: impl FnOnce()) -> f64 {
    let next = |after: (f64, Instant)| {
        server
            .wait_for("a report of the job", |server| Some(trained_samples(server, job)).filter(|now| now.0 > after.0))
    };
    let first = next(trained_samples(server, job));
    f();
    let last = next(trained_samples(server, job));
    (last.0 - first.0) / (last.1 - first.1).as_secs_f64()
}

/// Returns the number of samples that the job has reported, and the time of the query.
fn trained_samples(server: &ServerProcess, job: &str) -> (f64, Instant) {
    let attempts = &server.get(&format!("/api/v1/jobs/{job}"))["attempts"];
    (attempts[0]["samples"].as_f64().unwrap_or(0.0), Instant::now())
}
