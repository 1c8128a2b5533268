//! A panel: a chart of braille characters with its range, its axis of time and its legend.

use ratatui::layout::Rect;
use ratatui::style::Style;
use saggar_charts::label_text::clean_label;
use saggar_charts::{AxisScale, AxisTick, PlotGrid, format_number, line_letter};

use super::{ScreenPainter, row_of, short_host};
use crate::series_name::SeriesKey;
use crate::table_layout::fit;
use crate::time_window::time_ticks;
use crate::value_range::{RangeSetting, ValueRange};
use crate::view_state::SeriesPanel;

/// Maximum lines of a panel.
const LINES_MAX: usize = 24;
/// Maximum rows of a legend, as a share of the panel's rows: one of this many.
const LEGEND_SHARE: u16 = 4;

/// Neighbouring places without a gap, from 0 to 1.
type PlacedSegment = Vec<(f64, f64)>;

impl ScreenPainter<'_> {
    /// Draws a panel. `is_focused` marks the one that keys change.
    pub(super) fn draw_panel(&mut self, panel: &SeriesPanel, area: Rect, is_focused: bool) {
        let keys = &panel.keys[..panel.keys.len().min(LINES_MAX)];
        let range = self.state.range(panel);
        let legend = self.legend(panel, keys, area);
        let legend_rows = u16::try_from(legend.len()).unwrap_or(0);
        let rows = area.height.saturating_sub(legend_rows + 2);
        let scale = AxisScale::between(range.low, range.high, false);
        let (ticks, _) = scale.ticks((usize::from(rows) / 3).max(3));
        let label_columns = ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(0).clamp(4, 12);
        let left = u16::try_from(label_columns + 2).unwrap_or(0);
        let plot = Rect { x: area.x + left, y: area.y + 1, width: area.width.saturating_sub(left), height: rows };
        self.draw_title(panel, range, row_of(area, 0), is_focused);
        self.draw_values(keys, &scale, plot);
        self.draw_value_axis(&ticks, &scale, plot, label_columns);
        self.draw_time_axis(plot);
        for (row, entries) in (area.height - legend_rows..).zip(legend) {
            let mut x = area.x;
            for (text, style) in entries {
                let width = u16::try_from(text.chars().count()).unwrap_or(0);
                self.text(x, area.y + row, (area.x + area.width).saturating_sub(x), &text, style);
                x += width;
            }
        }
    }

    fn draw_title(&mut self, panel: &SeriesPanel, range: ValueRange, area: Rect, is_focused: bool) {
        let mark = if is_focused { "▶ " } else { "  " };
        let style = if is_focused { self.palette.bold() } else { Style::new() };
        let title = format!("{mark}{}", clean_label(&panel.title));
        self.text(area.x, area.y, area.width, &title, style);
        let setting = self.state.range_setting(&panel.title);
        let mode = match setting {
            RangeSetting { low: None, high: None, has_outliers: false } => "automatic",
            RangeSetting { low: None, high: None, has_outliers: true } => "every value",
            _ => "set",
        };
        let (above, below) = self.count_outside(panel, range);
        let outside = [(above, "above"), (below, "below")];
        let outside = outside.iter().filter(|(count, _)| *count > 0).map(|(count, side)| format!("{count} {side}, "));
        let text = format!("{}range {mode}", outside.collect::<String>());
        let room = usize::from(area.width).saturating_sub(title.chars().count() + 2);
        let text = fit(&text, room);
        let width = u16::try_from(text.chars().count()).unwrap_or(0);
        let dim = self.palette.dim();
        self.text(area.x + area.width - width, area.y, width, &text, dim);
    }

    /// Returns how many visible values are above and below the range.
    fn count_outside(&self, panel: &SeriesPanel, range: ValueRange) -> (usize, usize) {
        let (start, end) = self.state.visible_ms();
        let mut counts = (0, 0);
        for key in panel.keys.iter().take(LINES_MAX) {
            for (at, value) in self.state.visible_points(key) {
                let is_visible = (start..=end).contains(&at);
                counts.0 += usize::from(is_visible && value > range.high);
                counts.1 += usize::from(is_visible && value < range.low);
            }
        }
        counts
    }

    fn draw_values(&mut self, keys: &[SeriesKey], scale: &AxisScale, plot: Rect) {
        let mut grid = PlotGrid::new(usize::from(plot.width), usize::from(plot.height));
        for (index, key) in keys.iter().enumerate() {
            let segments = self.segments(key, scale);
            let letter = (keys.len() > 1).then(|| line_letter(index));
            grid.draw_curve(&segments, (index, keys.len()), letter);
        }
        for row in 0..plot.height {
            for (column, cell) in (0..plot.width).zip(grid.row(usize::from(row))) {
                let character = cell.character();
                if character != ' ' {
                    let style = cell.line().map_or(Style::new(), |line| self.line_style(keys, line));
                    self.put(plot.x + column, plot.y + row, character, style);
                }
            }
        }
    }

    /// Returns the style of a line; one of a server that does not answer is dim.
    fn line_style(&self, keys: &[SeriesKey], line: usize) -> Style {
        let is_dead =
            keys.get(line).and_then(|key| self.state.hosts().get(key.host)).is_some_and(|it| it.error.is_some());
        if is_dead { self.palette.dim() } else { self.palette.line(line) }
    }

    /// Returns the visible parts of a series. Between a point that is visible and one that is not, the line ends at the
    /// edge.
    fn segments(&self, key: &SeriesKey, scale: &AxisScale) -> Vec<PlacedSegment> {
        let (start, end) = self.state.visible_ms();
        let width = end.saturating_sub(start).max(1) as f64;
        let x = |at: u64| (at as f64 - start as f64) / width;
        let gap_ms = self.state.gap_ms(key);
        let mut segments: Vec<PlacedSegment> = Vec::new();
        let mut before: Option<(u64, f64)> = None;
        for (at, value) in self.state.visible_points(key) {
            if !value.is_finite() {
                before = None;
                continue;
            }
            let here = (x(at), value);
            let joined = before.filter(|(last, _)| at - last <= gap_ms).map(|(last, value)| (x(last), value));
            let is_visible = (start..=end).contains(&at);
            match joined {
                Some(from) => {
                    let ends = [clip(from, here), clip(here, from)];
                    let place = |(x, value): (f64, f64)| (x, scale.place(value));
                    match segments.last_mut().filter(|_| from.0 >= 0.0) {
                        Some(segment) => segment.push(place(ends[1])),
                        None => segments.push(vec![place(ends[0]), place(ends[1])]),
                    }
                }
                None if is_visible => segments.push(vec![(here.0, scale.place(value))]),
                None => {}
            }
            before = Some((at, value));
        }
        segments
    }

    fn draw_value_axis(&mut self, ticks: &[AxisTick], scale: &AxisScale, plot: Rect, label_columns: usize) {
        let grid = PlotGrid::new(1, usize::from(plot.height));
        let dim = self.palette.dim();
        for row in 0..plot.height {
            self.put(plot.x - 1, plot.y + row, '│', dim);
        }
        for tick in ticks {
            let row = plot.y + u16::try_from(grid.row_of(scale.place(tick.value))).unwrap_or(0);
            let label = format!("{:>label_columns$}", fit(&tick.label, label_columns));
            let start = plot.x - 2 - u16::try_from(label_columns).unwrap_or(0);
            self.text(start, row, plot.x - 1 - start, &label, Style::new());
            self.put(plot.x - 1, row, '┤', dim);
        }
    }

    /// Draws the axis of time with its labels in it.
    fn draw_time_axis(&mut self, plot: Rect) {
        let dim = self.palette.dim();
        let y = plot.y + plot.height;
        self.put(plot.x - 1, y, '└', dim);
        (0..plot.width).for_each(|column| self.put(plot.x + column, y, '─', dim));
        let (start, end) = self.state.visible_ms();
        let width = end.saturating_sub(start).max(1) as f64;
        let mut free_from = 0;
        for (at, label) in time_ticks(start, end, self.state.now_ms(), usize::from(plot.width) / 14) {
            let label = format!(" {label} ");
            let length = label.chars().count();
            let columns = usize::from(plot.width);
            let centre = ((at.saturating_sub(start)) as f64 / width * (columns - 1) as f64).round() as usize;
            let first = centre.saturating_sub(length / 2).min(columns.saturating_sub(length));
            if first >= free_from {
                self.text(plot.x + u16::try_from(first).unwrap_or(0), y, plot.width, &label, Style::new());
                free_from = first + length + 1;
            }
        }
    }

    /// Returns the rows of the legend: the letter, the name and the last value of each line.
    fn legend(&self, panel: &SeriesPanel, keys: &[SeriesKey], area: Rect) -> Vec<Vec<(String, Style)>> {
        let rows_max = usize::from((area.height / LEGEND_SHARE).max(1));
        let width = usize::from(area.width);
        let mut rows: Vec<Vec<(String, Style)>> = Vec::new();
        let mut used = width + 1;
        for (index, key) in keys.iter().enumerate() {
            let sign = if keys.len() > 1 { line_letter(index) } else { '⣀' };
            let last = self.state.visible_last(key).map_or("-".to_owned(), format_number);
            let text = fit(&format!("{}  {last}", self.line_name(key)), width.saturating_sub(4));
            let length = text.chars().count() + 5;
            if used + length > width + 3 {
                if rows.len() == rows_max {
                    let more = panel.keys.len() - index;
                    push_more(&mut rows, more, width);
                    return rows;
                }
                rows.push(Vec::new());
                used = 0;
            }
            let style = self.line_style(keys, index);
            let row = rows.last_mut().expect("a row was added");
            row.extend([(sign.to_string(), style), (format!(" {text}   "), Style::new())]);
            used += length;
        }
        if panel.keys.len() > keys.len() {
            push_more(&mut rows, panel.keys.len() - keys.len(), width);
        }
        rows
    }

    /// Returns the name of a line, with its server if there are several.
    fn line_name(&self, key: &SeriesKey) -> String {
        let hosts = self.state.hosts();
        match hosts.get(key.host).filter(|_| hosts.len() > 1) {
            Some(host) => format!("{} {}", short_host(&host.document.host), key.label()),
            None => key.label(),
        }
    }

    fn put(&mut self, x: u16, y: u16, character: char, style: Style) {
        if let Some(cell) = self.buffer.cell_mut((x, y)) {
            cell.set_char(character).set_style(style);
        }
    }
}

/// Adds how many lines are not in the legend, at the end of its last row.
fn push_more(rows: &mut [Vec<(String, Style)>], more: usize, width: usize) {
    let text = format!("+{more} more");
    let Some(row) = rows.last_mut() else { return };
    let length = |row: &[(String, Style)]| row.iter().map(|(text, _)| text.chars().count()).sum::<usize>();
    while length(row) + text.len() > width && row.len() > 2 {
        row.truncate(row.len() - 2);
    }
    row.push((text, Style::new()));
}

/// Returns a place, moved along the line to another place into the visible time.
fn clip(place: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    let x = place.0.clamp(0.0, 1.0);
    if x == place.0 || other.0 == place.0 {
        return (x, place.1);
    }
    let share = (x - place.0) / (other.0 - place.0);
    (x, place.1 + (other.1 - place.1) * share)
}
