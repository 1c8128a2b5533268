//! `saggar data show`: shows one version of a dataset.

use serde_json::Value;

use super::{find_versions, version_reference};
use crate::client::ApiClient;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::units;

/// Most class names that are listed.
const CLASS_NAMES_MAX: usize = 5;

/// Shows the named version, or the newest one.
pub(super) fn show(dataset: &str, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let all = find_versions(dataset, client)?;
    let Some(newest) = all.last() else { return Ok(()) };
    if output.json {
        output.print_json(newest);
        return Ok(());
    }
    output.print_line(&version_reference(newest));
    for (name, value) in version_facts(newest, &all).iter().filter(|(_, value)| !value.is_empty()) {
        output.print_line(&format!("  {name:<13}{value}"));
    }
    output.print_line("");
    let fields = newest["fields"].as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = fields.map(field_row).collect();
    output.print_table(&["FIELD", "TYPE", "SHAPE", "CLASSES"], &rows);
    Ok(())
}

fn version_facts(newest: &Value, all: &[Value]) -> [(&'static str, String); 8] {
    let bytes = units::format_bytes(newest["bytes"].as_u64().unwrap_or(0));
    let splits = newest["splits"].as_object().into_iter().flatten();
    let splits: Vec<String> = splits.map(|(name, items)| format!("{name} {items}")).collect();
    let numbers: Vec<String> = all.iter().map(|it| it["version"].to_string()).collect();
    [
        ("items", newest["items"].to_string()),
        ("splits", splits.join(", ")),
        ("size", bytes),
        ("digest", newest["digest"].as_str().unwrap_or_default().to_owned()),
        ("versions", if numbers.len() > 1 { numbers.join(", ") } else { String::new() }),
        ("projects", join_names(&newest["projects"])),
        ("read by", join_names(&newest["used_by"])),
        ("was read by", join_names(&newest["was_used_by"])),
    ]
}

fn join_names(names: &Value) -> String {
    names.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<&str>>().join(", ")
}

fn field_row(field: &Value) -> Vec<String> {
    let dims = field["shape"].as_array().into_iter().flatten().map(ToString::to_string);
    vec![
        field["name"].as_str().unwrap_or("?").to_owned(),
        field["dtype"].as_str().unwrap_or("?").to_owned(),
        format!("[{}]", dims.collect::<Vec<String>>().join(", ")),
        class_names(&field["classes"]),
    ]
}

/// Returns the names of a field's classes, or their number if they are many, or `-` if the field has none.
fn class_names(classes: &Value) -> String {
    match classes.as_array().map(Vec::as_slice) {
        None | Some([]) => "-".to_owned(),
        Some(names) if names.len() <= CLASS_NAMES_MAX => join_names(classes),
        Some(names) => format!("{} classes", names.len()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dataset_fields_and_facts_are_listed() {
        let field = json!({ "name": "image", "dtype": "uint8", "shape": [8, 8], "classes": null });
        assert_eq!(field_row(&field), ["image", "uint8", "[8, 8]", "-"]);
        let field = json!({ "name": "label", "dtype": "uint8", "shape": [], "classes": ["no", "yes"] });
        assert_eq!(field_row(&field), ["label", "uint8", "[]", "no, yes"]);
        assert_eq!(class_names(&json!(["a", "b", "c", "d", "e", "f"])), "6 classes");
        let newest = json!({
            "items": 7, "bytes": 2048, "digest": "ab", "version": 2, "splits": { "test": 2, "train": 5 },
            "projects": ["digits"], "used_by": [], "was_used_by": ["digits-1", "digits-2"],
        });
        let facts = version_facts(&newest, &[json!({ "version": 1 }), newest.clone()]);
        let text: Vec<&str> = facts.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(text, ["7", "test 2, train 5", "2.0 KiB", "ab", "1, 2", "digits", "", "digits-1, digits-2"]);
    }
}
