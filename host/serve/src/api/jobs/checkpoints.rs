//! `/api/v1/jobs/{job}/checkpoints`: listing, verifying and downloading checkpoints, also while the job runs.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use saggar_jobs::{CheckpointSelector, JobSpec};
use saggar_store::CheckpointInfo;
use saggar_store::checkpoint::{BestMetric, CheckpointQuery};
use saggar_store::error::CheckpointError;
use saggar_store::records::JobRecord;
use serde_json::{Value, json};

use crate::access::VisibleJob;
use crate::api::query::QueryParameters;
use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /api/v1/jobs/{job}/checkpoints?verify=1`. With `verify`, every byte of each checkpoint is read.
pub(crate) async fn list(
    State(app): State<AppState>,
    VisibleJob(job): VisibleJob,
    parameters: QueryParameters,
) -> Result<Json<Value>, ApiError> {
    if parameters.flag("verify") {
        let verified = app.checkpoints().verify(&job.id).await?;
        let checkpoint = |it: &saggar_store::checkpoint::CheckpointVerification| match &it.outcome {
            Ok(info) => {
                let mut document = checkpoint_json(info, false);
                document["whole"] = json!(true);
                document
            }
            Err(reason) => json!({ "step": it.step, "epoch": null, "whole": false, "reason": reason }),
        };
        return Ok(Json(json!({ "checkpoints": verified.iter().map(checkpoint).collect::<Vec<Value>>() })));
    }
    let listed = app.checkpoints().list(&job.id).await?;
    let best = best_checkpoint_criterion(&job).and_then(|by| by.select_best(&listed)).map(|best| best.file.clone());
    let checkpoint = |info: &CheckpointInfo| checkpoint_json(info, best.as_ref() == Some(&info.file));
    Ok(Json(json!({ "checkpoints": listed.iter().map(checkpoint).collect::<Vec<Value>>() })))
}

fn checkpoint_json(info: &CheckpointInfo, best: bool) -> Value {
    json!({
        "step": info.step,
        "epoch": info.epoch,
        "bytes": info.bytes,
        "digest": info.digest,
        "written_ms": info.written_ms,
        "metrics": info.metrics,
        "best": best,
    })
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
