//! `saggar run PLUGIN --help`: prints the parameters that a plugin declares.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;
use saggar_plugin::PluginDeclarations;
use saggar_project::ParameterDeclaration;
use saggar_rest::plugins::{ListedPluginDocument, PluginListDocument};
use serde::Serialize;
use serde_json::Value;

use super::component;
use crate::args::{self, Cli, CliCommand, RunArgs};
use crate::client::ApiClient;
use crate::component_source::named_reference;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::project::ProjectContext;

/// Minimum digits of a digest that select a plugin.
const DIGEST_DIGITS_MIN: usize = 6;

/// Returns the command line without `--help` if it requests the help of a plugin or a task. `error` is the parse result
/// of the original command line.
pub(crate) fn plugin_help_request(arguments: &[OsString], error: &clap::Error) -> Option<Cli> {
    if error.kind() != ErrorKind::DisplayHelp {
        return None;
    }
    let own = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let is_help = |word: &OsString| word == "--help" || word == "-h";
    let without_help = arguments[..own].iter().filter(|word| !is_help(word)).chain(&arguments[own..]);
    let matches = args::command().try_get_matches_from(without_help).ok()?;
    let mut cli = Cli::from_arg_matches(&matches).ok()?;
    let CliCommand::Run(run) = &mut cli.command else { return None };
    run.shows_parameters = run.plugin.is_some() || run.task.is_some();
    run.shows_parameters.then_some(cli)
}

/// Returns whether the plugin's parameters only request help: `saggar run PLUGIN -- --help`.
pub(super) fn is_help_wanted(run: &RunArgs) -> bool {
    run.shows_parameters || matches!(run.parameters.as_slice(), [word] if word == "--help" || word == "-h")
}

/// A plugin's declarations as JSON.
#[derive(Serialize)]
struct PluginHelp<'a> {
    plugin: &'a str,
    declares: &'a PluginDeclarations,
}

/// Prints the plugin's parameters, or the options of all runs if the plugin is not found.
pub(super) fn show_plugin_help(args: &RunArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    match find_declarations(args, client) {
        Ok((plugin, declares)) if output.json => {
            output.print_json(&PluginHelp { plugin: &plugin, declares: &declares });
        }
        Ok((plugin, declares)) => print_parameters(&plugin, &declares, output),
        Err(failure) => {
            let mut command = args::command();
            command.build();
            if let Some(run) = command.find_subcommand_mut("run") {
                output.print_text(&run.render_long_help().to_string());
            }
            output.print_note(&format!("\nThe plugin's own parameters are not known: {failure}"));
        }
    }
    Ok(0)
}

pub(crate) fn print_parameters(plugin: &str, declares: &PluginDeclarations, output: CliOutput) {
    let name = declares.name.as_deref().unwrap_or(plugin);
    if !declares.inputs.is_empty() || !declares.outputs.is_empty() {
        return print_ports(name, plugin, declares, output);
    }
    if declares.parameters.is_empty() {
        output.print_line(&format!("{name} declares no parameters; see its own documentation."));
    } else {
        output.print_line(&format!("Parameters of {name}, after `--`: saggar run {plugin} -- NAME=VALUE ..."));
        output.print_line("");
        let rows: Vec<Vec<String>> = declares.parameters.iter().map(parameter_row).collect();
        output.print_table(&["PARAMETER", "VALUES", "DEFAULT", "WHAT IT IS"], &rows);
    }
    for (mount, fields) in &declares.data {
        output.print_line("");
        output.print_line(&format!("Reads at {mount}: {}", fields.join(", ")));
    }
    output.print_note("\n`saggar run --help` shows the options that all runs have.");
}

/// Prints the inputs and outputs of a step with their types.
fn print_ports(name: &str, plugin: &str, declares: &PluginDeclarations, output: CliOutput) {
    if declares.inputs.is_empty() {
        output.print_line(&format!("{name} has no inputs: saggar run {plugin}"));
    } else {
        output.print_line(&format!("Inputs of {name}, after `--`: saggar run {plugin} -- NAME=VALUE ..."));
        output.print_line("");
        let rows: Vec<Vec<String>> = declares.inputs.iter().map(input_row).collect();
        output.print_table(&["INPUT", "TYPE", "VALUES", "DEFAULT", "WHAT IT IS"], &rows);
    }
    output.print_line("");
    let row = |(name, declared): (&String, &ParameterDeclaration)| {
        vec![name.clone(), declared.kind.name().to_owned(), declared.help.clone()]
    };
    let rows: Vec<Vec<String>> = declares.outputs.iter().map(row).collect();
    output.print_table(&["OUTPUT", "TYPE", "WHAT IT IS"], &rows);
    output.print_note("\n`saggar run --help` shows the options that all runs have.");
}

fn input_row(input: (&String, &ParameterDeclaration)) -> Vec<String> {
    let kind = input.1.kind.name().to_owned();
    let default = if input.1.default.is_some() { None } else { Some("required".to_owned()) };
    let mut row = parameter_row(input);
    row.insert(1, kind);
    if let Some(default) = default {
        row[3] = default;
    }
    row
}

