//! Draws the whole screen: the tabs, the servers that need attention, the view, and the keys.

mod chart_panel;
mod overlays;
mod tables;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::palette::TopPalette;
use crate::quantity_text::{time_of_day, window};
use crate::screen_areas::{ScreenAreas, ScreenTarget};
use crate::table_layout::clean_line;
use crate::top_view::TopView;
use crate::view_state::{HostState, TopOverlay, TopState};

/// The smallest screen.
pub(crate) const COLUMNS_MIN: u16 = 60;
pub(crate) const ROWS_MIN: u16 = 15;
/// The widest screen. Further columns stay empty.
const COLUMNS_MAX: u16 = 300;
/// Minimum rows of a chart with its title, axis and legend.
const PANEL_ROWS_MIN: u16 = 8;
/// Minimum rows of a table that has a chart below it.
const TABLE_ROWS_MIN: u16 = 3;
/// Maximum rows for servers that need attention.
const HOST_ROWS_MAX: u16 = 4;

/// What all parts of the screen are drawn with.
pub(crate) struct ScreenPainter<'a> {
    pub(crate) state: &'a TopState,
    pub(crate) palette: TopPalette,
    pub(crate) buffer: &'a mut Buffer,
    pub(crate) areas: ScreenAreas,
}

/// Draws the screen into a buffer and returns where clickable things are.
pub(crate) fn draw_screen(state: &TopState, palette: TopPalette, buffer: &mut Buffer) -> ScreenAreas {
    let whole = Rect { width: buffer.area.width.min(COLUMNS_MAX), ..buffer.area };
    let mut painter = ScreenPainter { state, palette, buffer, areas: ScreenAreas::default() };
    if whole.width < COLUMNS_MIN || whole.height < ROWS_MIN {
        painter.draw_size_needed(whole);
    } else {
        painter.draw_parts(whole);
    }
    painter.areas
}

