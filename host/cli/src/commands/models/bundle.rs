//! `saggar models export` and `saggar models import-bundle`: a version as one file.

use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use saggar_rest::models::{ModelDocument, PublishedVersionDocument};
use saggar_serve::limits::IMPORT_BYTES_MAX;
use saggar_store::models::bundle::ModelBundle;
use saggar_store::regular_file;
use saggar_store::signature::{self, VerifyingKey};
use serde::Serialize;

use super::model_path;
use super::push::print_published;
use crate::args::{BundleImportArgs, ModelExportArgs};
use crate::atomic_file;
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::commands::key::signing::{read_error, read_public_key, read_small_file, signature_path};
use crate::exit::{self, CliError};
use crate::multipart::{self, FormPart};
use crate::output::CliOutput;
use crate::progress::ProgressDisplay;
use crate::units;

/// A bundle that was written, as JSON.
#[derive(Serialize)]
struct ExportedBundle<'a> {
    model: &'a str,
    version: u64,
    file: String,
    bytes: u64,
}

pub(super) fn export_bundle(args: &ModelExportArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let (model, version) = match args.model.split_once('@') {
        Some((model, version)) => (model, version.to_owned()),
        None => (args.model.as_str(), serving_version(&args.model, client)?.to_string()),
    };
    if args.file.exists() && !args.force {
        let message = format!("{} is there already", args.file.display());
        return Err(CliError::new(exit::CONFLICT, "exists", message).with_hint("--force replaces it"));
    }
    let path = model_path(model, &format!("versions/{}/bundle", encode_path_segment(&version)));
    let (bytes, body) = client.download(&path)?;
    let part = atomic_file::partial_path(&args.file);
    let written = write_bundle(body, bytes, &part, output).and_then(|()| std::fs::rename(&part, &args.file));
    if let Err(error) = written {
        let _ = std::fs::remove_file(&part);
        return Err(CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", args.file.display())));
    }
    let (file, version) = (args.file.display().to_string(), version.parse().unwrap_or_default());
    if output.json {
        output.print_json(&ExportedBundle { model, version, file, bytes });
    } else {
        output.print_line(&file);
        let size = units::format_bytes(bytes);
        output.print_note(&format!("  {model}@{version}, {size}. `saggar models import-bundle {file}` reads it"));
    }
    Ok(())
}

/// Returns the version that default requests get.
fn serving_version(model: &str, client: &ApiClient) -> Result<u64, CliError> {
    let document: ModelDocument = client.get(&format!("/api/v1/models/{}", encode_path_segment(model)))?;
    document.serving.ok_or_else(|| {
        CliError::new(exit::NOT_FOUND, "not_serving", format!("no version of {model} serves"))
            .with_hint(format!("name one: `saggar models export {model}@VERSION FILE`"))
    })
}

/// Writes the body to a new file and makes it durable.
fn write_bundle(mut body: impl io::Read, bytes: u64, part: &Path, output: CliOutput) -> io::Result<()> {
    let mut file = std::fs::File::create(part)?;
    let mut progress = ProgressDisplay::for_bytes("fetching", bytes, output);
    let mut buffer = vec![0; 256 << 10];
    let mut left = bytes;
    while left > 0 {
        let read = body.read(&mut buffer)?;
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the server's answer ends {left} bytes early"),
            ));
        }
        file.write_all(&buffer[..read])?;
        left = left.saturating_sub(read as u64);
        progress.advance(read as u64);
    }
    file.sync_all()
}

pub(super) fn import_bundle(args: &BundleImportArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let file =
        regular_file::read(&args.file, IMPORT_BYTES_MAX as u64).map_err(|error| read_error(&args.file, &error))?;
    let file = Bytes::from(file);
    let refuse = |code: &str, error: &dyn std::fmt::Display| {
        CliError::new(exit::INVALID, code, format!("{}: {error}", args.file.display()))
            .with_hint("nothing was imported")
    };
    let signature = match &args.signature {
        Some(path) => Some(read_small_file(path)?),
        None => Some(signature_path(&args.file))
            .filter(|path| path.exists())
            .map(|path| read_small_file(&path))
            .transpose()?,
    };
    let keys = args.public_key.iter().map(|key| read_public_key(key)).collect::<Result<Vec<VerifyingKey>, _>>()?;
    if !keys.is_empty() {
        let signer = signature::verify(&file, signature.as_deref(), &keys);
        let signer = signer.map_err(|error| refuse("bad_signature", &error))?;
        output.print_note(&format!("signed by the key {}", signer.id()));
    }
    // The server verifies the bundle itself. Here it names the model, and damage is reported without an upload.
    let bundle = ModelBundle::read(&file).map_err(|error| refuse("bad_bundle", &error))?;
    let name = args.name.as_deref().unwrap_or(&bundle.model);
    let published: PublishedVersionDocument = match &signature {
        None => {
            let body = RequestBody::Bytes { content_type: "application/octet-stream", bytes: &file };
            client.post(&model_path(name, "bundle"), body)?
        }
        Some(signature) => {
            let signature = FormPart::file("bundle.minisig", signature.as_bytes());
            let fields = [("bundle", FormPart::file("bundle", &file)), ("signature", signature)];
            let (content_type, bytes) = multipart::encode_form(fields)?;
            client
                .post(&model_path(name, "bundle"), RequestBody::Bytes { content_type: &content_type, bytes: &bytes })?
        }
    };
    print_published(&published, output)
}
