//! Decodes a request's body, in any of the supported formats, into a model's inputs.

use axum::http::{HeaderMap, header};
use saggar_plugin::{ModelPort, ModelSignature};
use saggar_serving::PredictionInputs;

use super::decode::{self, DecodeError, PredictionInput, assemble_inputs};
use super::{image, json_inputs};
use crate::error::ApiError;
use crate::limits::{FORM_FIELDS_MAX, INLINE_BYTES_MAX};
use crate::multipart_form::{self, FormField, media_type};
use crate::request_body::BufferedBody;

/// Decodes a body of the content type in `headers`.
///
/// # Errors
/// Returns the problem with the body as [`ApiError`].
pub(super) async fn decode_body(
    signature: &ModelSignature,
    headers: &HeaderMap,
    body: &BufferedBody,
) -> Result<PredictionInputs, ApiError> {
    let declared = headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let declared = declared.unwrap_or_default().to_string();
    let form = media_type(&declared) == "multipart/form-data";
    let fields = if form {
        multipart_form::parse_fields(&declared, body.bytes.clone(), FORM_FIELDS_MAX).await?
    } else {
        Vec::new()
    };
    let bytes = body.bytes.clone();
    let decode = move |signature: &ModelSignature| {
        if form { decode_form(signature, &fields) } else { decode_by_media_type(signature, &declared, &bytes) }
    };
    if body.bytes.len() <= INLINE_BYTES_MAX {
        return decode(signature);
    }
    let (signature, thread) = (signature.clone(), body.acquire_thread().await?);
    let work = move || {
        let _thread = thread;
        decode(&signature)
    };
    let decoded = tokio::task::spawn_blocking(work).await;
    decoded.map_err(|error| ApiError::Internal { cause: format!("decoding: {error}") })?
}

/// Decodes a warm-up sample: a PNG, JPEG or WebP, or JSON.
///
/// # Errors
/// Returns the problem with the sample as text.
pub fn decode_sample(signature: &ModelSignature, bytes: &[u8]) -> Result<PredictionInputs, String> {
    decode_untyped(signature, bytes).map_err(|error| error.to_string())
}

/// Decodes a file or value without a declared type: a PNG, JPEG or WebP, or JSON.
///
/// # Errors
/// Returns the errors of [`decode_body`].
pub(crate) fn decode_untyped(signature: &ModelSignature, bytes: &[u8]) -> Result<PredictionInputs, ApiError> {
    if image::is_image(bytes) {
        decode_image_body(signature, bytes)
    } else {
        Ok(json_inputs::decode_json(signature, bytes)?)
    }
}

fn decode_by_media_type(
    signature: &ModelSignature,
    declared: &str,
    bytes: &[u8],
) -> Result<PredictionInputs, ApiError> {
    let expected =
        "application/json, multipart/form-data, image/png, image/jpeg, image/webp or application/octet-stream";
    let refuse = || ApiError::MediaType { got: declared.chars().take(80).collect(), expected };
    match media_type(declared).as_str() {
        "application/json" => Ok(json_inputs::decode_json(signature, bytes)?),
        // The default content types of clients such as `curl -d` and `curl --data-binary`.
        "" | "text/plain" | "application/x-www-form-urlencoded" if image::is_image(bytes) => {
            decode_image_body(signature, bytes)
        }
        "" | "text/plain" | "application/x-www-form-urlencoded" if looks_like_json(bytes) => {
            Ok(json_inputs::decode_json(signature, bytes)?)
        }
        "image/png" | "image/jpeg" | "image/jpg" | "image/webp" => decode_image_body(signature, bytes),
        "application/octet-stream" => {
            let port = sole_input(signature)?;
            let input = if takes_images(port) && image::is_image(bytes) {
                image_input(port, bytes)?
            } else {
                raw_input(port, bytes)?
            };
            Ok(assemble_inputs(signature, vec![input])?)
        }
        other if other.ends_with("+json") => Ok(json_inputs::decode_json(signature, bytes)?),
        _ => Err(refuse()),
    }
}

