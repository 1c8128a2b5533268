//! Tests that the commands in the files of deployments exist.

use clap::{CommandFactory as _, Parser as _};

use super::Cli;

const COMPOSE_FILE: &str = include_str!("../../../../examples/compose/compose.yaml");

/// Returns the command lines of the program: lists of words, and commands in the texts of shells.
fn command_lines() -> Vec<Vec<String>> {
    let lists = COMPOSE_FILE.lines().filter_map(|line| line.trim().strip_prefix("command: "));
    let mut found = Vec::new();
    for list in lists {
        let words: Vec<String> = serde_json::from_str(list).unwrap();
        if words[0] == "serve" {
            found.push(words);
        } else if let [script] = words.as_slice() {
            let commands = script.split(';').filter_map(|command| command.split_once("saggar "));
            let shell = |command: &str| command.replace("$$(cat /keys/admin)", "sgr_x");
            let commands = commands.filter(|(before, _)| !before.contains("mc "));
            found.extend(commands.map(|(_, command)| {
                let command = shell(command.split('>').next().unwrap());
                command.split_whitespace().map(str::to_owned).collect()
            }));
        }
    }
    found
}

#[test]
fn the_commands_of_the_compose_file_exist() {
    let lines = command_lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    let has_join =
        Cli::command().find_subcommand("worker").is_some_and(|worker| worker.find_subcommand("join").is_some());
    for line in lines.iter().filter(|line| has_join || line[0] != "worker") {
        let words = std::iter::once("saggar".to_owned()).chain(line.iter().cloned());
        if let Err(error) = Cli::try_parse_from(words) {
            panic!("{line:?}: {error}");
        }
    }
}
