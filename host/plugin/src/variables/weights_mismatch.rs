//! A tensor that a plugin declares and that the weights do not have as declared.

use crate::error::PluginError;

/// Number of tensors of the weights that a message names.
const NAMES_SHOWN_MAX: usize = 5;

/// A tensor that the plugin asked for, and what the weights have in its place.
#[derive(Clone, Debug)]
pub(crate) struct WeightsMismatch {
    pub(crate) name: String,
    pub(crate) declared: String,
    pub(crate) given: String,
}

impl From<WeightsMismatch> for PluginError {
    fn from(WeightsMismatch { name, declared, given }: WeightsMismatch) -> PluginError {
        PluginError::Weights { name, declared, given }
    }
}

/// Returns the text for a tensor that is missing from weights with these names.
pub(crate) fn describe_missing<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let count = names.len();
    let quoted: Vec<String> = names.take(NAMES_SHOWN_MAX).map(|name| format!("`{name}`")).collect();
    match count.saturating_sub(quoted.len()) {
        _ if count == 0 => "no tensors".to_owned(),
        0 => format!("only {}", quoted.join(", ")),
        more => format!("no such tensor; they have {} and {more} more", quoted.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tensor_is_described_by_the_existing_ones() {
        let names: Vec<String> = (0..7).map(|n| format!("w{n}")).collect();
        assert_eq!(describe_missing(names[..0].iter()), "no tensors");
        assert_eq!(describe_missing(names[..2].iter()), "only `w0`, `w1`");
        let many = describe_missing(names.iter());
        assert_eq!(many, "no such tensor; they have `w0`, `w1`, `w2`, `w3`, `w4` and 2 more");
    }
}
