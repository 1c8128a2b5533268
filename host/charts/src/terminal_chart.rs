//! A line chart as text for a terminal, drawn with braille characters: two by four dots in each character.

use crate::curve::{LineChart, PreparedCurve, PreparedCurves, reduce_to_columns};
use crate::label_text::{clean_label, shorten_until};
use crate::legend::entry_text;

/// The size of a chart in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// The width with the axis, from 60 to 300; others are clamped.
    pub columns: usize,
    /// The height of the plot, from 4 to 60; others are clamped.
    pub rows: usize,
}

/// The first braille character, without dots. Source: The Unicode Standard, section 21.1.
const BRAILLE_BLANK: u32 = 0x2800;
/// The dots of a braille character by row and column. Source: The Unicode Standard, section 21.1.
const BRAILLE_DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
/// Colours of ECMA-48 (section 8.3.117) for lines: cyan, yellow, magenta, green, red, blue.
const COLOUR_CODES: [u32; 6] = [36, 33, 35, 32, 31, 34];
/// Characters between the letters of a line.
const LETTER_DISTANCE: usize = 24;

/// A character of the plot.
#[derive(Clone, Copy, Default)]
struct PlotCell {
    dots: u32,
    /// The line that was drawn here last.
    line: Option<usize>,
    /// A letter, or a boundary, over the dots.
    over: Option<char>,
}

/// The characters of the plot.
struct PlotGrid {
    columns: usize,
    rows: usize,
    cells: Vec<PlotCell>,
}

impl PlotGrid {
    fn new(columns: usize, rows: usize) -> PlotGrid {
        PlotGrid { columns, rows, cells: vec![PlotCell::default(); columns * rows] }
    }

    /// Returns the dot of a place, from 0 to 1 to the right and upwards.
    fn dot(&self, (x, y): (f64, f64)) -> (i64, i64) {
        let (width, height) = ((self.columns * 2 - 1) as f64, (self.rows * 4 - 1) as f64);
        ((x * width).round() as i64, ((1.0 - y) * height).round() as i64)
    }

    fn cell(&mut self, (x, y): (i64, i64)) -> &mut PlotCell {
        let (column, row) = (x as usize / 2, y as usize / 4);
        &mut self.cells[row.min(self.rows - 1) * self.columns + column.min(self.columns - 1)]
    }

    fn set(&mut self, at: (i64, i64), line: usize) {
        let cell = self.cell(at);
        cell.dots |= BRAILLE_DOTS[at.1 as usize % 4][at.0 as usize % 2];
        cell.line = Some(line);
    }

    /// Sets the dots of a straight line. Source: Bresenham 1965, Algorithm for computer control of a digital plotter.
    fn draw_line(&mut self, from: (i64, i64), to: (i64, i64), line: usize) {
        let (dx, dy) = ((to.0 - from.0).abs(), -(to.1 - from.1).abs());
        let (sign_x, sign_y) = ((to.0 - from.0).signum(), (to.1 - from.1).signum());
        let (mut at, mut error) = (from, dx + dy);
        loop {
            self.set(at, line);
            if at == to {
                return;
            }
            let doubled = error * 2;
            if doubled >= dy {
                error += dy;
                at.0 += sign_x;
            }
            if doubled <= dx {
                error += dx;
                at.1 += sign_y;
            }
        }
    }

    /// Draws a line with its letter, if it has one, at its end and now and then.
    fn draw_curve(&mut self, prepared: &PreparedCurves, index: usize, letter: Option<char>) {
        let curve = &prepared.curves[index];
        let mut next = LETTER_DISTANCE * (index + 1) / (prepared.curves.len() + 1);
        let mut last = None;
        for segment in &curve.segments {
            let places = segment.iter().map(|(step, value)| (prepared.x.place(*step), prepared.y.place(*value)));
            let places = reduce_to_columns(&places.collect::<Vec<_>>(), self.columns * 2);
            let dots: Vec<(i64, i64)> = places.into_iter().map(|place| self.dot(place)).collect();
            dots.windows(2).for_each(|ends| self.draw_line(ends[0], ends[1], index));
            dots.first().into_iter().for_each(|dot| self.set(*dot, index));
            for dot in &dots {
                let column = dot.0 as usize / 2;
                if column >= next && letter.is_some() {
                    self.put_letter(*dot, index, letter);
                    next = column + LETTER_DISTANCE;
                }
            }
            last = dots.last().copied().or(last);
        }
        if let Some(last) = last {
            self.put_letter(last, index, letter);
        }
    }

    fn put_letter(&mut self, at: (i64, i64), line: usize, letter: Option<char>) {
        let cell = self.cell(at);
        if letter.is_some() {
            cell.over = letter;
            cell.line = Some(line);
        }
    }

    /// Draws a vertical line where no dots are.
    fn draw_boundary(&mut self, x: f64) {
        let column = (self.dot((x, 0.0)).0 / 2) as usize;
        for row in 0..self.rows {
            let cell = &mut self.cells[row * self.columns + column];
            if cell.dots == 0 {
                cell.over = Some('┊');
            }
        }
    }

    /// Returns a row as text, without spaces at its end.
    fn row_text(&self, row: usize, is_coloured: bool) -> String {
        let cells = &self.cells[row * self.columns..(row + 1) * self.columns];
        let mut text = String::new();
        let used = cells.iter().rposition(|cell| cell.dots > 0 || cell.over.is_some()).map_or(0, |last| last + 1);
        for group in cells[..used].chunk_by(|one, other| one.line == other.line) {
            let characters: String = group.iter().map(PlotCell::character).collect();
            text.push_str(&coloured(&characters, group[0].line.filter(|_| is_coloured)));
        }
        text
    }
}

impl PlotCell {
    fn character(&self) -> char {
        let braille = || char::from_u32(BRAILLE_BLANK + self.dots).unwrap_or(' ');
        self.over.unwrap_or_else(|| if self.dots == 0 { ' ' } else { braille() })
    }
}

fn coloured(text: &str, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("\x1b[{}m{text}\x1b[0m", COLOUR_CODES[line % COLOUR_CODES.len()]),
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
    let letter = |index: usize| letters.then(|| letter_of(index));
    (0..prepared.curves.len()).for_each(|index| grid.draw_curve(&prepared, index, letter(index)));
    let steps = chart.boundaries.iter().map(|boundary| boundary.step as f64);
    steps.filter(|step| prepared.x.contains(*step)).for_each(|step| grid.draw_boundary(prepared.x.place(step)));
    let mut text = String::new();
    let scale = if chart.is_log { " (log scale)" } else { "" };
    push_line(&mut text, &fitted(&format!("{}{scale}", clean_label(&chart.title)), columns));
    let mut labels = vec![String::new(); rows];
    for tick in &y_ticks {
        let (_, dot) = grid.dot((0.0, prepared.y.place(tick.value)));
        labels[dot as usize / 4].clone_from(&tick.label);
    }
    for (row, label) in labels.iter().enumerate() {
        let axis = if label.is_empty() { '│' } else { '┤' };
        push_line(&mut text, &format!("{label:>label_width$} {axis}{}", grid.row_text(row, is_coloured)));
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
        let sign = if letters { letter_of(index) } else { '⣀' };
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

fn letter_of(index: usize) -> char {
    char::from(b'A' + u8::try_from(index % 26).unwrap_or(0))
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
