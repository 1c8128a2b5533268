//! From a request's body, in any of the forms that are taken, to a model's inputs.

use axum::http::{HeaderMap, header};
use saggar_plugin::{ModelPort, Signature};

use super::decode::{self, DecodeError, Input, Inputs};
use super::image;
use crate::body::Whole;
use crate::error::ApiError;
use crate::form::{self, FormField, media_type};
use crate::limits::{FORM_FIELDS_MAX, INLINE_BYTES_MAX};

/// The inputs in a body of this content type.
///
/// # Errors
/// Whatever is wrong with it, as data of [`ApiError`].
pub(super) async fn inputs(signature: &Signature, headers: &HeaderMap, body: &Whole) -> Result<Inputs, ApiError> {
    let declared = headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let declared = declared.unwrap_or_default().to_string();
    let form = media_type(&declared) == "multipart/form-data";
    let fields = if form { form::fields(&declared, body.bytes.clone(), FORM_FIELDS_MAX).await? } else { Vec::new() };
    let bytes = body.bytes.clone();
    let decode = move |signature: &Signature| {
        if form { from_form(signature, &fields) } else { from_body(signature, &declared, &bytes) }
    };
    if body.bytes.len() <= INLINE_BYTES_MAX {
        return decode(signature);
    }
    let (signature, thread) = (signature.clone(), body.thread().await?);
    let work = move || {
        let _thread = thread;
        decode(&signature)
    };
    let decoded = tokio::task::spawn_blocking(work).await;
    decoded.map_err(|error| ApiError::Internal { cause: format!("decoding: {error}") })?
}

/// The inputs in a file or value that nobody declared a type for: a PNG or JPEG, or JSON.
///
/// # Errors
/// As [`inputs`].
pub(crate) fn sample(signature: &Signature, bytes: &[u8]) -> Result<Inputs, ApiError> {
    if image::is_picture(bytes) { picture(signature, bytes) } else { Ok(decode::json(signature, bytes)?) }
}

fn from_body(signature: &Signature, declared: &str, bytes: &[u8]) -> Result<Inputs, ApiError> {
    let expected = "application/json, multipart/form-data, image/png, image/jpeg or application/octet-stream";
    let refuse = || ApiError::MediaType { got: declared.chars().take(80).collect(), expected };
    match media_type(declared).as_str() {
        "application/json" => Ok(decode::json(signature, bytes)?),
        // What clients say that were not told better: `curl -d`, `curl --data-binary`.
        "" | "text/plain" | "application/x-www-form-urlencoded" if image::is_picture(bytes) => {
            picture(signature, bytes)
        }
        "" | "text/plain" | "application/x-www-form-urlencoded" if looks_like_json(bytes) => {
            Ok(decode::json(signature, bytes)?)
        }
        "image/png" | "image/jpeg" | "image/jpg" => picture(signature, bytes),
        "application/octet-stream" => {
            let port = only(signature)?;
            let input = if takes_pictures(port) && image::is_picture(bytes) {
                picture_input(port, bytes)?
            } else {
                raw(port, bytes)?
            };
            Ok(Inputs::new(signature, vec![input])?)
        }
        other if other.ends_with("+json") => Ok(decode::json(signature, bytes)?),
        _ => Err(refuse()),
    }
}

fn looks_like_json(bytes: &[u8]) -> bool {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    first.is_some_and(|first| b"{[\"-0123456789".contains(first))
}

fn picture(signature: &Signature, bytes: &[u8]) -> Result<Inputs, ApiError> {
    let port = only(signature)?;
    let input = picture_input(port, bytes)?;
    Ok(Inputs::new(signature, vec![input])?)
}

/// The item of a picture, and what is to be said of it.
fn picture_input(port: &ModelPort, bytes: &[u8]) -> Result<Input, ApiError> {
    let image::PictureItem { bytes, warning } = image::decode(port, bytes)?;
    Ok(Input::raw(port, bytes)?.with_warning(warning))
}

fn takes_pictures(port: &ModelPort) -> bool {
    image::geometry(port).is_some()
}

/// An item's bytes; of a text, as many as it has.
fn raw(port: &ModelPort, bytes: &[u8]) -> Result<Input, DecodeError> {
    match port.text_bytes() {
        Some(bytes_max) if bytes.len() != bytes_max => Input::text(port, bytes_max, bytes),
        _ => Input::raw(port, bytes.to_vec()),
    }
}

/// The input that is meant where none is named.
fn only(signature: &Signature) -> Result<&ModelPort, ApiError> {
    signature.only_input().ok_or_else(|| {
        let names: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
        let reason = format!("the model has several inputs: send JSON or a form with {}", names.join(", "));
        ApiError::Form { reason }
    })
}

fn from_form(signature: &Signature, fields: &[FormField]) -> Result<Inputs, ApiError> {
    if fields.is_empty() {
        let names: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
        return Err(ApiError::Form { reason: format!("it has no fields; expected {}", names.join(", ")) });
    }
    let mut inputs = Vec::with_capacity(fields.len());
    for field in fields {
        let port = match (decode::port(signature, &field.name), signature.only_input()) {
            (Ok(port), _) => port,
            // A file of any name is meant for the only input that is needed.
            (Err(_), Some(port)) if field.file_name.is_some() => port,
            (Err(error), _) => return Err(error.into()),
        };
        inputs.push(from_field(port, field)?);
    }
    Ok(Inputs::new(signature, inputs)?)
}

/// Whether this is a JSON string or array, and nothing else.
fn is_json(bytes: &[u8]) -> bool {
    let begins = bytes.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| b"[\"".contains(byte));
    begins && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

fn from_field(port: &ModelPort, field: &FormField) -> Result<Input, ApiError> {
    let is_picture = image::is_picture(&field.bytes) || field.media_type.starts_with("image/");
    if is_picture {
        return picture_input(port, &field.bytes);
    }
    let is_raw = field.media_type == "application/octet-stream";
    if let Some(bytes_max) = port.text_bytes() {
        return Ok(match field.media_type.as_str() {
            "application/octet-stream" => raw(port, &field.bytes)?,
            "application/json" => Input::json(port, &field.bytes)?,
            // Of a field that does not say what it is, whole JSON that could be the input is taken for that.
            "" if is_json(&field.bytes) => Input::json(port, &field.bytes)?,
            _ => Input::text(port, bytes_max, &field.bytes)?,
        });
    }
    if is_raw && field.bytes.len() == port.item.bytes() {
        return Ok(Input::raw(port, field.bytes.to_vec())?);
    }
    if field.file_name.is_some() && takes_pictures(port) && !looks_like_json(&field.bytes) {
        // Says what the file is instead.
        return picture_input(port, &field.bytes);
    }
    Ok(Input::json(port, &field.bytes)?)
}
