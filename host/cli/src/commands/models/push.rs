//! `saggar models push`: creates a version from a plugin and weights that were made elsewhere.

use std::borrow::Cow;
use std::path::Path;

use saggar_rest::models::PublishedVersionDocument;
use saggar_serve::limits::IMPORT_BYTES_MAX;
use saggar_store::regular_file;

use super::model_path;
use crate::args::ModelPushArgs;
use crate::client::{ApiClient, RequestBody};
use crate::commands::key::signing::read_error;
use crate::component_source::named_reference;
use crate::exit::CliError;
use crate::multipart::{self, FormPart};
use crate::output::CliOutput;

pub(super) fn push_version(args: &ModelPushArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let optional = |path: &Option<std::path::PathBuf>| path.as_deref().map(read_part).transpose();
    let plugin = match named_reference(&args.plugin) {
        Some(plugin) => Cow::Borrowed(plugin.component()),
        None => Cow::Owned(read_part(&args.plugin)?),
    };
    let parts = [
        ("weights", optional(&args.weights)?),
        ("config", optional(&args.config)?),
        ("image-inputs", optional(&args.image_inputs)?),
        ("card", optional(&args.card)?),
    ];
    let fields = parts.iter().filter_map(|(name, bytes)| Some((*name, FormPart::file(name, bytes.as_deref()?))));
    let fields = std::iter::once(("plugin", FormPart::file("plugin", &plugin))).chain(fields);
    let (content_type, bytes) = multipart::encode_form(fields)?;
    let body = RequestBody::Bytes { content_type: &content_type, bytes: &bytes };
    print_published(&client.post(&model_path(&args.name, "push"), body)?, output)
}

fn read_part(path: &Path) -> Result<Vec<u8>, CliError> {
    regular_file::read(path, IMPORT_BYTES_MAX as u64).map_err(|error| read_error(path, &error))
}

/// Prints a version that was created, and why it does not serve, if so.
///
/// # Errors
/// Fails if the version could not be loaded.
pub(super) fn print_published(published: &PublishedVersionDocument, output: CliOutput) -> Result<(), CliError> {
    let PublishedVersionDocument { model, version, is_new, state, reason, notes } = published;
    if output.json {
        output.print_json(published);
    } else {
        output.print_line(&format!("{model}@{version}"));
    }
    if state == "FAILED" {
        return Err(CliError::invalid(format!("{model}@{version} was stored but does not load: {reason}")));
    }
    if !is_new {
        output.print_note(&format!("{model}@{version} has this content already"));
    }
    for note in notes {
        output.print_note(note);
    }
    if state != "READY" {
        output.print_note(&format!("{model}@{version} is stored but does not serve: {reason}"));
    } else if !output.json {
        output
            .print_note(&format!("Next: saggar models show {model}@{version} | saggar predict {model} -i INPUT=@FILE"));
    }
    Ok(())
}