fn looks_like_json(bytes: &[u8]) -> bool {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    first.is_some_and(|first| b"{[\"-0123456789".contains(first))
}

fn decode_image_body(signature: &ModelSignature, bytes: &[u8]) -> Result<PredictionInputs, ApiError> {
    let port = sole_input(signature)?;
    let input = image_input(port, bytes)?;
    Ok(assemble_inputs(signature, vec![input])?)
}

/// Decodes an image into an item, with a warning if it lost information.
fn image_input(port: &ModelPort, bytes: &[u8]) -> Result<PredictionInput, ApiError> {
    let image::ImageItem { bytes, warning } = image::decode_image(port, bytes)?;
    Ok(PredictionInput::from_raw_bytes(port, bytes)?.with_warning(warning))
}

fn takes_images(port: &ModelPort) -> bool {
    image::image_geometry(port).is_some()
}

/// Returns an input of raw bytes. For a text port, any length up to the maximum is accepted.
fn raw_input(port: &ModelPort, bytes: &[u8]) -> Result<PredictionInput, DecodeError> {
    match port.text_bytes_max() {
        Some(bytes_max) if bytes.len() != bytes_max => PredictionInput::from_text(port, bytes_max, bytes),
        _ => PredictionInput::from_raw_bytes(port, bytes.to_vec()),
    }
}

/// Returns the input that an unnamed value is for.
fn sole_input(signature: &ModelSignature) -> Result<&ModelPort, ApiError> {
    signature.only_input().ok_or_else(|| {
        let names: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
        let reason = format!("the model has several inputs: send JSON or a form with {}", names.join(", "));
        ApiError::Form { reason }
    })
}

fn decode_form(signature: &ModelSignature, fields: &[FormField]) -> Result<PredictionInputs, ApiError> {
    if fields.is_empty() {
        let names: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
        return Err(ApiError::Form { reason: format!("it has no fields; expected {}", names.join(", ")) });
    }
    let mut inputs = Vec::with_capacity(fields.len());
    for field in fields {
        let port = match (decode::find_input(signature, &field.name), signature.only_input()) {
            (Ok(port), _) => port,
            // A file under any field name is for the only required input.
            (Err(_), Some(port)) if field.file_name.is_some() => port,
            (Err(error), _) => return Err(error.into()),
        };
        inputs.push(decode_form_field(port, field)?);
    }
    Ok(assemble_inputs(signature, inputs)?)
}

/// Returns whether this is a single JSON string or array.
fn is_json_string_or_array(bytes: &[u8]) -> bool {
    let begins = bytes.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| b"[\"".contains(byte));
    begins && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

fn decode_form_field(port: &ModelPort, field: &FormField) -> Result<PredictionInput, ApiError> {
    let is_picture = image::is_image(&field.bytes) || field.media_type.starts_with("image/");
    if is_picture {
        return image_input(port, &field.bytes);
    }
    let is_raw = field.media_type == "application/octet-stream";
    if let Some(bytes_max) = port.text_bytes_max() {
        return Ok(match field.media_type.as_str() {
            "application/octet-stream" => raw_input(port, &field.bytes)?,
            "application/json" => json_inputs::decode_json_input(port, &field.bytes)?,
            // In a field without a content type, valid JSON that can be the input is decoded as JSON.
            "" if is_json_string_or_array(&field.bytes) => json_inputs::decode_json_input(port, &field.bytes)?,
            _ => PredictionInput::from_text(port, bytes_max, &field.bytes)?,
        });
    }
    if is_raw && field.bytes.len() == port.item.bytes() {
        return Ok(PredictionInput::from_raw_bytes(port, field.bytes.to_vec())?);
    }
    if field.file_name.is_some() && takes_images(port) && !looks_like_json(&field.bytes) {
        // This returns an error that names the file's format.
        return image_input(port, &field.bytes);
    }
    Ok(json_inputs::decode_json_input(port, &field.bytes)?)
}
