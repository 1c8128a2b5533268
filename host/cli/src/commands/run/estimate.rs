//! `saggar run --estimate`: measures the time of a training where it would run, before it is submitted.

use std::time::{Duration, Instant};

use saggar_jobs::{ESTIMATE_FILE, JobSpec};
use saggar_rest::jobs::{JobDocument, RemovedJobDocument};
use saggar_store::JobState;
use serde::{Deserialize, Serialize};

use crate::client::{ApiClient, RequestBody};
use crate::commands::job_follow::{self, describe_end, exit_code};
use crate::exit::CliError;
use crate::interrupt;
use crate::output::{CliOutput, print_to_stderr};
use crate::units::format_duration;

/// Maximum time of a stopped job to end.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);
/// How often the server is polled for that end.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The estimate of a training: the content of the measuring job's file, and whether it exceeds the job's time limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunEstimate {
    /// The steps of the training.
    steps: u64,
    /// The time of these steps.
    seconds: f64,
    /// The number of steps that were measured.
    from_steps: u64,
    /// The time of the measured steps.
    from_seconds: f64,
    /// The rate after the first measured step.
    steps_per_second: Option<f64>,
    /// Whether `seconds` does not include the work at the end of epochs.
    lacks_epoch_end: bool,
    /// The time of the first step.
    first_step_seconds: f64,
    /// The device.
    device: String,
    /// Whether the training would be stopped before its end.
    exceeds_max_runtime: bool,
}

/// Measures the training with a separate job on the server, which is removed again, and returns an estimate of the
/// whole training. Warns if it exceeds the job's own time limit. Ctrl-C removes the measuring job.
///
/// # Errors
/// Fails if the measuring job fails as the training would; that job is kept with its log.
pub(super) fn estimate_before_run(
    spec: &JobSpec,
    client: &ApiClient,
    output: CliOutput,
) -> Result<RunEstimate, CliError> {
    let job: JobDocument = client.post("/api/v1/jobs", RequestBody::json(&measuring_spec(spec)))?;
    let name = job.name;
    let (interrupted, measuring) = (client.clone(), name.clone());
    interrupt::set_interrupt_action(move || stop_and_remove(&interrupted, &measuring));
    output.print_note(&format!("measuring what the training would take, as {name}"));
    let estimate = wait_for_estimate(client, output, &name);
    // Nothing is left to remove from here on.
    interrupt::set_interrupt_action(|| ());
    let mut estimate = estimate?;
    // The estimate was requested, so it is printed even without notes; in JSON mode it is part of the document.
    if !output.json {
        print_to_stderr(&format!("  estimate {}", format_estimate(&estimate)));
    }
    let warning = runtime_warning(spec, &estimate);
    estimate.exceeds_max_runtime = warning.is_some();
    warning.inspect(|warning| print_to_stderr(&format!("saggar: warning: {warning}")));
    Ok(estimate)
}

/// Waits for the measuring job, removes it and returns its result.
fn wait_for_estimate(client: &ApiClient, output: CliOutput, name: &str) -> Result<RunEstimate, CliError> {
    let job = job_follow::wait_until_over(client, output, name)?;
    if job.state != JobState::Succeeded.name() {
        let code = exit_code(&job);
        let message = format!("nothing was started: {}", describe_end(&job, name, output));
        return Err(CliError::new(code, "not_measured", message).with_hint(format!("see `saggar logs {name}`")));
    }
    let estimate = client.get(&format!("/api/v1/jobs/{name}/output/{ESTIMATE_FILE}"))?;
    if let Err(failure) = client.delete::<RemovedJobDocument>(&format!("/api/v1/jobs/{name}")) {
        output.print_note(&format!("{name} stays: {failure}"));
    }
    Ok(estimate)
}

