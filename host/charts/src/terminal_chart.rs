//! A line chart as text for a terminal, drawn with braille characters: two by four dots in each character.

use crate::curve::{LineChart, PreparedCurve, PreparedCurves};
use crate::label_text::{clean_label, shorten_until};
use crate::legend::entry_text;
use crate::line_style::{line_letter, terminal_line_colour};
use crate::plot_grid::{PlotCell, PlotGrid, used_cells};

/// The size of a chart in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// The width with the axis, from 60 to 300; others are clamped.
    pub columns: usize,
    /// The height of the plot, from 4 to 60; others are clamped.
    pub rows: usize,
}

/// Draws a line of a chart.
fn draw_curve(grid: &mut PlotGrid, prepared: &PreparedCurves, index: usize, letter: Option<char>) {
    let place = |point: &(f64, f64)| (prepared.x.place(point.0), prepared.y.place(point.1));
    let segments = prepared.curves[index].segments.iter();
    let segments: Vec<Vec<(f64, f64)>> = segments.map(|segment| segment.iter().map(place).collect()).collect();
    grid.draw_curve(&segments, (index, prepared.curves.len()), letter);
}

/// Returns a row as text, without spaces at its end.
fn row_text(grid: &PlotGrid, row: usize, is_coloured: bool) -> String {
    let mut text = String::new();
    for group in used_cells(grid.row(row)).chunk_by(|one, other| one.line() == other.line()) {
        let characters: String = group.iter().map(PlotCell::character).collect();
        text.push_str(&coloured(&characters, group[0].line().filter(|_| is_coloured)));
    }
    text
}

fn coloured(text: &str, line: Option<usize>) -> String {
    match line {
        // Source: ECMA-48, 8.3.117, and ITU-T T.416: a colour by its index.
        Some(line) => format!("\x1b[38;5;{}m{text}\x1b[0m", terminal_line_colour(line)),
        None => text.to_owned(),
    }
}

/// Draws a chart as lines of text, each ended. If there are several lines, each has a letter, in the plot and in the
/// legend, so that they differ without colours too. The text has no control characters except line ends and, if
/// `is_coloured`, the sequences of colours.
pub fn terminal_chart(chart: &LineChart, size: TerminalSize, is_coloured: bool) -> String {
    let (columns, rows) = (size.columns.clamp(60, 300), size.rows.clamp(4, 60));
    let prepared = chart.prepare();
    let (y_ticks, _) = prepared.y.ticks((rows / 2).max(2));
    let label_width = y_ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(0).max(4);
    let plot_columns = columns - label_width - 2;
    let mut grid = PlotGrid::new(plot_columns, rows);
    let letters = prepared.curves.len() > 1;
    let letter = |index: usize| letters.then(|| line_letter(index));
    (0..prepared.curves.len()).for_each(|index| draw_curve(&mut grid, &prepared, index, letter(index)));
    let steps = chart.boundaries.iter().map(|boundary| boundary.step as f64);
    steps.filter(|step| prepared.x.contains(*step)).for_each(|step| grid.draw_boundary(prepared.x.place(step)));
    let mut text = String::new();
    let scale = if chart.is_log { " (log scale)" } else { "" };
    push_line(&mut text, &fitted(&format!("{}{scale}", clean_label(&chart.title)), columns));
    let mut labels = vec![String::new(); rows];
    for tick in &y_ticks {
        labels[grid.row_of(prepared.y.place(tick.value))].clone_from(&tick.label);
    }
    for (row, label) in labels.iter().enumerate() {
        let axis = if label.is_empty() { '│' } else { '┤' };
        push_line(&mut text, &format!("{label:>label_width$} {axis}{}", row_text(&grid, row, is_coloured)));
    }
    push_x_axis(&mut text, chart, &prepared, (label_width, plot_columns));
    push_legend(&mut text, chart, &prepared.curves, columns, is_coloured);
    text
}

/// Adds the horizontal axis with its numbers, and its label where there is room.
fn push_x_axis(
    text: &mut String,
    chart: &LineChart,
    prepared: &PreparedCurves,
    (label_width, columns): (usize, usize),
) {
    let (ticks, _) = prepared.x.ticks((columns / 14).max(2));
    let mut axis = vec!['─'; columns];
    let mut numbers = vec![' '; label_width + 2 + columns];
    let mut free_from = 0;
    for tick in &ticks {
        let column = ((prepared.x.place(tick.value) * (columns * 2 - 1) as f64).round() as usize / 2).min(columns - 1);
        let length = tick.label.chars().count();
        let start = (label_width + 2 + column).saturating_sub(length / 2).min((label_width + 2 + columns) - length);
        axis[column] = '┬';
        if start >= free_from {
            tick.label.chars().enumerate().for_each(|(index, c)| numbers[start + index] = c);
            free_from = start + length + 1;
        }
    }
    push_line(text, &format!("{} └{}", " ".repeat(label_width), axis.iter().collect::<String>()));
    push_line(text, &numbers.iter().collect::<String>());
    let (label, whole) = (clean_label(&chart.x_label), label_width + 2 + columns);
    push_line(
        text,
        &fitted(&format!("{:>1$}", label, label_width + 2 + columns / 2 + label.chars().count() / 2), whole),
    );
}

/// Adds the names and the last values of the lines, as many beside each other as there is room.
fn push_legend(text: &mut String, chart: &LineChart, curves: &[PreparedCurve], columns: usize, is_coloured: bool) {
    let letters = curves.len() > 1;
    let mut line = String::new();
    let mut used = 0;
    for (index, curve) in curves.iter().enumerate() {
        let sign = if letters { line_letter(index) } else { '⣀' };
        let entry = fitted(&entry_text(&chart.lines[index].name, curve), columns - 4);
        let length = entry.chars().count() + 2;
        if used > 0 && used + 3 + length > columns {
            push_line(text, &std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push_str("   ");
            used += 3;
        }
        line.push_str(&format!("{} {entry}", coloured(&sign.to_string(), Some(index).filter(|_| is_coloured))));
        used += length;
    }
    if !line.is_empty() {
        push_line(text, &line);
    }
    if curves.iter().all(|curve| curve.segments.is_empty()) {
        push_line(text, "no values that can be drawn");
    }
    let undrawn = chart.lines.len() - curves.len();
    if undrawn > 0 {
        push_line(text, &format!("{undrawn} more are not drawn"));
    }
    if !chart.boundaries.is_empty() {
        let attempts: Vec<String> = chart.boundaries.iter().map(|boundary| boundary.attempt.to_string()).collect();
        push_line(text, &fitted(&format!("┊ start of attempt {}", attempts.join(", ")), columns));
    }
}

fn fitted(text: &str, columns: usize) -> String {
    shorten_until(text, |text| text.chars().count() <= columns)
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests;
