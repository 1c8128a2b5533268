//! Measures the names and the language of the sources: type names that state their domain, one meaning per name, test
//! names that state a behaviour, and no phrases that are hard to understand.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert; figures are printed")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use saggar_metrics::FAMILIES;
use saggar_tests::{relative_path, root, source_files};

/// Directories with the project's sources.
const DIRECTORIES: [&str; 5] = ["host", "plugins", "tests", "wit", "examples"];

/// Maximum share of type definitions whose name is one word, in percent.
const ONE_WORD_PERCENT_MAX: usize = 35;
/// Maximum share of type definitions that share their name with another one, in percent.
const SHARED_PERCENT_MAX: usize = 15;
/// Maximum definitions of one name.
const DEFINITIONS_OF_A_NAME_MAX: usize = 2;

/// Phrases that comments, documents and messages must not contain, each with its replacement.
const BANNED_PHRASES: [(&str, &str); 22] = [
    ("none where", "`None` if"),
    ("so many", "`n`, or the parameter's name"),
    ("is told", "is notified, is given, receives"),
    ("are told", "are notified, are given, receive"),
    ("told", "reported"),
    ("whoever", "the caller, the client, code that"),
    ("of its own", "its own, separate"),
    ("of their own", "their own, separate"),
    ("anew", "again"),
    ("in vain", "without success"),
    ("is none", "is not a"),
    ("are none", "are not"),
    ("for want of", "without"),
    ("to be had", "available"),
    ("lets go", "releases"),
    ("that there is not", "that does not exist"),
    ("that there is", "that exists"),
    ("expected such as", "expected, with an example"),
    ("such as that which", "for example"),
    ("wants it", "requests it"),
    ("as it was told", "as configured"),
    ("keeps house", "evicts"),
];

/// Participles that say nothing about a value or a function. No function, variable or field has one as its name.
const VAGUE_NAMES: [&str; 5] = ["kept", "laid", "shown", "taken", "told"];

/// Names of test and benchmark files that do not say what is tested, each with the name of the subject.
const VAGUE_FILES: [(&str, &str); 8] = [
    ("ways", "autotune"),
    ("chains", "fused_attention"),
    ("extremes", "edge_cases"),
    ("folds", "workgroup_reductions"),
    ("guard", "guarded_assignments"),
    ("mixed", "mixed_precision"),
    ("steady", "training_step_cost"),
    ("windows", "convolution_and_pooling"),
];

/// Metrics whose name is an old one and that are removed with the next version.
const DEPRECATED_METRICS: [&str; 1] = ["saggar_train_samples_per_second"];

/// Returns the text of each file with one of these extensions, by its path from the root.
fn texts(extensions: &[&str]) -> BTreeMap<String, String> {
    let mut paths = source_files(&DIRECTORIES, extensions);
    if extensions.contains(&"md") {
        paths.extend(["README.md", "SECURITY.md"].map(|name| root().join(name)));
    }
    let text = |path: PathBuf| (relative_path(&path), std::fs::read_to_string(&path).unwrap());
    paths.into_iter().map(text).collect()
}

/// Returns the name of the type that a line of code defines. Associated types are not definitions.
fn defined_type(line: &str) -> Option<&str> {
    let is_indented = line.starts_with(' ');
    let mut words = line.split_whitespace().peekable();
    if words.peek().is_some_and(|word| word.starts_with("pub")) {
        words.next();
    }
    if words.peek() == Some(&"unsafe") {
        words.next();
    }
    let keyword = words.next()?;
    let is_definition = matches!(keyword, "struct" | "enum" | "trait" | "union") || keyword == "type" && !is_indented;
    let name = words.next().filter(|_| is_definition)?;
    let end = name.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(name.len());
    Some(&name[..end]).filter(|name| name.starts_with(char::is_uppercase))
}

/// Returns the number of words of a name in camel case; an abbreviation in capitals is one word.
fn word_count(name: &str) -> usize {
    let letters: Vec<char> = name.chars().collect();
    let begins = |at: &usize| {
        let (here, next) = (letters[*at], letters.get(at + 1));
        let before = at.checked_sub(1).map(|at| letters[at]);
        here.is_uppercase()
            && (before.is_none_or(|it| !it.is_uppercase()) || next.is_some_and(|next| next.is_lowercase()))
    };
    (0..letters.len()).filter(begins).count()
}

