//! `saggar ps --idle`: lists what holds memory or slots although it was idle for a while.

use saggar_rest::jobs::JobDocument;
use saggar_rest::models::{ModelDocument, ModelListDocument, ModelVersionDocument};
use serde::Serialize;

use super::now_ms;
use crate::client::ApiClient;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::units;

/// Time without use, in milliseconds, after which something is idle.
const IDLE_AFTER_MS: u64 = 60_000;

/// Something that holds memory or a slot without using it.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum IdleResource {
    /// A loaded version without recent requests.
    Model {
        name: String,
        bytes: u64,
        last_used_ms: Option<u64>,
        expires_in_ms: Option<u64>,
        keep_alive: String,
        pin: bool,
        why: String,
    },
    /// A running job that makes no steps.
    Job { name: String, pool: Option<String>, step: u64, last_used_ms: Option<u64>, why: String },
}

impl IdleResource {
    fn name(&self) -> &str {
        match self {
            IdleResource::Model { name, .. } | IdleResource::Job { name, .. } => name,
        }
    }
}

pub(super) fn list_idle(client: &ApiClient) -> Result<Vec<IdleResource>, CliError> {
    let models: ModelListDocument = client.get("/api/v1/models")?;
    let jobs = super::list_jobs(client, "&state=RUNNING")?;
    let now_ms = now_ms();
    let mut idle = idle_models(&models.models, now_ms);
    idle.extend(idle_jobs(&jobs, now_ms));
    Ok(idle)
}

pub(super) fn print_idle(idle: &[IdleResource], output: CliOutput) {
    if output.json {
        output.print_json(&idle);
    } else if output.quiet {
        idle.iter().for_each(|it| output.print_line(it.name()));
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

fn idle_row(it: &IdleResource, now_ms: u64) -> Vec<String> {
    let (kind, holds, last_used_ms, why) = match it {
        IdleResource::Model { bytes, last_used_ms, why, .. } => {
            ("model", units::format_bytes(*bytes), last_used_ms, why)
        }
        IdleResource::Job { pool, last_used_ms, why, .. } => {
            ("job", format!("a slot of {}", pool.as_deref().unwrap_or_default()), last_used_ms, why)
        }
    };
    let used = last_used_ms.map_or_else(|| "never".to_owned(), |ms| units::format_age(ms, now_ms));
    vec![kind.to_owned(), it.name().to_owned(), holds, used, why.clone()]
}

/// Returns whether something that was last used at `used_ms`, or never, is idle.
fn is_idle(used_ms: Option<u64>, now_ms: u64) -> bool {
    used_ms.is_none_or(|used_ms| now_ms.saturating_sub(used_ms) >= IDLE_AFTER_MS)
}

/// Returns the loaded versions without recent requests, each with the reason why it does not sleep.
fn idle_models(models: &[ModelDocument], now_ms: u64) -> Vec<IdleResource> {
    let mut idle = Vec::new();
    for model in models {
        let loaded = model.versions.iter().filter(|version| version.state == "READY");
        for version in loaded.filter(|version| is_idle(version.last_used_ms, now_ms)) {
            idle.push(IdleResource::Model {
                name: format!("{}@{}", model.name, version.version),
                bytes: version.bytes.unwrap_or_default(),
                last_used_ms: version.last_used_ms,
                expires_in_ms: version.expires_in_ms,
                keep_alive: model.config.keep_alive().to_owned(),
                pin: model.config.is_pinned(),
                why: why_awake(model, version),
            });
        }
    }
    idle
}

/// Returns the reason why a version does not sleep, or when it will.
fn why_awake(model: &ModelDocument, version: &ModelVersionDocument) -> String {
    let keep = model.config.keep_alive();
    let pinned = model.config.is_pinned();
    match (keep, version.expires_in_ms, pinned) {
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
fn idle_jobs(jobs: &[JobDocument], now_ms: u64) -> Vec<IdleResource> {
    // A server that does not report the time of the last progress reports no stuck jobs.
    let stuck = jobs.iter().filter(|job| job.advanced_ms.is_some() && is_idle(job.advanced_ms, now_ms));
    let idle = |job: &JobDocument| IdleResource::Job {
        name: job.name.clone(),
        pool: job.pool.clone(),
        step: job.step,
        last_used_ms: job.advanced_ms,
        why: format!("no step since {}: `saggar logs {}` may show why", job.step, job.name),
    };
    stuck.map(idle).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW_MS: u64 = 1_000_000;

    fn model(
        keep_alive: &str,
        pin: bool,
        state: &str,
        used_ms: Option<u64>,
        expires_in_ms: Option<u64>,
    ) -> Vec<ModelDocument> {
        let version = json!({
            "version": 3, "state": state, "bytes": 2048, "last_used_ms": used_ms, "expires_in_ms": expires_in_ms,
        });
        let config = json!({ "keep_alive": keep_alive, "pin": pin });
        let model = json!({ "name": "digits", "config": config, "versions": [version] });
        vec![serde_json::from_value(model).unwrap()]
    }

    #[test]
    fn idle_models_say_why_they_stay_loaded() {
        let why =
            |models: &[ModelDocument]| idle_models(models, NOW_MS).first().map(|it| idle_row(it, NOW_MS)[4].clone());
        let pinned = idle_models(&model("forever", true, "READY", None, None), NOW_MS);
        let row = idle_row(&pinned[0], NOW_MS);
        assert_eq!(row[..4], ["model", "digits@3", "2.0 KiB", "never"]);
        assert!(row[4].starts_with("pinned"));
        let document = serde_json::to_value(&pinned[0]).unwrap();
        assert_eq!((&document["kind"], &document["bytes"]), (&json!("model"), &json!(2048)));
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
        let job = |advanced: Value| {
            let job = json!({ "name": "mnist-7", "pool": "default", "step": 12, "advanced_ms": advanced });
            [serde_json::from_value::<JobDocument>(job).unwrap()]
        };
        let stuck = idle_jobs(&job(json!(NOW_MS - IDLE_AFTER_MS)), NOW_MS);
        let row = idle_row(&stuck[0], NOW_MS);
        assert_eq!(row[..4], ["job", "mnist-7", "a slot of default", "1 min ago"]);
        assert!(row[4].starts_with("no step since 12"));
        assert!(idle_jobs(&job(json!(NOW_MS - IDLE_AFTER_MS + 1)), NOW_MS).is_empty());
        assert!(idle_jobs(&job(Value::Null), NOW_MS).is_empty());
    }
}
