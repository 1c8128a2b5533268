//! The options of an import: what the server itself applies, and what it passes to the plugin that reads the file.

use saggar_store::{ImageInputs, read_image_inputs};
use serde_json::{Map, Value};

use super::import_error::ImportError;

/// The member that the server applies.
const IMAGE_INPUTS: &str = "image_inputs";

/// The options of an import.
#[derive(Debug, PartialEq)]
pub(super) struct ImportOptions {
    /// The options for the plugin that reads the file, a JSON object.
    pub(super) plugin: String,
    /// The preprocessing of the version's image inputs.
    pub(super) image_inputs: ImageInputs,
}

impl ImportOptions {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// Returns `Options` and `ImageInputs`.
    pub(super) fn read(text: &str) -> Result<ImportOptions, ImportError> {
        let parsed = serde_json::from_str::<Map<String, Value>>(text);
        let mut members = parsed.map_err(|error| ImportError::Options { reason: error.to_string() })?;
        let Some(inputs) = members.remove(IMAGE_INPUTS) else {
            return Ok(ImportOptions { plugin: text.to_owned(), image_inputs: ImageInputs::new() });
        };
        let image_inputs = read_image_inputs(inputs.to_string().as_bytes())?;
        Ok(ImportOptions { plugin: Value::Object(members).to_string(), image_inputs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_inputs_are_not_passed_to_the_plugin() {
        let text = r#"{"batch": [1], "image_inputs": {"image": {
            "resize": {"height": 4, "width": 6, "fit": "crop"}, "colors": "grey", "layout": "nchw",
            "normalization": {"mean-and-scale": {"mean": [127.5], "scale": [0.0078125]}}
        }}}"#;
        let read = ImportOptions::read(text).unwrap();
        assert_eq!(read.plugin, r#"{"batch":[1]}"#);
        let summary = "4 x 6 pixels, crop, grey, mean [127.5] and scale [0.0078125], nchw";
        assert_eq!(read.image_inputs["image"].to_string(), summary);
        let without = ImportOptions::read(r#"{ "batch": [1] }"#).unwrap();
        assert_eq!((&*without.plugin, without.image_inputs.len()), (r#"{ "batch": [1] }"#, 0));
    }

    #[test]
    fn wrong_options_are_refused_with_the_input_and_the_field() {
        for (text, expected) in [
            ("[1]", "the options are no JSON object: "),
            (r#"{"image_inputs": 3}"#, "the image inputs are no JSON object"),
            (r#"{"image_inputs": {"image": {"colors": "grey"}}}"#, "input image: missing field `resize`"),
            (r#"{"image_inputs": {"image": {"size": 3}}}"#, "input image: unknown field `size`"),
        ] {
            let error = ImportOptions::read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
