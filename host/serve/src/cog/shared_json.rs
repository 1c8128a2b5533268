//! JSON that is stored as text and shared by the documents that contain it.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A JSON value as text. Clones share it. It is serialized as it was written.
#[derive(Clone, Debug)]
pub(super) struct SharedJson(Arc<RawValue>);

impl SharedJson {
    /// Checks that `json` is JSON.
    ///
    /// # Errors
    /// Returns the syntax error.
    pub(super) fn new(json: String) -> Result<SharedJson, serde_json::Error> {
        Ok(SharedJson(RawValue::from_string(json)?.into()))
    }

    /// Like [`SharedJson::new`], for a part of a larger text.
    pub(super) fn copy_from_slice(json: &[u8]) -> Result<SharedJson, serde_json::Error> {
        Ok(SharedJson(serde_json::from_slice::<Box<RawValue>>(json)?.into()))
    }

    /// Returns the text.
    pub(super) fn as_str(&self) -> &str {
        self.0.get()
    }
}

/// The value is null.
impl Default for SharedJson {
    fn default() -> SharedJson {
        SharedJson(Box::<RawValue>::default().into())
    }
}

impl<'de> Deserialize<'de> for SharedJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SharedJson, D::Error> {
        Ok(SharedJson(Box::<RawValue>::deserialize(deserializer)?.into()))
    }
}

impl Serialize for SharedJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}