fn parameter_row((name, declared): (&String, &ParameterDeclaration)) -> Vec<String> {
    let default = match &declared.default {
        None => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    vec![name.clone(), declared.to_string(), default, declared.help.clone()]
}

/// Returns the plugin's name on the command line and its declarations. Builds nothing.
fn find_declarations(args: &RunArgs, client: &ApiClient) -> Result<(String, PluginDeclarations), CliError> {
    let Some(path) = &args.plugin else {
        let project = ProjectContext::for_task(args.task.as_deref())?;
        let (Some(project), Some(task)) = (project, args.task.as_deref()) else {
            return Err(CliError::invalid("expected a plugin or a task"));
        };
        let plugin = ProjectContext::plugin_of_task(project.task(task)?)?;
        let component = component::built_component(&project, plugin)?;
        let declares = PluginDeclarations::from_component(&component.read()?)
            .map_err(|error| CliError::invalid(format!("{component}: {error}")))?;
        return Ok((format!("--task {}", args.task.as_deref().unwrap_or_default()), declares));
    };
    let named = path.display().to_string();
    find_named_declarations(path, client).map(|declares| (named, declares))
}

/// Returns the declarations of a component, a plugin's directory, a reference plugin, or a plugin of the server. Builds
/// nothing.
///
/// # Errors
/// Returns `no_plugin` if `name` is not one of them.
pub(crate) fn find_named_declarations(name: &Path, client: &ApiClient) -> Result<PluginDeclarations, CliError> {
    if name.exists() {
        return declarations_at_path(name);
    }
    match named_reference(name) {
        Some(plugin) => Ok(plugin.declarations()),
        None => declarations_on_server(&name.display().to_string(), client),
    }
}

fn declarations_at_path(path: &Path) -> Result<PluginDeclarations, CliError> {
    if path.is_dir() {
        let declared = crate::plugin_build::read_declarations(path);
        return declared.map_err(|error| CliError::new(exit::INVALID, "no_plugin", error.to_string()));
    }
    let read = std::fs::read(path);
    let wasm =
        read.map_err(|error| CliError::new(exit::NOT_FOUND, "no_plugin", format!("{}: {error}", path.display())))?;
    PluginDeclarations::from_component(&wasm).map_err(|error| CliError::invalid(format!("{}: {error}", path.display())))
}

/// Returns a plugin of the server, found by its name or the first digits of its digest.
///
/// # Errors
/// Returns `no_plugin`, and the errors of the request.
pub(crate) fn find_listed_plugin(named: &str, client: &ApiClient) -> Result<ListedPluginDocument, CliError> {
    let PluginListDocument { plugins } = client.get("/api/v1/plugins")?;
    let is_digest = named.len() >= DIGEST_DIGITS_MIN;
    let is_meant = |listed: &&ListedPluginDocument| {
        listed.plugin.declared_name() == Some(named) || (is_digest && listed.plugin.digest.starts_with(named))
    };
    let Some(found) = plugins.iter().find(is_meant) else {
        let message = format!("there is no plugin {named}, neither here nor on the server");
        return Err(
            CliError::new(exit::NOT_FOUND, "no_plugin", message).with_hint("`saggar plugins ls` lists the server's")
        );
    };
    Ok(found.clone())
}

fn declarations_on_server(named: &str, client: &ApiClient) -> Result<PluginDeclarations, CliError> {
    match &find_listed_plugin(named, client)?.plugin.declares {
        None => Ok(PluginDeclarations::default()),
        Some(declares) => {
            serde_json::from_value(declares.clone()).map_err(|error| CliError::invalid(error.to_string()))
        }
    }
}

/// Returns the program's arguments, for [`plugin_help_request`].
pub(crate) fn command_line_arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.is_empty() {
        arguments.push(OsStr::new("saggar").to_owned());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse_help_request(words: &[&str]) -> Option<RunArgs> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let error = args::command().try_get_matches_from(&words).err()?;
        match plugin_help_request(&words, &error)?.command {
            CliCommand::Run(run) => Some(*run),
            _ => None,
        }
    }

    #[test]
    fn help_of_a_named_plugin_shows_its_parameters() {
        let run = parse_help_request(&["saggar", "run", "plugins/lenet", "--data", "digits", "--help"]).unwrap();
        assert!(is_help_wanted(&run) && run.plugin.as_deref() == Some(Path::new("plugins/lenet")));
        assert!(
            parse_help_request(&["saggar", "run", "-h", "--task", "train", "--", "lr=1"])
                .is_some_and(|run| is_help_wanted(&run))
        );
        for general in [&["saggar", "run", "--help"][..], &["saggar", "run", "x", "--no-such", "-h"], &["saggar", "-h"]]
        {
            assert!(parse_help_request(general).is_none(), "{general:?}");
        }
        let run = RunArgs { parameters: vec!["--help".to_owned()], ..RunArgs::default() };
        assert!(is_help_wanted(&run) && !is_help_wanted(&RunArgs::default()));
    }

    #[test]
    fn plugin_parameters_are_listed_with_values_default_and_help() {
        let declared = json!({ "type": "integer", "min": 1, "default": 32, "help": "Items of a step." });
        let declared: ParameterDeclaration = serde_json::from_value(declared).unwrap();
        let row = parameter_row((&"batch".to_owned(), &declared));
        assert_eq!(row, ["batch", "an integer of at least 1", "32", "Items of a step."]);
        let text: ParameterDeclaration =
            serde_json::from_value(json!({ "type": "text", "default": "digits" })).unwrap();
        assert_eq!(parameter_row((&"model".to_owned(), &text))[1..3], ["a text", "digits"]);
    }
}
