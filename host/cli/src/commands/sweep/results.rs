//! The results of a sweep: its trials by their metric, the importance of parameters, and the best trial as a task.

use saggar_project::{PROJECT_FILE, ProjectManifest};
use saggar_rest::jobs::JobSpecSummary;
use saggar_rest::sweeps::{LineageDocument, SweepDocument, TrialDocument};
use serde_json::{Map, Value};

use super::{format_parameters, print_trials};
use crate::atomic_file;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::project::ProjectContext;

/// Prints the trials, best first, and the importance of parameters.
pub(super) fn show(sweep: &SweepDocument, limit: Option<usize>, output: CliOutput) {
    if output.json {
        return output.print_json(sweep);
    }
    let trials = sorted_trials(sweep);
    print_trials(&trials[..limit.unwrap_or(usize::MAX).min(trials.len())], output);
    for line in lineage_lines(sweep) {
        output.print_note(&line);
    }
    let importance = sweep.importance.as_deref().unwrap_or_default();
    if !importance.is_empty() {
        output.print_note("Importance of parameters (rank correlation with the metric):");
        for it in importance {
            let sign = it.correlation.map_or_else(String::new, |sign| format!("  correlation {sign:+.2}"));
            output.print_note(&format!("  {:<24} {:.2}{sign}", it.parameter, it.importance));
        }
    }
    let because = if sweep.message.is_empty() { String::new() } else { format!(": {}", sweep.message) };
    output.print_note(&format!("{} {}{because}", sweep.name, output.format_state(&sweep.state)));
}

/// Returns how the parameters of the best trial of a population changed over its training, as lines. Empty if it has kept its
/// parameters from the first step.
fn lineage_lines(sweep: &SweepDocument) -> Vec<String> {
    let lineage = sweep.best_lineage.as_deref().unwrap_or_default();
    if lineage.len() < 2 {
        return Vec::new();
    }
    let line = |part: &LineageDocument| {
        let step = part.from_step.map_or_else(|| "?".to_owned(), |step| step.to_string());
        format!("  from step {step}: {} (trial {})", format_parameters(&part.parameters), part.trial)
    };
    let best = lineage.last().map_or(0, |part| part.trial);
    std::iter::once(format!("Parameters of trial {best}, the best, over its training:"))
        .chain(lineage.iter().map(line))
        .collect()
}

/// Returns the trials, best first; those without a value are last.
pub(super) fn sorted_trials(sweep: &SweepDocument) -> Vec<&TrialDocument> {
    let mut trials: Vec<&TrialDocument> = sweep.trials.iter().flatten().collect();
    let score = |trial: &TrialDocument| match (trial.value, sweep.direction.as_str()) {
        (None, _) => f64::NEG_INFINITY,
        (Some(value), "min") => -value,
        (Some(value), _) => value,
    };
    trials.sort_by(|one, other| score(other).total_cmp(&score(one)));
    trials
}

/// Appends the best trial to the project file as a task.
///
/// # Errors
/// There is no project file or no completed trial, or the task exists.
pub(super) fn save_task(sweep: &SweepDocument, name: &str, output: CliOutput) -> Result<(), CliError> {
    let project = ProjectContext::require()?;
    if project.manifest.tasks.contains_key(name) {
        return Err(CliError::invalid(format!("{PROJECT_FILE} has a task {name} already"))
            .with_hint("give another name, or remove [task.NAME] first"));
    }
    let best = sweep.trials.iter().flatten().find(|trial| Some(trial.number) == sweep.best);
    let best = best.ok_or_else(|| {
        CliError::invalid(format!("{} has no completed trial with a finite value", sweep.name))
            .with_hint(format!("`saggar sweep status {}` shows its trials", sweep.name))
    })?;
    let spec = JobSpecSummary::read(&sweep.spec["job"]);
    let task = sweep.spec["job"]["task"].as_str().unwrap_or_default();
    let (_, section) = project.task(task)?;
    let mut parameters = spec.parameters.clone();
    parameters.extend(best.parameters.clone());
    let mut text =
        format!("\n# Trial {} of {}: {} {}\n", best.number, sweep.name, sweep.metric, best.value.unwrap_or(f64::NAN));
    let lineage = lineage_lines(sweep);
    if !lineage.is_empty() {
        // One training with the last parameters does not repeat it.
        text.push_str("# The task has its last parameters, not the schedule that led to the value.\n");
        lineage.iter().for_each(|line| text.push_str(&format!("# {line}\n")));
    }
    let plugin = ProjectContext::plugin_of_task((task, section))?;
    text.push_str(&task_table(name, plugin, &parameters, &spec));
    let path = project.root.join(PROJECT_FILE);
    let unreadable = |error: &dyn std::fmt::Display| CliError::invalid(format!("{}: {error}", path.display()));
    let invalid = |found: saggar_project::Diagnostics| {
        let first = found.0.first().map_or_else(String::new, |it| it.message.clone());
        unreadable(&format!("the task {name} cannot be written there: {first}"))
    };
    let mut file = std::fs::read_to_string(&path).map_err(|error| unreadable(&error))?;
    if !file.ends_with('\n') {
        file.push('\n');
    }
    file.push_str(&text);
    // The text before it, with its comments, is not changed.
    ProjectManifest::parse(&file).map_err(invalid)?;
    let part = atomic_file::partial_path(&path);
    let written = std::fs::write(&part, file).and_then(|()| std::fs::rename(&part, &path));
    written.map_err(|error| unreadable(&error))?;
    output.print_note(&format!("{}: added [task.{name}]; `saggar run --task {name}` runs it", path.display()));
    Ok(())
}

