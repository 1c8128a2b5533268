//! `GET /v2/models[/{model}[/versions/{version}]]/stats`: statistics of versions since they were loaded.

use axum::Json;
use axum::extract::{Path, State};
use saggar_serving::metrics::statistics::DurationSum;
use saggar_serving::{LiveVersion, ModelStatus};
use serde_json::{Value, json};

use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /v2/models/stats`: every version that is ready.
pub(super) async fn all_statistics(State(app): State<AppState>) -> Json<Value> {
    statistics_response(app.models().list().iter().flat_map(ready_version_statistics))
}

/// Handles `GET /v2/models/{model}/stats`: every ready version of a model.
pub(super) async fn model_statistics(
    State(app): State<AppState>,
    Path(model): Path<String>,
) -> Result<Json<Value>, ApiError> {
    Ok(statistics_response(ready_version_statistics(&app.models().status(&model)?)))
}

/// Handles `GET /v2/models/{model}/versions/{version}/stats`.
pub(super) async fn version_statistics(
    State(app): State<AppState>,
    Path((model, version)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let serving = app.models().find_live(Some(&super::parse_reference(&model, Some(&version))?))?;
    Ok(statistics_response([version_statistics_json(&serving)]))
}

fn statistics_response(models: impl IntoIterator<Item = Value>) -> Json<Value> {
    Json(json!({ "model_stats": models.into_iter().collect::<Vec<Value>>() }))
}

fn ready_version_statistics(model: &ModelStatus) -> Vec<Value> {
    model.versions.iter().filter_map(|version| version.serving.as_deref()).map(version_statistics_json).collect()
}

fn version_statistics_json(serving: &LiveVersion) -> Value {
    let statistics = serving.statistics();
    let batch = |(size, compute): (u64, DurationSum)| {
        // Each request is decoded and encoded separately, whatever batch it is computed in.
        json!({ "batch_size": size, "compute_input": duration_json(DurationSum::default()), "compute_infer": duration_json(compute), "compute_output": duration_json(DurationSum::default()) })
    };
    json!({
        "name": serving.model,
        "version": serving.version.to_string(),
        "last_inference": statistics.last_request_ms(),
        "inference_count": statistics.items(),
        "execution_count": statistics.executions(),
        "inference_stats": {
            "success": duration_json(statistics.success.snapshot()),
            "fail": duration_json(statistics.fail.snapshot()),
            "queue": duration_json(statistics.queue.snapshot()),
            "compute_input": duration_json(statistics.compute_input.snapshot()),
            "compute_infer": duration_json(statistics.compute_infer.snapshot()),
            "compute_output": duration_json(statistics.compute_output.snapshot()),
            "cache_hit": duration_json(statistics.cache_hit.snapshot()),
            "cache_miss": duration_json(statistics.cache_miss.snapshot()),
        },
        "response_stats": {},
        "batch_stats": statistics.executions_by_batch_size().into_iter().map(batch).collect::<Vec<Value>>(),
        "memory_usage": [{
            "type": if serving.device == "cpu" { "CPU" } else { "GPU" },
            "id": 0,
            "byte_size": serving.predictor().device_bytes(),
        }],
    })
}

fn duration_json(sum: DurationSum) -> Value {
    json!({ "count": sum.count, "ns": sum.nanoseconds })
}
