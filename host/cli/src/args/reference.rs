//! The page `host/docs/reference/cli.md`, generated from the commands' help. `UPDATE_EXPECT=1` rewrites it.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Arg, Command};

use super::help::{COMMAND_GROUPS, examples};

const INTRODUCTION: &str = "\
# Commands

Every command of `saggar`, with its arguments, options and examples. This page is generated from the commands' `--help`:
`UPDATE_EXPECT=1 cargo test --workspace the_page_of_commands` writes it again.

Exit codes are on the page [Exit codes and environment variables](exit-codes.md).

## Global options

Every command takes these options.

";

/// Returns the page.
fn reference_page(root: &Command) -> String {
    let mut page = INTRODUCTION.to_owned();
    write_arguments(&mut page, root.get_arguments().filter(|it| it.is_global_set()));
    for (title, names) in COMMAND_GROUPS {
        writeln!(page, "## {title}\n").expect("writing to a string does not fail");
        for command in names.iter().filter_map(|name| root.find_subcommand(name)) {
            write_command(&mut page, command, command.get_name());
        }
    }
    format!("{}\n", page.trim_end())
}

fn write_command(page: &mut String, command: &Command, path: &str) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let aliases = command.get_visible_aliases().collect::<Vec<_>>().join("`, `");
    let aliases = if aliases.is_empty() { aliases } else { format!(" Also: `{aliases}`.") };
    let about = if about.ends_with('.') { about } else { format!("{about}.") };
    writeln!(page, "### saggar {path}\n\n{about}{aliases}\n\n```text\n{}\n```\n", usage.trim())
        .expect("writing to a string does not fail");
    write_arguments(page, command.get_arguments().filter(|it| !it.is_global_set() && !it.is_hide_set()));
    let lines = examples(path);
    if !lines.is_empty() {
        writeln!(page, "```bash\n{}\n```\n", lines.join("\n")).expect("writing to a string does not fail");
    }
    for subcommand in command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help") {
        write_command(page, subcommand, &format!("{path} {}", subcommand.get_name()));
    }
}

/// Writes a table of arguments, or nothing if the command has none.
fn write_arguments<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    let named = |it: &&Arg| !matches!(it.get_id().as_str(), "help" | "version");
    let rows: Vec<String> = arguments.filter(named).map(argument_row).collect();
    if !rows.is_empty() {
        writeln!(page, "| argument or option | meaning |\n|---|---|\n{}\n", rows.join("\n"))
            .expect("writing to a string does not fail");
    }
}

fn argument_row(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default().iter().map(|name| format!("<{name}>"));
    let values =
        if argument.get_action().takes_values() { values.collect::<Vec<_>>().join(" ") } else { String::new() };
    let names = [argument.get_short().map(|it| format!("-{it}")), argument.get_long().map(|it| format!("--{it}"))];
    let names: Vec<String> = names.into_iter().flatten().collect();
    let usage = [names.join(", "), values].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ");
    let mut meaning = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    if !meaning.ends_with(['.', ']']) {
        meaning.push('.');
    }
    let possible: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|it| !it.is_hide_set())
        .map(|it| it.get_name().to_owned())
        .collect();
    if argument.get_action().takes_values() && !possible.is_empty() {
        write!(meaning, " Values: {}.", possible.join(", ")).expect("writing to a string does not fail");
    }
    let defaults = argument.get_default_values().iter().map(|it| it.to_string_lossy().into_owned());
    let defaults = defaults.collect::<Vec<_>>().join(" ");
    if argument.get_action().takes_values() && !defaults.is_empty() {
        write!(meaning, " Default: `{defaults}`.").expect("writing to a string does not fail");
    }
    if let Some(variable) = argument.get_env() {
        write!(meaning, " Environment: `{}`.", variable.to_string_lossy()).expect("writing to a string does not fail");
    }
    format!("| `{usage}` | {} |", meaning.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn the_page_of_commands_matches_their_help() {
    let mut root = super::command();
    root.build();
    let page = reference_page(&root);
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/cli.md"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == page,
        "host/docs/reference/cli.md is not what the help says: run this test with UPDATE_EXPECT=1"
    );
}
