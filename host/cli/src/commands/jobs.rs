//! `saggar ps`, `status`, `logs` and `stop`.

mod annotations;
mod best_checkpoint;
mod compare;
mod control;
mod experiments;
mod idle;
pub(crate) mod job_series;
mod logged_items;
mod metrics;
mod quota;
mod removal;
mod replay;
mod schedules_and_secrets;
mod sparklines;
mod tensorboard;
mod watch;

use std::time::{SystemTime, UNIX_EPOCH};

use saggar_rest::jobs::{
    AttemptDocument, JobDocument, JobListDocument, JobTimeDocument, MountSummary, StepOutputDocument,
};
use saggar_store::JobState;
use serde::Serialize;
use serde_json::Value;

use super::job_follow::{detach_on_interrupt, job_path, loss};
use super::job_log;
use super::worker::listing;
use crate::args::{JobNamesArgs, LogsArgs, PsArgs, StatusArgs};
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::units;

pub(crate) use annotations::{note, tag};
pub(crate) use compare::{compare, diff};
pub(crate) use control::{pause, preempt, restart, resume, wait as wait_for};
pub(crate) use experiments::experiment;
pub(crate) use logged_items::logged;
pub(crate) use metrics::metrics;
pub(crate) use quota::{cost, queues, quota};
pub(crate) use removal::{gc, rm};
pub(crate) use replay::replay;
pub(crate) use schedules_and_secrets::{schedules, secret};

/// Maximum jobs of one response page.
const JOBS_PER_PAGE: u32 = 500;

pub(crate) fn ps(args: &PsArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    if args.workers {
        return show_listing(args, output, || listing::list_workers(client), |it| listing::print_workers(&it, output));
    }
    if args.idle {
        return show_listing(args, output, || idle::list_idle(client), |idle| idle::print_idle(&idle, output));
    }
    let read = || -> Result<(Vec<JobDocument>, Vec<String>), CliError> {
        let jobs = list_selected(args, client)?;
        let series = args.spark.as_deref().filter(|_| !output.json && !output.quiet);
        let sparks = series.map(|series| sparklines::spark_cells(series, &jobs, client)).transpose()?;
        Ok((jobs, sparks.unwrap_or_default()))
    };
    let show = |(jobs, sparks): (Vec<JobDocument>, Vec<String>)| print_jobs(&jobs, &sparks, output);
    show_listing(args, output, read, show)
}

/// Shows a listing once, or again and again until the command is interrupted.
fn show_listing<T>(
    args: &PsArgs,
    output: CliOutput,
    read: impl Fn() -> Result<T, CliError>,
    show: impl Fn(T),
) -> Result<(), CliError> {
    if args.watch { watch::watch_listing(output, read, show) } else { read().map(show) }
}

/// Lists the jobs that the arguments select.
fn list_selected(args: &PsArgs, client: &ApiClient) -> Result<Vec<JobDocument>, CliError> {
    let everything = args.all || args.state.is_some() || args.experiment.is_some();
    // Filtered by the server, because a running job can be behind any number of newer finished ones.
    let going_on = || JobState::ALL.iter().filter(|state| !state.is_final()).map(|state| state.name());
    let state = match &args.state {
        Some(state) => format!("&state={}", encode_path_segment(&state.to_uppercase())),
        None if everything => String::new(),
        None => format!("&state={}", going_on().collect::<Vec<_>>().join(",")),
    };
    let experiment = args
        .experiment
        .as_deref()
        .map_or_else(String::new, |name| format!("&experiment={}", encode_path_segment(name)));
    list_jobs(client, &format!("{state}{experiment}"))
}

