//! `metrics/get-history-bulk-interval`: a metric of several runs, with as many values of each as a chart needs.

use axum::extract::State;
use saggar_rest::mlflow::{BulkHistoryResponse, MlflowMetric, MlflowRunMetric};

use super::super::error::MlflowError;
use super::super::experiments::required;
use super::super::history::run_history;
use super::super::runs::metric_document;
use crate::access::ProjectScope;
use crate::api::query::QueryParameters;
use crate::app::AppState;
use crate::error::{ApiError, SerializedJson};
use crate::limits::{MLFLOW_CHART_POINTS_MAX, MLFLOW_CHART_RUNS_MAX};

/// Handles `GET /mlflow/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval`.
pub(super) async fn get_bulk_history(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<SerializedJson<BulkHistoryResponse>, ApiError> {
    let key = required(&parameters, "metric_key")?;
    let ids: Vec<&str> = parameters.all("run_ids").collect();
    if ids.is_empty() || ids.len() > MLFLOW_CHART_RUNS_MAX {
        let (name, expected, got) = ("run_ids", "1 to 100 runs", ids.len().to_string());
        return Err(MlflowError::Parameter { name, expected, got }.into());
    }
    let start: Option<i64> = parameters.parse("start_step", "a whole number")?;
    let end: Option<i64> = parameters.parse("end_step", "a whole number")?;
    let wanted: Option<usize> = parameters.parse("max_results", "a whole number")?;
    let points_max = wanted.unwrap_or(MLFLOW_CHART_POINTS_MAX).clamp(1, MLFLOW_CHART_POINTS_MAX);
    let mut metrics = Vec::new();
    for id in ids {
        let mut points = run_history(&app, &sight, id, key.to_owned()).await?;
        points.retain(|point| start.is_none_or(|start| point.step >= start) && end.is_none_or(|end| point.step <= end));
        let sampled = sampled_indices(points.len(), points_max);
        metrics.extend(sampled.map(|at| {
            let MlflowMetric { key, value, timestamp, step } = metric_document(&points[at]);
            MlflowRunMetric { key, value, timestamp, step, run_id: id.to_owned() }
        }));
    }
    SerializedJson::new(&BulkHistoryResponse { metrics })
}

/// Returns at most `wanted` of the indices below `count`, evenly spaced, with the first and the last.
fn sampled_indices(count: usize, wanted: usize) -> impl Iterator<Item = usize> {
    let sampled = count.min(wanted);
    (0..sampled).map(move |at| match sampled {
        1 => count - 1,
        _ => at * (count - 1) / (sampled - 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_evenly_spaced_and_include_both_ends() {
        let sampled = |count, wanted| sampled_indices(count, wanted).collect::<Vec<_>>();
        assert_eq!(sampled(0, 5), Vec::<usize>::new());
        assert_eq!(sampled(4, 5), [0, 1, 2, 3]);
        assert_eq!(sampled(9, 5), [0, 2, 4, 6, 8]);
        assert_eq!(sampled(9, 1), [8]);
        assert_eq!(sampled(1, 1), [0]);
        let many = sampled(1_000_000, 320);
        assert_eq!((many.len(), many[0], many[319]), (320, 0, 999_999));
        assert!(many.is_sorted_by(|left, right| left < right));
    }
}
