//! `saggar models show MODEL@VERSION`: what a version is made from and contains.

use saggar_rest::model_versions::{ProvenanceDocument, VersionDetailDocument};

use super::model_path;
use crate::client::{ApiClient, encode_path_segment};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::units;

pub(super) fn show_version(
    model: &str,
    version: &str,
    verify: bool,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    let query = if verify { "?verify=true" } else { "" };
    let path = model_path(model, &format!("versions/{}{query}", encode_path_segment(version)));
    let detail: VersionDetailDocument = client.get(&path)?;
    if output.json {
        output.print_json(&detail);
    } else {
        print_version(&detail, output);
    }
    match detail.intact {
        Some(false) => {
            let message = format!("{model}@{version} is damaged: {}", detail.damage);
            Err(CliError::new(exit::CONFLICT, "damaged", message).with_hint("copy its directory from a backup"))
        }
        _ => Ok(()),
    }
}

fn print_version(detail: &VersionDetailDocument, output: CliOutput) {
    let VersionDetailDocument { version, provenance, .. } = detail;
    let line = |name: &str, value: &str| {
        if !value.is_empty() {
            output.print_line(&format!("{name:<11} {value}"));
        }
    };
    let state = output.format_state(&version.state);
    output.print_line(&format!("{}@{}  {state}  {}", detail.model, version.version, version.reason));
    line("aliases", &version.aliases.join(", "));
    line("plugin", version.plugin.as_deref().unwrap_or_default());
    line("weights", version.weights.as_deref().unwrap_or_default());
    let (tensors, elements) = (detail.tensors, detail.elements);
    line("size", &format!("{}, {tensors} tensors, {elements} elements", units::format_bytes(detail.stored_bytes)));
    line("published", &version.created_ms.map(units::format_time).unwrap_or_default());
    line("job", version.source_job.as_deref().unwrap_or_default());
    if let Some(step) = detail.origin.as_ref().and_then(|origin| origin.step.as_ref()) {
        line("pipeline", &format!("{} step {}", step.run, step.step));
    }
    if let Some(trial) = detail.origin.as_ref().and_then(|origin| origin.trial.as_ref()) {
        let best = if trial.is_best { ", the best" } else { "" };
        let searched = trial.parameters.iter().map(|(name, value)| format!("{name}={value}"));
        let searched = searched.collect::<Vec<_>>().join(" ");
        line("sweep", &format!("{} trial {}{best}: {searched}", trial.sweep, trial.number));
    }
    print_provenance(provenance, &line);
    for (name, value) in version.metrics.iter().flatten() {
        line("metric", &format!("{name} {}", value.map_or_else(|| "-".to_owned(), |value| format!("{value:.6}"))));
    }
    line("config", &detail.config);
    if let Some(intact) = detail.intact {
        line("files", if intact { "intact: all digests match" } else { "damaged" });
    }
    if let Some(card) = detail.card.as_ref().filter(|_| detail.is_card_generated) {
        output.print_note(
            "\nThe card below is generated; `--card FILE` of `saggar models push` gives a version its own.",
        );
        card.lines().for_each(|text| output.print_line(text));
    } else if let Some(card) = &detail.card {
        output.print_line("");
        card.lines().for_each(|text| output.print_line(text));
    }
}

fn print_provenance(provenance: &ProvenanceDocument, line: &impl Fn(&str, &str)) {
    let ProvenanceDocument { data, data_sha256, parameters, seed, step, device, program } = provenance;
    let pairs = data.iter().map(|(mount, version)| match data_sha256.get(mount) {
        Some(digest) => format!("{mount} {version} (sha256 {})", digest.chars().take(12).collect::<String>()),
        None => format!("{mount} {version}"),
    });
    line("data", &pairs.collect::<Vec<_>>().join(", "));
    let pairs = parameters.iter().map(|(name, value)| format!("{name}={value}"));
    line("parameters", &pairs.collect::<Vec<_>>().join(" "));
    line("seed", &seed.map(|seed| seed.to_string()).unwrap_or_default());
    line("step", &step.map(|step| step.to_string()).unwrap_or_default());
    line("device", device);
    line("program", program);
}