/// Returns the table of a task.
fn task_table(name: &str, plugin: &str, parameters: &Map<String, Value>, spec: &JobSpecSummary) -> String {
    let mut table = format!("[task.{}]\nplugin = {}\n", toml_key(name), toml_text(plugin));
    table.push_str(&format!("args = {}\n", toml_table(parameters)));
    let mounts = spec.data.iter().map(|mount| {
        let from = match (&mount.job, &mount.path) {
            (None, _) => format!("{}/{}", mount.dataset, mount.version),
            (Some(job), None) => format!("job:{job}/output"),
            (Some(job), Some(path)) => format!("job:{job}/output/{path}"),
        };
        format!("{{ from = {}, to = {} }}", toml_text(&from), toml_text(&mount.mount))
    });
    let mounts: Vec<String> = mounts.collect();
    if !mounts.is_empty() {
        table.push_str(&format!("data = [{}]\n", mounts.join(", ")));
    }
    if spec.seed != 0 {
        table.push_str(&format!("seed = {}\n", spec.seed));
    }
    table
}

/// Returns a JSON value in TOML.
fn toml_value(value: &Value) -> String {
    match value {
        Value::String(text) => toml_text(text),
        Value::Array(items) => format!("[{}]", items.iter().map(toml_value).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => toml_table(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Returns an inline table. TOML has no null; a parameter that is null has its default, as one that is left out.
fn toml_table(fields: &Map<String, Value>) -> String {
    let fields = fields.iter().filter(|(_, value)| !value.is_null());
    let fields: Vec<String> = fields.map(|(key, value)| format!("{} = {}", toml_key(key), toml_value(value))).collect();
    if fields.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", fields.join(", ")) }
}

fn toml_key(name: &str) -> String {
    let is_bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if is_bare && !name.is_empty() { name.to_owned() } else { toml_text(name) }
}

/// Returns a basic string of TOML, whose escapes are those of JSON.
fn toml_text(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_is_written_so_that_the_project_file_reads_it() {
        let parameters =
            json!({"lr": 1.5e-5, "kind": "a \"b\"\n\u{7f}", "on": true, "a.b": [1, 2], "none": null, "n": {"x": 1}});
        let spec = json!({"seed": 7, "data": [
            {"mount": "/data", "dataset": "digits", "version": 3},
            {"mount": "/before", "job": "digits-7", "path": "init"},
        ]});
        let table = task_table("best", "net", parameters.as_object().unwrap(), &JobSpecSummary::read(&spec));
        let file = format!("manifest = 1\n[project]\nname = \"p\"\n[plugin.net]\nsource = \"net.wasm\"\n{table}");
        let manifest = ProjectManifest::parse(&file).unwrap_or_else(|found| panic!("{found:?}: {file}"));
        let task = &manifest.tasks["best"];
        assert_eq!((task.plugin.as_deref(), task.data.len()), (Some("net"), 2));
        for (name, value) in parameters.as_object().unwrap().iter().filter(|(_, value)| !value.is_null()) {
            assert_eq!(task.args.get(name), Some(value), "{name}");
        }
    }
}
