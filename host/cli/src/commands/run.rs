//! `saggar run`: submit a job, and with `-f` or `--wait` stay with it.

mod serve;

use std::path::Path;

use saggar_jobs::{JobSpec, Mount};
use serde_json::{Map, Value, json};

use super::jobs;
use crate::args::{Mode, Run};
use crate::client::{Client, Payload};
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::units;

pub(crate) fn run(args: &Run, client: &Client, output: Output) -> Result<i32, Failure> {
    let component = component(&args.plugin, output)?;
    let wasm = std::fs::read(&component)
        .map_err(|error| Failure::new(exit::NOT_FOUND, "no_plugin", format!("{}: {error}", component.display())))?;
    let plugin = client.post("/api/v1/plugins", Payload::Bytes { content_type: "application/wasm", bytes: &wasm })?;
    let stem = component.file_stem().map_or_else(|| "job".to_owned(), |stem| stem.to_string_lossy().into_owned());
    let spec = JobSpec {
        project: args.project.clone().unwrap_or_else(|| stem.replace('_', "-").to_lowercase()),
        task: "train".to_owned(),
        plugin: plugin["digest"].as_str().unwrap_or_default().to_owned(),
        parameters: parameters(&args.parameters)?,
        data: args.data.iter().map(|text| mount(text)).collect::<Result<_, _>>()?,
        device: if args.gpu { "gpu".to_owned() } else { args.device.clone() },
        seed: args.seed,
        checkpoint_every: args.checkpoint_every,
        retry: args.retry,
        max_runtime_seconds: args.max_runtime.map(|time| time.as_secs_f64()),
        memory_bytes: args.memory,
        gpu_memory_bytes: args.gpu_memory,
        message: args.message.clone(),
    };
    spec.validate().map_err(|error| Failure::invalid(error.to_string()))?;
    let job = client.post("/api/v1/jobs", Payload::Json(&json!(spec)))?;
    let name = job["name"].as_str().unwrap_or_default().to_owned();
    if args.mode == Mode::Serve {
        return serve::until_served(args, client, output, &name);
    }
    if args.follow || args.wait {
        let job = stay(args, client, output, &name)?;
        if output.json {
            output.json_line(&job);
        } else {
            output.line(&ended(&job, &name, output));
        }
        return Ok(exit_code(&job));
    }
    if output.json {
        output.json(&job);
    } else {
        output.line(&name);
        output.note(&format!("  state    {}{}", job["state"].as_str().unwrap_or("?"), position(&job)));
        output.note(&format!("Next: saggar logs -f {name} | saggar status {name} | saggar stop {name}"));
    }
    Ok(0)
}

fn position(job: &Value) -> String {
    job["position"].as_u64().map_or_else(String::new, |position| format!("   position {position} in the queue"))
}

/// Follows or waits until the job is over. Ctrl-C leaves it running.
fn stay(args: &Run, client: &Client, output: Output, name: &str) -> Result<Value, Failure> {
    output.note(&format!("Submitted job {name}"));
    jobs::detach_on_interrupt(name.to_owned());
    if args.follow {
        jobs::print_log(client, output, &format!("/api/v1/jobs/{name}/logs?follow=1"))?;
    }
    jobs::wait(client, output, name)
}

/// How a job ended, in a sentence.
fn ended(job: &Value, name: &str, output: Output) -> String {
    let state = output.state(job["state"].as_str().unwrap_or("?"));
    let duration = units::show_duration(job["wall_seconds"].as_f64().unwrap_or(0.0));
    let attempts = job["attempt"].as_u64().unwrap_or(1);
    let sentence = job["message"].as_str().filter(|text| !text.is_empty());
    let because = sentence.map_or_else(String::new, |text| format!(": {text}"));
    format!("Job {name} {state} after {duration}, attempts: {attempts}{because}")
}

fn exit_code(job: &Value) -> i32 {
    exit::of_job(job["state"].as_str().unwrap_or("?"), job["reason"].as_str().unwrap_or(""))
}

/// The component to run: the file itself, or what the plugin's directory builds into.
fn component(path: &Path, output: Output) -> Result<std::path::PathBuf, Failure> {
    if path.is_dir() {
        return super::build::component(path, output);
    }
    if !path.exists() {
        let message = format!("there is no plugin {}", path.display());
        let hint = "name a .wasm component, or the directory of a plugin";
        return Err(Failure::new(exit::NOT_FOUND, "no_plugin", message).hint(hint));
    }
    Ok(path.to_owned())
}

/// Reads `mnist`, `mnist/1`, `mnist:/data`, `mnist/1:/data`.
fn mount(text: &str) -> Result<Mount, Failure> {
    let (source, mount) = text.split_once(':').unwrap_or((text, "/data"));
    let (dataset, version) = match source.split_once('/') {
        None => (source, None),
        Some((dataset, version)) => {
            let version = version.parse().map_err(|_| {
                Failure::invalid(format!("--data {text}: {version:?} is no version"))
                    .hint("expected such as mnist/1:/data")
            })?;
            (dataset, Some(version))
        }
    };
    Ok(Mount { dataset: dataset.to_owned(), version, mount: mount.to_owned() })
}

/// Reads `epochs=3`, `--epochs 3` and `--epochs=3`. Values that are JSON are taken as such, others as text.
fn parameters(words: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut parameters = Map::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let flag = word.strip_prefix("--");
        let (key, value) = match (flag.unwrap_or(word).split_once('='), flag) {
            (Some((key, value)), _) => (key.to_owned(), value.to_owned()),
            (None, Some(key)) => {
                let value = words.next().ok_or_else(|| Failure::invalid(format!("parameter --{key} has no value")))?;
                (key.to_owned(), value.clone())
            }
            (None, None) => {
                let hint = "parameters are written epochs=3 or --epochs 3";
                return Err(Failure::invalid(format!("{word:?} is no parameter")).hint(hint));
            }
        };
        let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
        if parameters.insert(key.clone(), value).is_some() {
            return Err(Failure::invalid(format!("parameter {key} is given twice")));
        }
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_in_every_form() {
        let words = ["epochs=3", "--lr", "0.05", "--optimizer=adam"].map(str::to_owned);
        let read = parameters(&words).unwrap();
        assert_eq!(Value::Object(read), json!({"epochs": 3, "lr": 0.05, "optimizer": "adam"}));
        assert!(parameters(&["epochs".to_owned()]).is_err());
        assert!(parameters(&["--epochs".to_owned()]).is_err());
        assert!(parameters(&["a=1".to_owned(), "a=2".to_owned()]).is_err());
    }

    #[test]
    fn mounts_are_read_in_every_form() {
        let is = |text: &str, dataset: &str, version: Option<u64>, at: &str| {
            let expected = Mount { dataset: dataset.to_owned(), version, mount: at.to_owned() };
            assert_eq!(mount(text).unwrap(), expected);
        };
        is("mnist", "mnist", None, "/data");
        is("mnist/1", "mnist", Some(1), "/data");
        is("mnist/12:/train", "mnist", Some(12), "/train");
        assert!(mount("mnist/latest").is_err());
    }
}
