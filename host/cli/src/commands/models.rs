//! `saggar models ...`: lists models and controls which versions serve.

use serde_json::{Value, json};

use crate::args::{ModelRmArgs, ModelsCommand};
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::exit::CliError;
use crate::output::{CliOutput, confirm};
use crate::units;

pub(crate) fn models(args: &ModelsCommand, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    match args {
        ModelsCommand::Ls => list_models(client, output),
        ModelsCommand::Show { model } => show_model(model, client, output),
        ModelsCommand::Promote { model, version } => {
            let version = version.parse::<u64>().map_or_else(|_| json!(version), |version| json!(version));
            print_model_state(
                client.post(&model_path(model, "promote"), RequestBody::Json(&json!({ "version": version })))?,
                output,
            )
        }
        ModelsCommand::Rollback { model } => {
            print_model_state(client.post(&model_path(model, "rollback"), RequestBody::Empty)?, output)
        }
        ModelsCommand::Canary { model, version, share } => set_canary(client, model, *version, *share, output),
        ModelsCommand::Alias { model, alias, version, .. } => set_alias(client, model, alias, *version, output),
        ModelsCommand::Shadow { model, to, share, .. } => set_shadow(client, model, to.as_deref(), *share, output),
        ModelsCommand::Projects { model, projects } => {
            let belongs = client.put_json(&model_path(model, "projects"), &json!({ "projects": projects }))?;
            print_projects(&belongs, output);
            Ok(())
        }
        ModelsCommand::Load { model, version } => print_model_state(
            client.post(&model_path(model, "load"), RequestBody::Json(&json!({ "version": version })))?,
            output,
        ),
        ModelsCommand::Unload { model, version } => print_model_state(
            client.post(&model_path(model, "unload"), RequestBody::Json(&json!({ "version": version })))?,
            output,
        ),
        ModelsCommand::Warm { model } => {
            print_model_state(client.post(&model_path(model, "warm"), RequestBody::Empty)?, output)
        }
        ModelsCommand::Rm(args) => remove_model(args, client, output),
    }
}

/// Returns the REST path of a model's subresource.
fn model_path(model: &str, command: &str) -> String {
    format!("/api/v1/models/{}/{command}", encode_path_segment(model))
}

