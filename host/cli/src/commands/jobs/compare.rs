//! `saggar diff` and `saggar compare`.

use std::collections::{BTreeMap, BTreeSet};

use saggar_rest::jobs::JobDocument;
use serde::Serialize;
use serde_json::Value;

use crate::args::{CompareArgs, DiffArgs};
use crate::client::ApiClient;
use crate::commands::job_follow::job_path;
use crate::exit::CliError;
use crate::output::CliOutput;

/// Flattens a specification into one level of names, such as `parameters.lr`.
fn flatten_spec(spec: &Value) -> BTreeMap<String, Value> {
    let mut fields = BTreeMap::new();
    for (name, value) in spec.as_object().into_iter().flatten() {
        match value {
            Value::Object(inner) if name == "parameters" => {
                fields.extend(inner.iter().map(|(key, value)| (format!("{name}.{key}"), value.clone())));
            }
            value => {
                fields.insert(name.clone(), value.clone());
            }
        }
    }
    fields
}

/// Returns the names of fields whose values differ.
fn differing_fields(fields: &[BTreeMap<String, Value>]) -> Vec<String> {
    let names: BTreeSet<&String> = fields.iter().flat_map(BTreeMap::keys).collect();
    let differs = |name: &&&String| fields.windows(2).any(|pair| pair[0].get(**name) != pair[1].get(**name));
    names.iter().filter(differs).map(|name| (*name).clone()).collect()
}

fn format_value(value: Option<&Value>) -> String {
    match value {
        None => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

pub(crate) fn diff(args: &DiffArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let jobs: [JobDocument; 2] = [client.get(&job_path(&args.first))?, client.get(&job_path(&args.second))?];
    let fields = jobs.each_ref().map(|job| flatten_spec(&job.spec));
    let names = differing_fields(&fields);
    if output.json {
        let of = |name: &'_ String| (name.clone(), [fields[0].get(name), fields[1].get(name)]);
        output.print_json(&names.iter().map(of).collect::<BTreeMap<_, _>>());
        return Ok(());
    }
    let row = |name: &String| vec![name.clone(), format_value(fields[0].get(name)), format_value(fields[1].get(name))];
    let rows: Vec<Vec<String>> = names.iter().map(row).collect();
    output.print_table(&["FIELD", &jobs[0].name, &jobs[1].name], &rows);
    if rows.is_empty() {
        output.print_note("The specifications are the same.");
    }
    Ok(())
}

/// A compared job as JSON.
#[derive(Serialize)]
struct ComparedJob<'a> {
    name: &'a str,
    state: &'a str,
    /// The values of the fields that differ; null if the job has none.
    differs: BTreeMap<&'a str, Option<&'a Value>>,
    metrics: &'a BTreeMap<String, Option<f64>>,
    wall_seconds: f64,
    gpu_seconds: f64,
}

impl<'a> ComparedJob<'a> {
    fn new(job: &'a JobDocument, fields: &'a BTreeMap<String, Value>, names: &'a [String]) -> ComparedJob<'a> {
        ComparedJob {
            name: &job.name,
            state: &job.state,
            differs: names.iter().map(|name| (name.as_str(), fields.get(name))).collect(),
            metrics: &job.metrics,
            wall_seconds: job.wall_seconds,
            gpu_seconds: job.gpu_seconds,
        }
    }
}

pub(crate) fn compare(args: &CompareArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let jobs =
        args.jobs.iter().map(|job| client.get(&job_path(job))).collect::<Result<Vec<JobDocument>, CliError>>()?;
    let fields: Vec<BTreeMap<String, Value>> = jobs.iter().map(|job| flatten_spec(&job.spec)).collect();
    let names = differing_fields(&fields);
    let metrics: BTreeSet<&String> = jobs.iter().flat_map(|job| job.metrics.keys()).collect();
    if output.json {
        let compared: Vec<ComparedJob<'_>> =
            jobs.iter().zip(&fields).map(|(job, fields)| ComparedJob::new(job, fields, &names)).collect();
        output.print_json(&compared);
        return Ok(());
    }
    let mut headers = vec!["JOB", "STATE"];
    headers.extend(names.iter().map(|name| name.strip_prefix("parameters.").unwrap_or(name)));
    headers.extend(metrics.iter().map(|name| name.as_str()));
    headers.push("GPU-SEC");
    let row = |(job, fields): (&JobDocument, &BTreeMap<String, Value>)| {
        let mut row = vec![job.name.clone(), output.format_state(&job.state)];
        row.extend(names.iter().map(|name| format_value(fields.get(name))));
        let metric = |name: &&String| {
            job.metrics.get(*name).copied().flatten().map_or("-".to_owned(), |value| format!("{value:.4}"))
        };
        row.extend(metrics.iter().map(metric));
        row.push(super::device_seconds(job.gpu_seconds, job.gpu_seconds_estimated, 2));
        row
    };
    let rows: Vec<Vec<String>> = jobs.iter().zip(&fields).map(row).collect();
    output.print_table(&headers, &rows);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_differing_fields_are_listed() {
        let first = flatten_spec(&json!({"seed": 1, "parameters": {"lr": 0.1, "epochs": 3}}));
        let second = flatten_spec(&json!({"seed": 1, "parameters": {"lr": 0.01, "epochs": 3}, "message": "x"}));
        assert_eq!(differing_fields(&[first.clone(), second]), ["message", "parameters.lr"]);
        assert!(differing_fields(&[first.clone(), first]).is_empty());
    }
}
