//! Values of several things, by name.

use std::collections::HashSet;

use saggar_rest::comparisons::ComparedValuesDocument;
use serde_json::{Map, Value};

/// Returns the values of every name that any of the objects has, in the order in which the names appear.
pub(super) fn compared_values(objects: &[Map<String, Value>]) -> Vec<ComparedValuesDocument> {
    let mut known = HashSet::new();
    let names: Vec<&String> = objects.iter().flat_map(Map::keys).filter(|name| known.insert(*name)).collect();
    let values = |name: &String| {
        let values: Vec<Value> = objects.iter().map(|object| object.get(name).cloned().unwrap_or_default()).collect();
        let differs = values.iter().any(|value| *value != values[0]);
        ComparedValuesDocument { name: name.clone(), values, differs }
    };
    names.into_iter().map(values).collect()
}

/// Returns the members of an object; of another value, none.
pub(super) fn members(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