/// Prints jobs; `sparks` has a series of each as blocks, or is empty.
fn print_jobs(jobs: &[JobDocument], sparks: &[String], output: CliOutput) {
    if output.json {
        output.print_json(&jobs);
    } else if output.quiet {
        jobs.iter().for_each(|job| output.print_line(&job.name));
    } else {
        let mut rows: Vec<Vec<String>> = jobs.iter().map(|job| job_row(job, output)).collect();
        let mut headers =
            vec!["JOB", "STATE", "ATTEMPT", "STEP", "PROGRESS", "RATE", "LOSS", "GPU-SEC", "CREATED", "REASON"];
        if !sparks.is_empty() {
            headers.push("SERIES");
            rows.iter_mut().zip(sparks).for_each(|(row, spark)| row.push(spark.clone()));
        }
        // Servers without others have no names.
        if jobs.iter().any(|job| job.server.is_some() || !job.hosts.is_empty()) {
            headers.push("HOSTS");
            let hosts = |job: &JobDocument| hosts_or_server(&job.hosts, job.server.as_deref().unwrap_or("-"));
            rows.iter_mut().zip(jobs).for_each(|(row, job)| row.push(hosts(job)));
        }
        // Most listings have no tags.
        if jobs.iter().any(|job| !job.tags.is_empty()) {
            headers.push("TAGS");
            rows.iter_mut().zip(jobs).for_each(|(row, job)| row.push(annotations::format_tags(&job.tags)));
        }
        output.print_table(&headers, &rows);
        if rows.is_empty() {
            output.print_note(
                "No jobs. Start one with `saggar run PLUGIN --data DATASET`; `saggar ps -a` lists finished ones.",
            );
        }
    }
}

/// Lists all jobs of `query`, page by page.
fn list_jobs(client: &ApiClient, query: &str) -> Result<Vec<JobDocument>, CliError> {
    let (mut jobs, mut from) = (Vec::new(), String::new());
    loop {
        let page: JobListDocument = client.get(&format!("/api/v1/jobs?limit={JOBS_PER_PAGE}{query}{from}"))?;
        jobs.extend(page.jobs);
        let Some(cursor) = page.cursor else { return Ok(jobs) };
        from = format!("&cursor={cursor}");
    }
}

fn job_row(job: &JobDocument, output: CliOutput) -> Vec<String> {
    let (step, target) = (job.step, job.steps_target);
    let dash = || "-".to_owned();
    let known = target > 0;
    let rate = job.steps_per_second.map_or_else(dash, |rate| format!("{rate:.1}/s"));
    let reason = match (job.reason.as_str(), job.position) {
        (reason, Some(position)) => format!("{reason} (position {position})"),
        ("", None) => dash(),
        (reason, None) => reason.to_owned(),
    };
    vec![
        job.name.clone(),
        output.format_state(&job.state),
        format!("{}/{}", job.attempt, job.attempts_max),
        if known { format!("{step}/{target}") } else { dash() },
        if known { format!("{} %", step * 100 / target) } else { dash() },
        rate,
        loss(job).map_or_else(dash, |loss| format!("{loss:.4}")),
        device_seconds(job.gpu_seconds, job.gpu_seconds_estimated, 1),
        units::format_age(job.created_ms, now_ms()),
        reason,
    ]
}

pub(crate) fn status(args: &StatusArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let job: JobDocument = client.get(&job_path(&args.job))?;
    if let Some(field) = &args.field {
        return print_field(&job, field, output);
    }
    if output.json {
        output.print_json(&job);
        return Ok(());
    }
    let state = output.format_state(&job.state);
    let why = &job.message;
    output.print_line(&format!("{}  {state}{}{why}", job.name, if why.is_empty() { "" } else { "  " }));
    let spec = job.spec_summary();
    let mounts: Vec<String> = spec.data.iter().map(format_mount).collect();
    let facts = [
        ("plugin", spec.plugin.chars().take(12).collect()),
        ("parameters", Value::Object(spec.parameters).to_string()),
        ("data", mounts.join(" ")),
        ("device", job.device.clone().unwrap_or_default()),
        ("hosts", hosts_or_server(&job.hosts, job.server.as_deref().unwrap_or_default())),
        ("from", spec.init_from.unwrap_or_default()),
        ("queue", queue_summary(&job)),
        ("experiment", job.experiment.clone().unwrap_or_default()),
        ("tags", if job.tags.is_empty() { String::new() } else { annotations::format_tags(&job.tags) }),
        ("note", job.note.replace('\n', "\n             ")),
        ("time", time_breakdown(&job.time)),
        ("best", best_checkpoint::best_checkpoint_summary(&job.name, spec.checkpoint_keep_best, client)?),
        ("seed", spec.seed.to_string()),
        ("created", units::format_age(job.created_ms, now_ms())),
    ];
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        output.print_line(&format!("  {name:<11}{value}"));
    }
    for hint in &job.hints {
        output.print_note(&format!("  hint: {hint}"));
    }
    for (name, value) in &job.metrics {
        output.print_line(&format!("  {name:<24}{}", Value::from(*value)));
    }
    for (name, it) in job.step_outputs.iter().flatten() {
        output.print_line(&format!("  output {name:<17}{}", format_step_value(it)));
    }
    let phases = job.phases.unwrap_or_default();
    // A job of one phase has that phase's state.
    for phase in phases.iter().filter(|_| phases.len() > 1) {
        output.print_line(&format!("  phase {:<18}{}", phase.name, output.format_state(&phase.state)));
    }
    let attempts = job.attempts.unwrap_or_default();
    output.print_line("");
    print_attempts(&attempts, output);
    Ok(())
}

