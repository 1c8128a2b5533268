//! How many points of each series were reported and recorded.

use std::collections::BTreeMap;

use serde::Serialize;

/// The recording state of one series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct SeriesCounts {
    /// Number of points recorded, including points that have been replaced since.
    pub(super) points: u64,
    /// Number of points reported.
    pub(super) reported: u64,
    /// Every `stride`-th reported point is recorded.
    pub(super) stride: u64,
}

/// The series of a job by name.
pub(super) type SeriesCountsByName = BTreeMap<String, SeriesCounts>;

impl SeriesCounts {
    /// Counts a reported point and returns whether to record it.
    pub(super) fn count_point(&mut self) -> bool {
        let is_recorded = self.reported.is_multiple_of(self.stride.max(1));
        self.reported = self.reported.saturating_add(1);
        self.points += u64::from(is_recorded);
        is_recorded
    }
}

impl Default for SeriesCounts {
    fn default() -> SeriesCounts {
        SeriesCounts { points: 0, reported: 0, stride: 1 }
    }
}
