//! The legend of a line chart: the marker, the name and the last value of each line, in rows above the plot.

use plotters::style::text_anchor::{HPos, VPos};
use plotters_backend::DrawingBackend;

use crate::chart_error::ChartError;
use crate::curve::{LineChart, PreparedCurve};
use crate::label_font::text_width;
use crate::label_text::clean_label;
use crate::line_style::{INK, LineStyle, MUTED};
use crate::numbers::format_number;
use crate::surface::{ChartSurface, TEXT_PIXELS, fit_text};

/// The height of a row, in pixels.
const ROW_PIXELS: f64 = 18.0;
/// The width of the piece of line before a name, in pixels.
const SAMPLE_PIXELS: f64 = 26.0;
const GAP_PIXELS: f64 = 20.0;

/// An entry: the number of its line, or none for a note, and its text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LegendEntry {
    line: Option<usize>,
    text: String,
}

/// The rows of a legend.
pub(crate) struct LegendRows {
    rows: Vec<Vec<LegendEntry>>,
}

impl LegendRows {
    /// Arranges the entries of a chart in at most `rows_max` rows of a width. What has no place there is counted.
    pub(crate) fn arrange(chart: &LineChart, curves: &[PreparedCurve], width: f64, rows_max: usize) -> LegendRows {
        let mut entries: Vec<LegendEntry> = Vec::new();
        for (line, curve) in curves.iter().enumerate() {
            let text = fit_text(&entry_text(&chart.lines[line].name, curve), TEXT_PIXELS, width - SAMPLE_PIXELS);
            entries.push(LegendEntry { line: Some(line), text });
        }
        let undrawn = chart.lines.len() - curves.len();
        if undrawn > 0 {
            entries.push(LegendEntry { line: None, text: format!("{undrawn} more are not drawn") });
        }
        let count = entries.len();
        let mut rows: Vec<Vec<LegendEntry>> = Vec::new();
        let mut left = 0.0;
        for (index, entry) in entries.into_iter().enumerate() {
            let needed = entry_width(&entry);
            if rows.is_empty() || left + needed > width {
                if rows.len() == rows_max {
                    let rest = LegendEntry { line: None, text: format!("and {} more", count - index) };
                    drop_until_it_fits(rows.last_mut().expect("there is a row"), &rest, width, count - index);
                    break;
                }
                rows.push(Vec::new());
                left = 0.0;
            }
            left += needed + GAP_PIXELS;
            rows.last_mut().expect("a row was added").push(entry);
        }
        LegendRows { rows }
    }

    /// Returns the height, in pixels.
    pub(crate) fn height(&self) -> f64 {
        self.rows.len() as f64 * ROW_PIXELS
    }

    /// Draws the rows from a place on.
    pub(crate) fn draw<DB: DrawingBackend>(
        &self,
        surface: &ChartSurface<DB>,
        (left, top): (f64, f64),
    ) -> Result<(), ChartError> {
        for (row, entries) in self.rows.iter().enumerate() {
            let y = top + (row as f64 + 0.5) * ROW_PIXELS;
            let mut x = left;
            for entry in entries {
                let (mut text_x, mut colour) = (x, MUTED);
                if let Some(line) = entry.line {
                    let style = LineStyle::new(line);
                    surface.line(&[(x, y), (x + SAMPLE_PIXELS - 6.0, y)], 2.0, style.colour())?;
                    surface.marker((x + (SAMPLE_PIXELS - 6.0) / 2.0, y), 4.0, style)?;
                    (text_x, colour) = (x + SAMPLE_PIXELS, INK);
                }
                surface.text(&entry.text, (text_x, y), (TEXT_PIXELS, colour), (HPos::Left, VPos::Center))?;
                x += entry_width(entry) + GAP_PIXELS;
            }
        }
        Ok(())
    }
}

/// Replaces entries at the end of a full row by the one that counts them.
fn drop_until_it_fits(row: &mut Vec<LegendEntry>, rest: &LegendEntry, width: f64, mut dropped: usize) {
    let mut rest = rest.clone();
    while row.len() > 1 {
        let used: f64 = row.iter().map(|entry| entry_width(entry) + GAP_PIXELS).sum();
        if used + entry_width(&rest) <= width {
            break;
        }
        row.pop();
        dropped += 1;
        rest.text = format!("and {dropped} more");
    }
    row.push(rest);
}

fn entry_width(entry: &LegendEntry) -> f64 {
    let sample = if entry.line.is_some() { SAMPLE_PIXELS } else { 0.0 };
    sample + text_width(&entry.text, TEXT_PIXELS)
}

/// Returns the text of an entry: `loss 0.0218 (2 not finite)`.
pub(crate) fn entry_text(name: &str, curve: &PreparedCurve) -> String {
    let mut text = format!("{}  {}", clean_label(name), curve.last.map_or("no values".to_owned(), format_number));
    let counts = [(curve.not_finite, "not finite"), (curve.not_positive, "not above 0")];
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if !counts.is_empty() {
        text.push_str(&format!(" ({})", counts.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::SeriesLine;

    fn legend(count: usize, rows_max: usize) -> Vec<Vec<String>> {
        let line = |index: usize| SeriesLine { name: format!("digits-{index}"), points: vec![(1, 0.5)] };
        let chart = LineChart { lines: (0..count).map(line).collect(), ..LineChart::default() };
        let curves = chart.prepare().curves;
        let rows = LegendRows::arrange(&chart, &curves, 300.0, rows_max).rows;
        rows.into_iter().map(|row| row.into_iter().map(|entry| entry.text).collect()).collect()
    }

    #[test]
    fn entries_without_a_place_are_counted() {
        assert_eq!(legend(2, 4), [["digits-0  0.5", "digits-1  0.5"]]);
        let rows = legend(30, 2);
        assert_eq!(rows.len(), 2);
        let named = rows.iter().flatten().filter(|text| text.starts_with("digits")).count();
        // The entry for the lines beyond the maximum counts as one.
        assert_eq!(rows[1].last().unwrap(), &format!("and {} more", 25 - named));
    }

    #[test]
    fn values_that_are_not_drawn_are_counted_beside_the_name() {
        let curve = PreparedCurve { last: Some(f64::NAN), not_finite: 2, not_positive: 1, ..PreparedCurve::default() };
        assert_eq!(entry_text("lo\nss", &curve), "lo\u{fffd}ss  NaN (2 not finite, 1 not above 0)");
        assert_eq!(entry_text("loss", &PreparedCurve::default()), "loss  no values");
    }
}
