//! A label of a host on the command line: `gpu=a100`.

use saggar_project::{LABEL_RULE, is_label};

/// Reads `NAME=VALUE`.
///
/// # Errors
/// Returns what is expected, for clap.
pub(super) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if is_label(name) && is_label(value) => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("expected a label such as gpu=a100, with {LABEL_RULE} on both sides")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_a_name_and_a_value() {
        assert_eq!(parse_label("gpu=a100"), Ok(("gpu".to_owned(), "a100".to_owned())));
        for text in ["gpu", "=a100", "gpu=", "gpu=a=b", "g u=a", ""] {
            assert!(parse_label(text).unwrap_err().contains("gpu=a100"), "{text}");
        }
    }
}
