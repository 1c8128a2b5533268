//! Escapes untrusted text for a terminal. Every character that could move the cursor, change colours, start another
//! line or change the writing direction is shown as an escape such as `\u{1b}`.
//!
//! Everything that the commands print is escaped by these functions, in [`output`](crate::output).

/// Escapes text of several lines, keeping line ends and tabs.
pub(crate) fn escape_text(text: &str) -> String {
    escape(text, |c| matches!(c, '\n' | '\t'))
}

/// Escapes text that must stay on one line, such as a name.
pub(crate) fn escape_line(text: &str) -> String {
    escape(text, |c| c == '\t')
}

/// Escapes a foreign message and indents all lines after the first, so that none of them looks like a message of this
/// program.
pub(crate) fn escape_foreign_message(message: &str) -> String {
    escape_text(message).replace('\n', "\n    ")
}

/// Escapes a JSON document, which keeps its meaning, because the escaped characters are within its strings.
pub(crate) fn escape_json(document: &str) -> String {
    let mut escaped = String::with_capacity(document.len());
    let mut units = [0; 2];
    for c in document.chars() {
        if c == '\n' || !is_terminal_control(c) {
            escaped.push(c);
        } else {
            c.encode_utf16(&mut units).iter().for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}")));
        }
    }
    escaped
}

/// Returns whether a character controls a terminal or is invisible.
fn is_terminal_control(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Direction marks, joiners, line separators and zero-width characters.
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn escape(text: &str, stays: impl Fn(char) -> bool) -> String {
    if !text.chars().any(|c| is_terminal_control(c) && !stays(c)) {
        return text.to_owned();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match coloured_word_length(rest) {
            Some(length) => {
                escaped.push_str(&rest[..length]);
                length
            }
            None if is_terminal_control(c) && !stays(c) => {
                escaped.extend(c.escape_default());
                c.len_utf8()
            }
            None => {
                escaped.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    escaped
}

/// Returns the length of a coloured word as written by `CliOutput::format_state`, which can be anywhere in a line and
/// ends with the reset.
fn coloured_word_length(text: &str) -> Option<usize> {
    let after = text.strip_prefix("\x1b[3")?;
    let word = after.strip_prefix(['1', '2', '6'])?.strip_prefix('m')?;
    let end = word.find(|c: char| !c.is_ascii_uppercase() && c != '_').filter(|end| *end > 0)?;
    word[end..].starts_with(RESET).then(|| text.len() - word.len() + end + RESET.len())
}

/// The sequence that ends a colour.
const RESET: &str = "\x1b[0m";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        for (escaped, expected) in [
            (escape_line("loss\x1b]0;title\x07\x1b[2J"), r"loss\u{1b}]0;title\u{7}\u{1b}[2J"),
            (escape_line("a\nFAILED\r\tb"), "a\\nFAILED\\r\tb"),
            (escape_line("\u{9b}31m \u{7f} \u{85}"), r"\u{9b}31m \u{7f} \u{85}"),
            (
                escape_line("gnp\u{202e}.exe \u{2066}x\u{2069} a\u{200b}b\u{feff}"),
                r"gnp\u{202e}.exe \u{2066}x\u{2069} a\u{200b}b\u{feff}",
            ),
            (escape_text("two\n\tlines\x1b[1A\r"), "two\n\tlines\\u{1b}[1A\\r"),
            (escape_foreign_message("it failed\nsaggar: all is well"), "it failed\n    saggar: all is well"),
            (escape_line("zwölf → 数字 🎉"), "zwölf → 数字 🎉"),
        ] {
            assert_eq!(escaped, expected);
        }
    }

    #[test]
    fn only_coloured_states_keep_their_escape_sequences() {
        assert_eq!(escape_line("a \x1b[32mREADY\x1b[0m b"), "a \x1b[32mREADY\x1b[0m b");
        for forged in
            ["\x1b[32mREADY", "\x1b[32mready\x1b[0m", "\x1b[5mREADY\x1b[0m", "\x1b[32m\x1b[0m", "\x1b[32mA\x1b[0"]
        {
            assert!(!escape_line(forged).contains('\x1b'), "{forged:?}");
        }
    }

    #[test]
    fn escaped_json_parses_to_the_same_document() {
        let value = serde_json::json!({ "n\u{9b}\u{202e}": ["\u{e0041}", "a\nb\x1b", "ö"] });
        let escaped = escape_json(&format!("{value:#}"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
        assert!(!escaped.chars().any(|c| is_terminal_control(c) && c != '\n'), "{escaped:?}");
    }
}
