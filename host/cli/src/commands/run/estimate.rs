//! `saggar run --estimate`: what the training would take, measured where it would run, before it is submitted.

use std::time::{Duration, Instant};

use saggar_jobs::{ESTIMATE, JobSpec};
use serde_json::{Value, json};

use crate::client::{Client, Payload};
use crate::commands::jobs;
use crate::exit::Failure;
use crate::interrupt;
use crate::output::{Output, say};
use crate::units::show_duration;

/// How long a job that is stopped may take until it has ended.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// How often the server is asked whether it has.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// Has the server measure the training in a job of its own, which is removed again, and says what the whole would take.
/// What passes the job's own time is warned of. Ctrl-C takes the measuring job away.
///
/// # Errors
/// The measurement fails as the training would; its job stays, with its log.
pub(super) fn before(spec: &JobSpec, client: &Client, output: Output) -> Result<Value, Failure> {
    let job = client.post("/api/v1/jobs", Payload::Json(&json!(measured(spec))))?;
    let name = job["name"].as_str().unwrap_or_default().to_owned();
    let (interrupted, measuring) = (client.clone(), name.clone());
    interrupt::on(move || take_away(&interrupted, &measuring));
    output.note(&format!("measuring what the training would take, as {name}"));
    let estimate = estimate(client, output, &name);
    // From here on nothing is there that would have to go.
    interrupt::on(|| ());
    let mut estimate = estimate?;
    // It was asked for: programs find it in the answer, and people here, also where they want no notes.
    if !output.json {
        say(&format!("  estimate {}", shown(&estimate)));
    }
    let warning = warning(spec, &estimate);
    estimate["exceeds_max_runtime"] = json!(warning.is_some());
    warning.inspect(|warning| say(&format!("saggar: warning: {warning}")));
    Ok(estimate)
}

/// What the job that measures has found, which is removed.
fn estimate(client: &Client, output: Output, name: &str) -> Result<Value, Failure> {
    let job = jobs::wait(client, output, name)?;
    if job["state"] != "SUCCEEDED" {
        let code = super::exit_code(&job);
        let message = format!("nothing was started: {}", super::ended(&job, name, output));
        return Err(Failure::new(code, "not_measured", message).hint(format!("`saggar logs {name}` tells more")));
    }
    let estimate = client.get(&format!("/api/v1/jobs/{name}/output/{ESTIMATE}"))?;
    if let Err(failure) = client.delete(&format!("/api/v1/jobs/{name}")) {
        output.note(&format!("{name} stays: {failure}"));
    }
    Ok(estimate)
}

/// Stops a job that nobody waits for any more, and removes it.
fn take_away(client: &Client, name: &str) {
    say(&format!("\nnothing is started; {name}, which measures, is stopped and removed"));
    let path = format!("/api/v1/jobs/{name}");
    let ended = || {
        client.post(&format!("{path}/stop"), Payload::Nothing)?;
        let began = Instant::now();
        while began.elapsed() < STOP_PATIENCE && !jobs::is_over(&client.get(&path)?) {
            std::thread::sleep(STOP_INTERVAL);
        }
        client.delete(&path)
    };
    if let Err(failure) = ended() {
        say(&format!("{name} stays: {failure}; `saggar stop {name}` and `saggar rm {name}` remove it"));
    }
}

/// The same training, measured. It is tried once, and what it is compared with and how long it may take is left out.
fn measured(spec: &JobSpec) -> JobSpec {
    JobSpec {
        measure: true,
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

/// `3m 40s for 1920 steps on vulkan:0 (8.7 steps/s)`.
fn shown(estimate: &Value) -> String {
    let at_least = if estimate["lacks_epoch_end"] == true { "at least " } else { "" };
    let time = show_duration(estimate["seconds"].as_f64().unwrap_or(0.0));
    let device = estimate["device"].as_str().unwrap_or("?");
    let rate = estimate["steps_per_second"].as_f64().map_or_else(String::new, |rate| format!(" ({rate:.1} steps/s)"));
    format!("{at_least}{time} for {} steps on {device}{rate}", estimate["steps"])
}

/// What is said where the estimate passes the job's own time, extensions included.
fn warning(spec: &JobSpec, estimate: &Value) -> Option<String> {
    let seconds = estimate["seconds"].as_f64()?;
    let granted = spec.max_runtime_seconds? * (f64::from(spec.auto_extend) + 1.0);
    (seconds > granted).then(|| {
        let [time, granted] = [seconds, granted].map(show_duration);
        format!("the training takes about {time}, more than the {granted} of --max-runtime: it would be saved and ended before it is done")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fh_38_an_estimate_beyond_the_jobs_time_is_warned_of() {
        let spec = |seconds, auto_extend| {
            let spec = JobSpec::new("p", "0".repeat(64));
            JobSpec { max_runtime_seconds: seconds, auto_extend, ..spec }
        };
        let estimate = json!({ "steps": 6000, "seconds": 690.0, "steps_per_second": 8.7, "device": "vulkan:0" });
        assert_eq!(shown(&estimate), "11m 30s for 6000 steps on vulkan:0 (8.7 steps/s)");
        let said = warning(&spec(Some(600.0), 0), &estimate).unwrap();
        assert!(said.contains("11m 30s") && said.contains("10m 00s"), "{said}");
        assert_eq!(warning(&spec(Some(700.0), 0), &estimate), None);
        assert_eq!(warning(&spec(Some(600.0), 1), &estimate), None, "it is granted once more");
        assert_eq!(warning(&spec(None, 0), &estimate), None);
        assert_eq!(warning(&spec(Some(600.0), u32::MAX), &estimate), None, "as often as can be written");
    }

    #[test]
    fn what_is_measured_is_the_same_training_without_an_end() {
        let spec = JobSpec { max_runtime_seconds: Some(1.0), seed: 7, ..JobSpec::new("p", "0".repeat(64)) };
        let measured = measured(&spec);
        assert!(measured.measure && measured.max_runtime_seconds.is_none());
        assert_eq!((measured.seed, &measured.plugin), (7, &spec.plugin));
        measured.validate().unwrap();
    }
}
