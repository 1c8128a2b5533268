//! How precisely a training computes.

use serde::{Deserialize, Serialize};

/// In which numbers a training's products and convolutions are computed. Its variables are what its plugin makes them, in
/// either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// As the plugin says: `float32` where it says nothing else.
    #[default]
    Float32,
    /// Those that a loss depends on take `float16` and are added up in `float32`; the loss is scaled.
    Mixed,
}

impl Precision {
    /// Whether nobody said otherwise.
    pub(super) fn is_default(&self) -> bool {
        *self == Precision::Float32
    }
}
