//! Tests that every command named in a hint, a comment or a document exists and has the given flags.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Command};

/// Words that follow the program's name in prose, where the text mentions the program instead of calling it.
const PROSE: &[&str] =
    &["checkpoint", "component", "could", "has", "is", "or", "plugin", "server?", "version", "would"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Collects the files below a directory whose names end in `end`.
fn collect_files(directory: &Path, end: &str, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(directory).unwrap();
    for path in entries.map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && name != "node_modules" && !name.starts_with('.') {
            collect_files(&path, end, found);
        } else if path.is_file() && name.ends_with(end) {
            found.push(path);
        }
    }
}

/// The text of a source file: the contents of its string literals, and its comments.
#[derive(Debug, Default)]
struct SourceText {
    literals: Vec<String>,
    comments: Vec<String>,
}

fn read_source(text: &str) -> SourceText {
    let mut found = SourceText::default();
    let mut rest = text;
    while let Some(at) = rest.find(['"', '/', '\'', 'r']) {
        let (before, here) = rest.split_at(at);
        let continues_a_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if here.starts_with("//") {
            let end = here.find('\n').unwrap_or(here.len());
            found.comments.push(here[..end].to_owned());
            rest = &here[end..];
        } else if let Some(text) = here.strip_prefix('"') {
            let (literal, after) = parse_string_literal(text);
            found.literals.push(literal);
            rest = after;
        } else if here.starts_with("r\"") || (here.starts_with("r#") && !continues_a_word) {
            let hashes = here[1..].len() - here[1..].trim_start_matches('#').len();
            let Some(body) = here[1 + hashes..].strip_prefix('"') else {
                rest = &here[1..];
                continue;
            };
            let close = format!("\"{}", "#".repeat(hashes));
            let end = body.find(&close).unwrap_or(body.len());
            found.literals.push(body[..end].to_owned());
            rest = body.get(end + close.len()..).unwrap_or_default();
        } else if here.starts_with("'\"'") || here.starts_with("'\\''") || here.starts_with("'\\\"'") {
            rest = &here[here[1..].find('\'').map_or(1, |end| end + 2)..];
        } else {
            rest = &here[1..];
        }
    }
    found
}

/// Returns the contents of a literal whose opening quote has been read, and the text after the literal.
fn parse_string_literal(text: &str) -> (String, &str) {
    let mut contents = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '"' => return (contents, rest),
            '\\' => {
                let escaped = rest.chars().next().unwrap_or_default();
                rest = &rest[escaped.len_utf8().min(rest.len())..];
                match escaped {
                    'n' => contents.push('\n'),
                    // A line continuation skips the indentation of the next line.
                    '\n' => rest = rest.trim_start(),
                    other => contents.push(other),
                }
            }
            c => contents.push(c),
        }
    }
    (contents, "")
}

/// Returns the parts of a text between backticks, with the backticks.
fn in_backticks(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(|part| format!("`{part}`")).collect()
}

/// Returns the calls in a text: for each `saggar `, the words up to the end of the call. Mentions of the program in
/// prose are skipped.
fn find_calls(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("saggar ") {
        let before = text[..at].chars().next_back();
        let rest = &text[at + "saggar ".len()..];
        let is_spoken_of = before != Some('`') && rest.split_whitespace().next().is_some_and(|it| PROSE.contains(&it));
        let end = rest.find(['\n', '|', ';', '`', '"', ')', '>', '<', '#', '&']).unwrap_or(rest.len());
        if before.is_none_or(|c| c.is_whitespace() || "`\"'(".contains(c)) && !is_spoken_of {
            found.push(rest[..end].trim().to_owned());
        }
    }
    found
}

/// Returns whether a word is a placeholder for a value.
fn is_placeholder(word: &str) -> bool {
    word.contains(['{', '$', '.', '[']) || !word.contains(|c: char| c.is_lowercase())
}

/// Checks that the commands and flags of a call exist.
///
/// # Errors
/// Returns a message with the first word that is not a command or flag.
fn check_call(command: &Command, call: &str) -> Result<(), String> {
    let mut command = command;
    let mut words = call.split_whitespace().map(|word| word.trim_end_matches([',', '.', ':', '…', '\'']));
    while let Some(word) = words.next() {
        if word == "--" {
            return Ok(());
        }
        if let Some(flag) = word.strip_prefix('-') {
            let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let takes_value = flag_takes_value(command, name)?;
            if takes_value && value.is_none() {
                words.next();
            }
        } else if command.has_subcommands() {
            let next = command.find_subcommand(word);
            match next {
                Some(next) => command = next,
                None if is_placeholder(word) => return Ok(()),
                // A command can have both, as `saggar sweep PLUGIN` and `saggar sweep ls` do.
                None if command.get_positionals().next().is_some() => {}
                None => return Err(format!("`saggar {call}`: {} has no command {word}", command.get_name())),
            }
        }
    }
    Ok(())
}

