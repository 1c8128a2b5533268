//! `saggar data`: datasets and their versions. What moves many bytes is in files of its own.

mod get;
mod ignored;
mod pull;
mod push;
mod show;

use serde_json::{Value, json};

use crate::args::{Data, DataAdd, DataRm};
use crate::client::{Client, Payload, segment};
use crate::commands::models::belonging;
use crate::exit::{self, Failure};
use crate::output::{Output, agree};
use crate::project;
use crate::units;

pub(crate) fn data(args: &Data, client: &Client, output: Output) -> Result<(), Failure> {
    match args {
        Data::Push(push) => push::push(push, client, output),
        Data::Pull(pull) => pull::pull(pull, client, output),
        Data::Ls { name } => list(name.as_deref(), client, output),
        Data::Show { dataset } => show::show(dataset, client, output),
        Data::Get(get) => get::get(get, client, output),
        Data::Add(add) => self::add(add, client, output),
        Data::Rm(rm) => remove(rm, client, output),
        Data::Projects { name, projects } => {
            let path = format!("/api/v1/datasets/{}/projects", segment(name));
            belonging(&client.put_json(&path, &json!({ "projects": projects }))?, output);
            Ok(())
        }
    }
}

/// Says which version was made, with what is to be said besides.
fn stored(stored: &Value, detail: &str, output: Output) {
    if output.json {
        output.json(stored);
        return;
    }
    output.line(&reference(stored));
    output.note(&format!("  {} items, {detail}", stored["items"]));
}

/// `digits/2`
fn reference(dataset: &Value) -> String {
    format!("{}/{}", dataset["name"].as_str().unwrap_or("?"), dataset["version"])
}

/// The versions that `NAME` or `NAME/VERSION` means, lowest first; at least one.
fn versions(dataset: &str, client: &Client) -> Result<Vec<Value>, Failure> {
    let (name, version) = dataset.split_once('/').map_or((dataset, None), |(name, version)| (name, Some(version)));
    let mut found = client.get("/api/v1/datasets")?["datasets"].as_array().cloned().unwrap_or_default();
    found.retain(|it| {
        it["name"] == name && version.is_none_or(|version| it["version"].as_u64() == version.parse().ok())
    });
    if found.is_empty() {
        return Err(Failure::new(exit::NOT_FOUND, "not_found", format!("there is no dataset {dataset}"))
            .hint("`saggar data ls` lists them"));
    }
    found.sort_by_key(|it| it["version"].as_u64());
    Ok(found)
}

fn add(args: &DataAdd, client: &Client, output: Output) -> Result<(), Failure> {
    let (job, path) = args.job.split_once('/').map_or((&*args.job, None), |(job, path)| (job, Some(path)));
    let job = project::job_name(job);
    let body = json!({ "job": job, "path": path.filter(|path| !path.is_empty()) });
    let made = client.post(&format!("/api/v1/datasets/{}/from-job", segment(&args.name)), Payload::Json(&body))?;
    let bytes = units::show_bytes(made["bytes"].as_u64().unwrap_or(0));
    stored(&made, &format!("{bytes} written by {job}"), output);
    Ok(())
}

fn remove(args: &DataRm, client: &Client, output: Output) -> Result<(), Failure> {
    let versions = versions(&args.dataset, client)?;
    let names: Vec<String> = versions.iter().map(reference).collect();
    let bytes: u64 = versions.iter().filter_map(|it| it["bytes"].as_u64()).sum();
    agree(args.yes, &format!("Remove {} ({})?", names.join(", "), units::show_bytes(bytes)))?;
    let mut freed = 0;
    for version in &versions {
        let name = segment(version["name"].as_str().unwrap_or_default());
        let answer = client.delete(&format!("/api/v1/datasets/{name}/{}", version["version"]))?;
        freed += answer["freed_bytes"].as_u64().unwrap_or(0);
    }
    if output.json {
        output.json(&json!({ "removed": names, "freed_bytes": freed }));
    } else {
        names.iter().for_each(|name| output.line(name));
        output.note(&format!("  {} freed", units::show_bytes(freed)));
    }
    Ok(())
}

fn list(name: Option<&str>, client: &Client, output: Output) -> Result<(), Failure> {
    let answer = client.get("/api/v1/datasets")?;
    let all = answer["datasets"].as_array().cloned().unwrap_or_default();
    let shown: Vec<Value> = all.into_iter().filter(|dataset| name.is_none_or(|name| dataset["name"] == name)).collect();
    if output.json {
        output.json(&Value::Array(shown));
        return Ok(());
    }
    if let (true, Some(name)) = (shown.is_empty(), name) {
        return Err(Failure::new(exit::NOT_FOUND, "not_found", format!("there is no dataset {name}"))
            .hint("`saggar data ls` lists them"));
    }
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|dataset| {
            let fields = dataset["fields"].as_array().into_iter().flatten();
            let fields: Vec<&str> = fields.filter_map(|field| field["name"].as_str()).collect();
            vec![
                format!("{}/{}", dataset["name"].as_str().unwrap_or("?"), dataset["version"]),
                dataset["items"].to_string(),
                units::show_bytes(dataset["bytes"].as_u64().unwrap_or(0)),
                fields.join(", "),
            ]
        })
        .collect();
    output.table(&["DATASET", "ITEMS", "SIZE", "FIELDS"], &rows);
    if rows.is_empty() {
        output.note("No datasets. Store one with `saggar data push DIR --name NAME`.");
    }
    Ok(())
}
