//! The points of every series: those of refreshes, those that jobs recorded, and those of a history.

use std::collections::{BTreeMap, VecDeque};

use crate::recorded_series::RecordedSeries;
use crate::series_name::SeriesKey;

/// Maximum points of a series. The oldest are dropped.
const POINTS_MAX: usize = 20_000;
/// Maximum series. Further ones are not stored.
const SERIES_MAX: usize = 4096;

/// A point: Unix milliseconds and value.
pub(crate) type TimedValue = (u64, f64);

/// The points of a series, by rising time.
#[derive(Clone, Debug, Default)]
struct StoredSeries {
    points: VecDeque<TimedValue>,
    /// The points of histories, which stay when recorded points replace all others.
    history: Vec<TimedValue>,
    /// Whether the points are those that its job or the server recorded, which are more exact than those of refreshes.
    is_recorded: bool,
}

impl StoredSeries {
    /// Adds the points of histories that are before the first point.
    fn prepend_history(&mut self) {
        let first = self.points.front().map_or(u64::MAX, |(at, _)| *at);
        let room = POINTS_MAX.saturating_sub(self.points.len());
        let earlier = self.history.iter().rev().filter(|(at, _)| *at < first).take(room);
        earlier.for_each(|point| self.points.push_front(*point));
    }
}

/// The points of all series.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeriesStore {
    series: BTreeMap<SeriesKey, StoredSeries>,
}

impl SeriesStore {
    /// Adds the value of a refresh, unless the series has recorded points.
    pub(crate) fn add_sample(&mut self, key: SeriesKey, at_ms: u64, value: f64) {
        if let Some(stored) = self.entry(key).filter(|stored| !stored.is_recorded) {
            // The clock can have been set back.
            if stored.points.back().is_none_or(|(last, _)| at_ms > *last) {
                push_bounded(&mut stored.points, (at_ms, value));
            }
        }
    }

    /// Adds points that a job or the server recorded.
    pub(crate) fn add_recorded(&mut self, host: usize, series: RecordedSeries) {
        let key = SeriesKey { kind: series.kind, name: series.name, host, owner: series.owner };
        let Some(stored) = self.entry(key) else { return };
        let is_replaced = series.is_whole || !stored.is_recorded;
        if is_replaced {
            stored.points.clear();
            stored.is_recorded = true;
        }
        series.points.into_iter().for_each(|point| push_bounded(&mut stored.points, point));
        if is_replaced {
            stored.prepend_history();
        }
    }

    /// Adds points of a history before the first point of a series.
    pub(crate) fn add_history(&mut self, key: SeriesKey, points: &[TimedValue]) {
        let Some(stored) = self.entry(key) else { return };
        stored.history.extend(points);
        stored.history.sort_by_key(|(at, _)| *at);
        stored.history.dedup_by_key(|(at, _)| *at);
        stored.prepend_history();
    }

    /// Returns every series that has points.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &SeriesKey> {
        self.series.iter().filter(|(_, stored)| !stored.points.is_empty()).map(|(key, _)| key)
    }

    /// Returns whether a series has a point in a time.
    pub(crate) fn has_point_between(&self, key: &SeriesKey, start_ms: u64, end_ms: u64) -> bool {
        let Some(stored) = self.series.get(key) else { return false };
        let first = stored.points.partition_point(|(at, _)| *at < start_ms);
        stored.points.get(first).is_some_and(|(at, _)| *at <= end_ms)
    }

    /// Returns the points of a series in a time, and one on each side, by rising time.
    pub(crate) fn points_between(&self, key: &SeriesKey, start_ms: u64, end_ms: u64) -> Vec<TimedValue> {
        let Some(stored) = self.series.get(key) else { return Vec::new() };
        let first = stored.points.partition_point(|(at, _)| *at < start_ms).saturating_sub(1);
        let end = (stored.points.partition_point(|(at, _)| *at <= end_ms) + 1).min(stored.points.len());
        stored.points.range(first.min(end)..end).copied().collect()
    }

    /// Returns the last point of a series at a time.
    pub(crate) fn last_at(&self, key: &SeriesKey, at_ms: u64) -> Option<TimedValue> {
        let points = &self.series.get(key)?.points;
        let end = points.partition_point(|(at, _)| *at <= at_ms);
        end.checked_sub(1).map(|last| points[last])
    }

    fn entry(&mut self, key: SeriesKey) -> Option<&mut StoredSeries> {
        if self.series.len() >= SERIES_MAX && !self.series.contains_key(&key) {
            return None;
        }
        Some(self.series.entry(key).or_default())
    }
}

fn push_bounded(points: &mut VecDeque<TimedValue>, point: TimedValue) {
    if points.len() >= POINTS_MAX {
        points.pop_front();
    }
    points.push_back(point);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series_name::OwnerKind;

    fn loss() -> SeriesKey {
        SeriesKey { kind: OwnerKind::Job, name: "loss".to_owned(), host: 0, owner: "a".to_owned() }
    }

    fn recorded(is_whole: bool, points: &[TimedValue]) -> RecordedSeries {
        let (owner, name) = ("a".to_owned(), "loss".to_owned());
        RecordedSeries { kind: OwnerKind::Job, owner, name, is_whole, points: points.to_vec() }
    }

    #[test]
    fn recorded_points_replace_samples_and_grow() {
        let mut store = SeriesStore::default();
        store.add_sample(loss(), 10, 1.0);
        store.add_recorded(0, recorded(true, &[(1, 4.0), (2, 3.0)]));
        store.add_sample(loss(), 20, 9.0);
        store.add_recorded(0, recorded(false, &[(3, 2.0)]));
        assert_eq!(store.points_between(&loss(), 0, 100), [(1, 4.0), (2, 3.0), (3, 2.0)]);
        assert_eq!((store.last_at(&loss(), 2), store.last_at(&loss(), 0)), (Some((2, 3.0)), None));
    }

    #[test]
    fn a_history_is_added_before_the_first_sample() {
        let mut store = SeriesStore::default();
        store.add_sample(loss(), 10, 1.0);
        store.add_sample(loss(), 9, 5.0);
        store.add_history(loss(), &[(4, 4.0), (8, 8.0), (12, 12.0)]);
        store.add_history(loss(), &[(2, 2.0), (8, 0.0)]);
        assert_eq!(store.points_between(&loss(), 0, 100), [(2, 2.0), (4, 4.0), (8, 8.0), (10, 1.0)]);
        assert_eq!(store.points_between(&loss(), 5, 8), [(4, 4.0), (8, 8.0), (10, 1.0)]);
        assert!(store.points_between(&loss(), 20, 30).len() == 1);
        // Recorded points replace the others, but not what was before them.
        store.add_recorded(0, recorded(true, &[(7, 1.0), (9, 2.0)]));
        assert_eq!(store.points_between(&loss(), 0, 100), [(2, 2.0), (4, 4.0), (7, 1.0), (9, 2.0)]);
    }
}
