//! The JSON Schema of `dataset.json`, generated from the types that read it.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{
    ArrayFilesDescription, ColumnFilesDescription, CsvDescription, ImageFoldersDescription, JsonLinesDescription,
    NamedFilesDescription, TextFilesDescription, WebDatasetDescription,
};

/// Returns the schema of a `dataset.json`: JSON Schema, draft 2020-12, with an alternative for each format.
pub fn dataset_description_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut alternatives = Vec::new();
    let mut add = |format: &str, schema: schemars::Schema| alternatives.push(with_format(format, schema.to_value()));
    add("csv", CsvDescription::json_schema(&mut generator));
    add("jsonlines", JsonLinesDescription::json_schema(&mut generator));
    add("parquet", ColumnFilesDescription::json_schema(&mut generator));
    add("arrow", ColumnFilesDescription::json_schema(&mut generator));
    add("npy", ArrayFilesDescription::json_schema(&mut generator));
    add("text", TextFilesDescription::json_schema(&mut generator));
    add("webdataset", WebDatasetDescription::json_schema(&mut generator));
    add("images", ImageFoldersDescription::json_schema(&mut generator));
    for format in ["npz", "safetensors", "idx", "cifar10"] {
        add(format, NamedFilesDescription::json_schema(&mut generator));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dataset.json",
        "description": "What the files of a folder mean when it is pushed as a dataset of saggar.",
        "oneOf": alternatives,
        "$defs": generator.take_definitions(true),
    })
}

/// Adds the key `format`, which selects the description, to its schema.
fn with_format(format: &str, mut schema: Value) -> Value {
    let Some(object) = schema.as_object_mut() else { return schema };
    let properties = object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("format".to_owned(), json!({ "const": format }));
    }
    let required = object.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut() {
        required.insert(0, json!("format"));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::super::DatasetDescription;
    use super::*;

    /// Returns the formats of the schema's alternatives.
    fn formats(schema: &Value) -> Vec<&str> {
        let alternatives = schema["oneOf"].as_array().unwrap().iter();
        alternatives.map(|schema| schema["properties"]["format"]["const"].as_str().unwrap()).collect()
    }

    #[test]
    fn the_schema_has_every_format_that_is_read() {
        let schema = dataset_description_schema();
        let error = serde_json::from_str::<DatasetDescription>(r#"{"format": "x"}"#).unwrap_err().to_string();
        let known: std::collections::BTreeSet<&str> = error.split('`').skip(3).step_by(2).collect();
        assert_eq!(formats(&schema).into_iter().collect::<std::collections::BTreeSet<_>>(), known);
        for alternative in schema["oneOf"].as_array().unwrap() {
            assert_eq!(alternative["additionalProperties"], false, "{alternative}");
            assert_eq!(alternative["required"][0], "format");
        }
    }
}
