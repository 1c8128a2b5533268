//! `saggar check`: reports all errors of the project file, as `file:line:column`.

use std::path::PathBuf;

use saggar_project::{Diagnostic, PROJECT_FILE, ProjectManifest, SCHEMA};
use serde::Serialize;

use crate::args::CheckArgs;
use crate::exit::{self, CliError};
use crate::output::{CliOutput, print_to_stderr};
use crate::project;

pub(crate) fn check(args: &CheckArgs, output: CliOutput) -> Result<i32, CliError> {
    if args.schema {
        output.print_text(&format!("{}\n", SCHEMA.trim_end()));
        return Ok(0);
    }
    let found = args.file.clone().or_else(project::find_file);
    let path = found.unwrap_or_else(|| PathBuf::from(PROJECT_FILE));
    let text = project::read_manifest_text(&path)?;
    let file = path.display().to_string();
    let report = |valid: bool, mistakes: &[Diagnostic], warnings: &[Diagnostic]| {
        let list = |found| ManifestFinding::list(&file, found);
        output.print_json(&ManifestReport { file: &file, valid, mistakes: list(mistakes), warnings: list(warnings) });
    };
    match ProjectManifest::parse(&text) {
        Ok(manifest) => {
            if output.json {
                report(true, &[], &manifest.warnings);
                return Ok(0);
            }
            manifest.warnings.iter().for_each(|warning| output.print_note(&format!("{file}:{warning}")));
            output.print_line(&format!("{file} is valid: {}", summarize_manifest(&manifest)));
            Ok(0)
        }
        Err(mistakes) => {
            if output.json {
                report(false, &mistakes.0, &[]);
            } else {
                // Without a prefix, because editors and people expect file:line:column at the beginning of a line.
                print_to_stderr(&mistakes.render(&file));
            }
            Ok(exit::INVALID)
        }
    }
}

/// The findings in a manifest as JSON.
#[derive(Serialize)]
struct ManifestReport<'a> {
    file: &'a str,
    valid: bool,
    mistakes: Vec<ManifestFinding<'a>>,
    warnings: Vec<ManifestFinding<'a>>,
}

#[derive(Serialize)]
struct ManifestFinding<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    message: &'a str,
    hint: Option<&'a str>,
}

impl<'a> ManifestFinding<'a> {
    fn list(file: &'a str, found: &'a [Diagnostic]) -> Vec<ManifestFinding<'a>> {
        let finding = |Diagnostic { line, column, message, hint }: &'a Diagnostic| ManifestFinding {
            file,
            line: *line,
            column: *column,
            message,
            hint: hint.as_deref(),
        };
        found.iter().map(finding).collect()
    }
}

/// Summarizes a manifest: `1 plugin, 2 tasks`.
fn summarize_manifest(manifest: &ProjectManifest) -> String {
    let counts = [
        ("plugin", manifest.plugins.len()),
        ("task", manifest.tasks.len()),
        ("model", manifest.models.len()),
        ("queue", manifest.queues.len()),
        ("pool", manifest.pools.len()),
    ];
    let nonzero = counts.iter().filter(|(_, count)| *count > 0);
    let nonzero: Vec<String> =
        nonzero.map(|(word, count)| format!("{count} {word}{}", if *count == 1 { "" } else { "s" })).collect();
    if nonzero.is_empty() { format!("project {}", manifest.project.name) } else { nonzero.join(", ") }
}
