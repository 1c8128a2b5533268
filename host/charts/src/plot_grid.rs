//! A plot of braille characters, two by four dots in each: lines with letters, independent of how they are printed.

use crate::curve::reduce_to_columns;

/// The first braille character, without dots. Source: The Unicode Standard, section 21.1.
const BRAILLE_BLANK: u32 = 0x2800;
/// The dots of a braille character by row and column. Source: The Unicode Standard, section 21.1.
const BRAILLE_DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
/// Characters between the letters of a line.
const LETTER_DISTANCE: usize = 24;

/// A character of a plot.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlotCell {
    dots: u32,
    /// The line that was drawn here last.
    line: Option<usize>,
    /// A letter, or a boundary, over the dots.
    over: Option<char>,
}

/// The characters of a plot. Places are from 0 to 1, to the right and upwards.
#[derive(Clone, Debug)]
pub struct PlotGrid {
    columns: usize,
    rows: usize,
    cells: Vec<PlotCell>,
}

impl PlotGrid {
    /// Returns an empty plot of at least one character.
    pub fn new(columns: usize, rows: usize) -> PlotGrid {
        let (columns, rows) = (columns.max(1), rows.max(1));
        PlotGrid { columns, rows, cells: vec![PlotCell::default(); columns * rows] }
    }

    /// Returns the column of a place.
    pub fn column_of(&self, x: f64) -> usize {
        self.dot((x, 0.0)).0 as usize / 2
    }

    /// Returns the row of a place, from the top.
    pub fn row_of(&self, y: f64) -> usize {
        self.dot((0.0, y)).1 as usize / 4
    }

    /// Returns the characters of a row, from the top.
    pub fn row(&self, row: usize) -> &[PlotCell] {
        &self.cells[row * self.columns..(row + 1) * self.columns]
    }

    /// Draws the line `index` of `count` through the places of each segment, in their order from left to right. Its
    /// letter, if it has one, is at its end and now and then.
    pub fn draw_curve(&mut self, segments: &[Vec<(f64, f64)>], (index, count): (usize, usize), letter: Option<char>) {
        let mut next = LETTER_DISTANCE * (index + 1) / (count + 1);
        let mut last = None;
        for segment in segments {
            let places = reduce_to_columns(segment, self.columns * 2);
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

    /// Draws a vertical line where no dots are.
    pub fn draw_boundary(&mut self, x: f64) {
        let column = self.column_of(x);
        for row in 0..self.rows {
            let cell = &mut self.cells[row * self.columns + column];
            if cell.dots == 0 {
                cell.over = Some('┊');
            }
        }
    }

    /// Returns the dot of a place.
    fn dot(&self, (x, y): (f64, f64)) -> (i64, i64) {
        let (width, height) = ((self.columns * 2 - 1) as f64, (self.rows * 4 - 1) as f64);
        ((x.clamp(0.0, 1.0) * width).round() as i64, ((1.0 - y.clamp(0.0, 1.0)) * height).round() as i64)
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

    fn put_letter(&mut self, at: (i64, i64), line: usize, letter: Option<char>) {
        let cell = self.cell(at);
        if letter.is_some() {
            cell.over = letter;
            cell.line = Some(line);
        }
    }
}

impl PlotCell {
    /// Returns the character; a space if nothing was drawn here.
    pub fn character(&self) -> char {
        let braille = || char::from_u32(BRAILLE_BLANK + self.dots).unwrap_or(' ');
        self.over.unwrap_or_else(|| if self.dots == 0 { ' ' } else { braille() })
    }

    /// Returns the number of the line that was drawn here last.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    fn is_used(&self) -> bool {
        self.dots > 0 || self.over.is_some()
    }
}

/// Returns a row without the empty characters at its end.
pub(crate) fn used_cells(row: &[PlotCell]) -> &[PlotCell] {
    let used = row.iter().rposition(PlotCell::is_used).map_or(0, |last| last + 1);
    &row[..used]
}