/// Returns whether a flag, given without its first hyphen, requires a value.
///
/// # Errors
/// Returns a message if the flag does not exist.
fn flag_takes_value(command: &Command, name: &str) -> Result<bool, String> {
    let mut arguments = command.get_arguments();
    let found = match name.strip_prefix('-') {
        Some(long) => arguments.find(|it| {
            it.get_long() == Some(long) || it.get_all_aliases().is_some_and(|aliases| aliases.contains(&long))
        }),
        // Of several short flags in one word, only the last can have a value.
        None => arguments.find(|it| it.get_short() == name.chars().next_back()),
    };
    let found = found.ok_or_else(|| format!("saggar {} has no flag -{name}", command.get_name()))?;
    let is_optional = found.get_num_args().is_some_and(|range| range.min_values() == 0);
    Ok(matches!(found.get_action(), ArgAction::Set | ArgAction::Append) && !is_optional)
}

fn commands() -> Command {
    let mut command = super::command();
    command.build();
    command
}

#[test]
fn hints_and_comments_name_existing_commands() {
    let command = commands();
    let mut sources = Vec::new();
    for directory in ["host", "plugins"] {
        collect_files(&root().join(directory), ".rs", &mut sources);
    }
    // This file's own test cases contain wrong calls.
    sources.retain(|path| !path.ends_with("args/hints.rs"));
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for path in sources {
        let source = read_source(&fs::read_to_string(&path).unwrap());
        let named = source.literals.iter().flat_map(|text| find_calls(text));
        let comments = source.comments.iter().flat_map(|text| in_backticks(text)).flat_map(|text| find_calls(&text));
        for call in named.chain(comments) {
            checked += 1;
            wrong.extend(check_call(&command, &call).err().map(|error| format!("{}: {error}", path.display())));
        }
    }
    assert!(checked > 150, "{checked} calls were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn documents_name_existing_commands() {
    let command = commands();
    let mut documents: Vec<PathBuf> = ["README.md", "plugins/README.md"].iter().map(|path| root().join(path)).collect();
    collect_files(&root().join("host/docs"), ".md", &mut documents);
    collect_files(&root().join("examples"), "README.md", &mut documents);
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for path in documents {
        let text = fs::read_to_string(&path).unwrap();
        // Every second part between fences is a code block.
        for (at, part) in text.split("```").enumerate() {
            let called = match at % 2 {
                0 => in_backticks(part).iter().flat_map(|text| find_calls(text)).collect(),
                _ => find_calls(&part.replace("\\\n", " ")),
            };
            for call in called {
                checked += 1;
                wrong.extend(check_call(&command, &call).err().map(|error| format!("{}: {error}", path.display())));
            }
        }
    }
    assert!(checked > 80, "{checked} calls were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_hint_checker_accepts_valid_calls_and_finds_invalid_ones() {
    let command = commands();
    for good in [
        "run PLUGIN --data DATASET -f -- epochs=3",
        "models promote {model} {version}",
        "--host {url} ps -a",
        "jobs",
        "COMMAND --help",
        "run --gpu=0.5 --retry-on non-finite x.wasm",
        "serve --addr 5000, or",
    ] {
        assert_eq!(check_call(&command, good), Ok(()), "{good}");
    }
    for wrong in ["deploy digits", "models publish digits", "run --epochs 3", "ps -z", "key create x --rights predict"]
    {
        assert!(check_call(&command, wrong).is_err(), "{wrong}");
    }
    let source = read_source(
        "// a `saggar x`\nlet a = \"one `saggar \\\n    ps`\"; let r = r#\"saggar \"logs\"#; let c = '\"'; \"end\"",
    );
    assert_eq!(source.literals, ["one `saggar ps`", "saggar \"logs", "end"]);
    assert_eq!(find_calls(&source.literals[0]), ["ps"]);
    assert_eq!(find_calls("Next: saggar logs -f {name} | saggar stop 3"), ["logs -f {name}", "stop 3"]);
    assert!(find_calls("a necessaggar thing").is_empty() && in_backticks(&source.comments[0]) == ["`saggar x`"]);
    assert!(find_calls("this saggar could not").is_empty() && find_calls("`saggar plugin build`") == ["plugin build"]);
}
