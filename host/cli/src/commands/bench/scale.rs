//! `saggar bench scale`: trains with several numbers of worker processes on the running server, and fits Amdahl's law.
//!
//! Every number of workers shares the same shards, so all of them compute the same training. The time of a step is that
//! between the first and the last metric that the training reports, so the start of the processes is not part of it.
//! Jobs run one after the other and are removed when they are over.

use saggar_charts::{ChartPanel, LineChart, SeriesLine};
use saggar_jobs::JobSpec;
use saggar_rest::job_metrics::{JobMetricsDocument, MetricSeriesPoint};
use saggar_rest::jobs::{JobDocument, RemovedJobDocument};
use saggar_store::JobState;
use serde::Serialize;

use super::amdahl::{ParallelShare, WorkerTimes, amdahl_speedup, fit_parallel_share, mean_seconds};
use super::confidence::CONFIDENCE;
use super::device::format_seconds;
use super::saved_result::{BenchKind, BetterDirection, MeasuredSeries, SavedResult};
use crate::args::{BenchScaleArgs, RunArgs};
use crate::client::{ApiClient, RequestBody};
use crate::commands::{job_follow, run};
use crate::exit::{self, CliError};
use crate::interrupt;
use crate::output::{CliOutput, print_to_stderr};

/// The largest number of workers of a chart.
const CHART_WORKERS_MAX: u32 = 64;

/// The figures of one number of workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct WorkerResult {
    workers: u32,
    /// The seconds of a step in each repetition.
    step_seconds: Vec<f64>,
    mean_step_seconds: f64,
    /// The speed-up over one worker.
    speedup: f64,
    /// The speed-up of the fitted law.
    fitted_speedup: f64,
    /// The speed-up divided by the number of workers.
    efficiency: f64,
}

/// The figures of all numbers of workers, and the fitted law.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ScaleResults {
    shards: u32,
    device: String,
    results: Vec<WorkerResult>,
    /// The share of the work that is done in parallel, by Amdahl's law.
    parallel_share: f64,
    parallel_share_interval: Option<[f64; 2]>,
    confidence: f64,
}

pub(super) fn scale(args: &BenchScaleArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let workers = worker_counts(&args.workers)?;
    args.chart.check_absent(&args.look)?;
    let spec = training_spec(args, client, &workers, output)?;
    let (mut times, mut device): (Vec<WorkerTimes>, _) = (Vec::new(), String::new());
    times.extend(workers.iter().map(|&workers| WorkerTimes { workers, seconds: Vec::new() }));
    // The numbers of workers take turns, so that a change of the machine's speed affects all of them.
    for repetition in 1..=args.repetitions {
        for measured in &mut times {
            let workers = measured.workers;
            output.print_note(&format!(
                "training with --workers {workers}, repetition {repetition} of {}",
                args.repetitions
            ));
            let job = train_once(&JobSpec { replicas: workers, hosts: 1, ..spec.clone() }, client, output)?;
            measured.seconds.push(job.step_seconds);
            device = job.device;
        }
    }
    let share = fit_parallel_share(&times, args.seed).expect("one and several workers were measured");
    let shards = spec.shards.unwrap_or(1);
    let results = ScaleResults {
        shards,
        device,
        results: worker_results(&times, &share),
        parallel_share: share.share,
        parallel_share_interval: share.interval,
        confidence: CONFIDENCE,
    };
    let saved = SavedResult::new(BenchKind::Scale, series(&times), results)
        .with_condition(
            "plugin",
            args.plugin.as_deref().map_or_else(|| "the task's".to_owned(), |path| path.display().to_string()),
        )
        .with_condition("shards", shards)
        .with_property("plugin digest", &spec.plugin);
    match output.json {
        true => output.print_json(&saved),
        false => print_scale(&saved.result, output),
    }
    if let Some(file) = &args.save {
        saved.save(file)?;
    }
    if args.chart.is_requested() {
        let title = format!("Speed-up, parallel share {:.3}", share.share);
        let panels = vec![ChartPanel::Lines(speedup_chart(&saved.result))];
        let written = args.chart.write_files(&args.look, (title, panels))?;
        written.iter().for_each(|one| output.print_note(&format!("wrote {}", one.file)));
    }
    Ok(0)
}

/// Returns the numbers of workers in ascending order, with 1 and at least one other.
fn worker_counts(given: &[u32]) -> Result<Vec<u32>, CliError> {
    let mut workers = given.to_vec();
    workers.sort_unstable();
    workers.dedup();
    if workers.first() != Some(&1) || workers.len() < 2 {
        return Err(CliError::new(
            exit::USAGE,
            "usage",
            "a speed-up is that over one worker, so --workers needs 1 and a larger number",
        )
        .with_hint("such as --workers 1,2,4"));
    }
    Ok(workers)
}

