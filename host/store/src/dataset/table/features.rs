//! The class names that the library `datasets` of Hugging Face writes into a file.
//!
//! ```json
//! {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::limits::DATASET_NAMES_MAX;

#[derive(Deserialize)]
struct Metadata {
    info: Info,
}

#[derive(Deserialize)]
struct Info {
    features: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct ClassLabel {
    _type: String,
    names: Vec<String>,
}

/// Returns the class names of each column that has some. A text of another form has none.
pub(super) fn class_names(text: &str) -> BTreeMap<String, Vec<String>> {
    let Ok(Metadata { info }) = serde_json::from_str(text) else { return BTreeMap::new() };
    let names = |feature: serde_json::Value| {
        let label: ClassLabel = serde_json::from_value(feature).ok()?;
        (label._type == "ClassLabel" && label.names.len() <= DATASET_NAMES_MAX).then_some(label.names)
    };
    info.features.into_iter().filter_map(|(column, feature)| Some((column, names(feature)?))).collect()
}
