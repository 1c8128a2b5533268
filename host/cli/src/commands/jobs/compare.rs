//! `saggar diff` and `saggar compare`.

mod chart;
mod columns;
mod run_chart;
mod series_choice;
mod side_by_side;
mod sweep_chart;

use std::collections::{BTreeMap, BTreeSet};

use saggar_rest::comparisons::ComparisonDocument;
use saggar_rest::jobs::JobDocument;
use serde::Serialize;
use serde_json::Value;

use crate::args::{CompareArgs, DiffArgs};
use crate::client::{ApiClient, encode_path_segment};
use crate::commands::job_follow::job_path;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use columns::{ColumnCondition, column_value};

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
    /// The values of the chosen columns; omitted if none are chosen.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    columns: BTreeMap<&'a str, Option<Value>>,
    metrics: &'a BTreeMap<String, Option<f64>>,
    tags: &'a BTreeMap<String, String>,
    note: &'a str,
    wall_seconds: f64,
    gpu_seconds: f64,
}

impl<'a> ComparedJob<'a> {
    fn new(
        job: &'a JobDocument,
        fields: &'a BTreeMap<String, Value>,
        names: &'a [String],
        chosen: &'a [String],
    ) -> ComparedJob<'a> {
        ComparedJob {
            name: &job.name,
            state: &job.state,
            differs: names.iter().map(|name| (name.as_str(), fields.get(name))).collect(),
            columns: chosen.iter().map(|name| (name.as_str(), column_value(job, fields, name))).collect(),
            metrics: &job.metrics,
            tags: &job.tags,
            note: &job.note,
            wall_seconds: job.wall_seconds,
            gpu_seconds: job.gpu_seconds,
        }
    }
}

pub(crate) fn compare(args: &CompareArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    args.files.check_look(&args.look)?;
    args.files.check_absent(&args.look)?;
    let jobs = match &args.experiment {
        Some(experiment) => jobs_of_experiment(experiment, client)?,
        None => {
            let comparison = fetch_comparison(args, client)?;
            match comparison.jobs {
                Some(jobs) => jobs,
                None => return print_side_by_side(args, &comparison, client, output),
            }
        }
    };
    let mut jobs: Vec<ComparedFields> = jobs.into_iter().map(with_fields).collect();
    let conditions =
        args.filter.iter().map(|text| ColumnCondition::parse(text)).collect::<Result<Vec<_>, CliError>>()?;
    let given = conditions.iter().map(|condition| ("--filter", condition.column.as_str()));
    let sort =
        args.sort.as_deref().map(|column| column.strip_prefix('-').map_or((column, false), |column| (column, true)));
    let given = given.chain(sort.map(|(column, _)| ("--sort", column)));
    for (option, column) in given.chain(args.columns.iter().map(|column| ("--columns", column.as_str()))) {
        columns::check_column(option, column, &jobs)?;
    }
    jobs.retain(|(job, fields)| {
        conditions.iter().all(|condition| condition.holds(column_value(job, fields, &condition.column).as_ref()))
    });
    if let Some((column, is_descending)) = sort {
        sort_jobs(&mut jobs, column, is_descending);
    }
    if args.files.is_requested() {
        return chart::write(args, &jobs, client, output);
    }
    print_comparison(&jobs, &args.columns, output);
    Ok(())
}

/// Has the server compare the named jobs, pipeline runs or sweeps. It refuses names of several kinds.
fn fetch_comparison(args: &CompareArgs, client: &ApiClient) -> Result<ComparisonDocument, CliError> {
    let names: Vec<String> = args.names.iter().map(|name| encode_path_segment(name)).collect();
    let kind = args.kind.map_or(String::new(), |kind| format!("&kind={}", kind.name()));
    client.get(&format!("/api/v1/compare?names={}{kind}", names.join(",")))
}

/// Prints pipeline runs or sweeps, or draws them.
///
/// # Errors
/// Options are given that choose or order jobs, or the chart cannot be drawn.
fn print_side_by_side(
    args: &CompareArgs,
    comparison: &ComparisonDocument,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    let given = [
        (!args.columns.is_empty(), "--columns"),
        (args.sort.is_some(), "--sort"),
        (!args.filter.is_empty(), "--filter"),
    ];
    if let Some((_, option)) = given.iter().find(|(is_given, _)| *is_given) {
        let things = format!("{}s", comparison.kind.replace('-', " "));
        return Err(CliError::invalid(format!("{option} is for jobs, and these are {things}"))
            .with_hint("leave it out; --json prints everything"));
    }
    match (&comparison.pipeline_runs, &comparison.sweeps) {
        (Some(runs), _) if args.files.is_requested() => return run_chart::write(args, runs, client, output),
        (None, Some(sweeps)) if args.files.is_requested() => return sweep_chart::write(args, sweeps, client, output),
        _ if output.json => output.print_json(comparison),
        (Some(runs), _) => side_by_side::print_runs(runs, output),
        (None, Some(sweeps)) => side_by_side::print_sweeps(sweeps, output),
        (None, None) => {
            return Err(CliError::invalid(format!("the server compared {} in a way unknown here", comparison.kind))
                .with_hint("`saggar version` shows both versions"));
        }
    }
    Ok(())
}

