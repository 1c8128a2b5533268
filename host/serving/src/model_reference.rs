//! References to a model and one of its versions in requests.

use std::fmt;

/// A version that is named by neither a number nor an alias.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("version: expected a version's number or an alias, as in digits@3 or digits@canary, got {got:?}")]
pub struct ReferenceError {
    /// The beginning of what was given.
    pub got: String,
}

/// A version of a model, as named by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionSelector {
    /// The version that default requests get.
    Default,
    /// The version of this number.
    Version(u64),
    /// The version that this alias points to, such as `stable` or `canary`.
    Alias(String),
}

/// A model and one of its versions, as named by a client: `digits`, `digits@3`, `digits@canary`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelReference {
    /// The model.
    pub model: String,
    /// The version.
    pub version: VersionSelector,
}

impl ModelReference {
    /// Returns a reference to the default version of `model`.
    pub fn default_version_of(model: &str) -> ModelReference {
        ModelReference { model: model.to_owned(), version: VersionSelector::Default }
    }

    /// Parses `name`, `name@version` or `name@alias`.
    ///
    /// # Errors
    /// Returns `ReferenceError` if the part after `@` is neither a version nor a valid alias.
    pub fn parse(text: &str) -> Result<ModelReference, ReferenceError> {
        let Some((model, which)) = text.split_once('@') else { return Ok(ModelReference::default_version_of(text)) };
        Ok(ModelReference { model: model.to_owned(), version: VersionSelector::parse(which)? })
    }
}

impl VersionSelector {
    /// Parses a version number or an alias.
    ///
    /// # Errors
    /// Returns `ReferenceError` if it is neither.
    pub fn parse(text: &str) -> Result<VersionSelector, ReferenceError> {
        if let Ok(version) = text.parse() {
            return Ok(VersionSelector::Version(version));
        }
        if is_alias(text) {
            return Ok(VersionSelector::Alias(text.to_owned()));
        }
        Err(ReferenceError { got: text.chars().take(80).collect() })
    }
}

/// Returns whether this is a valid alias: 1 to 63 lower-case letters, digits, `_` and `-`, starting with a letter, so
/// that no alias looks like a version.
pub fn is_alias(text: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    text.len() <= 63 && text.bytes().next().is_some_and(|b| b.is_ascii_lowercase()) && text.bytes().all(rest)
}

impl fmt::Display for VersionSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionSelector::Default => f.write_str("default"),
            VersionSelector::Version(version) => version.fmt(f),
            VersionSelector::Alias(alias) => f.write_str(alias),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_distinguish_versions_from_aliases() {
        let which = |text: &str| ModelReference::parse(text).map(|reference| reference.version);
        assert_eq!(which("digits").unwrap(), VersionSelector::Default);
        assert_eq!(which("digits@3").unwrap(), VersionSelector::Version(3));
        assert_eq!(which("digits@canary-2").unwrap(), VersionSelector::Alias("canary-2".to_owned()));
        for bad in ["digits@", "digits@-1", "digits@Latest", "digits@a b", "digits@3x", "digits@1.5"] {
            assert!(which(bad).is_err(), "{bad}");
        }
    }
}