/// Returns the specification of the training: with a multiple of every number of workers as its shards, without what
/// would repeat or stop it.
fn training_spec(
    args: &BenchScaleArgs,
    client: &ApiClient,
    workers: &[u32],
    output: CliOutput,
) -> Result<JobSpec, CliError> {
    let run_args = RunArgs {
        plugin: args.plugin.clone(),
        task: args.task.clone(),
        data: args.data.clone(),
        parameters: [args.param.clone(), args.parameters.clone()].concat(),
        message: Some("measured for saggar bench scale".to_owned()),
        ..RunArgs::default()
    };
    let mut spec = run::job_spec_of_run(&run_args, client, output)?;
    let shards = args
        .shards
        .unwrap_or_else(|| workers.iter().fold(1, |shards, &workers| least_common_multiple(shards, workers)));
    if let Some(workers) = workers.iter().find(|&&workers| !shards.is_multiple_of(workers)) {
        let message = format!("--shards {shards} cannot be shared by {workers} workers");
        return Err(CliError::new(exit::USAGE, "usage", message).with_hint("use a multiple of every number of workers"));
    }
    spec.shards = Some(shards);
    spec.retry = 0;
    spec.seed = args.seed;
    if let Some(device) = &args.device {
        spec.device = device.clone();
    }
    Ok(spec)
}

fn least_common_multiple(a: u32, b: u32) -> u32 {
    let (mut large, mut small) = (a, b);
    while small > 0 {
        (large, small) = (small, large % small);
    }
    a / large * b
}

/// The measurement of one job.
struct MeasuredJob {
    step_seconds: f64,
    device: String,
}

/// Runs one training and removes its job.
fn train_once(spec: &JobSpec, client: &ApiClient, output: CliOutput) -> Result<MeasuredJob, CliError> {
    let job: JobDocument = client.post("/api/v1/jobs", RequestBody::json(spec))?;
    let (name, stopped, stopping) = (job.name.clone(), client.clone(), job.name);
    interrupt::set_interrupt_action(move || {
        let stop = stopped.post::<JobDocument>(&format!("/api/v1/jobs/{stopping}/stop"), RequestBody::Empty);
        print_to_stderr(&match stop {
            Ok(_) => format!("\n{stopping} is stopped; `saggar rm {stopping}` removes it"),
            Err(failure) => format!("\n{stopping} continues: {failure}"),
        });
    });
    let job = job_follow::wait_until_over(client, output, &name);
    interrupt::set_interrupt_action(|| ());
    let job = job?;
    if job.state != JobState::Succeeded.name() {
        let message = format!("not measured: {}", job_follow::describe_end(&job, &name, output));
        return Err(CliError::new(job_follow::exit_code(&job), "not_measured", message)
            .with_hint(format!("see `saggar logs {name}`")));
    }
    let metrics: JobMetricsDocument = client.get(&format!("/api/v1/jobs/{name}/metrics?times=1"))?;
    let step_seconds = mean_step_seconds(&metrics).ok_or_else(|| {
        CliError::invalid(format!(
            "{name} reported no two metrics with steps between them, so its steps cannot be timed"
        ))
        .with_hint("train for more epochs, such as `-- epochs=5`")
    })?;
    if let Err(failure) = client.delete::<RemovedJobDocument>(&format!("/api/v1/jobs/{name}")) {
        output.print_note(&format!("{name} stays: {failure}"));
    }
    Ok(MeasuredJob { step_seconds, device: job.device.unwrap_or_default() })
}

/// Returns the seconds of a step between the first and the last point of all series.
fn mean_step_seconds(metrics: &JobMetricsDocument) -> Option<f64> {
    let points = metrics.series.iter().flat_map(|series| &series.points).filter_map(|point| match *point {
        MetricSeriesPoint::Timed(step, _, ms) => Some((step, ms)),
        MetricSeriesPoint::Plain(..) => None,
    });
    let points: Vec<(u64, u64)> = points.collect();
    // Points of one step can come a moment apart; the earliest is that of the step.
    let (first, began) = *points.iter().min()?;
    let last = points.iter().map(|(step, _)| *step).max()?;
    let ended = points.iter().filter(|(step, _)| *step == last).map(|(_, ms)| *ms).min()?;
    let (steps, ms) = (last.checked_sub(first)?, ended.checked_sub(began)?);
    (steps > 0 && ms > 0).then(|| ms as f64 / 1e3 / steps as f64)
}

fn worker_results(times: &[WorkerTimes], share: &ParallelShare) -> Vec<WorkerResult> {
    let of_one = times.iter().find(|it| it.workers == 1).map_or(f64::NAN, mean_seconds);
    let result = |it: &WorkerTimes| {
        let speedup = of_one / mean_seconds(it);
        WorkerResult {
            workers: it.workers,
            step_seconds: it.seconds.clone(),
            mean_step_seconds: mean_seconds(it),
            speedup,
            fitted_speedup: amdahl_speedup(share.share, it.workers),
            efficiency: speedup / f64::from(it.workers),
        }
    };
    times.iter().map(result).collect()
}

fn series(times: &[WorkerTimes]) -> Vec<MeasuredSeries> {
    let of = |it: &WorkerTimes| MeasuredSeries {
        group: format!("{} workers", it.workers),
        name: "step seconds".to_owned(),
        better: BetterDirection::Lower,
        samples: it.seconds.clone(),
    };
    times.iter().map(of).collect()
}

