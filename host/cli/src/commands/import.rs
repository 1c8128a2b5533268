//! `saggar import`: sends an ONNX file and its external tensor files to the server, which creates a model version.

use std::path::Path;
use std::time::Duration;

use saggar_rest::models::ImportedVersionDocument;
use saggar_serve::limits::IMPORT_BYTES_MAX;
use saggar_serving::{ImportError, ModelFiles};
use saggar_store::regular_file;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::args::ImportArgs;
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::commands::key::signing::read_error;
use crate::commands::serving_status::{ServingStatus, wait_for_version};
use crate::exit::{self, CliError};
use crate::multipart::{self, FormPart};
use crate::output::CliOutput;
use crate::units;

/// Maximum time to wait until the version serves.
const READY_TIME_MAX: Duration = Duration::from_secs(120);

pub(crate) fn import(args: &ImportArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let path = args.file.display();
    let files = read_model_files(&args.file)?;
    let stem = args.file.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = args.name.clone().unwrap_or_else(|| stem.replace(['_', ' '], "-"));
    let options = serde_json::to_string(&import_options(args)?).expect("options have text as keys");
    let route =
        format!("/api/v1/models/{}/import?options={}", encode_path_segment(&name), encode_path_segment(&options));
    output.print_note(&format!("Importing {path}"));
    for (name, bytes) in files.external() {
        output.print_note(&format!("with {name} ({})", units::format_bytes(bytes.len() as u64)));
    }
    let imported: ImportedVersionDocument = match files.external() {
        [] => {
            let bytes = files.model();
            client.post(&route, RequestBody::Bytes { content_type: "application/octet-stream", bytes })?
        }
        external => {
            let model = ("model", FormPart::file("model.onnx", files.model()));
            let external = external.iter().map(|(name, bytes)| (name.as_str(), FormPart::file(name, bytes)));
            let (content_type, bytes) = multipart::encode_form(std::iter::once(model).chain(external))?;
            client.post(&route, RequestBody::Bytes { content_type: &content_type, bytes: &bytes })?
        }
    };
    let version = imported.version;
    let stored = wait_until_ready(client, &name, version)?;
    if output.json {
        output.print_json(&imported);
    } else {
        output.print_line(&format!("{name}@{version}"));
    }
    if let Some(reason) = stored {
        output.print_note(&format!("{name}@{version} is stored but does not serve: {reason}"));
    } else if !output.json {
        output.print_note(&format!("Next: saggar models show {name} | saggar predict {name} -i INPUT=@FILE"));
    }
    Ok(())
}

/// Reads the model at `path` and its external tensor files.
pub(crate) fn read_model_files(path: &Path) -> Result<ModelFiles, CliError> {
    ModelFiles::read(path, IMPORT_BYTES_MAX as u64).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        match error {
            ImportError::MissingFile { .. } => CliError::new(exit::NOT_FOUND, "missing_file", message)
                .with_hint("keep the model and the files that its exporter wrote with it in one folder"),
            ImportError::Unreadable { .. } => CliError::new(exit::NOT_FOUND, "unreadable", message),
            _ => CliError::invalid(message),
        }
    })
}

/// The options for the plugin that reads the file.
#[derive(Serialize)]
struct ImportRequestOptions {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    batch: Vec<u32>,
    /// The dimensions of inputs by name; null for one that stays open.
    #[serde(skip_serializing_if = "Map::is_empty")]
    shapes: Map<String, Value>,
    /// The values of inputs by name.
    #[serde(skip_serializing_if = "Map::is_empty")]
    constants: Map<String, Value>,
    /// The preprocessing of image inputs by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    image_inputs: Option<Map<String, Value>>,
}

fn import_options(args: &ImportArgs) -> Result<ImportRequestOptions, CliError> {
    let (mut shapes, mut constants) = (Map::new(), Map::new());
    for text in &args.shape {
        let (input, shape) = split_name_value("--shape", text)?;
        let dim = |dim: &str| match dim {
            "?" => Ok(None),
            number => number.parse::<u32>().map(Some).map_err(|_| {
                CliError::invalid(format!("--shape {text}: {number:?} is not a dimension"))
                    .with_hint("expected an input and its dimensions, for example image=1x3x224x224")
            }),
        };
        let dims = shape.split('x').map(dim).collect::<Result<Vec<Option<u32>>, CliError>>()?;
        shapes.insert(input.to_owned(), dims.into());
    }
    for text in &args.constant {
        let (input, value) = split_name_value("--constant", text)?;
        let value = serde_json::from_str(value).map_err(|error| {
            CliError::invalid(format!("--constant {text}: {error}"))
                .with_hint("expected an input and a JSON value, for example k=5")
        })?;
        constants.insert(input.to_owned(), value);
    }
    let image_inputs = args.image_inputs.as_deref().map(read_image_inputs).transpose()?;
    Ok(ImportRequestOptions { batch: args.batch.clone(), shapes, constants, image_inputs })
}

/// Reads the file of the preprocessing of image inputs. The server checks each of them.
fn read_image_inputs(path: &Path) -> Result<Map<String, Value>, CliError> {
    let text = regular_file::read(path, IMPORT_BYTES_MAX as u64).map_err(|error| read_error(path, &error))?;
    serde_json::from_slice(&text).map_err(|error| {
        CliError::invalid(format!("--image-inputs {}: {error}", path.display()))
            .with_hint("expected a JSON object with a preprocessing for each image input")
    })
}

fn split_name_value<'a>(flag: &str, text: &'a str) -> Result<(&'a str, &'a str), CliError> {
    text.split_once('=').ok_or_else(|| CliError::invalid(format!("{flag} {text}: expected NAME=VALUE")))
}

/// Waits until the version serves. Returns the reason if it is stored but policy keeps it from serving.
///
/// # Errors
/// Fails if the version is rejected, or is not ready in time.
fn wait_until_ready(client: &ApiClient, name: &str, version: u64) -> Result<Option<String>, CliError> {
    match wait_for_version(client, name, version, READY_TIME_MAX)? {
        ServingStatus::Serving => Ok(None),
        ServingStatus::NotServing(reason) => Ok(Some(reason)),
        ServingStatus::Refused(reason) => {
            Err(CliError::invalid(format!("{name}@{version} was imported but does not load: {reason}")))
        }
        ServingStatus::Pending => {
            let message = format!("{name}@{version} was imported but is not ready yet");
            Err(CliError::new(exit::CONFLICT, "not_ready", message).with_hint("`saggar models ls` shows its state"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(shape: &[&str], constant: &[&str]) -> ImportArgs {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let (shape, constant) = (owned(shape), owned(constant));
        ImportArgs { file: "model.onnx".into(), name: None, batch: vec![1, 8], shape, constant, image_inputs: None }
    }

    #[test]
    fn import_flags_become_plugin_options() {
        let read = import_options(&args(&["image=1x3x?x224"], &["k=5", "axes=[0,1]"])).unwrap();
        let expected = r#"{"batch":[1,8],"shapes":{"image":[1,3,null,224]},"constants":{"k":5,"axes":[0,1]}}"#;
        assert_eq!(serde_json::to_string(&read).unwrap(), expected);
        assert!(import_options(&args(&["image"], &[])).is_err());
        assert!(import_options(&args(&["image=1xa"], &[])).is_err());
        assert!(import_options(&args(&[], &["k=oops"])).is_err());
    }
}
