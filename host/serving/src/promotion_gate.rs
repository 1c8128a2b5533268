//! The condition under which a published version becomes the default: `promote` of a model's configuration.

use saggar_project::PromotionCondition;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};

use crate::version_origin::VersionOrigin;

/// A condition in `model.json`, as text.
#[derive(Clone, Debug, PartialEq)]
pub struct PromotionGate(pub PromotionCondition);

impl PromotionGate {
    /// Returns the reason for which a version does not become the default by itself, or `None` if it does. `reference`
    /// is the version that serves, or served last. Only versions that are newer than it are checked.
    pub(crate) fn refusal(
        &self,
        (version, candidate): (u64, &VersionOrigin),
        reference: Option<(u64, &VersionOrigin)>,
    ) -> Option<String> {
        if reference.is_some_and(|(serving, _)| version <= serving) {
            return None;
        }
        let serving = reference.map(|(_, origin)| &origin.metrics);
        self.0.check(&candidate.metrics, serving).err()
    }
}

impl Serialize for PromotionGate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PromotionGate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PromotionGate, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(PromotionGate).map_err(|error| D::Error::custom(format!("{text:.80?}: {error}")))
    }
}

/// Returns the message about a version that does not meet the condition, for people.
pub(crate) fn refusal_message(refusal: &str, model: &str, version: u64) -> String {
    format!("not promoted: {refusal}; `saggar models promote {model} {version}` serves it")
}
