//! Pages of several series, with a maximum number of points in all.

use saggar_store::error::RecordError;
use saggar_store::limits::POINTS_LISTED_MAX;
use saggar_store::records::JobRecords;

use crate::SeriesPage;

/// Returns the series of these names from a step on, with at most `points_max` points in all.
///
/// Each series gets an equal share, and what short series leave is divided among the others. If there are no more names
/// than points, a truncated series therefore has at least one point, and a client that requests the rest makes
/// progress.
pub(crate) fn read_series_pages(
    records: &dyn JobRecords,
    id: &str,
    names: Vec<String>,
    from_step: u64,
    points_max: usize,
) -> Result<Vec<SeriesPage>, RecordError> {
    let mut curves: Vec<SeriesPage> =
        names.into_iter().map(|name| SeriesPage { name, points: Vec::new(), is_truncated: true }).collect();
    let mut left = points_max;
    loop {
        let room = |curve: &SeriesPage| (POINTS_LISTED_MAX as usize).saturating_sub(curve.points.len());
        let open: Vec<&mut SeriesPage> =
            curves.iter_mut().filter(|curve| curve.is_truncated && room(curve) > 0).collect();
        let share = left.checked_div(open.len()).unwrap_or(0);
        if share == 0 {
            return Ok(curves);
        }
        for curve in open {
            let limit = share.min(room(curve));
            let from = curve.points.last().map_or(from_step, |last| last.step + 1);
            let more = records.series(id, &curve.name, from, u32::try_from(limit).unwrap_or(u32::MAX))?;
            curve.is_truncated = more.len() >= limit;
            left -= more.len();
            curve.points.extend(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use saggar_store::records::{self, MetricPoint, NewJob};

    use super::*;

    /// Returns a job with series `a0`, `a1`, ... of these lengths, at the steps 2, 4, 6, ...
    fn job(lengths: &[u64]) -> (tempfile::TempDir, Arc<dyn JobRecords>, String) {
        let directory = tempfile::tempdir().unwrap();
        let records = records::open(directory.path().join("saggar.db")).unwrap();
        let new = NewJob { project: "p".to_owned(), task: "t".to_owned(), spec: "{}".to_owned(), ..NewJob::default() };
        let id = records.submit(&new, 1).unwrap().id;
        let lease = records.claim(&id, "any", 1).unwrap().unwrap().lease;
        for (at, length) in lengths.iter().enumerate() {
            let point = |step| MetricPoint { name: format!("a{at}"), step: 2 * step, value: 0.0, at_ms: 1 };
            records.record_metrics(&lease, &(1..=*length).map(point).collect::<Vec<_>>()).unwrap();
        }
        (directory, records, id)
    }

    fn check(lengths: &[u64], from: u64, points_max: usize, expected: &[(usize, bool)]) {
        let (_directory, records, id) = job(lengths);
        let names = (0..lengths.len()).map(|at| format!("a{at}")).collect();
        let curves = read_series_pages(&*records, &id, names, from, points_max).unwrap();
        let summaries: Vec<_> = curves.iter().map(|curve| (curve.points.len(), curve.is_truncated)).collect();
        assert_eq!(summaries, expected);
        assert!(curves.iter().all(|curve| curve.points.first().is_none_or(|first| first.step >= from)));
        assert!(curves.iter().all(|curve| curve.points.is_sorted_by(|a, b| a.step < b.step)));
    }

    #[test]
    fn points_are_shared_fairly_among_the_series() {
        check(&[3, 5], 0, 100, &[(3, false), (5, false)]);
        check(&[30, 30], 0, 20, &[(10, true), (10, true)]);
        check(&[1, 30, 0], 0, 20, &[(1, false), (19, true), (0, false)]);
        check(&[10, 30], 41, 20, &[(0, false), (10, false)]);
        check(&[9, 9, 9], 0, 3, &[(1, true), (1, true), (1, true)]);
        check(&[], 0, 3, &[]);
    }

    #[test]
    fn paging_from_the_first_truncated_series_returns_every_point() {
        let (_directory, records, id) = job(&[40, 7, 23]);
        let names: Vec<String> = (0..3).map(|at| format!("a{at}")).collect();
        let mut known: Vec<Vec<u64>> = vec![Vec::new(); 3];
        let (mut next, mut asked) = (Some(0), 0);
        while let Some(from) = next {
            let curves = read_series_pages(&*records, &id, names.clone(), from, 9).unwrap();
            assert!(curves.iter().map(|curve| curve.points.len()).sum::<usize>() <= 9);
            for (known, curve) in known.iter_mut().zip(&curves) {
                let last = known.last().copied().unwrap_or(0);
                known.extend(curve.points.iter().map(|point| point.step).filter(|step| *step > last));
            }
            let cut = curves.iter().filter(|curve| curve.is_truncated).filter_map(|curve| curve.points.last());
            next = cut.map(|last| last.step + 1).min();
            asked += 1;
            assert!(asked < 40, "every answer goes on");
        }
        assert_eq!(known.iter().map(Vec::len).collect::<Vec<_>>(), [40, 7, 23]);
        assert!(known.iter().all(|steps| steps.iter().enumerate().all(|(at, step)| *step == 2 * (at as u64 + 1))));
    }
}
