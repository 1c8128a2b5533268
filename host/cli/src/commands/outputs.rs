//! `saggar output`: the files that a job wrote, its checkpoints, the model versions that it published.

mod tail;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use saggar_store::is_output_path;
use serde_json::{Value, json};

use super::jobs::job_path;
use crate::args::{Checkpoints, Kind, OutputGet, OutputList, Outputs};
use crate::client::{Client, segment};
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::partial;
use crate::units;

pub(crate) fn outputs(args: &Outputs, client: &Client, output: Output) -> Result<(), Failure> {
    match args {
        Outputs::Ls(args) => match args.kind {
            Kind::File => list(args, client, output),
            Kind::Model => models(args, client, output),
        },
        Outputs::Tail(args) => tail::tail(args, client, output),
        Outputs::Get(get) => match &get.checkpoint {
            Some(which) => checkpoint(get, which, client, output),
            None => self::get(get, client, output),
        },
        Outputs::Checkpoints(args) => checkpoints(args, client, output),
    }
}

/// The files that a job wrote, as the server lists them.
fn files(job: &str, client: &Client) -> Result<Vec<Value>, Failure> {
    let answer = client.get(&format!("{}/output", job_path(job)))?;
    Ok(answer["files"].as_array().cloned().unwrap_or_default())
}

fn path(file: &Value) -> &str {
    file["path"].as_str().unwrap_or_default()
}

fn list(args: &OutputList, client: &Client, output: Output) -> Result<(), Failure> {
    let files = files(&args.job, client)?;
    if output.json {
        output.json(&Value::Array(files));
    } else if output.quiet {
        files.iter().for_each(|file| output.line(path(file)));
    } else {
        let size = |file: &Value| units::show_bytes(file["bytes"].as_u64().unwrap_or_default());
        let rows: Vec<Vec<String>> = files.iter().map(|file| vec![path(file).to_owned(), size(file)]).collect();
        output.table(&["PATH", "SIZE"], &rows);
        if rows.is_empty() {
            output.note(&format!("Job {} wrote nothing.", args.job));
        }
    }
    Ok(())
}

