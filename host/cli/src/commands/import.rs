//! `saggar import`: an ONNX file, and the files that it keeps tensors in, sent to the server, which makes a model version.

use std::path::Path;
use std::time::Duration;

use saggar_serve::limits::IMPORT_BYTES_MAX;
use saggar_serve::models::{ImportError, ModelFiles};
use serde_json::{Map, Value, json};

use crate::args::Import;
use crate::client::{Client, Payload, segment};
use crate::commands::standing::{VersionStanding, wait_for_version};
use crate::exit::{self, Failure};
use crate::multipart::{self, FormPart};
use crate::output::Output;
use crate::units;

/// How long the command looks whether the version serves.
const READY_TIME_MAX: Duration = Duration::from_secs(120);

pub(crate) fn import(args: &Import, client: &Client, output: Output) -> Result<(), Failure> {
    let path = args.file.display();
    let files = read(&args.file)?;
    let stem = args.file.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = args.name.clone().unwrap_or_else(|| stem.replace(['_', ' '], "-"));
    let options = options(args)?.to_string();
    let route = format!("/api/v1/models/{}/import?options={}", segment(&name), segment(&options));
    output.note(&format!("Importing {path}"));
    for (name, bytes) in files.external() {
        output.note(&format!("with {name} ({})", units::show_bytes(bytes.len() as u64)));
    }
    let made = match files.external() {
        [] => {
            let bytes = files.model();
            client.post(&route, Payload::Bytes { content_type: "application/octet-stream", bytes })?
        }
        external => {
            let model = ("model", FormPart::file("model.onnx", files.model()));
            let external = external.iter().map(|(name, bytes)| (name.as_str(), FormPart::file(name, bytes)));
            let (content_type, bytes) = multipart::body(std::iter::once(model).chain(external))?;
            client.post(&route, Payload::Bytes { content_type: &content_type, bytes: &bytes })?
        }
    };
    let version = made["version"].as_u64().unwrap_or(0);
    let stored = ready(client, &name, version)?;
    if output.json {
        output.json(&made);
    } else {
        output.line(&format!("{name}@{version}"));
    }
    if let Some(reason) = stored {
        output.note(&format!("{name}@{version} is stored and does not serve: {reason}"));
    } else if !output.json {
        output.note(&format!("Next: saggar models show {name} | saggar predict {name} -i INPUT=@FILE"));
    }
    Ok(())
}

/// The model at `path` and the files that it keeps tensors in.
pub(crate) fn read(path: &Path) -> Result<ModelFiles, Failure> {
    ModelFiles::read(path, IMPORT_BYTES_MAX as u64).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        match error {
            ImportError::MissingFile { .. } => Failure::new(exit::NOT_FOUND, "missing_file", message)
                .hint("keep the model and the files that its exporter wrote with it in one folder"),
            ImportError::Unreadable { .. } => Failure::new(exit::NOT_FOUND, "unreadable", message),
            _ => Failure::invalid(message),
        }
    })
}

fn options(args: &Import) -> Result<Value, Failure> {
    let mut options = Map::new();
    if !args.batch.is_empty() {
        options.insert("batch".to_owned(), json!(args.batch));
    }
    let (mut shapes, mut constants) = (Map::new(), Map::new());
    for text in &args.shape {
        let (input, shape) = pair("--shape", text)?;
        let dim = |dim: &str| match dim {
            "?" => Ok(Value::Null),
            number => number.parse::<u32>().map(|number| json!(number)).map_err(|_| {
                Failure::invalid(format!("--shape {text}: {number:?} is no dimension"))
                    .hint("expected such as image=1x3x224x224")
            }),
        };
        shapes.insert(input.to_owned(), Value::Array(shape.split('x').map(dim).collect::<Result<_, _>>()?));
    }
    for text in &args.constant {
        let (input, value) = pair("--constant", text)?;
        let value = serde_json::from_str(value)
            .map_err(|error| Failure::invalid(format!("--constant {text}: {error}")).hint("expected such as k=5"))?;
        constants.insert(input.to_owned(), value);
    }
    for (name, map) in [("shapes", shapes), ("constants", constants)] {
        if !map.is_empty() {
            options.insert(name.to_owned(), Value::Object(map));
        }
    }
    Ok(Value::Object(options))
}

fn pair<'a>(flag: &str, text: &'a str) -> Result<(&'a str, &'a str), Failure> {
    text.split_once('=').ok_or_else(|| Failure::invalid(format!("{flag} {text}: expected NAME=VALUE")))
}

/// Waits until the version serves. Where it is stored and is not to serve, why, and what helps.
///
/// # Errors
/// It was refused, or is not ready in time.
fn ready(client: &Client, name: &str, version: u64) -> Result<Option<String>, Failure> {
    match wait_for_version(client, name, version, READY_TIME_MAX)? {
        VersionStanding::Serves => Ok(None),
        VersionStanding::Stored(reason) => Ok(Some(reason)),
        VersionStanding::Refused(reason) => {
            Err(Failure::invalid(format!("{name}@{version} was imported but does not come up: {reason}")))
        }
        VersionStanding::Waits => {
            let message = format!("{name}@{version} was imported but is not ready yet");
            Err(Failure::new(exit::CONFLICT, "not_ready", message).hint("`saggar models ls` shows its state"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(shape: &[&str], constant: &[&str]) -> Import {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let (shape, constant) = (owned(shape), owned(constant));
        Import { file: "model.onnx".into(), name: None, batch: vec![1, 8], shape, constant }
    }

    #[test]
    fn options_are_what_the_plugin_takes() {
        let read = options(&args(&["image=1x3x?x224"], &["k=5", "axes=[0,1]"])).unwrap();
        let expected =
            json!({"batch": [1, 8], "shapes": {"image": [1, 3, null, 224]}, "constants": {"k": 5, "axes": [0, 1]}});
        assert_eq!(read, expected);
        assert!(options(&args(&["image"], &[])).is_err());
        assert!(options(&args(&["image=1xa"], &[])).is_err());
        assert!(options(&args(&[], &["k=oops"])).is_err());
    }
}