/// Prints the projects that a model or a dataset belongs to.
pub(crate) fn print_projects(answer: &Value, output: CliOutput) {
    if output.json {
        output.print_json(answer);
        return;
    }
    let projects = answer["projects"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let projects = projects.collect::<Vec<&str>>().join(", ");
    let projects = if projects.is_empty() { "no project" } else { &projects };
    output.print_line(&format!("{} belongs to {projects}", text(answer, "name")));
}

/// Prints the model's current state.
fn print_model_state(model: Value, output: CliOutput) -> Result<(), CliError> {
    if output.json {
        output.print_json(&model);
        return Ok(());
    }
    let rows = version_rows(&model, output);
    output.print_table(VERSION_COLUMNS, &rows);
    print_notice(&model, output);
    Ok(())
}

/// Prints a notice if versions that trainings publish do not serve automatically, with what to do.
fn print_notice(model: &Value, output: CliOutput) {
    let notice = text(model, "notice");
    if !notice.is_empty() {
        output.print_note(notice);
    }
}

/// Sets a canary. The version is loaded first, because aliases and shares require a ready version. At a share of 0 the
/// alias is removed, because it would keep the version from being unloaded.
fn set_canary(client: &ApiClient, model: &str, version: u64, share: u32, output: CliOutput) -> Result<(), CliError> {
    if share == 0 {
        let shared = client.put_json(&model_path(model, "traffic"), &json!({}))?;
        let alias = shared["aliases"].get("canary").is_some();
        return print_model_state(
            if alias { client.delete(&model_path(model, "aliases/canary"))? } else { shared },
            output,
        );
    }
    client.post(&model_path(model, "load"), RequestBody::Json(&json!({ "version": version })))?;
    client.put_json(&model_path(model, "aliases/canary"), &json!({ "version": version }))?;
    let shares = json!({ "stable": 100 - share, "canary": share });
    print_model_state(client.put_json(&model_path(model, "traffic"), &shares)?, output)
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
    let Some(version) = version else { return print_model_state(client.delete(&path_of_alias)?, output) };
    client.post(&model_path(model, "load"), RequestBody::Json(&json!({ "version": version })))?;
    print_model_state(client.put_json(&path_of_alias, &json!({ "version": version }))?, output)
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
    let Some(to) = to else { return print_model_state(client.delete(&path_of_shadow)?, output) };
    if let Ok(version) = to.parse::<u64>() {
        client.post(&model_path(model, "load"), RequestBody::Json(&json!({ "version": version })))?;
    }
    print_model_state(client.put_json(&path_of_shadow, &json!({ "to": to, "percent": share }))?, output)
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
    let removed = client.delete(&address)?;
    if output.json {
        output.print_json(&removed);
        return Ok(());
    }
    let names = removed["removed"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.for_each(|name| output.print_line(name));
    output.print_note(&format!("  {} freed", units::format_bytes(removed["freed_bytes"].as_u64().unwrap_or(0))));
    Ok(())
}

const VERSION_COLUMNS: &[&str] =
    &["MODEL", "VERSION", "STATE", "ALIASES", "TRAFFIC", "MEASURED", "WEIGHTS", "FROM", "REASON"];

fn list_models(client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let answer = client.get("/api/v1/models")?;
    let models = answer["models"].as_array().cloned().unwrap_or_default();
    if output.json {
        output.print_json(&Value::Array(models));
        return Ok(());
    }
    let rows: Vec<Vec<String>> = models.iter().flat_map(|model| version_rows(model, output)).collect();
    if output.quiet {
        models.iter().for_each(|model| output.print_line(text(model, "name")));
        return Ok(());
    }
    output.print_table(VERSION_COLUMNS, &rows);
    models.iter().for_each(|model| print_notice(model, output));
    if rows.is_empty() {
        output.print_note("No models. A training that publishes creates one: `saggar run PLUGIN --data DATASET -f`.");
    }
    Ok(())
}

fn version_rows(model: &Value, output: CliOutput) -> Vec<Vec<String>> {
    let serving = model["serving"].as_u64();
    let versions = model["versions"].as_array().into_iter().flatten();
    versions
        .map(|version| {
            let number = version["version"].as_u64().unwrap_or(0);
            let mark = if serving == Some(number) { " (serving)" } else { "" };
            let weights: String = text(version, "weights").chars().take(12).collect();
            let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
            vec![
                text(model, "name").to_owned(),
                format!("{number}{mark}"),
                output.format_state(text(version, "state")),
                or_dash(&aliases(version)),
                format!("{}%", version["traffic_percent"]),
                or_dash(text(version, "measured")),
                or_dash(&weights),
                or_dash(text(version, "source_job")),
                or_dash(text(version, "reason")),
            ]
        })
        .collect()
}

fn show_model(name: &str, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let model = client.get(&format!("/api/v1/models/{}", encode_path_segment(name)))?;
    if output.json {
        output.print_json(&model);
        return Ok(());
    }
    output.print_line(&format!("{}  device {}", text(&model, "name"), text(&model, "device")));
    for (title, key) in [("inputs", "inputs"), ("outputs", "outputs")] {
        for port in model["signature"][key].as_array().into_iter().flatten() {
            let semantics = text(port, "semantics");
            let default = port["default"].as_f64().map(|value| format!("  default {value}")).unwrap_or_default();
            output.print_line(&format!(
                "  {title:<8} {}  {}{}  {semantics}{default}",
                text(port, "name"),
                text(port, "dtype"),
                port["shape"]
            ));
        }
    }
    output.print_line("");
    let rows = version_rows(&model, output);
    output.print_table(VERSION_COLUMNS, &rows);
    print_notice(&model, output);
    Ok(())
}

fn aliases(version: &Value) -> String {
    let names = version["aliases"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.collect::<Vec<&str>>().join(",")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}