/// The model versions that a job published, with the command that makes each the default.
fn models(args: &OutputList, client: &Client, output: Output) -> Result<(), Failure> {
    let job = client.get(&job_path(&args.job))?;
    let mut found = Vec::new();
    for published in job["published"].as_array().into_iter().flatten() {
        let (name, number) = (published["model"].as_str().unwrap_or_default(), &published["version"]);
        let model = client.get(&format!("/api/v1/models/{}", segment(name))).unwrap_or_default();
        let versions = model["versions"].as_array().into_iter().flatten();
        let version = versions.into_iter().find(|version| version["version"] == *number).cloned().unwrap_or_default();
        found.push(json!({
            "model": name,
            "version": number,
            "bytes": version["bytes"],
            "weights": version["weights"],
            "state": version["state"],
            "promote": format!("saggar models promote {name} {number}"),
        }));
    }
    if output.json {
        output.json(&Value::Array(found));
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let row = |it: &Value| {
        let digest: String = text(&it["weights"]).chars().take(12).collect();
        let size = it["bytes"].as_u64().map_or_else(|| "-".to_owned(), units::show_bytes);
        vec![
            format!("{}@{}", text(&it["model"]), it["version"]),
            size,
            digest,
            output.state(&text(&it["state"])),
            text(&it["promote"]),
        ]
    };
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    output.table(&["MODEL", "SIZE", "WEIGHTS", "STATE", "TO DEPLOY IT"], &rows);
    Ok(())
}

fn get(args: &OutputGet, client: &Client, output: Output) -> Result<(), Failure> {
    let paths: Vec<String> = match &args.path {
        Some(path) => vec![path.clone()],
        None => files(&args.job, client)?.iter().map(|file| path(file).to_owned()).collect(),
    };
    if paths.is_empty() {
        return Err(Failure::new(exit::NOT_FOUND, "not_found", format!("job {} wrote nothing", args.job)));
    }
    let mut fetched = Vec::new();
    for path in &paths {
        let (place, bytes) = fetch(args, path, client)?;
        if !output.json {
            output.line_amid_work(&place.display().to_string());
        }
        fetched.push(json!({ "path": path, "bytes": bytes, "file": place.display().to_string() }));
    }
    if output.json {
        output.json(&Value::Array(fetched));
    }
    Ok(())
}

/// Fetches a checkpoint into a file that is called after its job.
fn checkpoint(args: &OutputGet, which: &str, client: &Client, output: Output) -> Result<(), Failure> {
    let content = client.stream(&format!("{}/checkpoints/{}", job_path(&args.job), segment(which)))?;
    let place = args.output.join(format!("{}-{}.safetensors", segment(&args.job), segment(which)));
    let bytes = save(content, &place)?;
    if output.json {
        output.json(&json!({ "checkpoint": which, "bytes": bytes, "file": place.display().to_string() }));
    } else {
        output.line(&place.display().to_string());
    }
    Ok(())
}

/// Lists checkpoints; one that is damaged is an error where they were to be verified.
fn checkpoints(args: &Checkpoints, client: &Client, output: Output) -> Result<(), Failure> {
    let verify = if args.verify { "?verify=1" } else { "" };
    let answer = client.get(&format!("{}/checkpoints{verify}", job_path(&args.job)))?;
    let list = answer["checkpoints"].as_array().cloned().unwrap_or_default();
    let damaged = list.iter().filter(|it| it["whole"] == Value::Bool(false)).count();
    if output.json {
        output.json(&Value::Array(list));
    } else {
        let text = |value: &Value| value.as_str().map_or_else(|| "-".to_owned(), str::to_owned);
        let row = |it: &Value| {
            let size = it["bytes"].as_u64().map_or_else(|| "-".to_owned(), units::show_bytes);
            let mark = match (&it["whole"], &it["best"]) {
                (Value::Bool(true), _) => "whole".to_owned(),
                (Value::Bool(false), _) => format!("damaged: {}", text(&it["reason"])),
                (_, Value::Bool(true)) => "best".to_owned(),
                (_, _) => String::new(),
            };
            vec![it["step"].to_string(), size, text(&it["digest"]).chars().take(12).collect(), mark]
        };
        let rows: Vec<Vec<String>> = list.iter().map(row).collect();
        output.table(&["STEP", "SIZE", "DIGEST", ""], &rows);
    }
    match damaged {
        0 => Ok(()),
        count => Err(Failure::invalid(format!("{count} checkpoints of {} are damaged", args.job))
            .hint("a resume goes back to the newest whole one")),
    }
}

/// Fetches a file: where it is now, and its size in bytes.
fn fetch(args: &OutputGet, path: &str, client: &Client) -> Result<(PathBuf, u64), Failure> {
    // Paths come from a server, and name files here.
    if !is_output_path(path) {
        return Err(Failure::invalid(format!("{path:?} cannot be the path of an output"))
            .hint(format!("`saggar output ls {}` lists them", args.job)));
    }
    let content = client.stream(&format!("{}/output/{path}", job_path(&args.job)))?;
    let place = args.output.join(path);
    let bytes = save(content, &place)?;
    Ok((place, bytes))
}

/// Writes what comes into a file, which is there when it is whole. Returns its size in bytes.
fn save(mut content: impl Read, place: &Path) -> Result<u64, Failure> {
    let refused = |at: &Path| {
        let at = at.display().to_string();
        move |error: std::io::Error| Failure::new(exit::UNEXPECTED, "write", format!("{at}: {error}"))
    };
    let directory = place.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).map_err(refused(directory))?;
    let part = partial::beside(place);
    let copied = File::create(&part).and_then(|mut file| std::io::copy(&mut content, &mut file));
    let moved = copied.and_then(|bytes| std::fs::rename(&part, place).map(|()| bytes));
    if moved.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    moved.map_err(refused(place))
}