/// Compares all jobs of an experiment.
pub(super) fn compare_experiment(experiment: &str, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let jobs = jobs_of_experiment(experiment, client)?;
    let jobs: Vec<ComparedFields> = jobs.into_iter().map(with_fields).collect();
    print_comparison(&jobs, &[], output);
    Ok(())
}

fn with_fields(job: JobDocument) -> ComparedFields {
    let fields = flatten_spec(&job.spec);
    (job, fields)
}

/// A job with its flattened specification.
type ComparedFields = (JobDocument, BTreeMap<String, Value>);

/// Returns the jobs of an experiment, oldest first.
fn jobs_of_experiment(experiment: &str, client: &ApiClient) -> Result<Vec<JobDocument>, CliError> {
    let mut jobs = super::list_jobs(client, &format!("&experiment={}", encode_path_segment(experiment)))?;
    if jobs.is_empty() {
        return Err(CliError::new(exit::NOT_FOUND, "not_found", format!("no job is in the experiment {experiment}"))
            .with_hint("`saggar experiment ls` lists the experiments"));
    }
    jobs.reverse();
    Ok(jobs)
}

/// Sorts by a column. Jobs without a value come last in both directions.
fn sort_jobs(jobs: &mut [ComparedFields], column: &str, is_descending: bool) {
    let value = |(job, fields): &ComparedFields| column_value(job, fields, column).filter(|value| !value.is_null());
    jobs.sort_by(|a, b| {
        let (a, b) = (value(a), value(b));
        let order = columns::compare_values(a.as_ref(), b.as_ref());
        if is_descending && a.is_some() && b.is_some() { order.reverse() } else { order }
    });
}

fn print_comparison(jobs: &[ComparedFields], chosen: &[String], output: CliOutput) {
    let fields: Vec<BTreeMap<String, Value>> = jobs.iter().map(|(_, fields)| fields.clone()).collect();
    let names = differing_fields(&fields);
    if output.json {
        let compared: Vec<ComparedJob<'_>> =
            jobs.iter().map(|(job, fields)| ComparedJob::new(job, fields, &names, chosen)).collect();
        output.print_json(&compared);
        return;
    }
    let visible = if chosen.is_empty() { default_columns(jobs, &names) } else { chosen.to_vec() };
    let mut headers = vec!["JOB", "STATE"];
    headers.extend(visible.iter().map(|name| if name == "gpu-sec" { "GPU-SEC" } else { name.as_str() }));
    let row = |(job, fields): &ComparedFields| {
        let mut row = vec![job.name.clone(), output.format_state(&job.state)];
        row.extend(visible.iter().map(|column| match column.as_str() {
            "gpu-sec" => super::device_seconds(job.gpu_seconds, job.gpu_seconds_estimated, 2),
            _ => match (column_value(job, fields, column), job.metrics.contains_key(column)) {
                (Some(value), true) if value.is_f64() => value.as_f64().map_or("-".to_owned(), |it| format!("{it:.4}")),
                (Some(Value::Null), _) | (None, _) => "-".to_owned(),
                (value, _) => format_value(value.as_ref()).escape_debug().to_string(),
            },
        }));
        row
    };
    output.print_table(&headers, &jobs.iter().map(row).collect::<Vec<_>>());
}

/// Returns the columns that are shown if none are chosen: fields that differ, tags, metrics, device seconds.
fn default_columns(jobs: &[ComparedFields], differing: &[String]) -> Vec<String> {
    let tags: BTreeSet<String> =
        jobs.iter().flat_map(|(job, _)| job.tags.keys()).map(|name| format!("tag.{name}")).collect();
    let metrics: BTreeSet<&String> = jobs.iter().flat_map(|(job, _)| job.metrics.keys()).collect();
    let fields = differing.iter().map(|name| name.strip_prefix("parameters.").unwrap_or(name).to_owned());
    let columns = fields.chain(tags).chain(metrics.into_iter().cloned());
    columns.chain(["gpu-sec".to_owned()]).collect()
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
