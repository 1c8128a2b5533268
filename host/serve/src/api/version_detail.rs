//! `GET /api/v1/models/{model}/versions/{version}`: what a version is made from and contains.

use axum::Json;
use axum::extract::{Path, State};
use saggar_rest::model_versions::{ProvenanceDocument, VersionDetailDocument, VersionFileDocument};
use saggar_store::ModelError;
use saggar_store::models::{self, FileEntry, ModelProvenance, TrainingOrigin};

use super::model_bundles::{parse_version, without_paths};
use super::models::version_document;
use super::query::QueryParameters;
use super::training_origin::{origin_document, training_origin};
use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;

/// Returns the version. With `verify=true`, reads all its files.
pub(crate) async fn get(
    State(app): State<AppState>,
    sight: ProjectScope,
    Path((model, version)): Path<(String, String)>,
    parameters: QueryParameters,
) -> Result<Json<VersionDetailDocument>, ApiError> {
    let number = parse_version(&version)?;
    let verify = match parameters.get("verify") {
        None | Some("false") => false,
        Some("true" | "") => true,
        Some(other) => {
            let got = other.chars().take(80).collect();
            return Err(ApiError::Parameter { name: "verify", expected: "true or false", got });
        }
    };
    let status = app.models().status(&model)?;
    let listed = status.versions.iter().find(|version| version.version == number);
    let document = listed.map(|version| version_document(&status, version)).unwrap_or_default();
    let origin = match document.source_job.as_deref().filter(|job| !job.is_empty()) {
        Some(job) => training_origin(&app, &sight, job, (&model, number)).await?,
        None => TrainingOrigin::default(),
    };
    let name = model.clone();
    let read = move |parts: &crate::AppParts| {
        let dir = parts.model_registry().version_dir(&name, number)?;
        let files = models::check_files(&dir)?;
        let (tensors, elements) = files.count_elements()?;
        let damage = match verify.then(|| models::verify(&dir)) {
            None | Some(Ok(_)) => String::new(),
            Some(Err(ModelError::Incomplete { file, problem })) => {
                format!("{} {problem}", file.file_name().unwrap_or_default().to_string_lossy())
            }
            Some(Err(error)) => return Err(ApiError::from(error)),
        };
        // A damaged card is reported as such, and the rest is shown.
        let own_card = files.load_card().unwrap_or_default();
        let manifest = files.manifest;
        let has_own_card = manifest.file(models::CARD_FILE).is_some();
        let generated = if has_own_card { None } else { manifest.generated_card(&name, number, &origin) };
        Ok(VersionDetailDocument {
            model: name,
            version: document,
            stored_bytes: manifest.bytes(),
            files: manifest.files.iter().map(file_document).collect(),
            provenance: provenance_document(manifest.provenance),
            origin: origin_document(&origin),
            config: manifest.config,
            tensors,
            elements,
            is_card_generated: generated.is_some(),
            card: own_card.or(generated),
            intact: verify.then_some(damage.is_empty()),
            damage,
        })
    };
    let detail = app.run_blocking(read).await.map_err(|error| without_paths(error, &model, number))?;
    Ok(Json(detail))
}

fn file_document(file: &FileEntry) -> VersionFileDocument {
    VersionFileDocument { name: file.name.clone(), bytes: file.bytes, sha256: file.sha256.hex() }
}

fn provenance_document(it: ModelProvenance) -> ProvenanceDocument {
    let ModelProvenance { data, data_sha256, parameters, seed, step, device, program } = it;
    ProvenanceDocument { data, data_sha256, parameters, seed, step, device, program }
}
