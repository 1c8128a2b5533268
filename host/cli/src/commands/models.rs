//! `saggar models ...`: lists models and controls which versions serve.

mod bundle;
mod push;
mod version;

use std::collections::BTreeMap;

use saggar_rest::model_commands::{
    OptionalVersionRequest, PromoteRequest, PromotionTarget, SetAliasRequest, SetShadowRequest, TrafficRequest,
};
use saggar_rest::models::{
    ModelDocument, ModelListDocument, ModelRouteDocument, ModelVersionDocument, PortDocument, RemovedVersionsDocument,
};
use saggar_rest::projects::{AssignProjectsRequest, AssignedProjectsDocument};

use crate::args::{ModelRmArgs, ModelsCommand};
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::exit::CliError;
use crate::output::{CliOutput, confirm};
use crate::units;

pub(crate) fn models(args: &ModelsCommand, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    match args {
        ModelsCommand::Ls => list_models(client, output),
        ModelsCommand::Show { model, verify } => match model.split_once('@') {
            Some((model, version)) => version::show_version(model, version, *verify, client, output),
            None => show_model(model, client, output),
        },
        ModelsCommand::Push(args) => push::push_version(args, client, output),
        ModelsCommand::Export(args) => bundle::export_bundle(args, client, output),
        ModelsCommand::ImportBundle(args) => bundle::import_bundle(args, client, output),
        ModelsCommand::Promote { model, version } => {
            let word = || PromotionTarget::Word(version.clone());
            let version = version.parse().map_or_else(|_| word(), PromotionTarget::Version);
            let request = PromoteRequest { version };
            print_model_state(&client.post(&model_path(model, "promote"), RequestBody::json(&request))?, output)
        }
        ModelsCommand::Rollback { model } => {
            print_model_state(&client.post(&model_path(model, "rollback"), RequestBody::Empty)?, output)
        }
        ModelsCommand::Canary { model, version, share } => set_canary(client, model, *version, *share, output),
        ModelsCommand::Alias { model, alias, version, .. } => set_alias(client, model, alias, *version, output),
        ModelsCommand::Shadow { model, to, share, .. } => set_shadow(client, model, to.as_deref(), *share, output),
        ModelsCommand::Projects { model, projects } => {
            let request = AssignProjectsRequest { projects: projects.clone() };
            print_projects(&client.put_json(&model_path(model, "projects"), &request)?, output);
            Ok(())
        }
        ModelsCommand::Load { model, version } => print_model_state(&load(client, model, *version)?, output),
        ModelsCommand::Unload { model, version } => {
            let request = OptionalVersionRequest { version: *version };
            print_model_state(&client.post(&model_path(model, "unload"), RequestBody::json(&request))?, output)
        }
        ModelsCommand::Warm { model } => {
            print_model_state(&client.post(&model_path(model, "warm"), RequestBody::Empty)?, output)
        }
        ModelsCommand::Rm(args) => remove_model(args, client, output),
    }
}

/// Returns the REST path of a model's subresource.
fn model_path(model: &str, command: &str) -> String {
    format!("/api/v1/models/{}/{command}", encode_path_segment(model))
}

/// Loads a version, or all that are needed.
fn load(client: &ApiClient, model: &str, version: Option<u64>) -> Result<ModelDocument, CliError> {
    client.post(&model_path(model, "load"), RequestBody::json(&OptionalVersionRequest { version }))
}

/// Prints the projects that a model or a dataset belongs to.
pub(crate) fn print_projects(answer: &AssignedProjectsDocument, output: CliOutput) {
    if output.json {
        output.print_json(answer);
        return;
    }
    let projects = answer.projects.join(", ");
    let projects = if projects.is_empty() { "no project" } else { &projects };
    output.print_line(&format!("{} belongs to {projects}", answer.name));
}

/// Prints the model's current state.
fn print_model_state(model: &ModelDocument, output: CliOutput) -> Result<(), CliError> {
    if output.json {
        output.print_json(model);
        return Ok(());
    }
    let rows = version_rows(model, output);
    output.print_table(VERSION_COLUMNS, &rows);
    print_notice(model, output);
    Ok(())
}

/// Prints a notice if versions that trainings publish do not serve automatically, with what to do.
fn print_notice(model: &ModelDocument, output: CliOutput) {
    if !model.notice.is_empty() {
        output.print_note(&model.notice);
    }
}

/// Sets a canary. The version is loaded first, because aliases and shares require a ready version. At a share of 0 the
/// alias is removed, because it would keep the version from being unloaded.
fn set_canary(client: &ApiClient, model: &str, version: u64, share: u32, output: CliOutput) -> Result<(), CliError> {
    if share == 0 {
        let shared: ModelDocument = client.put_json(&model_path(model, "traffic"), &TrafficRequest::default())?;
        let has_alias = shared.aliases.contains_key("canary");
        let model = if has_alias { client.delete(&model_path(model, "aliases/canary"))? } else { shared };
        return print_model_state(&model, output);
    }
    load(client, model, Some(version))?;
    client.put_json::<ModelDocument>(&model_path(model, "aliases/canary"), &SetAliasRequest { version })?;
    let shares = BTreeMap::from([("stable".to_owned(), 100 - share), ("canary".to_owned(), share)]);
    print_model_state(&client.put_json(&model_path(model, "traffic"), &TrafficRequest(shares))?, output)
}

/// Points an alias at a version. The version is loaded first, because aliases require a ready version. Without a
/// version, removes the alias.
fn set_alias(
    client: &ApiClient,
    model: &str,
    alias: &str,
    version: Option<u64>,
    output: CliOutput,
) -> Result<(), CliError> {
    let path_of_alias = model_path(model, &format!("aliases/{}", encode_path_segment(alias)));
    let Some(version) = version else { return print_model_state(&client.delete(&path_of_alias)?, output) };
    load(client, model, Some(version))?;
    print_model_state(&client.put_json(&path_of_alias, &SetAliasRequest { version })?, output)
}