/// Formats the shares of a job's time: `compute 81 %, data 12 %, other 7 %`.
fn time_breakdown(time: &JobTimeDocument) -> String {
    let parts = [
        ("compute", time.compute_seconds),
        ("data", time.data_seconds),
        ("all-reduce", time.all_reduce_seconds),
        ("checkpoint", time.checkpoint_seconds),
        ("other", time.other_seconds),
    ];
    let whole: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
    let shares = parts.map(|(part, seconds)| (part, (seconds / whole.max(1e-9) * 100.0).round()));
    let words = shares.iter().filter(|(_, share)| *share > 0.0).map(|(part, share)| format!("{part} {share} %"));
    words.collect::<Vec<_>>().join(", ")
}

/// Formats a job's queue, priority, position and pool.
fn queue_summary(job: &JobDocument) -> String {
    let preemptible = if job.preemptible { ", preemptible" } else { "" };
    let position = job.position.map_or_else(String::new, |position| format!(", position {position}"));
    let pool = job.pool.as_ref().map_or_else(String::new, |pool| format!(", pool {pool}"));
    format!("{} (priority {}{preemptible}{position}{pool})", job.queue, job.priority)
}

/// Formats a mount: `mnist/1:/data`, `job:prepare-3/output:/init`.
fn format_mount(from: &MountSummary) -> String {
    let MountSummary { mount, dataset, version, job, path } = from;
    match job {
        None => format!("{dataset}/{version}:{mount}"),
        Some(job) => {
            let path = path.as_ref().map_or_else(String::new, |path| format!("/{path}"));
            format!("job:{job}/output{path}:{mount}")
        }
    }
}

/// Formats the value of a step's output: `0.5`, `job:choose-3/output/report (1.2 KiB)`.
pub(super) fn format_step_value(output: &StepOutputDocument) -> String {
    let value = match &output.value {
        Value::String(text) => text.escape_debug().to_string(),
        other => other.to_string(),
    };
    output.bytes.map_or_else(|| value.clone(), |bytes| format!("{value} ({})", units::format_bytes(bytes)))
}

/// Prints one value: text as it is, anything else as JSON.
fn print_field(job: &JobDocument, field: &str, output: CliOutput) -> Result<(), CliError> {
    let document = serde_json::to_value(job).expect("documents have text as keys");
    // A metric's name can contain dots, so the longest existing key is tried first.
    let mut value = &document;
    let mut rest = field;
    while !rest.is_empty() {
        let mut ends = [rest.len()].into_iter().chain(rest.rmatch_indices('.').map(|(at, _)| at));
        let Some(end) = ends.find(|end| value.get(&rest[..*end]).is_some()) else {
            let known: Vec<&str> = value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
            let message = format!("{} has no field {field:?}", job.name);
            let hint = format!("there are: {}", known.join(", "));
            return Err(CliError::new(exit::NOT_FOUND, "no_field", message).with_hint(hint));
        };
        value = &value[&rest[..end]];
        rest = rest[end..].trim_start_matches('.');
    }
    match value {
        Value::String(text) => output.print_line(text),
        Value::Object(_) | Value::Array(_) => output.print_json(value),
        other => output.print_json_line(other),
    }
    Ok(())
}

fn print_attempts(attempts: &[AttemptDocument], output: CliOutput) {
    let mut rows: Vec<Vec<String>> = attempts.iter().map(|attempt| attempt_row(attempt, output)).collect();
    let mut headers = vec!["ATTEMPT", "STATE", "STEPS", "DEVICE", "STARTED", "DURATION", "GPU-SEC", "REASON"];
    let hosts: Vec<String> = attempts.iter().map(|attempt| hosts_or_server(&attempt.hosts, &attempt.server)).collect();
    if hosts.iter().any(|hosts| !hosts.is_empty()) {
        headers.insert(4, "HOSTS");
        rows.iter_mut().zip(hosts).for_each(|(row, hosts)| row.insert(4, hosts));
    }
    output.print_table(&headers, &rows);
}

