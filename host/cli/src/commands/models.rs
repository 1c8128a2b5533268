//! `saggar models ...`: what there is, and which versions serve.

use serde_json::{Value, json};

use crate::args::{ModelRm, Models};
use crate::client::{Client, Payload, segment};
use crate::exit::Failure;
use crate::output::{Output, agree};
use crate::units;

pub(crate) fn models(args: &Models, client: &Client, output: Output) -> Result<(), Failure> {
    match args {
        Models::Ls => list(client, output),
        Models::Show { model } => show(model, client, output),
        Models::Promote { model, version } => {
            let version = version.parse::<u64>().map_or_else(|_| json!(version), |version| json!(version));
            told(client.post(&path(model, "promote"), Payload::Json(&json!({ "version": version })))?, output)
        }
        Models::Rollback { model } => told(client.post(&path(model, "rollback"), Payload::Nothing)?, output),
        Models::Canary { model, version, share } => canary(client, model, *version, *share, output),
        Models::Alias { model, alias, version, .. } => set_alias(client, model, alias, *version, output),
        Models::Shadow { model, to, share, .. } => shadow(client, model, to.as_deref(), *share, output),
        Models::Projects { model, projects } => {
            let belongs = client.put_json(&path(model, "projects"), &json!({ "projects": projects }))?;
            belonging(&belongs, output);
            Ok(())
        }
        Models::Load { model, version } => {
            told(client.post(&path(model, "load"), Payload::Json(&json!({ "version": version })))?, output)
        }
        Models::Unload { model, version } => {
            told(client.post(&path(model, "unload"), Payload::Json(&json!({ "version": version })))?, output)
        }
        Models::Warm { model } => told(client.post(&path(model, "warm"), Payload::Nothing)?, output),
        Models::Rm(args) => remove(args, client, output),
    }
}

/// The path of a command for a model.
fn path(model: &str, command: &str) -> String {
    format!("/api/v1/models/{}/{command}", segment(model))
}

