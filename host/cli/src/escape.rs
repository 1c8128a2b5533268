//! What guests and other clients named, shown on a terminal: every character that could move the cursor, change colours,
//! begin another line or turn the direction of writing is shown as its escape, such as `\u{1b}`.
//!
//! All that the commands print passes here, in [`output`](crate::output).

/// Text of several lines: line ends and tabs stay.
pub(crate) fn text(text: &str) -> String {
    escape(text, |c| matches!(c, '\n' | '\t'))
}

/// What stands in one line, such as a name.
pub(crate) fn line(text: &str) -> String {
    escape(text, |c| c == '\t')
}

/// What somebody else says, whose lines after the first one are indented: none of them looks like a message of ours.
pub(crate) fn foreign(message: &str) -> String {
    text(message).replace('\n', "\n    ")
}

/// A JSON document, which stays the same document: what it escapes stands within its strings.
pub(crate) fn json(document: &str) -> String {
    let mut shown = String::with_capacity(document.len());
    let mut units = [0; 2];
    for c in document.chars() {
        if c == '\n' || !steers(c) {
            shown.push(c);
        } else {
            c.encode_utf16(&mut units).iter().for_each(|unit| shown.push_str(&format!("\\u{unit:04x}")));
        }
    }
    shown
}

/// Whether a terminal does something at the character, or shows nothing at all.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Marks of direction, joiners, separators of lines, and what is as wide as nothing.
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn escape(text: &str, stays: impl Fn(char) -> bool) -> String {
    if !text.chars().any(|c| steers(c) && !stays(c)) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match coloured_word(rest) {
            Some(length) => {
                shown.push_str(&rest[..length]);
                length
            }
            None if steers(c) && !stays(c) => {
                shown.extend(c.escape_default());
                c.len_utf8()
            }
            None => {
                shown.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    shown
}

/// The length of a word in colour as `Output::state` writes it, which ends with its colour: it may stand anywhere.
fn coloured_word(text: &str) -> Option<usize> {
    let after = text.strip_prefix("\x1b[3")?;
    let word = after.strip_prefix(['1', '2', '6'])?.strip_prefix('m')?;
    let end = word.find(|c: char| !c.is_ascii_uppercase() && c != '_').filter(|end| *end > 0)?;
    word[end..].starts_with(RESET).then(|| text.len() - word.len() + end + RESET.len())
}

/// Ends a colour.
const RESET: &str = "\x1b[0m";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        for (shown, expected) in [
            (line("loss\x1b]0;title\x07\x1b[2J"), r"loss\u{1b}]0;title\u{7}\u{1b}[2J"),
            (line("a\nFAILED\r\tb"), "a\\nFAILED\\r\tb"),
            (line("\u{9b}31m \u{7f} \u{85}"), r"\u{9b}31m \u{7f} \u{85}"),
            (
                line("gnp\u{202e}.exe \u{2066}x\u{2069} a\u{200b}b\u{feff}"),
                r"gnp\u{202e}.exe \u{2066}x\u{2069} a\u{200b}b\u{feff}",
            ),
            (text("two\n\tlines\x1b[1A\r"), "two\n\tlines\\u{1b}[1A\\r"),
            (foreign("it failed\nsaggar: all is well"), "it failed\n    saggar: all is well"),
            (line("zwölf → 数字 🎉"), "zwölf → 数字 🎉"),
        ] {
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn states_keep_their_colours_and_nobody_else_gets_any() {
        assert_eq!(line("a \x1b[32mREADY\x1b[0m b"), "a \x1b[32mREADY\x1b[0m b");
        for forged in
            ["\x1b[32mREADY", "\x1b[32mready\x1b[0m", "\x1b[5mREADY\x1b[0m", "\x1b[32m\x1b[0m", "\x1b[32mA\x1b[0"]
        {
            assert!(!line(forged).contains('\x1b'), "{forged:?}");
        }
    }

    #[test]
    fn json_stays_the_same_document() {
        let value = serde_json::json!({ "n\u{9b}\u{202e}": ["\u{e0041}", "a\nb\x1b", "ö"] });
        let shown = json(&format!("{value:#}"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        assert!(!shown.chars().any(|c| steers(c) && c != '\n'), "{shown:?}");
    }
}
