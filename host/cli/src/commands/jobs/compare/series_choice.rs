//! Which series a chart of compared things shows.

use std::collections::BTreeSet;

use crate::exit::{self, CliError};

/// Returns the series that is drawn: the one that was named, else `loss`, else the first one by name.
///
/// # Errors
/// `no_series` if none of the compared things has it, with what they are called and the command that lists them.
pub(super) fn choose_series(
    named: Option<&str>,
    known: BTreeSet<String>,
    (noun, list): (&str, &str),
) -> Result<String, CliError> {
    let chosen = match named {
        Some(name) => known.get(name),
        None => known.get("loss").or_else(|| known.first()),
    };
    chosen.cloned().ok_or_else(|| {
        let message = match named {
            Some(name) => format!("--metric {name}: no compared {noun} has this series"),
            None => format!("no compared {noun} has a series yet"),
        };
        let hint = match known.is_empty() {
            true => format!("`{list}` shows what they do"),
            false => format!("there are: {}", known.into_iter().collect::<Vec<_>>().join(", ")),
        };
        CliError::new(exit::NOT_FOUND, "no_series", message).with_hint(hint)
    })
}