/// Makes a version, which is loaded first, or an alias shadow the default. Without either, ends the shadow.
fn set_shadow(
    client: &ApiClient,
    model: &str,
    to: Option<&str>,
    share: u32,
    output: CliOutput,
) -> Result<(), CliError> {
    let path_of_shadow = model_path(model, "shadow");
    let Some(to) = to else { return print_model_state(&client.delete(&path_of_shadow)?, output) };
    if let Ok(version) = to.parse::<u64>() {
        load(client, model, Some(version))?;
    }
    let request = SetShadowRequest { to: to.to_owned(), percent: share };
    print_model_state(&client.put_json(&path_of_shadow, &request)?, output)
}

/// Removes a version, or a model with all its versions.
fn remove_model(args: &ModelRmArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let (model, version) = match args.model.split_once('@') {
        Some((model, version)) => (model, Some(version)),
        None => (args.model.as_str(), None),
    };
    let question = match version {
        Some(version) => format!("Remove version {version} of {model}?"),
        None => format!("Remove {model} with all of its versions?"),
    };
    confirm(args.yes, &question)?;
    let address = format!("/api/v1/models/{}", encode_path_segment(model));
    let address = version
        .map_or_else(|| address.clone(), |version| format!("{address}/versions/{}", encode_path_segment(version)));
    let removed: RemovedVersionsDocument = client.delete(&address)?;
    if output.json {
        output.print_json(&removed);
        return Ok(());
    }
    removed.removed.iter().for_each(|name| output.print_line(name));
    output.print_note(&format!("  {} freed", units::format_bytes(removed.freed_bytes)));
    Ok(())
}

/// Prints how a published version of each model becomes the default, if no user promoted one.
fn print_promotion_rules(models: &[ModelDocument], output: CliOutput) {
    let following = models.iter().filter(|model| model.follows_newest && !model.versions.is_empty());
    let (conditional, newest): (Vec<_>, Vec<_>) =
        following.partition(|model| model.config.promotion_condition().is_some());
    for model in conditional {
        let (name, condition) = (&model.name, model.config.promotion_condition().unwrap_or_default());
        output.print_note(&format!("{name}: a published version serves if {condition}"));
    }
    if !newest.is_empty() {
        let names: Vec<&str> = newest.iter().map(|model| model.name.as_str()).collect();
        output.print_note(&format!("{}: the newest version serves as soon as it is published", names.join(", ")));
    }
}

const VERSION_COLUMNS: &[&str] =
    &["MODEL", "VERSION", "STATE", "ALIASES", "TRAFFIC", "MEASURED", "WEIGHTS", "FROM", "REASON"];

fn list_models(client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let ModelListDocument { models } = client.get("/api/v1/models")?;
    if output.json {
        output.print_json(&models);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = models.iter().flat_map(|model| version_rows(model, output)).collect();
    if output.quiet {
        models.iter().for_each(|model| output.print_line(&model.name));
        return Ok(());
    }
    output.print_table(VERSION_COLUMNS, &rows);
    models.iter().for_each(|model| print_notice(model, output));
    print_promotion_rules(&models, output);
    if rows.is_empty() {
        output.print_note("No models. A training that publishes creates one: `saggar run PLUGIN --data DATASET -f`.");
    }
    Ok(())
}

fn version_rows(model: &ModelDocument, output: CliOutput) -> Vec<Vec<String>> {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let row = |version: &ModelVersionDocument| {
        let number = version.version;
        let mark = if model.serving == Some(number) { " (serving)" } else { "" };
        let weights: String = version.weights.iter().flat_map(|weights| weights.chars()).take(12).collect();
        vec![
            model.name.clone(),
            format!("{number}{mark}"),
            output.format_state(&version.state),
            or_dash(&version.aliases.join(",")),
            format!("{}%", version.traffic_percent),
            or_dash(&version.measured),
            or_dash(&weights),
            or_dash(version.source_job.as_deref().unwrap_or_default()),
            or_dash(&version.reason),
        ]
    };
    model.versions.iter().map(row).collect()
}

fn show_model(name: &str, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let model: ModelDocument = client.get(&format!("/api/v1/models/{}", encode_path_segment(name)))?;
    if output.json {
        output.print_json(&model);
        return Ok(());
    }
    output.print_line(&format!("{}  device {}", model.name, model.device.as_deref().unwrap_or_default()));
    let signature = model.signature.clone().unwrap_or_default();
    for (title, ports) in [("inputs", signature.inputs), ("outputs", signature.outputs)] {
        for PortDocument { name, dtype, shape, semantics, default, preprocessing, .. } in ports {
            let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
            let (shape, semantics) = (shape.join(","), semantics.unwrap_or_default());
            let default = default.map(|value| format!("  default {value}")).unwrap_or_default();
            output.print_line(&format!("  {title:<8} {name}  {dtype}[{shape}]  {semantics}{default}"));
            if let Some(preprocessing) = preprocessing {
                output.print_line(&format!("           preprocessing: {}", preprocessing.summary()));
            }
        }
    }
    for ModelRouteDocument { methods, path, kind, description } in signature.routes {
        let line = format!("  {:<8} {} {path}  {kind}  {description}", "route", methods.join(","));
        output.print_line(line.trim_end());
    }
    output.print_line("");
    let rows = version_rows(&model, output);
    output.print_table(VERSION_COLUMNS, &rows);
    print_notice(&model, output);
    Ok(())
}