/// Stops and removes a job that is no longer needed.
fn stop_and_remove(client: &ApiClient, name: &str) {
    print_to_stderr(&format!("\nnothing is started; {name}, which measures, is stopped and removed"));
    let path = format!("/api/v1/jobs/{name}");
    let ended = || {
        client.post::<JobDocument>(&format!("{path}/stop"), RequestBody::Empty)?;
        let began = Instant::now();
        while began.elapsed() < STOP_TIME_MAX && !job_follow::is_over(&client.get(&path)?) {
            std::thread::sleep(STOP_POLL_INTERVAL);
        }
        client.delete::<RemovedJobDocument>(&path)
    };
    if let Err(failure) = ended() {
        print_to_stderr(&format!("{name} stays: {failure}; `saggar stop {name}` and `saggar rm {name}` remove it"));
    }
}

/// Returns the specification of the measuring job: the same training without retries, experiment and time limit.
fn measuring_spec(spec: &JobSpec) -> JobSpec {
    JobSpec {
        measure: true,
        hosts: 1,
        retry: 0,
        experiment: None,
        max_runtime_seconds: None,
        auto_extend: 0,
        max_attempt_runtime_seconds: None,
        utilization: None,
        message: Some("measured for --estimate".to_owned()),
        ..spec.clone()
    }
}

/// Formats an estimate: `3m 40s for 1920 steps on vulkan:0 (8.7 steps/s)`.
fn format_estimate(estimate: &RunEstimate) -> String {
    let RunEstimate { steps, seconds, device, .. } = estimate;
    let at_least = if estimate.lacks_epoch_end { "at least " } else { "" };
    let time = format_duration(*seconds);
    let rate = estimate.steps_per_second.map_or_else(String::new, |rate| format!(" ({rate:.1} steps/s)"));
    format!("{at_least}{time} for {steps} steps on {device}{rate}")
}

/// Returns a warning if the estimate exceeds the job's time limit, extensions included.
fn runtime_warning(spec: &JobSpec, estimate: &RunEstimate) -> Option<String> {
    let seconds = estimate.seconds;
    let granted = spec.max_runtime_seconds? * (f64::from(spec.auto_extend) + 1.0);
    (seconds > granted).then(|| {
        let [time, granted] = [seconds, granted].map(format_duration);
        format!("the training takes about {time}, more than the {granted} of --max-runtime: it would be saved and stopped before its end")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_beyond_the_max_runtime_is_warned_of() {
        let spec = |seconds, auto_extend| {
            let spec = JobSpec::new("p", "0".repeat(64));
            JobSpec { max_runtime_seconds: seconds, auto_extend, ..spec }
        };
        let estimate = RunEstimate {
            steps: 6000,
            seconds: 690.0,
            steps_per_second: Some(8.7),
            device: "vulkan:0".to_owned(),
            ..RunEstimate::default()
        };
        assert_eq!(format_estimate(&estimate), "11m 30s for 6000 steps on vulkan:0 (8.7 steps/s)");
        let said = runtime_warning(&spec(Some(600.0), 0), &estimate).unwrap();
        assert!(said.contains("11m 30s") && said.contains("10m 00s"), "{said}");
        assert_eq!(runtime_warning(&spec(Some(700.0), 0), &estimate), None);
        assert_eq!(runtime_warning(&spec(Some(600.0), 1), &estimate), None, "it is granted once more");
        assert_eq!(runtime_warning(&spec(None, 0), &estimate), None);
        assert_eq!(runtime_warning(&spec(Some(600.0), u32::MAX), &estimate), None, "as often as can be written");
    }

    #[test]
    fn the_measuring_job_has_no_runtime_limit() {
        let spec = JobSpec { max_runtime_seconds: Some(1.0), seed: 7, ..JobSpec::new("p", "0".repeat(64)) };
        let measured = measuring_spec(&spec);
        assert!(measured.measure && measured.max_runtime_seconds.is_none());
        assert_eq!((measured.seed, &measured.plugin), (7, &spec.plugin));
        measured.validate().unwrap();
    }
}
