//! `saggar config ls`: every value that commands would take here, and who says it.

use saggar_project::PROJECT_FILE;
use serde_json::{Value, json};

use super::run::layers::{Layers, Source};
use crate::args::{Config, ConfigLs};
use crate::exit::Failure;
use crate::output::Output;
use crate::project::{self, Project, environment};
use crate::server::LOCAL;

/// What flags and the environment said before the command.
pub(crate) struct Globals {
    pub(crate) host: Option<String>,
    pub(crate) ca: Option<String>,
    pub(crate) key: bool,
}

pub(crate) fn config(args: &Config, globals: &Globals, output: Output) -> Result<(), Failure> {
    let Config::Ls(args) = args;
    let rows = rows(args, globals)?;
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

fn rows(args: &ConfigLs, globals: &Globals) -> Result<Vec<(String, Value, String)>, Failure> {
    let found = Project::for_task(args.task.as_deref())?;
    let user = project::user_config()?;
    let task = found.as_ref().zip(args.task.as_deref()).map(|(found, name)| found.task(name)).transpose()?;
    let mut rows = Vec::new();
    let mut row = |key: &str, value: Value, source: Source| rows.push((key.to_owned(), value, source.name()));
    let (host, source) = first(said(globals.host.as_ref(), "SAGGAR_HOST"), user.host.as_ref(), LOCAL);
    row("host", host, source);
    let (ca, source) = first(said(globals.ca.as_ref(), "SAGGAR_CA"), user.ca.as_ref(), "");
    row("ca", if ca == "" { Value::Null } else { ca }, source);
    // Whether there is one, never what it is.
    let key =
        if environment("SAGGAR_API_KEY").is_some() { Source::Environment("SAGGAR_API_KEY") } else { Source::Flag };
    row("key", json!(globals.key), if globals.key { key } else { Source::BuiltIn });
    let home = environment("SAGGAR_HOME").map(|home| (home, Source::Environment("SAGGAR_HOME")));
    let (home, source) = first(home, None, ".saggar");
    row("home", home, source);
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

/// What a flag or the variable of this name said: the same text in both is the variable's.
fn said(value: Option<&String>, variable: &'static str) -> Option<(String, Source)> {
    let value = value?;
    let source = match environment(variable) {
        Some(text) if &text == value => Source::Environment(variable),
        _ => Source::Flag,
    };
    Some((value.clone(), source))
}

fn first(said: Option<(String, Source)>, user: Option<&String>, built_in: &str) -> (Value, Source) {
    match (said, user) {
        (Some((value, source)), _) => (json!(value), source),
        (None, Some(value)) => (json!(value), Source::User),
        (None, None) => (json!(built_in), Source::BuiltIn),
    }
}
