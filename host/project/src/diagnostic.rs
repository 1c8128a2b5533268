//! A mistake in a file: its position, what is wrong, and how to fix it.

use std::fmt;

/// A mistake, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong, and what was expected.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// Every mistake that was found, at least one, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} mistakes, the first at {}", .0.len(), .0.first().map_or_else(String::new, ToString::to_string))]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Renders one line per mistake, in the format of compiler messages, with the hint below it.
    pub fn render(&self, file: &str) -> String {
        let line = |found: &Diagnostic| {
            let hint = found.hint.as_ref().map_or_else(String::new, |hint| format!("\n  hint: {hint}"));
            format!("{file}:{found}{hint}")
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the line and column, from 1, of the byte at `offset`.
pub(crate) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_and_column_count_characters_from_one() {
        let text = "a = 1\nü = 2\n";
        assert_eq!(line_and_column(text, 0), (1, 1));
        assert_eq!(line_and_column(text, 6), (2, 1));
        assert_eq!(line_and_column(text, 8), (2, 2));
        assert_eq!(line_and_column(text, 999), (3, 1));
    }
}
