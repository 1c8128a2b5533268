//! `saggar output ls` and `get`: the files that a job wrote.

use std::fs::File;
use std::path::{Path, PathBuf};

use saggar_store::is_output_path;
use serde_json::{Value, json};

use super::jobs::job_path;
use crate::args::{JobName, OutputGet, Outputs};
use crate::client::Client;
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::units;

pub(crate) fn outputs(args: &Outputs, client: &Client, output: Output) -> Result<(), Failure> {
    match args {
        Outputs::Ls(job) => list(job, client, output),
        Outputs::Get(get) => self::get(get, client, output),
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

fn list(args: &JobName, client: &Client, output: Output) -> Result<(), Failure> {
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
            output.line(&place.display().to_string());
        }
        fetched.push(json!({ "path": path, "bytes": bytes, "file": place.display().to_string() }));
    }
    if output.json {
        output.json(&Value::Array(fetched));
    }
    Ok(())
}

/// Fetches a file: where it is now, and its size in bytes.
fn fetch(args: &OutputGet, path: &str, client: &Client) -> Result<(PathBuf, u64), Failure> {
    // Paths come from a server, and name files here.
    if !is_output_path(path) {
        return Err(Failure::invalid(format!("{path:?} cannot be the path of an output"))
            .hint(format!("`saggar output ls {}` lists them", args.job)));
    }
    let mut content = client.stream(&format!("{}/output/{path}", job_path(&args.job)))?;
    let place = args.output.join(path);
    let refused = |at: &Path| {
        let at = at.display().to_string();
        move |error: std::io::Error| Failure::new(exit::UNEXPECTED, "write", format!("{at}: {error}"))
    };
    let directory = place.parent().unwrap_or(&args.output);
    std::fs::create_dir_all(directory).map_err(refused(directory))?;
    // Beside its place first: a file that broke off must not look like a whole one.
    let mut part = place.clone().into_os_string();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let copied = File::create(&part).and_then(|mut file| std::io::copy(&mut content, &mut file));
    let moved = copied.and_then(|bytes| std::fs::rename(&part, &place).map(|()| bytes));
    if moved.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    Ok((place.clone(), moved.map_err(refused(&place))?))
}
