//! `GET /api/v1/jobs/{job}/metrics`: a job's metric series, limited in points per response.

use std::collections::BTreeSet;

use axum::extract::State;
use saggar_jobs::SeriesPage;
use saggar_rest::job_metrics::{JobMetricsDocument, MetricSeriesDocument, MetricSeriesPoint};
use saggar_store::records::MetricPoint;

use crate::api::metric_values::finite_value;
use crate::api::query::QueryParameters;
use crate::api::visible_job::VisibleJob;
use crate::app::AppState;
use crate::error::{ApiError, SerializedJson};
use crate::limits::POINTS_ANSWERED_MAX;

/// Handles `GET /api/v1/jobs/{job}/metrics?series=loss&from=&times=`; without `series`, all series are returned. A
/// point is `[step, value]`, with `times` `[step, value, ms]`. If a series has more points than one response holds,
/// `next` is the step from which to request the rest of all series.
pub(crate) async fn metrics(
    State(app): State<AppState>,
    VisibleJob(job): VisibleJob,
    parameters: QueryParameters,
) -> Result<SerializedJson<JobMetricsDocument>, ApiError> {
    let from = parameters.parse("from", "a step")?.unwrap_or(0);
    let times = parameters.flag("times");
    let names = match parameters.get("series") {
        Some(series) => split_distinct_names(series),
        None => app.jobs().series_names(&job.id).await?,
    };
    let curves = app.jobs().series_pages(&job.id, names, from, POINTS_ANSWERED_MAX).await?;
    let started_ms = job.started_ms;
    // Serializing this many points takes long enough to delay the executor's other tasks.
    app.run_blocking(move |_| SerializedJson::new(&metrics_document(started_ms, curves, times))).await
}

/// Splits names at commas and drops duplicates.
fn split_distinct_names(names: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.split(',').filter(|name| seen.insert(*name)).map(str::to_owned).collect()
}

fn metrics_document(started_ms: Option<u64>, curves: Vec<SeriesPage>, times: bool) -> JobMetricsDocument {
    let cut = curves.iter().filter(|curve| curve.is_truncated);
    let next = cut.filter_map(|curve| curve.points.last()).map(|last| last.step + 1).min();
    let point = |point: MetricPoint| match times {
        true => MetricSeriesPoint::Timed(point.step, finite_value(point.value), point.at_ms),
        false => MetricSeriesPoint::Plain(point.step, finite_value(point.value)),
    };
    let series = |curve: SeriesPage| MetricSeriesDocument {
        name: curve.name,
        points: curve.points.into_iter().map(point).collect(),
    };
    JobMetricsDocument { started_ms, series: curves.into_iter().map(series).collect(), next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_arrays_and_next_is_the_first_truncated_step() {
        let point = |step, value| MetricPoint { name: String::new(), step, value, at_ms: 9 };
        let curve = |name: &str, points: &[MetricPoint], is_cut| SeriesPage {
            name: name.to_owned(),
            points: points.to_vec(),
            is_truncated: is_cut,
        };
        let curves = vec![
            curve("a", &[point(1, 0.5), point(8, f64::NAN)], true),
            curve("b", &[point(5, 2.0)], true),
            curve("c", &[point(2, f64::INFINITY)], false),
        ];
        let text = |times| serde_json::to_string(&metrics_document(Some(7), curves.clone(), times)).unwrap();
        assert_eq!(
            text(false),
            r#"{"started_ms":7,"series":[{"name":"a","points":[[1,0.5],[8,null]]},{"name":"b","points":[[5,2.0]]},{"name":"c","points":[[2,null]]}],"next":6}"#
        );
        assert!(text(true).contains(r#"[[1,0.5,9],[8,null,9]]"#));
        assert_eq!(split_distinct_names("loss,loss,b,loss"), ["loss", "b"]);
    }
}
