//! `GET /v2/models[/{model}[/versions/{version}]]/stats`: statistics of versions since they were loaded.

use axum::Json;
use axum::extract::{Path, State};
use saggar_rest::oip::{
    OipBatchStatistics, OipDurationStatistics, OipInferenceStatistics, OipMemoryUsage, OipStatisticsDocument,
    OipVersionStatistics,
};
use saggar_serving::metrics::statistics::DurationSum;
use saggar_serving::{LiveVersion, ModelStatus};
use serde_json::Map;

use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /v2/models/stats`: every version that is ready.
pub(super) async fn all_statistics(State(app): State<AppState>) -> Result<Json<OipStatisticsDocument>, ApiError> {
    find_statistics(&app, "", None)
}

/// Handles `GET /v2/models/{model}/stats`: every ready version of a model.
pub(super) async fn model_statistics(
    State(app): State<AppState>,
    Path(model): Path<String>,
) -> Result<Json<OipStatisticsDocument>, ApiError> {
    find_statistics(&app, &model, None)
}

/// Handles `GET /v2/models/{model}/versions/{version}/stats`.
pub(super) async fn version_statistics(
    State(app): State<AppState>,
    Path((model, version)): Path<(String, String)>,
) -> Result<Json<OipStatisticsDocument>, ApiError> {
    find_statistics(&app, &model, Some(&version))
}

/// Returns the statistics of every model if `model` is empty, of every ready version of a model, or of one version.
///
/// # Errors
/// Returns an error if the model or version does not exist or is not ready.
pub(super) fn find_statistics(
    app: &AppState,
    model: &str,
    version: Option<&str>,
) -> Result<Json<OipStatisticsDocument>, ApiError> {
    match version {
        _ if model.is_empty() => Ok(statistics_response(app.models().list().iter().flat_map(ready_version_statistics))),
        None => Ok(statistics_response(ready_version_statistics(&app.models().status(model)?))),
        Some(version) => {
            let serving = app.models().find_live(Some(&super::parse_reference(model, Some(version))?))?;
            Ok(statistics_response([version_statistics_of(&serving)]))
        }
    }
}

fn statistics_response(models: impl IntoIterator<Item = OipVersionStatistics>) -> Json<OipStatisticsDocument> {
    Json(OipStatisticsDocument { model_stats: models.into_iter().collect() })
}

fn ready_version_statistics(model: &ModelStatus) -> Vec<OipVersionStatistics> {
    model.versions.iter().filter_map(|version| version.serving.as_deref()).map(version_statistics_of).collect()
}

fn version_statistics_of(serving: &LiveVersion) -> OipVersionStatistics {
    let statistics = serving.statistics();
    let batch = |(batch_size, compute): (u64, DurationSum)| OipBatchStatistics {
        batch_size,
        // Each request is decoded and encoded separately, whatever batch it is computed in.
        compute_input: OipDurationStatistics::default(),
        compute_infer: duration_statistics(compute),
        compute_output: OipDurationStatistics::default(),
    };
    OipVersionStatistics {
        name: serving.model.clone(),
        version: serving.version.to_string(),
        last_inference: statistics.last_request_ms(),
        inference_count: statistics.items(),
        execution_count: statistics.executions(),
        inference_stats: OipInferenceStatistics {
            success: duration_statistics(statistics.success.snapshot()),
            fail: duration_statistics(statistics.fail.snapshot()),
            queue: duration_statistics(statistics.queue.snapshot()),
            compute_input: duration_statistics(statistics.compute_input.snapshot()),
            compute_infer: duration_statistics(statistics.compute_infer.snapshot()),
            compute_output: duration_statistics(statistics.compute_output.snapshot()),
            cache_hit: duration_statistics(statistics.cache_hit.snapshot()),
            cache_miss: duration_statistics(statistics.cache_miss.snapshot()),
        },
        response_stats: Map::new(),
        batch_stats: statistics.executions_by_batch_size().into_iter().map(batch).collect(),
        memory_usage: vec![OipMemoryUsage {
            kind: if serving.device == "cpu" { "CPU" } else { "GPU" }.to_owned(),
            id: 0,
            byte_size: serving.predictor().device_bytes(),
        }],
    }
}

fn duration_statistics(sum: DurationSum) -> OipDurationStatistics {
    OipDurationStatistics { count: sum.count, ns: sum.nanoseconds }
}
