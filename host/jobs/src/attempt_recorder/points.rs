//! Records the points of an attempt's series.

use saggar_store::error::RecordError;
use saggar_store::records::{JobLease, JobRecords, MetricPoint};

/// Records points. A failure does not end the training: if there are too many series, their values are dropped and the
/// reason is returned.
pub(super) fn record_points(
    records: &dyn JobRecords,
    lease: &JobLease,
    points: &[MetricPoint],
) -> Result<Option<String>, RecordError> {
    let refused = match records.record_metrics(lease, points) {
        Err(error @ RecordError::Invalid { .. }) => error.to_string(),
        done => return done.map(|()| None),
    };
    let known = records.series_names(&lease.job)?;
    let known_points: Vec<MetricPoint> = points.iter().filter(|point| known.contains(&point.name)).cloned().collect();
    records.record_metrics(lease, &known_points)?;
    Ok(Some(refused))
}
