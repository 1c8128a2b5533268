//! The card of a version that its publisher gave none: Markdown that says what the version was made from.
//!
//! It is made when it is read, from the manifest, which a bundle contains unchanged. So versions of before have one, and
//! publishing equal content again makes no other version. The server that trained a version adds the sweep and the
//! pipeline run that its job was submitted for; without these, the same version has the same card on every server.

use std::fmt::Write;

use super::{FileEntry, ModelManifest, PLUGIN_FILE};

/// The characters of a parameter's value.
const VALUE_CHARS_MAX: usize = 200;

/// What the job that published a version was submitted for. The server that trained it knows this; a bundle does not
/// contain it, because names of sweeps and runs mean nothing on another server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingOrigin {
    /// The trial of a sweep.
    pub trial: Option<TrialOrigin>,
    /// The step of a pipeline run.
    pub step: Option<StepOrigin>,
}

/// A training as a trial of a sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrialOrigin {
    /// The name of the sweep.
    pub sweep: String,
    /// The number of the trial, from 1.
    pub number: u32,
    /// The values of the searched parameters.
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Whether it is the best completed trial.
    pub is_best: bool,
    /// For a copy in a population: the trials whose trainings led to it, oldest first, with itself as the last; else
    /// empty.
    pub lineage: Vec<LineageOrigin>,
}

/// A part of the training that led to a copy in a population.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineageOrigin {
    /// The number of the trial.
    pub number: u32,
    /// The training step from which it trained, if it is known.
    pub from_step: Option<u64>,
    /// The values of the searched parameters.
    pub parameters: serde_json::Map<String, serde_json::Value>,
}

/// A training as a step of a pipeline run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOrigin {
    /// The name of the run.
    pub run: String,
    /// The name of the step.
    pub step: String,
}

impl ModelManifest {
    /// Returns a card of the version `number` of `model`, or `None` if no job published it and nothing is known about
    /// its making. `origin` is what the job was submitted for.
    pub fn generated_card(&self, model: &str, number: u64, origin: &TrainingOrigin) -> Option<String> {
        let it = &self.provenance;
        let is_known =
            !it.data.is_empty() || !it.parameters.is_empty() || it.step.is_some() || !self.metrics.is_empty();
        if self.source_job.is_empty() && !is_known {
            return None;
        }
        let mut text = format!("# {model}@{number}\n\n");
        if !self.source_job.is_empty() {
            let _ = writeln!(text, "Published by job `{}`{}.\n", self.source_job, step_text(it.step));
        }
        write_origin(&mut text, origin);
        let data: Vec<(String, String)> = it
            .data
            .iter()
            .map(|(mount, source)| (format!("`{mount}`"), with_digest(source, it.data_sha256.get(mount))))
            .collect();
        table(&mut text, "Data", &["Mount", "Dataset"], &data);
        let parameters: Vec<(String, String)> =
            it.parameters.iter().map(|(name, value)| (escape(name), escape(&value.to_string()))).collect();
        table(&mut text, "Parameters", &["Parameter", "Value"], &parameters);
        let inputs: Vec<(String, String)> =
            self.inputs.iter().map(|(name, input)| (escape(name), escape(&input.to_string()))).collect();
        table(&mut text, "Image inputs", &["Input", "Preprocessing"], &inputs);
        let metrics: Vec<(String, String)> =
            self.metrics.iter().map(|(name, value)| (escape(name), value.to_string())).collect();
        table(&mut text, "Metrics", &["Metric", "Last value"], &metrics);
        let _ = writeln!(text, "## Made with\n");
        let plugin =
            self.file(PLUGIN_FILE).map(|file: &FileEntry| format!(", {} bytes", file.bytes)).unwrap_or_default();
        let _ = writeln!(text, "- Plugin: `sha256:{}`{plugin}", self.plugin);
        let _ = writeln!(text, "- Weights: `sha256:{}`", self.weights);
        if let Some(seed) = it.seed {
            let _ = writeln!(text, "- Seed: {seed}");
        }
        for (name, value) in [("Device", &it.device), ("saggar", &it.program)] {
            if !value.is_empty() {
                let _ = writeln!(text, "- {name}: {}", escape(value));
            }
        }
        Some(text)
    }
}

/// Writes where the training came from: the step of a pipeline run, the trial of a sweep and what was searched.
fn write_origin(text: &mut String, origin: &TrainingOrigin) {
    if let Some(StepOrigin { run, step }) = &origin.step {
        let _ = writeln!(text, "The job was step `{step}` of pipeline run `{run}`.\n");
    }
    if let Some(TrialOrigin { sweep, number, parameters, is_best, lineage }) = &origin.trial {
        let best = if *is_best { ", its best completed trial" } else { "" };
        let _ = writeln!(text, "The job was trial {number} of sweep `{sweep}`{best}.\n");
        let searched: Vec<(String, String)> =
            parameters.iter().map(|(name, value)| (escape(name), escape(&value.to_string()))).collect();
        table(text, "Searched parameters", &["Parameter", "Value"], &searched);
        let parts: Vec<(String, String)> = lineage.iter().map(lineage_row).collect();
        table(text, "Lineage in the population", &["From step", "Trial and its searched parameters"], &parts);
    }
}