#[test]
fn names_are_split_into_words() {
    for (name, words) in
        [("Queue", 1), ("BatchQueue", 2), ("GpuMatMulKernel", 4), ("DType", 2), ("HTTP", 1), ("Conv2d", 1)]
    {
        assert_eq!(word_count(name), words, "{name}");
    }
    assert_eq!(defined_type("pub(crate) struct BatchQueue<T> {"), Some("BatchQueue"));
    assert_eq!(defined_type("    type Item;"), None);
    assert_eq!(defined_type("let struct_ = 1;"), None);
}

#[test]
fn type_names_say_their_domain() {
    let mut definitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in texts(&["rs"]) {
        for (line, at) in text.lines().zip(1..) {
            if let Some(name) = defined_type(line) {
                definitions.entry(name.to_owned()).or_default().push(format!("{path}:{at}"));
            }
        }
    }
    let total: usize = definitions.values().map(Vec::len).sum();
    assert!(total > 1000, "{total} definitions were found");
    let count = |is_counted: &dyn Fn(&str, &[String]) -> bool| -> usize {
        definitions.iter().filter(|(name, places)| is_counted(name, places)).map(|(_, places)| places.len()).sum()
    };
    let one_word = count(&|name, _| word_count(name) == 1) * 100 / total;
    let shared = count(&|_, places| places.len() > 1) * 100 / total;
    println!("{total} type definitions: {one_word} % of one word, {shared} % with a name that is defined twice");
    let crowded: Vec<_> = definitions.iter().filter(|(_, places)| places.len() > DEFINITIONS_OF_A_NAME_MAX).collect();
    assert!(crowded.is_empty(), "names with more than {DEFINITIONS_OF_A_NAME_MAX} definitions: {crowded:#?}");
    assert!(one_word <= ONE_WORD_PERCENT_MAX, "{one_word} % of the type names are one word");
    assert!(shared <= SHARED_PERCENT_MAX, "{shared} % of the type names are defined twice");
}

/// Returns the prose in a line of Rust: its comment and its string literals.
fn prose(line: &str) -> String {
    let (code, comment) = line.split_once("//").map_or((line, ""), |(code, comment)| (code, comment));
    let literals: Vec<&str> = code.split('"').skip(1).step_by(2).collect();
    format!("{} {comment}", literals.join(" ")).to_lowercase()
}

/// Returns a line of Rust or JavaScript without its literals in these quotes and without its comment. `open` is the
/// quote of a literal that continues from the line before; it is updated for the next line.
fn code(line: &str, quotes: &[char], open: &mut Option<char>) -> String {
    if open.is_none() && (line.trim_start().starts_with('*') || line.trim_start().starts_with("/*")) {
        return String::new();
    }
    let (mut code, mut letters) = (String::new(), line.chars().peekable());
    while let Some(letter) = letters.next() {
        match *open {
            Some(_) if letter == '\\' => {
                letters.next();
            }
            Some(quote) if letter == quote => *open = None,
            Some(_) => {}
            None if letter == '/' && letters.peek() == Some(&'/') => break,
            None => {
                code.push(letter);
                *open = Some(letter).filter(|letter| quotes.contains(letter));
            }
        }
    }
    // Ending other literals here limits a wrong guess, such as after a quote in a raw string, to one line.
    if !line.ends_with('\\') {
        *open = None;
    }
    code
}

