//! Tables that leave out their least important columns if the screen is narrow.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use saggar_charts::label_text::clean_label;

/// Characters between columns.
const GAP: u16 = 2;

/// A column: its header, its width, and how long it stays if the screen becomes narrow.
#[derive(Clone, Debug)]
pub(crate) struct ScreenColumn {
    pub(crate) header: String,
    /// The width in characters; a minimum for the column that gets the rest of the line.
    pub(crate) width: u16,
    pub(crate) is_right: bool,
    /// Columns with the highest rank are left out first.
    pub(crate) rank: u16,
}

impl ScreenColumn {
    pub(crate) fn left(header: &str, width: u16, rank: u16) -> ScreenColumn {
        ScreenColumn { header: header.to_owned(), width, is_right: false, rank }
    }

    pub(crate) fn right(header: &str, width: u16, rank: u16) -> ScreenColumn {
        ScreenColumn { is_right: true, ..ScreenColumn::left(header, width, rank) }
    }
}

/// A cell: its text and its style.
pub(crate) type TableCell = (String, Style);

/// A column that is drawn: its number, its place and its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedColumn {
    pub(crate) column: usize,
    x: u16,
    width: u16,
}

/// Returns the columns that fit into a width, in their order. One column gets what is left, up to a number of characters.
pub(crate) fn place_columns(columns: &[ScreenColumn], width: u16, (wide, wide_max): (usize, u16)) -> Vec<PlacedColumn> {
    let mut chosen: Vec<usize> = (0..columns.len()).collect();
    let needed = |chosen: &[usize]| chosen.iter().map(|at| columns[*at].width + GAP).sum::<u16>().saturating_sub(GAP);
    while chosen.len() > 1 && needed(&chosen) > width {
        let worst = chosen.iter().enumerate().skip(1).max_by_key(|(_, column)| columns[**column].rank);
        if let Some((at, _)) = worst {
            chosen.remove(at);
        }
    }
    let rest = width.saturating_sub(needed(&chosen));
    let mut x = 0;
    let mut placed = Vec::new();
    for column in chosen {
        let own = columns[column].width;
        let width = if column == wide { (own + rest).min(wide_max.max(own)) } else { own };
        placed.push(PlacedColumn { column, x, width });
        x += width + GAP;
    }
    placed
}

/// Draws the headers at the top of an area.
pub(crate) fn draw_headers(
    buffer: &mut Buffer,
    area: Rect,
    columns: &[ScreenColumn],
    placed: &[PlacedColumn],
    style: Style,
) {
    for one in placed {
        let column = &columns[one.column];
        draw_cell(buffer, area, *one, column.is_right, (&column.header, style));
    }
}

/// Draws a row at the top of an area.
pub(crate) fn draw_row(
    buffer: &mut Buffer,
    area: Rect,
    columns: &[ScreenColumn],
    placed: &[PlacedColumn],
    cells: &[TableCell],
) {
    for one in placed {
        if let Some((text, style)) = cells.get(one.column) {
            draw_cell(buffer, area, *one, columns[one.column].is_right, (text, *style));
        }
    }
}

fn draw_cell(buffer: &mut Buffer, area: Rect, one: PlacedColumn, is_right: bool, (text, style): (&str, Style)) {
    let width = usize::from(one.width);
    let text = fit(text, width);
    let start = if is_right { width.saturating_sub(text.chars().count()) } else { 0 };
    let x = area.x + one.x + u16::try_from(start).unwrap_or(0);
    buffer.set_stringn(x, area.y, text, width, style);
}

/// Returns a text of one line without characters that control a terminal.
pub(crate) fn clean_line(text: &str) -> String {
    text.split(' ').map(clean_label).collect::<Vec<_>>().join(" ")
}

/// Returns a text without control characters that has at most a number of characters; a shortened one ends in `…`.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let text = clean_line(text);
    if text.chars().count() <= width {
        return text;
    }
    text.chars().take(width.saturating_sub(1)).chain(std::iter::once('…')).take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_high_rank_are_left_out_first() {
        let columns = [
            ScreenColumn::left("NAME", 8, 0),
            ScreenColumn::left("STATE", 9, 1),
            ScreenColumn::right("LOSS", 8, 2),
            ScreenColumn::right("TIME", 7, 3),
        ];
        let names = |width| {
            let placed = place_columns(&columns, width, (0, 30));
            placed.iter().map(|one| (columns[one.column].header.as_str(), one.width)).collect::<Vec<_>>()
        };
        assert_eq!(names(100), [("NAME", 30), ("STATE", 9), ("LOSS", 8), ("TIME", 7)]);
        assert_eq!(names(30), [("NAME", 9), ("STATE", 9), ("LOSS", 8)]);
        assert_eq!(names(5), [("NAME", 8)]);
        assert_eq!((fit("digits-7", 5).as_str(), fit("a\x1bb", 9).as_str()), ("digi…", "a\u{fffd}b"));
    }
}
