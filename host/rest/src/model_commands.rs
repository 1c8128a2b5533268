//! The bodies of the commands at `/api/v1/models/{model}/...`. Each command responds with the model, which
//! [`crate::models`] describes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SHA256_PATTERN;

/// Names a version to load or unload. Without a version, or with an empty body, the command is about the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OptionalVersion")]
pub struct OptionalVersionRequest {
    /// The version.
    pub version: Option<u64>,
}

/// Makes a version the default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Promotion")]
pub struct PromoteRequest {
    /// The version, or `newest`, after which the default follows the newest version.
    pub version: PromotionTarget,
}

/// A version's number, or the word `newest`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum PromotionTarget {
    /// A version.
    Version(u64),
    /// The word.
    Word(#[schemars(extend("const" = "newest"))] String),
}

/// Points an alias to a version that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetAlias")]
pub struct SetAliasRequest {
    /// The version.
    pub version: u64,
}

/// The shares of default requests in percent, by alias or version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(rename = "TrafficShares")]
pub struct TrafficRequest(#[schemars(inner(range(max = 100)))] pub BTreeMap<String, u32>);

/// Makes a version repeat a share of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetShadow")]
pub struct SetShadowRequest {
    /// An alias or a version.
    pub to: String,
    /// The share of requests that it repeats, in percent.
    #[schemars(range(min = 1, max = 100))]
    pub percent: u32,
}

/// Creates a version: from a plugin and the weights of an existing version, or from a job's checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
#[schemars(rename = "NewVersion")]
pub enum PublishVersionRequest {
    /// A plugin with the weights of an existing version.
    Plugin {
        /// The SHA-256 of an uploaded component.
        #[schemars(regex(pattern = SHA256_PATTERN))]
        plugin: String,
        /// The version whose weights and configuration are used; by default the newest.
        #[serde(default)]
        from_version: Option<u64>,
    },
    /// The weights of a job's checkpoint, with the job's plugin.
    Checkpoint {
        /// A job's checkpoint, such as `job:mnist-7/checkpoint@1200`.
        from: String,
    },
}
