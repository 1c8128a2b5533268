//! Multipart forms. Source: RFC 7578.

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart, Request};
use axum::http::header;
use bytes::Bytes;

use crate::error::ApiError;

/// A field of a form.
#[derive(Clone, Debug)]
pub(crate) struct FormField {
    /// The field's name, or empty if it has none.
    pub(crate) name: String,
    /// The file name, if the field declares one.
    pub(crate) file_name: Option<String>,
    /// The media type without parameters, or empty if none is declared.
    pub(crate) media_type: String,
    pub(crate) bytes: Bytes,
}

/// Returns the fields of a form in order, at most `most`. `declared` is the body's content type with the boundary.
///
/// # Errors
/// Returns `Form` if the body is not a form or has more fields.
pub(crate) async fn parse_fields(declared: &str, body: Bytes, most: usize) -> Result<Vec<FormField>, ApiError> {
    let broken = |reason: String| ApiError::Form { reason };
    let request = Request::builder().header(header::CONTENT_TYPE, declared).body(Body::from(body));
    let mut request = request.map_err(|error| broken(error.to_string()))?;
    // The body was read within the limit of its route. Without this, the extractor's own limit of 2 MiB would apply.
    DefaultBodyLimit::disable().apply(&mut request);
    let mut form = Multipart::from_request(request, &()).await.map_err(|error| broken(error.body_text()))?;
    let mut fields = Vec::new();
    while let Some(field) = form.next_field().await.map_err(|error| broken(error.body_text()))? {
        if fields.len() == most {
            return Err(broken(format!("more than {most} fields")));
        }
        fields.push(FormField {
            name: field.name().unwrap_or_default().to_owned(),
            file_name: field.file_name().map(str::to_owned),
            media_type: media_type(field.content_type().unwrap_or_default()),
            bytes: field.bytes().await.map_err(|error| broken(error.body_text()))?,
        });
    }
    Ok(fields)
}

/// Returns the media type without parameters in lower case: `image/png` for `Image/PNG; charset=x`.
pub(crate) fn media_type(declared: &str) -> String {
    declared.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