#[test]
fn literals_and_comments_are_no_code() {
    let mut open = None;
    assert_eq!(code(r#"f("a \"b\"", c); // d"#, &['"'], &mut open), "f(\", c); ");
    assert_eq!(code("h('a', `b`) + c", &['"', '\'', '`'], &mut open), "h(', `) + c");
    assert_eq!((code("x(\"a \\", &['"'], &mut open), open), ("x(\"".to_owned(), Some('"')));
    assert_eq!((code("   b\") + c", &['"'], &mut open), open), (") + c".to_owned(), None));
}

/// Returns whether `text` contains `phrase` as whole words.
fn contains_phrase(text: &str, phrase: &str) -> bool {
    let is_letter = |letter: Option<char>| letter.is_some_and(|it| it.is_alphanumeric() || it == '_' || it == '-');
    text.match_indices(phrase).any(|(at, _)| {
        !is_letter(text[..at].chars().next_back()) && !is_letter(text[at + phrase.len()..].chars().next())
    })
}

#[test]
fn comments_documents_and_messages_are_plain() {
    let mut found = Vec::new();
    for (path, text) in texts(&["rs", "md", "wit", "toml"]) {
        let is_code = path.ends_with(".rs");
        if path == "tests/tests/sources/names.rs" {
            continue;
        }
        for (line, at) in text.lines().zip(1..) {
            let said = if is_code { prose(line) } else { line.to_lowercase() };
            for (phrase, instead) in BANNED_PHRASES {
                if contains_phrase(&said, phrase) {
                    found.push(format!("{path}:{at}: \"{phrase}\": write {instead}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{} banned phrases:\n{}", found.len(), found.join("\n"));
}

#[test]
fn names_of_values_and_functions_are_not_vague_participles() {
    let mut found = Vec::new();
    for (path, text) in texts(&["rs", "js"]) {
        let quotes: &[char] = if path.ends_with(".js") { &['"', '\'', '`'] } else { &['"'] };
        let mut open = None;
        for (line, at) in text.lines().zip(1..) {
            let code = code(line, quotes, &mut open);
            for name in VAGUE_NAMES.iter().filter(|name| contains_phrase(&code, name)) {
                found.push(format!("{path}:{at}: `{name}`"));
            }
        }
    }
    assert!(found.is_empty(), "{} vague names; say what the value is:\n{}", found.len(), found.join("\n"));
}

#[test]
fn test_files_say_what_they_test() {
    let mut found = Vec::new();
    for path in texts(&["rs"]).into_keys() {
        let is_test = path.contains("/tests/") || path.contains("/benches/");
        let stem = path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs"));
        for (vague, instead) in VAGUE_FILES.iter().filter(|(vague, _)| is_test && stem == Some(*vague)) {
            found.push(format!("{path}: `{vague}`: such as `{instead}`"));
        }
    }
    assert!(found.is_empty(), "names of test files that do not say what is tested:\n{}", found.join("\n"));
}

#[test]
fn metrics_of_durations_end_in_seconds_and_rates_are_left_to_the_query() {
    for family in FAMILIES.iter().filter(|family| !DEPRECATED_METRICS.contains(&family.name)) {
        let name = family.name;
        assert!(!name.contains("_duration_"), "{name}: a duration ends in `_seconds`, without `_duration`");
        assert!(!name.contains("_per_second"), "{name}: a query has the rate: rate(..._total[1m])");
        let is_histogram_of_time = family.kind == "HistogramVec" && family.help.starts_with("Time");
        assert!(!is_histogram_of_time || name.ends_with("_seconds"), "{name}: its unit is not the suffix `_seconds`");
    }
}

/// Returns whether a test's name begins with a row of `features.md` or of the fault table, such as `fh_03_` or
/// `fault_46_`.
fn carries_row_id(name: &str) -> bool {
    let mut words = name.split('_');
    let (Some(first), Some(second)) = (words.next(), words.next()) else { return false };
    let is_number = !second.is_empty() && second.chars().all(|letter| letter.is_ascii_digit());
    matches!(first, "fh" | "sg" | "az" | "kf" | "ab" | "fault" | "faults") && is_number
}

#[test]
fn test_names_state_a_behaviour() {
    assert!(carries_row_id("fh_03_a_line") && carries_row_id("faults_24_26_29_end") && !carries_row_id("faults_end"));
    let mut found = Vec::new();
    for (path, text) in texts(&["rs"]) {
        for line in text.lines() {
            let line = line.trim_start();
            let line = line.strip_prefix("async ").unwrap_or(line);
            let name = line.strip_prefix("fn ").and_then(|rest| rest.split('(').next());
            if let Some(name) = name.filter(|name| carries_row_id(name)) {
                found.push(format!("{path}: {name}"));
            }
        }
    }
    assert!(found.is_empty(), "row numbers belong into tests/features.md alone:\n{}", found.join("\n"));
}
