//! Non-finite numbers, which JSON does not support but clients send: `NaN`, `Infinity`, `-Infinity`.

/// Returns the text with such words in quotes, for a reader that accepts them as strings, or `None` if it contains none
/// outside strings.
pub(crate) fn quote_nonfinite(json: &[u8]) -> Option<Vec<u8>> {
    let mut quoted: Option<Vec<u8>> = None;
    let mut copied = 0;
    let mut at = 0;
    while at < json.len() {
        match json[at] {
            b'"' => at = string_end(json, at),
            b'N' | b'I' | b'-' => {
                let Some(word) = NONFINITE_WORDS.iter().find(|word| json[at..].starts_with(word)) else {
                    at += 1;
                    continue;
                };
                let text = quoted.get_or_insert_with(|| Vec::with_capacity(json.len() + json.len() / 4));
                text.extend_from_slice(&json[copied..at]);
                text.push(b'"');
                text.extend_from_slice(word);
                text.push(b'"');
                at += word.len();
                copied = at;
            }
            _ => at += 1,
        }
    }
    quoted.as_mut()?.extend_from_slice(&json[copied..]);
    quoted
}

const NONFINITE_WORDS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];

/// Returns the number that a word denotes.
pub(crate) fn parse_nonfinite(word: &str) -> Option<f64> {
    match word {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// Returns the offset after the string that starts at `at`.
fn string_end(json: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < json.len() && json[at] != b'"' {
        at += if json[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonfinite_words_are_quoted_only_outside_strings() {
        let check = |json: &str, expected: Option<&str>| {
            assert_eq!(
                quote_nonfinite(json.as_bytes()).map(|text| String::from_utf8(text).unwrap()).as_deref(),
                expected
            );
        };
        check(r#"{"x": [1.5, -2], "I": "N"}"#, None);
        check("[NaN,-Infinity , Infinity]", Some(r#"["NaN","-Infinity" , "Infinity"]"#));
        check(r#"["NaN", "a\"NaN", "\\", NaN]"#, Some(r#"["NaN", "a\"NaN", "\\", "NaN"]"#));
        check(r#"["open NaN"#, None);
        check(r#"["open \"#, None);
        check("NaNs", Some(r#""NaN"s"#));
        assert!(
            parse_nonfinite("NaN").unwrap().is_nan()
                && parse_nonfinite("-Infinity") == Some(f64::NEG_INFINITY)
                && parse_nonfinite("nan").is_none()
        );
    }
}