impl ScreenPainter<'_> {
    fn draw_size_needed(&mut self, whole: Rect) {
        let lines = [
            format!("saggar top needs {COLUMNS_MIN} columns and {ROWS_MIN} rows,"),
            format!("this terminal has {} and {}.", whole.width, whole.height),
            "q ends".to_owned(),
        ];
        for (line, text) in (0..whole.height).zip(&lines) {
            self.text(whole.x, whole.y + line, whole.width, text, Style::new());
        }
    }

    fn draw_parts(&mut self, whole: Rect) {
        self.draw_tabs(row_of(whole, 0));
        let notes = self.attention();
        let note_rows = u16::try_from(notes.len()).unwrap_or(u16::MAX).min(HOST_ROWS_MAX);
        for (row, (text, style)) in (1..=note_rows).zip(&notes) {
            self.text(whole.x, whole.y + row, whole.width, text, *style);
        }
        let body = Rect { y: whole.y + 1 + note_rows, height: whole.height.saturating_sub(note_rows + 2), ..whole };
        match self.state.view {
            TopView::Charts => self.draw_charts(body),
            _ => self.draw_table_and_chart(body),
        }
        self.draw_keys(row_of(whole, whole.height - 1));
        match &self.state.overlay {
            Some(TopOverlay::Help) => self.draw_help(body),
            Some(TopOverlay::Picker(picker)) => self.draw_picker(picker, body),
            None => {}
        }
    }

    fn draw_tabs(&mut self, area: Rect) {
        let mut x = area.x;
        for (number, view) in TopView::ALL.into_iter().enumerate() {
            let text = format!(" {} {} ", number + 1, view.name());
            let width = u16::try_from(text.len()).unwrap_or(0);
            let style = if view == self.state.view { self.palette.selected() } else { Style::new() };
            self.text(x, area.y, width, &text, style);
            self.areas.add(Rect { x, width, ..area }, ScreenTarget::Tab(view));
            x += width;
        }
        let room = usize::from((area.x + area.width).saturating_sub(x + 1));
        let status = self.status_texts().into_iter().find(|text| text.chars().count() <= room).unwrap_or_default();
        let width = u16::try_from(status.chars().count()).unwrap_or(0);
        let style = if self.state.is_paused() { self.palette.bold() } else { self.palette.dim() };
        self.text(area.x + area.width - width, area.y, width, &status, style);
    }

    /// Returns the window, the time of its end, and how it is refreshed, the longest text first.
    fn status_texts(&self) -> Vec<String> {
        let state = self.state;
        let rate = match (state.is_paused(), state.is_replay()) {
            (true, _) => "PAUSED".to_owned(),
            (false, true) => "recording".to_owned(),
            (false, false) => format!("every {}", interval_text(state.interval)),
        };
        if state.now_ms() == 0 {
            return vec![rate];
        }
        let (length, end) = (window(state.window.length().as_secs()), time_of_day(state.visible_ms().1));
        vec![
            format!("{length} to {end} UTC  {rate}"),
            format!("{length}  {end}  {rate}"),
            format!("{end}  {rate}"),
            rate,
        ]
    }

    /// Returns a line for each server that does not answer, and for what could not be read; several servers are listed.
    fn attention(&self) -> Vec<(String, Style)> {
        let mut lines = Vec::new();
        let hosts = self.state.hosts();
        if hosts.len() > 1 {
            let name = |host: &HostState| {
                let sign = if host.error.is_some() { "○" } else { "●" };
                format!("{sign} {}", short_host(&host.document.host))
            };
            lines.push((hosts.iter().map(name).collect::<Vec<_>>().join("   "), Style::new()));
        }
        for host in hosts {
            let name = short_host(&host.document.host);
            if let Some(error) = &host.error {
                lines.push((format!("○ {name}: {error}"), self.palette.bad()));
                continue;
            }
            lines.extend(host.document.notes.iter().map(|note| (format!("{name}: {note}"), self.palette.dim())));
        }
        lines.extend(self.state.notice.iter().map(|notice| (notice.clone(), self.palette.dim())));
        lines
    }

    fn draw_keys(&mut self, area: Rect) {
        let all = match (&self.state.overlay, self.state.view) {
            (Some(TopOverlay::Help), _) => "any key closes",
            (Some(TopOverlay::Picker(_)), _) => "type to filter   ↑↓ select   space adds, removes   Enter closes",
            (None, TopView::Charts) => {
                "q ends  ? keys  Tab view  ↑↓ pan  +- range  ←→ time  <> window  a automatic  s series  [] panel  p pause"
            }
            (None, _) => {
                "q ends  ? keys  Tab view  ↑↓ row  Enter chart  s series  p pause  r refresh  m metric  ←→ time  <> window"
            }
        };
        let mut line = String::new();
        for hint in all.split("  ") {
            if line.chars().count() + hint.chars().count() + 2 > usize::from(area.width) {
                break;
            }
            if !line.is_empty() {
                line.push_str("  ");
            }
            line.push_str(hint);
        }
        let style = self.palette.dim();
        self.text(area.x, area.y, area.width, &line, style);
    }

    fn draw_table_and_chart(&mut self, body: Rect) {
        let panel = self.state.table_panel();
        let wanted = self.table_rows();
        let room = body.height.saturating_sub(PANEL_ROWS_MIN);
        let table_rows = match &panel {
            Some(_) if room >= TABLE_ROWS_MIN => wanted.min(room.min(body.height / 8 * 5).max(TABLE_ROWS_MIN)),
            _ => body.height,
        };
        self.draw_table(Rect { height: table_rows, ..body });
        if let Some(panel) = panel.filter(|_| table_rows < body.height) {
            let area = Rect { y: body.y + table_rows, height: body.height - table_rows, ..body };
            self.draw_panel(&panel, area, false);
        }
    }

    fn draw_charts(&mut self, body: Rect) {
        let panels = self.state.panels();
        if panels.is_empty() {
            let text = match self.state.now_ms() {
                0 => "waiting for the first refresh",
                _ => "no values of the chosen series in this time: s chooses series, ← → pan, < > change the window",
            };
            let style = self.palette.dim();
            self.text(body.x + 1, body.y + 1, body.width.saturating_sub(2), text, style);
            return self.draw_unmatched(Rect { y: body.y + 2, height: 1, ..body });
        }
        let most = usize::from((body.height / PANEL_ROWS_MIN).max(1));
        let focus = self.state.focused_panel();
        let count = panels.len().min(most);
        // The focused panel stays visible.
        let first = (focus + 1).saturating_sub(count).min(panels.len() - count);
        let rows = body.height / u16::try_from(count).unwrap_or(1);
        let mut y = body.y;
        for (at, panel) in panels.iter().enumerate().skip(first).take(count) {
            let is_last = at + 1 == first + count;
            let height = if is_last { body.y + body.height - y } else { rows };
            let area = Rect { y, height, ..body };
            self.areas.add(area, ScreenTarget::Panel(at));
            self.draw_panel(panel, area, at == focus && panels.len() > 1);
            y += height;
        }
    }

    /// States which selectors select nothing.
    fn draw_unmatched(&mut self, area: Rect) {
        let keys = self.state.series_keys();
        let unmatched: Vec<String> = self.state.selection.unmatched(&keys).iter().map(ToString::to_string).collect();
        if !unmatched.is_empty() && self.state.now_ms() > 0 {
            let names: std::collections::BTreeSet<&str> = keys.iter().map(|key| key.name.as_str()).collect();
            let known = names.into_iter().collect::<Vec<_>>().join(", ");
            let text = format!("no series {} yet; there are: {known}", unmatched.join(", "));
            let style = self.palette.dim();
            self.text(area.x + 1, area.y, area.width.saturating_sub(2), &text, style);
        }
    }

    /// Writes a text on one line. Characters that control a terminal are replaced.
    pub(crate) fn text(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) {
        self.buffer.set_stringn(x, y, clean_line(text), usize::from(width), style);
    }
}

/// Returns a row of an area.
pub(crate) fn row_of(area: Rect, row: u16) -> Rect {
    Rect { y: area.y + row, height: 1, ..area }
}

/// Returns a URL without its scheme.
pub(crate) fn short_host(url: &str) -> String {
    url.split_once("://").map_or(url, |(_, rest)| rest).to_owned()
}

fn interval_text(interval: std::time::Duration) -> String {
    if interval.subsec_millis() == 0 { format!("{}s", interval.as_secs()) } else { format!("{interval:?}") }
}

#[cfg(test)]
mod tests;
