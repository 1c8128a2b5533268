//! `POST /api/v1/models/{model}/import`: creates a model version from an ONNX file.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::header;
use bytes::Bytes;
use saggar_rest::models::ImportedVersionDocument;
use saggar_serving::limits::EXTERNAL_FILES_MAX;
use saggar_serving::{ImportError, ModelFiles};
use serde_json::Value;

use super::model_push::refuse_unsigned;
use super::query::QueryParameters;
use crate::access::Actor;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;
use crate::limits::IMPORT_BYTES_MAX;
use crate::multipart_form::{self, FormField, media_type};
use crate::resource_access::publish_model_version;

/// Imports a model. The body is the ONNX file, or a form with that file and its external data files; `options`, a JSON
/// object, is passed to the plugin that reads it. The response names the version, which is then loaded like any other.
pub(crate) async fn import(
    State(app): State<AppState>,
    Path(model): Path<String>,
    parameters: QueryParameters,
    request: Request,
) -> Result<Json<ImportedVersionDocument>, ApiError> {
    let options = parameters.get("options").unwrap_or("{}").to_owned();
    if !serde_json::from_str::<Value>(&options).is_ok_and(|options| options.is_object()) {
        let got = options.chars().take(80).collect();
        return Err(ApiError::Parameter { name: "options", expected: "a JSON object", got });
    }
    let actor = Actor::from_extensions(request.extensions());
    refuse_unsigned(&app)?;
    let (parts, body) = request.into_parts();
    let body = app.body_reader().read(&parts, body, IMPORT_BYTES_MAX).await?;
    let declared = parts.headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let declared = declared.unwrap_or_default().into_owned();
    // The form's fields, and the archive built from them.
    let mut copies = body.new_charge();
    let fields = if media_type(&declared) == "multipart/form-data" {
        copies.resize(2 * body.bytes.len() as u64, None).await?;
        Some(multipart_form::parse_fields(&declared, body.bytes.clone(), EXTERNAL_FILES_MAX + 1).await?)
    } else {
        None
    };
    let name = model.clone();
    let import = move |parts: &crate::AppParts| {
        let _charged = copies;
        parts.check_storage_quota(body.bytes.len() as u64)?;
        let files = match fields {
            Some(fields) => model_files_from_form(fields)?,
            None => ModelFiles::read_with(body.bytes.clone(), missing_file)?,
        };
        Ok::<_, ApiError>(parts.importer.import(&name, &files, &options)?)
    };
    let published = publish_model_version(&app, &actor.rights, &model, app.run_blocking(import)).await;
    let detail =
        published.as_ref().map_or_else(|_| String::new(), |published| format!("version {}", published.version));
    app.audit().record(&actor, AuditAction::ModelImport, &model, &detail, &published);
    let published = published?;
    Ok(Json(ImportedVersionDocument { model, version: published.version, is_new: published.is_new }))
}

fn missing_file(name: &str) -> Result<Bytes, ImportError> {
    Err(ImportError::MissingFile { name: name.to_owned() })
}

/// Finds the model file in the form: the field `model`, or the file whose name ends in `.onnx`. The others are its
/// external data files.
fn model_files_from_form(mut fields: Vec<FormField>) -> Result<ModelFiles, ApiError> {
    let is_onnx = |field: &FormField| field.file_name.as_ref().is_some_and(|name| name.ends_with(".onnx"));
    let at = fields.iter().position(|field| field.name == "model").or_else(|| fields.iter().position(is_onnx));
    let Some(at) = at else {
        let reason =
            "no field is the model: expected a field named `model`, or a file whose name ends in .onnx".to_owned();
        return Err(ApiError::Form { reason });
    };
    let model = fields.remove(at).bytes;
    let mut used = vec![false; fields.len()];
    let files = ModelFiles::read_with(model, |name| {
        // Clients send only the last component of a file's name, and may name the field by its path in the model.
        let base = name.rsplit('/').next();
        let named = |field: &FormField| field.name == name || field.file_name.as_deref() == Some(name);
        let found = fields.iter().position(named);
        let found = found.or_else(|| fields.iter().position(|field| field.file_name.as_deref() == base));
        let Some(at) = found else { return missing_file(name) };
        used[at] = true;
        Ok(fields[at].bytes.clone())
    })?;
    match used.iter().position(|used| !used) {
        None => Ok(files),
        Some(at) => {
            let name = fields[at].file_name.clone().unwrap_or_else(|| fields[at].name.clone());
            let names: Vec<&str> = files.external().iter().map(|(name, _)| name.as_str()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(ImportError::UnknownFile { name, names }.into())
        }
    }
}
