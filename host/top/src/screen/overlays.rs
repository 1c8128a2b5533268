//! What is drawn over a view: the keys, and the choice of series.

use ratatui::layout::Rect;
use ratatui::style::Style;

use super::{ScreenPainter, short_host};
use crate::key_actions::KEY_TEXTS;
use crate::series_name::SeriesKey;
use crate::series_picker::SeriesPicker;
use crate::table_layout::fit;

impl ScreenPainter<'_> {
    /// Draws the keys. If there are more than rows, they are in two columns.
    pub(super) fn draw_help(&mut self, body: Rect) {
        let rows = usize::from(body.height.saturating_sub(2)).max(1);
        let columns = KEY_TEXTS.len().div_ceil(rows);
        let lines: Vec<String> = match columns {
            1 => KEY_TEXTS.iter().map(|(key, text)| format!("{key:<15} {text}")).collect(),
            _ => {
                let width = usize::from(body.width.saturating_sub(4)) / columns;
                let entry = |at: usize| KEY_TEXTS.get(at).map(|(key, text)| fit(&format!("{key} {text}"), width - 1));
                let line = |row: usize| {
                    let entries = (0..columns).filter_map(|column| entry(row + column * rows));
                    entries.map(|entry| format!("{entry:<width$}")).collect::<String>()
                };
                (0..rows.min(KEY_TEXTS.len())).map(line).collect()
            }
        };
        let styled = lines.into_iter().map(|line| (line, Style::new())).collect();
        self.draw_box(body, " keys ", styled);
    }

    pub(super) fn draw_picker(&mut self, picker: &SeriesPicker, body: Rect) {
        let listed = picker.listed();
        let visible = usize::from(body.height.saturating_sub(3)).max(1);
        let cursor = picker.cursor();
        let first = (cursor + 1).saturating_sub(visible);
        let mut lines = vec![(format!("filter: {}▏  {} series", picker.filter, listed.len()), Style::new())];
        for (at, key) in listed.iter().enumerate().skip(first).take(visible) {
            let mark = if self.state.selection.contains(key) { "[x]" } else { "[ ]" };
            let style = if at == cursor { self.palette.selected() } else { Style::new() };
            lines.push((format!("{mark} {}", self.picker_name(key)), style));
        }
        self.draw_box(body, " series ", lines);
    }

    fn picker_name(&self, key: &SeriesKey) -> String {
        let hosts = self.state.hosts();
        let host = hosts.get(key.host).filter(|_| hosts.len() > 1).map(|it| short_host(&it.document.host));
        let last = self.state.visible_last(key).map_or_else(String::new, saggar_charts::format_number);
        format!("{}:{}  {last}  {}", key.owner, key.name, host.unwrap_or_default())
    }

    /// Draws lines in a box in the middle of an area.
    fn draw_box(&mut self, body: Rect, title: &str, lines: Vec<(String, Style)>) {
        let longest = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0).max(40);
        let width = u16::try_from(longest + 4).unwrap_or(u16::MAX).min(body.width);
        let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(body.height);
        let area = Rect { x: body.x + (body.width - width) / 2, y: body.y + (body.height - height) / 2, width, height };
        let inner = usize::from(width - 2);
        let edge = |left: char, title: &str, right: char| {
            let rest = inner.saturating_sub(title.chars().count());
            format!("{left}{title}{}{right}", "─".repeat(rest))
        };
        let plain = Style::reset();
        self.buffer.set_stringn(area.x, area.y, edge('┌', title, '┐'), usize::from(width), plain);
        for row in 1..height - 1 {
            let (text, style) = lines.get(usize::from(row) - 1).cloned().unwrap_or_default();
            let text = format!(" {:<1$} ", fit(&text, inner - 2), inner - 2);
            self.buffer.set_stringn(area.x, area.y + row, "│", 1, plain);
            self.buffer.set_stringn(area.x + 1, area.y + row, text, inner, plain.patch(style));
            self.buffer.set_stringn(area.x + width - 1, area.y + row, "│", 1, plain);
        }
        self.buffer.set_stringn(area.x, area.y + height - 1, edge('└', "", '┘'), usize::from(width), plain);
    }
}
