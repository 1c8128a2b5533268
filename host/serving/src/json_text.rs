//! Parsing of JSON that users write. Errors name the position and the expected form instead of repeating the parser's
//! text, which refers to Rust types of this program.

use serde::de::DeserializeOwned;
use serde_json::error::Category;

/// Parses JSON into `T`.
///
/// # Errors
/// Returns the problem and its position: `data[0].mount: expected a text, got 3`.
pub fn parse_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let said = describe_json_error(error.inner(), text);
        // The root has no name, and a syntax error already contains its byte offset.
        let is_placed = path == "." || error.inner().classify() != Category::Data;
        if is_placed { said } else { format!("{}: {said}", path.replace(".?", "").replace('?', "it")) }
    })?;
    reader.end().map_err(|error| describe_json_error(&error, text))?;
    Ok(value)
}

/// Describes a JSON error in plain words, without its path.
pub fn describe_json_error(error: &serde_json::Error, text: &[u8]) -> String {
    let whole = error.to_string();
    let said = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(said, _)| said);
    match error.classify() {
        Category::Data => describe_data_error(said),
        Category::Syntax | Category::Eof | Category::Io => {
            if text.iter().all(u8::is_ascii_whitespace) {
                return "expected JSON, got nothing".to_owned();
            }
            match said {
                "number out of range" => said.to_owned(),
                said => format!("not JSON at byte {}: {}", error_offset(error, text), describe_syntax_error(said)),
            }
        }
    }
}

/// Returns the byte offset of a syntax error.
pub fn error_offset(error: &serde_json::Error, text: &[u8]) -> usize {
    let lines_before = error.line().saturating_sub(1);
    let starts = text.split_inclusive(|byte| *byte == b'\n').take(lines_before).map(<[u8]>::len).sum::<usize>();
    (starts + error.column().saturating_sub(1)).min(text.len())
}

fn describe_syntax_error(said: &str) -> String {
    match said {
        "expected value" => "expected a value".to_owned(),
        "expected ident" => "expected true, false or null".to_owned(),
        "trailing characters" => "something follows its end".to_owned(),
        other => match other.strip_prefix("EOF while parsing ") {
            Some(what) => format!("it ends within {what}").replace("within a value", "where a value should be"),
            None => other.to_owned(),
        },
    }
}

/// Describes a value that does not have the expected form.
fn describe_data_error(said: &str) -> String {
    for kind in ["invalid type: ", "invalid value: ", "invalid length "] {
        if let Some((got, wanted)) = said.strip_prefix(kind).and_then(|rest| rest.rsplit_once(", expected ")) {
            let got = if kind == "invalid length " { format!("{got} elements") } else { describe_given(got) };
            return format!("expected {}, got {got}", describe_expected(wanted));
        }
    }
    if said.starts_with("data did not match any variant of untagged enum ") {
        return "no accepted form matches".to_owned();
    }
    if let Some(name) = said.strip_prefix("missing field ") {
        return format!("{name} is missing");
    }
    if let Some(name) = said.strip_prefix("duplicate field ") {
        return format!("{name} is given twice");
    }
    said.replace("unknown field ", "there is no ").replace("unknown variant ", "there is no ")
}

/// Describes a given value in JSON terms.
fn describe_given(said: &str) -> String {
    let literal = said.strip_prefix("integer `").or_else(|| said.strip_prefix("floating point `"));
    let literal = literal.or_else(|| said.strip_prefix("boolean `"));
    if let Some(literal) = literal.and_then(|literal| literal.strip_suffix('`')) {
        return literal.to_owned();
    }
    if let Some(text) = said.strip_prefix("string ") {
        return text.to_owned();
    }
    match said {
        "map" | "newtype struct" | "struct variant" => "an object".to_owned(),
        "sequence" | "tuple struct" => "a list".to_owned(),
        "unit" | "Option value" => "null".to_owned(),
        other => other.to_owned(),
    }
}

/// Describes an expected type in JSON terms.
fn describe_expected(said: &str) -> String {
    let begins = |words: &[&str]| words.iter().any(|word| said.starts_with(word));
    let words = match said {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" | "string" | "str" | "a borrowed string" | "a character" => "a text",
        "a boolean" => "true or false",
        "a map" | "map" => "an object",
        "a sequence" | "sequence" => "a list",
        "unit" => "null",
        "string or map" => "a text or an object",
        _ if begins(&["struct ", "internally tagged enum "]) => "an object",
        _ if begins(&["tuple ", "a tuple "]) => "a list",
        _ if begins(&["enum "]) => "a text or an object",
        other => other,
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only reading is tested")]
    struct SampleBody {
        name: String,
        #[serde(default)]
        count: u32,
        #[serde(default)]
        parts: Vec<SampleBodyPart>,
        #[serde(default)]
        kind: Option<SampleBodySize>,
        #[serde(default)]
        either: Option<SampleTextOrNumber>,
        #[serde(default)]
        shares: BTreeMap<String, f64>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only reading is tested")]
    struct SampleBodyPart {
        on: bool,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum SampleBodySize {
        Small,
        Large,
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only reading is tested")]
    enum SampleTextOrNumber {
        Text(String),
        Number(u64),
    }

    #[test]
    fn json_errors_are_described_in_json_terms() {
        let check = |text: &str, says: &str| {
            let said = parse_json::<SampleBody>(text.as_bytes()).unwrap_err();
            assert_eq!(said, says, "{text}");
        };
        check("", "expected JSON, got nothing");
        check(" \n", "expected JSON, got nothing");
        check("{", "not JSON at byte 0: it ends within an object");
        check("{\"name\": \"a\"\n, \"count\" 3}", "not JSON at byte 23: expected `:`");
        check("{\"name\": \"a\"} x", "not JSON at byte 14: something follows its end");
        check("{name: 1}", "not JSON at byte 1: key must be a string");
        check("3", "expected an object, got 3");
        check("null", "expected an object, got null");
        check("\"x\"", "expected an object, got \"x\"");
        check("{}", "`name` is missing");
        check("{\"name\": 3}", "name: expected a text, got 3");
        check("{\"name\": \"a\", \"name\": \"b\"}", "`name` is given twice");
        check("{\"name\": \"a\", \"count\": -1}", "count: expected a whole number from 0 to 4294967295, got -1");
        check("{\"name\": \"a\", \"count\": 1.5}", "count: expected a whole number from 0 to 4294967295, got 1.5");
        check("{\"name\": \"a\", \"parts\": {}}", "parts: expected a list, got an object");
        check(
            "{\"name\": \"a\", \"parts\": [{\"on\": true}, {\"on\": 1}]}",
            "parts[1].on: expected true or false, got 1",
        );
        check("{\"name\": \"a\", \"parts\": [{}]}", "parts[0]: `on` is missing");
        check("{\"name\": \"a\", \"parts\": [true]}", "parts[0]: expected an object, got true");
        check("{\"name\": \"a\", \"kind\": \"vast\"}", "kind: there is no `vast`, expected `small` or `large`");
        check("{\"name\": \"a\", \"either\": []}", "either: no accepted form matches");
        check("{\"name\": \"a\", \"shares\": {\"b\": \"1\"}}", "shares.b: expected a number, got \"1\"");
        check(
            "{\"name\": \"a\", \"colour\": 1}",
            "colour: there is no `colour`, expected one of `name`, `count`, `parts`, `kind`, `either`, `shares`",
        );
    }
}
