//! The numeric precision of a training.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The precision of a training's products and convolutions. The types of its variables are always set by its plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// As the plugin sets it, `float32` by default.
    #[default]
    Float32,
    /// Products and convolutions that a loss depends on use `float16` operands and accumulate in `float32`; the loss is
    /// scaled.
    Mixed,
}

impl Precision {
    /// Returns whether this is the default.
    pub(super) fn is_default(&self) -> bool {
        *self == Precision::Float32
    }
}
