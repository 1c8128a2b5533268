//! Names as labels: without characters that control a viewer or a terminal, and of a bounded length.

/// Maximum characters of a name in a chart.
pub const LABEL_CHARS_MAX: usize = 60;

/// What stands for a character that is not drawn.
const REPLACEMENT: char = '\u{fffd}';

/// Returns a name on one line without control characters, invisible characters and direction marks, each replaced by
/// `\u{fffd}`, and shortened in its middle to [`LABEL_CHARS_MAX`], because names often differ at their ends.
pub fn clean_label(name: &str) -> String {
    shorten_middle(&name.chars().map(|c| if is_drawn(c) { c } else { REPLACEMENT }), LABEL_CHARS_MAX)
}

/// Shortens a text in its middle to a number of characters.
fn shorten_middle(text: &(impl Iterator<Item = char> + Clone), chars_max: usize) -> String {
    // A name can be megabytes long: it is read twice and stored once it is short.
    let count = text.clone().count();
    if count <= chars_max {
        return text.clone().collect();
    }
    let end = chars_max.saturating_sub(1) / 2;
    let start = chars_max.saturating_sub(1) - end;
    let (head, tail) = (text.clone().take(start), text.clone().skip(count - end));
    head.chain(std::iter::once('…')).chain(tail).collect()
}

/// Shortens a text in its middle until `fits` accepts it. Returns an empty text if no text of two characters fits.
pub(crate) fn shorten_until(text: &str, fits: impl Fn(&str) -> bool) -> String {
    if fits(text) {
        return text.to_owned();
    }
    let lengths = (2..text.chars().count()).rev();
    lengths.map(|length| shorten_middle(&text.chars(), length)).find(|shorter| fits(shorter)).unwrap_or_default()
}

/// Returns whether a character is drawn. Those that are not could end a line, change the writing direction, hide, or be
/// no valid character of an XML document.
fn is_drawn(c: char) -> bool {
    !(c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
            | '\u{e0000}'..='\u{e007f}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_replaced_and_long_names_shortened_in_the_middle() {
        assert_eq!(clean_label("validation/loss"), "validation/loss");
        assert_eq!(clean_label("a\x1b[2J\n\u{202e}b"), "a\u{fffd}[2J\u{fffd}\u{fffd}b");
        assert_eq!(clean_label("zwölf → 数字"), "zwölf → 数字");
        let long = clean_label(&format!("{}-1", "x".repeat(1_000_000)));
        assert_eq!(long.chars().count(), LABEL_CHARS_MAX);
        assert!(long.starts_with("xxx") && long.contains('…') && long.ends_with("x-1"), "{long}");
    }

    #[test]
    fn a_text_is_shortened_until_it_fits() {
        let fits = |length: usize| move |text: &str| text.chars().count() <= length;
        assert_eq!(shorten_until("digits-17", fits(9)), "digits-17");
        assert_eq!(shorten_until("digits-17", fits(6)), "dig…17");
        assert_eq!(shorten_until("digits-17", fits(1)), "");
    }
}
