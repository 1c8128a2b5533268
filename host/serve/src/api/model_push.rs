//! `POST /api/v1/models/{model}/push`: creates a version from a plugin and weights that were made elsewhere.

use axum::extract::{Path, Request, State};
use axum::http::header;
use bytes::Bytes;
use saggar_rest::models::PublishedVersionDocument;
use saggar_serving::{PushedContent, PushedVersion};
use saggar_store::PublishedVersion;
use saggar_store::signature::SignatureError;

use super::versions::{published_document, room_check};
use crate::access::Actor;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::{ApiError, CreatedResponse};
use crate::limits::{IMPORT_BYTES_MAX, TENSOR_NAME_SHOWN_CHARS_MAX, UNREAD_TENSORS_SHOWN_MAX};
use crate::multipart_form::{self, FormField, media_type};
use crate::request_body::BufferedBody;
use crate::resource_access::publish_model_version;

/// The fields of a push.
const PUSH_FIELDS: &[&str] = &["plugin", "weights", "config", "image-inputs", "card"];

/// Publishes the content, loads it if it is to be served, and returns its state.
pub(crate) async fn push(
    State(app): State<AppState>,
    Path(model): Path<String>,
    request: Request,
) -> Result<CreatedResponse<PublishedVersionDocument>, ApiError> {
    let actor = Actor::from_extensions(request.extensions());
    refuse_unsigned(&app)?;
    let UploadedParts { body, mut fields } = read_parts(&app, request, PUSH_FIELDS, "plugin").await?;
    let content = PushedContent {
        plugin: fields.take("plugin").ok_or_else(|| missing_field("plugin"))?,
        weights: fields.take("weights"),
        config: fields.take("config"),
        image_inputs: fields.take("image-inputs"),
        card: fields.take("card"),
    };
    let room = room_check(&app);
    let work = app.lifecycle().push(&model, content, room);
    let published = publish_model_version(&app, &actor.rights, &model, work).await;
    drop(body);
    let detail = published.as_ref().map_or_else(|_| String::new(), |it| format!("version {}", it.version.version));
    app.audit().record(&actor, AuditAction::ModelPush, &model, &detail, &published);
    let PushedVersion { version, unread_weights } = published?;
    published_response(&app, model, version, unread_weights_note(&unread_weights).into_iter().collect()).await
}

/// Returns a note that names the tensors of the weights that the plugin did not ask for, or `None` without any.
fn unread_weights_note(names: &[String]) -> Option<String> {
    let shorten = |name: &String| match name.char_indices().nth(TENSOR_NAME_SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.clone(),
    };
    let mut listed: Vec<String> = names.iter().take(UNREAD_TENSORS_SHOWN_MAX).map(shorten).collect();
    if let Some(more) = names.len().checked_sub(UNREAD_TENSORS_SHOWN_MAX).filter(|more| *more > 0) {
        listed.push(format!("and {more} more"));
    }
    let tensors = if names.len() == 1 { "1 tensor".to_owned() } else { format!("{} tensors", names.len()) };
    let note = format!("the plugin did not ask for {tensors} of the weights while it loaded: {}", listed.join(", "));
    (!names.is_empty()).then_some(note)
}

/// Refuses content without a signature if this server demands one.
///
/// # Errors
/// Returns `Signature`.
pub(crate) fn refuse_unsigned(app: &AppState) -> Result<(), ApiError> {
    let keys = &app.parts().trusted_keys;
    if keys.is_empty() {
        return Ok(());
    }
    let trusted = keys.iter().map(|key| key.id()).collect::<Vec<_>>().join(", ");
    Err(SignatureError::Missing { trusted }.into())
}

/// Loads a version that was published, and returns the response that says whether it serves, with these notes.
pub(super) async fn published_response(
    app: &AppState,
    model: String,
    published: PublishedVersion,
    notes: Vec<String>,
) -> Result<CreatedResponse<PublishedVersionDocument>, ApiError> {
    let status = app.lifecycle().load_published(&model).await?;
    Ok(CreatedResponse(PublishedVersionDocument { notes, ..published_document(model, &published, &status) }))
}

/// The parts of an upload, and the body that they share memory with.
pub(super) struct UploadedParts {
    /// Keeps the memory charged until the parts are dropped.
    pub(super) body: BufferedBody,
    pub(super) fields: UploadedFields,
}

/// The fields of an upload.
#[derive(Debug)]
pub(super) struct UploadedFields(Vec<FormField>);

impl UploadedFields {
    /// Removes and returns the bytes of a field, or `None` if it was not sent.
    pub(super) fn take(&mut self, name: &str) -> Option<Bytes> {
        let at = self.0.iter().position(|field| field.name == name)?;
        Some(self.0.remove(at).bytes)
    }
}

/// Reads a form with these fields, each at most once, or a body that is the field `whole` alone.
///
/// # Errors
/// Returns the errors of reading a body, and `Form` for a malformed form or another field.
pub(super) async fn read_parts(
    app: &AppState,
    request: Request,
    names: &[&str],
    whole: &str,
) -> Result<UploadedParts, ApiError> {
    let (parts, body) = request.into_parts();
    let body = app.body_reader().read(&parts, body, IMPORT_BYTES_MAX).await?;
    let declared = parts.headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let declared = declared.unwrap_or_default().into_owned();
    if media_type(&declared) != "multipart/form-data" {
        let field =
            FormField { name: whole.to_owned(), file_name: None, media_type: String::new(), bytes: body.bytes.clone() };
        return Ok(UploadedParts { body, fields: UploadedFields(vec![field]) });
    }
    let mut body = body;
    // The fields are copies.
    body.charge_copies(1).await?;
    let fields = multipart_form::parse_fields(&declared, body.bytes.clone(), names.len()).await?;
    for (at, field) in fields.iter().enumerate() {
        let name: String = field.name.chars().take(80).collect();
        if !names.contains(&field.name.as_str()) {
            let reason = format!("there is no field {name:?}; expected {}", names.join(", "));
            return Err(ApiError::Form { reason });
        }
        if fields[..at].iter().any(|other| other.name == field.name) {
            return Err(ApiError::Form { reason: format!("the field {name} is there twice") });
        }
    }
    Ok(UploadedParts { body, fields: UploadedFields(fields) })
}

/// Returns the error of a form without a required field.
pub(super) fn missing_field(name: &str) -> ApiError {
    ApiError::Form { reason: format!("the field {name} is missing") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_about_unread_tensors_is_bounded() {
        let names = |count: usize| (0..count).map(|at| format!("layer{at}")).collect::<Vec<_>>();
        assert_eq!(unread_weights_note(&[]), None);
        let one = "the plugin did not ask for 1 tensor of the weights while it loaded: layer0";
        assert_eq!(unread_weights_note(&names(1)).as_deref(), Some(one));
        let exact = unread_weights_note(&names(UNREAD_TENSORS_SHOWN_MAX)).unwrap();
        assert!(exact.contains(" 20 tensors ") && exact.ends_with(", layer18, layer19"), "{exact}");
        let many = unread_weights_note(&names(100_000)).unwrap();
        assert!(many.contains(" 100000 tensors ") && many.ends_with(", layer19, and 99980 more"), "{many}");
        let long = unread_weights_note(&["\u{e9}".repeat(1000)]).unwrap();
        assert!(long.ends_with(&format!(": {}...", "\u{e9}".repeat(TENSOR_NAME_SHOWN_CHARS_MAX))), "{long}");
    }
}
