//! `saggar config ls`: lists the values that commands use by default here, with their sources.

use saggar_project::PROJECT_FILE;
use serde_json::{Value, json};

use super::run::layers::{ConfigLayers, ConfigSource};
use crate::args::{ConfigCommand, ConfigLsArgs};
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::project::{self, ProjectContext, non_empty_env_var};
use crate::server::ServerAddress;

pub(crate) fn config(args: &ConfigCommand, server: &ServerAddress, output: CliOutput) -> Result<(), CliError> {
    let ConfigCommand::Ls(args) = args;
    let rows = config_rows(args, server)?;
    if output.json {
        let list = rows.iter().map(|(key, value, source)| json!({ "key": key, "value": value, "source": source }));
        output.print_json(&Value::Array(list.collect()));
        return Ok(());
    }
    let format_value = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows: Vec<Vec<String>> =
        rows.iter().map(|(key, value, source)| vec![key.clone(), format_value(value), source.clone()]).collect();
    output.print_table(&["KEY", "VALUE", "SOURCE"], &rows);
    Ok(())
}

fn config_rows(args: &ConfigLsArgs, server: &ServerAddress) -> Result<Vec<(String, Value, String)>, CliError> {
    let found = ProjectContext::for_task(args.task.as_deref())?;
    let user = project::user_config()?;
    let task = found.as_ref().zip(args.task.as_deref()).map(|(found, name)| found.task(name)).transpose()?;
    let mut rows = Vec::new();
    let mut row = |key: &str, value: Value, source: ConfigSource| rows.push((key.to_owned(), value, source.name()));
    let source = |source: Option<&ConfigSource>| source.cloned().unwrap_or(ConfigSource::BuiltIn);
    row("host", json!(server.host()), source(server.host.as_ref().map(|(_, source)| source)));
    let ca = server.ca.as_ref();
    row("ca", json!(ca.map(|(path, _)| path.display().to_string())), source(ca.map(|(_, source)| source)));
    // Show whether there is a key, never the key.
    row("key", json!(server.key.is_some()), source(server.key.as_ref().map(|(_, source)| source)));
    match non_empty_env_var("SAGGAR_HOME") {
        Some(home) => row("home", json!(home), ConfigSource::Environment("SAGGAR_HOME")),
        None => row("home", json!(".saggar"), ConfigSource::BuiltIn),
    }
    let (name, source) = match (non_empty_env_var("SAGGAR_PROJECT"), &found, &user.project) {
        (Some(name), _, _) => (json!(name), ConfigSource::Environment("SAGGAR_PROJECT")),
        (None, Some(found), _) => (json!(found.manifest.project.name), ConfigSource::File),
        (None, None, Some(name)) => (json!(name), ConfigSource::User),
        (None, None, None) => (Value::Null, ConfigSource::BuiltIn),
    };
    row("project", name, source);
    let layers = ConfigLayers::collect(&args.options, found.as_ref(), task, &user);
    rows.extend(layers.values_with_sources().into_iter().map(|(key, value, source)| (key, value, source.name())));
    let file = project::find_file().map_or(Value::Null, |path| json!(path));
    rows.push((PROJECT_FILE.to_owned(), file, "-".to_owned()));
    Ok(rows)
}
