//! `saggar run PLUGIN --help`: the parameters of a plugin, as far as it declares any.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;
use saggar_plugin::{Declarations, ParameterDeclaration};
use serde_json::{Value, json};

use super::component;
use crate::args::{self, Cli, Command, Run};
use crate::client::Client;
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::project::Project;

/// How many digits of a digest name a plugin at least.
const DIGEST_DIGITS_MIN: usize = 6;

/// The command line without its `--help`, where it asks for the help of a run of a plugin or a task: `error` is what the
/// command line came to as it is.
pub(crate) fn of_plugin(arguments: &[OsString], error: &clap::Error) -> Option<Cli> {
    if error.kind() != ErrorKind::DisplayHelp {
        return None;
    }
    let own = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let is_help = |word: &OsString| word == "--help" || word == "-h";
    let kept = arguments[..own].iter().filter(|word| !is_help(word)).chain(&arguments[own..]);
    let matches = args::command().try_get_matches_from(kept).ok()?;
    let mut cli = Cli::from_arg_matches(&matches).ok()?;
    let Command::Run(run) = &mut cli.command else { return None };
    run.shows_parameters = run.plugin.is_some() || run.task.is_some();
    run.shows_parameters.then_some(cli)
}

/// Whether the parameters of a run are only a wish for help: `saggar run PLUGIN -- --help`.
pub(super) fn is_wanted(run: &Run) -> bool {
    run.shows_parameters || matches!(run.parameters.as_slice(), [word] if word == "--help" || word == "-h")
}

/// Prints the parameters of the plugin; where that cannot be found, the options of all runs.
pub(super) fn show(args: &Run, client: &Client, output: Output) -> Result<i32, Failure> {
    match declarations(args, client) {
        Ok((plugin, declares)) if output.json => {
            output.json(&json!({ "plugin": plugin, "declares": declares }));
        }
        Ok((plugin, declares)) => print(&plugin, &declares, output),
        Err(failure) => {
            let mut command = args::command();
            command.build();
            if let Some(run) = command.find_subcommand_mut("run") {
                output.text(&run.render_long_help().to_string());
            }
            output.note(&format!("\nThe plugin's own parameters are not known: {failure}"));
        }
    }
    Ok(0)
}

fn print(plugin: &str, declares: &Declarations, output: Output) {
    let name = declares.name.as_deref().unwrap_or(plugin);
    if declares.parameters.is_empty() {
        output.line(&format!("{name} declares no parameters; what it takes, its own description says."));
    } else {
        output.line(&format!("Parameters of {name}, after `--`: saggar run {plugin} -- NAME=VALUE ..."));
        output.line("");
        let rows: Vec<Vec<String>> = declares.parameters.iter().map(row).collect();
        output.table(&["PARAMETER", "VALUES", "DEFAULT", "WHAT IT IS"], &rows);
    }
    for (mount, fields) in &declares.data {
        output.line("");
        output.line(&format!("Reads at {mount}: {}", fields.join(", ")));
    }
    output.note("\n`saggar run --help` shows the options that all runs have.");
}

fn row((name, declared): (&String, &ParameterDeclaration)) -> Vec<String> {
    let default = match &declared.default {
        None => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    vec![name.clone(), declared.to_string(), default, declared.help.clone()]
}

/// What the plugin is called on the command line, and what it declares. Nothing is built.
fn declarations(args: &Run, client: &Client) -> Result<(String, Declarations), Failure> {
    let Some(path) = &args.plugin else {
        let project = Project::for_task(args.task.as_deref())?;
        let (Some(project), Some(task)) = (project, args.task.as_deref()) else {
            return Err(Failure::invalid("neither a plugin nor a task is named"));
        };
        let (_, task) = project.task(task)?;
        let declares = of_path(&component::expected(&project, &task.plugin)?)?;
        return Ok((format!("--task {}", args.task.as_deref().unwrap_or_default()), declares));
    };
    let named = path.display().to_string();
    let declares = if path.exists() { of_path(path)? } else { of_server(&named, client)? };
    Ok((named, declares))
}

fn of_path(path: &Path) -> Result<Declarations, Failure> {
    if path.is_dir() {
        let declared = saggar_plugin::build::declarations(path);
        return declared.map_err(|error| Failure::new(exit::INVALID, "no_plugin", error.to_string()));
    }
    let read = std::fs::read(path);
    let wasm =
        read.map_err(|error| Failure::new(exit::NOT_FOUND, "no_plugin", format!("{}: {error}", path.display())))?;
    Declarations::of_component(&wasm).map_err(|error| Failure::invalid(format!("{}: {error}", path.display())))
}

/// Of a plugin that the server has, by its name or the first digits of its digest.
fn of_server(named: &str, client: &Client) -> Result<Declarations, Failure> {
    let answer = client.get("/api/v1/plugins")?;
    let plugins = answer["plugins"].as_array().into_iter().flatten();
    let is_digest = named.len() >= DIGEST_DIGITS_MIN;
    let is_meant = |plugin: &&Value| {
        let digest = plugin["digest"].as_str().unwrap_or_default();
        plugin["declares"]["name"] == named || (is_digest && digest.starts_with(named))
    };
    let Some(found) = plugins.clone().find(is_meant) else {
        let message = format!("there is no plugin {named}, neither here nor on the server");
        return Err(Failure::new(exit::NOT_FOUND, "no_plugin", message).hint("`saggar plugins ls` lists the server's"));
    };
    match &found["declares"] {
        Value::Null => Ok(Declarations::default()),
        declares => serde_json::from_value(declares.clone()).map_err(|error| Failure::invalid(error.to_string())),
    }
}

/// What a program is called with, as [`of_plugin`] takes it.
pub(crate) fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.is_empty() {
        arguments.push(OsStr::new("saggar").to_owned());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Option<Run> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let error = args::command().try_get_matches_from(&words).err()?;
        match of_plugin(&words, &error)?.command {
            Command::Run(run) => Some(*run),
            _ => None,
        }
    }

    #[test]
    fn help_is_of_a_plugin_where_one_is_named() {
        let run = asked(&["saggar", "run", "plugins/lenet", "--data", "digits", "--help"]).unwrap();
        assert!(is_wanted(&run) && run.plugin.as_deref() == Some(Path::new("plugins/lenet")));
        assert!(asked(&["saggar", "run", "-h", "--task", "train", "--", "lr=1"]).is_some_and(|run| is_wanted(&run)));
        for general in [&["saggar", "run", "--help"][..], &["saggar", "run", "x", "--no-such", "-h"], &["saggar", "-h"]]
        {
            assert!(asked(general).is_none(), "{general:?}");
        }
        let run = Run { parameters: vec!["--help".to_owned()], ..Run::default() };
        assert!(is_wanted(&run) && !is_wanted(&Run::default()));
    }

    #[test]
    fn parameters_are_shown_with_values_default_and_help() {
        let declared = json!({ "type": "integer", "min": 1, "default": 32, "help": "Items of a step." });
        let declared: ParameterDeclaration = serde_json::from_value(declared).unwrap();
        let shown = row((&"batch".to_owned(), &declared));
        assert_eq!(shown, ["batch", "an integer of at least 1", "32", "Items of a step."]);
        let text: ParameterDeclaration =
            serde_json::from_value(json!({ "type": "text", "default": "digits" })).unwrap();
        assert_eq!(row((&"model".to_owned(), &text))[1..3], ["a text", "digits"]);
    }
}
