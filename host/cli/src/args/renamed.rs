//! Commands and options that have another name now. The old name works for one version, with a warning.

use std::ffi::OsString;

/// Commands: the words before, and those that replace them.
const COMMANDS: &[(&[&str], &[&str])] = &[
    (&["env", "ls"], &["plugins", "worlds"]),
    (&["data", "get"], &["data", "export"]),
    (&["data", "pull"], &["data", "fetch"]),
];

/// Options of a command: the command, the option before, and the one that replaces it.
const OPTIONS: &[(&str, &str, &str)] =
    &[("serve", "--models-memory", "--model-memory-limit"), ("serve", "--webhooks-allow", "--allow-webhook")];

/// Global options that take a value. Their values come before the command, and are not the command.
const GLOBAL_OPTIONS_WITH_VALUE: [&str; 3] = ["--host", "--key", "--ca"];

/// Replaces old names by the current ones. Returns the arguments, and a warning for each replacement.
pub(crate) fn translate(mut arguments: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut warnings = Vec::new();
    let Some(command) = command_position(&arguments) else { return (arguments, warnings) };
    for (before, after) in COMMANDS {
        let end = command + before.len();
        if arguments.get(command..end).is_some_and(|words| words.iter().zip(*before).all(|(word, old)| word == old)) {
            arguments.splice(command..end, after.iter().map(OsString::from));
            warnings
                .push(renamed_warning(&format!("saggar {}", before.join(" ")), &format!("saggar {}", after.join(" "))));
            break;
        }
    }
    let called = arguments[command].clone();
    for (name, before, after) in OPTIONS.iter().filter(|(name, ..)| called == *name) {
        for argument in arguments.iter_mut().skip(command + 1) {
            let Some(text) = argument.to_str() else { continue };
            let rest = text.strip_prefix(before).filter(|rest| rest.is_empty() || rest.starts_with('='));
            if let Some(rest) = rest {
                *argument = OsString::from(format!("{after}{rest}"));
                warnings.push(renamed_warning(&format!("saggar {name} {before}"), after));
            }
        }
    }
    (arguments, warnings)
}

fn renamed_warning(before: &str, after: &str) -> String {
    format!("`{before}` is now `{after}`; the old name will not work in the next version")
}

/// Returns the position of the command's name: the first word that is neither an option nor the value of a global one.
fn command_position(arguments: &[OsString]) -> Option<usize> {
    let mut at = 1;
    while let Some(argument) = arguments.get(at) {
        let text = argument.to_string_lossy();
        if !text.starts_with('-') {
            return Some(at);
        }
        at += if GLOBAL_OPTIONS_WITH_VALUE.contains(&&*text) { 2 } else { 1 };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Translates the words after the program's name.
    fn translated(words: &str) -> (String, usize) {
        let arguments = std::iter::once("saggar").chain(words.split_whitespace()).map(OsString::from).collect();
        let (arguments, warnings) = translate(arguments);
        let words: Vec<String> = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        (words.join(" "), warnings.len())
    }

    #[test]
    fn old_names_become_the_current_ones_with_a_warning() {
        for (old, new) in [
            ("env ls", "plugins worlds"),
            ("--json env ls", "--json plugins worlds"),
            ("--host http://data data get digits -o x", "--host http://data data export digits -o x"),
            ("data pull URL --name x", "data fetch URL --name x"),
            ("serve --models-memory 2GiB", "serve --model-memory-limit 2GiB"),
            ("serve --webhooks-allow=https://a", "serve --allow-webhook=https://a"),
        ] {
            assert_eq!(translated(old), (new.to_owned(), 1), "{old}");
        }
    }

    #[test]
    fn other_arguments_are_left_alone() {
        for words in [
            "",
            "--json",
            "data push get",
            "predict env ls",
            "models ls --models-memory 1",
            "run x -- --models-memory=1",
            "--key env data ls",
        ] {
            assert_eq!(translated(words), (words.to_owned(), 0), "{words}");
        }
    }

    /// The names that replace others are commands and options that exist.
    #[test]
    fn current_names_exist() {
        let command = crate::args::command();
        for (_, after) in COMMANDS {
            let found = after.iter().try_fold(&command, |command, word| command.find_subcommand(word));
            assert!(found.is_some(), "{}", after.join(" "));
        }
        for (name, _, after) in OPTIONS {
            let command = command.find_subcommand(name).unwrap();
            let long = after.trim_start_matches('-');
            assert!(command.get_arguments().any(|argument| argument.get_long() == Some(long)), "{name} {after}");
        }
    }
}
