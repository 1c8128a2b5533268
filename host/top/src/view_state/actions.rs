//! What keys and the mouse do.

use super::{TopOverlay, TopState};
use crate::key_actions::TopAction;
use crate::screen_areas::ScreenTarget;
use crate::series_name::{OwnerKind, SeriesKey};
use crate::series_picker::SeriesPicker;
use crate::top_view::TopView;
use crate::value_range::RangeSetting;

/// What the program does after a key, besides drawing the screen again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyEffect {
    /// Nothing else.
    Draw,
    /// Polls the servers now.
    Refresh,
    /// Stops the process until the shell continues it.
    Suspend,
    /// Ends.
    Quit,
}

impl TopState {
    /// Applies a key or a click.
    pub(crate) fn apply(&mut self, action: TopAction) -> KeyEffect {
        match action {
            TopAction::Quit => return KeyEffect::Quit,
            TopAction::Suspend => return KeyEffect::Suspend,
            TopAction::Refresh => return KeyEffect::Refresh,
            TopAction::Click(column, row) => self.click(column, row),
            action if self.overlay.is_some() => return self.apply_to_overlay(action),
            TopAction::Close => return KeyEffect::Quit,
            TopAction::Help => self.overlay = Some(TopOverlay::Help),
            TopAction::PickSeries => {
                let keys = self.store.keys().cloned().collect();
                self.overlay = Some(TopOverlay::Picker(SeriesPicker::new(keys)));
            }
            TopAction::Pause => self.pause(),
            TopAction::View(view) => self.view = view,
            TopAction::NextView(by) => {
                let count = TopView::ALL.len();
                self.view = TopView::ALL[(self.view.index() + count).saturating_add_signed(by) % count];
            }
            TopAction::Up => self.move_vertically(true),
            TopAction::Down => self.move_vertically(false),
            TopAction::Earlier => self.pan_time(true),
            TopAction::Later => self.pan_time(false),
            TopAction::Now => self.window.follow(),
            TopAction::LongerWindow => self.window.zoom(true),
            TopAction::ShorterWindow => self.window.zoom(false),
            TopAction::HalveRange => self.change_range(|setting, range| setting.zoom(range, 0.5)),
            TopAction::DoubleRange => self.change_range(|setting, range| setting.zoom(range, 2.0)),
            TopAction::AutomaticRange => self.set_range(RangeSetting::default()),
            TopAction::FullRange => self.set_range(RangeSetting { has_outliers: true, ..RangeSetting::default() }),
            TopAction::NextPanel(by) => self.focus_panel(by),
            TopAction::NextMetric => self.choose_next_metric(),
            TopAction::Open => self.open_row(),
            TopAction::Toggle | TopAction::Backspace | TopAction::Type(_) => {}
        }
        KeyEffect::Draw
    }

    fn apply_to_overlay(&mut self, action: TopAction) -> KeyEffect {
        let is_closed = match (&mut self.overlay, action) {
            (Some(TopOverlay::Picker(picker)), action) => match action {
                TopAction::Toggle => {
                    picker.selected().into_iter().for_each(|key| self.selection.toggle(key));
                    return KeyEffect::Refresh;
                }
                action => picker.apply(action),
            },
            // Every key leaves the page of keys.
            (Some(TopOverlay::Help), _) | (None, _) => true,
        };
        if is_closed {
            self.overlay = None;
        }
        KeyEffect::Draw
    }

    fn pause(&mut self) {
        self.paused = match self.paused.take() {
            Some(_) => None,
            None => Some((self.hosts.clone(), self.newest_ms)),
        };
    }

    /// Moves the selected row of a table, or the range of the focused panel.
    fn move_vertically(&mut self, is_up: bool) {
        if self.view == TopView::Charts {
            let steps = if is_up { 1.0 } else { -1.0 };
            return self.change_range(|setting, range| setting.pan(range, steps));
        }
        let last = self.row_count(self.view).saturating_sub(1);
        let row = self.selected_row(self.view);
        self.rows[self.view.index()] = if is_up { row.saturating_sub(1) } else { (row + 1).min(last) };
    }

    fn pan_time(&mut self, is_earlier: bool) {
        self.window.pan(is_earlier);
        self.show_recorded_time();
    }

    fn choose_next_metric(&mut self) {
        let metrics = self.job_metrics();
        let now = self.job_metric();
        let next = metrics.iter().position(|metric| *metric == now).map_or(0, |at| at + 1);
        self.metric = metrics.get(next).or(metrics.first()).cloned();
    }

    /// Shows the selected row's series in the charts: its usual series, unless one of them is charted already.
    fn open_row(&mut self) {
        let (kind, name) = match self.view {
            TopView::Jobs => (OwnerKind::Job, self.job_metric()),
            TopView::Models => (OwnerKind::Model, "requests".to_owned()),
            TopView::Devices => (OwnerKind::Device, "busy".to_owned()),
            TopView::Charts => return,
        };
        if let Some((host, owner)) = self.row_owner(self.selected_row(self.view)) {
            let key = SeriesKey { kind, name, host, owner };
            if !self.selection.contains(&key) {
                self.selection.toggle(&key);
            }
            self.view = TopView::Charts;
            let title = key.title();
            self.focus = self.panels().iter().position(|panel| panel.title == title).unwrap_or(0);
        }
    }

    /// Returns the server and the name of a row's owner.
    fn row_owner(&self, row: usize) -> Option<(usize, String)> {
        let names = self.hosts().iter().enumerate().flat_map(|(host, state)| {
            let document = &state.document;
            let names: Vec<&String> = match self.view {
                TopView::Jobs => document.jobs.iter().map(|job| &job.name).collect(),
                TopView::Models => document.models.iter().map(|model| &model.name).collect(),
                TopView::Devices => document.devices.iter().map(|device| &device.name).collect(),
                TopView::Charts => Vec::new(),
            };
            names.into_iter().map(move |name| (host, name.clone()))
        });
        names.into_iter().nth(row)
    }

    fn click(&mut self, column: u16, row: u16) {
        match self.areas.target(column, row) {
            // A click beside an overlay leaves it.
            _ if self.overlay.is_some() => self.overlay = None,
            Some(ScreenTarget::Tab(view)) => self.view = view,
            Some(ScreenTarget::Row(row)) => self.rows[self.view.index()] = row,
            Some(ScreenTarget::Panel(panel)) => self.focus = panel,
            None => {}
        }
    }
}
