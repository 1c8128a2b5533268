//! `saggar check`: what is wrong with the project file, as `file:line:column`, all of it at once.

use std::path::PathBuf;

use saggar_project::{Diagnostic, Manifest, PROJECT_FILE, SCHEMA};
use serde_json::{Value, json};

use crate::args::Check;
use crate::exit::{self, Failure};
use crate::output::{Output, say};
use crate::project;

pub(crate) fn check(args: &Check, output: Output) -> Result<i32, Failure> {
    if args.schema {
        output.text(&format!("{}\n", SCHEMA.trim_end()));
        return Ok(0);
    }
    let found = args.file.clone().or_else(project::find_file);
    let path = found.unwrap_or_else(|| PathBuf::from(PROJECT_FILE));
    let text = project::read(&path)?;
    let file = path.display().to_string();
    let list = |found: &[Diagnostic]| found.iter().map(|it| it.to_json(&file)).collect::<Vec<Value>>();
    match Manifest::parse(&text) {
        Ok(manifest) => {
            if output.json {
                output
                    .json(&json!({ "file": file, "valid": true, "mistakes": [], "remarks": list(&manifest.remarks) }));
                return Ok(0);
            }
            manifest.remarks.iter().for_each(|remark| output.note(&format!("{file}:{remark}")));
            output.line(&format!("{file} is valid: {}", contents(&manifest)));
            Ok(0)
        }
        Err(mistakes) => {
            if output.json {
                output.json(&json!({ "file": file, "valid": false, "mistakes": list(&mistakes.0), "remarks": [] }));
            } else {
                // Nothing in front: editors and people look for file:line:column at the beginning of a line.
                say(&mistakes.render(&file));
            }
            Ok(exit::INVALID)
        }
    }
}

/// `1 plugin, 2 tasks`.
fn contents(manifest: &Manifest) -> String {
    let counts = [
        ("plugin", manifest.plugins.len()),
        ("task", manifest.tasks.len()),
        ("model", manifest.models.len()),
        ("queue", manifest.queues.len()),
        ("pool", manifest.pools.len()),
        ("pipeline", manifest.pipelines.len()),
    ];
    let shown = counts.iter().filter(|(_, count)| *count > 0);
    let shown: Vec<String> =
        shown.map(|(word, count)| format!("{count} {word}{}", if *count == 1 { "" } else { "s" })).collect();
    if shown.is_empty() { format!("project {}", manifest.project.name) } else { shown.join(", ") }
}
