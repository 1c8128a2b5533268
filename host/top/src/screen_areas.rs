//! Where things were drawn, so that clicks find them.

use ratatui::layout::{Position, Rect};

use crate::top_view::TopView;

/// A thing that can be clicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScreenTarget {
    Tab(TopView),
    /// A row of the table.
    Row(usize),
    /// A panel of the charts.
    Panel(usize),
}

/// The things of a screen and their places.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScreenAreas(Vec<(Rect, ScreenTarget)>);

impl ScreenAreas {
    pub(crate) fn add(&mut self, area: Rect, target: ScreenTarget) {
        self.0.push((area, target));
    }

    /// Returns what is at a place.
    pub(crate) fn target(&self, column: u16, row: u16) -> Option<ScreenTarget> {
        self.0.iter().find(|(area, _)| area.contains(Position::new(column, row))).map(|(_, target)| *target)
    }
}
