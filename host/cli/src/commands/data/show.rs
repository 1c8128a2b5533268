//! `saggar data show`: shows one version of a dataset.

use saggar_rest::datasets::{DatasetDocument, DatasetFieldDocument};

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
    let rows: Vec<Vec<String>> = newest.fields.iter().map(field_row).collect();
    output.print_table(&["FIELD", "TYPE", "SHAPE", "CLASSES"], &rows);
    if !newest.notes.is_empty() {
        output.print_line("");
    }
    newest.notes.iter().for_each(|note| output.print_line(&format!("note: {note}")));
    Ok(())
}

fn version_facts(newest: &DatasetDocument, all: &[DatasetDocument]) -> [(&'static str, String); 8] {
    let splits: Vec<String> = newest.splits.iter().map(|(name, items)| format!("{name} {items}")).collect();
    let numbers: Vec<String> = all.iter().map(|it| it.version.to_string()).collect();
    [
        ("items", newest.items.to_string()),
        ("splits", splits.join(", ")),
        ("size", units::format_bytes(newest.bytes)),
        ("digest", newest.digest.clone()),
        ("versions", if numbers.len() > 1 { numbers.join(", ") } else { String::new() }),
        ("projects", newest.projects.join(", ")),
        ("read by", newest.used_by.join(", ")),
        ("was read by", newest.was_used_by.join(", ")),
    ]
}

fn field_row(field: &DatasetFieldDocument) -> Vec<String> {
    vec![field.name.clone(), field.dtype.clone(), format!("{:?}", field.shape), class_names(&field.classes)]
}

/// Returns a field in one line: `label uint8[]: no, yes`.
pub(super) fn describe_field(field: &DatasetFieldDocument) -> String {
    let shape = format!("{} {}{:?}", field.name, field.dtype, field.shape);
    if field.classes.is_empty() { shape } else { format!("{shape}: {}", class_names(&field.classes)) }
}

/// Returns the names of a field's classes, or their number if they are many, or `-` if the field has none.
fn class_names(classes: &[String]) -> String {
    match classes {
        [] => "-".to_owned(),
        names if names.len() <= CLASS_NAMES_MAX => names.join(", "),
        names => format!("{} classes", names.len()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn dataset_fields_and_facts_are_listed() {
        let field = |field: Value| field_row(&serde_json::from_value(field).unwrap());
        let image = json!({ "name": "image", "dtype": "uint8", "shape": [8, 8] });
        assert_eq!(field(image), ["image", "uint8", "[8, 8]", "-"]);
        let label = json!({ "name": "label", "dtype": "uint8", "shape": [], "classes": ["no", "yes"] });
        assert_eq!(field(label.clone()), ["label", "uint8", "[]", "no, yes"]);
        let label = DatasetFieldDocument { classes: vec!["no".to_owned()], ..serde_json::from_value(label).unwrap() };
        assert_eq!(describe_field(&label), "label uint8[]: no");
        assert_eq!(class_names(&["a", "b", "c", "d", "e", "f"].map(str::to_owned)), "6 classes");
        let version = |document: Value| serde_json::from_value::<DatasetDocument>(document).unwrap();
        let newest = version(json!({
            "items": 7, "bytes": 2048, "digest": "ab", "version": 2, "splits": { "test": 2, "train": 5 },
            "projects": ["digits"], "used_by": [], "was_used_by": ["digits-1", "digits-2"],
        }));
        let facts = version_facts(&newest, &[version(json!({ "version": 1 })), newest.clone()]);
        let text: Vec<&str> = facts.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(text, ["7", "test 2, train 5", "2.0 KiB", "ab", "1, 2", "digits", "", "digits-1, digits-2"]);
    }
}
