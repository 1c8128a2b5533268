//! The token of a notebook.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The secret by which a browser reaches a notebook. Its `Debug` text does not contain it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NotebookToken(String);

impl NotebookToken {
    /// Returns the token with this text: random hexadecimal digits.
    pub fn new(text: String) -> NotebookToken {
        NotebookToken(text)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether `text` is this token. The time depends only on the length.
    pub fn matches(&self, text: &str) -> bool {
        let (own, sent) = (self.0.as_bytes(), text.as_bytes());
        let differing = own.iter().zip(sent).fold(0, |all, (a, b)| all | (a ^ b));
        !own.is_empty() && own.len() == sent.len() && std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for NotebookToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NotebookToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_text_matches_a_token() {
        let token = NotebookToken::new("ab12".to_owned());
        assert!(token.matches("ab12"));
        for other in ["", "ab1", "ab13", "ab123"] {
            assert!(!token.matches(other), "{other}");
        }
        assert!(!NotebookToken::new(String::new()).matches(""));
        assert_eq!(format!("{token:?}"), "NotebookToken(..)");
    }
}