/// Returns where an attempt runs, or an empty text without other servers.
fn hosts_or_server(hosts: &[String], server: &str) -> String {
    if hosts.is_empty() { server.to_owned() } else { hosts.join(",") }
}

fn attempt_row(attempt: &AttemptDocument, output: CliOutput) -> Vec<String> {
    let why = &attempt.message;
    vec![
        attempt.number.to_string(),
        output.format_state(&attempt.state),
        format!("{} → {}", attempt.first_step, attempt.last_step),
        attempt.device.clone(),
        units::format_age(attempt.started_ms, now_ms()),
        units::format_duration(attempt.wall_seconds),
        device_seconds(attempt.gpu_seconds, attempt.gpu_seconds_estimated, 2),
        if why.is_empty() { "-".to_owned() } else { why.clone() },
    ]
}

/// Formats the device seconds of a job or an attempt: `1.25`, or `1.25 estimated` if the device has no timer.
fn device_seconds(seconds: f64, is_estimated: bool, digits: usize) -> String {
    let estimated = if is_estimated && seconds > 0.0 { " estimated" } else { "" };
    format!("{seconds:.digits$}{estimated}")
}

pub(crate) fn logs(args: &LogsArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let mut query = Vec::new();
    query.extend(args.follow.then(|| "follow=1".to_owned()));
    query.extend(args.timestamps.then(|| "timestamps=1".to_owned()));
    query.extend(args.prefix.then(|| "prefix=1".to_owned()));
    let attempt = if args.previous { Some(previous_attempt(&args.job, client)?) } else { args.attempt.map(u64::from) };
    query.extend(attempt.map(|attempt| format!("attempt={attempt}")));
    query.extend(args.since.as_deref().map(|since| format!("since={}", encode_path_segment(since))));
    query.extend(args.tail.map(|tail| format!("tail={tail}")));
    if args.follow {
        detach_on_interrupt(args.job.clone());
    }
    let path = format!("{}/logs?{}", job_path(&args.job), query.join("&"));
    if args.follow { job_log::follow_log(client, output, &path) } else { job_log::print_log(client, output, &path) }
}

/// Returns the number of the attempt before the newest one.
fn previous_attempt(name: &str, client: &ApiClient) -> Result<u64, CliError> {
    let job: JobDocument = client.get(&job_path(name))?;
    match u64::from(job.attempt) {
        count @ ..2 => {
            let had = if count == 0 { "no attempt" } else { "one attempt" };
            let message = format!("{} has had {had}, so there is no previous one", job.name);
            let hint = format!("`saggar logs {}` prints what there is", job.name);
            Err(CliError::new(exit::NOT_FOUND, "not_found", message).with_hint(hint))
        }
        newest => Ok(newest - 1),
    }
}

pub(crate) fn stop(args: &JobNamesArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    change_each(&args.jobs, output, |name| {
        let job: JobDocument = client.post(&format!("{}/stop", job_path(name)), RequestBody::Empty)?;
        Ok((format!("{} {}", job.name, job.state), job))
    })
}

/// Applies a change to every job, and prints a line for each, or the jobs as JSON: an object for one job, a list for
/// several. A failure does not stop the other jobs.
///
/// # Errors
/// Returns the error of the first job that failed. Further errors are printed.
pub(in crate::commands) fn change_each<T: Serialize>(
    names: &[String],
    output: CliOutput,
    change: impl Fn(&str) -> Result<(String, T), CliError>,
) -> Result<(), CliError> {
    let (mut changed, mut first) = (Vec::new(), None);
    for name in names {
        match change(name) {
            Ok((line, job)) => {
                if !output.json {
                    output.print_line_ignoring_errors(&line);
                }
                changed.push(job);
            }
            Err(failure) if first.is_none() => first = Some(failure),
            Err(failure) => output.print_error(&failure),
        }
    }
    if output.json {
        match (names, changed.as_slice()) {
            ([_], [job]) => output.print_json(job),
            ([_], _) => {}
            (_, jobs) => output.print_json(&jobs),
        }
    }
    first.map_or(Ok(()), Err)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
