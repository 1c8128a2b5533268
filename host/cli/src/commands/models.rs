//! `saggar models ls` and `show`.

use serde_json::Value;

use crate::args::Models;
use crate::client::Client;
use crate::exit::Failure;
use crate::output::Output;

pub(crate) fn models(args: &Models, client: &Client, output: Output) -> Result<(), Failure> {
    match args {
        Models::Ls => list(client, output),
        Models::Show { model } => show(model, client, output),
    }
}

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
    output.table(&["MODEL", "VERSION", "STATE", "WEIGHTS", "FROM", "REASON"], &rows);
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
                or_dash(&weights),
                or_dash(text(version, "source_job")),
                or_dash(text(version, "reason")),
            ]
        })
        .collect()
}

fn show(name: &str, client: &Client, output: Output) -> Result<(), Failure> {
    let safe: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).collect();
    let model = client.get(&format!("/api/v1/models/{safe}"))?;
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
    output.table(&["MODEL", "VERSION", "STATE", "WEIGHTS", "FROM", "REASON"], &rows);
    Ok(())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}
