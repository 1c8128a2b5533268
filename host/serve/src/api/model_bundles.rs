//! Bundles: `POST /api/v1/models/{model}/bundle` and `GET /api/v1/models/{model}/versions/{version}/bundle`.

use axum::extract::{Path, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use saggar_rest::models::PublishedVersionDocument;
use saggar_serving::ImportError;
use saggar_store::AccessAction;
use saggar_store::models::bundle::ModelBundle;
use saggar_store::signature::{self, SignatureError};

use super::file_stream;
use super::model_push::{UploadedParts, missing_field, published_response, read_parts};
use super::versions::room_check;
use crate::access::Actor;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::{ApiError, CreatedResponse};
use crate::resource_access::{check_model, publish_model_version};

/// The fields of an import.
const BUNDLE_FIELDS: &[&str] = &["bundle", "signature"];

/// Verifies a bundle and its signature, publishes it, loads it if it is to be served, and returns its state.
pub(crate) async fn import(
    State(app): State<AppState>,
    Path(model): Path<String>,
    request: Request,
) -> Result<CreatedResponse<PublishedVersionDocument>, ApiError> {
    let actor = Actor::from_extensions(request.extensions());
    let UploadedParts { body, mut fields } = read_parts(&app, request, BUNDLE_FIELDS, "bundle").await?;
    let file = fields.take("bundle").ok_or_else(|| missing_field("bundle"))?;
    let signature = fields.take("signature");
    let verify = move |parts: &crate::AppParts| {
        if !parts.trusted_keys.is_empty() {
            let text = signature.as_deref().map(std::str::from_utf8).transpose();
            let text = text.map_err(|error| SignatureError::BadSignature { reason: error.to_string() })?;
            signature::verify(&file, text, &parts.trusted_keys)?;
        }
        ModelBundle::read(&file).map_err(|error| ApiError::from(ImportError::from(error)))
    };
    // The rights come first, so that a key learns nothing about bundles for models of others.
    let work = async {
        let bundle = app.run_blocking(verify).await?;
        Ok::<_, ApiError>(app.lifecycle().import_bundle(&model, bundle, room_check(&app)).await?)
    };
    let published = publish_model_version(&app, &actor.rights, &model, work).await;
    drop(body);
    let detail = published.as_ref().map_or_else(|_| String::new(), |it| format!("version {}", it.version));
    app.audit().record(&actor, AuditAction::ModelBundle, &model, &detail, &published);
    published_response(&app, model, published?, Vec::new()).await
}

/// Returns a version as a bundle, after its files were verified. If the version is removed meanwhile, the response is
/// still completed.
pub(crate) async fn export(
    State(app): State<AppState>,
    Path((model, version)): Path<(String, String)>,
    actor: Actor,
) -> Result<Response, ApiError> {
    check_model(&app, &actor.rights, AccessAction::ReadWeights, &model).await?;
    let version = parse_version(&version)?;
    let name = model.clone();
    let open = move |parts: &crate::AppParts| {
        let (files, _) = parts.model_registry().open(&name, Some(version))?;
        Ok::<_, ApiError>(files.to_bundle(&name)?)
    };
    let bundle = app.run_blocking(open).await.map_err(|error| without_paths(error, &model, version))?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-tar".to_owned()),
        (header::CONTENT_LENGTH, bundle.total_bytes().to_string()),
        // An existing model's name contains no quotation mark.
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{model}-{version}.saggar\"")),
    ];
    let bytes = bundle.total_bytes();
    Ok((headers, file_stream::stream_body(bundle, bytes)).into_response())
}

/// Returns the version's number in a path.
pub(super) fn parse_version(text: &str) -> Result<u64, ApiError> {
    let got = || text.chars().take(80).collect();
    text.parse().map_err(|_| ApiError::Parameter { name: "version", expected: "a version's number", got: got() })
}

/// Replaces the errors of files, which name paths of this machine.
pub(super) fn without_paths(error: ApiError, model: &str, version: u64) -> ApiError {
    use saggar_store::ModelError;
    match error {
        ApiError::Model(ModelError::NotFound { .. }) => {
            let name = format!("{model}@{version}");
            ApiError::NotFound { kind: "version", name, hint: format!("GET /api/v1/models/{model} lists them") }
        }
        ApiError::Model(ModelError::Incomplete { file, problem }) => {
            let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            ApiError::Conflict {
                what: format!("{model}@{version}"),
                reason: format!("it is damaged: {file} {problem}"),
            }
        }
        error => error,
    }
}
