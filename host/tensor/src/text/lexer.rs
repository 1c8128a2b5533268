//! Lexer: splits one line of text into tokens.

use super::TextFault;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TextToken {
    /// A run of letters, digits and `%#+-._`: names, numbers, references.
    Word(String),
    /// The text between quotation marks, unescaped.
    Quoted(String),
    /// Any other character.
    Mark(char),
}

/// Returns the tokens of `line` up to a comment.
pub(super) fn tokenize(line: &str) -> Result<Vec<TextToken>, TextFault> {
    let mut tokens = Vec::new();
    let mut rest = line.chars().peekable();
    while let Some(&next) = rest.peek() {
        if next == ';' {
            break;
        }
        if next.is_whitespace() {
            rest.next();
        } else if is_word(next) {
            let mut word = String::new();
            while let Some(letter) = rest.next_if(|&letter| is_word(letter)) {
                word.push(letter);
            }
            tokens.push(TextToken::Word(word));
        } else if next == '"' {
            rest.next();
            tokens.push(TextToken::Quoted(read_quoted(&mut rest)?));
        } else {
            rest.next();
            tokens.push(TextToken::Mark(next));
        }
    }
    Ok(tokens)
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "%#+-._".contains(letter)
}

/// Returns the text before the closing quotation mark.
fn read_quoted(rest: &mut impl Iterator<Item = char>) -> Result<String, TextFault> {
    let mut text = String::new();
    loop {
        match rest.next().ok_or(TextFault::String)? {
            '"' => return Ok(text),
            '\\' => text.push(read_escape(rest)?),
            letter => text.push(letter),
        }
    }
}

/// Returns the character after a backslash: itself, or a code point as `u{hex}`.
fn read_escape(rest: &mut impl Iterator<Item = char>) -> Result<char, TextFault> {
    match rest.next().ok_or(TextFault::String)? {
        letter @ ('"' | '\\') => Ok(letter),
        'u' => {
            if rest.next() != Some('{') {
                return Err(TextFault::String);
            }
            let digits: String = rest.take_while(|&letter| letter != '}').take(8).collect();
            u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32).ok_or(TextFault::String)
        }
        _ => Err(TextFault::String),
    }
}

/// Returns `text` in quotation marks, with characters escaped that do not print on one line.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') => {
                quoted.push_str(&format!("\\u{{{:x}}}", u32::from(letter)));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