/// Says which projects a model or a dataset belongs to now.
pub(crate) fn belonging(answer: &Value, output: Output) {
    if output.json {
        output.json(answer);
        return;
    }
    let projects = answer["projects"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let projects = projects.collect::<Vec<&str>>().join(", ");
    let projects = if projects.is_empty() { "no project" } else { &projects };
    output.line(&format!("{} belongs to {projects}", text(answer, "name")));
}

/// Says how the model stands now.
fn told(model: Value, output: Output) -> Result<(), Failure> {
    if output.json {
        output.json(&model);
        return Ok(());
    }
    let rows = version_rows(&model, output);
    output.table(COLUMNS, &rows);
    notice(&model, output);
    Ok(())
}

/// Says that what trainings publish is not served by itself, where that is so, and what helps.
fn notice(model: &Value, output: Output) {
    let notice = text(model, "notice");
    if !notice.is_empty() {
        output.note(notice);
    }
}

/// The version is loaded first: aliases and shares are for those that are ready. An alias that is left would keep the
/// version from being taken down.
fn canary(client: &Client, model: &str, version: u64, share: u32, output: Output) -> Result<(), Failure> {
    if share == 0 {
        let shared = client.put_json(&path(model, "traffic"), &json!({}))?;
        let alias = shared["aliases"].get("canary").is_some();
        return told(if alias { client.delete(&path(model, "aliases/canary"))? } else { shared }, output);
    }
    client.post(&path(model, "load"), Payload::Json(&json!({ "version": version })))?;
    client.put_json(&path(model, "aliases/canary"), &json!({ "version": version }))?;
    let shares = json!({ "stable": 100 - share, "canary": share });
    told(client.put_json(&path(model, "traffic"), &shares)?, output)
}

/// Points an alias at a version, which is loaded first: aliases are for those that are ready. Without a version, takes the
/// alias away.
fn set_alias(client: &Client, model: &str, alias: &str, version: Option<u64>, output: Output) -> Result<(), Failure> {
    let path_of_alias = path(model, &format!("aliases/{}", segment(alias)));
    let Some(version) = version else { return told(client.delete(&path_of_alias)?, output) };
    client.post(&path(model, "load"), Payload::Json(&json!({ "version": version })))?;
    told(client.put_json(&path_of_alias, &json!({ "version": version }))?, output)
}

/// Has a version, which is loaded first, or an alias shadow the default; without either, ends the shadow.
fn shadow(client: &Client, model: &str, to: Option<&str>, share: u32, output: Output) -> Result<(), Failure> {
    let path_of_shadow = path(model, "shadow");
    let Some(to) = to else { return told(client.delete(&path_of_shadow)?, output) };
    if let Ok(version) = to.parse::<u64>() {
        client.post(&path(model, "load"), Payload::Json(&json!({ "version": version })))?;
    }
    told(client.put_json(&path_of_shadow, &json!({ "to": to, "percent": share }))?, output)
}

/// Removes a version, or a model with all of its versions.
fn remove(args: &ModelRm, client: &Client, output: Output) -> Result<(), Failure> {
    let (model, version) = match args.model.split_once('@') {
        Some((model, version)) => (model, Some(version)),
        None => (args.model.as_str(), None),
    };
    let question = match version {
        Some(version) => format!("Remove version {version} of {model}?"),
        None => format!("Remove {model} with all of its versions?"),
    };
    agree(args.yes, &question)?;
    let address = format!("/api/v1/models/{}", segment(model));
    let address = version.map_or_else(|| address.clone(), |version| format!("{address}/versions/{}", segment(version)));
    let removed = client.delete(&address)?;
    if output.json {
        output.json(&removed);
        return Ok(());
    }
    let names = removed["removed"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.for_each(|name| output.line(name));
    output.note(&format!("  {} freed", units::show_bytes(removed["freed_bytes"].as_u64().unwrap_or(0))));
    Ok(())
}

const COLUMNS: &[&str] = &["MODEL", "VERSION", "STATE", "ALIASES", "TRAFFIC", "MEASURED", "WEIGHTS", "FROM", "REASON"];

fn list(client: &Client, output: Output) -> Result<(), Failure> {
    let answer = client.get("/api/v1/models")?;
    let models = answer["models"].as_array().cloned().unwrap_or_default();
    if output.json {
        output.json(&Value::Array(models));
        return Ok(());
    }
    let rows: Vec<Vec<String>> = models.iter().flat_map(|model| version_rows(model, output)).collect();
    if output.quiet {
        models.iter().for_each(|model| output.line(text(model, "name")));
        return Ok(());
    }
    output.table(COLUMNS, &rows);
    models.iter().for_each(|model| notice(model, output));
    if rows.is_empty() {
        output.note("No models. A training that publishes makes one: `saggar run PLUGIN --data DATASET -f`.");
    }
    Ok(())
}

fn version_rows(model: &Value, output: Output) -> Vec<Vec<String>> {
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
                output.state(text(version, "state")),
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

fn show(name: &str, client: &Client, output: Output) -> Result<(), Failure> {
    let model = client.get(&format!("/api/v1/models/{}", segment(name)))?;
    if output.json {
        output.json(&model);
        return Ok(());
    }
    output.line(&format!("{}  device {}", text(&model, "name"), text(&model, "device")));
    for (title, key) in [("inputs", "inputs"), ("outputs", "outputs")] {
        for port in model["signature"][key].as_array().into_iter().flatten() {
            let semantics = text(port, "semantics");
            let default = port["default"].as_f64().map(|value| format!("  default {value}")).unwrap_or_default();
            output.line(&format!(
                "  {title:<8} {}  {}{}  {semantics}{default}",
                text(port, "name"),
                text(port, "dtype"),
                port["shape"]
            ));
        }
    }
    output.line("");
    let rows = version_rows(&model, output);
    output.table(COLUMNS, &rows);
    notice(&model, output);
    Ok(())
}

fn aliases(version: &Value) -> String {
    let names = version["aliases"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.collect::<Vec<&str>>().join(",")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}
