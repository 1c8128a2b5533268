//! `saggar config ls`: lists the values that commands use by default here, with their sources.

use saggar_project::{JOB_OPTIMIZATIONS, PROJECT_FILE};
use serde::Serialize;
use serde_json::Value;

use super::run::layers::{ConfigLayers, ConfigSource};
use super::top::TopDefaults;
use crate::args::{ConfigCommand, ConfigLsArgs};
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::project::{self, ProjectContext, non_empty_env_var};
use crate::server::ServerAddress;

pub(crate) fn config(args: &ConfigCommand, server: &ServerAddress, output: CliOutput) -> Result<(), CliError> {
    let ConfigCommand::Ls(args) = args;
    let rows = config_rows(args, server)?;
    if output.json {
        output.print_json(&rows);
        return Ok(());
    }
    let format_value = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|row| vec![row.key, format_value(&row.value), row.source]).collect();
    output.print_table(&["KEY", "VALUE", "SOURCE"], &rows);
    Ok(())
}

/// A value that commands use by default.
#[derive(Serialize)]
struct ConfigRow {
    key: String,
    value: Value,
    source: String,
}

impl ConfigRow {
    fn new(key: impl Into<String>, value: impl Into<Value>, source: &ConfigSource) -> ConfigRow {
        ConfigRow { key: key.into(), value: value.into(), source: source.name() }
    }
}

/// Returns a row for each optimization of jobs: whether a job uses it, and what says so.
fn optimization_rows(layers: &ConfigLayers) -> impl Iterator<Item = ConfigRow> {
    let without = layers.merge().without.unwrap_or_default();
    let said = layers.values_with_sources().into_iter().find(|(key, ..)| key == "without");
    let source = said.map_or(ConfigSource::BuiltIn, |(_, _, source)| source);
    JOB_OPTIMIZATIONS.into_iter().map(move |name| {
        let is_off = without.iter().any(|it| it == name);
        ConfigRow::new(format!("optimization.{name}"), if is_off { "off" } else { "on" }, &source)
    })
}

fn config_rows(args: &ConfigLsArgs, server: &ServerAddress) -> Result<Vec<ConfigRow>, CliError> {
    let found = ProjectContext::for_task(args.task.as_deref())?;
    let user = project::user_config()?;
    let task = found.as_ref().zip(args.task.as_deref()).map(|(found, name)| found.task(name)).transpose()?;
    let mut rows = Vec::new();
    let source = |source: Option<&ConfigSource>| source.cloned().unwrap_or(ConfigSource::BuiltIn);
    let host = source(server.host.as_ref().map(|(_, source)| source));
    rows.push(ConfigRow::new("host", server.host(), &host));
    let ca = server.ca.as_ref();
    let path = ca.map(|(path, _)| path.display().to_string());
    rows.push(ConfigRow::new("ca", path, &source(ca.map(|(_, source)| source))));
    // Show whether there is a key, never the key.
    let key = source(server.key.as_ref().map(|(_, source)| source));
    rows.push(ConfigRow::new("key", server.key.is_some(), &key));
    let home = match non_empty_env_var("SAGGAR_HOME") {
        Some(home) => (home, ConfigSource::Environment("SAGGAR_HOME")),
        None => (".saggar".to_owned(), ConfigSource::BuiltIn),
    };
    rows.push(ConfigRow::new("home", home.0, &home.1));
    let (name, source) = match (non_empty_env_var("SAGGAR_PROJECT"), &found, &user.project) {
        (Some(name), _, _) => (Some(name), ConfigSource::Environment("SAGGAR_PROJECT")),
        (None, Some(found), _) => (Some(found.manifest.project.name.clone()), ConfigSource::File),
        (None, None, Some(name)) => (Some(name.clone()), ConfigSource::User),
        (None, None, None) => (None, ConfigSource::BuiltIn),
    };
    rows.push(ConfigRow::new("project", name, &source));
    let layers = ConfigLayers::collect(&args.options, found.as_ref(), task, &user);
    rows.extend(
        layers.values_with_sources().iter().map(|(key, value, source)| ConfigRow::new(key, value.clone(), source)),
    );
    rows.extend(optimization_rows(&layers));
    rows.extend(
        TopDefaults::resolve(&user.top, server)
            .config_rows()
            .into_iter()
            .map(|(key, value, source)| ConfigRow::new(format!("top.{key}"), value, &source)),
    );
    let file = project::find_file().map(|path| path.display().to_string());
    rows.push(ConfigRow { key: PROJECT_FILE.to_owned(), value: file.into(), source: "-".to_owned() });
    Ok(rows)
}
