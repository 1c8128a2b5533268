//! `GET /v2/models[/{model}[/versions/{version}]]/stats`: what versions did since they were brought up.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::models::statistics::Sum;
use crate::models::{ModelStatus, Serving};

/// `GET /v2/models/stats`: every version that is ready.
pub(super) async fn all(State(app): State<App>) -> Json<Value> {
    answer(app.models().list().iter().flat_map(ready))
}

/// `GET /v2/models/{model}/stats`: every version of a model that is ready.
pub(super) async fn by_name(State(app): State<App>, Path(model): Path<String>) -> Result<Json<Value>, ApiError> {
    Ok(answer(ready(&app.models().status(&model)?)))
}

/// `GET /v2/models/{model}/versions/{version}/stats`.
pub(super) async fn by_version(
    State(app): State<App>,
    Path((model, version)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let serving = app.models().find(Some(&super::reference(&model, Some(&version))?))?;
    Ok(answer([of(&serving)]))
}

fn answer(models: impl IntoIterator<Item = Value>) -> Json<Value> {
    Json(json!({ "model_stats": models.into_iter().collect::<Vec<Value>>() }))
}

fn ready(model: &ModelStatus) -> Vec<Value> {
    model.versions.iter().filter_map(|version| version.serving.as_deref()).map(of).collect()
}

fn of(serving: &Serving) -> Value {
    let statistics = serving.statistics();
    let batch = |(size, compute): (u64, Sum)| {
        // Requests are decoded and encoded by themselves, whatever batch they are computed in.
        json!({ "batch_size": size, "compute_input": sum(Sum::default()), "compute_infer": sum(compute), "compute_output": sum(Sum::default()) })
    };
    json!({
        "name": serving.model,
        "version": serving.version.to_string(),
        "last_inference": statistics.last_ms(),
        "inference_count": statistics.items(),
        "execution_count": statistics.executions(),
        "inference_stats": {
            "success": sum(statistics.success.sum()),
            "fail": sum(statistics.fail.sum()),
            "queue": sum(statistics.queue.sum()),
            "compute_input": sum(statistics.compute_input.sum()),
            "compute_infer": sum(statistics.compute_infer.sum()),
            "compute_output": sum(statistics.compute_output.sum()),
            "cache_hit": sum(statistics.cache_hit.sum()),
            "cache_miss": sum(statistics.cache_miss.sum()),
        },
        "response_stats": {},
        "batch_stats": statistics.batches().into_iter().map(batch).collect::<Vec<Value>>(),
        "memory_usage": [{
            "type": if serving.device == "cpu" { "CPU" } else { "GPU" },
            "id": 0,
            "byte_size": serving.predictor().bytes(),
        }],
    })
}

fn sum(sum: Sum) -> Value {
    json!({ "count": sum.count, "ns": sum.nanoseconds })
}
