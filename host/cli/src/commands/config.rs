//! `saggar config ls`: every value that commands would take here, and who says it.

use saggar_project::PROJECT_FILE;
use serde_json::{Value, json};

use super::run::layers::{Layers, Source};
use crate::args::{Config, ConfigLs};
use crate::exit::Failure;
use crate::output::Output;
use crate::project::{self, Project, environment};
use crate::server::ServerAddress;

pub(crate) fn config(args: &Config, server: &ServerAddress, output: Output) -> Result<(), Failure> {
    let Config::Ls(args) = args;
    let rows = rows(args, server)?;
    if output.json {
        let list = rows.iter().map(|(key, value, source)| json!({ "key": key, "value": value, "source": source }));
        output.json(&Value::Array(list.collect()));
        return Ok(());
    }
    let shown = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows: Vec<Vec<String>> =
        rows.iter().map(|(key, value, source)| vec![key.clone(), shown(value), source.clone()]).collect();
    output.table(&["KEY", "VALUE", "SOURCE"], &rows);
    Ok(())
}

fn rows(args: &ConfigLs, server: &ServerAddress) -> Result<Vec<(String, Value, String)>, Failure> {
    let found = Project::for_task(args.task.as_deref())?;
    let user = project::user_config()?;
    let task = found.as_ref().zip(args.task.as_deref()).map(|(found, name)| found.task(name)).transpose()?;
    let mut rows = Vec::new();
    let mut row = |key: &str, value: Value, source: Source| rows.push((key.to_owned(), value, source.name()));
    let source = |source: Option<&Source>| source.cloned().unwrap_or(Source::BuiltIn);
    row("host", json!(server.host()), source(server.said.as_ref().map(|(_, source)| source)));
    let ca = server.ca.as_ref();
    row("ca", json!(ca.map(|(path, _)| path.display().to_string())), source(ca.map(|(_, source)| source)));
    // Whether there is one, never what it is.
    row("key", json!(server.key.is_some()), source(server.key.as_ref().map(|(_, source)| source)));
    match environment("SAGGAR_HOME") {
        Some(home) => row("home", json!(home), Source::Environment("SAGGAR_HOME")),
        None => row("home", json!(".saggar"), Source::BuiltIn),
    }
    let (name, source) = match (environment("SAGGAR_PROJECT"), &found, &user.project) {
        (Some(name), _, _) => (json!(name), Source::Environment("SAGGAR_PROJECT")),
        (None, Some(found), _) => (json!(found.manifest.project.name), Source::File),
        (None, None, Some(name)) => (json!(name), Source::User),
        (None, None, None) => (Value::Null, Source::BuiltIn),
    };
    row("project", name, source);
    let layers = Layers::of(&args.options, found.as_ref(), task, &user);
    rows.extend(layers.sources().into_iter().map(|(key, value, source)| (key, value, source.name())));
    let file = project::find_file().map_or(Value::Null, |path| json!(path));
    rows.push((PROJECT_FILE.to_owned(), file, "-".to_owned()));
    Ok(rows)
}
