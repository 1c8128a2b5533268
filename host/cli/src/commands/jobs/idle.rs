//! `saggar ps --idle`: lists what holds memory or slots although it was idle for a while.

use serde_json::{Value, json};

use super::{now_ms, number, text};
use crate::client::ApiClient;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::units;

/// Time without use, in milliseconds, after which something is idle.
const IDLE_AFTER_MS: u64 = 60_000;

pub(super) fn list_idle(client: &ApiClient) -> Result<Vec<Value>, CliError> {
    let models = client.get("/api/v1/models")?;
    let jobs = super::list_jobs(client, "&state=RUNNING")?;
    let now_ms = now_ms();
    let mut idle = idle_models(&models, now_ms);
    idle.extend(idle_jobs(&jobs, now_ms));
    Ok(idle)
}

pub(super) fn print_idle(idle: Vec<Value>, output: CliOutput) {
    if output.json {
        output.print_json(&Value::Array(idle));
    } else if output.quiet {
        idle.iter().for_each(|it| output.print_line(text(it, "name")));
    } else {
        let now_ms = now_ms();
        let rows: Vec<Vec<String>> = idle.iter().map(|it| idle_row(it, now_ms)).collect();
        output.print_table(&["KIND", "NAME", "HOLDS", "LAST USED", "WHY"], &rows);
        if rows.is_empty() {
            output.print_note(
                "Nothing is idle: every loaded model had a request within a minute, and every running job makes steps.",
            );
        }
    }
}

fn idle_row(it: &Value, now_ms: u64) -> Vec<String> {
    let used = it["last_used_ms"].as_u64().map_or_else(|| "never".to_owned(), |ms| units::format_age(ms, now_ms));
    let holds = match it["bytes"].as_u64() {
        Some(bytes) => units::format_bytes(bytes),
        None => format!("a slot of {}", text(it, "pool")),
    };
    vec![text(it, "kind").to_owned(), text(it, "name").to_owned(), holds, used, text(it, "why").to_owned()]
}

/// Returns whether something that was last used at `used_ms`, or never, is idle.
fn is_idle(used_ms: Option<u64>, now_ms: u64) -> bool {
    used_ms.is_none_or(|used_ms| now_ms.saturating_sub(used_ms) >= IDLE_AFTER_MS)
}

/// Returns the loaded versions without recent requests, each with the reason why it does not sleep.
fn idle_models(answer: &Value, now_ms: u64) -> Vec<Value> {
    let mut idle = Vec::new();
    for model in answer["models"].as_array().into_iter().flatten() {
        let versions = model["versions"].as_array().into_iter().flatten();
        for version in versions.filter(|version| text(version, "state") == "READY") {
            if is_idle(version["last_used_ms"].as_u64(), now_ms) {
                idle.push(json!({
                    "kind": "model",
                    "name": format!("{}@{}", text(model, "name"), number(version, "version")),
                    "bytes": number(version, "bytes"),
                    "last_used_ms": version["last_used_ms"],
                    "expires_in_ms": version["expires_in_ms"],
                    "keep_alive": model["config"]["keep_alive"],
                    "pin": model["config"]["pin"] == true,
                    "why": why_awake(model, version),
                }));
            }
        }
    }
    idle
}

/// Returns the reason why a version does not sleep, or when it will.
fn why_awake(model: &Value, version: &Value) -> String {
    let keep = text(&model["config"], "keep_alive");
    let pinned = model["config"]["pin"] == true;
    match (keep, version["expires_in_ms"].as_u64(), pinned) {
        ("forever", _, true) => "pinned, and keep_alive is forever: only `saggar models unload` frees it".to_owned(),
        ("forever", _, false) => "keep_alive is forever: it sleeps only if other models need the memory".to_owned(),
        (_, Some(ms), pinned) => {
            let pinned = if pinned { "pinned even if other models need the memory; " } else { "" };
            format!("{pinned}sleeps in {}", units::format_duration(ms as f64 / 1000.0))
        }
        (keep, None, pinned) => {
            let pinned = if pinned { "pinned even if other models need the memory; " } else { "" };
            format!("{pinned}sleeps {keep} after it was loaded if it gets no request")
        }
    }
}

/// Returns jobs that hold slots but make no steps.
fn idle_jobs(jobs: &[Value], now_ms: u64) -> Vec<Value> {
    // A server that does not report the time of the last progress reports no stuck jobs.
    let stuck = jobs.iter().filter(|job| job["advanced_ms"].is_u64() && is_idle(job["advanced_ms"].as_u64(), now_ms));
    let format_job = |job: &Value| {
        let name = text(job, "name");
        json!({
            "kind": "job",
            "name": name,
            "pool": job["pool"],
            "step": job["step"],
            "last_used_ms": job["advanced_ms"],
            "why": format!("no step since {}: `saggar logs {name}` may show why", number(job, "step")),
        })
    };
    stuck.map(format_job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_000_000;

    fn model(keep_alive: &str, pin: bool, state: &str, used_ms: Option<u64>, expires_in_ms: Option<u64>) -> Value {
        let version = json!({
            "version": 3, "state": state, "bytes": 2048, "last_used_ms": used_ms, "expires_in_ms": expires_in_ms,
        });
        let config = json!({ "keep_alive": keep_alive, "pin": pin });
        json!({ "models": [{ "name": "digits", "config": config, "versions": [version] }] })
    }

    #[test]
    fn idle_models_say_why_they_stay_loaded() {
        let why = |answer: &Value| idle_models(answer, NOW_MS).first().map(|it| text(it, "why").to_owned());
        let pinned = idle_models(&model("forever", true, "READY", None, None), NOW_MS);
        assert_eq!((text(&pinned[0], "name"), number(&pinned[0], "bytes")), ("digits@3", 2048));
        assert!(text(&pinned[0], "why").starts_with("pinned"));
        assert_eq!(idle_row(&pinned[0], NOW_MS)[..4], ["model", "digits@3", "2.0 KiB", "never"]);
        let forever = why(&model("forever", false, "READY", Some(0), None)).unwrap();
        assert!(forever.starts_with("keep_alive is forever"), "{forever}");
        assert_eq!(why(&model("5m", false, "READY", Some(900_000), Some(200_000))).unwrap(), "sleeps in 3m 20s");
        assert_eq!(
            why(&model("5m", true, "READY", None, None)).unwrap(),
            "pinned even if other models need the memory; sleeps 5m after it was loaded if it gets no request"
        );
        assert_eq!(why(&model("forever", true, "UNLOADED", None, None)), None, "it holds nothing");
        assert_eq!(why(&model("forever", true, "READY", Some(NOW_MS - 59_000), None)), None, "it was asked just now");
    }

    #[test]
    fn running_jobs_without_steps_are_listed_as_idle() {
        let job =
            |advanced: Value| [json!({ "name": "mnist-7", "pool": "default", "step": 12, "advanced_ms": advanced })];
        let stuck = idle_jobs(&job(json!(NOW_MS - IDLE_AFTER_MS)), NOW_MS);
        assert_eq!(idle_row(&stuck[0], NOW_MS)[..4], ["job", "mnist-7", "a slot of default", "1 min ago"]);
        assert!(text(&stuck[0], "why").starts_with("no step since 12"));
        assert!(idle_jobs(&job(json!(NOW_MS - IDLE_AFTER_MS + 1)), NOW_MS).is_empty());
        assert!(idle_jobs(&job(Value::Null), NOW_MS).is_empty());
    }
}
