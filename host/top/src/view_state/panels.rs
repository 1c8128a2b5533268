//! The panels of a view: chosen series of one unit, and the range that they share.

use std::collections::BTreeMap;

use super::TopState;
use crate::series_name::{OwnerKind, SeriesKey};
use crate::top_view::TopView;
use crate::value_range::{RangeSetting, ValueRange};

/// Refreshes without a value after which a line has a gap.
const GAP_REFRESHES: u32 = 5;
/// The time for which servers have a sample for each second; before it, they have one for each minute.
const SECONDS_KEPT_MS: u64 = 600_000;

/// Series that share a vertical axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeriesPanel {
    pub(crate) title: String,
    pub(crate) keys: Vec<SeriesKey>,
}

impl TopState {
    /// Returns the panels of the charts: the chosen series, those of a name and unit together.
    pub(crate) fn panels(&self) -> Vec<SeriesPanel> {
        let mut panels: Vec<SeriesPanel> = Vec::new();
        let mut positions: BTreeMap<String, usize> = BTreeMap::new();
        for key in self.store.keys().filter(|key| self.selection.contains(key) && self.is_visible(key)) {
            let title = key.title();
            let at = *positions.entry(title.clone()).or_insert_with(|| {
                panels.push(SeriesPanel { title, keys: Vec::new() });
                panels.len() - 1
            });
            panels[at].keys.push(key.clone());
        }
        panels
    }

    /// Returns the panel below a table: the metric of all jobs, the requests of all models, the work of all devices.
    pub(crate) fn table_panel(&self) -> Option<SeriesPanel> {
        let (kind, name) = match self.view {
            TopView::Jobs => (OwnerKind::Job, self.job_metric()),
            TopView::Models => (OwnerKind::Model, "requests".to_owned()),
            TopView::Devices => (OwnerKind::Device, "busy".to_owned()),
            TopView::Charts => return None,
        };
        let is_own = |key: &&SeriesKey| key.kind == kind && key.name == name;
        let keys: Vec<SeriesKey> =
            self.store.keys().filter(is_own).filter(|key| self.is_visible(key)).cloned().collect();
        keys.first().map(SeriesKey::title).map(|title| SeriesPanel { title, keys })
    }

    /// Returns whether a series has a point in the visible time.
    fn is_visible(&self, key: &SeriesKey) -> bool {
        let (start, end) = self.visible_ms();
        self.store.has_point_between(key, start, end)
    }

    /// Returns the number of the panel that keys change.
    pub(crate) fn focused_panel(&self) -> usize {
        self.focus.min(self.panels().len().saturating_sub(1))
    }

    /// Returns the points of a series in the visible time, and one on each side.
    pub(crate) fn visible_points(&self, key: &SeriesKey) -> Vec<(u64, f64)> {
        let (start, end) = self.visible_ms();
        self.store.points_between(key, start, end)
    }

    /// Returns the last value of a series at the end of the visible time, or `None` if it has none now.
    pub(crate) fn visible_last(&self, key: &SeriesKey) -> Option<f64> {
        let (_, end) = self.visible_ms();
        let (at, value) = self.store.last_at(key, end)?;
        (end - at <= self.gap_ms(key)).then_some(value)
    }

    /// Returns the milliseconds without a value after which a series has a gap. The metrics of a job have none: a step can
    /// take any time.
    pub(crate) fn gap_ms(&self, key: &SeriesKey) -> u64 {
        if key.is_recorded() {
            return u64::MAX;
        }
        let refreshes = u64::try_from((self.interval * GAP_REFRESHES).as_millis()).unwrap_or(u64::MAX);
        let (start, end) = self.visible_ms();
        // Earlier times have a point a minute, or as many as a history was asked for.
        let least = if end - start > SECONDS_KEPT_MS { 90_000 } else { 5000 };
        refreshes.max(least).max((end - start) / 50)
    }

    /// Returns how the range of a panel is chosen.
    pub(crate) fn range_setting(&self, title: &str) -> RangeSetting {
        self.ranges.get(title).copied().unwrap_or(self.first_range)
    }

    /// Returns the range of a panel.
    pub(crate) fn range(&self, panel: &SeriesPanel) -> ValueRange {
        let (start, end) = self.visible_ms();
        let values = |key: &SeriesKey| {
            let points = self.store.points_between(key, start, end).into_iter();
            points.filter(|(at, _)| (start..=end).contains(at)).map(|(_, value)| value).collect()
        };
        self.range_setting(&panel.title).resolve(&panel.keys.iter().map(values).collect::<Vec<_>>())
    }

    /// Changes the range of the panel that keys change.
    pub(super) fn change_range(&mut self, change: impl Fn(&mut RangeSetting, ValueRange)) {
        let Some(panel) = self.active_panel() else { return };
        let range = self.range(&panel);
        let mut setting = self.range_setting(&panel.title);
        change(&mut setting, range);
        self.ranges.insert(panel.title, setting);
    }

    pub(super) fn set_range(&mut self, setting: RangeSetting) {
        self.change_range(|own, _| *own = setting);
    }

    pub(super) fn focus_panel(&mut self, by: isize) {
        let count = self.panels().len().max(1);
        self.focus = (self.focused_panel() + count).saturating_add_signed(by) % count;
    }

    fn active_panel(&self) -> Option<SeriesPanel> {
        match self.view {
            TopView::Charts => self.panels().into_iter().nth(self.focused_panel()),
            _ => self.table_panel(),
        }
    }
}