fn lineage_row(part: &LineageOrigin) -> (String, String) {
    let from = part.from_step.map_or("unknown".to_owned(), |step| step.to_string());
    let parameters =
        part.parameters.iter().map(|(name, value)| format!("{}={}", escape(name), escape(&value.to_string())));
    (from, format!("trial {}: {}", part.number, parameters.collect::<Vec<_>>().join(", ")))
}

fn step_text(step: Option<u64>) -> String {
    step.map(|step| format!(" at step {step}")).unwrap_or_default()
}

fn with_digest(source: &str, sha256: Option<&String>) -> String {
    match sha256 {
        Some(sha256) => format!("{}, `sha256:{sha256}`", escape(source)),
        None => escape(source),
    }
}

/// Writes a section with a table, unless it has no rows.
fn table(text: &mut String, heading: &str, columns: &[&str; 2], rows: &[(String, String)]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "## {heading}\n\n| {} | {} |\n|---|---|", columns[0], columns[1]);
    for (name, value) in rows {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    text.push('\n');
}

/// Makes a text of a client one cell of a table: without line ends, control characters, and characters that Markdown or
/// HTML would act on.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars().take(VALUE_CHARS_MAX) {
        match c {
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '!' | '#' => escaped.extend(['\\', c]),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    if text.chars().count() > VALUE_CHARS_MAX {
        escaped.push('…');
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::digest::Digest;
    use crate::models::ModelProvenance;

    fn manifest(provenance: ModelProvenance) -> ModelManifest {
        ModelManifest {
            format: 1,
            files: vec![FileEntry { name: PLUGIN_FILE.to_owned(), bytes: 7, sha256: Digest::of(b"plugin") }],
            plugin: Digest::of(b"plugin"),
            weights: Digest::of(b"weights"),
            config: String::new(),
            inputs: Default::default(),
            statistics: Vec::new(),
            created_ms: 0,
            source_job: String::new(),
            metrics: Default::default(),
            provenance,
        }
    }

    #[test]
    fn a_card_says_what_a_version_was_made_from() {
        let parameters = json!({ "epochs": 3, "note": "<b>a|b</b>\nc" });
        let provenance = ModelProvenance {
            data: [("/data".to_owned(), "digits/1".to_owned())].into(),
            data_sha256: [("/data".to_owned(), "ab12".to_owned())].into(),
            parameters: parameters.as_object().unwrap().clone(),
            seed: Some(4),
            step: Some(60),
            device: "cpu x86".to_owned(),
            program: "0.1.0".to_owned(),
        };
        let made = ModelManifest {
            source_job: "digits-7".to_owned(),
            metrics: [("validation/accuracy".to_owned(), 0.975)].into(),
            ..manifest(provenance)
        };
        let trial = TrialOrigin {
            sweep: "digits-sweep-2".to_owned(),
            number: 4,
            parameters: json!({ "epochs": 3, "a|b": 0.5 }).as_object().unwrap().clone(),
            is_best: true,
            lineage: vec![
                LineageOrigin {
                    number: 1,
                    from_step: Some(0),
                    parameters: json!({ "epochs": 2 }).as_object().unwrap().clone(),
                },
                LineageOrigin {
                    number: 4,
                    from_step: Some(30),
                    parameters: json!({ "epochs": 3, "a|b": 0.5 }).as_object().unwrap().clone(),
                },
            ],
        };
        let step = StepOrigin { run: "nightly-1".to_owned(), step: "train".to_owned() };
        let origin = TrainingOrigin { trial: Some(trial), step: Some(step) };
        let card = made.generated_card("digits", 3, &origin).unwrap();
        for line in [
            "# digits@3",
            "Published by job `digits-7` at step 60.",
            "The job was step `train` of pipeline run `nightly-1`.",
            "The job was trial 4 of sweep `digits-sweep-2`, its best completed trial.",
            "## Searched parameters",
            r"| a\|b | 0.5 |",
            "| 0 | trial 1: epochs=2 |",
            r"| 30 | trial 4: epochs=3, a\|b=0.5 |",
            "| `/data` | digits/1, `sha256:ab12` |",
            "| epochs | 3 |",
            r#"| note | "&lt;b&gt;a\|b&lt;/b&gt;\\nc" |"#,
            "| validation/accuracy | 0.975 |",
            "- Seed: 4",
            "- Device: cpu x86",
        ] {
            assert!(card.lines().any(|it| it == line), "{line}\n{card}");
        }
        assert!(card.contains(&Digest::of(b"plugin").hex()) && card.contains(&Digest::of(b"weights").hex()));
    }

    #[test]
    fn nothing_known_gives_no_card_and_long_values_are_cut() {
        assert_eq!(manifest(ModelProvenance::default()).generated_card("digits", 1, &TrainingOrigin::default()), None);
        let parameters = json!({ "text": "x".repeat(100_000) });
        let long =
            ModelProvenance { parameters: parameters.as_object().unwrap().clone(), ..ModelProvenance::default() };
        let card = manifest(long).generated_card("digits", 1, &TrainingOrigin::default()).unwrap();
        assert!(card.len() < 1_000 && card.contains('…'), "{} bytes", card.len());
    }
}