fn print_scale(results: &ScaleResults, output: CliOutput) {
    let row = |it: &WorkerResult| {
        vec![
            it.workers.to_string(),
            format_seconds(it.mean_step_seconds),
            format!("{:.2}", it.speedup),
            format!("{:.2}", it.fitted_speedup),
            it.workers.to_string(),
            format!("{:.0}%", it.efficiency * 100.0),
        ]
    };
    let headers = ["WORKERS", "STEP", "SPEED-UP", "AMDAHL", "IDEAL", "EFFICIENCY"];
    output.print_table(&headers, &results.results.iter().map(row).collect::<Vec<_>>());
    let share = results.parallel_share;
    let interval = results.parallel_share_interval.map_or_else(
        || "no interval with fewer than 3 repetitions".to_owned(),
        |[low, high]| format!("{:.0} % interval {low:.3} to {high:.3}", results.confidence * 100.0),
    );
    output.print_line(&format!("parallel share p = {share:.3} ({interval}), by 1 / ((1 - p) + p / n)"));
    if share < 0.0 {
        output.print_note("more workers are slower here: the exchange of means costs more than it saves");
    } else if share < 1.0 {
        output.print_note(&format!("no number of workers is faster than {:.1} times", 1.0 / (1.0 - share)));
    }
    output.print_note(&format!("{} shards on {}", results.shards, results.device));
}

/// Returns the measured, the fitted and the ideal speed-up by number of workers.
fn speedup_chart(results: &ScaleResults) -> LineChart {
    let largest = results.results.iter().map(|it| it.workers).max().unwrap_or(1);
    let all = 1..=largest.min(CHART_WORKERS_MAX);
    let measured = results.results.iter().map(|it| (u64::from(it.workers), it.speedup));
    let line = |name: &str, points: Vec<(u64, f64)>| SeriesLine { name: name.to_owned(), points };
    let share = results.parallel_share;
    LineChart {
        title: "speed-up over one worker".to_owned(),
        x_label: "workers".to_owned(),
        y_label: "speed-up".to_owned(),
        lines: vec![
            line("measured", measured.collect()),
            line(
                "Amdahl's law",
                all.clone().map(|workers| (u64::from(workers), amdahl_speedup(share, workers))).collect(),
            ),
            line("ideal", all.map(|workers| (u64::from(workers), f64::from(workers))).collect()),
        ],
        ..LineChart::default()
    }
}

#[cfg(test)]
mod tests {
    use saggar_rest::job_metrics::MetricSeriesDocument;

    use super::*;

    #[test]
    fn workers_need_one_and_several() {
        assert_eq!(worker_counts(&[4, 1, 2, 2]).unwrap(), [1, 2, 4]);
        assert!([&[1][..], &[2, 4], &[]].iter().all(|workers| worker_counts(workers).is_err()));
        assert_eq!([(1, 4), (4, 6), (3, 2)].map(|(a, b)| least_common_multiple(a, b)), [4, 12, 6]);
    }

    #[test]
    fn the_time_of_a_step_is_that_between_the_first_and_the_last_metric() {
        let series = |points: &[(u64, u64)]| MetricSeriesDocument {
            name: "loss".to_owned(),
            points: points.iter().map(|&(step, ms)| MetricSeriesPoint::Timed(step, Some(1.0), ms)).collect(),
        };
        let document = |series| JobMetricsDocument { series, ..JobMetricsDocument::default() };
        let metrics = document(vec![series(&[(10, 1000), (30, 1400)]), series(&[(20, 1200), (30, 1900)])]);
        assert_eq!(mean_step_seconds(&metrics), Some(0.02));
        assert_eq!(mean_step_seconds(&document(vec![series(&[(10, 1000)])])), None);
        assert_eq!(mean_step_seconds(&document(Vec::new())), None);
    }

    #[test]
    fn speed_ups_are_measured_fitted_and_ideal() {
        let of = |workers, seconds| WorkerTimes { workers, seconds: vec![seconds; 3] };
        let times = [of(1, 1.0), of(2, 0.6), of(4, 0.4)];
        let share = fit_parallel_share(&times, 1).unwrap();
        assert!((share.share - 0.8).abs() < 1e-9, "{share:?}");
        let results = worker_results(&times, &share);
        assert!((results[2].speedup - 2.5).abs() < 1e-9 && (results[2].efficiency - 0.625).abs() < 1e-9);
        let results = ScaleResults {
            shards: 4,
            device: "cpu".to_owned(),
            results,
            parallel_share: share.share,
            parallel_share_interval: share.interval,
            confidence: CONFIDENCE,
        };
        let chart = speedup_chart(&results);
        let lines: Vec<_> = chart.lines.iter().map(|line| (line.name.as_str(), line.points.len())).collect();
        assert_eq!(lines, [("measured", 3), ("Amdahl's law", 4), ("ideal", 4)]);
        assert_eq!(chart.lines[2].points[3], (4, 4.0));
    }
}
