//! `/api/v1/jobs/{job}/checkpoints`: listing, verifying and downloading checkpoints, also while the job runs.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use saggar_jobs::{CheckpointSelector, JobSpec};
use saggar_rest::checkpoints::{CheckpointDocument, CheckpointListDocument};
use saggar_store::CheckpointInfo;
use saggar_store::checkpoint::{BestMetric, CheckpointQuery, CheckpointVerification};
use saggar_store::error::CheckpointError;
use saggar_store::records::JobRecord;

use crate::api::metric_values::finite_metrics;
use crate::api::query::QueryParameters;
use crate::api::visible_job::VisibleJob;
use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /api/v1/jobs/{job}/checkpoints?verify=1`. With `verify`, every byte of each checkpoint is read.
pub(crate) async fn list(
    State(app): State<AppState>,
    VisibleJob(job): VisibleJob,
    parameters: QueryParameters,
) -> Result<Json<CheckpointListDocument>, ApiError> {
    if parameters.flag("verify") {
        let verified = app.checkpoints().verify(&job.id).await?;
        return Ok(Json(CheckpointListDocument { checkpoints: verified.iter().map(verified_checkpoint).collect() }));
    }
    let listed = app.checkpoints().list(&job.id).await?;
    let best = best_checkpoint_criterion(&job).and_then(|by| by.select_best(&listed)).map(|best| best.file.clone());
    let checkpoint = |info: &CheckpointInfo| checkpoint_document(info, best.as_ref() == Some(&info.file));
    Ok(Json(CheckpointListDocument { checkpoints: listed.iter().map(checkpoint).collect() }))
}

fn checkpoint_document(info: &CheckpointInfo, best: bool) -> CheckpointDocument {
    CheckpointDocument {
        step: info.step,
        epoch: info.epoch,
        bytes: Some(info.bytes),
        digest: Some(info.digest.to_string()),
        written_ms: Some(info.written_ms),
        metrics: Some(finite_metrics(&info.metrics)),
        best: Some(best),
        whole: None,
        reason: None,
    }
}

fn verified_checkpoint(verification: &CheckpointVerification) -> CheckpointDocument {
    match &verification.outcome {
        Ok(info) => CheckpointDocument { whole: Some(true), ..checkpoint_document(info, false) },
        Err(reason) => CheckpointDocument {
            step: verification.step,
            whole: Some(false),
            reason: Some(reason.clone()),
            ..CheckpointDocument::default()
        },
    }
}

/// Returns the metric by which the job keeps its best checkpoint.
pub(super) fn best_checkpoint_criterion(job: &JobRecord) -> Option<BestMetric> {
    serde_json::from_str::<JobSpec>(&job.spec).ok()?.checkpoint_keep_best
}

/// Handles `GET /api/v1/jobs/{job}/checkpoints/{which}`: a step, `latest` or `best`, as a safetensors file.
pub(crate) async fn download(
    State(app): State<AppState>,
    VisibleJob(job): VisibleJob,
    Path((_, which)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let refuse = |_| {
        let got = which.chars().take(80).collect();
        ApiError::Parameter { name: "checkpoint", expected: "a step, `latest` or `best`", got }
    };
    let which: CheckpointSelector = which.parse().map_err(refuse)?;
    let missing = || ApiError::NotFound {
        kind: "checkpoint",
        name: format!("{which} of {}", job.name),
        hint: format!("GET /api/v1/jobs/{}/checkpoints lists them", job.name),
    };
    let wanted = match which {
        CheckpointSelector::Step(step) => CheckpointQuery::Step(step),
        CheckpointSelector::Latest => CheckpointQuery::Latest,
        // Without a criterion the job keeps no best checkpoint.
        CheckpointSelector::Best => CheckpointQuery::Best(best_checkpoint_criterion(&job).ok_or_else(missing)?),
    };
    let export = app.checkpoints().export(&job.id, &wanted).await.map_err(|error| match error {
        CheckpointError::NotFound { .. } => missing(),
        error => error.into(),
    })?;
    let info = export.info();
    let headers = [
        (header::CONTENT_TYPE.as_str(), "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH.as_str(), export.bytes().to_string()),
        ("x-saggar-step", info.step.to_string()),
        ("x-saggar-digest", info.digest.to_string()),
    ];
    Ok((headers, Body::from_stream(export.into_stream())).into_response())
}
